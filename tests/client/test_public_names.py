"""``pocketmq.client`` exports what its public calls take and raise."""

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import pocketmq.client
from pocketmq.client import Admin, blocking, durable, idempotence, telemetry
from pocketmq.common.errors import PocketMQError

RAISES = re.compile(r"[Rr]aises? ((?:(?:, | or | and )?``\w+``)+)")
MODULES = (pocketmq.client, blocking, durable, idempotence, telemetry)


def public_texts() -> Iterator[tuple[str, str]]:
    """Yield the docstring of each public callable of the SDK, and of the public methods of public classes."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            yield f"{module.__name__}.{name}", inspect.getdoc(value) or ""
            if inspect.isclass(value):
                for method, function in inspect.getmembers(value, inspect.isroutine):
                    if not method.startswith("_"):
                        yield f"{name}.{method}", inspect.getdoc(function) or ""
    for method, function in inspect.getmembers(Admin, inspect.isroutine):
        yield f"Admin.{method}", inspect.getdoc(function) or ""


def test_every_error_of_a_docstring_can_be_imported() -> None:
    """Each error named after "Raises" is in ``pocketmq.client`` or in the package that raises it, or is built in."""
    known = {name for module in (*MODULES, importlib.import_module("pocketmq.client.admin")) for name in module.__all__}
    named = {
        (where, error)
        for where, text in public_texts()
        for match in RAISES.finditer(" ".join(text.split()))
        for error in re.findall(r"\w+", match[1].replace(" or ", " ").replace(" and ", " "))
    }
    assert len(named) > 40, "the pattern finds nothing"
    known |= set(vars(builtins))
    assert sorted((where, error) for where, error in named if error not in known) == []


@pytest.mark.parametrize("name", pocketmq.client.__all__)
def test_every_name_exists_and_errors_have_one_root(name: str) -> None:
    """``except PocketMQError`` catches every error of the SDK."""
    value = getattr(pocketmq.client, name)
    if inspect.isclass(value) and issubclass(value, Exception):
        assert issubclass(value, PocketMQError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As with any module."""
    with pytest.raises(AttributeError, match="no attribute 'Producers'"):
        pocketmq.client.Producers  # noqa: B018


@pytest.mark.parametrize(
    ("names", "packages"),
    [
        ("Message, Producer", {"pull", "push", "handlers", "transaction"}),
        ("PullConsumer", {"push", "handlers", "producer", "transaction"}),
        ("Admin", {"push", "handlers", "producer", "transaction"}),
        ("Message, Producer, PullConsumer, PushConsumer", {"admin", "durable", "idempotence", "staged"}),
    ],
)
def test_a_name_is_imported_with_what_it_needs(names: str, packages: set[str]) -> None:
    """A producer pays for no consumer, and neither for administration, retry stores and marks."""
    code = f"import sys; from pocketmq.client import {names}\nprint(*[n for n in sys.modules if 'q.client.' in n])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    loaded = {name.split(".")[2] for name in result.stdout.split()}
    assert loaded & packages == set()
    assert len(loaded) > 2, "the pattern finds nothing"


def test_each_name_stands_in_all_three_places() -> None:
    """For type checkers, for ``import *``, and with its module for its first use; and completion shows it."""
    tree = ast.parse(inspect.getsource(pocketmq.client))
    imported = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {name: f"pocketmq.{module}" for name, module in pocketmq.client._MODULES.items()}
    assert sorted(imported) == sorted(pocketmq.client.__all__)
    assert set(imported) <= set(dir(pocketmq.client))

"""The public names in docs/api.md, each with the first sentence of its docstring.

Lives here: ``MODULES``, what is public; ``names``, the table of one of them.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any, Final

MODULES: Final = (
    "pocketmq.client",
    "pocketmq.client.blocking",
    "pocketmq.client.admin",
    "pocketmq.client.durable",
    "pocketmq.client.idempotence",
    "pocketmq.client.telemetry",
    "pocketmq.testing",
    "pocketmq.pipeline",
)
"""A name is public if one of these has it in ``__all__``; everything else may change without notice."""
KINDS: Final = ("classes and functions", "errors", "constants")
"""The tables of a module, in this order."""


def names(module_name: str) -> str:
    """Return a table for each kind of name that a module exports."""
    module = importlib.import_module(module_name)
    rows: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        kind = _kind(value)
        text = _text_of_constant(module, name) if kind == "constants" else inspect.cleandoc(value.__doc__ or "")
        rows[kind].append(f"| `{name}` | {_first_sentence(text)} |")
    return "\n".join(_tables(rows))


def _tables(rows: dict[str, list[str]]) -> Iterator[str]:
    for kind, lines in rows.items():
        if lines:
            yield f"\n| {kind} | what it is |\n|---|---|\n" + "\n".join(lines) + "\n"


def _kind(value: Any) -> str:
    if not inspect.isclass(value) and not inspect.isroutine(value):
        return "constants"
    return "errors" if inspect.isclass(value) and issubclass(value, Exception) else "classes and functions"


def _text_of_constant(module: ModuleType, name: str) -> str:
    """Return the string below the assignment of a name, in the module that a package imports it from."""
    tree = ast.parse(inspect.getsource(module))
    body = tree.body
    for node in ast.walk(tree):  # also those for type checkers alone
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _text_of_constant(importlib.import_module(node.module or ""), name)
    for node, text in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.literal_eval(text.value) if isinstance(text, ast.Expr) else ""
    return ""


def _first_sentence(text: str) -> str:
    """Return the first sentence of a docstring in Markdown."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.;]) (?=[A-Z])", paragraph)[0].rstrip(":")
    return re.sub(r":\w+:`~?([^`]+)`|``([^`]+)``", lambda m: f"`{m[1] or m[2]}`", sentence).replace("|", "\\|")

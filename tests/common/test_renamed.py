"""Former names of public objects."""

import importlib

import pytest

FORMER = [
    ("pocketmq.client.durable", "GivenUp", "GivenUpError"),
    ("pocketmq.client.durable", "StoreFull", "RetryStoreFull"),
    ("pocketmq.client.durable.errors", "StoreLocked", "RetryStoreLocked"),
]


@pytest.mark.parametrize(("module", "old", "new"), FORMER)
def test_a_former_name_is_the_same_object_and_warns(module: str, old: str, new: str) -> None:
    """Code that catches the former class still catches the error."""
    where = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {new}"):
        former = getattr(where, old)
    assert former is getattr(where, new)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module: ``hasattr`` and ``from ... import`` depend on it."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        importlib.import_module("pocketmq.client.durable").Nothing  # noqa: B018
    with pytest.raises(ImportError):
        exec("from pocketmq.client.durable import Nothing")

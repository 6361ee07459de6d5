"""Former names work, warn, and point at the line that uses them."""

import importlib
from dataclasses import dataclass

import pytest

from pocketmq.common.former_names import renamed_arguments, renamed_fields, warn_renamed


@renamed_arguments(sequence="version")
def commit(version: int, *, parts: int = 0) -> tuple[int, int]:
    return version, parts


@renamed_fields(sequence="version")
@dataclass(frozen=True, slots=True)
class Part:
    version: int


def test_an_argument_is_taken_under_its_former_name() -> None:
    with pytest.warns(DeprecationWarning, match="argument sequence of commit is now version") as seen:
        assert commit(sequence=7, parts=2) == (7, 2)  # type: ignore[call-arg]
    assert seen[0].filename == __file__


def test_new_names_and_positions_do_not_warn() -> None:
    """These tests turn warnings into errors."""
    assert commit(7) == commit(version=7) == (7, 0)
    assert Part(7) == Part(version=7)
    assert Part(7).version == 7


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="both 'sequence' and 'version'"):
        commit(version=1, sequence=1)  # type: ignore[call-arg]


def test_an_unknown_argument_stays_an_error() -> None:
    with pytest.raises(TypeError, match="'nonsense'"):
        commit(1, nonsense=1)  # type: ignore[call-arg]


def test_a_field_is_given_and_read_under_its_former_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"sequence of Part.__init__ is now version"):
        part = Part(sequence=3)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"Part\.sequence is now version") as seen:
        assert part.sequence == 3  # type: ignore[attr-defined]
    assert seen[0].filename == __file__


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(DeprecationWarning, match="a is now b") as seen:
        warn_renamed("a", "b")
    assert seen[0].filename == __file__


FORMER = [
    ("pocketmq.client.durable", "GivenUp", "GivenUpError"),
    ("pocketmq.client.durable", "StoreFull", "RetryStoreFull"),
    ("pocketmq.client.durable.errors", "StoreLocked", "RetryStoreLocked"),
    ("pocketmq.client.staged.staged_transaction", "BrokersAway", "BrokersUnreachableError"),
    ("pocketmq.client.staged.staged_transaction", "NotTaken", "NotSupportedByBrokerError"),
    ("pocketmq.client.staged.staged_transaction", "Part", "StagedWrite"),
    ("pocketmq.client.staged.staged_transaction", "PartWriter", "StagedWriter"),
]


@pytest.mark.parametrize(("module", "old", "new"), FORMER)
def test_a_former_name_is_the_same_object_and_warns(module: str, old: str, new: str) -> None:
    """Code that catches the former class still catches the error."""
    where = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=rf"{old} is now {new}"):
        former = getattr(where, old)
    assert former is getattr(where, new)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The module behaves like any other: ``hasattr`` and ``from ... import`` depend on it."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        importlib.import_module("pocketmq.client.durable").Nothing  # noqa: B018
    with pytest.raises(ImportError):
        exec("from pocketmq.client.durable import Nothing")

"""Ends in many steps."""

import pytest

from pocketmq.common.all_steps import AllSteps
from pocketmq.common.errors import CorruptRecord, PocketMQError


def test_every_step_is_taken_and_each_failure_told() -> None:
    """The first error is raised at the end; the others are notes of it."""
    taken, told = [], []

    def fails(name: str, error: Exception) -> None:
        taken.append(name)
        raise error

    steps = AllSteps(lambda step, error: told.append((step, str(error))))
    assert steps.take("a", lambda: taken.append("a"))
    assert not steps.take("b", lambda: fails("b", CorruptRecord("first")))
    assert steps.have_failed
    assert not steps.take("c", lambda: fails("c", OSError("second")))
    assert steps.take("d", lambda: taken.append("d"))
    with pytest.raises(CorruptRecord, match="first") as caught:
        steps.raise_first()
    assert taken == ["a", "b", "c", "d"]
    assert told == [("b", "first"), ("c", "second")]
    assert caught.value.__notes__ == ["c failed as well: second"]


def test_a_foreign_error_becomes_one_of_ours() -> None:
    """Who stops something handles ``PocketMQError``; what really happened is its cause."""
    steps = AllSteps(lambda step, error: None)
    queues: dict[str, int] = {}
    steps.take("queues", lambda: queues["x"])
    with pytest.raises(PocketMQError, match="queues: KeyError") as caught:
        steps.raise_first()
    assert isinstance(caught.value.__cause__, KeyError)


def test_nothing_is_raised_when_all_went_well() -> None:
    """An end without an error is silent."""
    steps = AllSteps(lambda step, error: pytest.fail("told of nothing"))
    assert steps.take("a", list)
    steps.raise_first()
    assert not steps.have_failed

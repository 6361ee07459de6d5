"""Errors carry what happened, why and what to do, and survive a process boundary."""

import copy
import pickle

from pocketmq.common.errors import Cause, ConfigError, MessageIllegal, PocketMQError, Stored


def test_the_text_has_what_why_and_hint() -> None:
    """Missing parts leave no separators behind."""
    assert str(PocketMQError("send refused", why="queue full", hint="retry")) == "send refused: queue full (retry)"
    assert str(PocketMQError("send refused")) == "send refused"


def test_defaults_come_from_the_class_and_can_be_replaced() -> None:
    """The class sets cause, code and whether a retry helps."""
    error = MessageIllegal("no")
    assert (error.code, error.retriable, error.cause, error.stored) == (13, False, Cause.BAD_REQUEST, Stored.NO)
    assert ConfigError("no", cause=Cause.CORRUPT).cause is Cause.CORRUPT


def test_errors_can_be_pickled_and_copied() -> None:
    """Every field survives, as when a worker process raises the error."""
    error = MessageIllegal("a", why="b", hint="c", cause=Cause.TIMEOUT, stored=Stored.UNKNOWN, retry_after_ms=7)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is MessageIllegal
        assert str(twin) == "a: b (c)"
        assert (twin.cause, twin.stored, twin.retry_after_ms) == (Cause.TIMEOUT, Stored.UNKNOWN, 7)

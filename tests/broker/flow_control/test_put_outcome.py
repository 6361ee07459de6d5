"""The store's put statuses give the same refusal for a send, a decision and a staged transaction."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from pocketmq.broker.flow_control.put_outcome import PutOutcome, confirm_topics
from pocketmq.broker.request.request_task import Refusal
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.errors import StoreFenced
from pocketmq.store.message_store import MessageStore

REPLACED = Refusal(14, "replaced", Cause.FENCED_BY_EPOCH, retry_after_ms=1000)
FENCED = StoreFenced("service not available", why="a sync failed: EIO")


class FakeLog:
    fence_error: StoreFenced | None = None


class FakeStore:
    """The part of a store that ``PutOutcome`` uses."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.held_ms = 0
        self.busy = False
        self.deficient = False
        self.config = type("Config", (), {"commit_interval_commit_log": 200})

    def is_os_page_cache_busy(self) -> bool:
        return self.busy

    def is_transient_store_pool_deficient(self) -> bool:
        return self.deficient

    def lock_time_mills(self) -> int:
        return self.held_ms


def outcome(store: FakeStore, by_role: Callable[[], Refusal | None] = lambda: None) -> PutOutcome:
    return PutOutcome(cast(MessageStore, store), by_role)


def test_what_the_store_did_not_take_is_surely_not_stored() -> None:
    """Cause, text and retry time are the store's if it has them, else RocketMQ's text and one second."""
    store = FakeStore()
    full = AppendResult(PutStatus.SERVICE_NOT_AVAILABLE, error="disk full", cause=Cause.DISK_FULL, retry_after_ms=5000)
    refusal = outcome(store).refusal(full.status, full)
    assert refusal == Refusal(14, "service not available now: disk full", Cause.DISK_FULL, Stored.NO, 5000)
    unknown = AppendResult(PutStatus.UNKNOWN_ERROR)
    assert outcome(store).refusal(unknown.status, unknown) == Refusal(
        1, "UNKNOWN_ERROR", Cause.DISK_ERROR, Stored.NO, 1000
    )


def test_a_busy_page_cache_says_how_long_the_lock_is_held() -> None:
    """The text is RocketMQ's; the client retries after the same time again."""
    store = FakeStore()
    store.held_ms = 1234
    busy = AppendResult(PutStatus.OS_PAGE_CACHE_BUSY, cause=Cause.PAGE_CACHE_BUSY)
    assert outcome(store).refusal(busy.status, busy) == Refusal(
        2, "[PC_SYNCHRONIZED]broker busy, start flow control for a while", Cause.PAGE_CACHE_BUSY, Stored.NO, 1234
    )


@pytest.mark.parametrize("result", [None, AppendResult(PutStatus.PUT_OK)], ids=["decision", "send"])
def test_a_fence_while_the_answer_waits(result: AppendResult | None) -> None:
    """Cause ``fenced``, whether the append's result is known (a send) or not (a decision)."""
    store = FakeStore()
    store.log.fence_error = FENCED
    refusal = outcome(store).refusal(PutStatus.SERVICE_NOT_AVAILABLE, result)
    assert (refusal.code, refusal.cause, refusal.stored) == (14, Cause.FENCED, Stored.UNKNOWN)
    assert refusal.remark == "service not available now: a sync failed: EIO"


@pytest.mark.parametrize("result", [None, AppendResult(PutStatus.PUT_OK)], ids=["decision", "send"])
def test_a_master_that_was_replaced_while_the_answer_waits(result: AppendResult | None) -> None:
    """The role's own refusal; whether the new master has the message is unknown."""
    refusal = outcome(FakeStore(), lambda: REPLACED).refusal(PutStatus.SERVICE_NOT_AVAILABLE, result)
    assert refusal == Refusal(14, "replaced", Cause.FENCED_BY_EPOCH, Stored.UNKNOWN, 1000)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, Cause.DISK_ERROR),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, Cause.TIMEOUT),
        (PutStatus.SLAVE_NOT_AVAILABLE, Cause.TIMEOUT),
    ],
)
def test_a_decision_that_is_stored_but_not_safe(status: PutStatus, cause: Cause) -> None:
    """A send gets a receipt with this status; a decision gets a refusal that says it is stored."""
    refusal = outcome(FakeStore()).refusal(status)
    assert refusal == Refusal(status.code, status.name, cause, Stored.YES, 1000)


def test_the_door_asks_the_page_cache_then_the_pool_then_the_role() -> None:
    """As in RocketMQ; None means admitted."""
    store = FakeStore()
    assert outcome(store).refusal_at_admission() is None
    assert outcome(store, lambda: REPLACED).refusal_at_admission() is REPLACED
    store.deficient = True
    refusal: Any = outcome(store, lambda: REPLACED).refusal_at_admission()
    assert (refusal.cause, refusal.retry_after_ms) == (Cause.NO_WRITE_BUFFER, 200)
    store.busy, store.held_ms = True, 2000
    refusal = outcome(store, lambda: REPLACED).refusal_at_admission()
    assert (refusal.cause, refusal.retry_after_ms) == (Cause.PAGE_CACHE_BUSY, 2000)


class Checks:
    """Records its calls."""

    def __init__(self, is_unsure: bool) -> None:
        self.is_unsure = is_unsure
        self.learned: list[str] = []

    def confirm(self) -> None:
        self.learned.append("confirmed")

    def forget(self) -> None:
        self.learned.append("forgotten")


def test_topics_are_written_before_they_count_as_known() -> None:
    """Written and confirmed; forgotten when they cannot be written; untouched when all are on disk."""
    written: list[str] = []

    def fails() -> None:
        raise PocketMQError("no space")

    sure, unsure, failing = Checks(is_unsure=False), Checks(is_unsure=True), Checks(is_unsure=True)
    confirm_topics(sure, lambda: written.append("sure"))
    confirm_topics(unsure, lambda: written.append("unsure"))
    with pytest.raises(PocketMQError, match="no space"):
        confirm_topics(failing, fails)
    assert written == ["unsure"]
    assert (sure.learned, unsure.learned, failing.learned) == ([], ["confirmed"], ["forgotten"])

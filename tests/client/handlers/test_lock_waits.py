"""When a queue that waits for its lock is logged."""

from itertools import pairwise

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.lock_waits import (
    FORGET_AFTER_MS,
    LOG_AFTER_MS,
    LOG_AGAIN_MS_MAX,
    LOGGED_AT_ONCE_MAX,
    LockWaits,
)
from pocketmq.remoting.protocol.body import MessageQueue as QueueBody
from pocketmq.remoting.protocol.lock import RefusedLock

MS = 1_000_000


def queue(number: int = 0) -> MessageQueue:
    return MessageQueue("T", "b", number)


def refusal(age_ms: int = 1000, expires_in_ms: int = 50_000) -> RefusedLock:
    return RefusedLock(QueueBody("T", "b", 0), "held", "other@1", "1.1.1.1:5", age_ms, expires_in_ms)


def test_a_short_wait_is_no_news() -> None:
    """A queue that changes hands within a few seconds is logged neither at the beginning nor at the end."""
    waits = LockWaits()
    waits.refused(queue(), "held", None, 0)
    assert waits.due((LOG_AFTER_MS - 1) * MS) == ([], 0)
    assert waits.got(queue()) is None
    assert waits.due(10 * LOG_AFTER_MS * MS) == ([], 0)


def test_a_long_wait_is_reported_in_growing_intervals_and_at_its_end() -> None:
    """They appear as long as the wait lasts, however often the client asks for the lock meanwhile."""
    waits, told_ms = LockWaits(), []
    for second in range(200):
        now_ns = second * 1000 * MS
        waits.refused(queue(), "held", refusal(), now_ns)
        if waits.due(now_ns)[0]:
            told_ms.append(second * 1000)
    assert told_ms[:5] == [3000, 9000, 21_000, 45_000, 75_000]
    assert {after - before for before, after in pairwise(told_ms[4:])} == {LOG_AGAIN_MS_MAX}
    wait = waits.got(queue())
    assert wait is not None
    assert wait.waited_ms(200_000 * MS) == 200_000
    assert len(waits) == 0


def test_holder_age_and_expiry_are_those_of_now() -> None:
    """The broker's answer was true when it arrived; the event is logged later."""
    waits = LockWaits()
    waits.refused(queue(), "another client has the lock", refusal(1000, 50_000), 0)
    [wait], _ = waits.due(4000 * MS)
    fields = wait.fields(4000 * MS)
    assert fields == {
        "queue": "T@b:0",
        "waited_ms": 4000,
        "why": "another client has the lock",
        "holder": "other@1",
        "holder_address": "1.1.1.1:5",
        "holder_age_ms": 5000,
        "expires_in_ms": 46_000,
    }


def test_a_broker_that_does_not_name_the_holder_is_told_without() -> None:
    """RocketMQ's brokers do not."""
    waits = LockWaits()
    waits.refused(queue(), "another client has the lock", None, 0)
    [wait], _ = waits.due(LOG_AFTER_MS * MS)
    assert "holder" not in wait.fields(LOG_AFTER_MS * MS)


def test_many_queues_are_reported_a_few_at_a_time() -> None:
    """The longest waits come first; the others are counted."""
    waits = LockWaits()
    for number in range(25):
        waits.refused(queue(number), "held", None, (25 - number) * MS)
    told, more = waits.due((LOG_AFTER_MS + 25) * MS)
    assert [wait.queue.queue_id for wait in told] == list(range(24, 24 - LOGGED_AT_ONCE_MAX, -1))
    assert more == 15


def test_a_queue_that_is_not_asked_for_any_more_is_forgotten() -> None:
    """It now belongs to another member of the group."""
    waits = LockWaits()
    waits.refused(queue(0), "held", None, 0)
    waits.refused(queue(1), "held", None, 0)
    waits.refused(queue(1), "held", None, 50_000 * MS)
    waits.due((FORGET_AFTER_MS + 1) * MS)
    assert waits.get(queue(0)) is None
    assert waits.get(queue(1)) is not None
    waits.forget(queue(1))
    assert len(waits) == 0

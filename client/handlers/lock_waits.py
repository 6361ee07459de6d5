"""Queues that wait because another client has their lock, and when to log that.

Lives here: ``LockWaits``; it takes refusals and times and does no I/O.

An ordered queue must not stand still silently: each queue that waits longer than a few seconds is logged with holder,
age and expiry, then again at growing intervals, and once more when the wait is over.
"""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.remoting.protocol.lock import RefusedLock

LOG_AFTER_MS: Final = 3_000
LOG_AGAIN_MS_MAX: Final = 30_000
FORGET_AFTER_MS: Final = 60_000
"""A queue that was not requested for so long belongs to another member of the group now."""
LOGGED_AT_ONCE_MAX: Final = 10
"""Queues logged by one check; the others are only counted."""


@dataclass(slots=True)
class LockWait:
    """One queue that waits. ``since_ns``, ``asked_ns``: monotonic. ``refused``: the broker's last answer, if it names
    the holder."""

    queue: MessageQueue
    since_ns: int
    asked_ns: int
    log_ns: int
    pause_ms: int = LOG_AFTER_MS
    logged: int = 0
    why: str = ""
    refused: RefusedLock | None = None

    def waited_ms(self, now_ns: int) -> int:
        """How long the queue has waited."""
        return (now_ns - self.since_ns) // 1_000_000

    def fields(self, now_ns: int) -> dict[str, Any]:
        """Return the fields of an event about the wait."""
        said: dict[str, Any] = {"queue": str(self.queue), "waited_ms": self.waited_ms(now_ns), "why": self.why}
        if self.refused is not None and self.refused.holder:
            passed_ms = (now_ns - self.asked_ns) // 1_000_000
            said["holder"] = self.refused.holder
            said["holder_address"] = self.refused.holder_address
            said["holder_age_ms"] = self.refused.age_ms + passed_ms
            said["expires_in_ms"] = self.refused.expires_in_ms - passed_ms
        return said


class LockWaits:
    """The waits of one consumer, at most one a queue. Not thread-safe: the event loop's."""

    def __init__(self) -> None:
        self._waits: dict[MessageQueue, LockWait] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def refused(self, queue: MessageQueue, why: str, refused: RefusedLock | None, now_ns: int) -> None:
        """Note that a lock was not given. ``why``: in words."""
        wait = self._waits.get(queue)
        if wait is None:
            wait = self._waits[queue] = LockWait(queue, now_ns, now_ns, now_ns + LOG_AFTER_MS * 1_000_000)
        wait.asked_ns = now_ns
        wait.why = why
        wait.refused = refused

    def got(self, queue: MessageQueue) -> LockWait | None:
        """End the wait of a queue that has its lock now; return the wait if it was logged."""
        wait = self._waits.pop(queue, None)
        return wait if wait is not None and wait.logged else None

    def forget(self, queue: MessageQueue) -> None:
        """End the wait of a queue that is no longer wanted."""
        self._waits.pop(queue, None)

    def get(self, queue: MessageQueue) -> LockWait | None:
        """Return the wait of a queue, if it waits."""
        return self._waits.get(queue)

    def all(self) -> list[LockWait]:
        """Return all waits, the longest first."""
        return sorted(self._waits.values(), key=lambda wait: wait.since_ns)

    def due(self, now_ns: int) -> tuple[list[LockWait], int]:
        """Return the waits to log now, the longest first, and how many more there are."""
        for queue in [queue for queue, wait in self._waits.items() if now_ns - wait.asked_ns > FORGET_AFTER_MS * 10**6]:
            del self._waits[queue]
        due = sorted((wait for wait in self._waits.values() if wait.log_ns <= now_ns), key=lambda wait: wait.since_ns)
        for wait in due:
            wait.logged += 1
            wait.pause_ms = min(2 * wait.pause_ms, LOG_AGAIN_MS_MAX)
            wait.log_ns = now_ns + wait.pause_ms * 1_000_000
        return due[:LOGGED_AT_ONCE_MAX], max(0, len(due) - LOGGED_AT_ONCE_MAX)

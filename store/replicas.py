"""The store's interface to its replicas.

Lives here: the ``Replicas`` protocol; ``BothVerdicts``, which joins the wait for the disk and the wait for slaves.
"""

import threading
from typing import Protocol

from pocketmq.store.append_result import PutStatus
from pocketmq.store.waiters import Done


class Replicas(Protocol):
    """A master's slaves, as ``MessageStore.acknowledge`` sees them. No call blocks."""

    @property
    def is_fenced(self) -> bool:
        """Whether another node has replaced this one: nothing may be acknowledged."""
        ...

    @property
    def is_synchronous(self) -> bool:
        """Whether sends wait for slaves (SYNC_MASTER)."""
        ...

    def wait(self, end_offset: int, done: Done) -> None:
        """Call ``done`` once, at once or later from any thread: PUT_OK when enough slaves have everything below
        ``end_offset``, SLAVE_NOT_AVAILABLE at once when too few follow, FLUSH_SLAVE_TIMEOUT after ``slave_timeout``,
        SERVICE_NOT_AVAILABLE when this node has been replaced.
        """
        ...


class BothVerdicts:
    """Waits for the verdicts of the disk and the slaves, then calls ``done`` with one status.

    A bad status of the slaves overrides one of the disk, as in RocketMQ (CommitLog.putMessage), except for
    SERVICE_NOT_AVAILABLE, which RocketMQ does not have here: it is then unknown whether the message is stored.
    """

    __slots__ = ("_done", "_first", "_lock")

    def __init__(self, done: Done) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._first: tuple[bool, PutStatus] | None = None

    def flushed(self, status: PutStatus) -> None:
        """Take the verdict of the disk."""
        self._take(False, status)

    def replicated(self, status: PutStatus) -> None:
        """Take the verdict of the slaves."""
        self._take(True, status)

    def _take(self, is_replicas: bool, status: PutStatus) -> None:
        with self._lock:
            first = self._first
            if first is None:
                self._first = (is_replicas, status)
                return
        assert first[0] != is_replicas, "each verdict comes once"
        disk, replicas = (first[1], status) if is_replicas else (status, first[1])
        if disk is PutStatus.SERVICE_NOT_AVAILABLE or replicas is PutStatus.PUT_OK:
            self._done(disk)
        else:
            self._done(replicas)

"""Callbacks that wait for the log to reach an offset, each with a deadline of its own.

Lives here: ``Waiters``, a core without I/O; ``Awaited``, the pulls that wait.
"""

import heapq
import threading
from collections.abc import Callable
from typing import Final, Protocol

from pocketmq.store.append_result import PutStatus

WAITERS_MAX: Final = 262_144
Done = Callable[[PutStatus], None]


class Awaited(Protocol):
    """What counts the pulls that wait for messages; reading ``count`` takes no lock."""

    count: int


class _Waiter:
    __slots__ = ("deadline_ns", "done", "number", "offset")

    def __init__(self, offset: int, deadline_ns: int, number: int, done: Done) -> None:
        self.offset = offset
        self.deadline_ns = deadline_ns
        self.number = number
        self.done: Done | None = done


class Waiters:
    """Callbacks that wait for the log to reach an offset, each with a deadline of its own.

    Every waiter leaves exactly once: through ``release``, ``expire`` or ``leave_all``, which return the callbacks for
    the caller to call without any lock. Thread-safe; the cost of a call does not depend on the waiters that stay.
    """

    def __init__(self, count_max: int = WAITERS_MAX) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._by_offset: list[tuple[int, int, _Waiter]] = []
        self._by_deadline: list[tuple[int, int, _Waiter]] = []
        self.added = 0
        """Waiters accepted so far."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int, deadline_ns: int, done: Done) -> bool:
        """Wait until the log reaches ``offset``, at most until ``deadline_ns``; return False if too many wait."""
        with self._lock:
            if self._count >= self._count_max:
                return False
            number = self.added
            self.added += 1
            self._count += 1
            waiter = _Waiter(offset, deadline_ns, number, done)
            heapq.heappush(self._by_offset, (offset, number, waiter))
            heapq.heappush(self._by_deadline, (deadline_ns, number, waiter))
            return True

    def release(self, reached_offset: int) -> list[Done]:
        """Return the callbacks of all that wait for ``reached_offset`` or less, lowest offset first."""
        out: list[Done] = []
        with self._lock:
            heap = self._by_offset
            while heap and (heap[0][0] <= reached_offset or heap[0][2].done is None):
                self._leave(heapq.heappop(heap)[2], out)
            self._drop_gone()
        return out

    def expire(self, now_ns: int) -> list[Done]:
        """Return the callbacks whose deadline has passed, earliest first."""
        out: list[Done] = []
        with self._lock:
            heap = self._by_deadline
            while heap and (heap[0][0] <= now_ns or heap[0][2].done is None):
                self._leave(heapq.heappop(heap)[2], out)
            self._drop_gone()
        return out

    def leave_all(self) -> list[Done]:
        """Return the callbacks of all."""
        return self.release(1 << 63)

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline, or None without waiters."""
        with self._lock:
            return self._by_deadline[0][0] if self._by_deadline else None

    def next_offset(self) -> int:
        """Return the offset that the waiter with the earliest deadline waits for, or 0 without waiters."""
        with self._lock:
            return self._by_deadline[0][2].offset if self._by_deadline else 0

    def _leave(self, waiter: _Waiter, out: list[Done]) -> None:
        if waiter.done is not None:
            out.append(waiter.done)
            waiter.done = None
            self._count -= 1

    def _drop_gone(self) -> None:
        """Drop waiters that left by the other way from both heads, so that memory follows the number of waiters."""
        for heap in (self._by_offset, self._by_deadline):
            while heap and heap[0][2].done is None:
                heapq.heappop(heap)

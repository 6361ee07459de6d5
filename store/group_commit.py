"""Group commit: many waiting sends, one sync.

Lives here: ``Waiters``, a core without I/O (who waits for which offset until when), and ``GroupCommit``, which syncs
for them.
Not here: the sync itself and the fence (``commit_log``). Replica waits come with the HA service: one more ``Waiters``,
released by what slaves confirm, behind this one in ``MessageStore.acknowledge``.
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.append_result import PutStatus
from pocketmq.store.commit_log import CommitLog
from pocketmq.store.errors import StoreFenced

WAITERS_MAX: Final = 262_144
Done = Callable[[PutStatus], None]


class _Waiter:
    __slots__ = ("deadline_ns", "done", "number", "offset")

    def __init__(self, offset: int, deadline_ns: int, number: int, done: Done) -> None:
        self.offset = offset
        self.deadline_ns = deadline_ns
        self.number = number
        self.done: Done | None = done


class Waiters:
    """Who waits for the log to reach an offset, each with a deadline of its own.

    Every waiter leaves exactly once: through ``release``, ``expire`` or ``leave_all``, which return the callbacks for
    the caller to call without any lock. Thread-safe; no call takes longer for the number of waiters that stay.
    """

    def __init__(self, count_max: int = WAITERS_MAX) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._by_offset: list[tuple[int, int, _Waiter]] = []
        self._by_deadline: list[tuple[int, int, _Waiter]] = []
        self._numbers = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int, deadline_ns: int, done: Done) -> bool:
        """Wait until the log reaches ``offset``, at most until ``deadline_ns``; return False if too many wait."""
        with self._lock:
            if self._count >= self._count_max:
                return False
            number = self._numbers
            self._numbers += 1
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
        """Return the callbacks of all whose deadline is over, earliest first."""
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
        """Return the earliest deadline, or None when nobody waits."""
        with self._lock:
            return self._by_deadline[0][0] if self._by_deadline else None

    def _leave(self, waiter: _Waiter, out: list[Done]) -> None:
        if waiter.done is not None:
            out.append(waiter.done)
            waiter.done = None
            self._count -= 1

    def _drop_gone(self) -> None:
        """Forget at both heads who left by the other way, so that memory follows the number of waiters."""
        for heap in (self._by_offset, self._by_deadline):
            while heap and heap[0][2].done is None:
                heapq.heappop(heap)


class GroupCommit:
    """Syncs as soon as somebody waits; one sync serves all that were appended before it began.

    Two workers: one syncs, the other tells those whose time is over, also while a sync hangs, and those whom a sync has
    served while the next one runs: with 64 in flight and syncs of 5 ms telling them first made the disk wait for a
    third of the time (bench/sync_flush.py).
    """

    def __init__(self, log: CommitLog, clock: Clock, timeout_ms: int, logger: EventLog) -> None:
        self.timeouts = 0
        self.served = 0
        self._log = log
        self._clock = clock
        self._timeout_ns = timeout_ms * 1_000_000
        self._logger = logger
        self.waiters = Waiters()
        self._to_tell: deque[list[Done]] = deque()
        self._worker: Worker | None = None
        self._watcher: Worker | None = None

    def start(self, runner: Runner) -> None:
        """Start the workers."""
        self._worker = runner.start("group-commit", self.step, first_after_ms=None)
        self._watcher = runner.start("group-commit-watch", self.watch, first_after_ms=None)

    def stop(self) -> None:
        """Sync a last time for those who wait, then end the workers."""
        if self._worker is not None:
            self._worker.stop()
            self.step()
            self._worker = None
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        self._tell_served()
        self._call(self.waiters.leave_all(), PutStatus.FLUSH_DISK_TIMEOUT)

    def ring(self) -> None:
        """Ask for a sync without waiting for it (RocketMQ: WAIT=false)."""
        if self._worker is not None:
            self._worker.ring()

    def wait(self, offset: int, done: Done) -> None:
        """Call ``done`` once ``offset`` is durable, or after the timeout with FLUSH_DISK_TIMEOUT."""
        first = len(self.waiters) == 0
        if not self.waiters.add(offset, self._clock.monotonic_ns() + self._timeout_ns, done):
            self.timeouts += 1
            done(PutStatus.FLUSH_DISK_TIMEOUT)
            return
        self.ring()
        if first and self._watcher is not None:
            self._watcher.ring()

    def step(self) -> float | None:
        """Sync once if there is anything to sync; tell those it serves, or have them told."""
        try:
            flushed_offset = self._log.flush()
        except StoreFenced:
            self._call(self.waiters.leave_all(), PutStatus.SERVICE_NOT_AVAILABLE)
            return None
        served = self.waiters.release(flushed_offset)
        self.served += len(served)
        others_wait = len(self.waiters) > 0
        if self._watcher is None or not (others_wait or len(served) > 1 or self._to_tell):
            self._call(served, PutStatus.PUT_OK)  # no other thread is quicker for a single one
        elif served:
            self._to_tell.append(served)
            self._watcher.ring()
        return 0 if others_wait or len(self.waiters) else None

    def _tell_served(self) -> None:
        while True:
            try:
                served = self._to_tell.popleft()
            except IndexError:
                return
            self._call(served, PutStatus.PUT_OK)

    def watch(self) -> float | None:
        """Tell whom a sync has served and those whose deadline is over; return the ms until the next one."""
        self._tell_served()
        now_ns = self._clock.monotonic_ns()
        expired = self.waiters.expire(now_ns)
        if expired:
            self.timeouts += len(expired)
            self._logger.warning("flush_disk_timeout", waiters=len(expired), flushed_offset=self._log.flushed_offset)
            self._call(expired, PutStatus.FLUSH_DISK_TIMEOUT)
        deadline_ns = self.waiters.next_deadline_ns()
        return None if deadline_ns is None else max(1.0, (deadline_ns - now_ns) / 1_000_000)

    def _call(self, callbacks: list[Done], status: PutStatus) -> None:
        for done in callbacks:
            try:
                done(status)
            except Exception as error:
                self._logger.error("acknowledge_callback_failed", error=repr(error))

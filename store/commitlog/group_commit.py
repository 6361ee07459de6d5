"""Group commit: many waiting sends, one sync.

Lives here: ``GroupCommit``, which syncs for waiting sends.
"""

from collections import deque

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.append_result import PutStatus
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.errors import StoreFenced
from pocketmq.store.waiters import Done, Waiters


class GroupCommit:
    """Syncs as soon as a send waits; one sync serves all sends appended before it began.

    Two workers: one syncs; the other answers sends whose deadline has passed, even while a sync hangs, and those served
    by the last sync while the next one runs: with 64 in flight and syncs of 5 ms, answering them first left the disk
    idle for a third of the time (bench/own/sync_flush.py).
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
        """Sync a last time for waiting sends, then stop the workers."""
        if self._worker is not None:
            self._worker.stop()
            self.step()
            self._worker = None
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        self._tell_served()
        self._call(self.waiters.leave_all(), PutStatus.FLUSH_DISK_TIMEOUT)

    def wake(self) -> None:
        """Request a sync without waiting for it (RocketMQ: WAIT=false)."""
        if self._worker is not None:
            self._worker.wake()

    def wait(self, offset: int, done: Done) -> None:
        """Call ``done`` once ``offset`` is durable, or after the timeout with FLUSH_DISK_TIMEOUT."""
        first = len(self.waiters) == 0
        if not self.waiters.add(offset, self._clock.monotonic_ns() + self._timeout_ns, done):
            self.timeouts += 1
            done(PutStatus.FLUSH_DISK_TIMEOUT)
            return
        self.wake()
        if first and self._watcher is not None:
            self._watcher.wake()

    def step(self) -> float | None:
        """Sync once if there is anything to sync; answer the sends it serves, here or in the other worker."""
        try:
            flushed_offset = self._log.flush()
        except StoreFenced:
            self._call(self.waiters.leave_all(), PutStatus.SERVICE_NOT_AVAILABLE)
            return None
        served = self.waiters.release(flushed_offset)
        self.served += len(served)
        others_wait = len(self.waiters) > 0
        if self._watcher is None or not (others_wait or len(served) > 1 or self._to_tell):
            self._call(served, PutStatus.PUT_OK)  # for a single send no other thread is quicker
        elif served:
            self._to_tell.append(served)
            self._watcher.wake()
        return 0 if others_wait or len(self.waiters) else None

    def _tell_served(self) -> None:
        while True:
            try:
                served = self._to_tell.popleft()
            except IndexError:
                return
            self._call(served, PutStatus.PUT_OK)

    def watch(self) -> float | None:
        """Answer sends served by a sync and those whose deadline has passed; return the ms until the next deadline."""
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

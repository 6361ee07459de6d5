"""Group commit: many waiting sends, one sync.

Lives here: ``GroupCommit``, which syncs for waiting sends.
"""

import contextlib
from collections import deque
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.append_result import PutStatus
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.errors import StoreFenced
from pocketmq.store.waiters import Done, Waiters

LEAD_SYNC_NS_MAX: Final = 500_000
"""A thread syncs for itself only after a sync that took less: waking another one costs as much as a quick sync, and on
a slow disk appends go on while the other one syncs."""


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
        self._watcher_sleeps = True  # until woken; else it looks again before any deadline that is added now
        self._seen = 0  # waiters that had come when the watcher last looked
        self._syncing = False
        self._leads: list[tuple[int, Done]] = []  # the send that syncs for itself, with its deadline
        self._led = 0

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
        if self._add(offset, done):
            self.wake()

    def lead(self, offset: int, done: Done) -> bool:
        """Sync in this thread, where no sync runs and syncs are quick. Return True: ``offset`` is durable, and the
        caller answers. False: ``done`` is called, by now or later, as by ``wait``.

        The deadline holds as well: if this sync hangs, the watcher calls ``done``, and so it does for sends that come
        meanwhile.
        """
        log, leads = self._log, self._leads
        if self._syncing or leads or self._worker is None or log.last_flush_ns > LEAD_SYNC_NS_MAX:
            self.wait(offset, done)
            return False
        lead = (self._clock.monotonic_ns() + self._timeout_ns, done)
        leads.append(lead)
        self._led += 1
        if self._watcher_sleeps:
            self._wake_watcher()
        status = PutStatus.PUT_OK
        self._syncing = True
        try:
            log.flush()
        except StoreFenced:
            status = PutStatus.SERVICE_NOT_AVAILABLE
            self._call(self.waiters.leave_all(), status)
        finally:
            self._syncing = False
        try:
            leads.remove(lead)
        except ValueError:  # the watcher has called it
            return False
        if status is not PutStatus.PUT_OK:
            self._call([done], status)
            return False
        self.served += 1
        return True

    def _add(self, offset: int, done: Done) -> bool:
        """Add a waiter, and see that its deadline is watched; call ``done`` if there are too many."""
        if not self.waiters.add(offset, self._clock.monotonic_ns() + self._timeout_ns, done):
            self.timeouts += 1
            done(PutStatus.FLUSH_DISK_TIMEOUT)
            return False
        if self._watcher_sleeps:
            self._wake_watcher()
        return True

    def _wake_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher_sleeps = False
            self._watcher.wake()

    def step(self) -> float | None:
        """Sync once if there is anything to sync; answer the sends it serves, here or in the other worker. Return 0 if
        others wait by now, else None.
        """
        self._syncing = True
        try:
            flushed_offset = self._log.flush()
        except StoreFenced:
            self._call(self.waiters.leave_all(), PutStatus.SERVICE_NOT_AVAILABLE)
            return None
        finally:
            self._syncing = False
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
        """Answer sends served by a sync and those whose deadline has passed; return the ms until the next deadline.

        All wait equally long, so a deadline added later is never before the one awaited: no send has to wake a watcher
        that waits for one. It sleeps until woken once no send has come for as long as sends wait.
        """
        self._tell_served()
        now_ns = self._clock.monotonic_ns()
        expired = self.waiters.expire(now_ns)
        for lead in [lead for lead in self._leads if lead[0] <= now_ns]:
            with contextlib.suppress(ValueError):  # its sync has ended
                self._leads.remove(lead)
                expired.append(lead[1])
        if expired:
            self.timeouts += len(expired)
            self._logger.warning(
                "flush_disk_timeout",
                text="do groupcommit, wait for flush failed",  # RocketMQ's, up to 4.5 and in 5.3 (CommitLog)
                waiters=len(expired),
                flushed_offset=self._log.flushed_offset,
            )
            self._call(expired, PutStatus.FLUSH_DISK_TIMEOUT)
        self._watcher_sleeps = True
        deadline_ns = self.waiters.next_deadline_ns()
        for lead_ns, _ in self._leads[:1]:
            deadline_ns = lead_ns if deadline_ns is None else min(deadline_ns, lead_ns)
        added, self._seen = self._seen, self.waiters.added + self._led
        if deadline_ns is None:
            if added == self._seen:
                return None
            deadline_ns = now_ns + self._timeout_ns
        self._watcher_sleeps = False
        return max(1.0, (deadline_ns - now_ns) / 1_000_000)

    def _call(self, callbacks: list[Done], status: PutStatus) -> None:
        for done in callbacks:
            try:
                done(status)
            except Exception as error:
                self._logger.error("acknowledge_callback_failed", error=repr(error))

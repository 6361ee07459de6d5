"""Schedules the writes of the write buffers to the log's files.

Lives here: ``CommitService`` (RocketMQ CommitRealTimeService).
"""

from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.config import PAGE_BYTES, StoreConfig
from pocketmq.store.errors import StoreError
from pocketmq.store.waiters import Awaited

LAST_TRIES: Final = 10
"""Commits tried at a stop (RocketMQ RETRY_TIMES_OVER)."""


PACE_MS: Final = 10.0
PACED_BYTES: Final = 1 << 20


class CommitService:
    """Commits if ``commit_commit_log_least_pages`` pages wait, a segment is full, or
    ``commit_commit_log_thorough_interval`` ms have passed since the last commit. Sleeps while nothing waits.

    Checks every ``commit_interval_commit_log`` ms, and with ``wake_commit_when_put_message`` also as soon as an append
    completes enough pages. While the service is awake an append costs one comparison and wakes no thread.

    Buffers that survive the process are committed at once while a consumer or a send waits for it. And where appends
    would wake the service more often than every ``PACE_MS``, it looks by itself at that pace, and they wake it only for
    ``PACED_BYTES`` or a quarter of a buffer: each wake-up takes the interpreter from the appends.
    """

    def __init__(self, config: StoreConfig, log: CommitLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._worker: Worker | None = None
        self._survives = False
        self._is_paced = False
        self._paced_bytes = min(PACED_BYTES, config.pool_buffer_bytes // 4)
        self.settings_changed(config)
        self._wakes = config.wake_commit_when_put_message
        self.awaited: tuple[Awaited, ...] = ()
        """The pulls and pops that wait for messages: then each append is committed soon. Not asked for RocketMQ's kind
        of buffers, whose pace is part of what it is."""
        self._is_asked = False
        self._idle = True
        self._woken = False
        self._last_commit_ns = 0

    def settings_changed(self, config: StoreConfig) -> None:
        """Take intervals and pages; a worker that waits for the old interval is woken. Any thread."""
        self._interval_ns = config.commit_interval_commit_log * 1_000_000
        self._thorough_ns = config.commit_commit_log_thorough_interval * 1_000_000
        self._least_pages = config.commit_commit_log_least_pages
        self._least_bytes = self._wake_bytes = self._least_pages * PAGE_BYTES
        if self._worker is not None:
            self._worker.wake()

    def start(self, runner: Runner, *, survives: bool) -> None:
        """Start the worker. ``survives``: what the buffers hold outlives the process."""
        self._survives = survives
        self._set_pace(False)
        self._last_commit_ns = self._clock.monotonic_ns() - self._thorough_ns
        self._idle, self._woken = True, False
        self._worker = runner.start("commit-log", self.step, first_after_ms=None)

    def stop(self) -> None:
        """Stop the worker. The rest is committed when the store is closed (``commit_all``)."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def appended(self) -> None:
        """Handle an append that waits to be committed. Any thread; cheap."""
        is_asked = False
        if self._survives:
            for awaited in self.awaited:
                if awaited.count > 0:
                    is_asked = self._is_asked = True
        if self._woken:
            return
        if is_asked or self._idle:
            self._idle = False
        elif not self._wakes or self._log.appended_offset - self._log.committed_offset < self._wake_bytes:
            return
        if self._worker is not None:
            self._woken = True
            self._worker.wake()

    def ask(self) -> None:
        """Commit soon what was appended: a pull waits for it, or a send for slaves, which get what is committed. Any
        thread; cheap."""
        if self._survives and not self._is_asked:
            self._is_asked = True
            if not self._woken and self._worker is not None:
                self._idle, self._woken = False, True
                self._worker.wake()

    def step(self) -> float | None:
        """Commit if it is time; return the ms until the next check, None when nothing waits."""
        self._woken = False
        now_ns = self._clock.monotonic_ns()
        is_asked, self._is_asked = self._is_asked, False
        if is_asked or self._is_due(now_ns):
            has_pages = self._survives and self._has_pages()
            try:
                self._log.commit()
            except StoreError:
                return self._interval_ns / 1_000_000  # logged already; appends are refused meanwhile
            quick = now_ns - self._last_commit_ns <= 2 * PACE_MS * 1_000_000
            self._last_commit_ns = now_ns
            self._set_pace(has_pages and quick and self._wakes)
        elif self._is_paced:
            self._set_pace(False)
        if self._is_paced:
            return PACE_MS
        if self._log.committed_offset == self._log.appended_offset:
            self._idle = True
            if self._log.committed_offset == self._log.appended_offset:  # an earlier append has not woken it
                return None
            self._idle = False
        return min(self._interval_ns, max(0, self._last_commit_ns + self._thorough_ns - now_ns)) / 1_000_000

    def _set_pace(self, is_paced: bool) -> None:
        self._is_paced = is_paced
        self._wake_bytes = max(self._least_bytes, self._paced_bytes) if is_paced else self._least_bytes

    def _has_pages(self) -> bool:
        log = self._log
        return log.appended_offset // PAGE_BYTES - log.committed_offset // PAGE_BYTES >= self._least_pages

    def _is_due(self, now_ns: int) -> bool:
        committed, appended = self._log.committed_offset, self._log.appended_offset
        if committed == appended:
            return False
        if now_ns - self._last_commit_ns >= self._thorough_ns:
            return True
        segment_bytes = self._log.segment_bytes
        if committed // segment_bytes != appended // segment_bytes:
            return True
        return self._has_pages()

    def commit_all(self) -> None:
        """Commit the rest, in at most ``LAST_TRIES`` attempts. Raises the error of the last one."""
        for tries_left in reversed(range(LAST_TRIES)):
            try:
                self._log.commit()
            except StoreError:
                if tries_left == 0:
                    raise
            else:
                return

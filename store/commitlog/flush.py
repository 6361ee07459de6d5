"""The timed flush of the log, and the writing of group checksums.

Lives here: ``FlushService``: when to flush under ASYNC_FLUSH (RocketMQ FlushRealTimeService). Under SYNC_FLUSH it only
writes the checksums and syncs bytes that no send waits for.
"""

from collections.abc import Callable

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.config import PAGE_BYTES, StoreConfig
from pocketmq.store.errors import StoreError, StoreFenced


class FlushService:
    """Flushes every ``flush_interval_commit_log`` ms if ``flush_commit_log_least_pages`` pages wait, a segment is full,
    or ``flush_commit_log_thorough_interval`` ms have passed. Sleeps while there is nothing to flush.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        checksums: ChecksumLog | None,
        clock: Clock,
        logger: EventLog,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        """``on_step`` is called at each check, while there is something to flush."""
        self._on_step = on_step
        self._log = log
        self._checksums = checksums
        self._clock = clock
        self._logger = logger
        self._worker: Worker | None = None
        self.settings_changed(config)
        self._is_timed = config.flush_commit_log_timed
        self._idle = True
        self._last_step_ns = 0
        self._last_flush_ns = 0
        self._checksummed_offset = 0

    def settings_changed(self, config: StoreConfig) -> None:
        """Take intervals and pages; a worker that waits for the old interval is woken. Any thread."""
        self._interval_ns = config.flush_interval_commit_log * 1_000_000
        self._thorough_ns = config.flush_commit_log_thorough_interval * 1_000_000
        self._least_pages = config.flush_commit_log_least_pages
        if self._worker is not None:
            self._worker.wake()

    def start(self, runner: Runner) -> None:
        """Start the worker; the present content of the log counts as flushed."""
        self._last_flush_ns = self._clock.monotonic_ns()
        self._checksummed_offset = self._log.committed_offset
        self._worker = runner.start("flush-commit-log", self.step, first_after_ms=None)

    def stop(self) -> None:
        """Stop the worker. The rest is flushed when the store is closed."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def committed(self) -> None:
        """Handle a moved committed offset. Cheap: wakes only a sleeping worker, or always if flushes are not timed."""
        if self._idle:
            self._idle = False
            self._last_step_ns = self._clock.monotonic_ns()
            if self._worker is not None:
                self._worker.wake()
        elif not self._is_timed and self._worker is not None:
            self._worker.wake()

    def step(self) -> float | None:
        """Flush if it is time; return the ms until the next check, None when nothing is left to flush."""
        now_ns = self._clock.monotonic_ns()
        wait_ns = self._last_step_ns + self._interval_ns - now_ns
        if wait_ns > 0 and self._is_timed:
            return wait_ns / 1_000_000
        self._last_step_ns = now_ns
        is_fenced = False
        if self._is_due(now_ns):  # first: nothing else may delay the promised flush
            try:
                self._log.flush()
            except StoreFenced:
                is_fenced = True
            else:
                self._last_flush_ns = now_ns
        self.write_checksums()
        if self._on_step is not None:
            self._on_step()
        if is_fenced:
            return None  # the log accepts no more appends, so there is nothing to wake for
        if not self._is_done():
            return self._interval_ns / 1_000_000
        self._idle = True
        if self._is_done():  # checked again: a commit before _idle was set has not woken it
            return None
        self._idle = False
        return self._interval_ns / 1_000_000

    def _is_done(self) -> bool:
        committed = self._log.committed_offset
        return self._log.flushed_offset == committed == self._checksummed_offset

    def _is_due(self, now_ns: int) -> bool:
        flushed, committed = self._log.flushed_offset, self._log.committed_offset
        if flushed == committed:
            return False
        if committed // PAGE_BYTES - flushed // PAGE_BYTES >= self._least_pages:
            return True
        if committed // self._log.segment_bytes != flushed // self._log.segment_bytes:
            return True
        return now_ns - self._last_flush_ns >= self._thorough_ns

    def write_checksums(self) -> None:
        """Write the checksums of appended groups; a failure only slows the next recovery, and is logged, not raised."""
        committed = self._log.committed_offset
        if self._checksums is not None:
            try:
                self._checksums.write()
            except (StoreError, OSError) as error:
                self._logger.warning("checksums_not_written", error=str(error))
        self._checksummed_offset = committed

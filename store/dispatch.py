"""Carries the log's records to the consume queues and the key index.

Lives here: the worker that follows the log, puts consume-queue entries for committed bytes, hands columns to the key
index and notifies waiting pulls; its watermark; the rebuild of the queues from the log.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.commitlog.group_feed import FEED_BYTES_MAX, FEED_GROUPS_MAX, GroupFeed, LogColumns, LogSource
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.index.index import KeyIndex

PASS_RECORDS_MAX: Final = 32_768
"""Records of one pass; waiting pulls are notified between passes."""
PASSES_PER_STEP: Final = 16
UNCOMMITTED_RECHECK_MS: Final = 200.0
"""Each commit wakes the worker; this is only a safety net."""
WRITER_RECHECK_MS: Final = 20.0
RETRY_AFTER_MS: Final = 1000.0

OnDispatched = Callable[[list[tuple[str, int, int]]], None]


class Dispatcher:
    """Follows the log and makes its messages visible.

    ``dispatched_offset``: every record below it is in its consume queue (RocketMQ reputFromOffset). It only grows.
    ``feed`` is O(1) and does no I/O: groups that do not fit into the feed are read again from the log later.
    ``passes`` counts. Callbacks run in the thread of the pass (the worker's, or that of ``dispatch_here``), once a
    pass, after the entries can be read: first those in ``on_shown``, then those in ``on_dispatched``. For short appends
    ``on_shown`` is called at once, in the thread that appended, and ``on_dispatched`` some ms later. One pass runs at a
    time.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        log_source: LogSource,
        runner: Runner,
        *,
        index: KeyIndex | None = None,
        groups_max: int = FEED_GROUPS_MAX,
        bytes_max: int = FEED_BYTES_MAX,
        log: EventLog | None = None,
    ) -> None:
        self.on_shown: list[Callable[..., None]] = []
        self.on_dispatched: list[OnDispatched] = []
        self.dispatched_offset = 0
        self.limit: Callable[[], int] | None = None
        """Returns the end of what may be shown (of a synchronous master, ``ha.shown``); None: all that is committed."""
        self.passes = 0
        self._queues = queues
        self._log_source = log_source
        self._runner = runner
        self._index = index
        self._log: EventLog = NullLog() if log is None else log
        self.feed_queue = GroupFeed(log_source, groups_max=groups_max, bytes_max=bytes_max, on_damage=self._damaged)
        self._worker: Worker | None = None
        self._pass_lock = threading.Lock()

    # ---- called by the append

    def feed(self, group: RecordGroup) -> None:
        """Take the columns of an appended group (offsets filled), in log order; ``committed`` or ``dispatch_here``
        follows. O(1), no I/O; any thread, one at a time.
        """
        self.feed_queue.offer(LogColumns(group))

    def feed_columns(self, columns: LogColumns) -> None:
        """Take the columns of short appends, in log order, and wake the worker. O(1), no I/O."""
        self.feed_queue.offer(columns)
        self.committed()

    def show(
        self,
        start: int,
        end: int,
        rows: Sequence[tuple[Any, int, int, int, int, int, bytes]],
        count: int,
        data: bytes | memoryview,
    ) -> bool:
        """Put the queue entries of records just appended at [start, end), in the thread that appended them; notify.

        ``count`` rows: section (its ``queue`` is the consume queue), physical offset, size, tags code, queue offset...
        ``data``: their bytes. ``on_shown`` is called with (queues, tags code, record) if there is one record only.
        Returns False when the dispatcher is behind or at work, or a queue cannot take its entry: the records must then
        be fed. Never waits, does no I/O.
        """
        if self.dispatched_offset != start or not self._pass_lock.acquire(False):
            return False
        try:
            if self.dispatched_offset != start or self._log_source.committed_offset < end:
                return False
            updates, all_put = self._queues.put_rows(rows, count)
            if all_put:
                self.dispatched_offset = end
        finally:
            self._pass_lock.release()
        if updates:  # also of a part: its entries are no news when all are put again
            for callback in self.on_shown:
                try:
                    if count == 1:
                        callback(updates, rows[0][3], data)
                    else:
                        callback(updates)
                except Exception as error:
                    self._log.error("dispatch_callback_failed", error=repr(error))
        return all_put

    def announce(self, end_offset: int) -> None:
        """Announce that the log has grown to ``end_offset`` without columns (a slave's raw append): they are read from
        the log.
        """
        self.feed_queue.announce(end_offset)
        if self._worker is not None:
            self._worker.wake()

    def committed(self) -> None:
        """Announce that the log's committed offset has moved."""
        if self._worker is not None and (self.limit is None or self.due_offset > self.dispatched_offset):
            self._worker.wake()

    def nudge(self) -> None:
        """Wake the worker if something committed is not dispatched: the thread that was to call ``dispatch_here`` may
        be stuck."""
        if self.dispatched_offset < self.due_offset:
            self.committed()

    @property
    def due_offset(self) -> int:
        """The end of what may be shown now."""
        committed, limit = self._log_source.committed_offset, self.limit
        return committed if limit is None else min(committed, limit())

    def dispatch_here(self) -> None:
        """Dispatch in the calling thread instead of waking the worker, unless that is at work already.

        For the thread that has just appended and answered: waking another thread costs more than a small pass (30 µs of
        latency against 7 µs for one message, measured). Never waits for the worker or for the queues' writer.
        """
        if self._pass_lock.acquire(blocking=False):
            try:
                more = self._queues.over_budget or self._pass()
            except (OSError, PocketMQError):
                more = True  # the worker will meet the error again, log it and schedule the next attempt
            finally:
                self._pass_lock.release()
            if not more and min(self.feed_queue.known_end, self.due_offset) <= self.dispatched_offset:
                return
        self.committed()

    # ---- life

    def start(self, from_offset: int) -> None:
        """Follow the log from this physical offset, a boundary between records; records already committed are read from
        the log.
        """
        self.dispatched_offset = from_offset
        self.feed_queue.announce(self._log_source.committed_offset)
        if self._index is not None:
            self._index.announce(from_offset)
        self._worker = self._runner.start("dispatch", self.step)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop the worker, then dispatch the committed rest in this thread. Return False if the worker did not end."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            if not worker.stop(timeout_s):
                return False
            self.catch_up()
        return True

    def between_passes(self) -> AbstractContextManager[object]:
        """Return a lock: while it is held no pass runs, so no queue changes."""
        return self._pass_lock

    def catch_up(self) -> None:
        """Dispatch in the calling thread until nothing committed is left. The worker must not run."""
        while True:
            before = self.dispatched_offset
            if self._queues.over_budget:
                self._queues.flush(force=True)
            self._pass()
            if self.dispatched_offset == before:
                return

    def rebuild(self, from_offset: int, progress: Callable[[int], None] | None = None) -> None:
        """Put the entries of all committed records from ``from_offset`` on, reading the log; before ``start``
        (recovery).

        ``progress`` gets ``dispatched_offset`` after each pass. Existing entries stay as they are.
        """
        self.dispatched_offset = from_offset
        self.feed_queue.announce(self._log_source.committed_offset)
        while True:
            before = self.dispatched_offset
            self._pass()
            if self._queues.over_budget:
                self._queues.flush(force=True)
            if progress is not None:
                progress(self.dispatched_offset)
            if self.dispatched_offset == before:
                return

    # ---- the worker

    def step(self) -> float | None:
        """Dispatch committed records; return the ms until the next check, None to sleep until woken."""
        try:
            for _ in range(PASSES_PER_STEP):
                if self._queues.over_budget:
                    return WRITER_RECHECK_MS  # the disk is too slow: memory stays bounded, messages wait in the log
                with self._pass_lock:
                    if not self._pass():
                        break
            else:
                if self._worker is not None:
                    self._worker.wake()
                return 0
        except (OSError, PocketMQError) as error:
            self._log.error("dispatch_failed", offset=self.dispatched_offset, error=str(error))
            return RETRY_AFTER_MS
        return UNCOMMITTED_RECHECK_MS if self.feed_queue.known_end > self.dispatched_offset else None

    def _pass(self) -> bool:
        """Dispatch up to ``PASS_RECORDS_MAX`` records; return whether there may be more."""
        groups, end = self.feed_queue.take(self.dispatched_offset, self.due_offset, PASS_RECORDS_MAX)
        if groups:
            updates = self._queues.put_groups(groups)
            self.dispatched_offset = end
            if self._index is not None:
                for group in groups:
                    self._index.put_columns(group)
            if updates:
                self._notify(self.on_shown, updates)
                self._notify(self.on_dispatched, updates)
            self.passes += 1
        self.dispatched_offset = end
        return bool(groups) and self.feed_queue.known_end > end

    def notify_dispatched(self, updates: list[tuple[str, int, int]]) -> None:
        """Call ``on_dispatched`` for queues whose entries ``show`` has put."""
        self._notify(self.on_dispatched, updates)

    def _notify(self, callbacks: list[OnDispatched], updates: list[tuple[str, int, int]]) -> None:
        for callback in callbacks:
            try:
                callback(updates)
            except Exception as error:
                self._log.error("dispatch_callback_failed", error=repr(error))

    def _damaged(self, start: int, end: int, error: CorruptRecord) -> None:
        self._log.error("dispatch_skipped_damage", from_offset=start, to_offset=end, error=str(error))

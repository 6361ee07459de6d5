"""Records for the next start how far log, queues and index are durable.

Lives here: ``Checkpointer``, which writes ``checkpoint`` and ``positions.json`` every ``checkpoint_interval`` and at a
clean stop, and lowers positions before queues lose entries that they count.
"""

import threading

from pocketmq.common.errors import PocketMQError
from pocketmq.common.runner import Worker
from pocketmq.store.checkpoint import Checkpoint, Positions, write_checkpoint
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.disk.own_place import OwnPlace
from pocketmq.store.dispatch import Dispatcher
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import StoreError, StoreFenced, StoreReplaced
from pocketmq.store.index.index import KeyIndex
from pocketmq.store.recovery.recovery import RecoveryReport


class Checkpointer:
    """Offsets are physical, in bytes. Thread-safe; ``checkpoint`` and ``rewind`` touch the disk.

    ``recover_offset``: a recovery would read the log from here on, so retention removes nothing beyond it.
    """

    def __init__(
        self,
        environment: StoreEnvironment,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        dispatcher: Dispatcher,
    ) -> None:
        self.recover_offset = 0
        self._environment = environment
        self._file_system = environment.file_system
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        paths = environment.paths
        self._place = OwnPlace(environment.file_system, (paths.root, paths.commit_log), paths.lock)
        self._worker: Worker | None = None
        self._checkpoint = Checkpoint()
        self._seen: tuple[int, int] | None = None  # (end, store time) at the last checkpoint, not yet durable then
        self._durable_offset = -1  # log and queues are durable up to here, and positions.json says so
        self._clean_offset = -1  # positions.json describes a clean stop at this end
        self._rewinds = 0
        self._lock = threading.Lock()  # held over the write: no checkpoint undoes a rewind

    # ---- life

    def opened(self, report: RecoveryReport) -> None:
        """Adopt the findings of recovery."""
        if report.kind == "clean":
            self._durable_offset = report.end_offset
            self._clean_offset = report.end_offset if report.index_clean else -1
            self._checkpoint = Checkpoint(*([report.last_store_timestamp] * 3))
        elif report.kind == "new":
            self._durable_offset = self._clean_offset = 0

    def start(self) -> None:
        """Start writing checkpoints."""
        self._place.remember()
        interval_ms = self._environment.config.checkpoint_interval
        self._worker = self._environment.runner.start("checkpoint", self._step, first_after_ms=interval_ms)

    def stop(self) -> None:
        """End the worker after its present step."""
        if self._worker is not None:
            self._worker.stop()

    def stop_cleanly(self) -> None:
        """Write positions and remove the abort marker, if everything is up to date. Raises ``StoreError``."""
        log, events = self._log, self._environment.log
        end = log.committed_offset
        assert end == log.appended_offset, "a clean stop leaves nothing in a buffer"
        dispatched = self._dispatcher.dispatched_offset
        if dispatched != end:
            events.error("dispatch_behind_at_close", dispatched_offset=dispatched, end_offset=end)
            return
        if not log.leaves_nothing():  # the next start has to zero it: no clean stop
            events.error("failed_append_left_at_close", end_offset=end)
            return
        if self._clean_offset != end:
            durable = self._environment.config.sync_on_close
            if durable and self._durable_offset != end:
                self._file_system.sync_all(self._environment.paths.root)
                self._durable_offset = end
            self._checkpoint = Checkpoint(*([log.last_store_timestamp] * 3))
            recover = max(self._durable_offset, log.min_offset)
            self._write(recover, self._queues.entries(), clean=True, durable=durable)
        self._file_system.remove(self._environment.paths.abort)

    # ---- while the store is open

    def _step(self) -> float | None:
        try:
            self._place.check(self._log.active_path)
            self.checkpoint()
        except StoreReplaced as error:
            self._log.fence(error)
            return None
        except StoreFenced:
            return None
        except PocketMQError as error:
            self._environment.error_log.error("checkpoint_failed", error=str(error))
        return float(self._environment.config.checkpoint_interval)

    def checkpoint(self) -> None:
        """Make log and queues durable and record how far, if anything was stored since. Raises ``StoreError``."""
        log = self._log
        if log.committed_offset == self._durable_offset:
            return
        with self._dispatcher.between_passes():
            dispatched = self._dispatcher.dispatched_offset
            entries = self._queues.entries()  # of records below ``dispatched``: recovery may drop later ones
            rewinds = self._rewinds
        seen = (log.committed_offset, log.committed_store_timestamp)
        flushed = log.flush()
        self._queues.flush(force=True)
        indexed = self._index.flush()
        try:
            self._file_system.sync_all(self._environment.paths.root)
        except StoreError as error:  # queue entries may be lost, and the next sync would not report it
            log.fence(error)
            raise
        recover = min(dispatched, flushed)
        if self._seen is not None and self._seen[0] <= recover:
            index_ms = self._seen[1] if indexed >= self._seen[0] else self._checkpoint.index_ms
            self._checkpoint = Checkpoint(self._seen[1], self._seen[1], index_ms)
            self._seen = None
        self._seen = self._seen or seen
        self._clean_offset = -1
        with self._lock:
            if rewinds != self._rewinds:
                return  # the queues lack entries again; the next checkpoint will include them
            self._write(recover, entries, clean=False, durable=True, indexed=indexed)
            self._durable_offset = self.recover_offset = recover

    def positions_changed(self) -> None:
        """Note that positions.json no longer describes the store."""
        self._clean_offset = -1

    def unneeded_below(self) -> int:
        """Return the offset below which retention may remove the log: those bytes are durable, dispatched, and not
        needed by a recovery.
        """
        return min(self.recover_offset, self._log.flushed_offset, self._dispatcher.dispatched_offset)

    def rewind(self, from_offset: int) -> None:
        """Make a recovery dispatch again from ``from_offset``; call it before queues lose entries beyond that offset,
        so that a kill in between does not leave them incomplete. Raises ``StoreError``.
        """
        with self._lock:
            self._rewinds += 1
            self.positions_changed()
            if self.recover_offset > from_offset:
                self._write(from_offset, 0, clean=False, durable=True)
                self._durable_offset = self.recover_offset = from_offset

    def _write(
        self, recover: int, queue_entries: int, *, clean: bool, durable: bool, indexed: int | None = None
    ) -> None:
        log = self._log
        positions = Positions(
            clean=clean,
            segment_bytes=log.segment_bytes,
            end_offset=log.committed_offset,
            recover_offset=recover,
            indexed_offset=self._index.indexed_offset if indexed is None else indexed,
            last_group_offset=log.last_group_offset,
            last_store_timestamp=log.last_store_timestamp,
            queue_entries=queue_entries,
        )
        write_checkpoint(self._file_system, self._environment.paths, self._checkpoint, positions, durable=durable)

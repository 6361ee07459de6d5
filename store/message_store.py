"""The store as the broker sees it: messages in, messages out, durable when it says so.

Lives here: ``MessageStore``, which builds the parts, starts and stops them in order, and passes calls on.
"""

import os.path
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.common.all_steps import AllSteps
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.delay_levels import DelayLevels
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.properties import KEYS, UNIQ_KEY
from pocketmq.common.record_codec import decode_record, record_size_at
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.runner import Runner, ThreadRunner, Worker
from pocketmq.common.supervised import Supervisor
from pocketmq.store.append_result import AppendResult, PutStatus, PutTimes, refused
from pocketmq.store.checkpoint import Checkpoint, Positions, StorePaths, mark_open, write_checkpoint
from pocketmq.store.commitlog.allocate import ALLOCATING_SUFFIX, SegmentAllocator
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.commit import CommitService
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.commitlog.flush import FlushService
from pocketmq.store.commitlog.group_commit import GroupCommit
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.commitlog.log_reader import DamagedRange
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queue import ENTRY
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.consumequeue.get import GetResult, get_message, read_records
from pocketmq.store.consumequeue.time_index import offset_by_time, store_time, store_time_at
from pocketmq.store.disk.file_system import FileLock, FileSystem
from pocketmq.store.disk.memory_lock import Memory, OsMemory
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.dispatch import Dispatcher
from pocketmq.store.errors import NotLeading, OffsetOutOfRange, StoreClosed, StoreError, StoreFenced
from pocketmq.store.index.index import KeyIndex, KeyQueryResult
from pocketmq.store.open_plan import OpenPlan, drop_log
from pocketmq.store.recovery.recovery import Recovery, RecoveryReport, write_damage
from pocketmq.store.replicas import BothVerdicts, Replicas
from pocketmq.store.retention.retention import Retention
from pocketmq.store.waiters import Done

__all__ = ["AppendResult", "GetResult", "MessageStore", "PutStatus", "RecoveryReport"]

_RECORD_HEAD_BYTES: Final = 36
READ_FAILURES_EVERY_NS: Final = 1_000_000_000
"""At most this often a read that failed is told of."""
Dispatched = Callable[[list[tuple[str, int, int]]], None]


class MessageStore:
    """One store directory, open in one process at a time.

    ``append`` and reads are thread-safe, touch the disk and must stay off the event loop. ``store_host`` (8 or 20
    bytes) is written into every record; set it before ``open``. Callbacks in ``on_dispatched`` run in the dispatch
    worker. Counters: ``log.appended_records``, ``.appended_bytes``, ``.appended_groups``, ``.flush_count``,
    ``.last_flush_ns``, ``.commit_count``, ``.last_commit_ns``; of ``log.lock``: ``held_ns_total``, ``holds``,
    ``busy_episodes``, ``busy_refusals``, ``longest_hold_ns()``.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        runner: Runner | None = None,
        log: EventLog | None = None,
        error_log: EventLog | None = None,
        memory: Memory | None = None,
    ) -> None:
        """``error_log`` takes trouble with the disk; without it ``log`` does."""
        root = os.path.abspath(os.path.expanduser(config.store_path_root_dir))
        self.config = msgspec.structs.replace(config, store_path_root_dir=root)
        if config.broker_role == "SLAVE":  # it takes the master's bytes in large pieces: a write each, no map
            self.config = msgspec.structs.replace(self.config, append_mode="written", warm_maped_file_enable=False)
        self.paths = StorePaths(root)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._file_system: FileSystem = OsFileSystem() if file_system is None else file_system
        self._runner: Runner = ThreadRunner(Supervisor(log, self.clock).crashed) if runner is None else runner
        self._log: EventLog = NullLog() if log is None else log
        self._error_log = self._log if error_log is None else error_log
        config = self.config
        segment_bytes = config.mapped_file_size_commit_log
        files, clock = self._file_system, self.clock
        self._segments = SegmentQueue(files, self.paths.commit_log, segment_bytes)
        memory = OsMemory(files) if memory is None else memory
        self.pool: WriteBufferPool | None = None
        if config.transient_store_pool_enable:
            self.pool = WriteBufferPool(config.transient_store_pool_size, segment_bytes, memory, clock, self._log)
        self._allocator = SegmentAllocator(
            config, files, self.paths.commit_log, self._runner, self._error_log, pool=self.pool, memory=memory
        )
        self._checksums = ChecksumLog(files, self.paths.checksums, segment_bytes) if config.group_checksums else None
        self.delay_levels = DelayLevels(config.message_delay_level)
        self.consume_queues = ConsumeQueues(
            config, files, clock, self._runner, tags_code_of=self._deliver_times, log=self._error_log
        )
        self.log = CommitLog(
            config,
            files,
            clock,
            self._segments,
            self._allocator,
            self._checksums,
            self.consume_queues.next_offset,
            self._log,
            pool=self.pool,
            error_log=self._error_log,
        )
        self.index = KeyIndex(config, files, clock, self._runner, self.log, log=self._error_log)
        self.dispatcher = Dispatcher(
            self.consume_queues, self.log, self._runner, clock, index=self.index, log=self._error_log
        )
        self.retention = Retention(
            config,
            files,
            self.paths,
            clock,
            self._segments,
            self.consume_queues,
            self.index,
            self._checksums,
            self._unneeded_below,
            self._positions_changed,
            self._log,
            self._error_log,
        )
        self._flush = FlushService(config, self.log, self._checksums, clock, self._error_log, self.dispatcher.nudge)
        self._commit = None if self.pool is None else CommitService(config, self.log, clock)
        self._group_commit: GroupCommit | None = None
        if config.flush_disk_type == "SYNC_FLUSH":
            self._group_commit = GroupCommit(self.log, clock, config.sync_flush_timeout, self._log)
        self._is_slave = config.broker_role == "SLAVE"
        self.replicas: Replicas | None = None
        """Set by a master's HA service while it runs."""
        self._lock: FileLock | None = None
        self._checkpointer: Worker | None = None
        self._checkpoint = Checkpoint()
        self._seen: tuple[int, int] | None = None  # (end, store time) at the last checkpoint, not yet durable then
        self._durable_offset = -1  # log and queues are durable up to here, and positions.json says so
        self._clean_offset = -1  # positions.json tells of a clean stop at this end
        self._tell_reads_from_ns = 0
        self._recover_offset = 0  # a recovery would read the log from here on
        self._rewinds = 0  # of the dispatch, by ``delete_topic_below``
        self._positions_lock = threading.Lock()  # held over the write: no checkpoint takes back a rewind
        self._is_open = False

    # ---- life

    def open(
        self, progress: Callable[[int, int], None] | None = None, *, plan: Callable[[], OpenPlan] = OpenPlan
    ) -> RecoveryReport:
        """Lock the directory, recover, rebuild what is missing in queues, start the workers. Blocks; call it off the
        loop.

        ``progress(offset, end)`` is called now and then while the log is read. ``plan`` is asked, once the directory is
        locked, what shall be done to the log before it is recovered. Raises ``ConfigError`` (no memory for
        the write-buffer pool), ``StoreInUse``, ``SegmentSizeMismatch``, ``CorruptStore``, ``StorePermission`` and what
        the disk raises; the directory then is unlocked again, and nothing but a recovery that can be repeated has
        changed.
        """
        assert not self._is_open, "open() of an open store"
        begin_ns = self.clock.monotonic_ns()
        if self.pool is not None:
            self.pool.check()
        self._file_system.make_dirs(self.paths.root)
        self._lock = self._file_system.lock_file(self.paths.lock, f"lock\npid {os.getpid()}\n")
        try:
            report = self._recover(progress, plan())
        except BaseException:
            self._give_up()
            raise
        report.duration_ms = (self.clock.monotonic_ns() - begin_ns) / 1e6
        self._log.info(
            "store_opened",
            kind=report.kind,
            reason=report.reason,
            end_offset=report.end_offset,
            cut_bytes=report.cut_bytes,
            damaged=len(report.damaged),
            duration_ms=round(report.duration_ms, 1),
        )
        return report

    def _recover(self, progress: Callable[[int, int], None] | None, plan: OpenPlan) -> RecoveryReport:
        files, paths, log = self._file_system, self.paths, self.log
        if plan.drop:
            drop_log(files, paths)
        self._segments.load()
        self.consume_queues.deleted.load(self._segments.first_offset)
        self.consume_queues.load()
        for path in (paths.commit_log, paths.checksums, paths.own):  # not before: a refused store is left as it was
            files.make_dirs(path)
        recovery = Recovery(
            self.config,
            files,
            paths,
            self._segments,
            self._checksums,
            self._log,
            progress=progress,
            cut_at_damage=plan.cut_at_damage,
        )
        if plan.cut_to is not None:
            recovery.cut_to(plan.cut_to)
        queues = self.consume_queues
        report = recovery.run(
            queues.last_physical_end,
            queues.entries(),
            queues.deleted.last_offset,
            queues.ends_below,
            queues.deleted.get,
        )
        for name in files.list(paths.commit_log):
            if name.endswith(ALLOCATING_SUFFIX):
                files.remove(f"{paths.commit_log}/{name}")
        end = report.end_offset
        log.damaged[:] = report.damaged
        self.consume_queues.deleted.cut(end)
        if self.pool is not None:
            self.pool.open()
        self._allocator.start()
        self._recover_offset = min(report.start_offset, report.dispatched_from)
        log.open_at(end, report.last_store_timestamp, report.last_group_offset)
        queue_ends = queues.ends_below(end) if report.damaged and report.truncate_queues else {}
        if report.truncate_queues:
            self.consume_queues.truncate_to_physical(report.dispatched_from)
        self.index.load(report.indexed_from, clean=report.index_clean)
        self.dispatcher.rebuild(report.dispatched_from, None if progress is None else partial(_tell, progress, end))
        queues.keep_ends(queue_ends)
        self.consume_queues.correct_min(log.min_offset)
        mark_open(files, paths, durable=self.config.sync_on_close or self._group_commit is not None)
        if report.kind == "clean":
            self._durable_offset = end
            self._clean_offset = end if report.index_clean else -1
            self._checkpoint = Checkpoint(*([report.last_store_timestamp] * 3))
        elif report.kind == "new":
            self._durable_offset = self._clean_offset = 0
        self._start_workers(end)
        return report

    def _start_workers(self, end: int) -> None:
        log = self.log
        log.on_appended = self.dispatcher.feed
        log.on_committed = [self._flush.committed]
        if self._commit is not None:
            log.on_committed.append(self.dispatcher.committed)
            log.on_buffered = self._commit.appended
            self._commit.start(self._runner)
        self.consume_queues.start()
        self.index.start()
        self.dispatcher.start(end)
        self._flush.start(self._runner)
        if self._group_commit is not None:
            self._group_commit.start(self._runner)
        self.retention.start(self._runner)
        interval_ms = self.config.checkpoint_interval
        self._checkpointer = self._runner.start("checkpoint", self._checkpoint_step, first_after_ms=interval_ms)
        self._is_open = True
        log.accept()

    def _give_up(self) -> None:
        """Undo a failed ``open``."""
        steps = AllSteps(lambda step, error: self._error_log.error("store_close_failed", step=step, error=repr(error)))
        steps.take("allocator", self._allocator.stop)
        self._close_log(steps)

    def _close_log(self, steps: AllSteps) -> None:
        steps.take("log", self.log.close)
        if self.pool is not None:
            steps.take("pool", self.pool.close)
        lock, self._lock = self._lock, None
        if lock is not None:
            steps.take("lock", lock.release)

    def close(self) -> None:
        """Take no more appends, bring everything up to date, write it, remember a clean stop. Closing twice does
        nothing.

        Every step is taken, whatever the ones before have raised. When something cannot be written the next start
        recovers, as after a crash; each error is logged, and the first is raised at the end.
        """
        if not self._is_open:
            return
        self._is_open = False
        steps = AllSteps(
            lambda step, error: self._error_log.error("store_close_failed", step=step, error=str(error) or repr(error))
        )
        steps.take("refuse", self.log.refuse)
        steps.take("retention", self.retention.stop)
        if self._checkpointer is not None:
            steps.take("checkpoint", self._checkpointer.stop)
        if self._commit is not None:
            steps.take("commit", self._commit.stop)
            steps.take("write_buffers", self._commit.commit_all)
            left_bytes = self.log.appended_offset - self.log.committed_offset
            if left_bytes:  # the pool's price, also at a stop: say how much of it was paid
                self._error_log.error(
                    "write_buffers_lost",
                    lost_bytes=left_bytes,
                    committed_offset=self.log.committed_offset,
                    hint="these messages were acknowledged and are in no file; their producers must send them again",
                )
        steps.take("flush_service", self._flush.stop)
        if self._group_commit is not None:
            steps.take("group_commit", self._group_commit.stop)
        steps.take("allocator", self._allocator.stop)
        steps.take("flush", self._last_flush)  # before what can be made again from the log
        steps.take("dispatch", self.dispatcher.stop)
        steps.take("index", self.index.close)
        steps.take("consume_queues", self.consume_queues.close)
        steps.take("checksums", self._flush.write_checksums)
        if not steps.have_failed:
            steps.take("positions", self._stop_cleanly)
        self._close_log(steps)
        steps.raise_first()

    def _last_flush(self) -> None:
        if self.config.sync_on_close or self._group_commit is not None or self.log.fenced_by is not None:
            self.log.flush()

    def _stop_cleanly(self) -> None:
        """Write positions and remove the abort marker, if everything has reached the end."""
        log = self.log
        end = log.committed_offset
        assert end == log.appended_offset, "a clean stop leaves nothing in a buffer"
        if self.dispatcher.dispatched_offset != end:
            self._log.error(
                "dispatch_behind_at_close", dispatched_offset=self.dispatcher.dispatched_offset, end_offset=end
            )
            return
        if not log.leaves_nothing():  # the next start has to zero it: no clean stop
            self._log.error("failed_append_left_at_close", end_offset=end)
            return
        if self._clean_offset != end:
            durable = self.config.sync_on_close
            if durable and self._durable_offset != end:
                self._file_system.sync_all(self.paths.root)
                self._durable_offset = end
            self._checkpoint = Checkpoint(*([log.last_store_timestamp] * 3))
            recover = max(self._durable_offset, log.min_offset)
            self._write_positions(recover, self.consume_queues.entries(), clean=True, durable=durable)
        self._file_system.remove(self.paths.abort)

    def _deliver_times(self, section: GroupSection, group: LogColumns) -> NDArray[np.int64]:
        """Return when messages of a delay level are due: the tags codes of their entries (RocketMQ
        ScheduleMessageService.computeDeliverTimestamp).
        """
        delay_ms = self.delay_levels.delay_ms(section.queue_id + 1)
        if group.store_timestamps is None:
            return np.full(section.count, group.store_timestamp + delay_ms, np.int64)
        return group.store_timestamps[section.first : section.first + section.count] + delay_ms

    # ---- checkpoint

    def _checkpoint_step(self) -> float | None:
        try:
            self.checkpoint()
        except StoreFenced:
            return None
        except PocketMQError as error:
            self._error_log.error("checkpoint_failed", error=str(error))
        return float(self.config.checkpoint_interval)

    def checkpoint(self) -> None:
        """Make log and queues durable and remember how far, if anything was stored since. Raises ``StoreError``."""
        log = self.log
        if log.committed_offset == self._durable_offset:
            return
        with self.dispatcher.between_passes():
            dispatched = self.dispatcher.dispatched_offset
            entries = self.consume_queues.entries()  # of records below ``dispatched``: recovery may drop later ones
            rewinds = self._rewinds
        seen = (log.committed_offset, log.committed_store_timestamp)
        flushed = log.flush()
        self.consume_queues.flush(force=True)
        indexed = self.index.flush()
        try:
            self._file_system.sync_all(self.paths.root)
        except StoreError as error:  # entries of queues may be lost that the next sync would say nothing of
            log.fence(error)
            raise
        recover = min(dispatched, flushed)
        if self._seen is not None and self._seen[0] <= recover:
            index_ms = self._seen[1] if indexed >= self._seen[0] else self._checkpoint.index_ms
            self._checkpoint = Checkpoint(self._seen[1], self._seen[1], index_ms)
            self._seen = None
        self._seen = self._seen or seen
        self._clean_offset = -1
        with self._positions_lock:
            if rewinds != self._rewinds:
                return  # queues lack again what was dispatched; the next checkpoint has them
            self._write_positions(recover, entries, clean=False, durable=True, indexed=indexed)
            self._durable_offset = self._recover_offset = recover

    def _unneeded_below(self) -> int:
        """Return below which offset retention may take the log away: what is durable, in its queues, and not read by a
        recovery.
        """
        return min(self._recover_offset, self.log.flushed_offset, self.dispatcher.dispatched_offset)

    def _positions_changed(self) -> None:
        """Note that positions.json does not describe the store any more."""
        self._clean_offset = -1

    def _write_positions(
        self, recover: int, queue_entries: int, *, clean: bool, durable: bool, indexed: int | None = None
    ) -> None:
        log = self.log
        positions = Positions(
            clean=clean,
            segment_bytes=log.segment_bytes,
            end_offset=log.committed_offset,
            recover_offset=recover,
            indexed_offset=self.index.indexed_offset if indexed is None else indexed,
            last_group_offset=log.last_group_offset,
            last_store_timestamp=log.last_store_timestamp,
            queue_entries=queue_entries,
        )
        write_checkpoint(self._file_system, self.paths, self._checkpoint, positions, durable=durable)

    # ---- writing

    @property
    def store_host(self) -> bytes:
        """The address written into every record: 8 bytes (IPv4) or 20."""
        return self.log.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self.log.store_host = host

    @property
    def group_bytes_max(self) -> int:
        """Largest group that ``append`` takes."""
        return self.log.group_bytes_max

    def append(self, group: RecordGroup, *, dispatch_later: bool = False) -> AppendResult:
        """Store a group, all or nothing; see ``CommitLog.append``. A refusal is a status, not an exception.

        ``dispatch_later``: the caller will call ``dispatch`` soon, in this thread; else the dispatch worker is woken.
        """
        times = PutTimes()
        replicas = self.replicas
        try:
            if self.retention.flags.bits:
                raise self.retention.refusal()
            if self._is_slave or (replicas is not None and replicas.is_fenced):
                raise NotLeading(
                    "service not available now",
                    why="this broker is a slave, or another master has replaced it",
                    hint="send to the master of this broker name",
                )
            result = self.log.append(group, times)
        except PocketMQError as error:
            return refused(error, times)
        if not dispatch_later and self.pool is None:  # with a pool the commit wakes it
            self.dispatcher.committed()
        return result

    def start_at(self, offset: int) -> None:
        """Begin an empty log at ``offset``, a segment's first byte: a slave's, whose master has nothing older.

        Raises ``StoreError``.
        """
        assert self._is_open
        self.log.start_at(offset)
        self._positions_changed()

    def note_damage(self, start: int, end: int, why: str) -> None:
        """Remember, before bytes without a record are appended, that walks must skip them. Raises ``StoreError``."""
        damaged = self.log.damaged
        if damaged and damaged[-1].end == start and damaged[-1].why == why:
            damaged[-1] = DamagedRange(damaged[-1].start, end, why)
        else:
            damaged.append(DamagedRange(start, end, why))
        write_damage(self._file_system, self.paths, damaged)

    def show_all(self) -> None:
        """Make visible, to consumers and to key queries, what was appended before the call.

        Commits and dispatches in this thread what waits, and waits for a pass that is under way; not for the event
        loop.
        """
        if self.pool is not None:
            try:
                self.log.commit()
            except StoreError:
                pass  # the log has said so; what is committed is shown
        if self.dispatcher.dispatched_offset < self.log.committed_offset:
            self.dispatcher.dispatch_here()
        with self.dispatcher.between_passes():
            pass

    def dispatch(self) -> None:
        """Make what was appended with ``dispatch_later`` visible to consumers."""
        self.dispatcher.dispatch_here()

    def acknowledge(self, end_offset: int, wait: bool, done: Done) -> None:
        """Call ``done(status)`` when what ends at ``end_offset`` is as safe as the settings promise.

        At once in this thread under ASYNC_FLUSH (with a write-buffer pool it may be in RAM only), or if it is durable
        already, or ``wait`` is False (RocketMQ property WAIT); else later in a flush thread: PUT_OK, FLUSH_DISK_TIMEOUT
        after ``sync_flush_timeout``, or SERVICE_NOT_AVAILABLE when the log is fenced: nobody knows then whether the
        disk has it. A synchronous master waits for its slaves as well, at the same time; see ``Replicas.wait``. A
        master that was replaced answers SERVICE_NOT_AVAILABLE.
        """
        replicas = self.replicas
        if replicas is None:
            self._acknowledge_flush(end_offset, wait, done)
        elif replicas.is_fenced:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
        elif not wait or not replicas.is_synchronous:
            self._acknowledge_flush(end_offset, wait, done)
        elif self._group_commit is None and self.log.fenced_by is None:
            replicas.wait(end_offset, done)  # the disk promises nothing: one verdict less
        else:
            both = BothVerdicts(done)
            self._acknowledge_flush(end_offset, wait, both.flushed)
            replicas.wait(end_offset, both.replicated)

    @property
    def acknowledges_later(self) -> bool:
        """Whether ``acknowledge`` with ``wait`` may call back later: synchronous flush, or a synchronous master."""
        replicas = self.replicas
        return self._group_commit is not None or (replicas is not None and replicas.is_synchronous)

    def _acknowledge_flush(self, end_offset: int, wait: bool, done: Done) -> None:
        log = self.log
        if log.fenced_by is not None and end_offset > log.flushed_offset:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
        elif self._group_commit is None or log.flushed_offset >= end_offset:
            done(PutStatus.PUT_OK)
        elif wait:
            self._group_commit.wait(end_offset, done)
        else:
            self._group_commit.ring()
            done(PutStatus.PUT_OK)

    @property
    def on_dispatched(self) -> list[Dispatched]:
        """Callbacks with [(topic, queue id, max offset)], once per dispatch pass."""
        return self.dispatcher.on_dispatched

    @property
    def appended_offset(self) -> int:
        """End of what is accepted."""
        return self.log.appended_offset

    @property
    def committed_offset(self) -> int:
        """End of what can be read."""
        return self.log.committed_offset

    @property
    def flushed_offset(self) -> int:
        """End of what is durable."""
        return self.log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        """End of what consumers can see."""
        return self.dispatcher.dispatched_offset

    # ---- under load; all of these are safe on the event loop: they take no lock

    def is_os_page_cache_busy(self) -> bool:
        """Tell whether an append has held the append lock for more than ``os_page_cache_busy_timeout_mills``."""
        return self.log.lock.is_busy()

    def lock_time_mills(self) -> int:
        """Return for how many ms the present holder has had the append lock, 0 when it is free."""
        return self.log.lock.held_ns() // 1_000_000

    def is_transient_store_pool_deficient(self) -> bool:
        """Tell whether there is a write-buffer pool and none of its buffers is free."""
        return self.pool is not None and self.pool.available == 0

    # ---- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tags_codes: frozenset[int] | None = None,
    ) -> GetResult:
        """Return messages of a queue from ``offset`` on; see ``get_message``."""
        try:
            return get_message(
                self.consume_queues.get(topic, queue_id),
                self.log,
                offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tags_codes=tags_codes,
            )
        except PocketMQError as error:
            now_ns = self.clock.monotonic_ns()
            if now_ns >= self._tell_reads_from_ns:  # a consumer asks again and again
                self._tell_reads_from_ns = now_ns + READ_FAILURES_EVERY_NS
                self._error_log.error("read_failed", topic=topic, queue_id=queue_id, offset=offset, error=str(error))
            raise

    def read_entries(self, topic: str, queue_id: int, offset: int, count: int) -> NDArray[np.void]:
        """Return up to ``count`` entries of a queue (see ``consume_queue.ENTRY``) from ``offset``, blanks as they are;
        fewer at its end, none outside of it. Raises what the disk raises.
        """
        queue = self.consume_queues.get(topic, queue_id)
        return np.empty(0, ENTRY) if queue is None else queue.read(offset, count)

    def read_records(self, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the records at these physical offsets (ascending) back to back. Raises ``CorruptRecord``,
        ``OffsetOutOfRange``, DiskError.
        """
        body = read_records(self.log, offsets, sizes)
        if len(body) < int(sizes.sum()):
            raise CorruptRecord(
                "record does not match its consume queue entry",
                why=f"behind {len(body)} of {int(sizes.sum())} bytes",
                hint="run pocketmq log verify",
            )
        return body

    def make_durable(self) -> int:
        """Commit and flush what is appended; return the end of what is durable. Raises ``StoreError``."""
        if self.pool is not None:
            self.log.commit()
        return self.log.flush()

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return a queue's first offset, 0 for one that does not exist."""
        queue = self.consume_queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind a queue's last visible message, 0 for one that does not exist."""
        queue = self.consume_queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return where in the log a queue's message starts, or None if the queue does not have it."""
        queue = self.consume_queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        entries = queue.read(queue_offset, 1)
        return int(entries["offset"][0]) if len(entries) else None

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset that belongs to a time in ms; see ``time_index.offset_by_time``."""
        return offset_by_time(self.consume_queues.get(topic, queue_id), self.log, timestamp)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, in ms; -1 when it is not there."""
        queue = self.consume_queues.get(topic, queue_id)
        return -1 if queue is None else store_time(queue, self.log, offset)

    def earliest_store_time(self) -> int:
        """Return when the first message that the log still has was stored, in ms; -1 for an empty log."""
        return store_time_at(self.log, self.log.min_offset)

    def queues(self) -> list[tuple[str, int, int, int]]:
        """Return (topic, queue id, min offset, max offset) of every queue."""
        return self.consume_queues.queues()

    def read_record(self, physical_offset: int, size: int = 0) -> bytes | None:
        """Return the record at a physical offset (from a message id, so not to be trusted), or None if none starts
        there.

        ``size`` 0: what the record says; else it must be the record's.
        """
        log = self.log
        if not log.min_offset <= physical_offset <= log.committed_offset - _RECORD_HEAD_BYTES:
            return None
        try:
            head = log.read(physical_offset, _RECORD_HEAD_BYTES).tobytes()
            found = record_size_at(head)
            if int.from_bytes(head[28:36], "big") != physical_offset or size not in (0, found):
                return None
            if physical_offset % log.segment_bytes + found > log.segment_bytes:
                return None
            return log.read(physical_offset, found).tobytes()
        except (CorruptRecord, OffsetOutOfRange):
            return None

    def query(self, topic: str, key: str, begin: int, end: int, max_num: int) -> list[bytes]:
        """Return the records with this unique id or key, stored between two times (ms), newest first, at most 64.

        Finds what was appended before the call, unless the index is seconds behind.
        """
        return self.find(topic, key, begin, end, max_num)[0]

    def find(self, topic: str, key: str, begin: int, end: int, max_num: int) -> tuple[list[bytes], KeyQueryResult]:
        """Do what ``query`` does; return with the records how far the index was, and whether all of it was read."""
        self.show_all()
        result = self.index.query(topic, key, begin, end, max_num)
        records: list[bytes] = []
        for offset in result.offsets:
            record = self.read_record(offset)
            if record is not None and _has_key(record, topic, key):
                records.append(record)
        return records, result

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's consume queues. Its records stay in the log until retention removes them, and never enter a
        queue again. Raises ``StoreError``.
        """
        if not self._is_open:
            raise StoreClosed("topic not deleted", why="the store is not open")

        def exclusively(forget: Callable[[int], None]) -> None:
            with self.dispatcher.between_passes():
                self.log.forget_queues(topic, forget)

        self.consume_queues.delete_topic(topic, exclusively)
        self._positions_changed()  # they count the entries of the topic

    def delete_topic_below(self, topic: str, end_offset: int) -> None:
        """Do on a slave what ``delete_topic`` did on its master when the log ended at ``end_offset``.

        Records of the topic behind that offset belong to a topic that was created anew: what of them was dispatched on
        top of the old queues is dispatched again, into new ones. Raises ``StoreError``.
        """
        if not self._is_open:
            raise StoreClosed("topic not deleted", why="the store is not open")
        dispatcher = self.dispatcher

        def exclusively(forget: Callable[[int], None]) -> None:
            with dispatcher.between_passes():
                from_offset = max(min(dispatcher.dispatched_offset, end_offset), self.log.min_offset)
                self._rewind_positions(from_offset)
                forget(end_offset)
                dispatcher.dispatched_offset = from_offset

        self.consume_queues.delete_topic(topic, exclusively)
        self._positions_changed()
        dispatcher.committed()

    def _rewind_positions(self, from_offset: int) -> None:
        """Have a recovery dispatch again from ``from_offset``, before queues lose what lies behind it: a kill in
        between must not leave them without it. Raises ``StoreError``.
        """
        with self._positions_lock:
            self._rewinds += 1
            self._positions_changed()
            if self._recover_offset > from_offset:
                self._write_positions(from_offset, 0, clean=False, durable=True)
                self._durable_offset = self._recover_offset = from_offset


def _tell(progress: Callable[[int, int], None], end: int, at: int) -> None:
    progress(at, end)


def _has_key(data: bytes, topic: str, key: str) -> bool:
    """Tell whether a record really has the key whose hash was found."""
    try:
        record = decode_record(data, check_crc=False)
    except CorruptRecord:
        return False
    properties = record.property_map()
    return record.topic == topic and (properties.get(UNIQ_KEY) == key or key in properties.get(KEYS, "").split(" "))

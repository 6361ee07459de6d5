"""The store's interface to the broker: append, acknowledge, read.

Lives here: ``MessageStore``, which passes each call on to the component that does the work.
"""

import contextlib
import os.path
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.record import HOST_V6_BYTES, KEYS, UNIQ_KEY
from pocketmq.common.record_codec import decode_record, record_size_at
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.runner import Runner, Supervisor, ThreadRunner
from pocketmq.store.append_result import AppendResult, PutStatus, PutTimes, refused
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.closing import close_components
from pocketmq.store.commitlog.log_reader import DamagedRange
from pocketmq.store.commitlog.write_buffer_pool import nothing
from pocketmq.store.components import build
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queue import ENTRY
from pocketmq.store.consumequeue.get import GetResult, get_message, read_records
from pocketmq.store.consumequeue.get_run import RunReader
from pocketmq.store.consumequeue.time_index import offset_by_time, store_time, store_time_at
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.memory_lock import Memory, OsMemory
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import NotLeading, OffsetOutOfRange, StoreClosed, StoreError
from pocketmq.store.index.index import KeyQueryResult
from pocketmq.store.opening import OpenPlan, open_components
from pocketmq.store.recovery.recovery import RecoveryReport, write_damage
from pocketmq.store.replicas import BothVerdicts, Replicas
from pocketmq.store.waiters import Awaited, Done

__all__ = ["AppendResult", "GetResult", "MessageStore", "PutStatus", "RecoveryReport"]

_RECORD_HEAD_BYTES: Final = 36
SHOW_PASSES_MAX: Final = 10
"""Passes that ``show_all`` makes or waits for; the second that begins after its call sees what it is to show."""
READ_FAILURES_EVERY_NS: Final = 1_000_000_000
"""Failed reads are logged at most this often."""
Dispatched = Callable[[list[tuple[str, int, int]]], None]


class MessageStore:
    """One store directory, open in one process at a time.

    ``append`` and reads are thread-safe, touch the disk and must stay off the event loop. ``store_host`` (8 or 20
    bytes) is written into every record; set it before ``open``. Callbacks in ``on_dispatched`` run in the dispatch
    worker. Counters: ``log.flush_count``, ``log.last_flush_ns``; of ``log.lock``: ``held_ns_total``, ``holds``,
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
        """``error_log`` takes disk errors; without it ``log`` does."""
        root = os.path.abspath(os.path.expanduser(config.store_path_root_dir))
        config = msgspec.structs.replace(config, store_path_root_dir=root)
        if config.broker_role == "SLAVE":  # it appends the master's bytes in large pieces: one write each, no map
            config = msgspec.structs.replace(config, append_mode="written", warm_maped_file_enable=False)
        self.config = config
        self.paths = StorePaths(root)
        self.clock: Clock = SystemClock() if clock is None else clock
        self.file_system: FileSystem = OsFileSystem() if file_system is None else file_system
        log = NullLog() if log is None else log
        self._error_log: EventLog = log if error_log is None else error_log
        runner = ThreadRunner(Supervisor(log, self.clock).crashed) if runner is None else runner
        environment = StoreEnvironment(config, self.paths, self.file_system, self.clock, runner, log, self._error_log)
        self.components = components = build(environment, OsMemory(self.file_system) if memory is None else memory)
        self.pool = components.pool
        self.delay_levels = components.delay_levels
        self.consume_queues = components.queues
        self.log = components.log
        self._runs = RunReader(components.log)
        self.index = components.index
        self.dispatcher = components.dispatcher
        self.retention = components.retention
        self.gate = environment.gate
        self.short = components.short
        self._group_commit = components.group_commit
        self._is_slave = config.broker_role == "SLAVE"
        self.replicas: Replicas | None = None
        """Set by a master's HA service while it runs."""
        self.still_wanted: Callable[[], None] = nothing
        """Called now and then while it opens; what it raises ends the opening."""
        self.reads_wait = False
        """Whether queues may hold what a promotion would cut: consumers must not read yet."""
        self._tell_reads_from_ns = 0
        self._earliest = -1, -1  # offset and store time of the log's first message
        self._is_open = False

    # ---- life

    def open(
        self, progress: Callable[[int, int], None] | None = None, *, plan: Callable[[], OpenPlan] = OpenPlan
    ) -> RecoveryReport:
        """Lock the directory, recover, rebuild missing queue entries, start the workers. Blocks; call it off the loop.

        ``progress(offset, end)`` is called now and then while the log is read. ``plan``, called once the directory is
        locked, returns the changes to the log before its recovery. Raises ``ConfigError`` (no memory for the
        write-buffer pool), ``StoreInUse``, ``SegmentSizeMismatch``, ``CorruptStore``, ``StorePermission`` and disk
        errors, and what ``still_wanted`` raises; the directory is then unlocked again, and nothing but a repeatable
        recovery has changed.
        """
        assert not self._is_open, "open() of an open store"
        report = open_components(self.components, progress, plan, self.still_wanted)
        self._is_open = True
        return report

    def close(self) -> None:
        """Refuse appends, bring everything up to date, write it, record a clean stop. A second call does nothing.

        Every step is taken, even if earlier ones have raised. When something cannot be written the next start recovers,
        as after a crash; each error is logged, and the first is raised at the end.
        """
        if self._is_open:
            self._is_open = False
            close_components(self.components)

    def settings_changed(self) -> None:
        """Take the settings that ``config`` has now and that can change while the store is open. Any thread."""
        self.components.settings_changed(self.config)

    def set_epoch(self, epoch: int) -> None:
        """Note in which epoch of replication later appends are made: surviving write buffers carry it."""
        if self.pool is not None:
            self.pool.epoch = epoch

    def checkpoint(self) -> None:
        """Make log and queues durable and record how far, if anything was stored since. Raises ``StoreError``."""
        self.components.checkpointer.checkpoint()

    # ---- writing

    @property
    def store_host(self) -> bytes:
        """The address written into every record: 8 bytes (IPv4) or 20."""
        return self.log.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self.log.store_host = host
        self.log.is_v6 = len(host) == HOST_V6_BYTES

    @property
    def group_bytes_max(self) -> int:
        """Largest group that ``append`` accepts."""
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
        if not dispatch_later and self.pool is None:  # with a pool the commit wakes the worker
            self.dispatcher.committed()
        return result

    def is_refusing(self) -> bool:
        """Return whether ``append`` refuses everything now. Any change of that changes the ``gate``."""
        replicas = self.replicas
        return (
            self._is_slave
            or self.log.is_refusing
            or bool(self.retention.flags.bits)
            or (replicas is not None and replicas.is_fenced)
        )

    def serve_awaited(self, *awaited: Awaited) -> None:
        """Let waiting pulls and pops have messages at once: buffers that survive the process are committed as soon as
        something is appended while any waits."""
        if self.components.commit is not None:
            self.components.commit.awaited = awaited

    def show_soon(self) -> None:
        """Commit soon what was appended, if it is not committed yet: from now on a pull waits for it. Any thread;
        cheap."""
        if self.log.committed_offset < self.log.appended_offset and self.components.commit is not None:
            self.components.commit.ask()

    def start_at(self, offset: int) -> None:
        """Begin an empty log at ``offset``, a segment's first byte: for a slave whose master has nothing older.

        Raises ``StoreError``.
        """
        assert self._is_open
        self.log.start_at(offset)
        self.components.checkpointer.positions_changed()

    def note_damage(self, start: int, end: int, why: str) -> None:
        """Record, before bytes without a record are appended, that walks must skip them. Raises ``StoreError``."""
        damaged = self.log.damaged
        if damaged and damaged[-1].end == start and damaged[-1].why == why:
            damaged[-1] = DamagedRange(damaged[-1].start, end, why)
        else:
            damaged.append(DamagedRange(start, end, why))
        write_damage(self.file_system, self.paths, damaged)

    def show_all(self) -> None:
        """Make everything appended before the call visible to consumers, as far as they may see it.

        Commits and dispatches in this thread, and waits for a pass under way, but for no append: the disk may have
        stalled in it. Not for the event loop.
        """
        if self.pool is not None:
            try:
                self.log.commit()
            except StoreError:
                pass  # logged already; committed records are shown
        dispatcher = self.dispatcher
        end = dispatcher.due_offset
        for _ in range(SHOW_PASSES_MAX):
            if dispatcher.dispatched_offset < end:
                dispatcher.dispatch_here()
            with dispatcher.between_passes():
                if dispatcher.dispatched_offset >= end:
                    return

    def dispatch(self) -> None:
        """Make groups appended with ``dispatch_later`` visible to consumers."""
        self.dispatcher.dispatch_here()

    def sync_here(self, end_offset: int, done: Done) -> bool:
        """Make the group that ends at ``end_offset`` as safe as the settings promise, in this thread, if a quick sync
        is all that this takes. Return True: it is, and the caller answers. False: ``done(status)`` is called, by now or
        later, as by ``acknowledge``.
        """
        replicas, commit = self.replicas, self._group_commit
        if commit is None or (replicas is not None and (replicas.is_fenced or replicas.is_synchronous)):
            self.acknowledge(end_offset, True, done)
            return False
        return commit.lead(end_offset, done)

    def acknowledge(self, end_offset: int, wait: bool, done: Done) -> None:
        """Call ``done(status)`` when the group that ends at ``end_offset`` is as safe as the settings promise.

        At once in this thread under ASYNC_FLUSH (with a write-buffer pool it may be in RAM only), or if it is durable
        already, or ``wait`` is False (RocketMQ property WAIT); else later in a flush thread: PUT_OK, FLUSH_DISK_TIMEOUT
        after ``sync_flush_timeout``, or SERVICE_NOT_AVAILABLE when the log is fenced: it is then unknown whether the
        disk has it. A synchronous master waits for its slaves as well, at the same time; see ``Replicas.wait``. A
        replaced master answers SERVICE_NOT_AVAILABLE.
        """
        replicas = self.replicas
        if replicas is None:
            self._acknowledge_flush(end_offset, wait, done)
        elif replicas.is_fenced:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
        elif not wait or not replicas.is_synchronous:
            self._acknowledge_flush(end_offset, wait, done)
        elif self._group_commit is None and self.log.fenced_by is None:
            replicas.wait(end_offset, done)  # no need to wait for the disk
            if self.components.commit is not None:
                self.components.commit.ask()
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
            self._group_commit.wake()
            done(PutStatus.PUT_OK)

    @property
    def on_dispatched(self) -> list[Dispatched]:
        """Callbacks with [(topic, queue id, max offset)], once per dispatch pass."""
        return self.dispatcher.on_dispatched

    @property
    def on_shown(self) -> list[Callable[..., None]]:
        """Callbacks as in ``on_dispatched``, but at once also after short appends; after one of a single record, with
        its tags code and its bytes, whose memory is the caller's."""
        return self.dispatcher.on_shown

    @property
    def appended_offset(self) -> int:
        """End of the accepted bytes."""
        return self.log.appended_offset

    @property
    def committed_offset(self) -> int:
        """End of the readable bytes."""
        return self.log.committed_offset

    @property
    def flushed_offset(self) -> int:
        """End of the durable bytes."""
        return self.log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        """End of the bytes visible to consumers."""
        return self.dispatcher.dispatched_offset

    # ---- under load; all of these are safe on the event loop: they take no lock

    def is_os_page_cache_busy(self) -> bool:
        """Return whether an append has held the append lock for more than ``os_page_cache_busy_timeout_mills``."""
        return self.log.lock.is_busy()

    def lock_time_mills(self) -> int:
        """Return for how many ms the append lock has been held, 0 when it is free."""
        return self.log.lock.held_ns() // 1_000_000

    @property
    def pool_memory_locked(self) -> bool:
        """Whether there is a write-buffer pool and all its buffers are locked in RAM."""
        return self.pool is not None and self.pool.is_locked

    @property
    def appends_cannot_stall(self) -> bool:
        """Whether an append that finds a write buffer is a copy into memory that no disk and no swapping can hold back,
        and that outlives the process: surviving buffers on a file system in memory, reserved and locked.
        """
        pool = self.pool
        return pool is not None and pool.cannot_stall

    def is_transient_store_pool_deficient(self) -> bool:
        """Return whether there is a write-buffer pool and none of its buffers is free."""
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
            if now_ns >= self._tell_reads_from_ns:  # a consumer keeps retrying
                self._tell_reads_from_ns = now_ns + READ_FAILURES_EVERY_NS
                self._error_log.error("read_failed", topic=topic, queue_id=queue_id, offset=offset, error=str(error))
            if not isinstance(error, CorruptRecord):
                raise
            where = f"{topic} queue {queue_id}, at or behind offset {offset}"
            raise CorruptRecord(error.what, why=f"{where}: {error.why}", hint=error.hint) from error

    def get_run(
        self, queues: Sequence[tuple[str, int, int]], *, max_messages: int, max_bytes: int
    ) -> dict[int, GetResult]:
        """Return messages of several (topic, queue id, offset) that lie interleaved in the log, by position; see
        ``RunReader.get``."""
        find = self.consume_queues.get
        found = [(find(topic, queue_id), offset) for topic, queue_id, offset in queues]
        return self._runs.get(found, max_messages=max_messages, max_bytes=max_bytes)

    def read_entries(self, topic: str, queue_id: int, offset: int, count: int) -> NDArray[np.void]:
        """Return up to ``count`` entries of a queue (see ``consume_queue.ENTRY``) from ``offset``, blanks as they are;
        fewer at its end, none outside of it. Raises disk errors.
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
        """Commit and flush everything appended; return the end of the durable bytes. Raises ``StoreError``."""
        if self.pool is not None:
            self.log.commit()
        return self.log.flush()

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return a queue's first offset, 0 for an unknown queue."""
        queue = self.consume_queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def first_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's first message that the log still has, 0 for a queue that does not exist.

        ``min_offset`` follows the log's start only when a round of retention has ended. May read files.
        """
        queue = self.consume_queues.get(topic, queue_id)
        return 0 if queue is None else queue.first_from(self.log.min_offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after a queue's last visible message, 0 for an unknown queue."""
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
        """Return when the log's first message was stored, in ms, as ``find_earliest`` saw it; -1 for an empty log."""
        return self._earliest[1]

    def find_earliest(self) -> None:
        """Learn when the log's first message was stored. Reads the disk, once for each first segment."""
        offset = self.log.min_offset
        known_offset, time_ms = self._earliest
        if known_offset != offset or time_ms < 0:
            with contextlib.suppress(PocketMQError):  # a sick disk; the next call tries again
                self._earliest = offset, store_time_at(self.log, offset)

    def queues(self) -> list[tuple[str, int, int, int]]:
        """Return (topic, queue id, min offset, max offset) of every queue."""
        return self.consume_queues.queues()

    def read_record(self, physical_offset: int, size: int = 0) -> bytes | None:
        """Return the record at a physical offset (from a message id, so untrusted), or None if none starts there.

        ``size`` 0: the record's own size; else it must equal that.
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

        Finds all messages appended before the call, unless the index is seconds behind.
        """
        return self.find(topic, key, begin, end, max_num)[0]

    def find(
        self, topic: str, key: str, begin: int, end: int, max_num: int, size_bytes_max: int = 1 << 40
    ) -> tuple[list[bytes], KeyQueryResult]:
        """Do ``query``; return with the records how far the index was, and whether all of it was read. Records beyond
        ``size_bytes_max`` in total are left out, but for the first."""
        self.show_all()
        all_handed_on = self.short.hand_on_soon()
        result = self.index.query(topic, key, begin, end, max_num)
        result.complete &= all_handed_on
        records: list[bytes] = []
        for offset in result.offsets:
            record = self.read_record(offset)
            if record is not None and _has_key(record, topic, key):
                size_bytes_max -= len(record)
                if records and size_bytes_max < 0:
                    break
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
        self.components.checkpointer.positions_changed()  # they count the entries of the topic

    def delete_topic_below(self, topic: str, end_offset: int) -> None:
        """Do on a slave what ``delete_topic`` did on its master when the log ended at ``end_offset``.

        Records of the topic beyond that offset belong to a topic created again later: those already dispatched into the
        old queues are dispatched again, into new ones. Raises ``StoreError``.
        """
        if not self._is_open:
            raise StoreClosed("topic not deleted", why="the store is not open")
        dispatcher = self.dispatcher

        def exclusively(forget: Callable[[int], None]) -> None:
            with dispatcher.between_passes():
                from_offset = max(min(dispatcher.dispatched_offset, end_offset), self.log.min_offset)
                self.components.checkpointer.rewind(from_offset)
                forget(end_offset)
                dispatcher.dispatched_offset = from_offset

        self.consume_queues.delete_topic(topic, exclusively)
        self.components.checkpointer.positions_changed()
        dispatcher.committed()


def _has_key(data: bytes, topic: str, key: str) -> bool:
    """Return whether a record really has the key whose hash was found."""
    try:
        record = decode_record(data, check_crc=False)
    except CorruptRecord:
        return False
    properties = record.property_map()
    return record.topic == topic and (properties.get(UNIQ_KEY) == key or key in properties.get(KEYS, "").split(" "))

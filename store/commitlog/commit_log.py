"""The commit log: groups of records, appended under one lock, read by offset.

Lives here: ``CommitLog``: the order of an append, times of records, the three watermarks, commit, flush, fence.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.hashes import crc32
from pocketmq.common.record_columns import patch
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.append_result import AppendResult, PutStatus, PutTimes
from pocketmq.store.commitlog.allocate import SegmentAllocator
from pocketmq.store.commitlog.append_lock import AppendLock
from pocketmq.store.commitlog.checksums import ChecksumLog, HeldChecksums
from pocketmq.store.commitlog.log_reader import DamagedRange, LogReader
from pocketmq.store.commitlog.log_writer import LogWriter
from pocketmq.store.commitlog.queue_offsets import NextOffset, QueueOffsets
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import (
    CommitFailing,
    GroupTooLarge,
    OffsetOutOfRange,
    StoreClosed,
    StoreError,
    StoreFenced,
    StoreReplaced,
    translated,
)

LONG_HOLD_NS: Final = 500_000_000
"""A longer append is logged (RocketMQ CommitLog.putMessage)."""

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class CommitLog:
    """One append-only log, cut into segments of ``segment_bytes``.

    Offsets are absolute bytes, never reused. Holds: ``min_offset <= flushed_offset <= committed_offset <=
    appended_offset``. After ``append`` a record has its offset; once committed it is readable; once flushed it survives
    power loss. An append commits at once, unless it went to a write buffer: then ``commit`` does. ``append``, reads,
    ``commit`` and ``flush`` are thread-safe. The watermarks are plain attributes: reading one never blocks.
    """

    def __init__(
        self,
        environment: StoreEnvironment,
        segments: SegmentQueue,
        allocator: SegmentAllocator,
        checksums: ChecksumLog | None,
        next_offset: NextOffset,
        *,
        pool: WriteBufferPool | None = None,
    ) -> None:
        """``next_offset(topic, queue_id)`` gives the queue offset that comes next in a queue not appended to so far;
        ``pool`` gets the buffers of committed segments back.
        """
        config, clock = environment.config, environment.clock
        self.segment_bytes = config.mapped_file_size_commit_log
        self.group_bytes_max = config.group_bytes_max
        self.store_host = bytes(8)
        self.is_v6 = False
        """Whether the hosts in its records have 20 bytes."""
        self.gate = environment.gate
        self.before_wide: Callable[[], None] | None = None
        """Called under the append lock before a group is appended: short appends hand on what they have collected."""
        self.on_appended: Callable[[RecordGroup], None] | None = None
        """Called under the append lock, in log order, with every group (offsets filled). Must be quick and never raise.
        """
        self.on_committed: list[Callable[[], None]] = []
        """Called outside the lock after the committed offset moved."""
        self.on_buffered: Callable[[], None] | None = None
        """Called outside the lock after an append that still has to be committed. Must be quick and never raise."""
        self.damaged: list[DamagedRange] = []
        self.lock = AppendLock(clock, config.os_page_cache_busy_timeout_mills)
        self.appended_offset = 0
        self.committed_offset = 0
        self.flushed_offset = 0
        self.last_store_timestamp = 0
        self.last_group_offset = 0
        self.flush_count = 0
        self.last_flush_ns = 0
        self.flush_ns_total = 0
        self.flush_began_ns = 0
        """Monotonic time at which the sync under way began; 0: none is."""
        self.fenced_by: StoreError | None = None
        self.commit_failed_by: StoreError | None = None
        """Why the last commit failed; None again after one that succeeded."""
        self._record_bytes_max = config.record_bytes_max
        self._file_system = environment.file_system
        self._clock = clock
        self._monotonic_ns = clock.monotonic_ns
        self._segments = segments
        self._checksums = checksums
        self._held = None if pool is None or checksums is None else HeldChecksums(checksums)
        self._pool = pool
        self._log = environment.log
        self._error_log = environment.error_log
        self.queue_offsets = QueueOffsets(next_offset)
        self.writer = LogWriter(segments, allocator, config, self._error_log, pool)
        self._commit_lock = threading.Lock()  # held over I/O, never together with the append lock
        self._watermark_lock = threading.Lock()  # never held over I/O
        self._committed_timestamp = 0
        self._flush_lock = threading.Lock()
        self._is_open = False
        self._reader = LogReader(self.read_into, self.segment_bytes, self._record_bytes_max, self.damaged)

    # ---- life

    def open_at(self, end_offset: int, last_store_timestamp: int, last_group_offset: int) -> None:
        """Continue at ``end_offset``, the end of the bytes that recovery found good and durable."""
        assert self._segments.first_offset <= end_offset <= self._segments.end_offset
        self.appended_offset = self.committed_offset = self.flushed_offset = end_offset
        self.last_store_timestamp = self._committed_timestamp = last_store_timestamp
        self.last_group_offset = last_group_offset
        self.commit_failed_by = None
        if self._pool is not None:
            self._pool.continue_at(end_offset)
        self.writer.open_at(end_offset)

    def accept(self) -> None:
        """Accept appends from now on."""
        self._is_open = True
        self.gate.changed()

    def refuse(self) -> None:
        """Refuse appends from now on; returns when none is under way."""
        with self.lock.patient:
            self._is_open = False
            self.gate.changed()

    def leaves_nothing(self) -> bool:
        """Return, before ``close``, whether the files hold no remains of failed appends beyond the end."""
        return self.writer.leaves_nothing

    def close(self) -> None:
        """Close the files. Flush first."""
        self.refuse()
        self.writer.active = None
        self._segments.close()

    @property
    def min_offset(self) -> int:
        """The log's first offset."""
        return self._segments.first_offset

    @property
    def has_no_segment(self) -> bool:
        """Whether the log has no file: nothing was ever appended, or all files were removed."""
        return len(self._segments) == 0

    # ---- append

    def append(self, group: RecordGroup, times: PutTimes | None = None) -> AppendResult:
        """Store a group: give its records their offsets and time, and put its bytes at the end of the log, all or
        nothing.

        Fills ``queue_offsets``, ``physical_offsets`` and ``store_timestamp`` of the group, and ``times`` also when it
        raises. Raises ``GroupTooLarge``, ``PageCacheBusy``, ``StoreClosed``, ``StoreFenced``, ``CommitFailing``,
        ``SegmentNotReady``, StoreFull, StoreReadOnly, DiskError, and MessageIllegal when a record's sysFlag names
        another family of hosts than the store's; nothing is stored then.
        """
        size_bytes = len(group.buffer)
        if len(group.starts) == 0 or size_bytes > self.group_bytes_max:
            raise GroupTooLarge(
                "group refused",
                why=f"{len(group.starts)} records, {size_bytes} bytes; at most {self.group_bytes_max}",
                hint="split it",
            )
        assert group.starts.item(-1) + group.sizes.item(-1) == size_bytes, "a group's records fill its buffer"
        if times is None:
            times = PutTimes()
        asked_ns = self._monotonic_ns()
        since_ns = 0
        try:
            with self.lock:
                since_ns = self.lock.held_since_ns
                firsts, split, pieces = self._append_locked(group)
                end = self.appended_offset
        finally:
            now_ns = self._monotonic_ns()
            times.lock_wait_ns = (since_ns or now_ns) - asked_ns
            if since_ns:
                times.append_ns = now_ns - since_ns
                if times.append_ns > LONG_HOLD_NS:
                    self.tell_long_hold(times.append_ns, times.lock_wait_ns, len(group.starts), size_bytes)
        self._tell_appended(pieces, end)
        physical_offsets = group.physical_offsets
        assert physical_offsets is not None
        return AppendResult(
            PutStatus.PUT_OK,
            end,
            group.store_timestamp,
            firsts,
            _runs(group, physical_offsets, split),
            lock_wait_ns=times.lock_wait_ns,
            append_ns=times.append_ns,
        )

    def _append_locked(self, group: RecordGroup) -> tuple[list[int], int, list[tuple[int, Bytes]]]:
        """Store the group; return the first queue offset of each section, the number of records before a roll-over to
        the next segment (0: none), and (offset, bytes) of the stored pieces.
        """
        if not self._is_open:
            raise StoreClosed("append refused", why="the store is not open", hint="ask another broker")
        if self.fenced_by is not None:
            raise self._fence_error()
        if self.commit_failed_by is not None:
            raise self._commit_error()
        if self.before_wide is not None:
            self.before_wide()
        size_bytes = len(group.buffer)
        start = self.appended_offset
        writer = self.writer
        segment, following, split, head_bytes = writer.place(group, start)
        queue_offsets, firsts, moved = self.queue_offsets.assign(group)
        physical_offsets = group.starts + start
        end = start + size_bytes
        if following is not None:
            gap_bytes = segment.end_offset - start - head_bytes
            physical_offsets[split:] += gap_bytes
            end += gap_bytes
        store_timestamp = max(self._clock.now_ms(), self.last_store_timestamp)
        patch(group, queue_offsets, physical_offsets, store_timestamp, self.store_host)
        if following is None:
            pieces = [(start, group.buffer)]
            writer.store(segment, start, group.buffer)
            is_buffered = segment.is_buffered
        else:
            committed = self.committed_offset
            pieces = writer.store_split(segment, following, start, group.buffer, head_bytes, committed)
            is_buffered = segment.is_buffered or following.is_buffered
        group.queue_offsets = queue_offsets
        group.physical_offsets = physical_offsets
        group.store_timestamp = store_timestamp
        self.queue_offsets.move(moved)
        self.last_store_timestamp = store_timestamp
        self.last_group_offset = pieces[-1][0]
        self.advance(end, is_buffered)
        if self.on_appended is not None:
            self.on_appended(group)
        return firsts, split, pieces

    def append_raw(self, offset: int, data: Bytes, end_offset: int, store_timestamp: int) -> None:
        """Store ``data`` unchanged at ``offset``, which must be the log's end, and continue at ``end_offset``.

        Whole records within one segment, or its blank end; zeros of the blank after ``data`` are not written.
        ``store_timestamp``: the newest among the records, 0 for a blank. Followers get no columns: announce the bytes
        to the dispatcher. Raises as ``append`` does, and then nothing was stored.
        """
        with self.lock:
            if not self._is_open:
                raise StoreClosed("append refused", why="the store is not open", hint="it is closing or starting")
            if self.fenced_by is not None:
                raise self._fence_error()
            assert offset == self.appended_offset
            segment = self.writer.segment_at(offset)
            self.writer.store(segment, offset, data)
            if store_timestamp:
                self.last_store_timestamp = max(store_timestamp, self.last_store_timestamp)
                self.last_group_offset = offset
            self.advance(end_offset, segment.is_buffered)
            if end_offset == segment.end_offset:
                self.writer.active = None  # it is full, and the next flush seals it
        self._tell_appended([(offset, data)] if store_timestamp else [], end_offset)

    def _tell_appended(self, pieces: Sequence[tuple[int, Bytes | memoryview | bytes]], end: int) -> None:
        """Record the checksums of the appended pieces, notify the followers of the watermarks."""
        if self._checksums is not None:
            note = self._checksums if self._held is None or self.committed_offset >= end else self._held
            for offset, data in pieces:
                note.add(offset, len(data), crc32(data))
        if self.committed_offset >= end:
            for callback in self.on_committed:
                callback()
        elif self.on_buffered is not None:
            self.on_buffered()

    def note_checksum(self, start: int, size_bytes: int, crc: int) -> None:
        """Record the checksum of short appends that lie back to back within one segment."""
        if self._checksums is not None:
            committed = self._held is None or self.committed_offset >= start + size_bytes
            (self._checksums if committed else self._held).add(start, size_bytes, crc)  # type: ignore[union-attr]

    @property
    def is_refusing(self) -> bool:
        """Whether every append is refused now: the log is closed, fenced, or its buffers cannot be written."""
        return not self._is_open or self.fenced_by is not None or self.commit_failed_by is not None

    def start_at(self, offset: int) -> None:
        """Begin a log without bytes at ``offset``, a segment's first byte. Raises ``StoreError``."""
        assert offset % self.segment_bytes == 0
        with self._flush_lock, self.lock.patient:
            assert self.has_no_segment or self.appended_offset == self.min_offset, "only an empty log may move"
            self.writer.start_at(offset)
            self.appended_offset = self.committed_offset = self.flushed_offset = self.last_group_offset = offset

    def tell_long_hold(self, held_ns: int, waited_ns: int, records: int, size_bytes: int) -> None:
        """Log an append that held the lock for more than ``LONG_HOLD_NS``."""
        self._log.warning(
            "[NOTIFYME]putMessage in lock cost time(ms)",
            lock_held_ms=held_ns // 1_000_000,
            lock_wait_ms=waited_ns // 1_000_000,
            records=records,
            size_bytes=size_bytes,
        )

    def advance(self, end: int, is_buffered: bool) -> None:
        """Move the appended watermark and, unless some bytes are in a write buffer, the committed one. Under the append
        lock."""
        before = self.appended_offset
        assert end > before
        assert self.flushed_offset <= self.committed_offset <= before
        self.appended_offset = end
        if self._pool is None:
            self.committed_offset = end
        elif not is_buffered and self.committed_offset == before:
            self._advance_committed(end, self.last_store_timestamp)
        writer = self.writer
        active = writer.active
        assert active is not None
        if before < active.base_offset + writer.prepare_at_bytes <= end:
            writer.prepare_next()

    def forget_queues(self, topic: str, remove: Callable[[int], None]) -> None:
        """Restart the queues of a deleted topic; ``remove(end_offset)`` removes its consume queues while appends are
        blocked.
        """
        with self.lock.patient:
            self.gate.changed()
            remove(self.appended_offset)
            self.queue_offsets.forget(topic)
            self.gate.changed()  # a check made meanwhile may have found a queue that has gone

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next record of a queue gets."""
        return self.queue_offsets.next(topic, queue_id)

    # ---- commit

    def commit(self) -> int:
        """Write appended bytes from the write buffers to the files, make them readable; return the committed offset.

        One commit runs at a time, others wait for it. Raises ``StoreError``: unwritten bytes stay in their buffer and
        are not committed; appends are refused with ``CommitFailing`` until a later commit succeeds.
        """
        if self.committed_offset == self.appended_offset:
            return self.committed_offset
        before = self.committed_offset
        try:
            with self._commit_lock:
                store_timestamp = self.last_store_timestamp
                end = self.appended_offset
                while self.committed_offset < end:
                    self._commit_one(end, store_timestamp)
                if self.commit_failed_by is not None:
                    self.commit_failed_by = None
                    self.gate.changed()
                    self._log.info("commit_works_again", committed_offset=end)
        finally:
            committed = self.committed_offset
            if committed > before:
                if self._held is not None:
                    self._held.release(committed)
                for callback in self.on_committed:
                    callback()
        return committed

    def _commit_one(self, end: int, store_timestamp: int) -> None:
        """Commit up to ``end`` or the end of the first segment involved, whose buffer is then free."""
        start = self.committed_offset
        segment = self._segments.find(start)
        assert segment is not None
        end = min(end, segment.end_offset)
        try:
            segment.commit(start - segment.base_offset, end - segment.base_offset)
        except StoreError as error:
            if self.commit_failed_by is None:
                self._error_log.error(
                    "commit_failed", error=str(error), committed_offset=start, appended_offset=self.appended_offset
                )
            self.commit_failed_by = error
            self.gate.changed()
            raise
        self._advance_committed(end, store_timestamp)
        if self._pool is not None:
            self._pool.committed(end)
            segment.release(end - segment.base_offset)

    def _advance_committed(self, end: int, store_timestamp: int) -> None:
        """Move the committed watermark forward. Called by the commit and by appends that bypass the buffers."""
        with self._watermark_lock:
            if end > self.committed_offset:
                assert self.flushed_offset <= self.committed_offset
                assert end <= self.appended_offset
                self._committed_timestamp = store_timestamp
                self.committed_offset = end

    def _commit_error(self) -> CommitFailing:
        assert self.commit_failed_by is not None
        return CommitFailing(
            "service not available",
            why=f"the write buffers cannot be written to the log: {self.commit_failed_by}",
            hint="the broker tries again; acknowledged messages wait in memory",
            cause=self.commit_failed_by.cause,
        )

    @property
    def committed_store_timestamp(self) -> int:
        """A store time in ms: no committed record is later, except within the ms of an append under way."""
        return self.last_store_timestamp if self._pool is None else self._committed_timestamp

    # ---- flush

    def flush(self) -> int:
        """Make everything committed durable; return the flushed offset. One flush runs at a time, others wait for it.

        Raises ``StoreFenced``: a sync failed, now or earlier. The log then takes no appends until it is opened again,
        because the system may have dropped the pages it could not write, and a later sync would not notice.
        """
        with self._flush_lock:
            if self.fenced_by is not None:
                raise self._fence_error()
            start, end = self.flushed_offset, self.committed_offset
            if start == end:
                return end
            self.flush_began_ns = begin_ns = self._clock.monotonic_ns()
            try:
                names_unsynced, self.writer.names_unsynced = self.writer.names_unsynced, False
                parts = self._segments.between(start, end)
                for segment in parts:
                    segment.sync()
                if names_unsynced:
                    self._file_system.sync_dir(self._segments.directory)
            except (StoreError, FileNotFoundError) as error:
                failed = error if isinstance(error, StoreError) else translated(error, "sync failed", "the log")
                self._fence(failed)
                raise self._fence_error() from error
            finally:
                self.flush_began_ns = 0
            self._advance_flushed(end)
            for segment in parts:
                if segment.end_offset <= end:
                    segment.seal()
            self.last_flush_ns = self._clock.monotonic_ns() - begin_ns
            self.flush_ns_total += self.last_flush_ns
            self.flush_count += 1
            return end

    def _advance_flushed(self, end: int) -> None:
        assert self.flushed_offset <= end <= self.committed_offset
        assert self.committed_offset <= self.appended_offset
        assert self.fenced_by is None
        self.flushed_offset = end

    def fence(self, error: StoreError) -> None:
        """Accept nothing more because of ``error``: another sync of the store has failed, or will never be tried.
        Unflushed bytes are never acknowledged. Waits for a flush under way.
        """
        with self._flush_lock:
            self._fence(error)

    def _fence(self, error: StoreError) -> None:
        if self.fenced_by is None:
            self.fenced_by = error
            self.gate.changed()
            self._error_log.error(
                "log_fenced",
                error=str(error),
                flushed_offset=self.flushed_offset,
                committed_offset=self.committed_offset,
                what_to_do=_fence_hint(error) + "; until then sends are refused and reads continue",
            )

    @property
    def active_path(self) -> str:
        """The file of the next append, if it exists already."""
        active = self.writer.active
        return "" if active is None else active.path

    @property
    def fence_error(self) -> StoreFenced | None:
        """Why nothing is accepted; None while no sync has failed."""
        return None if self.fenced_by is None else self._fence_error()

    def _fence_error(self) -> StoreFenced:
        assert self.fenced_by is not None
        if isinstance(self.fenced_by, StoreReplaced):
            return StoreFenced("service not available", why=self.fenced_by.why, hint=self.fenced_by.hint)
        return StoreFenced(
            "service not available",
            why=f"a sync failed: {self.fenced_by}",
            hint="repair the disk and restart the broker; reads continue",
        )

    # ---- reads

    def read_into(self, offset: int, out: Bytes) -> None:
        """Fill ``out`` with committed bytes from ``offset``. Raises ``OffsetOutOfRange``, DiskError."""
        end = offset + out.size
        if end > self.committed_offset:
            raise OffsetOutOfRange(
                "read refused", why=f"[{offset}, {end}) is beyond the committed end {self.committed_offset}"
            )
        done = 0
        while done < out.size:
            segment = self._segments.find(offset + done)
            if segment is None:
                raise self._removed(offset + done)
            position = offset + done - segment.base_offset
            part = min(out.size - done, self.segment_bytes - position)
            try:
                if not segment.is_open:
                    self._segments.for_read(segment)
                segment.read_into(position, out[done : done + part])
            except FileNotFoundError as error:
                if self._segments.find(offset + done) is not segment:  # retention has removed it
                    raise self._removed(offset + done) from error
                raise translated(error, "a segment is gone", segment.path) from error
            done += part

    def _removed(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange("read refused", why=f"offset {offset} is below the log's start {self.min_offset}")

    def read(self, offset: int, length: int) -> Bytes:
        """Return committed bytes in private memory."""
        out = np.empty(length, np.uint8)
        self.read_into(offset, out)
        return out

    def walk(self, from_offset: int, to_offset: int) -> Iterator[RecordGroup]:
        """Yield the records between two boundaries as groups of about 1 MiB; see ``LogReader.groups``."""
        return self._reader.groups(max(from_offset, self.min_offset), to_offset)


def _runs(group: RecordGroup, physical_offsets: Int64s, split: int) -> list[list[tuple[int, int]]]:
    """Return the (first physical offset, records) of each section; one across the roll-over at ``split`` has two."""
    runs: list[list[tuple[int, int]]] = []
    for section in group.sections:
        first, end = section.first, section.first + section.count
        if first < split < end:
            runs.append([(physical_offsets.item(first), split - first), (physical_offsets.item(split), end - split)])
        else:
            runs.append([(physical_offsets.item(first), section.count)])
    return runs


def _fence_hint(error: StoreError) -> str:
    if isinstance(error, StoreReplaced):
        return error.hint
    return "repair the disk, then restart the broker"

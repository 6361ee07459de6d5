"""The commit log: groups of records, appended under one lock, read by offset.

Lives here: ``CommitLog``: offsets and times of records, roll-over to the next segment, the three watermarks, flush and
fence.
Not here: segments (``segment``, ``segment_queue``, ``allocate``), when to flush (``flush``), who waits for it
(``group_commit``), how a crash is repaired (``recovery``), consume queues.
"""

import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock
from pocketmq.common.crc import crc32
from pocketmq.common.events import EventLog
from pocketmq.common.record import BLANK_BYTES_MIN, MAGIC_BLANK
from pocketmq.common.record_columns import patch
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.allocate import SegmentAllocator
from pocketmq.store.append_lock import AppendLock
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.checksums import ChecksumLog
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import GroupTooLarge, OffsetOutOfRange, StoreClosed, StoreError, StoreFenced, translated
from pocketmq.store.file_system import FileSystem
from pocketmq.store.log_reader import DamagedRange, LogReader
from pocketmq.store.segment import Segment
from pocketmq.store.segment_queue import SegmentQueue

PREPARE_AT_FRACTION: Final = 8
"""The next segment is prepared when 1/8 of the present one is used: a small store reserves one segment, not two."""
_BLANK: Final = struct.Struct(">II")

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]
NextOffset = Callable[[str, int], int]


class CommitLog:
    """One append-only log, cut into segments of ``segment_bytes``.

    Offsets are absolute bytes, never reused. Holds: ``min_offset <= flushed_offset <= committed_offset <=
    appended_offset``. After ``append`` a record has its offset; once committed it is readable; once flushed it survives
    power loss. Without a write-buffer pool an append commits at once. ``append``, reads and ``flush`` are thread-safe.
    The watermarks are plain attributes: reading one never blocks.
    """

    def __init__(
        self,
        config: StoreConfig,
        file_system: FileSystem,
        clock: Clock,
        segments: SegmentQueue,
        allocator: SegmentAllocator,
        checksums: ChecksumLog | None,
        next_offset: NextOffset,
        log: EventLog,
    ) -> None:
        """``next_offset(topic, queue_id)`` gives the queue offset that comes next in a queue not appended to so far."""
        self.segment_bytes = config.mapped_file_size_commit_log
        self.group_bytes_max = config.group_bytes_max
        self.store_host = bytes(8)
        self.on_appended: Callable[[RecordGroup], None] | None = None
        """Called under the append lock, in log order, with every group (offsets filled). Must be quick and never raise.
        """
        self.on_committed: list[Callable[[], None]] = []
        """Called outside the lock after the committed offset moved."""
        self.damaged: list[DamagedRange] = []
        self.lock = AppendLock(clock)
        self.appended_offset = 0
        self.committed_offset = 0
        self.flushed_offset = 0
        self.last_store_timestamp = 0
        self.last_group_offset = 0
        self.appended_records = 0
        self.appended_bytes = 0
        self.appended_groups = 0
        self.flush_count = 0
        self.last_flush_ns = 0
        self.flush_ns_total = 0
        self.fenced_by: StoreError | None = None
        self._mapped = config.append_mode == "mapped"
        self._record_bytes_max = config.record_bytes_max
        self._file_system = file_system
        self._clock = clock
        self._segments = segments
        self._allocator = allocator
        self._checksums = checksums
        self._next_offset = next_offset
        self._log = log
        self._queue_offsets: dict[tuple[str, int], int] = {}
        self._active: Segment | None = None
        self._unclean: list[tuple[Segment, int, int]] = []
        self._flush_lock = threading.Lock()
        self._names_unsynced = False
        self._is_open = False
        self._reader = LogReader(self.read_into, self.segment_bytes, self._record_bytes_max, self.damaged)

    # ---- life

    def open_at(self, end_offset: int, last_store_timestamp: int, last_group_offset: int) -> None:
        """Continue behind ``end_offset``, the end of what recovery found good and durable."""
        assert self._segments.first_offset <= end_offset <= max(self._segments.end_offset, 0)
        self.appended_offset = self.committed_offset = self.flushed_offset = end_offset
        self.last_store_timestamp = last_store_timestamp
        self.last_group_offset = last_group_offset
        self._names_unsynced = True
        active = self._segments.find(end_offset)
        if active is not None:
            active.open(self._mapped)
        self._active = active
        if active is None:
            self._allocator.request(end_offset)
        elif end_offset - active.base_offset >= self.segment_bytes // PREPARE_AT_FRACTION:
            self._allocator.request(active.end_offset)

    def accept(self) -> None:
        """Take appends from here on."""
        self._is_open = True

    def refuse(self) -> None:
        """Take no appends any more; returns when none is under way."""
        with self.lock:
            self._is_open = False

    def close(self) -> None:
        """Give the files back. Flush first."""
        self.refuse()
        self._active = None
        self._segments.close()

    @property
    def min_offset(self) -> int:
        """First offset the log still has."""
        return self._segments.first_offset

    # ---- append

    def append(self, group: RecordGroup) -> AppendResult:
        """Store a group: give its records their offsets and time, and put its bytes at the end of the log, all or
        nothing.

        Fills ``queue_offsets``, ``physical_offsets`` and ``store_timestamp`` of the group. Raises ``GroupTooLarge``,
        ``StoreClosed``, ``StoreFenced``, ``SegmentNotReady``, StoreFull, StoreReadOnly, DiskError, and MessageIllegal
        when a record's sysFlag names another family of hosts than the store's; nothing is stored then.
        """
        size_bytes = len(group.buffer)
        count = len(group.starts)
        if count == 0 or size_bytes > self.group_bytes_max:
            raise GroupTooLarge(
                "group refused",
                why=f"{count} records, {size_bytes} bytes; at most {self.group_bytes_max}",
                hint="split it",
            )
        assert group.starts.item(-1) + group.sizes.item(-1) == size_bytes, "a group's records fill its buffer"
        with self.lock:
            if not self._is_open:
                raise StoreClosed("append refused", why="the store is not open", hint="ask another broker")
            if self.fenced_by is not None:
                raise self._fence_error()
            start = self.appended_offset
            segment = self._active or self._take_segment(start)
            if self._unclean:
                self._clean_up()
            queue_offsets, firsts, moved = self._assign(group)
            split = 0  # records of the group that go into the present segment; all when 0
            left = segment.end_offset - start
            if size_bytes + BLANK_BYTES_MIN > left:
                split, head_bytes = self._split(group, left)
                following = self._segments.find(segment.end_offset) or self._take_segment(segment.end_offset)
                physical_offsets = group.starts + start
                physical_offsets[split:] += left - head_bytes
                end = segment.end_offset + size_bytes - head_bytes
            else:
                physical_offsets = group.starts + start
                end = start + size_bytes
            store_timestamp = max(self._clock.now_ms(), self.last_store_timestamp)
            patch(group, queue_offsets, physical_offsets, store_timestamp, self.store_host)
            if size_bytes + BLANK_BYTES_MIN > left:
                pieces = self._store_split(segment, following, start, group.buffer, head_bytes)
            else:
                self._store(segment, start, group.buffer)
                pieces = [(start, group.buffer)]
            group.queue_offsets = queue_offsets
            group.physical_offsets = physical_offsets
            group.store_timestamp = store_timestamp
            self._queue_offsets.update(moved)
            self.last_store_timestamp = store_timestamp
            self.last_group_offset = pieces[-1][0]
            self.appended_records += count
            self.appended_bytes += size_bytes
            self.appended_groups += 1
            self._advance(end)
            if self.on_appended is not None:
                self.on_appended(group)
        if self._checksums is not None:
            for offset, data in pieces:
                self._checksums.add(offset, len(data), crc32(data.data))
        for callback in self.on_committed:
            callback()
        return AppendResult(PutStatus.PUT_OK, end, store_timestamp, firsts, _runs(group, physical_offsets, split))

    def _assign(self, group: RecordGroup) -> tuple[Int64s, list[int], dict[tuple[str, int], int]]:
        """Return the queue offset of each record, the first of each section, and the queues' next offsets.

        A record that enters no queue has offset 0 and moves nothing (RocketMQ CommitLog: PREPARED and ROLLBACK).
        """
        moved: dict[tuple[str, int], int] = {}
        known = self._queue_offsets
        sections = group.sections
        in_queue = group.in_queue
        firsts: list[int] = []
        offsets: Int64s
        if len(sections) > 1 or in_queue is not None:
            offsets = np.arange(len(group.starts), dtype=np.int64)
        for section in sections:
            key = (section.topic, section.queue_id)
            next_offset = moved.get(key)
            if next_offset is None:
                next_offset = known.get(key)
                if next_offset is None:
                    next_offset = self._next_offset(section.topic, section.queue_id)
            count = section.count
            if in_queue is None:
                firsts.append(next_offset)
                moved[key] = next_offset + count
                if len(sections) == 1:
                    return np.arange(next_offset, next_offset + count), firsts, moved
                offsets[section.first : section.first + count] += next_offset - section.first
            else:
                rows = slice(section.first, section.first + count)
                counted = in_queue[rows]
                offsets[rows] = np.where(counted, np.cumsum(counted) - 1 + next_offset, 0)
                firsts.append(int(offsets[section.first]))
                moved[key] = next_offset + int(np.count_nonzero(counted))
        return offsets, firsts, moved

    def _split(self, group: RecordGroup, left: int) -> tuple[int, int]:
        """Return how many records, and bytes, still fit before a blank end of at least 8 bytes."""
        ends = group.starts + group.sizes
        split = int(np.searchsorted(ends, left - BLANK_BYTES_MIN, side="right"))
        return split, int(ends[split - 1]) if split else 0

    def _store(self, segment: Segment, start: int, *parts: Bytes) -> None:
        """Store ``parts`` back to back; after an error nothing of them stays."""
        position = at = start - segment.base_offset
        try:
            for part in parts:
                segment.store(at, part)
                at += len(part)
        except StoreError:
            self._leave_nothing(segment, position, sum(map(len, parts)))
            raise

    def _store_split(
        self, segment: Segment, following: Segment, start: int, buffer: Bytes, head_bytes: int
    ) -> list[tuple[int, Bytes]]:
        """Store the head with the blank end behind it, then the tail; return (offset, bytes) of the pieces in log
        order.
        """
        left = segment.end_offset - start
        blank = np.frombuffer(_BLANK.pack(left - head_bytes, MAGIC_BLANK), np.uint8)
        head, tail = buffer[:head_bytes], buffer[head_bytes:]
        self._store(segment, start, head, blank)
        try:
            self._store(following, following.base_offset, tail)
        except StoreError:
            self._leave_nothing(segment, start - segment.base_offset, head_bytes + BLANK_BYTES_MIN)
            raise
        self._active = following
        pieces = [(following.base_offset, tail)]
        return [(start, head), *pieces] if head_bytes else pieces

    def _leave_nothing(self, segment: Segment, position: int, length: int) -> None:
        """Zero what a failed write may have left behind the end: parts of it could come back to life after a crash."""
        self._unclean.append((segment, position, length))
        try:
            self._clean_up()
        except StoreError as error:  # the disk is still sick; the next append tries again before it stores
            self._log.error("failed_append_not_zeroed", position=position, length=length, error=str(error))

    def _clean_up(self) -> None:
        while self._unclean:
            segment, position, length = self._unclean[-1]
            segment.zero(position, length)
            self._unclean.pop()

    def _take_segment(self, base_offset: int) -> Segment:
        segment = self._allocator.take(base_offset)
        self._segments.add(segment)
        self._names_unsynced = True
        if self._active is None:
            self._active = segment
        return segment

    def _advance(self, end: int) -> None:
        """Move the appended and, without a write-buffer pool, the committed watermark."""
        assert end > self.appended_offset
        assert self.flushed_offset <= self.committed_offset <= self.appended_offset
        before = self.appended_offset
        self.appended_offset = end
        self.committed_offset = end
        active = self._active
        assert active is not None
        if before < active.base_offset + self.segment_bytes // PREPARE_AT_FRACTION <= end:
            self._allocator.request(active.end_offset)

    def forget_queues(self, topic: str, remove: Callable[[int], None]) -> None:
        """Start the queues of a deleted topic anew; ``remove(end_offset)`` takes away its consume queues while nothing
        can be appended.
        """
        with self.lock:
            remove(self.appended_offset)
            for key in [key for key in self._queue_offsets if key[0] == topic]:
                del self._queue_offsets[key]

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next record of a queue gets."""
        known = self._queue_offsets.get((topic, queue_id))
        return self._next_offset(topic, queue_id) if known is None else known

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
            begin_ns = self._clock.monotonic_ns()
            try:
                names_unsynced, self._names_unsynced = self._names_unsynced, False
                parts = self._segments.between(start, end)
                for segment in parts:
                    segment.sync()
                if names_unsynced:
                    self._file_system.sync_dir(self._segments.directory)
            except (StoreError, FileNotFoundError) as error:
                failed = error if isinstance(error, StoreError) else translated(error, "sync failed", "the log")
                self.fence(failed)
                raise self._fence_error() from error
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
        """Accept nothing more, because of ``error``. What was not flushed is never acknowledged."""
        if self.fenced_by is None:
            self.fenced_by = error
            self._log.error(
                "log_fenced",
                error=str(error),
                flushed_offset=self.flushed_offset,
                committed_offset=self.committed_offset,
            )

    def _fence_error(self) -> StoreFenced:
        assert self.fenced_by is not None
        return StoreFenced(
            "service not available",
            why=f"a sync of the log failed: {self.fenced_by}",
            hint="repair the disk and restart the broker; reads go on",
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
                raise OffsetOutOfRange(
                    "read refused", why=f"offset {offset + done} is below the log's start {self.min_offset}"
                )
            if not segment.is_open:
                self._segments.for_read(segment)
            position = offset + done - segment.base_offset
            part = min(out.size - done, self.segment_bytes - position)
            segment.read_into(position, out[done : done + part])
            done += part

    def read(self, offset: int, length: int) -> Bytes:
        """Return committed bytes in private memory."""
        out = np.empty(length, np.uint8)
        self.read_into(offset, out)
        return out

    def read_ranges(self, offsets: Int64s, lengths: Int64s, out: Bytes) -> None:
        """Fill ``out`` with ranges, one behind the other."""
        at = 0
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
            self.read_into(offset, out[at : at + length])
            at += length
        assert at == out.size

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

"""Writes the bytes of a group into the segments of the log.

Lives here: ``LogWriter``: the choice of the segment, roll-over with its blank end, clean-up after a failed write.
"""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.events import EventLog
from pocketmq.common.record import BLANK_BYTES_MIN, MAGIC_BLANK
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.commitlog.allocate import SegmentAllocator
from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.commitlog.windows import NoWindow, Windows
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import NoWriteBuffer, StoreError

PREPARE_AT_FRACTION: Final = 8
"""The next segment is prepared when 1/8 of the present one is used: a small store reserves one segment, not two."""
_BLANK: Final = struct.Struct(">II")

Bytes = NDArray[np.uint8]


class LogWriter:
    """Stores groups at the end of the log. Its owner calls it under the append lock, one call at a time.

    ``active``: the segment that holds the end of the log, open; None while there is none.
    ``names_unsynced``: a segment was added since the owner last synced the directory and reset this flag.
    ``unclean``: ranges beyond the end that a failed append has left, to be zeroed before anything else is stored.
    """

    def __init__(
        self,
        segments: SegmentQueue,
        allocator: SegmentAllocator,
        config: StoreConfig,
        error_log: EventLog,
        pool: WriteBufferPool | None = None,
    ) -> None:
        """``pool``: if it survives the process, the segment at which ``open_at`` continues takes its buffers, too."""
        self.active: Segment | None = None
        self.names_unsynced = False
        self._segments = segments
        self._allocator = allocator
        self._mapped = config.is_mapped
        self._buffer_or_nothing = config.fast_fail_if_no_buffer_in_store_pool
        self._pool = pool
        self._error_log = error_log
        self.unclean: list[tuple[Segment, int, int]] = []
        self.prepare_at_bytes = segments.segment_bytes // PREPARE_AT_FRACTION

    def open_at(self, end_offset: int) -> None:
        """Continue at ``end_offset``."""
        self.names_unsynced = True
        active = self._segments.find(end_offset)
        if active is not None:
            active.open(self._mapped, self._windows_at(active, end_offset))
        self.active = active
        if active is None:
            self._allocator.request(end_offset)
        elif end_offset - active.base_offset >= self.prepare_at_bytes:
            self._allocator.request(active.end_offset)

    def _windows_at(self, segment: Segment, offset: int) -> Windows | None:
        """Return buffers for a segment that has data; RocketMQ's kind gives such a segment none."""
        pool = self._pool
        buffer = pool.borrow() if pool is not None and pool.survives else None
        if buffer is None:
            return None
        assert pool is not None
        return Windows(pool, buffer, segment.size_bytes, offset - segment.base_offset)

    def prepare_next(self) -> None:
        """Request the next segment; called when an append has crossed ``prepare_at_bytes`` of the active one."""
        assert self.active is not None
        self._allocator.request(self.active.end_offset)

    def place(self, group: RecordGroup, start: int) -> tuple[Segment, Segment | None, int, int]:
        """Find room for a group at ``start``, the end of the log. Raises the errors of making a segment.

        Returns (segment, None, 0, 0) when all of it goes there, else (segment, the following one, how many of the
        records still go into the first, their bytes).
        """
        segment = self.active or self._take_segment(start)
        if self.unclean:
            self._clean_up()
        left = segment.end_offset - start
        if len(group.buffer) + BLANK_BYTES_MIN <= left:
            return segment, None, 0, 0
        # As many records as fit before a blank end of at least 8 bytes stay in this segment (RocketMQ CommitLog).
        ends = group.starts + group.sizes
        split = int(np.searchsorted(ends, left - BLANK_BYTES_MIN, side="right"))
        following = self._segments.find(segment.end_offset) or self._take_segment(segment.end_offset)
        return segment, following, split, int(ends[split - 1]) if split else 0

    def segment_at(self, start: int) -> Segment:
        """Return the segment, open, for raw bytes at ``start``, the end of the log (``raw_append``). Raises the errors
        of making a segment.
        """
        segment = self.active
        if segment is None or start == segment.end_offset:
            segment = self._segments.find(start) or self._take_segment(start)
            self.active = segment
        if self.unclean:
            self._clean_up()
        return segment

    def start_at(self, offset: int) -> None:
        """Make the first segment of an empty log begin at ``offset``."""
        self.active = None
        self.unclean.clear()
        while len(self._segments):  # never a gap: the next start would refuse it
            self._segments.remove_last()
        self._allocator.discard_ready()
        self._allocator.request(offset)

    def store(self, segment: Segment, start: int, *parts: Bytes) -> None:
        """Store ``parts`` back to back; after an error, which no buffer raises, nothing of them is left."""
        at = start - segment.base_offset
        try:
            for part in parts:
                try:
                    segment.store(at, part)
                except NoWindow:
                    self._store_through(segment, at, part)
                at += len(part)
        except StoreError:
            segment.retreat(start - segment.base_offset)
            self.leave_nothing(segment, start, sum(map(len, parts)))
            raise

    def _store_through(self, segment: Segment, position: int, data: Bytes) -> None:
        """Store in the file itself, because too few buffers are free; first everything that is in buffers, because a
        crash could leave the later bytes without the earlier ones. Raises disk errors and ``NoWriteBuffer``.
        """
        if self._buffer_or_nothing:
            raise NoWriteBuffer(
                "append refused",
                why="all write buffers are in use",
                hint="the commit is behind, or the pool is too small: store.transient_store_pool_size",
            )
        for part in self._segments.all:
            if part.is_buffered:
                part.commit(0, part.size_bytes)
        segment.store_through(position, data)

    def store_split(
        self,
        segment: Segment,
        following: Segment,
        start: int,
        buffer: Bytes,
        head_bytes: int,
        committed_offset: int,
    ) -> list[tuple[int, Bytes]]:
        """Store the head, its blank end and the tail, or nothing; return (offset, bytes) of both in log order.

        When the head goes to a write buffer and the tail does not, the head and all buffered bytes before it are
        written at once, under the append lock: else a crash could leave the tail without them.
        """
        blank = np.frombuffer(_BLANK.pack(segment.end_offset - start - head_bytes, MAGIC_BLANK), np.uint8)
        head, tail = buffer[:head_bytes], buffer[head_bytes:]
        self.store(segment, start, head, blank)
        try:
            if segment.is_buffered and not following.is_buffered:
                for part in self._segments.between(committed_offset, segment.end_offset):
                    part.commit(max(0, committed_offset - part.base_offset), part.size_bytes)
            self.store(following, following.base_offset, tail)
        except StoreError:
            segment.retreat(start - segment.base_offset)
            self.leave_nothing(segment, start, head_bytes + BLANK_BYTES_MIN)
            raise
        self.active = following
        pieces = [(following.base_offset, tail)]
        return [(start, head), *pieces] if head_bytes else pieces

    def leave_nothing(self, segment: Segment, start: int, length: int) -> None:
        """Zero the remains of a failed write beyond the end: after a crash they could be taken for records."""
        position = start - segment.base_offset
        self.unclean.append((segment, position, length))
        try:
            self._clean_up()
        except StoreError as error:  # the disk is still sick; the next append tries again before it stores
            self._error_log.error("failed_append_not_zeroed", position=position, length=length, error=str(error))

    @property
    def leaves_nothing(self) -> bool:
        """Whether no remains of failed appends are left beyond the end; tries once more to zero them. At close."""
        try:
            self._clean_up()
        except StoreError:
            return False
        return True

    def _clean_up(self) -> None:
        while self.unclean:
            segment, position, length = self.unclean[-1]
            segment.zero(position, length)
            self.unclean.pop()

    def _take_segment(self, base_offset: int) -> Segment:
        segment = self._allocator.take(base_offset)
        self._segments.add(segment)
        self.names_unsynced = True
        if self.active is None:
            self.active = segment
        return segment

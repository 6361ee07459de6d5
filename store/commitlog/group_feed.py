"""Passes appended groups to the followers of the log: as columns in memory, or read again from the log.

Lives here: the columns that a follower needs of one appended group, the bounded queue of them, and the filling of its
holes from the log. The dispatcher and the key index each own one feed.

Nothing is lost when the queue is full: the group is dropped, its follower finds a hole between its own position and the
next group, and reads those bytes from the log. A group read from the log has the same columns as the dropped one.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record_group import GroupSection, RecordGroup

FEED_GROUPS_MAX = 4096
FEED_BYTES_MAX = 64 << 20
_ROW_BYTES = 8 * 4 + 32 + 8  # four int64 columns, a unique key, flags
_GROUP_BYTES = 512  # objects and array headers


class LogSource(Protocol):
    """The reads of a log that its followers need; ``CommitLog`` is one."""

    @property
    def min_offset(self) -> int:
        """First physical offset that still exists."""
        ...

    @property
    def committed_offset(self) -> int:
        """End of the bytes that may be read."""
        ...

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` with the bytes at ``offset``."""
        ...

    def walk(self, from_offset: int, to_offset: int) -> Iterator[RecordGroup]:
        """Yield the whole records between two offsets, in order, as groups."""
        ...


class LogColumns:
    """The columns of one group of records in the log, without the records, for dispatch and index.

    Arrays have one row per record, in log order. ``store_timestamps`` is None when all rows have ``store_timestamp``
    (ms). ``start`` and ``end`` are physical offsets in bytes; ``cost_bytes`` is the memory that this object keeps in
    use.
    """

    __slots__ = (
        "cost_bytes",
        "count",
        "end",
        "in_queue",
        "indexed",
        "keys",
        "other_uniq_keys",
        "physical_offsets",
        "queue_offsets",
        "sections",
        "sizes",
        "start",
        "store_timestamp",
        "store_timestamps",
        "tags_codes",
        "uniq_keys",
    )

    def __init__(self, group: RecordGroup) -> None:
        """Take the columns of a group whose offsets and store time are known: appended, or read from the log."""
        physical_offsets = group.physical_offsets
        queue_offsets = group.queue_offsets
        assert physical_offsets is not None
        assert queue_offsets is not None
        self.physical_offsets: NDArray[np.int64] = physical_offsets
        self.queue_offsets: NDArray[np.int64] = queue_offsets
        self.sizes: NDArray[np.int64] = group.sizes
        self.tags_codes: NDArray[np.int64] = group.tags_codes
        self.sections: Sequence[GroupSection] = group.sections
        self.uniq_keys: NDArray[np.uint8] | None = group.uniq_keys
        self.keys: Sequence[bytes | None] | None = group.keys
        self.indexed: NDArray[np.bool_] | None = group.indexed
        self.in_queue: NDArray[np.bool_] | None = group.in_queue
        self.other_uniq_keys: dict[int, bytes] = group.other_uniq_keys
        self.store_timestamp: int = group.store_timestamp
        self.store_timestamps: NDArray[np.int64] | None = group.store_timestamps
        count = len(physical_offsets)
        self.count = count
        self.start: int = int(physical_offsets[0])
        self.end: int = int(physical_offsets[-1]) + int(self.sizes[-1])
        self.cost_bytes = _GROUP_BYTES + count * _ROW_BYTES
        if self.keys is not None or self.other_uniq_keys:
            self.cost_bytes += group.buffer.nbytes  # keys are at most as long as the records that hold them

    @classmethod
    def of_rows(
        cls,
        sections: Sequence[GroupSection],
        *,
        physical_offsets: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
        sizes: NDArray[np.int64],
        tags_codes: NDArray[np.int64],
        store_timestamps: NDArray[np.int64],
        uniq_keys: NDArray[np.uint8] | None,
        other_uniq_keys: dict[int, bytes],
    ) -> "LogColumns":
        """Return the columns of plain records, back to back in the log, that were appended one by one."""
        columns = cls.__new__(cls)
        columns.physical_offsets = physical_offsets
        columns.queue_offsets = queue_offsets
        columns.sizes = sizes
        columns.tags_codes = tags_codes
        columns.sections = sections
        columns.uniq_keys = uniq_keys
        columns.keys = columns.indexed = columns.in_queue = None
        columns.other_uniq_keys = other_uniq_keys
        columns.store_timestamp = int(store_timestamps[-1])
        columns.store_timestamps = store_timestamps
        columns.count = len(physical_offsets)
        columns.start = int(physical_offsets[0])
        columns.end = int(physical_offsets[-1]) + int(sizes[-1])
        columns.cost_bytes = _GROUP_BYTES + columns.count * _ROW_BYTES + sum(map(len, other_uniq_keys.values()))
        return columns

    def timestamps(self) -> NDArray[np.int64]:
        """Return the store time of each row in ms."""
        if self.store_timestamps is None:
            return np.full(self.count, self.store_timestamp, np.int64)
        return self.store_timestamps


class GroupFeed:
    """A bounded queue of ``LogColumns`` in log order, whose holes are filled from the log.

    One thread takes; any thread offers, in log order. ``offer`` is O(1) and does no I/O; ``take`` may read the log.
    Holds: at most ``groups_max`` groups and ``bytes_max`` bytes of columns.
    """

    def __init__(
        self,
        log_source: LogSource,
        *,
        groups_max: int = FEED_GROUPS_MAX,
        bytes_max: int = FEED_BYTES_MAX,
        on_damage: Callable[[int, int, CorruptRecord], None] | None = None,
    ) -> None:
        self.groups_max = groups_max
        self.bytes_max = bytes_max
        self.dropped_groups = 0
        self.reread_groups = 0
        self._log_source = log_source
        self._on_damage = on_damage
        self._lock = threading.Lock()
        self._groups: deque[LogColumns] = deque()
        self._bytes = 0
        self._records = 0
        self._known_end = 0

    @property
    def records(self) -> int:
        """Rows waiting in memory."""
        return self._records

    @property
    def known_end(self) -> int:
        """End of everything offered or announced so far, as a physical offset."""
        return self._known_end

    def announce(self, end_offset: int) -> None:
        """Announce that the log holds records up to ``end_offset`` whose columns will not be offered: they are read
        from the log.
        """
        with self._lock:
            self._known_end = max(self._known_end, end_offset)

    def offer(self, columns: LogColumns) -> bool:
        """Queue the columns of the next group; return False if there is no room (they are then read from the log)."""
        with self._lock:
            self._known_end = max(self._known_end, columns.end)
            cost_bytes = self._bytes + columns.cost_bytes
            if len(self._groups) >= self.groups_max or cost_bytes > self.bytes_max:
                self.dropped_groups += 1
                return False
            self._groups.append(columns)
            self._bytes = cost_bytes
            self._records += columns.count
        return True

    def clear(self, known_end: int = 0) -> None:
        """Drop the queued groups, as after a truncation of the log to ``known_end``."""
        with self._lock:
            self._groups.clear()
            self._bytes = self._records = 0
            self._known_end = known_end

    def take(self, next_offset: int, limit_offset: int, records_max: int) -> tuple[list[LogColumns], int]:
        """Return the groups that follow ``next_offset`` and end at or below ``limit_offset``, and the offset after
        them.

        At least one group if there is one; no further group once ``records_max`` rows are reached. Groups that end at
        or below ``next_offset`` are dropped, holes are read from the log. Errors of the log's reads pass through, and
        then nothing was taken.
        """
        taken: list[LogColumns] = []
        records = 0
        while records < records_max:
            with self._lock:
                head = self._groups[0] if self._groups else None
                known_end = self._known_end
                if head is not None and (
                    head.end <= next_offset or (head.start == next_offset and head.end <= limit_offset)
                ):
                    self._groups.popleft()
                    self._bytes -= head.cost_bytes
                    self._records -= head.count
                    if head.end > next_offset:
                        taken.append(head)
                        records += head.count
                        next_offset = head.end
                    continue
            if head is None:
                hole_end = known_end
            elif head.start > next_offset:
                hole_end = head.start
            elif head.start < next_offset:
                hole_end = head.end  # a re-read ended inside this group; read its rest as well
            else:
                break  # its bytes are not committed yet
            if min(hole_end, limit_offset) <= next_offset:
                break
            try:
                reread, next_after = self._reread(next_offset, hole_end, limit_offset, records_max - records)
            except Exception:
                if taken:
                    break  # return the groups at hand; the next call will meet the error again
                raise
            taken += reread
            records += sum(columns.count for columns in reread)
            if next_after == next_offset:
                break
            next_offset = next_after
        return taken, next_offset

    def _reread(
        self, next_offset: int, hole_end: int, limit_offset: int, records_max: int
    ) -> tuple[list[LogColumns], int]:
        start = max(next_offset, self._log_source.min_offset)  # retention may have removed the beginning
        to_offset = min(hole_end, limit_offset)
        taken: list[LogColumns] = []
        records = 0
        if start >= to_offset:
            return taken, min(start, to_offset)
        try:
            for group in self._log_source.walk(start, to_offset):
                columns = LogColumns(group)
                taken.append(columns)
                self.reread_groups += 1
                records += columns.count
                start = columns.end
                if records >= records_max:
                    return taken, start
        except CorruptRecord as error:  # as RocketMQ's master: log it, and continue after it
            if to_offset < hole_end:
                return taken, start  # perhaps only cut off by the committed limit
            if self._on_damage is None:
                raise
            self._on_damage(start, to_offset, error)
            return taken, to_offset
        # No more records. A hole's own end is a boundary between records (perhaps after a blank); the committed limit
        # need not be one, and then the position stays after the last whole record.
        return taken, hole_end if hole_end <= limit_offset else start

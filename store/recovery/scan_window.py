"""A moving window over one segment, in private memory; the extent of a bad record.

Lives here: ``ScanWindow``, ``bad_extent``, ``summed_size``.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from pocketmq.common.record import (
    BLANK_BYTES_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
    SYS_FLAG_AT,
    body_at,
)
from pocketmq.store.commitlog.log_reader import size_and_magic
from pocketmq.store.commitlog.segment import Segment

WINDOW_BYTES: Final = 4 << 20
WINDOW_BYTES_MIN: Final = 64 << 10


class ScanWindow:
    """Private copy of a part of one segment, moved along by the scan."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._start = 0
        self._data = np.empty(0, np.uint8)
        self._size_bytes = WINDOW_BYTES_MIN

    def view(self, position: int, length: int) -> memoryview:
        """Return ``length`` bytes at ``position``, fewer at the end of the segment."""
        length = min(length, self.segment.size_bytes - position)
        if position < self._start or position + length > self._start + self._data.size:
            size = min(max(self._size_bytes, length), self.segment.size_bytes - position)
            self._size_bytes = min(WINDOW_BYTES, self._size_bytes * 4)  # short reads stay small, long scans grow large
            if self._data.size != size:
                self._data = np.empty(size, np.uint8)
            self.segment.read_into(position, self._data)
            self._start = position
        return self._data.data[position - self._start : position - self._start + length]


def bad_extent(window: ScanWindow, bad_at: int, is_record: Callable[[int], bool]) -> int:
    """Return how many bytes of the bad record at offset ``bad_at`` to skip; 1 if unknown.

    Its size field, or the sum of its other lengths, whichever is followed by a good record, a blank or nothing; else
    its size if all lengths agree. A damaged size is not trusted: it could hide later records.
    """
    segment = window.segment
    position = bad_at - segment.base_offset
    left = segment.size_bytes - position - BLANK_BYTES_MIN
    size, magic = size_and_magic(window.view(position, BLANK_BYTES_MIN), 0)
    summed = summed_size(window, bad_at)
    if magic not in (MAGIC_V1, MAGIC_V2) or _own_offset(window, position) != bad_at:
        return 1
    sizes = [one for one in (size, summed) if RECORD_BYTES_MIN <= one <= left]
    for one in sizes:
        if is_record(bad_at + one):
            return one
    for one in sizes:
        next_size, next_magic = size_and_magic(window.view(position + one, BLANK_BYTES_MIN), 0)
        if next_magic == 0 or (next_magic == MAGIC_BLANK and next_size == left + BLANK_BYTES_MIN - one):
            return one
    return size if 0 < size == summed else 1


def summed_size(window: ScanWindow, at: int) -> int:
    """Return the size that the lengths of body, topic and properties of the record at offset ``at`` add up to.

    0 if magic or physical offset are wrong, or the record would not fit into its segment.
    """
    segment = window.segment
    position = at - segment.base_offset
    left = segment.size_bytes - position - BLANK_BYTES_MIN
    if left < RECORD_BYTES_MIN or _own_offset(window, position) != at:
        return 0
    head = window.view(position, RECORD_BYTES_MIN)
    _, magic = size_and_magic(head, 0)

    def number(start: int, length: int) -> int:
        return int.from_bytes(window.view(position + start, length), "big")

    body = body_at(head[SYS_FLAG_AT + 3])
    length_bytes = {MAGIC_V1: 1, MAGIC_V2: 2}.get(magic, 0)
    if length_bytes == 0 or body > left:
        return 0
    end = body + number(body - 4, 4)
    if end > left - length_bytes - 2:
        return 0
    end += length_bytes + number(end, length_bytes)
    return 0 if end > left - 2 else end + 2 + number(end, 2)


def _own_offset(window: ScanWindow, position: int) -> int:
    return int.from_bytes(window.view(position + PHYSICAL_OFFSET_AT, 8), "big")

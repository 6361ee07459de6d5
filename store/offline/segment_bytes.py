"""The bytes of one file of the log: reads, single records, the end of data, the next record after bad bytes.

Lives here: ``SegmentBytes``.
"""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.record import (
    BLANK_BYTES_MIN,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
)
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.offline.layout import SegmentFile
from pocketmq.store.offline.record_check import why_bad

WINDOW_BYTES: Final = 4 << 20
WINDOW_BYTES_MIN: Final = 64 << 10
"""The first read after bad bytes: small, because it is wasted if more bad bytes follow."""
SEARCH_BYTES_MAX: Final = 1 << 30
"""Limit on candidate bytes checked by the search after bad bytes of one file: hostile bytes could nest them."""
_HOLE_BYTES_MIN: Final = 1 << 20
_MAGIC_START: Final = (MAGIC_V1 >> 8).to_bytes(3, "big")
_HEAD: Final = struct.Struct(">II")


class SegmentBytes:
    """One open file, read-only. Offsets are those of the log. ``may_grow``: a broker may be writing it."""

    def __init__(self, file_system: FileSystem, segment: SegmentFile, record_bytes_max: int, may_grow: bool) -> None:
        self.segment = segment
        self._record_bytes_max = record_bytes_max
        self._may_grow = may_grow
        self._file = file_system.open(segment.path, writable=False)
        self._ranges = self._find_ranges()  # before reading: reading a hole makes pages that count as data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _find_ranges(self) -> list[tuple[int, int]]:
        """Return the [start, end) offsets of the log outside of which the file is zero."""
        ranges: list[tuple[int, int]] = []
        start = self._file.next_data(0)
        while start is not None and start < self.segment.have_bytes:
            end = max(start + 1, min(self._file.next_hole(start), self.segment.have_bytes))
            if ranges and start - ranges[-1][1] < _HOLE_BYTES_MIN:
                start = ranges.pop()[0]
            ranges.append((start, end))
            start = self._file.next_data(end) if end < self.segment.have_bytes else None
        return [(self.segment.base_offset + start, self.segment.base_offset + end) for start, end in ranges]

    def read(self, offset: int, length: int, memory: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return up to ``length`` bytes at ``offset``, fewer at the end of the file; in ``memory`` if given."""
        length = max(0, min(length, self.segment.base_offset + self.segment.have_bytes - offset))
        data = np.empty(length, np.uint8) if memory is None else memory[:length]
        return data[: self._file.read_into(offset - self.segment.base_offset, data)] if length > 0 else data

    def one(self, at: int) -> tuple[NDArray[np.uint8], str]:
        """Return the record at ``at``, of any size, and why it is bad, or ""."""
        data = self.read(at, 64)
        size, magic = head_of(data)
        if magic not in (MAGIC_V1, MAGIC_V2):
            return data, why_bad(data.data, at) or "no record"
        left = self.segment.end_offset - at
        if not RECORD_BYTES_MIN <= size <= left - BLANK_BYTES_MIN:
            return data, f"size {size} with {left} bytes left in the file"
        if size > self._record_bytes_max:
            return data, f"size {size}, above the limit of {self._record_bytes_max}"
        own = int.from_bytes(data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8].tobytes(), "big", signed=True)
        if own != at:  # checked before all of it is read
            return data, f"a record of offset {own}"
        data = self.read(at, size)
        return data, why_bad(data.data, at)

    def nonzero_end(self, at: int) -> int | None:
        """Return the end of the non-zero bytes at or after ``at`` in this file; None if all are zero."""
        for start, end in reversed(self._ranges_now()):
            position = end
            while position > max(start, at):
                length = min(WINDOW_BYTES, position - max(start, at))
                data = self.read(position - length, length)
                if data.any():
                    return position - length + int(np.flatnonzero(data)[-1]) + 1
                position -= length
        return None

    def _ranges_now(self) -> list[tuple[int, int]]:
        if self._may_grow:
            self._ranges = self._find_ranges()
        return self._ranges

    def search(self, at: int) -> int | None:
        """Return the start of the first good record of this file at or after ``at``."""
        budget_bytes = SEARCH_BYTES_MAX
        window_bytes = WINDOW_BYTES_MIN
        position = at + MAGIC_AT
        for start, end in self._ranges_now():
            position = max(position, start)
            while position < end:
                view = self.read(position, min(window_bytes, end - position))
                window_bytes = min(WINDOW_BYTES, window_bytes * 4)
                if len(view) == 0:
                    break
                chunk = view.tobytes() if view.any() else b""
                found = chunk.find(_MAGIC_START)
                while found >= 0:
                    candidate = position + found - MAGIC_AT
                    if candidate >= max(at, self.segment.base_offset):
                        data, why = self.one(candidate)
                        if not why:
                            return candidate
                        budget_bytes -= len(data)
                        if budget_bytes < 0:
                            return None
                    found = chunk.find(_MAGIC_START, found + 1)
                position += max(1, len(view) - 2)  # a magic may lie across two windows
        return None


def head_of(data: NDArray[np.uint8]) -> tuple[int, int]:
    """Return size and magic; zeros when fewer than 8 bytes are left."""
    if len(data) < 8:
        return 0, 0
    size, magic = _HEAD.unpack_from(data.data, 0)
    return size, magic

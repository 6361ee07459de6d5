"""Reading the log record by record.

Lives here: ``LogReader``, which turns a range of the log into groups; ``chain_end``, which follows record sizes; the
list of damaged ranges that every walk skips.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from pocketmq.common.record_group import RecordGroup

SLICE_BYTES: Final = 1 << 20
_SIZE_MAGIC = struct.Struct(">II")


@dataclass(slots=True, frozen=True)
class DamagedRange:
    """Bytes [start, end) of the log that are no good record, followed by good ones. They stay as they are."""

    start: int
    end: int
    why: str


def chain_end(view: memoryview, at: int, end: int) -> int:
    """Follow sizes and magics of records from ``at``; return the end of the last one that ends at or below ``end``."""
    unpack = _SIZE_MAGIC.unpack_from
    while end - at >= RECORD_BYTES_MIN:
        size, magic = unpack(view, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN or size > end - at:
            break
        at += size
    return at


def size_and_magic(view: memoryview, at: int) -> tuple[int, int]:
    """Return the first two fields of a record or blank; (0, 0) when fewer than 8 bytes are left."""
    if len(view) - at < 8:
        return 0, 0
    size, magic = _SIZE_MAGIC.unpack_from(view, at)
    return size, magic


class LogReader:
    """Reads whole records in slices of about 1 MiB.

    ``read_into(offset, out)`` reads bytes that must exist; ``segment_bytes`` gives the ends of segments, where blanks
    are.
    """

    def __init__(
        self,
        read_into: Callable[[int, NDArray[np.uint8]], None],
        segment_bytes: int,
        record_bytes_max: int,
        damaged: list[DamagedRange],
    ) -> None:
        self._read_into = read_into
        self._segment_bytes = segment_bytes
        self._record_bytes_max = record_bytes_max
        self._damaged = damaged

    def groups(self, from_offset: int, to_offset: int) -> Iterator[RecordGroup]:
        """Yield the records of [from_offset, to_offset) as groups; both must be boundaries between records.

        Blank ends of segments and known damage are skipped. Raises ``CorruptRecord`` (its offset is in ``why``) at
        other bytes without a record, after it has yielded all records before them.
        """
        at = from_offset
        while at < to_offset:
            skip_to = self._behind_damage(at)
            if skip_to > at:
                at = skip_to
                continue
            segment_end = (at // self._segment_bytes + 1) * self._segment_bytes
            limit = min(to_offset, segment_end, self._next_damage(at))
            slice_bytes = min(SLICE_BYTES, limit - at)
            data = np.empty(slice_bytes, np.uint8)
            self._read_into(at, data)
            end = chain_end(data.data, 0, slice_bytes)
            if end == 0:
                size, magic = size_and_magic(data.data, 0)
                if magic == MAGIC_BLANK and size == segment_end - at:
                    at = segment_end
                    continue
                if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= size <= limit - at:
                    raise _no_record(at, size, magic, limit - at)
                data = np.empty(size, np.uint8)  # one record larger than a slice
                self._read_into(at, data)
                end = size
            try:
                group = RecordGroup.from_log(data[:end])
            except CorruptRecord as error:
                raise CorruptRecord("damage in the log", why=f"behind offset {at}: {error.why}") from error
            yield group
            at += end

    def _behind_damage(self, at: int) -> int:
        for part in self._damaged:
            if part.start <= at < part.end:
                return part.end
        return at

    def _next_damage(self, at: int) -> int:
        return min((part.start for part in self._damaged if part.start > at), default=1 << 63)


def _no_record(at: int, size: int, magic: int, left: int) -> CorruptRecord:
    return CorruptRecord(
        "damage in the log",
        why=f"at offset {at}: size {size}, magic 0x{magic:08X}, {left} bytes left",
        hint="run a verification of the log",
    )

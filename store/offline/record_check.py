"""Checks whether bytes are good records: many at once, or one with the reason.

Lives here: ``chain``, ``good_columns``, ``why_bad``.

A record is good when its size, magic and lengths agree, the physical offset in it is its place, its topic has no zero
byte, and its body has its CRC. RocketMQ's CRC covers the body only: a changed property or queue id passes this check
and is found only by the checksum of its group.
"""

import struct
import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.hashes import crc32
from pocketmq.common.record import (
    BODY_CRC_AT,
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
)
from pocketmq.common.record_codec import record_spans
from pocketmq.common.record_columns import RecordColumns, first_bad_crc, parse_columns, starts_of, windows

_SIZE_MAGIC: Final = struct.Struct(">II")

_SWAPS: Final = sys.byteorder == "little"
_MAGIC_FIRST: Final = MAGIC_V1 >> 24
_NATIVE_V1, _NATIVE_V2 = (
    np.uint32(int.from_bytes(magic.to_bytes(4, "big"), sys.byteorder)) for magic in (MAGIC_V1, MAGIC_V2)
)
_VECTOR_BYTES_MIN: Final = 4096
"""Below this the records are followed one by one."""

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


def chain(data: Bytes, end: int) -> tuple[Int64s, int]:
    """Follow total sizes from the start of ``data``; return the sizes of the records that end at or below ``end``, and
    where the last one ends.
    """
    sizes = _equal_sizes(data, end)
    if len(sizes) == 0:
        sizes = _chained_heads(data, end)
    at = int(sizes.sum())
    unpack, view = _SIZE_MAGIC.unpack_from, data.data
    more: list[int] = []
    while end - at >= RECORD_BYTES_MIN:
        size, magic = unpack(view, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN or size > end - at:
            break
        more.append(size)
        at += size
    return np.concatenate([sizes, np.array(more, np.int64)]) if more else sizes, at


def _equal_sizes(data: Bytes, end: int) -> Int64s:
    """Return the sizes of leading records if all that fit have the first one's size and magic: a look at eight bytes of
    each (measured: 0.01 µs a record). Else nothing.
    """
    if end < _VECTOR_BYTES_MIN:
        return np.zeros(0, np.int64)
    size, magic = _SIZE_MAGIC.unpack_from(data.data, 0)
    count = end // size if size >= RECORD_BYTES_MIN else 0
    if count < 2 or magic not in (MAGIC_V1, MAGIC_V2):
        return np.zeros(0, np.int64)
    starts = np.arange(count, dtype=np.int64) * size
    heads = windows(data, 8)[starts].view(np.uint64)
    return np.full(count, size, np.int64) if (heads == heads[0]).all() else np.zeros(0, np.int64)


def _chained_heads(data: Bytes, end: int) -> Int64s:
    """Return the sizes of leading records, found by their magics all at once: each size leads to the next magic.

    Ends early where a body holds what looks like a magic; following the sizes one by one goes on there (measured: 0.05
    against 0.23 µs a record of 300 bytes).
    """
    if end < _VECTOR_BYTES_MIN:
        return np.zeros(0, np.int64)
    at = np.flatnonzero(data[4 : end - 4] == _MAGIC_FIRST)
    heads = windows(data[:end], 8)[at].view(np.uint32).reshape(-1, 2)
    magics = heads[:, 1]
    is_head = (magics == _NATIVE_V1) | (magics == _NATIVE_V2)
    if not is_head.all():
        at, heads = at[is_head], heads[is_head]
    if len(at) == 0 or at[0] != 0:
        return np.zeros(0, np.int64)
    sizes = heads[:, 0].byteswap().astype(np.int64) if _SWAPS else heads[:, 0].astype(np.int64)
    good = sizes[:-1] == np.diff(at)
    good &= sizes[:-1] >= RECORD_BYTES_MIN
    count = len(good) if good.all() else int(np.argmin(good))
    return sizes[:count]  # the last one has no successor: the loop checks it


def good_columns(data: Bytes, sizes: Int64s, offset: int, *, check_crc: bool = True) -> RecordColumns:
    """Return the columns of the leading good records among those of ``sizes``, which begin at ``offset`` of the log.

    If there are fewer, the next record is bad, and ``why_bad`` returns the reason.
    """
    lengths = sizes
    while True:
        buffer = data[: int(lengths.sum())]
        try:
            columns = parse_columns(buffer, lengths)
            break
        except CorruptRecord:
            lengths = lengths[: _first_unparsable(buffer, lengths)]
    count = len(columns)
    good = columns.physical_offsets == columns.starts + offset
    if count and not good.all():
        count = int(np.argmin(good))
    if count < len(columns):
        columns = parse_columns(data[: int(lengths[:count].sum())], lengths[:count])
    if count and check_crc:
        bad = first_bad_crc(columns)
        if bad is not None:
            columns = parse_columns(data[: int(lengths[:bad].sum())], lengths[:bad])
    return _without_zero_topics(columns, data, lengths)


def _first_unparsable(data: Bytes, lengths: NDArray[np.int64]) -> int:
    view = data.data
    for index, (start, size) in enumerate(zip(starts_of(lengths).tolist(), lengths.tolist(), strict=True)):
        try:
            if record_spans(view[start : start + size]).size != size:
                return index
        except CorruptRecord:
            return index
    return len(lengths) - 1  # the columns refused what the scalar codec takes: give up one record, so that this ends


def _without_zero_topics(columns: RecordColumns, data: Bytes, lengths: NDArray[np.int64]) -> RecordColumns:
    """Cut before the first record whose topic holds a zero byte: zeros are what a torn write leaves."""
    if len(columns) == 0:
        return columns
    first = columns.buffer[np.minimum(columns.topic_starts, len(columns.buffer) - 1)]
    last = columns.buffer[np.maximum(columns.topic_starts + columns.topic_lengths - 1, 0)]
    bad = ((first == 0) | (last == 0)) & (columns.topic_lengths > 0)
    if not bad.any():
        return columns
    kept = int(np.argmax(bad))
    return parse_columns(data[: int(lengths[:kept].sum())], lengths[:kept])


def why_bad(record: memoryview, offset: int, *, check_crc: bool = True) -> str:
    """Return why these bytes are not a good record at ``offset`` of the log; an empty text if they are."""
    if len(record) < 8:
        return f"{len(record)} bytes, not even a size and a magic"
    size, magic = _SIZE_MAGIC.unpack_from(record, 0)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return "zeros" if size == magic == 0 else f"magic 0x{magic:08X}"
    if size < RECORD_BYTES_MIN or size > len(record):
        return f"size {size}, which does not fit"
    record = record[:size]
    found = int.from_bytes(record[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
    if found != offset:
        return f"a record of offset {found}"
    try:
        spans = record_spans(record)
    except CorruptRecord as error:
        return error.why
    topic = record[spans.topic_start : spans.topic_start + spans.topic_length]
    if spans.topic_length and 0 in (topic[0], topic[-1]):
        return "a zero byte in the topic"
    if check_crc:
        crc = crc32(record[spans.body_start : spans.body_start + spans.body_length]) & CRC_MASK
        if crc != int.from_bytes(record[BODY_CRC_AT : BODY_CRC_AT + 4], "big"):
            return "body CRC differs"
    return ""

"""The properties of records that all have the same names in the same order, whatever the lengths of their values.

One producer's records are like that. The names are those of the first record; all records are then followed pair by
pair at once: eight bytes or so of each are compared with the name, and the value ends at the next 0x02. That proves
where every pair of every record is (0.08 µs a record with four pairs, where ``PropertyTable`` takes 0.29). Any record
that differs ends the attempt, and ``PropertyTable`` decides.

Lives here: ``lockstep``.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.record_columns import RecordColumns, rows_at

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

ROWS_MIN: Final = 16
"""Fewer records are not worth the calls."""
PAIRS_MAX: Final = 16
VALUE_BYTES_MAX: Final = 256
"""Longer values, as those of whole documents, would make wide copies."""
_NAME_END: Final = 1
_VALUE_END: Final = 2

Spans = tuple[Int64s, Int64s]


def lockstep(buffer: Bytes, records: RecordColumns) -> dict[bytes, Spans] | None:
    """Return name → (start, length) of its value in each record, for every name; of two pairs with one name the last.
    None if the records differ in their names, or a pair has no value.
    """
    starts, lengths = records.property_starts, records.property_lengths
    if len(starts) < ROWS_MIN:
        return None
    if not lengths.all():
        return None if lengths.any() else {}
    ends = starts + lengths
    closed_ends = ends - (buffer[ends - 1] == _VALUE_END)
    names = _names_of(buffer[int(starts[0]) : int(closed_ends[0])].tobytes())
    if names is None:
        return None
    found: dict[bytes, Spans] = {}
    at = starts
    for index, (name, guess) in enumerate(names):
        wanted = np.frombuffer(name + b"\x01", np.uint8)
        at = at + len(wanted)
        if bool((at >= closed_ends).any()) or not (rows_at(buffer, at - len(wanted), len(wanted)) == wanted).all():
            return None
        is_last = index == len(names) - 1
        value_ends = _value_ends(buffer, at, closed_ends, guess, is_last)
        if value_ends is None:
            return None
        sizes = value_ends - at
        if not sizes.all():
            return None
        found[name] = at, sizes
        at = value_ends + 1
    return found


def _names_of(text: bytes) -> list[tuple[bytes, int]] | None:
    """Return name and length of the value of each pair; None if a pair has no name or no value."""
    found: list[tuple[bytes, int]] = []
    for pair in text.split(b"\x02", PAIRS_MAX):
        name, _, value = pair.partition(b"\x01")
        if not name or not value or len(value) > VALUE_BYTES_MAX:
            return None
        found.append((name, len(value)))
    return found if len(found) <= PAIRS_MAX else None


def _value_ends(buffer: Bytes, at: Int64s, limits: Int64s, guess: int, is_last: bool) -> Int64s | None:
    """Return where the values that begin at ``at`` end: at the first 0x02 before ``limits``, or, of the last pairs, at
    ``limits`` if there is none. None if some do not end so. ``guess``: the first one's length.
    """
    if is_last:
        sizes = limits - at
        width = int(sizes.max())
        if width > VALUE_BYTES_MAX:
            return None
        is_end = _padded(buffer, at, width) == _VALUE_END
        if not (sizes == width).all():
            is_end &= np.arange(width) < sizes[:, None]
        return None if is_end.any() else limits
    is_end = _padded(buffer, at, guess + 1) == _VALUE_END
    if is_end[:, guess].all() and np.count_nonzero(is_end) == len(at):
        ends = at + guess
    else:
        is_end = _padded(buffer, at, min(2 * guess + 16, VALUE_BYTES_MAX)) == _VALUE_END
        sizes = is_end.argmax(axis=1)
        if not np.take_along_axis(is_end, sizes[:, None], axis=1).all():
            return None
        ends = at + sizes
    return ends if bool((ends < limits).all()) else None


def _padded(buffer: Bytes, starts: Int64s, width: int) -> Any:
    """Return the ``width`` bytes at each of ``starts`` (ascending), with zeros behind the end of the buffer."""
    inside = int(np.searchsorted(starts, len(buffer) - width, "right"))
    if inside == len(starts):
        return rows_at(buffer, starts, width)
    rows = np.zeros((len(starts), width), np.uint8)
    if inside:
        rows[:inside] = rows_at(buffer, starts[:inside], width)
    for row in range(inside, len(starts)):
        tail = buffer[int(starts[row]) : int(starts[row]) + width]
        rows[row, : len(tail)] = tail
    return rows

"""The properties of many records at once: where each pair lies, found by NumPy without a loop over records.

Lives here: ``PropertyTable``: values by name, and all pairs as an Arrow map; ``own_pairs`` and ``values_in`` of such a
map.

The property strings (``name 0x01 value 0x02 name 0x01 value [0x02]``) are copied into the rows of a matrix; the
separators in it, in order, are the ends of names and values. Whatever order the names have, RocketMQ's or ours, costs
the same. A string that breaks the form (or is longer than ``WIDTH_MAX``) takes the scalar parser by itself.

One producer's strings are mostly alike: the same names, and values of the same lengths, so that every pair lies in the
same columns of the matrix. One comparison of all bytes proves that (13 ns a record of 100 B, where finding the pairs
takes 150), and the values are columns of the matrix.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.client.message.validation import is_users_own
from pocketmq.common.record import decode_properties
from pocketmq.common.record_columns import RecordColumns, rows_at, windows

WIDTH_MAX: Final = 512
MATRIX_BYTES_MAX: Final = 16 << 20
"""Longer property strings are parsed one by one: the matrix is as wide as the longest, and no larger than this."""
ALIKE_MIN: Final = 16
"""Fewer strings are not looked at for likeness."""
BLOCK_BYTES: Final = 1 << 17
"""Bytes compared at once: they and three arrays of their size stay in the cache."""
PAIRS_MAX: Final = 32
"""With more pairs in a string the names are not compared with each other by columns; see ``_repeats``."""
_NAME_END: Final = 1
_VALUE_END: Final = 2

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class PropertyTable:
    """All pairs of N records. ``others``: the properties of rows that were parsed one by one, which have no pairs
    here."""

    def __init__(self, buffer: Bytes, records: RecordColumns) -> None:
        self._starts = records.property_starts
        lengths = records.property_lengths
        self._count = len(lengths)
        regular = lengths < min(WIDTH_MAX, MATRIX_BYTES_MAX // max(1, self._count))
        width = int(lengths[regular].max(initial=0)) + 1  # one more: the last separator may be left out
        self._width = width
        self._matrix = self._gathered(buffer, regular, width)
        self._close(lengths, regular)
        self.others: dict[int, dict[str, str]] = {}
        self._alike = self._pairs_alike(regular)
        if self._alike is not None:
            return
        flat = self._matrix.reshape(-1)
        name_ends = self._inside(np.flatnonzero(flat == _NAME_END), lengths)
        value_ends = self._inside(np.flatnonzero(flat == _VALUE_END), lengths)
        counts = np.bincount(name_ends // width, minlength=self._count)
        regular &= counts == np.bincount(value_ends // width, minlength=self._count)
        name_ends, value_ends = self._of(regular, name_ends), self._of(regular, value_ends)
        while True:
            rows = name_ends // width
            name_starts = self._name_starts(rows, value_ends)
            bad = (name_ends <= name_starts) | (value_ends <= name_ends + 1)
            if not bad.any():
                break
            regular[rows[bad]] = False
            name_ends, value_ends = self._of(regular, name_ends), self._of(regular, value_ends)
        self._rows, self._name_starts_at, self._name_ends, self._value_ends = rows, name_starts, name_ends, value_ends
        self._name_lengths = name_ends - name_starts
        for row in np.flatnonzero(~regular).tolist():
            start = int(self._starts[row])
            self.others[row] = decode_properties(buffer[start : start + int(lengths[row])].tobytes())

    def _gathered(self, buffer: Bytes, regular: "NDArray[np.bool_]", width: int) -> Bytes:
        """Return the strings as the rows of a matrix; bytes beyond a string's end are undefined."""
        fits = regular & (self._starts + width <= len(buffer))
        if fits.all():
            return rows_at(buffer, self._starts, width)
        matrix = np.zeros((self._count, width), np.uint8)
        rows = np.flatnonzero(fits)
        if len(rows):
            matrix[rows] = rows_at(buffer, self._starts[rows], width)
        for row in np.flatnonzero(regular & ~fits).tolist():  # those at the end of the buffer
            tail = buffer[int(self._starts[row]) :]
            matrix[row, : len(tail)] = tail
        return matrix

    def _close(self, lengths: Int64s, regular: "NDArray[np.bool_]") -> None:
        """Write the last separator where a string leaves it out."""
        rows = np.flatnonzero(regular & (lengths > 0))
        open_rows = rows[self._matrix[rows, lengths[rows] - 1] != _VALUE_END]
        self._matrix[open_rows, lengths[open_rows]] = _VALUE_END
        self._closed = lengths.copy()
        self._closed[open_rows] += 1

    def _pairs_alike(self, regular: "NDArray[np.bool_]") -> "list[tuple[int, int, int]] | None":
        """Return (start and end of the name, end of the value) of each pair, as columns of the matrix, if they are the
        same in all rows and the names are, too; else None."""
        if self._count < ALIKE_MIN or not regular.all():
            return None
        closed = int(self._closed[0])
        if (self._closed != closed).any():
            return None
        first = self._matrix[0, :closed].tobytes()
        pairs: list[tuple[int, int, int]] = []
        at = 0
        while at < closed:
            name_end, value_end = first.find(_NAME_END, at), first.find(_VALUE_END, at)
            if not at < name_end < value_end - 1:
                return None
            pairs.append((at, name_end, value_end))
            at = value_end + 1
        in_values = np.zeros(self._width, np.uint8)
        for _, name_end, value_end in pairs:
            in_values[name_end + 1 : value_end] = 0xFF
        elsewhere = ~in_values
        elsewhere[closed:] = 0
        # Whole rows at a time, repeated flat: a loop over rows inside NumPy would cost ten times as much.
        rows = min(self._count, max(1, BLOCK_BYTES // self._width))
        wanted, elsewhere, in_values = (np.tile(row, rows) for row in (self._matrix[0], elsewhere, in_values))
        scratch = np.empty_like(wanted)
        flat = self._matrix.reshape(-1)
        for start in range(0, len(flat), len(wanted)):
            block = flat[start : start + len(wanted)]
            count = len(block)
            part = scratch[:count]
            np.bitwise_xor(block, wanted[:count], out=part)
            np.bitwise_and(part, elsewhere[:count], out=part)
            if np.count_nonzero(part):
                return None
            np.subtract(block, np.uint8(_NAME_END), out=part)  # 0 or 1: a separator, which no value may hold
            np.less(part, 2, out=part.view(np.bool_))
            np.bitwise_and(part, in_values[:count], out=part)
            if np.count_nonzero(part):
                return None
        return pairs

    def _expand(self) -> None:
        """Write down the pairs of all rows, which are alike, as the general way does."""
        if self._alike is None or hasattr(self, "_rows"):
            return
        at = (np.arange(self._count) * self._width)[:, None]
        places = np.array(self._alike, np.int64).reshape(-1, 3)
        self._rows = np.repeat(np.arange(self._count), len(places))
        self._name_starts_at, self._name_ends, self._value_ends = ((at + place).reshape(-1) for place in places.T)

    def _inside(self, at: Int64s, lengths: Int64s) -> Int64s:
        """Return those positions of the flat matrix that lie in their row's string."""
        rows, columns = np.divmod(at, self._width)
        return at[columns < self._closed[rows]]

    def _of(self, regular: "NDArray[np.bool_]", at: Int64s) -> Int64s:
        return at if regular.all() else at[regular[at // self._width]]

    def _name_starts(self, rows: Int64s, value_ends: Int64s) -> Int64s:
        """Return where each pair begins: at the start of its row, or behind the pair before it."""
        starts = np.empty(len(rows), np.int64)
        if len(rows):
            starts[0] = rows[0] * self._width
            starts[1:] = np.where(rows[1:] == rows[:-1], value_ends[:-1] + 1, rows[1:] * self._width)
        return starts

    def values(self, name: bytes) -> tuple[Int64s, Int64s]:
        """Return start (in the records' buffer) and length of each row's value; length 0 for rows without it."""
        if self._alike is not None:
            start, end = self._place(name)
            return self._starts + start, np.full(self._count, end - start)
        starts, lengths = np.zeros(self._count, np.int64), np.zeros(self._count, np.int64)
        pairs = np.flatnonzero(self._name_lengths == len(name))
        if len(pairs):
            wanted = np.frombuffer(name, f"V{len(name)}")
            found = windows(self._matrix.reshape(-1), len(name))[self._name_starts_at[pairs]]
            pairs = pairs[found == wanted[0]]
            rows = self._rows[pairs]  # of two pairs with one name the last is assigned last
            lengths[rows] = self._value_ends[pairs] - self._name_ends[pairs] - 1
            starts[rows] = self._starts[rows] + self._name_ends[pairs] + 1 - rows * self._width
        return starts, lengths

    def _place(self, name: bytes) -> tuple[int, int]:
        """Return where the value of a name begins and ends in each row; (0, 0): nowhere. Rows are alike."""
        assert self._alike is not None
        first = self._matrix[0].tobytes()
        found = (0, 0)
        for start, name_end, value_end in self._alike:  # the last of two pairs with one name counts
            if first[start:name_end] == name:
                found = name_end + 1, value_end
        return found

    def fixed(self, name: bytes) -> Bytes | None:
        """Return the values of a name as the rows of a matrix, of width 0 where no row has it; None: they have
        different lengths."""
        if self._alike is None:
            return None
        start, end = self._place(name)
        return self._matrix[:, start:end]

    def to_map(self, pa: Any) -> Any:
        """Return all pairs as an Arrow array ``map<string, string>``, one entry a row."""
        self._expand()
        kind = pa.map_(pa.string(), pa.string())
        names = self._strings(pa, self._name_starts_at, self._name_ends)
        values = self._strings(pa, self._name_ends + 1, self._value_ends)
        if names is None or values is None or self._repeats(names):
            return None
        counts = np.bincount(self._rows, minlength=self._count)
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        table = pa.MapArray.from_arrays(pa.array(offsets), names, values)
        if self.others:
            rows = list(self.others)
            parsed = pa.array([list(self.others[row].items()) for row in rows], kind)
            order = np.arange(self._count)
            order[rows] = self._count + np.arange(len(rows))
            table = pa.concat_arrays([table, parsed]).take(pa.array(order))
        return table

    def _strings(self, pa: Any, starts: Int64s, ends: Int64s) -> Any:
        """Return these stretches of the matrix as strings; None if they are no UTF-8."""
        flat = self._matrix.reshape(-1)
        steps = np.zeros(len(flat) + 1, np.int8)
        steps[starts] = 1
        steps[ends] = -1
        data = flat[np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)]
        offsets = np.zeros(len(starts) + 1, np.int32)
        np.cumsum(ends - starts, out=offsets[1:])
        raw = pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            return None

    def _repeats(self, names: Any) -> bool:
        """Return whether a row has a name twice, or may have."""
        ids = names.dictionary_encode().indices.to_numpy()
        most = int(np.bincount(self._rows).max(initial=0))
        if most > PAIRS_MAX:
            return True
        for gap in range(1, most):
            if ((ids[gap:] == ids[:-gap]) & (self._rows[gap:] == self._rows[:-gap])).any():
                return True
        return False


def own_pairs(pa: Any, table: Any) -> Any:
    """Return a ``map<string, string>`` column without the pairs that clients and brokers set, and without empty values:
    those of a message that is sent once more.
    """
    names = table.keys.dictionary_encode()
    is_own = np.array([name is not None and is_users_own(name) for name in names.dictionary.to_pylist()], np.bool_)
    keep = is_own[np.asarray(names.indices)] if len(names) else np.zeros(0, np.bool_)
    sizes = np.asarray(pa.compute.binary_length(table.items).fill_null(0))
    keep &= sizes > 0
    before = np.zeros(len(keep) + 1, np.int32)
    np.cumsum(keep, out=before[1:])
    chosen = pa.array(keep)
    offsets = pa.array(before[np.asarray(table.offsets)])
    return pa.MapArray.from_arrays(offsets, table.keys.filter(chosen), table.items.filter(chosen))


def values_in(pa: Any, table: Any, name: str) -> Any:
    """Return the value of a name in each row of a ``map<string, string>`` column, null where there is none."""
    is_name = np.asarray(pa.compute.equal(table.keys, name).fill_null(False), np.bool_)
    found = np.flatnonzero(is_name)
    offsets = np.asarray(table.offsets)
    rows = np.searchsorted(offsets, found, "right") - 1
    inside = (rows >= 0) & (rows < len(table))
    places = np.full(len(table), -1, np.int64)
    places[rows[inside]] = found[inside]  # of two pairs with one name the last counts
    return table.items.take(pa.array(np.maximum(places, 0), mask=places < 0))

"""Records to Arrow columns: built by NumPy over the bytes of a pull response, no Python object per message.

Lives here: the columns of ``poll_arrow`` and how each is cut out of the records.

Variable-length columns are Arrow *views*: 16 bytes a row that point into the response itself, cast to ``binary`` or
``string`` by Arrow in one pass (measured 0.23 µs a row; a slice per row costs more than twice that).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pocketmq.client.arrow.arrow_properties import PropertyTable, own_pairs
from pocketmq.client.arrow.lockstep import Spans, lockstep
from pocketmq.client.errors import ClientError
from pocketmq.common.body_codec import BodyUnreadable, CompressionMissing, decompress_body
from pocketmq.common.errors import Cause
from pocketmq.common.hashes import crc32
from pocketmq.common.message_fields import READ_COLUMNS, READ_PROPERTIES
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.record import (
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    CRC_MASK,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    STORE_HOST_V6_FLAG,
    UNIQ_KEY,
    decode_properties,
    host_text,
)
from pocketmq.common.record_columns import (
    RecordColumns,
    check_body_crcs,
    parse_columns,
    rows_at,
    topic_ids,
    windows,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

COLUMNS = (
    "topic", "broker", "queue_id", "queue_offset", "msg_id", "keys", "tags", "body", "born_timestamp",
    "store_timestamp", "born_host", "reconsume_times",
)  # fmt: skip
"""The columns ``poll_arrow`` returns by default."""
OPTIONAL_COLUMNS = ("properties", "user_properties", "sharding_key")
"""Those that it returns if they are named. ``user_properties``: without those that clients and brokers set."""

UNPACKED_BYTES_MAX = 512 << 20
"""The most bytes that the compressed bodies of one pull may unpack to: 4 MiB of records can be made to unpack to
gigabytes."""

_COPIED_BODY_MAX = 4096
"""Up to here, on average, the CRC of a body is cheaper of Arrow's copy of it than of a view (0.13 against 0.18 µs)."""
_ASCII_MAX = 0x7F
_INLINE_BYTES = 12  # Arrow columnar format, "variable-size binary view layout": up to 12 bytes live in the view itself


class ArrowMissing(ClientError):
    """pyarrow is not installed."""

    default_cause = Cause.CONFIG


class ColumnUnknown(ClientError):
    """A requested column does not exist, or one is missing or of the wrong type."""

    default_cause = Cause.BAD_REQUEST


def import_pyarrow() -> Any:
    """Return the module ``pyarrow``, or raise ``ArrowMissing``."""
    try:
        import pyarrow
    except ImportError as error:
        raise ArrowMissing(
            "no Arrow columns", why="pyarrow is not installed", hint="pip install 'pocketmq[arrow]'"
        ) from error
    return pyarrow


def import_compute() -> Any:
    """Return the module ``pyarrow.compute``, or raise ``ArrowMissing``."""
    import_pyarrow()
    import pyarrow.compute

    return pyarrow.compute


def check_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns to build, in the order asked for; raise ``ColumnUnknown``."""
    if columns is None:
        return COLUMNS
    known = COLUMNS + OPTIONAL_COLUMNS
    if not columns:  # a batch without columns has no rows: the messages read would be lost
        raise ColumnUnknown("columns refused", why="none are named", hint="leave them out for all of them")
    for name in columns:
        if name not in known:
            raise ColumnUnknown("column refused", why=repr(name), hint="known columns: " + ", ".join(known))
    return tuple(columns)


def schema(columns: Sequence[str] = COLUMNS) -> "Schema":
    """Return the Arrow schema of these columns."""
    pa = import_pyarrow()
    time = pa.timestamp("us", tz="UTC")
    types_of_fields = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int32": pa.int32(),
        "map<string, string>": pa.map_(pa.string(), pa.string()),
    }
    types = {name: types_of_fields[kind] for name, kind in READ_COLUMNS.items()} | {
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "msg_id": pa.string(),
        "born_timestamp": time,
        "store_timestamp": time,
        "born_host": pa.string(),
        "reconsume_times": pa.int32(),
        "user_properties": types_of_fields["map<string, string>"],
    }
    result: Schema = pa.schema([(name, types[name]) for name in columns])
    return result


def empty_batch(columns: Sequence[str] = COLUMNS) -> "RecordBatch":
    """Return a batch without rows."""
    pa = import_pyarrow()
    wanted = schema(columns)
    batch: RecordBatch = pa.RecordBatch.from_arrays([pa.array([], each.type) for each in wanted], schema=wanted)
    return batch


def concat_batches(batches: "Sequence[RecordBatch]", columns: Sequence[str]) -> "RecordBatch":
    """Return one batch with the rows of all, in order; body views become ``binary`` here, in one copy."""
    if not batches:
        return empty_batch(columns)
    pa = import_pyarrow()
    wanted = schema(columns)
    arrays = []
    for index, field in enumerate(wanted):
        parts = [batch.column(index) for batch in batches]
        array = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    batch: RecordBatch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    return batch


def records_to_arrow(
    body: bytes | bytearray | memoryview,
    sizes: NDArray[Any] | None,
    broker_name: str,
    columns: Sequence[str] = COLUMNS,
    *,
    body_views: bool = False,
    check_crc: bool = False,
) -> "RecordBatch":
    """Return the records in ``body`` as a batch of these columns. Raises ``CorruptRecord``.

    ``sizes``: bytes of each record, None to follow the total sizes. ``body_views`` leaves bodies as views of ``body``,
    for ``concat_batches`` (measured: 100 MiB of bodies 0.02 s instead of 0.09 s, and half the fresh memory).
    ``check_crc``: compare each body with its CRC, if bodies are asked for (measured: 0.13 µs a row).
    """
    buffer = np.frombuffer(body, np.uint8)
    if (sizes is not None and len(sizes) == 0) or len(buffer) == 0:
        return empty_batch(columns)
    records = parse_columns(buffer, sizes)
    return _Builder(body, records, broker_name, body_views, check_crc).batch(columns)


def columns_to_arrow(records: RecordColumns, broker_name: str, columns: Sequence[str] = COLUMNS) -> "RecordBatch":
    """Return parsed records as a batch of these columns; see ``records_to_arrow``."""
    if len(records) == 0:
        return empty_batch(columns)
    return _Builder(records.buffer.data, records, broker_name, body_views=False, check_crc=False).batch(columns)


def _unpacked(body: bytes, sys_flag: int) -> bytes | None:
    """Return a compressed body unpacked; None (null in Arrow) for one that cannot be: it spoils no other row."""
    try:
        return decompress_body(body, sys_flag)
    except BodyUnreadable as error:
        if isinstance(error.__cause__, CompressionMissing):
            raise  # not the message's fault: every row would be null
        return None


class _Builder:
    """Builds the columns of one response; property fields are located once and shared."""

    def __init__(
        self,
        body: bytes | bytearray | memoryview,
        records: RecordColumns,
        broker_name: str,
        body_views: bool,
        check_crc: bool,
    ) -> None:
        self._pa = import_pyarrow()
        self._body = body
        self._buffer = records.buffer
        self._records = records
        self._broker_name = broker_name
        self._body_views = body_views
        self._check_crc = check_crc
        self._fields: PropertyTable | None = None
        self._spans: dict[bytes, Spans] | None = None
        self._has_spans = True

    def batch(self, columns: Sequence[str]) -> "RecordBatch":
        """Return the batch; a column that shows no property is made by the method of its name."""
        arrays = [
            self._property(READ_PROPERTIES[name]) if name in READ_PROPERTIES else getattr(self, f"column_{name}")()
            for name in columns
        ]
        batch: RecordBatch = self._pa.RecordBatch.from_arrays(arrays, names=list(columns))
        return batch

    def _located(self) -> PropertyTable:
        if self._fields is None:
            self._fields = PropertyTable(self._buffer, self._records)
        return self._fields

    def _value_spans(self, name: str) -> tuple[Int64s, Int64s] | None:
        """Return start and length of each row's value, 0 for rows without one; None if that takes ``_located``."""
        if self._spans is None and self._has_spans and self._fields is None:
            self._spans = lockstep(self._buffer, self._records)
            self._has_spans = self._spans is not None
        if self._spans is None:
            return None
        none = np.zeros(len(self._records), np.int64)
        return self._spans.get(name.encode(), (none, none))

    def column_topic(self) -> Any:
        ids, names = topic_ids(self._buffer, self._records)
        if len(names) == 1:
            return self._pa.repeat(self._pa.scalar(names[0], self._pa.string()), len(ids))
        return self._pa.array(names, self._pa.string()).take(self._pa.array(ids))

    def column_broker(self) -> Any:
        return self._pa.repeat(self._pa.scalar(self._broker_name, self._pa.string()), len(self._records))

    def column_queue_id(self) -> Any:
        return self._pa.array(self._records.queue_ids)

    def column_queue_offset(self) -> Any:
        return self._pa.array(self._records.queue_offsets)

    def column_reconsume_times(self) -> Any:
        return self._pa.array(self._records.reconsume_times)

    def column_born_timestamp(self) -> Any:
        return self._time(self._records.born_timestamps)

    def column_store_timestamp(self) -> Any:
        return self._time(self._records.store_timestamps)

    def _time(self, values_ms: Int64s) -> Any:
        return self._pa.array(values_ms * 1000).view(self._pa.timestamp("us", tz="UTC"))

    def column_body(self) -> Any:
        stored = self._from_views(view_structs(self._buffer, self._records.body_starts, self._records.body_lengths))
        if not self._body_views:
            stored = stored.cast(self._pa.binary())
        if self._check_crc:
            self._check_bodies(stored)
        flags = self._records.sys_flags
        packed = np.flatnonzero(flags & COMPRESSED_FLAG)
        if len(packed) == 0:
            return stored
        raw: list[bytes | None] = stored.to_pylist()
        left_bytes = UNPACKED_BYTES_MAX
        for row in packed.tolist():
            raw[row] = body = _unpacked(raw[row] or b"", int(flags[row]))
            left_bytes -= 0 if body is None else len(body)
            if left_bytes < 0:
                raise BodyUnreadable(
                    "bodies not unpacked",
                    why=f"those of one pull grow beyond {UNPACKED_BYTES_MAX} bytes",
                    hint="read fewer at once (max_messages), or with poll()",
                )
        return self._pa.array(raw, self._pa.binary_view() if self._body_views else self._pa.binary())

    def _check_bodies(self, stored: Any) -> None:
        """Raise ``CorruptRecord`` for the first body (as it is stored) that does not have its CRC."""
        records = self._records
        bodies: Iterable[bytes | memoryview]
        if int(records.body_lengths.sum()) <= len(records) * _COPIED_BODY_MAX:
            bodies = stored.to_pylist()
        else:
            view = self._buffer.data
            starts = records.body_starts
            ends = (starts + records.body_lengths).tolist()
            bodies = (view[start:end] for start, end in zip(starts.tolist(), ends, strict=True))
        crcs = np.fromiter(map(crc32, bodies), np.uint32, len(records))
        check_body_crcs(records, crcs & np.uint32(CRC_MASK))

    def _from_views(self, views: Any) -> Any:
        pa = self._pa
        return pa.Array.from_buffers(
            pa.binary_view(), len(views), [None, pa.py_buffer(views), pa.py_buffer(self._body)]
        )

    def _text(self, starts: Int64s, lengths: Int64s, others: dict[int, str]) -> Any:
        """Return a string column; ``others`` replaces single rows. Bytes that are no UTF-8 become U+FFFD."""
        pa = self._pa
        if not lengths.any():
            column = pa.repeat(pa.scalar("", pa.string()), len(lengths))
        else:
            raw = self._stretches(starts, lengths)
            try:
                column = raw.cast(pa.string())
            except pa.ArrowInvalid:
                column = pa.array([value.decode("utf-8", "replace") for value in raw.to_pylist()], pa.string())
        if others:
            values = column.to_pylist()
            for row, value in others.items():
                values[row] = value
            column = pa.array(values, pa.string())
        return column

    def _stretches(self, starts: Int64s, lengths: Int64s) -> Any:
        """Return stretches of the records, one a row and in their order, as a binary column: one copy by Arrow.

        It takes every other value of an array whose offsets are starts and ends in turn; the values between them are
        the gaps, which nobody looks at (measured: 0.01 µs a row for short texts, where views take 0.05).
        """
        pa, count = self._pa, len(starts)
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2] = np.where(lengths > 0, starts, self._records.property_starts)  # ascending, also without a value
        offsets[1::2] = offsets[0::2] + lengths
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(self._body)]
        )
        return both.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))

    def _fixed_text(self, values: Bytes) -> Any:
        """Return the rows of a matrix as a string column; None if they are not all ASCII."""
        pa = self._pa
        count, width = values.shape
        if width == 0:
            return pa.repeat(pa.scalar("", pa.string()), count)
        data = np.ascontiguousarray(values)
        if int(data.max()) > _ASCII_MAX:
            return None
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def _property(self, name: str) -> Any:
        spans = self._value_spans(name)
        if spans is not None:
            return self._text(*spans, {})
        fields = self._located()
        values = fields.fixed(name.encode())
        column = None if values is None else self._fixed_text(values)
        if column is not None:
            return column
        return self._text(*fields.values(name.encode()), {row: p.get(name, "") for row, p in fields.others.items()})

    def column_msg_id(self) -> Any:
        spans = self._value_spans(UNIQ_KEY)
        if spans is not None and spans[1].any():
            return self._text(*spans, {})
        fields = self._located()
        values = fields.fixed(UNIQ_KEY.encode())
        column = None if values is None or values.shape[1] == 0 else self._fixed_text(values)
        if column is not None:
            return column
        starts, lengths = fields.values(UNIQ_KEY.encode())
        others = {row: fields.others.get(row, {}).get(UNIQ_KEY, "") for row in np.flatnonzero(lengths == 0).tolist()}
        return self._text(starts, lengths, {row: key or self._offset_id(row) for row, key in others.items()})

    def _offset_id(self, row: int) -> str:
        start = int(self._records.store_host_starts[row])
        v6 = int(self._records.sys_flags[row]) & STORE_HOST_V6_FLAG
        host = self._buffer[start : start + (HOST_V6_BYTES if v6 else HOST_V4_BYTES)].tobytes()
        return offset_msg_id(host, int(self._records.physical_offsets[row]))

    def column_born_host(self) -> Any:
        pa, records = self._pa, self._records
        if (records.sys_flags & BORN_HOST_V6_FLAG).any():
            lengths = np.where(records.sys_flags & BORN_HOST_V6_FLAG, HOST_V6_BYTES, HOST_V4_BYTES)
            pairs = zip(records.born_host_starts.tolist(), lengths.tolist(), strict=True)
            return pa.array([host_text(self._buffer[at : at + length].tobytes()) for at, length in pairs], pa.string())
        hosts = windows(self._buffer, HOST_V4_BYTES)[records.born_host_starts].view(np.uint64)
        if not (hosts != hosts[0]).any():
            return pa.repeat(pa.scalar(host_text(hosts[:1].tobytes()), pa.string()), len(hosts))
        distinct, rows = np.unique(hosts, return_inverse=True)
        texts = [host_text(value.tobytes()) for value in distinct]
        return pa.array(texts, pa.string()).take(pa.array(rows))

    def column_properties(self) -> Any:
        table = self._located().to_map(self._pa)
        if table is not None:
            return table
        starts, lengths = self._records.property_starts.tolist(), self._records.property_lengths.tolist()
        rows = [
            list(decode_properties(self._buffer[start : start + length].tobytes()).items())
            for start, length in zip(starts, lengths, strict=True)
        ]
        return self._pa.array(rows, self._pa.map_(self._pa.string(), self._pa.string()))

    def column_user_properties(self) -> Any:
        """Return the properties that a producer may set: those of a sink, or of a copy of the message."""
        import_compute()
        return own_pairs(self._pa, self.column_properties())


def view_structs(buffer: Bytes, starts: Int64s, lengths: Int64s) -> Any:
    """Return Arrow's 16-byte view structs for ``buffer[start : start + length]`` of every row; the buffer is number 0.

    Layout: i32 length, then up to 12 bytes of data; longer values have 4 bytes of prefix, i32 buffer number, i32
    offset.
    """
    views = np.zeros((len(starts), 16), np.uint8)
    numbers = views.view(np.int32)
    numbers[:, 0] = lengths
    long = lengths > _INLINE_BYTES
    if long.all():
        numbers[:, 1] = windows(buffer, 4)[starts].view(np.int32)
        numbers[:, 3] = starts
        return views
    rows = np.flatnonzero(long)
    if len(rows):
        numbers[rows, 1] = windows(buffer, 4)[starts[rows]].view(np.int32)
        numbers[rows, 3] = starts[rows]
    short = np.flatnonzero(~long)
    fits = starts[short] + _INLINE_BYTES <= len(buffer)
    inside = short[fits]
    if len(inside):
        data = rows_at(buffer, starts[inside], _INLINE_BYTES)
        data[np.arange(_INLINE_BYTES) >= lengths[inside][:, None]] = 0
        views[inside, 4:] = data
    for row in short[~fits].tolist():
        value = buffer[int(starts[row]) : int(starts[row] + lengths[row])]
        views[row, 4 : 4 + len(value)] = value
    return views

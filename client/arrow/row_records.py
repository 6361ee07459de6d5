"""Columns of bodies and properties to plain records, without a Python object for most of a row.

Lives here: ``MessageRows``: the checked rows of one Arrow batch, and the records of any of them.

A record is header, body, and what follows the body: topic, UNIQ_KEY and the other properties. The fixed parts are NumPy
matrices filled column by column, and Arrow joins all parts in its own memory, texts included: a row of 100 bytes costs
0.14 µs, its CRC included, and 0.3 with tags and keys (it was 0.65 when texts were made row by row).
"""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.client.arrow.arrow import ColumnUnknown, import_compute, import_pyarrow
from pocketmq.client.message.validation import SYSTEM_PROPERTIES, check_sendable_topic
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.hashes import crc32
from pocketmq.common.message import Message
from pocketmq.common.message_fields import COLUMNS, TEXT_PROPERTIES
from pocketmq.common.record import (
    CLUSTER,
    CRC_MASK,
    FIRST_NAMES,
    HEADER_V4,
    HEADER_V6,
    HOSTS_V6_MASK,
    MAGIC_V1,
    PROPERTIES_BYTES_MAX,
    UNIQ_KEY,
    decode_properties,
    is_plain_forbidden,
)
from pocketmq.common.record_codec import side_by_side

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

_COPIED_BODY_MAX: Final = 512
"""Up to here, on average, Arrow's copies of bodies are cheaper than views (0.02 µs against 0.1 for 100 bytes)."""
_UNIQ_NAME: Final = UNIQ_KEY.encode() + b"\x01"
_UNIQ_BYTES: Final = 32
_SEPARATORS: Final = (b"\x01", b"\x02")
_BEFORE_CLUSTER: Final = tuple(name for name, key in TEXT_PROPERTIES.items() if key in FIRST_NAMES)
_AFTER_CLUSTER: Final = tuple(name for name, key in TEXT_PROPERTIES.items() if key not in FIRST_NAMES)
"""The columns of texts in the order of ``encode_properties``."""
_DISTINCT: Final = "keys"
"""The column whose texts differ from row to row."""


class MessageRows:
    """The rows of one Arrow batch, checked. Row numbers in errors count from ``first_row``.

    Columns: ``body`` (binary or string), ``topic`` unless given, ``tags``, ``keys``, ``sharding_key`` (strings),
    ``properties`` (map of strings), ``flag`` (int32). A null or an empty text stands for none; a null or empty body is
    refused.
    Raises ``ColumnUnknown`` (a column), ``MessageIllegal`` or ``TopicIllegal`` (a value, with its row).
    """

    def __init__(
        self, batch: "pa.RecordBatch", topic: str | None, max_message_size: int, *, first_row: int = 0
    ) -> None:
        self._pa: Any = import_pyarrow()
        self._first_row = first_row
        self._check_names(batch.schema.names, topic)
        self._column, self.lengths = self._bodies(batch.column("body"), max_message_size)
        self.topics = self._topics(batch, topic)
        found = {name: self._text_column(batch, name) for name in TEXT_PROPERTIES}
        self._texts = {name: texts for name, texts in found.items() if texts is not None}
        self._lists: dict[str, list[str] | None] = {}
        self.sharding_keys = self._listed("sharding_key")
        self._others = self._properties(batch)
        self._flags = self._flags_of(batch)
        self._crcs: NDArray[np.uint32] | None = None
        self._tails: dict[str, bytes | _Tails] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def costs(self) -> Int64s:
        """The bytes of each row's body, texts and properties; a character counts one."""
        compute = import_compute()
        parts = [np.asarray(compute.utf8_length(texts), np.int64) for texts in self._texts.values()]
        if self._others is not None:
            parts.append(np.fromiter(map(len, self._others), np.int64, len(self)))
        return sum(parts, self.lengths)

    # ---- columns in

    def _check_names(self, names: Sequence[str], topic: str | None) -> None:
        for name in names:
            if name not in COLUMNS or names.count(name) > 1:
                raise ColumnUnknown("column refused", why=repr(name), hint="columns: " + ", ".join(COLUMNS))
        if "body" not in names:
            raise ColumnUnknown("column missing", why="'body'", hint="add a binary or string column named body")
        if topic is None and "topic" not in names:
            raise ColumnUnknown("topic missing", why="neither named nor a column", hint="name it, or add the column")

    def _bodies(self, column: Any, max_message_size: int) -> tuple[Any, Int64s]:
        """Return the bodies as large_binary, and their lengths."""
        pa = self._pa
        try:
            column = column.cast(pa.large_binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ColumnUnknown(
                "column refused", why=f"'body' is {column.type}: {error}", hint="make it binary or string"
            ) from error
        count = len(column)
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise self._row_refused("body", row, "it is null", "drop such rows, or fill them")
        if not count:
            return column, np.zeros(0, np.int64)
        offsets = column.buffers()[1]
        bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + count + 1]
        lengths = np.diff(bounds)
        smallest, largest = int(lengths.min()), int(lengths.max())
        if smallest < 1:
            raise self._row_refused("body", int(lengths.argmin()), "it is empty", "RocketMQ takes no empty messages")
        if largest > max_message_size:
            raise self._row_refused(
                "body",
                int(lengths.argmax()),
                f"{largest} bytes, at most {max_message_size}",
                "split it, or raise max_message_size of the broker",
            )
        return column, lengths

    def _topics(self, batch: "pa.RecordBatch", topic: str | None) -> dict[str, Int64s | None]:
        """Return topic → its rows, None for all. A row without one takes ``topic``."""
        if "topic" not in batch.schema.names:
            assert topic is not None
            check_sendable_topic(topic)
            return {topic: None}
        encoded = self._as_strings(batch, "topic").dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1), np.int64)
        names: list[str] = encoded.dictionary.to_pylist()
        found: dict[str, Int64s | None] = {}
        rows_of: dict[str, list[Int64s]] = {}
        for code in np.unique(codes).tolist():
            rows = np.flatnonzero(codes == code)
            name = (names[code] if code >= 0 else "") or topic
            if not name:
                raise self._row_refused(
                    "topic", int(rows[0]), "it is null or empty, and no topic is named", "fill it, or name one for all"
                )
            rows_of.setdefault(name, []).append(rows)
        for name, parts in rows_of.items():
            check_sendable_topic(name)
            found[name] = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        if len(found) == 1:
            return dict.fromkeys(found)
        return found

    def _as_strings(self, batch: "pa.RecordBatch", name: str) -> Any:
        pa = self._pa
        column = batch.column(name)
        if column.type in (pa.binary(), pa.large_binary()) or not (
            pa.types.is_string(column.type)
            or pa.types.is_large_string(column.type)
            or pa.types.is_null(column.type)
            or column.type == pa.string_view()
            or (pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type))
        ):
            raise ColumnUnknown("column refused", why=f"'{name}' is {column.type}, not string", hint="cast it")
        return column.cast(pa.string())

    def _text_column(self, batch: "pa.RecordBatch", name: str) -> Any:
        """Return a text column, nulls as empty strings; None if it is missing or has only nulls."""
        if name not in batch.schema.names:
            return None
        column = self._as_strings(batch, name)
        if column.null_count == len(column):
            return None
        data = column.buffers()[2]
        raw = b"" if data is None else memoryview(data).tobytes()
        filled = column.fill_null("")
        if any(separator in raw for separator in _SEPARATORS):
            for row, value in enumerate(filled.to_pylist()):
                if "\x01" in value or "\x02" in value:
                    raise self._row_refused(name, row, "it holds the separator 0x01 or 0x02", "remove it")
        return filled

    def _listed(self, name: str) -> list[str] | None:
        """Return a text column as a list; None without it."""
        if name not in self._lists:
            texts = self._texts.get(name)
            self._lists[name] = None if texts is None else texts.to_pylist()
        return self._lists[name]

    def _properties(self, batch: "pa.RecordBatch") -> list[bytes] | None:
        """Return the user's own properties of each row as their bytes."""
        if "properties" not in batch.schema.names:
            return None
        pa, column = self._pa, batch.column("properties")
        wanted = pa.map_(pa.string(), pa.string())
        if pa.types.is_null(column.type) or column.null_count == len(column):
            return None
        if (
            not pa.types.is_map(column.type)
            or column.type.key_type != pa.string()
            or column.type.item_type != pa.string()
        ):
            raise ColumnUnknown("column refused", why=f"'properties' is {column.type}, not {wanted}", hint="cast it")
        rows: list[bytes] = []
        checked: set[str] = set()
        for row, pairs in enumerate(column.to_pylist()):
            parts: list[str] = []
            for key, value in pairs or ():
                if key not in checked:
                    self._check_property_name(key, row)
                    checked.add(key)
                if not value or "\x01" in value or "\x02" in value:
                    raise self._row_refused(
                        f"properties[{key!r}]", row, "its value is null, empty, or holds 0x01 or 0x02", "leave it out"
                    )
                parts.append(f"{key}\x01{value}\x02")
            rows.append("".join(parts).encode())
        return rows

    def _flags_of(self, batch: "pa.RecordBatch") -> NDArray[np.int32] | None:
        if "flag" not in batch.schema.names:
            return None
        pa, column = self._pa, batch.column("flag")
        try:
            return np.asarray(column.cast(pa.int32()).fill_null(0), np.int32)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ColumnUnknown("column refused", why=f"'flag' is {column.type}: {error}", hint="cast it") from error

    def _check_property_name(self, key: str, row: int) -> None:
        if not key or "\x01" in key or "\x02" in key:
            raise self._row_refused("properties", row, f"the name {key!r} is empty, or holds 0x01 or 0x02", "rename it")
        if key in SYSTEM_PROPERTIES:
            raise self._row_refused(
                "properties", row, f"the name {key} is used by the system", "use the column of that meaning, or rename"
            )
        if is_plain_forbidden(key):
            raise self._row_refused(
                "properties", row, f"{key} is for delayed messages, which cannot be sent in columns", "use a Producer"
            )

    def _row_refused(self, field: str, row: int, why: str, hint: str) -> MessageIllegal:
        return MessageIllegal(f"row {self._first_row + row} refused, column {field}", why=why, hint=hint)

    # ---- records out

    def sizes(self, topic: str, cluster: str, family: int, rows: Int64s | None) -> Int64s:
        """Return the bytes of each record of ``rows`` (None: all), which are of ``topic``."""
        tails = self._tails_of(cluster)
        lengths = self.lengths if rows is None else self.lengths[rows]
        header = HEADER_V6 if family == 6 else HEADER_V4
        fixed = header.itemsize + 1 + len(topic) + 2
        if isinstance(tails, bytes):
            return lengths + (fixed + len(tails))
        return lengths + fixed + (tails.lengths if rows is None else tails.lengths[rows])

    def records(
        self,
        topic: str,
        cluster: str,
        family: int,
        queue_id: int,
        born_ms: int,
        rows: slice | Int64s,
        uniq_keys: Bytes,
    ) -> tuple[NDArray[Any], bytes | memoryview]:
        """Return the ``u32`` sizes and the bytes of the records of these rows. ``uniq_keys``: a row each."""
        tails = self._tails_of(cluster)
        count, uniq_bytes = uniq_keys.shape
        lengths = self.lengths[rows]
        header_type = HEADER_V6 if family == 6 else HEADER_V4
        tail_lengths: Any = len(tails) if isinstance(tails, bytes) else tails.lengths[rows]
        before = len(topic).to_bytes(1, "big") + topic.encode() + bytes(2) + _UNIQ_NAME
        header = np.zeros(count, header_type)
        sizes = lengths + header_type.itemsize + (len(before) - len(_UNIQ_NAME)) + tail_lengths
        header["total_size"] = sizes
        header["magic"] = MAGIC_V1
        header["body_crc"] = self._crcs_of()[rows]
        header["queue_id"] = queue_id
        header["sys_flag"] = HOSTS_V6_MASK if family == 6 else 0
        header["born_timestamp"] = born_ms
        header["body_length"] = lengths
        if self._flags is not None:
            header["flag"] = self._flags[rows]
        middle = np.empty((count, len(before) + uniq_bytes), np.uint8)
        middle[:, : len(before)] = np.frombuffer(before, np.uint8)
        at = len(before) - len(_UNIQ_NAME) - 2
        middle[:, at] = tail_lengths >> 8
        middle[:, at + 1] = tail_lengths & 0xFF
        middle[:, len(before) :] = uniq_keys
        heads = header.view(np.uint8).reshape(count, header_type.itemsize)
        if isinstance(tails, bytes):
            rest = np.frombuffer(tails[len(_UNIQ_NAME) + uniq_bytes :], np.uint8)
            middle = np.concatenate([middle, np.broadcast_to(rest, (count, len(rest)))], axis=1)
        if count and isinstance(rows, slice) and isinstance(tails, bytes) and int(lengths.min()) == int(lengths.max()):
            return sizes.astype(">u4"), side_by_side(heads, self._bodies_of_one_length(rows, count), middle)
        pa, kind = self._pa, self._pa.large_binary()
        bodies = self._column[rows] if isinstance(rows, slice) else self._column.take(pa.array(rows))
        parts = [self._equal(heads), bodies, self._equal(middle)]
        if not isinstance(tails, bytes):
            parts.append(tails.rest[rows] if isinstance(rows, slice) else tails.rest.take(pa.array(rows)))
        joined = import_compute().binary_join_element_wise(*parts, pa.scalar(b"", kind))
        return sizes.astype(">u4"), memoryview(joined.buffers()[2]).cast("B")[: int(sizes.sum())]

    def _bodies_of_one_length(self, rows: slice, count: int) -> Bytes:
        """Return bodies that have one length as the rows of a matrix, without a copy."""
        _, offsets, data = self._column.buffers()
        first = rows.indices(len(self))[0]
        start = int(np.frombuffer(offsets, np.int64)[self._column.offset + first])
        length = int(self.lengths[first])
        return np.frombuffer(data, np.uint8, count * length, start).reshape(count, length)

    def _equal(self, rows: Bytes) -> Any:
        """Return the rows of a matrix as an Arrow array."""
        pa, (count, width) = self._pa, rows.shape
        offsets = np.arange(count + 1, dtype=np.int64) * width
        data = np.ascontiguousarray(rows)
        return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def messages(self, topic: str, rows: Int64s) -> list[Message]:
        """Return rows as messages, for a broker that takes no records."""
        tags, keys, shards = map(self._listed, TEXT_PROPERTIES)
        others, flags = self._others, self._flags
        return [
            Message(
                topic,
                self._column[row].as_py(),
                tags=tags[row] if tags else "",
                keys=keys[row] if keys else "",
                sharding_key=(shards[row] or None) if shards else None,
                properties=decode_properties(others[row]) if others else {},
                flag=int(flags[row]) if flags is not None else 0,
            )
            for row in rows.tolist()
        ]

    def _crcs_of(self) -> NDArray[np.uint32]:
        if self._crcs is None:
            bodies: list[bytes] | list[memoryview]
            if int(self.lengths.sum()) <= len(self) * _COPIED_BODY_MAX:
                bodies = self._column.to_pylist()
            else:
                _, offsets, data = self._column.buffers()
                bounds = np.frombuffer(offsets, np.int64)[self._column.offset :][: len(self) + 1].tolist()
                view = memoryview(data)
                bodies = [view[start:end] for start, end in itertools.pairwise(bounds)]
            self._crcs = np.fromiter(map(crc32, bodies), np.uint32, len(self))
            self._crcs &= np.uint32(CRC_MASK)
        return self._crcs

    def _tails_of(self, cluster: str) -> "bytes | _Tails":
        """Return the properties of each row as their bytes, with room for a UNIQ_KEY of 32; one for all if they do not
        differ.
        """
        known = self._tails.get(cluster)
        if known is None:
            known = self._tails[cluster] = self._make_tails(cluster)
        return known

    def _make_tails(self, cluster: str) -> "bytes | _Tails":
        pa, texts, others = self._pa, self._texts, self._others
        start = _UNIQ_NAME + b"0" * _UNIQ_BYTES
        middle = f"{CLUSTER}\x01{cluster}\x02".encode()
        if not texts and others is None:
            return start + b"\x02" + middle
        kind = pa.large_binary()
        parts = [
            pa.scalar(b"\x02", kind),
            *(self._as_property(name) for name in _BEFORE_CLUSTER if name in texts),
            pa.scalar(middle, kind),
            *(self._as_property(name) for name in _AFTER_CLUSTER if name in texts),
            *([] if others is None else [pa.array(others, kind)]),
        ]
        compute = import_compute()
        rest = compute.binary_join_element_wise(*parts, pa.scalar(b"", kind))
        lengths = np.asarray(compute.binary_length(rest), np.int64) + len(start)
        longest = int(lengths.max(initial=0))
        if longest > PROPERTIES_BYTES_MAX:
            raise self._row_refused(
                "tags, keys, properties",
                int(lengths.argmax()),
                f"{longest} bytes, at most {PROPERTIES_BYTES_MAX}",
                "shorten them",
            )
        if (
            len(rest)
            and _DISTINCT not in texts
            and others is None
            and compute.all(compute.equal(rest, rest[0])).as_py()
        ):
            return start + bytes(rest[0].as_py())
        return _Tails(rest, lengths)

    def _as_property(self, name: str) -> Any:
        """Return the property of each row that a column of texts stands for; empty where the text is empty."""
        pa, compute, texts = self._pa, import_compute(), self._texts[name]
        kind = pa.large_binary()
        head, end, nothing = (pa.scalar(part, kind) for part in (f"{TEXT_PROPERTIES[name]}\x01".encode(), b"\x02", b""))
        whole = compute.binary_join_element_wise(head, texts.cast(kind), end, nothing)
        is_empty = compute.equal(texts, "")
        return compute.if_else(is_empty, nothing, whole) if compute.any(is_empty).as_py() else whole


class _Tails:
    """The properties of rows that differ: ``rest`` is what stands behind the value of UNIQ_KEY, as large_binary;
    ``lengths`` are those of whole property strings."""

    __slots__ = ("lengths", "rest")

    def __init__(self, rest: Any, lengths: Int64s) -> None:
        self.rest = rest
        self.lengths = lengths

"""Arrow columns to records: what ``send_arrow`` sends, without a ``Message`` per row.

Lives here: reading and checking the columns, cutting them into parts, building plain records from them.
Not here: choosing queues and sending (``producer``, ``sender``), records to columns (``arrow``).

The fixed part of all records is one NumPy array filled column by column; a row then costs its CRC, two slices and one
join.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pocketmq.client.arrow import ColumnUnknown, import_pyarrow
from pocketmq.client.validation import check_sendable_topic, check_text
from pocketmq.common.crc import crc32
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.properties import CLUSTER, KEYS, PROPERTIES_BYTES_MAX, SHARDING_KEY, TAGS, UNIQ_KEY
from pocketmq.common.record import CRC_MASK, HEADER_V4, HEADER_V6, HOSTS_V6_MASK, MAGIC_V1

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_COLUMNS = ("topic", "tags", "keys", "sharding_key")
SEND_COLUMNS = ("body", *TEXT_COLUMNS, "flag")
ROW_EXTRA_BYTES = 256
"""What a row is counted for beside its body."""


class SendRows:
    """The checked columns of one ``send_arrow``. Text columns are lists, or None where the column is missing."""

    __slots__ = ("data", "ends", "flags", "keys", "sharding_keys", "starts", "tags", "topics")

    def __init__(self, data: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self.topics: list[str] | str = ""
        self.tags: list[str] | None = None
        self.keys: list[str] | None = None
        self.sharding_keys: list[str] | None = None
        self.flags: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def by_topic(self) -> dict[str, list[int]]:
        """Return the row numbers of each topic."""
        if isinstance(self.topics, str):
            return {self.topics: list(range(len(self)))} if len(self) else {}
        groups: dict[str, list[int]] = {}
        for row, topic in enumerate(self.topics):
            groups.setdefault(topic, []).append(row)
        return groups

    def parts(self, rows: Sequence[int], bytes_max: int) -> list[list[int]]:
        """Cut ``rows`` into parts of about ``bytes_max`` bytes."""
        chosen = np.asarray(rows, np.int64)
        filled = np.cumsum(self.ends[chosen] - self.starts[chosen] + ROW_EXTRA_BYTES)
        parts: list[list[int]] = []
        at = 0
        while at < len(chosen):
            before = int(filled[at - 1]) if at else 0
            end = max(int(np.searchsorted(filled, before + bytes_max, "right")), at + 1)
            parts.append(chosen[at:end].tolist())
            at = end
        return parts


class ArrowRows:
    """Some rows for one queue: records when asked, messages for a broker that takes no records."""

    __slots__ = ("_rows", "_source", "_topic", "_uniq_keys", "size_bytes")

    def __init__(self, source: SendRows, topic: str, rows: list[int], uniq_keys: list[bytes]) -> None:
        self._source = source
        self._topic = topic
        self._rows = rows
        self._uniq_keys = uniq_keys
        chosen = np.asarray(rows, np.int64)
        self.size_bytes = int((source.ends[chosen] - source.starts[chosen] + ROW_EXTRA_BYTES).sum())

    def __len__(self) -> int:
        return len(self._rows)

    def messages(self) -> list[Message]:
        """Return the rows as messages."""
        source = self._source
        return [
            Message(
                self._topic,
                bytes(source.data[int(source.starts[row]) : int(source.ends[row])]),
                tags=source.tags[row] if source.tags else "",
                keys=source.keys[row] if source.keys else "",
                sharding_key=(source.sharding_keys[row] or None) if source.sharding_keys else None,
                flag=int(source.flags[row]) if source.flags is not None else 0,
            )
            for row in self._rows
        ]

    def records(self, cluster: str, family: int, queue_id: int, born_ms: int) -> list[bytes]:
        """Return the rows as plain records, as ``PlainRecordBuilder`` would build them."""
        source = self._source
        chosen = np.asarray(self._rows, np.int64)
        starts, ends = source.starts[chosen], source.ends[chosen]
        data = source.data
        bodies = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        befores, afters = self._frames_of(cluster)
        lengths = ends - starts
        header_type = HEADER_V6 if family == 6 else HEADER_V4
        header = np.zeros(len(chosen), header_type)
        tails = np.fromiter(
            (len(before) + 32 + len(after) for before, after in zip(befores, afters, strict=True)), np.int64
        )
        header["total_size"] = header_type.itemsize + lengths + tails
        header["magic"] = MAGIC_V1
        header["body_crc"] = [crc32(body) & CRC_MASK for body in bodies]
        header["queue_id"] = queue_id
        header["sys_flag"] = HOSTS_V6_MASK if family == 6 else 0
        header["born_timestamp"] = born_ms
        header["body_length"] = lengths
        if source.flags is not None:
            header["flag"] = source.flags[chosen]
        raw, width = header.tobytes(), header_type.itemsize
        join = b"".join
        return [
            join((raw[at : at + width], body, before, uniq_key, after))
            for at, body, before, uniq_key, after in zip(
                range(0, len(raw), width), bodies, befores, self._uniq_keys, afters, strict=True
            )
        ]

    def _frames_of(self, cluster: str) -> tuple[list[bytes], list[bytes]]:
        """Return for each row the bytes between body and id (topic, properties length) and those after the id."""
        source, topic = self._source, self._topic.encode()
        prefix = len(topic).to_bytes(1, "big") + topic
        name = f"{UNIQ_KEY}\x01".encode()
        cluster_property = f"{CLUSTER}\x01{cluster}\x02"
        known: dict[tuple[str, str, str], tuple[bytes, bytes]] = {}
        befores: list[bytes] = []
        afters: list[bytes] = []
        blank = [""] * len(source) if self._varies() else []
        tags, keys, shards = source.tags or blank, source.keys or blank, source.sharding_keys or blank
        for row in self._rows if self._varies() else self._rows[:1]:
            texts = (tags[row], keys[row], shards[row]) if blank else ("", "", "")
            pair = known.get(texts)
            if pair is None:
                tag, key, shard = texts
                rest = "\x02"
                if tag:
                    rest += f"{TAGS}\x01{tag}\x02"
                if key:
                    rest += f"{KEYS}\x01{key}\x02"
                rest += cluster_property
                if shard:
                    rest += f"{SHARDING_KEY}\x01{shard}\x02"
                after = rest.encode()
                size = len(name) + 32 + len(after)
                if size > PROPERTIES_BYTES_MAX:
                    raise MessageIllegal(
                        "row refused", why=f"row {row}: properties of {size} bytes, over {PROPERTIES_BYTES_MAX}"
                    )
                pair = (prefix + size.to_bytes(2, "big") + name, after)
                if len(known) < 10_000:
                    known[texts] = pair
            befores.append(pair[0])
            afters.append(pair[1])
        if not blank:
            return befores * len(self._rows), afters * len(self._rows)
        return befores, afters

    def _varies(self) -> bool:
        source = self._source
        return source.tags is not None or source.keys is not None or source.sharding_keys is not None


def read_rows(data: "pa.RecordBatch | pa.Table", topic: str | None, max_message_size: int) -> SendRows:
    """Check a batch or table and return its columns.

    Raises ``ColumnUnknown`` (a column is missing, unknown or of the wrong type), ``MessageIllegal`` or
    ``TopicIllegal`` (a value).
    """
    pa = import_pyarrow()
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if not isinstance(table, pa.Table):
        raise ColumnUnknown("send_arrow refused", why=f"{type(data).__name__} is no RecordBatch or Table")
    names = table.column_names
    for name in names:
        if name not in SEND_COLUMNS or names.count(name) > 1:
            raise ColumnUnknown("column refused", why=repr(name), hint="columns to send: " + ", ".join(SEND_COLUMNS))
    if "body" not in names:
        raise ColumnUnknown("column missing", why="'body'", hint="add a binary column named body")
    if ("topic" in names) == (topic is not None):
        raise ColumnUnknown("topic unclear", why="give it as an argument or as a column, and only one of them")
    rows = _bodies(pa, table.column("body"), max_message_size)
    if topic is not None:
        check_sendable_topic(topic)
        rows.topics = topic
    else:
        topics = _texts(pa, table, "topic") or []
        for name in set(topics):
            check_sendable_topic(name)
        rows.topics = topics
    rows.tags = _texts(pa, table, "tags")
    rows.keys = _texts(pa, table, "keys")
    rows.sharding_keys = _texts(pa, table, "sharding_key")
    if "flag" in names:
        try:
            flags = table.column("flag").cast(pa.int32()).combine_chunks()
        except pa.ArrowInvalid as error:
            raise ColumnUnknown("column refused", why=f"'flag': {error}") from error
        rows.flags = np.asarray(flags.fill_null(0), np.int32)
    return rows


def _bodies(pa: Any, column: Any, max_message_size: int) -> SendRows:
    try:
        bodies = column.cast(pa.large_binary()).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ColumnUnknown("column refused", why=f"'body': {error}", hint="make it binary or string") from error
    if isinstance(bodies, pa.ChunkedArray):
        bodies = pa.concat_arrays(bodies.chunks) if bodies.num_chunks else pa.array([], pa.large_binary())
    if bodies.null_count:
        raise MessageIllegal("row refused", why="field body is null in some rows", hint="drop those rows first")
    _, offsets, data = bodies.buffers()
    count = len(bodies)
    bounds = (
        np.frombuffer(offsets, np.int64)[bodies.offset : bodies.offset + count + 1] if count else np.zeros(1, np.int64)
    )
    starts, ends = bounds[:-1], bounds[1:]
    lengths = ends - starts
    bad = np.flatnonzero((lengths < 1) | (lengths > max_message_size))
    if len(bad):
        row = int(bad[0])
        raise MessageIllegal(
            "row refused, field body",
            why=f"row {row} has {int(lengths[row])} bytes, not 1 to {max_message_size}",
            hint="drop or split such rows, or raise max_message_size",
        )
    return SendRows(memoryview(data) if data is not None else memoryview(b""), starts, ends)


def _texts(pa: Any, table: Any, name: str) -> list[str] | None:
    """Return a text column as a list, nulls as empty strings; each distinct value is checked once."""
    if name not in table.column_names:
        return None
    try:
        values: list[str] = table.column(name).cast(pa.string()).fill_null("").to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ColumnUnknown("column refused", why=f"{name!r}: {error}", hint="make it a string column") from error
    for value in set(values):
        check_text(name, value)
    return values

"""Arrow columns to records for ``send_arrow``, without a ``Message`` per row.

Lives here: reading a batch or table, cutting its rows into parts, rows for one queue.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pocketmq.client.arrow.arrow import ColumnUnknown, import_pyarrow
from pocketmq.client.arrow.packed import PackedRecords, packed_ids
from pocketmq.client.arrow.row_records import Int64s, MessageRows
from pocketmq.common.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

ROW_EXTRA_BYTES = 256
"""Bytes counted for a row beside its body, texts and properties."""


class ArrowRows:
    """Some rows for one queue: records when asked, messages for a broker that takes no records."""

    __slots__ = ("_ids", "_rows", "_source", "_topic", "size_bytes")

    def __init__(self, source: MessageRows, topic: str, rows: Int64s, ids: Sequence[bytes]) -> None:
        """``rows``: ascending; ``ids``: a unique id for each."""
        self._source = source
        self._topic = topic
        self._rows = rows
        self._ids = ids
        self.size_bytes = int((source.costs[rows] + ROW_EXTRA_BYTES).sum())

    def __len__(self) -> int:
        return len(self._rows)

    def messages(self) -> list[Message]:
        """Return the rows as messages."""
        return self._source.messages(self._topic, self._rows)

    def records(self, cluster: str, family: int, queue_id: int, born_ms: int) -> PackedRecords:
        """Return the rows as plain records, as ``PlainRecordBuilder`` would build them."""
        rows = self._rows
        first, end = int(rows[0]), int(rows[-1]) + 1
        chosen = slice(first, end) if end - first == len(rows) else rows
        ids = packed_ids(self._ids).rows()
        sizes, data = self._source.records(self._topic, cluster, family, queue_id, born_ms, chosen, ids)
        return PackedRecords(memoryview(data), sizes)


def by_topic(rows: MessageRows) -> dict[str, Int64s]:
    """Return the row numbers of each topic, ascending."""
    if not len(rows):
        return {}
    return {topic: np.arange(len(rows)) if chosen is None else chosen for topic, chosen in rows.topics.items()}


def cut(rows: MessageRows, chosen: "Sequence[int] | Int64s", bytes_max: int) -> list[Int64s]:
    """Cut the rows ``chosen`` into parts of about ``bytes_max`` bytes."""
    places = np.asarray(chosen, np.int64)
    filled = np.cumsum(rows.costs[places] + ROW_EXTRA_BYTES)
    parts: list[Int64s] = []
    at = 0
    while at < len(places):
        before = int(filled[at - 1]) if at else 0
        end = max(int(np.searchsorted(filled, before + bytes_max, "right")), at + 1)
        parts.append(places[at:end])
        at = end
    return parts


def read_rows(data: "pa.RecordBatch | pa.Table", topic: str | None, max_message_size: int) -> MessageRows:
    """Check a batch or table and return its rows.

    Raises ``ColumnUnknown`` (a column is missing, unknown or of the wrong type), ``MessageIllegal`` or
    ``TopicIllegal`` (a value).
    """
    pa = import_pyarrow()
    if isinstance(data, pa.RecordBatch):
        batch = data
    elif isinstance(data, pa.Table):
        batches = data.combine_chunks().to_batches()
        if len(batches) > 1:  # Arrow joins no more than 2 GiB of one column
            raise ColumnUnknown("send_arrow refused", why=f"{data.nbytes} bytes", hint="send smaller tables")
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=data.schema)
    else:
        raise ColumnUnknown("send_arrow refused", why=f"{type(data).__name__} is no RecordBatch or Table")
    if topic is not None and "topic" in batch.schema.names:
        raise ColumnUnknown("topic unclear", why="give it as an argument or as a column, and only one of them")
    return MessageRows(batch, topic, max_message_size)

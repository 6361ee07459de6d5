"""The records of a log that a command wants, as messages.

Lives here: ``Wanted``, ``messages_of``, ``safe_json_line``.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.cli.message_format import json_line
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record_codec import received_message
from pocketmq.common.record_columns import topic_ids

if TYPE_CHECKING:
    from pocketmq.store.offline.log_walk import LogChunk


@dataclass(slots=True, frozen=True)
class Wanted:
    """A choice of records: by topic and queue, by store time [from_ms, to_ms), by queue offset (with a queue)."""

    topics: frozenset[str] = frozenset()
    queue_id: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    from_queue_offset: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether every record is wanted."""
        return self == Wanted()

    def rows(self, chunk: "LogChunk") -> NDArray[np.bool_] | None:
        """Return which records of a chunk are wanted; None for all."""
        if self.is_all:
            return None
        columns = chunk.columns
        wanted = np.ones(len(columns), np.bool_)
        if self.topics:
            ids, names = topic_ids(columns.buffer, columns)
            chosen = np.array([name in self.topics for name in names], np.bool_)
            wanted &= chosen[ids]
        if self.queue_id is not None:
            wanted &= columns.queue_ids == self.queue_id
        if self.from_queue_offset is not None:
            wanted &= columns.queue_offsets >= self.from_queue_offset
        if self.from_ms is not None:
            wanted &= columns.store_timestamps >= self.from_ms
        if self.to_ms is not None:
            wanted &= columns.store_timestamps < self.to_ms
        return wanted


def messages_of(chunk: "LogChunk", wanted: Wanted, from_offset: int = 0) -> Iterator[ReceivedMessage]:
    """Yield the wanted records of a chunk that begin at or behind a physical offset, as messages."""
    columns = chunk.columns
    rows = wanted.rows(chunk)
    numbers = np.arange(len(columns)) if rows is None else np.flatnonzero(rows)
    numbers = numbers[columns.physical_offsets[numbers] >= from_offset]
    for row in numbers.tolist():
        start = int(columns.starts[row])
        record = columns.buffer[start : start + int(columns.sizes[row])].tobytes()
        try:
            yield received_message(record, "")
        except CorruptRecord:  # its columns are valid, so it should decode; an exception must not end the command
            continue


def safe_json_line(message: ReceivedMessage) -> bytes:
    """Return a line of JSON; a compressed body that cannot be unpacked is printed packed."""
    try:
        return json_line(message)
    except PocketMQError as error:
        fields = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "physical_offset": message.physical_offset,
            "msg_id": message.msg_id,
            "born_timestamp": message.born_timestamp,
            "store_timestamp": message.store_timestamp,
            "reconsume_times": message.reconsume_times,
            "properties": message.properties,
            "body_packed_base64": base64.b64encode(message.raw_body).decode(),
            "problem": error.why or error.what,
        }
        return msgspec.json.encode(fields) + b"\n"

"""Turn many half records into their messages at once.

Lives here: ``CommitGroup``: collects half records and makes one append group of their messages and of op messages.

A half record of one of our clients differs from its message in five fields of the header and in its topic. So the
bytes before and after the topic are joined as they are, and the fields are written into all messages together. Target
and tags are looked up by the properties after the unique id, which are the same for all messages of one queue with the
same tags. Any other record goes through ``HalfRecords``, with the same result.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pocketmq.broker.transaction.transaction_records import REMEMBERED_BYTES_MAX, HalfRecords
from pocketmq.common.record import (
    HOST_V6_BYTES,
    HOSTS_V6_MASK,
    MAGIC_V1,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    body_at,
)
from pocketmq.common.record_columns import Bytes, Int64s, starts_of, windows
from pocketmq.common.record_group import (
    UNIQ_KEY_BYTES,
    UNIQ_PREFIX,
    UNIQ_PROPERTY_BYTES,
    GroupSection,
    RecordGroup,
    RecordMeta,
    cut_keys,
    uniq_key_rows,
)
from pocketmq.common.topics import HALF_TOPIC

COLUMNS_MIN: Final = 24
"""With fewer messages than this, writing their headers one by one is faster."""
TAILS_MAX: Final = 4096
_TOPIC: Final = len(HALF_TOPIC).to_bytes(1, "big") + HALF_TOPIC.encode()
_MAGIC_V1: Final = MAGIC_V1.to_bytes(4, "big")
_SYS_FLAG_LOW_AT: Final = SYS_FLAG_AT + 3
_OTHER_FLAGS: Final = 0xFF & ~TRANSACTION_MASK
_PREPARED_BYTES: Final = 12
"""From the prepared offset to the body: the offset itself, and the length of the body."""
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")


class _Tail(NamedTuple):
    """Target and tags, from the properties after the unique id."""

    topic: str
    topic_field: bytes
    queue_id: int
    tags_code: int


class CommitTails:
    """Properties seen in earlier groups. Belongs to one thread."""

    def __init__(self, records: HalfRecords) -> None:
        self.records = records
        self.known: dict[bytes, _Tail] = {}

    def learn(self, tail: bytes, meta: RecordMeta) -> None:
        """Remember the target and tags of a record with these properties, if they alone decide them."""
        if len(tail) > REMEMBERED_BYTES_MAX or b"UNIQ_KEY\x01" in tail or b"KEYS\x01" in tail:
            return
        if len(self.known) >= TAILS_MAX:
            self.known.clear()
        name = meta.topic.encode()
        self.known[tail] = _Tail(meta.topic, len(name).to_bytes(1, "big") + name, meta.queue_id, meta.tags_code)


class CommitGroup:
    """The messages of one append. ``add`` them, then ``group``."""

    def __init__(self, tails: CommitTails, store_host: bytes) -> None:
        self._tails = tails
        self._host_bits = HOSTS_V6_MASK if len(store_host) == HOST_V6_BYTES else 0
        self._body_at = body_at(self._host_bits)
        self._parts: list[bytes] = []
        self._sizes: list[int] = []
        self._unwritten: list[int] = []
        """Messages that still have the header of the half record."""
        self._queue_ids: list[int] = []
        self._prepared: list[int] = []
        self._tags_codes: list[int] = []
        self._uniq_keys: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._sections: list[GroupSection] = []
        self._last: tuple[str, int] | None = None

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages."""
        return sum(self._sizes)

    def add(self, record: bytes, physical_offset: int) -> None:
        """Add the message of the half record at ``physical_offset``. Raises ``HalfIllegal``, ``CorruptRecord``, and
        adds nothing then.
        """
        body = self._body_at
        body_end = body + int.from_bytes(record[body - 4 : body], "big")
        topic_end = body_end + len(_TOPIC)
        properties = topic_end + 2
        uniq_start = properties + len(UNIQ_PREFIX)
        tail_start = properties + UNIQ_PROPERTY_BYTES
        uniq_key = record[uniq_start : tail_start - 1]
        if not (
            record[body_end:topic_end] == _TOPIC
            and record[properties:uniq_start] == UNIQ_PREFIX
            and record[tail_start - 1 : tail_start] == b"\x02"
            and uniq_key.isalnum()
            and int.from_bytes(record[topic_end:properties], "big") == len(record) - properties
            and record[4:8] == _MAGIC_V1
            and record[_SYS_FLAG_LOW_AT] & HOSTS_V6_MASK == self._host_bits
        ):
            self._add_slowly(record, physical_offset)
            return
        tail = record[tail_start:]
        known = self._tails.known.get(tail)
        keys: bytes | None = None
        if known is None:
            cut = cut_keys(tail)
            if cut is not None:  # most messages have keys of their own
                tail, keys = cut
                known = self._tails.known.get(tail)
        if known is None:
            self._tails.learn(tail, self._add_slowly(record, physical_offset))
            return
        topic, topic_field, queue_id, tags_code = known
        self._parts += (record[:body_end], topic_field, record[topic_end:])
        self._unwritten.append(len(self._sizes))
        self._note(len(record) - len(_TOPIC) + len(topic_field), topic, queue_id, tags_code, uniq_key, keys)
        self._prepared.append(physical_offset)

    def _add_slowly(self, record: bytes, physical_offset: int) -> RecordMeta:
        message, meta = self._tails.records.committed(record, physical_offset)
        self._parts.append(message)
        self._note(len(message), meta.topic, meta.queue_id, meta.tags_code, meta.uniq_key, meta.keys or None)
        self._prepared.append(physical_offset)
        return meta

    def _note(self, size: int, topic: str, queue_id: int, tags_code: int, uniq_key: bytes, keys: bytes | None) -> None:
        queue = (topic, queue_id)
        if queue == self._last:
            self._sections[-1].count += 1
        else:
            self._sections.append(GroupSection(topic, queue_id, len(self._sizes), 1))
            self._last = queue
        self._sizes.append(size)
        self._queue_ids.append(queue_id)
        self._tags_codes.append(tags_code)
        self._uniq_keys.append(uniq_key)
        self._keys.append(keys)

    def group(self, ops: Sequence[tuple[bytes, RecordMeta]]) -> RecordGroup:
        """Return the group: the messages, then ``ops``, which are op messages: without unique id and keys."""
        count = len(self._sizes)
        parts = self._parts + [record for record, _ in ops]
        sizes = np.array(self._sizes + [len(record) for record, _ in ops], np.int64)
        starts = starts_of(sizes)
        buffer = np.frombuffer(bytearray().join(parts), np.uint8)
        if len(self._unwritten) < COLUMNS_MIN:
            self._write_each(buffer, starts.tolist())
        else:
            self._write_all(buffer, starts)
        sections = list(self._sections)
        if ops:
            sections.append(GroupSection(ops[0][1].topic, ops[0][1].queue_id, count, len(ops)))
        joined = b"".join(self._uniq_keys)
        if len(joined) == count * UNIQ_KEY_BYTES and joined.isalnum() and self._uniform_keys():
            uniq_keys = np.zeros((count + len(ops), UNIQ_KEY_BYTES), np.uint8)
            if count:
                uniq_keys[:count] = np.frombuffer(joined, np.uint8).reshape(-1, UNIQ_KEY_BYTES)
            others: dict[int, bytes] = {}
            rows = uniq_keys if count else None
        else:
            rows, others = uniq_key_rows(self._uniq_keys + [b""] * len(ops))
        keys = self._keys + [None] * len(ops) if any(self._keys) else None
        tags_codes = np.array(self._tags_codes + [meta.tags_code for _, meta in ops], np.int64)
        return RecordGroup(buffer, starts, sizes, tags_codes, sections, rows, keys, others)

    def _uniform_keys(self) -> bool:
        return all(len(key) == UNIQ_KEY_BYTES for key in self._uniq_keys)

    def _write_each(self, buffer: Bytes, starts: list[int]) -> None:
        view = buffer.data
        for row in self._unwritten:
            start = starts[row]
            _U32.pack_into(view, start, self._sizes[row])
            _U32.pack_into(view, start + QUEUE_ID_AT, self._queue_ids[row])
            view[start + _SYS_FLAG_LOW_AT] = view[start + _SYS_FLAG_LOW_AT] & _OTHER_FLAGS | TRANSACTION_COMMIT
            _I64.pack_into(view, start + self._body_at - _PREPARED_BYTES, self._prepared[row])

    def _write_all(self, buffer: Bytes, starts: Int64s) -> None:
        sizes = np.array(self._sizes, ">u4").view("V4")
        queue_ids = np.array(self._queue_ids, ">u4").view("V4")
        prepared = np.array(self._prepared, ">i8").view("V8")
        starts = starts[: len(self._sizes)]
        if len(self._unwritten) < len(self._sizes):
            rows = np.array(self._unwritten, np.int64)
            starts, sizes, queue_ids, prepared = starts[rows], sizes[rows], queue_ids[rows], prepared[rows]
        words = windows(buffer, 4)
        words[starts] = sizes
        words[starts + QUEUE_ID_AT] = queue_ids
        at = starts + _SYS_FLAG_LOW_AT
        buffer[at] = buffer[at] & _OTHER_FLAGS | TRANSACTION_COMMIT
        windows(buffer, 8)[starts + (self._body_at - _PREPARED_BYTES)] = prepared

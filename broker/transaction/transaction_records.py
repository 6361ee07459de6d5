"""The records of transactions: those made from half messages, and the op messages that end them.

Lives here: a half record turned into the committed, given-up or checked message; op messages, written and read.

A committed record is the half one with its own topic and queue, transaction type COMMIT and the half message's physical
offset as prepared offset; flag, body, CRC, born time and all properties stay, REAL_TOPIC, REAL_QID and TRAN_MSG among
them, as RocketMQ's EndTransactionProcessor does. So the unique id stays, too.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pocketmq.common.errors import PocketMQError
from pocketmq.common.record import (
    HOST_V6_BYTES,
    KEYS,
    MAGIC_V1,
    REAL_QID,
    REAL_TOPIC,
    RECORD_BYTES_MIN,
    STORE_HOST_V6_FLAG,
    TAGS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    UNIQ_KEY,
    body_at,
    decode_properties,
    encode_properties,
)
from pocketmq.common.record_codec import decode_record, encode_record, record_spans
from pocketmq.common.record_group import RecordMeta, record_meta, tags_code_of
from pocketmq.common.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    check_topic_name,
    is_send_forbidden,
)

REMOVE_TAG: Final = "d"
"""Tag of an op message (RocketMQ TransactionalMessageUtil)."""
OP_BODY_BYTES_MAX: Final = 4096
"""RocketMQ 5.3's transactionOpMsgMaxSize."""
OFFSET_TEXT_BYTES_MAX: Final = 20
"""An offset as text, with its comma."""
TARGETS_MAX: Final = 4096
REMEMBERED_BYTES_MAX: Final = 1024
"""Longer tags and properties are not remembered: 4,096 of 32 KiB would take 128 MiB."""

_SIZE_MAGIC = struct.Struct(">II")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_OP_PROPERTIES: Final = encode_properties({TAGS: REMOVE_TAG})
_OP_META: Final = record_meta(OP_HALF_TOPIC, 0, 0, {TAGS: REMOVE_TAG})
_MAGIC_V1: Final = MAGIC_V1.to_bytes(4, "big")
_UNIQ_KEY, _KEYS, _TAGS, _REAL_TOPIC, _REAL_QID = (
    name.encode() + b"\x01" for name in (UNIQ_KEY, KEYS, TAGS, REAL_TOPIC, REAL_QID)
)


class HalfIllegal(Exception):
    """A half record that cannot become a message: its target is missing or forbidden."""


class HalfRecords:
    """Makes records from half records. ``store_host``: that of the store, 8 or 20 bytes. Belongs to one thread."""

    def __init__(self, store_host: bytes) -> None:
        self._store_host = store_host
        self._host_v6 = len(store_host) == HOST_V6_BYTES
        self._targets: dict[bytes, tuple[str, bytes]] = {}
        self._tags_codes: dict[bytes, int] = {}

    def committed(self, record: bytes, physical_offset: int) -> tuple[bytes, RecordMeta]:
        """Return the message of a committed transaction. Raises ``HalfIllegal``, ``CorruptRecord``."""
        at = _places(record)
        properties = record[at.properties :]
        topic, tail, queue_id = self._target(properties)
        tags = _value(properties, _TAGS)
        tags_code = self._tags_codes.get(tags)
        if tags_code is None:
            tags_code = tags_code_of(tags.decode("utf-8", "replace"))
            if len(self._tags_codes) >= TARGETS_MAX:
                self._tags_codes.clear()
            if len(tags) <= REMEMBERED_BYTES_MAX:
                self._tags_codes[tags] = tags_code
        meta = RecordMeta(
            topic, queue_id, tags_code, uniq_key=_value(properties, _UNIQ_KEY), keys=_value(properties, _KEYS)
        )
        return self._moved(record, at, topic, tail, queue_id, TRANSACTION_COMMIT, physical_offset), meta

    def given_up(self, record: bytes, physical_offset: int) -> tuple[bytes, RecordMeta]:
        """Return the record for ``TRANS_CHECK_MAX_TIME_TOPIC``, the topic of half messages without a decision. Its
        prepared offset is that of the half message.
        """
        return self._system(record, TRANS_CHECK_MAX_TIME_TOPIC, physical_offset)

    def half_again(self, record: bytes) -> tuple[bytes, RecordMeta]:
        """Return a given-up record as a half message again."""
        return self._system(record, HALF_TOPIC)

    def _system(self, record: bytes, topic: str, prepared_offset: int = 0) -> tuple[bytes, RecordMeta]:
        properties = decode_properties(record[_places(record).properties :])
        moved = self._moved(record, _places(record), topic, _tail(topic), 0, 0, prepared_offset)
        return moved, record_meta(topic, 0, 0, properties)

    def checked(self, record: bytes) -> bytes:
        """Return the record for a check: the half message under its own topic and queue, with its offsets."""
        at = _places(record)
        topic, tail, queue_id = self._target(record[at.properties :])
        return self._moved(record, at, topic, tail, queue_id, 0, 0)

    def target(self, record: bytes) -> tuple[str, int]:
        """Return the topic and queue that a half record is meant for. Raises ``HalfIllegal``, ``CorruptRecord``."""
        topic, _, queue_id = self._target(record[_places(record).properties :])
        return topic, queue_id

    def _target(self, properties: bytes) -> tuple[str, bytes, int]:
        """Return topic, its bytes with their length, queue id; names in the log are checked again."""
        topic_bytes, queue_text = _value(properties, _REAL_TOPIC), _value(properties, _REAL_QID)
        if not (queue_text.isdigit() and len(queue_text) <= 9):
            raise HalfIllegal(f"property {REAL_QID} is {queue_text[:40]!r}")
        known = self._targets.get(topic_bytes)
        if known is None:
            topic = topic_bytes.decode("utf-8", "replace")
            try:
                check_topic_name(topic)
            except PocketMQError as error:
                raise HalfIllegal(f"property {REAL_TOPIC}: {error.why}") from error
            if is_send_forbidden(topic):
                raise HalfIllegal(f"property {REAL_TOPIC} is {topic}, to which clients may not send")
            if len(self._targets) >= TARGETS_MAX:
                self._targets.clear()
            known = self._targets[topic_bytes] = (topic, _tail(topic))
        return *known, int(queue_text)

    def _moved(
        self,
        record: bytes,
        at: "_Places",
        topic: str,
        tail: bytes,
        queue_id: int,
        transaction_type: int,
        prepared_offset: int,
    ) -> bytes:
        if bool(record[39] & STORE_HOST_V6_FLAG) != self._host_v6:
            return self._other_family(record, topic, queue_id, transaction_type, prepared_offset)
        sys_flag = (_I32.unpack_from(record, 36)[0] & ~TRANSACTION_MASK) | transaction_type
        body, body_end, topic_end, _ = at
        return b"".join(
            (
                _SIZE_MAGIC.pack(body_end + len(tail) + len(record) - topic_end, MAGIC_V1),
                record[8:12],
                _I32.pack(queue_id),
                record[16:36],
                _I32.pack(sys_flag),
                record[40 : body - 12],
                _I64.pack(prepared_offset),
                record[body - 4 : body_end],
                tail,
                record[topic_end:],
            )
        )

    def _other_family(
        self, record: bytes, topic: str, queue_id: int, transaction_type: int, prepared_offset: int
    ) -> bytes:
        """Rebuild a record that was stored when this broker had an address of the other family."""
        old = decode_record(record)
        return encode_record(
            topic,
            old.body,
            queue_id=queue_id,
            properties=old.properties,
            flag=old.flag,
            sys_flag=(old.sys_flag & ~TRANSACTION_MASK) | transaction_type,
            born_timestamp=old.born_timestamp,
            born_host=old.born_host,
            store_timestamp=old.store_timestamp,
            store_host=self._store_host,
            queue_offset=old.queue_offset,
            physical_offset=old.physical_offset,
            reconsume_times=old.reconsume_times,
            prepared_offset=prepared_offset,
        )


class _Places(NamedTuple):
    """Where the parts of a record begin and end."""

    body: int
    body_end: int
    topic_end: int
    properties: int


def _places(record: bytes) -> _Places:
    """Return the parts of a whole record, all lengths checked. Raises ``CorruptRecord``."""
    if len(record) >= RECORD_BYTES_MIN and record[4:8] == _MAGIC_V1:
        body = body_at(record[39])
        if len(record) > body:
            body_end = body + int(_I32.unpack_from(record, body - 4)[0])
            if body <= body_end < len(record):
                topic_end = body_end + 1 + record[body_end]
                if int.from_bytes(record[topic_end : topic_end + 2], "big") + topic_end + 2 == len(record):
                    return _Places(body, body_end, topic_end, topic_end + 2)
    spans = record_spans(record)  # V2, or raises with the reason
    topic_end = spans.topic_start + spans.topic_length
    return _Places(spans.body_start, spans.body_start + spans.body_length, topic_end, topic_end + 2)


def _value(properties: bytes, name: bytes) -> bytes:
    """Return the value of the last property of this name (with its 0x01), or nothing."""
    at = properties.rfind(b"\x02" + name) + 1
    if at == 0 and not properties.startswith(name):
        return b""
    start = at + len(name)
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def _tail(topic: str) -> bytes:
    """Return a topic as a record holds it, with its length."""
    encoded = topic.encode()
    return len(encoded).to_bytes(1, "big") + encoded


def op_records(queue_offsets: Iterable[int], now_ms: int, host: bytes) -> list[tuple[bytes, RecordMeta]]:
    """Return the op messages that end these half messages: their offsets as text, separated by commas (RocketMQ 5.3; a
    single one reads as in 4.9), at most 4,096 bytes each.
    """
    return [
        (
            encode_record(
                OP_HALF_TOPIC,
                body,
                queue_id=0,
                properties=_OP_PROPERTIES,
                born_timestamp=now_ms,
                born_host=host,
                store_host=host,
            ),
            _OP_META,
        )
        for body in op_bodies(queue_offsets)
    ]


def op_bodies(queue_offsets: Iterable[int]) -> Iterator[bytes]:
    """Yield the bodies of op messages."""
    offsets = list(queue_offsets)
    if 0 < len(offsets) <= OP_BODY_BYTES_MAX // OFFSET_TEXT_BYTES_MAX:  # they fit into one
        yield ",".join(map(str, offsets)).encode()
        return
    body = bytearray()
    for offset in offsets:
        text = b"%d" % offset
        if body and len(body) + 1 + len(text) > OP_BODY_BYTES_MAX:
            yield bytes(body)
            body.clear()
        if body:
            body += b","
        body += text
    if body:
        yield bytes(body)


def parse_op(body: bytes) -> list[int]:
    """Return the half-queue offsets that an op message names, with or without a comma at the end; other texts are
    skipped.
    """
    return [int(part) for part in body.split(b",") if part.isdigit() and len(part) <= 18]

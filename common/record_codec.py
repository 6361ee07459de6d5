"""One record at a time: encode, decode, and the builder of the producer's hot path.

Lives here: the scalar codec of RocketMQ's commit-log record, V1 and V2, IPv4 and IPv6 hosts; ``PlainRecordBuilder``;
``build_alike``, which builds the plain records of many messages that are alike at once.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pocketmq.common.errors import CorruptRecord, MessageIllegal
from pocketmq.common.hashes import crc32
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.record import (
    BODY_AT,
    BORN_HOST_V6_FLAG,
    CLUSTER,
    CRC_MASK,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    HOST_V6_EXTRA,
    HOSTS_V6_MASK,
    KEYS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    RECORD_BYTES_MIN,
    SHARDING_KEY,
    STORE_HOST_V6_FLAG,
    TAGS,
    TOPIC_BYTES_V1_MAX,
    TOPIC_BYTES_V2_MAX,
    UNIQ_KEY,
    body_at,
    check_property,
    decode_properties,
    encode_text,
    is_plain_forbidden,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

_FIXED = struct.Struct(">3I2i2qiq")  # up to the born host, 48 bytes
_AFTER_HOSTS = struct.Struct(">iqi")  # reconsume times, prepared offset, body length
_SIZE_MAGIC = struct.Struct(">II")
_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_U16 = struct.Struct(">H")
# A client fills in sizes, magic, CRC, queue, flag, sysFlag, born time, body length; the broker patches the rest.
_RECEIVED_V4 = struct.Struct(">3Ii4xq8xi8x8x8x8x4x8xi")
"""Size, magic, CRC, queue id, queue offset, sysFlag and body length of a record whose hosts are both IPv4."""
_CLIENT_V4 = struct.Struct(">3I2i16xiq36xI")
_CLIENT_V6 = struct.Struct(">3I2i16xiq60xI")

_TEMPLATES_MAX: Final = 4096
_UNIQ_NAME: Final = b"UNIQ_KEY\x01"
_UNIQ_NAME_BYTES: Final = len(_UNIQ_NAME)
_UNIQ_KEY_BYTES: Final = 32


@dataclass(slots=True)
class Record:
    """One decoded record; ``properties`` is the raw string, hosts are 8 or 20 bytes, times are ms."""

    topic: str
    body: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    properties: bytes
    body_crc: int
    size: int

    def property_map(self) -> dict[str, str]:
        """Return the properties as pairs."""
        return decode_properties(self.properties)


def encode_record(
    topic: str,
    body: Buffer,
    *,
    queue_id: int,
    properties: bytes = b"",
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: bytes,
    store_timestamp: int = 0,
    store_host: bytes,
    queue_offset: int = 0,
    physical_offset: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> bytes:
    """Return a record. The sysFlag's host bits follow the hosts (8 or 20 bytes); V2 is used above 127 bytes of topic.

    ``properties`` is an encoded string. Raises ``MessageIllegal`` when something does not fit its field.
    """
    return encode_records(
        topic,
        ((flag, body, properties),),
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
    )[0]


def encode_records(
    topic: str,
    items: Iterable[tuple[int, Buffer, bytes]],
    *,
    queue_id: int,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: bytes,
    store_timestamp: int = 0,
    store_host: bytes,
    queue_offset: int = 0,
    physical_offset: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> list[bytes]:
    """Return the records of messages that differ in flag, body and encoded properties only; see ``encode_record``."""
    topic_bytes = encode_text(topic)
    if len(topic_bytes) > TOPIC_BYTES_V2_MAX:
        raise MessageIllegal("record refused", why=f"topic of {len(topic_bytes)} bytes, more than {TOPIC_BYTES_V2_MAX}")
    sys_flag &= ~HOSTS_V6_MASK
    for host, bit in ((born_host, BORN_HOST_V6_FLAG), (store_host, STORE_HOST_V6_FLAG)):
        if len(host) == HOST_V6_BYTES:
            sys_flag |= bit
        elif len(host) != HOST_V4_BYTES:
            raise MessageIllegal("record refused", why=f"host of {len(host)} bytes, not 8 or 20")
    v2 = len(topic_bytes) > TOPIC_BYTES_V1_MAX
    magic = MAGIC_V2 if v2 else MAGIC_V1
    topic_part = (_U16.pack(len(topic_bytes)) if v2 else len(topic_bytes).to_bytes(1, "big")) + topic_bytes
    other_bytes = body_at(sys_flag) + len(topic_part) + 2
    records: list[bytes] = []
    try:
        hosts = born_host + _I64.pack(store_timestamp) + store_host
        for flag, body, properties in items:
            if len(properties) > PROPERTIES_BYTES_MAX:
                raise MessageIllegal(
                    "record refused", why=f"properties of {len(properties)} bytes, more than {PROPERTIES_BYTES_MAX}"
                )
            body_bytes = len(body)
            records.append(
                b"".join(
                    (
                        _FIXED.pack(
                            other_bytes + body_bytes + len(properties),
                            magic,
                            crc32(body) & CRC_MASK,
                            queue_id,
                            flag,
                            queue_offset,
                            physical_offset,
                            sys_flag,
                            born_timestamp,
                        ),
                        hosts,
                        _AFTER_HOSTS.pack(reconsume_times, prepared_offset, body_bytes),
                        body,
                        topic_part,
                        _U16.pack(len(properties)),
                        properties,
                    )
                )
            )
    except struct.error as error:
        raise _unfit(error) from error
    return records


def _unfit(error: struct.error) -> MessageIllegal:
    return MessageIllegal("record refused", why=f"a number does not fit its field: {error}")


def is_blank_at(buffer: Buffer, at: int = 0) -> bool:
    """Return whether a segment's blank end starts here (needs 8 bytes)."""
    return len(buffer) - at >= 8 and _SIZE_MAGIC.unpack_from(buffer, at)[1] == MAGIC_BLANK


def record_size_at(buffer: Buffer, at: int = 0) -> int:
    """Return the size of the record that starts at ``at``; it may reach beyond the buffer.

    Raises ``CorruptRecord`` when fewer than 8 bytes are left, the magic is unknown (or blank), or the size impossible.
    """
    if len(buffer) - at < 8:
        raise _corrupt(at, f"{len(buffer) - at} bytes left, not even a size and a magic")
    size, magic = _SIZE_MAGIC.unpack_from(buffer, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _corrupt(at, f"magic 0x{magic:08X} is unknown")
    if not RECORD_BYTES_MIN <= size <= 0x7FFF_FFFF:
        raise _corrupt(at, f"size {size} is impossible")
    return int(size)


def _corrupt(at: int, why: str) -> CorruptRecord:
    return CorruptRecord("no record", why=f"at byte {at}: {why}")


@dataclass(slots=True)
class RecordSpans:
    """Where the parts of one record lie in its buffer."""

    size: int
    body_start: int
    body_length: int
    topic_start: int
    topic_length: int
    property_start: int
    property_length: int


def record_spans(buffer: Buffer, at: int = 0) -> RecordSpans:
    """Return where body, topic and properties of the record at ``at`` lie, all lengths checked against its size.

    Raises ``CorruptRecord`` when size, magic or lengths disagree, or the record is cut off.
    """
    size = record_size_at(buffer, at)
    end = at + size
    if end > len(buffer):
        raise _corrupt(at, f"size {size}, but only {len(buffer) - at} bytes are left")
    body_start = at + body_at(buffer[at + 39])
    if body_start + 3 > end:
        raise _corrupt(at, f"size {size} is below its own header")
    body_length = _I32.unpack_from(buffer, body_start - 4)[0]
    length_bytes = 1 if _SIZE_MAGIC.unpack_from(buffer, at)[1] == MAGIC_V1 else 2
    body_end = body_start + body_length
    if body_length < 0 or body_end + length_bytes + 2 > end:
        raise _corrupt(at, f"body of {body_length} bytes in a record of {size}")
    topic_length = buffer[body_end] if length_bytes == 1 else _U16.unpack_from(buffer, body_end)[0]
    topic_start = body_end + length_bytes
    topic_end = topic_start + topic_length
    if topic_length > (TOPIC_BYTES_V1_MAX if length_bytes == 1 else TOPIC_BYTES_V2_MAX) or topic_end + 2 > end:
        raise _corrupt(at, f"topic of {topic_length} bytes in a record of {size}")
    property_length = _U16.unpack_from(buffer, topic_end)[0]
    if property_length > PROPERTIES_BYTES_MAX or topic_end + 2 + property_length != end:
        raise _corrupt(at, f"properties of {property_length} bytes do not end at size {size}")
    return RecordSpans(size, body_start, body_length, topic_start, topic_length, topic_end + 2, property_length)


def decode_record(buffer: Buffer, at: int = 0, *, check_crc: bool = True) -> Record:
    """Return the record that starts at ``at``. Raises ``CorruptRecord`` when size, magic, lengths or CRC disagree."""
    spans = record_spans(buffer, at)
    _, _, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp = _FIXED.unpack_from(buffer, at)
    store_timestamp_at = at + 48 + (HOST_V6_BYTES if sys_flag & BORN_HOST_V6_FLAG else HOST_V4_BYTES)
    reconsume_times, prepared_offset, _ = _AFTER_HOSTS.unpack_from(buffer, spans.body_start - 16)
    body = bytes(buffer[spans.body_start : spans.body_start + spans.body_length])
    if check_crc and crc32(body) & CRC_MASK != crc:
        raise _corrupt(at, f"body CRC 0x{crc32(body) & CRC_MASK:08X}, the record says 0x{crc:08X}")
    return Record(
        topic=str(buffer[spans.topic_start : spans.topic_start + spans.topic_length], "utf-8", "replace"),
        body=body,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=bytes(buffer[at + 48 : store_timestamp_at]),
        store_timestamp=_I64.unpack_from(buffer, store_timestamp_at)[0],
        store_host=bytes(buffer[store_timestamp_at + 8 : spans.body_start - 16]),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        properties=bytes(buffer[spans.property_start : spans.property_start + spans.property_length]),
        body_crc=crc,
        size=spans.size,
    )


def received_message(record: bytes, broker_name: str, *, check_crc: bool = False) -> ReceivedMessage:
    """Return the message in ``record``, which is exactly one record. Raises ``CorruptRecord``."""
    total = len(record)
    if total >= RECORD_BYTES_MIN:  # the usual record, at once; every other one, and what is wrong, below
        size, magic, crc, queue_id, queue_offset, sys_flag, body_length = _RECEIVED_V4.unpack_from(record)
        topic_at = BODY_AT + body_length + 1
        if (
            size == total
            and magic == MAGIC_V1
            and not (sys_flag & HOSTS_V6_MASK or check_crc)
            and BODY_AT < topic_at <= total - 2
        ):
            topic_end = topic_at + record[topic_at - 1]
            if topic_end <= min(topic_at + TOPIC_BYTES_V1_MAX, total - 2) and (
                record[topic_end] << 8 | record[topic_end + 1] == total - topic_end - 2 <= PROPERTIES_BYTES_MAX
            ):
                topic = record[topic_at:topic_end].decode("utf-8", "replace")
                return ReceivedMessage(record, broker_name, topic, queue_id, queue_offset, BODY_AT, topic_end + 2)
    spans = record_spans(record)
    if spans.size != len(record):
        raise _corrupt(0, f"size {spans.size} in {len(record)} bytes")
    body_start = spans.body_start
    if check_crc:
        crc = crc32(record[body_start : body_start + spans.body_length]) & CRC_MASK
        if crc != _SIZE_MAGIC.unpack_from(record, 4)[1]:
            raise _corrupt(0, f"body CRC 0x{crc:08X} differs from the record's")
    topic = record[spans.topic_start : spans.topic_start + spans.topic_length].decode("utf-8", "replace")
    queue_id = _I32.unpack_from(record, 12)[0]
    queue_offset = _I64.unpack_from(record, 20)[0]
    return ReceivedMessage(record, broker_name, topic, queue_id, queue_offset, body_start, spans.property_start)


class PlainRecordBuilder:
    """Builds the plain records of a native append from messages. One per broker cluster; not for several threads.

    The broker fills in queue offset, physical offset, store time and both hosts, so they are zero here. Properties are
    in the order UNIQ_KEY, TAGS, KEYS, CLUSTER, others. Keeps the constant bytes of ``_TEMPLATES_MAX`` (topic, tags).
    """

    __slots__ = (
        "_cluster",
        "_cluster_property",
        "_fixed",
        "_header",
        "_templates",
        "family",
        "header_format",
        "host_bits",
        "pack_header",
    )

    def __init__(self, cluster: str, family: int = 4) -> None:
        """``cluster``: name of the broker's cluster; ``family``: 4 or 6, the host family the broker announced."""
        check_property(CLUSTER, cluster)
        self.family = family
        self._cluster = cluster
        self._cluster_property = encode_text(f"{CLUSTER}\x01{cluster}\x02")
        client = _CLIENT_V6 if family == 6 else _CLIENT_V4
        self.pack_header = client.pack
        self.header_format = client.format
        self._header = BODY_AT + (2 * HOST_V6_EXTRA if family == 6 else 0)
        self.host_bits = HOSTS_V6_MASK if family == 6 else 0
        self._templates: dict[tuple[str, str], tuple[bytes, bytes, int]] = {}

    def build(
        self,
        message: Message,
        queue_id: int,
        uniq_key: bytes,
        born_timestamp_ms: int,
        sys_flag: int = 0,
        body: bytes | None = None,
    ) -> bytes:
        """Return the plain record of ``message``; ``body`` replaces the message's own or what it was packed into.

        ``uniq_key``: 32 ASCII bytes on the fast path, others are allowed. Raises ``MessageIllegal`` for a topic over
        127 bytes, properties that are too long, forbidden in plain records or hold a separator, numbers out of range,
        and for a message with a delay level, which is not plain.
        """
        if body is None:
            body = message.body
            packed = message.packed
            if packed is not None and packed[0] is body:
                sys_flag |= packed[1]
                body = packed[2]
        if (
            message.properties
            or message.delay_time_level
            or message.delay_time_ms is not None
            or message.deliver_time_ms is not None
            or len(uniq_key) != _UNIQ_KEY_BYTES
        ):
            return self._build_slowly(message, queue_id, uniq_key, born_timestamp_ms, sys_flag, body)
        before, after, size = self._templates.get((message.topic, message.tags)) or self.frame_of(
            message.topic, message.tags
        )
        if message.keys or message.sharding_key:
            keys = self._keys(message) if message.keys else b""
            order = self._sharding_key(message.sharding_key) if message.sharding_key else b""
            at = len(before) - _UNIQ_NAME_BYTES
            properties = len(after) + len(keys) + len(order) + _UNIQ_NAME_BYTES + _UNIQ_KEY_BYTES
            self._check_length(properties)
            before = before[: at - 2] + _U16.pack(properties) + _UNIQ_NAME
            at = len(after) - len(self._cluster_property)
            after = after[:at] + keys + after[at:] + order
            size += len(keys) + len(order)
        length = len(body)
        try:
            header = self.pack_header(
                size + length,
                MAGIC_V1,
                crc32(body) & CRC_MASK,
                queue_id,
                message.flag,
                sys_flag | self.host_bits,
                born_timestamp_ms,
                length,
            )
        except struct.error as error:
            raise _unfit(error) from error
        return b"".join((header, body, before, uniq_key, after))

    def _topic(self, topic: str) -> bytes:
        """Return the length byte and the topic."""
        encoded = encode_text(topic)
        if len(encoded) > TOPIC_BYTES_V1_MAX:
            raise MessageIllegal(
                "message refused", why=f"topic of {len(encoded)} bytes, more than {TOPIC_BYTES_V1_MAX}"
            )
        return len(encoded).to_bytes(1, "big") + encoded

    def frame_of(self, topic: str, tags: str) -> tuple[bytes, bytes, int]:
        """Return (bytes between body and UNIQ_KEY value, bytes after it, record size without body)."""
        known = self._templates.get((topic, tags))
        if known is not None:
            return known
        after = b"\x02" + self._tags(tags) + self._cluster_property
        properties = _UNIQ_NAME_BYTES + _UNIQ_KEY_BYTES + len(after)
        self._check_length(properties)
        before = self._topic(topic) + _U16.pack(properties) + _UNIQ_NAME
        template = before, after, self._header + len(before) + _UNIQ_KEY_BYTES + len(after)
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        self._templates[topic, tags] = template
        return template

    def _tags(self, tags: str) -> bytes:
        if not tags:
            return b""
        check_property(TAGS, tags)
        return encode_text(f"{TAGS}\x01{tags}\x02")

    def _keys(self, message: Message) -> bytes:
        """Return the property KEYS, or nothing for a message without keys."""
        keys = message.keys
        if not isinstance(keys, str):
            keys = " ".join(keys)
        if not keys:
            return b""
        if "\x01" in keys or "\x02" in keys:
            check_property(KEYS, keys)
        return encode_text("KEYS\x01" + keys + "\x02")

    @staticmethod
    def _sharding_key(sharding_key: str) -> bytes:
        check_property(SHARDING_KEY, sharding_key)
        return encode_text(f"{SHARDING_KEY}\x01{sharding_key}\x02")

    def _check_length(self, properties_bytes: int) -> None:
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise MessageIllegal(
                "message refused", why=f"properties of {properties_bytes} bytes, more than {PROPERTIES_BYTES_MAX}"
            )

    def _build_slowly(
        self, message: Message, queue_id: int, uniq_key: bytes, born_timestamp_ms: int, sys_flag: int, body: bytes
    ) -> bytes:
        """Build a record with user properties or a UNIQ_KEY of another length."""
        if message.delay_time_level or message.is_timed:
            raise MessageIllegal(
                "message refused", why="a delayed message is no plain record", hint="send it as a typed SEND_MESSAGE"
            )
        parts = [_UNIQ_NAME, uniq_key, b"\x02"] if uniq_key else []
        parts.append(self._tags(message.tags))
        parts.append(self._keys(message))
        parts.append(self._cluster_property)
        if message.sharding_key:
            parts.append(self._sharding_key(message.sharding_key))
        if message.properties:
            parts.append(self._others(message.properties, message))
        properties = b"".join(parts)
        self._check_length(len(properties))
        topic = self._topic(message.topic)
        length = len(body)
        try:
            header = self.pack_header(
                self._header + length + len(topic) + 2 + len(properties),
                MAGIC_V1,
                crc32(body) & CRC_MASK,
                queue_id,
                message.flag,
                sys_flag | self.host_bits,
                born_timestamp_ms,
                length,
            )
        except struct.error as error:
            raise _unfit(error) from error
        return b"".join((header, body, topic, _U16.pack(len(properties)), properties))

    def _others(self, properties: Mapping[str, str], message: Message) -> bytes:
        """Return the user's properties; those that ``Message`` has as fields are refused: two values would compete."""
        parts: list[str] = []
        for name, value in properties.items():
            check_property(name, value)
            if name in (UNIQ_KEY, TAGS, KEYS, CLUSTER) or (name == SHARDING_KEY and message.sharding_key):
                raise MessageIllegal(
                    "message refused", why=f"property {name} is set by PocketMQ", hint="use Message's own field"
                )
            if is_plain_forbidden(name):
                raise MessageIllegal(
                    "message refused", why=f"property {name} is not plain", hint="send it as a typed SEND_MESSAGE"
                )
            parts.append(f"{name}\x01{value}\x02")
        return encode_text("".join(parts))


def side_by_side(*columns: "NDArray[np.uint8]") -> memoryview:
    """Return records of one size back to back: the rows of a matrix.

    ``columns``: the parts of a row. A part of one dimension is the same in all rows; the first one has two.
    """
    import numpy as np

    rows = np.empty((len(columns[0]), sum(column.shape[-1] for column in columns)), np.uint8)
    at = 0
    for column in columns:
        rows[:, at : at + column.shape[-1]] = column
        at += column.shape[-1]
    return rows.reshape(-1).data


def build_alike(
    builder: PlainRecordBuilder,
    topic: str,
    tags: str,
    bodies: Sequence[bytes],
    queue_id: int,
    ids: "NDArray[np.uint8]",
    born_ms: int,
) -> "tuple[NDArray[Any], bytes | memoryview]":
    """Return the sizes (>u4) and the bytes of the records of these bodies. ``ids``: a row of 32 ASCII bytes each.

    0.49 µs a record of 100 bytes, its id included, where ``PlainRecordBuilder.build`` takes 0.70; 0.13 less where all
    bodies have one length. Raises what that raises.
    """
    import numpy as np

    from pocketmq.common.record import HEADER_V4, HEADER_V6

    count = len(bodies)
    before, after, fixed_bytes = builder.frame_of(topic, tags)
    header_type = HEADER_V6 if builder.family == 6 else HEADER_V4
    header = np.zeros(count, header_type)
    lengths = np.fromiter(map(len, bodies), np.int64, count)
    sizes = (lengths + fixed_bytes).astype(">u4")
    header["total_size"] = sizes
    header["magic"] = MAGIC_V1
    header["body_crc"] = np.fromiter(map(crc32, bodies), np.uint32, count) & np.uint32(CRC_MASK)
    header["queue_id"] = queue_id
    header["sys_flag"] = HOSTS_V6_MASK if builder.family == 6 else 0
    header["born_timestamp"] = born_ms
    header["body_length"] = lengths
    width = ids.shape[1]
    if int(lengths.min()) == int(lengths.max()):
        heads = header.view(np.uint8).reshape(count, header_type.itemsize)
        same = np.frombuffer(b"".join(bodies), np.uint8).reshape(count, -1)
        return sizes, side_by_side(heads, same, np.frombuffer(before, np.uint8), ids, np.frombuffer(after, np.uint8))
    ends = np.empty((count, len(before) + width + len(after)), np.uint8)
    ends[:, : len(before)] = np.frombuffer(before, np.uint8)
    ends[:, len(before) : len(before) + width] = ids
    ends[:, len(before) + width :] = np.frombuffer(after, np.uint8)
    parts: list[bytes] = [b""] * (3 * count)
    parts[0::3] = header.view(f"V{header_type.itemsize}").tolist()
    parts[1::3] = bodies
    parts[2::3] = ends.view(f"V{ends.shape[1]}")[:, 0].tolist()
    return sizes, b"".join(parts)

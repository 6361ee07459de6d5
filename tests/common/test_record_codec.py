"""The scalar record codec and the producer's builder."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import CorruptRecord, MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    body_at,
    decode_properties,
    encode_host,
    host_text,
    parse_host,
)
from pocketmq.common.record_codec import (
    PlainRecordBuilder,
    build_alike,
    decode_record,
    encode_record,
    is_blank_at,
    received_message,
    record_size_at,
    record_spans,
)

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOST = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
TOPIC = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=130),
    st.integers(120, 260).map(lambda count: "t" * count),
)
FIELDS = st.fixed_dictionaries(
    {
        "queue_id": I32,
        "properties": st.binary(max_size=60),
        "flag": I32,
        "sys_flag": st.integers(0, 0xFFF),
        "born_timestamp": I64,
        "born_host": HOST,
        "store_timestamp": I64,
        "store_host": HOST,
        "queue_offset": I64,
        "physical_offset": I64,
        "reconsume_times": I32,
        "prepared_offset": I64,
    }
)


@given(TOPIC, st.binary(max_size=300), FIELDS, st.binary(max_size=5))
def test_decoded_is_what_was_encoded(topic: str, body: bytes, fields: dict[str, Any], before: bytes) -> None:
    """Every field survives, V1 and V2, IPv4 and IPv6, anywhere in a buffer."""
    data = encode_record(topic, body, **fields)
    record = decode_record(before + data + b"rest", len(before))
    assert record.topic == topic
    assert record.body == body
    assert record.size == len(data)
    assert record.body_crc == zlib.crc32(body) & 0x7FFFFFFF
    v6 = (0x10 if len(fields["born_host"]) == 20 else 0) | (0x20 if len(fields["store_host"]) == 20 else 0)
    assert record.sys_flag == fields["sys_flag"] & ~0x30 | v6
    for name in fields.keys() - {"sys_flag"}:
        assert getattr(record, name) == fields[name], name
    assert struct.unpack_from(">I", data, 4)[0] == (MAGIC_V2 if len(topic.encode()) > 127 else MAGIC_V1)
    assert body_at(record.sys_flag) == data.index(len(body).to_bytes(4, "big") + body, 80) + 4 or not body


def test_a_record_byte_by_byte() -> None:
    """The layout of RocketMQ's CommitLog, drawn by hand."""
    data = encode_record(
        "T",
        b"hi",
        queue_id=3,
        properties=b"a\x01b\x02",
        flag=7,
        sys_flag=2,
        born_timestamp=0x0102,
        born_host=encode_host("1.2.3.4", 80),
        store_timestamp=0x0304,
        store_host=encode_host("5.6.7.8", 10911),
        queue_offset=9,
        physical_offset=10,
        reconsume_times=11,
        prepared_offset=12,
    )
    assert data.hex(" ", 4) == bytes.fromhex(
        "00000062 daa320a7 58932aac 00000003 00000007 0000000000000009 000000000000000a 00000002"
        "0000000000000102 01020304 00000050 0000000000000304 05060708 00002a9f 0000000b 000000000000000c"
        "00000002 6869 01 54 0004 61016202"
    ).hex(" ", 4)


@given(TOPIC, st.binary(max_size=40), FIELDS, st.data())
def test_a_cut_record_is_refused(topic: str, body: bytes, fields: dict[str, Any], data: st.DataObject) -> None:
    """Any truncation raises ``CorruptRecord`` and no other error."""
    whole = encode_record(topic, body, **fields)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CorruptRecord):
        decode_record(cut)


@given(st.binary(max_size=300), st.booleans())
def test_garbage_is_refused(garbage: bytes, with_magic: bool) -> None:
    """Random bytes, even behind a correct size and magic, raise ``CorruptRecord`` and no other error."""
    if with_magic:
        garbage = struct.pack(">II", len(garbage) + 8, MAGIC_V1) + garbage
    with pytest.raises(CorruptRecord):
        decode_record(garbage)


@given(TOPIC, st.binary(max_size=60), FIELDS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_a_received_message_is_read_as_its_spans_say(
    topic: str, body: bytes, fields: dict[str, Any], changes: list[tuple[int, int]]
) -> None:
    """The usual record is read at once; with any bytes changed the result, or the refusal, is the same."""
    record = bytearray(encode_record(topic, body, **fields))
    for at, value in changes:
        record[at % len(record)] = value
    data = bytes(record)
    try:
        spans = record_spans(data)
    except CorruptRecord:
        with pytest.raises(CorruptRecord):
            received_message(data, "b")
        return
    if spans.size != len(data):
        with pytest.raises(CorruptRecord):
            received_message(data, "b")
        return
    message = received_message(data, "b")
    topic_bytes = data[spans.topic_start : spans.topic_start + spans.topic_length]
    assert message.topic == topic_bytes.decode("utf-8", "replace")
    assert (message._body_at, message._properties_at) == (spans.body_start, spans.property_start)
    assert message.queue_id == int.from_bytes(data[12:16], "big", signed=True)
    assert message.queue_offset == int.from_bytes(data[20:28], "big", signed=True)


def test_a_body_without_its_crc_is_refused() -> None:
    """Unless the caller skips the check."""
    data = bytearray(encode_record("T", b"body", queue_id=0, born_host=bytes(8), store_host=bytes(8)))
    data[88] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_record(data)
    assert decode_record(data, check_crc=False).body == b"cody"
    with pytest.raises(CorruptRecord, match="CRC"):
        received_message(bytes(data), "b", check_crc=True)


def test_sizes_and_blanks() -> None:
    """Sizes are read without decoding the record; a blank is no record."""
    data = encode_record("T", b"body", queue_id=0, born_host=bytes(8), store_host=bytes(8))
    assert record_size_at(b"x" + data[:8], 1) == len(data)
    blank = struct.pack(">II", 4096, MAGIC_BLANK)
    assert is_blank_at(blank)
    assert not is_blank_at(data)
    assert not is_blank_at(blank[:7])
    for bad in (blank, b"", data[:7], struct.pack(">II", 90, MAGIC_V1), struct.pack(">II", 1 << 31, MAGIC_V1)):
        with pytest.raises(CorruptRecord):
            record_size_at(bad)
    spans = record_spans(data)
    assert data[spans.topic_start : spans.topic_start + spans.topic_length] == b"T"


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "t" * 32768},
        {"topic": "\udc00"},
        {"properties": bytes(32768)},
        {"born_host": b"123"},
        {"queue_id": 1 << 31},
        {"store_timestamp": 1 << 63},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    """Lengths and numbers too large for their fields raise ``MessageIllegal``."""
    fields: dict[str, Any] = {"topic": "t", "body": b"", "queue_id": 0, "born_host": bytes(8), "store_host": bytes(8)}
    with pytest.raises(MessageIllegal):
        encode_record(**fields | changes)


@pytest.mark.parametrize("family", [4, 6])
@given(
    tags=st.sampled_from(["", "TagA", "é"]),
    keys=st.sampled_from([(), "k1", ["k1", "k2"], [""]]),
    user=st.sampled_from([None, {}, {"a": "b", "ü": "ö"}]),
    sharding_key=st.sampled_from([None, "s"]),
    uniq_key=st.sampled_from([b"0" * 32, b"A" * 56, b""]),
    body=st.binary(max_size=40),
)
def test_the_builder_makes_what_the_codec_makes(
    family: int,
    tags: str,
    keys: Any,
    user: dict[str, str] | None,
    sharding_key: str | None,
    uniq_key: bytes,
    body: bytes,
) -> None:
    """Fast and slow path give the bytes of ``encode_record``, with the broker's fields zero."""
    message = Message("Topic", body, tags=tags, keys=keys, properties=user, sharding_key=sharding_key, flag=-5)
    built = PlainRecordBuilder("c", family).build(message, 7, uniq_key, 1_700_000_000_000, 0x2)
    record = decode_record(built)
    host = bytes(20 if family == 6 else 8)
    again = encode_record(
        "Topic",
        body,
        queue_id=7,
        properties=record.properties,
        flag=-5,
        sys_flag=2,
        born_timestamp=1_700_000_000_000,
        born_host=host,
        store_host=host,
    )
    assert built == again
    expected = {"UNIQ_KEY": uniq_key.decode(), "TAGS": tags, "KEYS": message.keys_text, "CLUSTER": "c"}
    expected |= {"__SHARDINGKEY": sharding_key or ""} | (user or {})
    assert decode_properties(record.properties) == {name: value for name, value in expected.items() if value}
    order = [name for name in decode_properties(record.properties) if name in ("UNIQ_KEY", "TAGS", "KEYS", "CLUSTER")]
    assert order == [name for name in ("UNIQ_KEY", "TAGS", "KEYS", "CLUSTER") if expected[name]]


@pytest.mark.parametrize(
    "message",
    [
        Message("t" * 128, b""),
        Message("t", b"", tags="a\x02b"),
        Message("t", b"", keys="a\x01b"),
        Message("t", b"", properties={"WAIT": "true"}),
        Message("t", b"", properties={"TIMER_DELAY_MS": "1"}),
        Message("t", b"", properties={"UNIQ_KEY": "1"}),
        Message("t", b"", properties={"CLUSTER": "other"}),
        Message("t", b"", properties={"n": ""}),
        Message("t", b"", properties={"n": "x" * 32767}),
        Message("t", b"", keys="x" * 32767),
        Message("t", b"", delay_time_level=1),
        Message("t", b"", flag=1 << 31),
        Message("\ud800", b""),
        Message("t", b"", sharding_key="a\x02"),
    ],
)
def test_the_builder_refuses_what_is_not_plain(message: Message) -> None:
    """The builder makes no record that the broker would refuse or read differently."""
    with pytest.raises(MessageIllegal):
        PlainRecordBuilder("c").build(message, 0, b"0" * 32, 0)


def test_the_builder_takes_a_compressed_body() -> None:
    """The given body replaces the message's own."""
    built = PlainRecordBuilder("c").build(Message("t", b"long" * 100), 0, b"0" * 32, 0, 1, zlib.compress(b"long" * 100))
    assert received_message(built, "b").body == b"long" * 100


def test_the_builder_forgets_templates_when_full() -> None:
    """Many topics do not make it grow without bound."""
    builder = PlainRecordBuilder("c")
    for number in range(5000):
        builder.build(Message(f"t{number}", b""), 0, b"0" * 32, 0)
    assert len(builder._templates) <= 4096


@pytest.mark.parametrize(("address", "text"), [("1.2.3.4", "1.2.3.4:80"), ("::1", "[::1]:80")])
def test_hosts_as_bytes_and_text(address: str, text: str) -> None:
    """The hosts are IPv4 and IPv6."""
    host = encode_host(address, 80)
    assert parse_host(host) == (address, 80)
    assert host_text(host) == text


def test_bad_hosts_are_refused() -> None:
    """Host names and other lengths are refused."""
    with pytest.raises(MessageIllegal):
        encode_host("localhost", 80)
    with pytest.raises(MessageIllegal):
        parse_host(b"123")


# ---- many similar messages


def bodies_of(bytes_min: int, bytes_max: int) -> Any:
    return st.lists(st.binary(min_size=bytes_min, max_size=bytes_max), min_size=1, max_size=40)


@given(
    bodies_of(1, 300) | st.integers(1, 300).flatmap(lambda length: bodies_of(length, length)),
    st.sampled_from(["", "A", "tag-\u00f6"]),
    st.sampled_from([4, 6]),
    st.integers(0, 1 << 30),
)
def test_together_as_one_by_one(bodies: list[bytes], tags: str, family: int, queue_id: int) -> None:
    """They equal byte for byte, with and without tags, in both host families."""
    builder = PlainRecordBuilder("cluster", family)
    ids = UniqueIdGenerator(ManualClock(), pid=1, instance=2).next_rows(len(bodies))
    expected = [
        builder.build(Message("Topic", body, tags=tags), queue_id, key.tobytes(), 77)
        for body, key in zip(bodies, ids, strict=True)
    ]
    sizes, data = build_alike(builder, "Topic", tags, bodies, queue_id, ids, 77)
    assert data == b"".join(expected)
    assert sizes.tolist() == [len(record) for record in expected]


@pytest.mark.parametrize(("topic", "tags"), [("T" * 128, ""), ("T", "a\x01b")])
def test_what_one_record_refuses_all_refuse(topic: str, tags: str) -> None:
    """A long topic or a separator in the tags refuses all."""
    ids: Any = np.zeros((1, 32), np.uint8)
    with pytest.raises(MessageIllegal):
        build_alike(PlainRecordBuilder("cluster"), topic, tags, [b"x"], 0, ids, 1)

"""Columns agree with the scalar reader for any records."""

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.arrow.arrow import (
    COLUMNS,
    OPTIONAL_COLUMNS,
    ColumnUnknown,
    check_columns,
    concat_batches,
    empty_batch,
    records_to_arrow,
)
from pocketmq.client.message.validation import is_users_own
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.message import Message
from pocketmq.common.record import COMPRESSED_FLAG, encode_host
from pocketmq.common.record_codec import PlainRecordBuilder, encode_record
from pocketmq.common.record_columns import received_messages

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=40)
PAIRS = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "a", "__SHARDINGKEY"]), TEXT.filter(bool)),
    max_size=5,
    unique_by=lambda pair: pair[0],
)
HOSTS = st.sampled_from([encode_host("10.1.2.3", 4), encode_host("127.0.0.1", 65535), encode_host("::1", 80)])


@st.composite
def any_record(draw: Any) -> Any:
    """Draw a record that any client may have written: any order of properties, with or without the last separator."""
    properties = "\x02".join(f"{name}\x01{value}" for name, value in draw(PAIRS))
    if properties and draw(st.booleans()):
        properties += "\x02"
    return encode_record(
        topic=draw(st.sampled_from(["T", "a-longer-topic-name", "v2" * 70])),
        body=draw(st.binary(max_size=30)),
        queue_id=draw(st.integers(0, 3)),
        born_timestamp=draw(st.integers(0, 1 << 41)),
        born_host=draw(HOSTS),
        store_host=draw(HOSTS),
        store_timestamp=5,
        queue_offset=draw(st.integers(0, 1 << 40)),
        physical_offset=9,
        reconsume_times=draw(st.integers(0, 16)),
        properties=properties.encode(),
    )


@st.composite
def plain_record(draw: Any) -> Any:
    """Draw a record as PocketMQ's own client writes it."""
    message = Message(
        "T",
        draw(st.binary(min_size=1, max_size=30)),
        tags=draw(st.sampled_from(["", "A", "a tag", "x" * 40])),
        keys=draw(st.sampled_from([(), ["k1"], ["k1", "k2"], ["k" * 70]])),
        properties=draw(st.sampled_from([None, {"a": "b"}, {"xKEYS": "no"}])),
        sharding_key=draw(st.sampled_from([None, "s"])),
    )
    return PlainRecordBuilder("c").build(message, 1, draw(st.binary(min_size=16, max_size=16)).hex().encode(), 7)


def rows_of(records: Any, columns: Any = COLUMNS + OPTIONAL_COLUMNS, sizes: Any = True) -> Any:
    body = b"".join(records)
    lengths = np.array([len(record) for record in records], np.int64) if sizes else None
    return records_to_arrow(body, lengths, "b", columns, check_crc=True)


@given(st.lists(st.one_of(any_record(), plain_record()), min_size=1, max_size=40))
def test_columns_are_what_the_messages_say(records: Any) -> None:
    """Every column of every row equals the field of the message object."""
    batch = rows_of(records).to_pydict()
    messages = received_messages(b"".join(records), None, "b")
    assert batch["body"] == [message.body for message in messages]
    assert batch["topic"] == [message.topic for message in messages]
    assert batch["broker"] == ["b"] * len(messages)
    assert batch["queue_id"] == [message.queue_id for message in messages]
    assert batch["queue_offset"] == [message.queue_offset for message in messages]
    assert batch["tags"] == [message.tags for message in messages]
    assert batch["keys"] == [message.properties.get("KEYS", "") for message in messages]
    assert batch["msg_id"] == [message.msg_id for message in messages]
    assert batch["born_host"] == [message.born_host for message in messages]
    assert batch["reconsume_times"] == [message.reconsume_times for message in messages]
    assert [round(time.timestamp() * 1000) for time in batch["born_timestamp"]] == [
        message.born_timestamp for message in messages
    ]
    assert [dict(pairs) for pairs in batch["properties"]] == [message.properties for message in messages]
    assert [dict(pairs) for pairs in batch["user_properties"]] == [
        {name: value for name, value in message.properties.items() if is_users_own(name)} for message in messages
    ]
    assert batch["sharding_key"] == [message.properties.get("__SHARDINGKEY", "") for message in messages]


def test_records_of_all_kinds_are_in_one_batch() -> None:
    """Bodies of 0 B to 4 MiB, properties of 32 KiB, topics of more than 127 bytes, IPv6, beside rows that are alike."""

    def record(topic: str, body: bytes, properties: bytes, host: bytes) -> bytes:
        return encode_record(topic=topic, body=body, queue_id=0, born_host=host, store_host=host, properties=properties)

    v4, v6 = encode_host("10.1.2.3", 4), encode_host("fe80::1", 80)
    alike = [record("T", b"%d" % n, b"UNIQ_KEY\x01%032d\x02TAGS\x01t%d\x02" % (n, n), v4) for n in range(40)]
    odd = [
        record("T", b"", b"", v4),
        record("T", bytes(4 << 20), b"TAGS\x01big\x02", v6),
        record("v" * 200, b"x" * 5000, b"big\x01" + b"p" * 32_763, v6),
        record("T", b"y", b"TAGS\x01a\x02TAGS\x01b\x02\x02KEYS\x01\x02", v4),
    ]
    for records in (alike, odd, alike + odd, odd + alike, alike[:20] + odd + alike[20:]):
        batch = rows_of(records).to_pydict()
        messages = received_messages(b"".join(records), None, "b", check_crc=True)
        for name in ("body", "topic", "tags", "msg_id", "born_host", "queue_offset"):
            assert batch[name] == [getattr(message, name) for message in messages], name
        assert [dict(pairs) for pairs in batch["properties"]] == [message.properties for message in messages]


def test_a_body_that_differs_from_its_crc_is_named() -> None:
    """Short and long ones, compressed ones as they are stored; only where it is asked for, and only of bodies read."""
    for size, flags in ((20, 0), (20_000, 0), (20, COMPRESSED_FLAG)):
        body = zlib.compress(b"z" * 50) if flags else b"x" * size
        whole = encode_record(topic="T", body=body, queue_id=0, sys_flag=flags, born_host=bytes(8), store_host=bytes(8))
        bad = whole[:90] + bytes([whole[90] ^ 1]) + whole[91:]
        joined = whole * 3 + bad + whole
        with pytest.raises(CorruptRecord, match="record 3: body CRC"):
            records_to_arrow(joined, None, "b", ("body",), check_crc=True)
        assert len(records_to_arrow(joined, None, "b", ("body",))) == 5
        assert len(records_to_arrow(joined, None, "b", ("queue_id",), check_crc=True)) == 5


def test_a_response_without_sizes_is_walked() -> None:
    """RocketMQ's pull has no sizes."""
    records = [PlainRecordBuilder("c").build(Message("T", b"x" * n), 0, b"K" * 32, 1) for n in range(1, 50)]
    assert rows_of(records, sizes=False).equals(rows_of(records))


def test_compressed_bodies_are_unpacked() -> None:
    """The body column holds the body as it was sent."""
    packed = encode_record(
        topic="T",
        body=zlib.compress(b"long" * 100),
        queue_id=0,
        sys_flag=COMPRESSED_FLAG,
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )
    plain = PlainRecordBuilder("c").build(Message("T", b"short"), 0, b"K" * 32, 1)
    assert rows_of([plain, packed], ("body",)).column(0).to_pylist() == [b"short", b"long" * 100]


def test_properties_that_are_no_utf_8_do_not_stop_a_batch() -> None:
    """Foreign bytes become U+FFFD, as for message objects."""
    records = [
        encode_record(
            topic="T",
            body=b"x",
            queue_id=0,
            born_timestamp=1,
            born_host=bytes(8),
            store_host=bytes(8),
            properties=b"UNIQ_KEY\x01" + b"K" * 32 + b"\x02TAGS\x01\xff\xfe\x02",
        )
    ]
    assert rows_of(records, ("tags",)).column(0).to_pylist() == ["\ufffd\ufffd"]


def test_damage_is_an_error_not_a_crash() -> None:
    """A cut response raises CorruptRecord."""
    record = PlainRecordBuilder("c").build(Message("T", b"x"), 0, b"K" * 32, 1)
    with pytest.raises(CorruptRecord):
        records_to_arrow(record[:-1], None, "b")


def test_columns_are_chosen_by_name() -> None:
    """Columns have the requested order; an error for an unknown name lists the known ones."""
    assert check_columns(None) == COLUMNS
    record = PlainRecordBuilder("c").build(Message("T", b"x"), 0, b"K" * 32, 1)
    assert rows_of([record], ("body", "queue_id")).schema.names == ["body", "queue_id"]
    with pytest.raises(ColumnUnknown, match="store_timestamp"):
        check_columns(["nope"])
    with pytest.raises(ColumnUnknown, match="none are named"):
        check_columns([])


def test_empty_and_joined_batches_have_one_schema() -> None:
    """A poll without messages has the schema of one with messages."""
    record = PlainRecordBuilder("c").build(Message("T", b"x"), 0, b"K" * 32, 1)
    batch = rows_of([record], COLUMNS)
    assert empty_batch().schema == batch.schema
    joined = concat_batches([batch, rows_of([record, record], COLUMNS)], COLUMNS)
    assert len(joined) == 3
    assert joined.schema == batch.schema

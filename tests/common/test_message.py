"""Messages as users see them."""

import zlib

import pytest

from pocketmq.common.message import BodyUnreadable, Message, decompress_body
from pocketmq.common.record import encode_host
from pocketmq.common.record_codec import encode_record, received_message


def test_a_rocketmq_send_carries_all_properties() -> None:
    """WAIT and DELAY among them; Message's own fields win over user properties of the same name."""
    message = Message(
        "t", b"b", tags="A", keys=["k1", "k2"], properties={"x": "y", "TAGS": "B"}, sharding_key="s", delay_time_level=3
    )
    assert message.property_map("ID") == {
        "UNIQ_KEY": "ID",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "DELAY": "3",
        "__SHARDINGKEY": "s",
        "x": "y",
    }
    assert Message("t", b"", wait_store_msg_ok=False).property_map() == {"WAIT": "false"}
    assert "k1 k2" in repr(message)


def test_a_copy_has_every_field() -> None:
    """It has every field of ``Message``; the packed form stays with the original."""
    message = Message("t", b"b")
    fields = [name for name in Message.__slots__ if name != "packed"]
    for name in fields:
        setattr(message, name, f"the {name}")
    message.packed = b"b", 1, b"smaller"
    copied = Message.copy_of(message)
    assert {name: getattr(copied, name) for name in fields} == {name: f"the {name}" for name in fields}
    assert copied.packed is None
    assert type(copied) is Message


@pytest.mark.parametrize(
    ("born", "store"), [("1.2.3.4", "5.6.7.8"), ("::1", "5.6.7.8"), ("1.2.3.4", "::2"), ("::1", "::2")]
)
def test_every_field_of_a_received_message(born: str, store: str) -> None:
    """Lazily decoded fields are those of the record, for each mix of host families."""
    record = encode_record(
        "topic",
        b"body",
        queue_id=3,
        properties=b"UNIQ_KEY\x01ID\x02TAGS\x01A\x02KEYS\x01k1 k2\x02DELAY\x014\x02__SHARDINGKEY\x01s",
        flag=-1,
        sys_flag=8,
        born_timestamp=111,
        born_host=encode_host(born, 1),
        store_timestamp=222,
        store_host=encode_host(store, 2),
        queue_offset=4,
        physical_offset=5,
        reconsume_times=6,
        prepared_offset=7,
    )
    message = received_message(record, "broker-a", check_crc=True)
    assert (message.topic, message.body, message.raw_body, message.queue_id) == ("topic", b"body", b"body", 3)
    assert (message.queue_offset, message.physical_offset, message.broker_name) == (4, 5, "broker-a")
    assert (message.flag, message.born_timestamp, message.store_timestamp) == (-1, 111, 222)
    assert (message.reconsume_times, message.prepared_offset, message.transaction_type) == (6, 7, 8)
    assert message.born_host == (f"[{born}]:1" if ":" in born else f"{born}:1")
    assert message.store_host == (f"[{store}]:2" if ":" in store else f"{store}:2")
    assert (message.tags, message.keys, message.msg_id, message.sharding_key) == ("A", ["k1", "k2"], "ID", "s")
    assert message.offset_msg_id == (encode_host(store, 2).hex() + "0000000000000005").upper()
    assert (message.delay_time_level, message.size_bytes, message.record) == (4, len(record), record)
    assert "ID" in repr(message)


def test_without_a_unique_key_the_offset_id_stands_in() -> None:
    """Messages of other clients may have none."""
    message = received_message(encode_record("t", b"", queue_id=0, born_host=bytes(8), store_host=bytes(8)), "b")
    assert message.msg_id == message.offset_msg_id == "0" * 32
    assert (message.tags, message.keys, message.properties, message.delay_time_level) == ("", [], {}, 0)


@pytest.mark.parametrize("kind", [0, 0x300])
def test_zlib_bodies_are_unpacked_once(kind: int) -> None:
    """Both marks of zlib."""
    packed = zlib.compress(b"x" * 1000)
    record = encode_record("t", packed, queue_id=0, sys_flag=1 | kind, born_host=bytes(8), store_host=bytes(8))
    message = received_message(record, "b")
    assert message.body == b"x" * 1000
    assert message.body is message.body
    assert message.raw_body == packed


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (b"no zlib", 1),
        (zlib.compress(b"x" * 99)[:-3], 1),
        (b"", 1),
        (b"x", 0x101),
        (b"x", 0x201),
        (zlib.compress(b"x" * 101), 1),
    ],
)
def test_bodies_that_cannot_be_unpacked(body: bytes, sys_flag: int) -> None:
    """Damage, other kinds, and bodies that grow beyond the limit raise a typed error."""
    with pytest.raises(BodyUnreadable):
        decompress_body(body, sys_flag, 100)


def test_a_body_of_exactly_the_limit_is_unpacked() -> None:
    """The limit itself is allowed."""
    assert decompress_body(zlib.compress(b"x" * 100), 1, 100) == b"x" * 100

"""A kept message comes back unchanged, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.entry import (
    SEQ_TIME_SHIFT,
    Entry,
    KeptMessage,
    decode_kept,
    encode_kept,
    lane_of,
    queue_of,
)
from pocketmq.client.durable.errors import EntryUnreadable

texts = st.text(max_size=20)
messages = st.builds(
    KeptMessage,
    topic=texts,
    body=st.binary(max_size=200),
    uniq_key=st.binary(max_size=56),
    tags=texts,
    keys=texts,
    properties=st.none() | st.dictionaries(texts, texts, max_size=4),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    wait_store_msg_ok=st.booleans(),
    sharding_key=st.none() | texts,
    delay_time_level=st.integers(0, 18),
    deliver_time_ms=st.none() | st.integers(0, 1 << 50),
    broker=texts,
    queue_id=st.integers(-1, 1000),
    order_key=texts,
    maybe_stored=st.booleans(),
    why=texts,
)


@given(messages)
def test_a_kept_message_comes_back_as_it_was(message: KeptMessage) -> None:
    """The round trip covers the message and the record that a producer would send."""
    assert decode_kept(encode_kept(message)) == message
    sent = message.message()
    assert (sent.topic, sent.body, sent.tags, sent.keys) == (message.topic, message.body, message.tags, message.keys)
    assert (sent.properties, sent.flag, sent.sharding_key) == (message.properties, message.flag, message.sharding_key)
    assert (sent.delay_time_level, sent.deliver_time_ms) == (message.delay_time_level, message.deliver_time_ms)
    assert sent.wait_store_msg_ok == message.wait_store_msg_ok


ENTRIES = [
    (
        "0184acaf73dc0011a64f7264657273c40470616964c4203041303030303031303030303138423441414332313233343536373830303031a161"
        "a56b31206b3281a6636f6c6f7572a372656407c2a17303cf0000018bcfe5687ba862726f6b65722d6102a173c3a177c2"
    ),
]
"""One entry as each version of the format wrote it."""


def test_entries_of_every_version_are_read_and_the_newest_is_written() -> None:
    """Byte for byte: the order of the fields is the format. A new field stands last and has a default; then the new
    bytes go behind the old ones here.
    """
    kept = KeptMessage(
        topic="Orders",
        body=b"paid",
        uniq_key=b"0A000001000018B4AAC2123456780001",
        tags="a",
        keys="k1 k2",
        properties={"colour": "red"},
        flag=7,
        wait_store_msg_ok=False,
        sharding_key="s",
        delay_time_level=3,
        deliver_time_ms=1_700_000_000_123,
        broker="broker-a",
        queue_id=2,
        order_key="s",
        maybe_stored=True,
        why="w",
        plain=False,
    )
    assert encode_kept(kept).hex() == ENTRIES[-1]
    assert [decode_kept(bytes.fromhex(entry)) for entry in ENTRIES] == [kept] * len(ENTRIES)


@given(messages, st.data())
def test_any_flipped_bit_is_noticed(message: KeptMessage, data: st.DataObject) -> None:
    """A damaged entry is refused, never sent as another message."""
    payload = bytearray(encode_kept(message))
    bit = data.draw(st.integers(0, len(payload) * 8 - 1))
    payload[bit // 8] ^= 1 << bit % 8
    with pytest.raises(EntryUnreadable):
        decode_kept(bytes(payload))


@given(st.binary(max_size=40))
def test_garbage_is_refused(payload: bytes) -> None:
    """Any other bytes raise the typed error."""
    with pytest.raises(EntryUnreadable):
        decode_kept(payload)


def test_a_lane_names_its_queue() -> None:
    """The conversion works both ways; other lanes are refused."""
    queue = MessageQueue("Orders", "broker-a", 3)
    assert queue_of(lane_of(queue)) == queue
    with pytest.raises(EntryUnreadable):
        queue_of("Orders")


def test_a_number_tells_the_time() -> None:
    """The sequence number contains the ms at which an entry was kept."""
    assert Entry(1_700_000_000_123 << SEQ_TIME_SHIFT, 0, 0, "", "", b"").kept_ms == 1_700_000_000_123

"""The batch body of RocketMQ's clients."""

import struct
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.send.rocketmq_send import BATCH_ITEMS_MAX, decode_batch
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.record import decode_properties, encode_properties

PROPERTIES = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "a"]), st.text("xyz", min_size=1, max_size=3), max_size=2)
ITEMS = st.lists(st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=20), PROPERTIES), min_size=1)


def item(flag: int, body: bytes, properties: bytes) -> bytes:
    """MessageDecoder.encodeMessage: size, magic, crc, flag, body length, body, properties length, properties."""
    rest = struct.pack(">iiii", 0, 0, flag, len(body)) + body + struct.pack(">H", len(properties)) + properties
    return struct.pack(">i", 4 + len(rest)) + rest


@given(ITEMS)
def test_a_batch_gives_its_messages(items: list[tuple[int, bytes, dict[str, str]]]) -> None:
    """Neighbours with the same properties share a dict; all others have their own."""
    data = b"".join(item(flag, body, encode_properties(properties)) for flag, body, properties in items)
    taken = list(decode_batch(data))
    expected = [(flag, body, decode_properties(encode_properties(properties))) for flag, body, properties in items]
    assert [(flag, bytes(body), properties) for flag, body, properties in taken] == expected
    for left, right in zip(taken, islice(taken, 1, None), strict=False):
        assert (left[2] is right[2]) == (encode_properties(left[2]) == encode_properties(right[2]))


@given(ITEMS, st.data())
def test_a_damaged_batch_is_refused_or_read(
    items: list[tuple[int, bytes, dict[str, str]]], data: st.DataObject
) -> None:
    """Whatever the bytes say: messages or ``MessageIllegal``."""
    whole = bytearray(b"".join(item(flag, body, encode_properties(properties)) for flag, body, properties in items))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        taken = list(decode_batch(bytes(whole[: data.draw(st.integers(0, len(whole)))])))
    except MessageIllegal:
        return
    assert 0 < len(taken) <= len(whole) // 22


def test_a_batch_of_too_many_is_refused_before_it_is_read() -> None:
    """As many as are allowed are read; with one more none is."""
    one = item(0, b"", b"")
    assert sum(1 for _ in decode_batch(one * BATCH_ITEMS_MAX)) == BATCH_ITEMS_MAX
    with pytest.raises(MessageIllegal, match=f"more than {BATCH_ITEMS_MAX} messages"):
        next(decode_batch(one * (BATCH_ITEMS_MAX + 1)))


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(MessageIllegal, match="the batch is empty"):
        list(decode_batch(b""))

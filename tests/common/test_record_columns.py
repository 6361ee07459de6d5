"""Columns agree with the scalar codec, record by record."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import CorruptRecord, MessageIllegal
from pocketmq.common.record_codec import decode_record, encode_record, received_message
from pocketmq.common.record_columns import (
    first_bad_crc,
    parse_columns,
    patch,
    patch_born_hosts,
    received_messages,
    starts_of,
    walk_sizes,
    windows,
)

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOST = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
TOPIC = st.one_of(
    st.sampled_from(["TopicTest", "T", "", "tópico", "t" * 127, "t" * 128, "é" * 63, "é" * 64, "😀" * 60]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record with any content."""
    return encode_record(
        draw(TOPIC),
        draw(st.binary(max_size=60)),
        queue_id=draw(I32),
        properties=draw(st.binary(max_size=40)),
        flag=draw(I32),
        sys_flag=draw(st.integers(0, 0xFFF)),
        born_timestamp=draw(I64),
        born_host=draw(HOST),
        store_timestamp=draw(I64),
        store_host=draw(HOST),
        queue_offset=draw(I64),
        physical_offset=draw(I64),
        reconsume_times=draw(I32),
        prepared_offset=draw(I64),
    )


def array(data: bytes) -> Any:
    """Return writable private memory with these bytes."""
    return np.frombuffer(bytearray(data), np.uint8)


@given(st.lists(records(), min_size=1, max_size=8), st.booleans())
def test_columns_are_the_decoded_fields(made: list[bytes], walk: bool) -> None:
    """Any mix of V1 and V2, IPv4 and IPv6 works, with given or walked sizes."""
    buffer = array(b"".join(made))
    columns = parse_columns(buffer, None if walk else np.array([len(record) for record in made], ">u4"))
    assert len(columns) == len(made)
    assert first_bad_crc(columns) is None
    for index, data in enumerate(made):
        record = decode_record(data)
        start = int(columns.starts[index])
        assert buffer[start : start + int(columns.sizes[index])].tobytes() == data
        names = ("queue_id", "queue_offset", "physical_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp")
        for name in names:
            assert int(getattr(columns, name + "s")[index]) == getattr(record, name)
        assert int(columns.reconsume_times[index]) == record.reconsume_times
        assert int(columns.prepared_offsets[index]) == record.prepared_offset
        assert int(columns.body_crcs[index]) == record.body_crc

        def part(starts: Any, length: int, index: int = index) -> bytes:
            at = int(starts[index])
            return bytes(buffer[at : at + length])

        assert part(columns.body_starts, int(columns.body_lengths[index])) == record.body
        assert part(columns.topic_starts, int(columns.topic_lengths[index])).decode() == record.topic
        assert part(columns.property_starts, int(columns.property_lengths[index])) == record.properties
        assert part(columns.born_host_starts, len(record.born_host)) == record.born_host
        assert part(columns.store_host_starts, len(record.store_host)) == record.store_host


@given(st.lists(records(), min_size=1, max_size=4), st.data())
def test_damage_is_refused_by_both_codecs_alike(made: list[bytes], data: st.DataObject) -> None:
    """After one changed byte, or a cut, the columns raise exactly when a scalar decode does, for the same record."""
    whole = bytearray(b"".join(made))
    sizes = [len(record) for record in made]
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    else:
        cut = data.draw(st.integers(1, sizes[-1] - 1))
        del whole[-cut:]
        sizes[-1] -= cut
    bad = None
    at = 0
    for index, size in enumerate(sizes):
        try:
            if decode_record(bytes(whole[at : at + size]), check_crc=False).size != size:
                bad = index
        except CorruptRecord:
            bad = index
        if bad is not None:
            break
        at += size
    if bad is None:
        columns = parse_columns(array(bytes(whole)), np.array(sizes, np.int64))
        decoded = received_messages(bytes(whole), np.array(sizes, ">u4"), "b")
        assert [message.queue_offset for message in decoded] == columns.queue_offsets.tolist()
    else:
        for count in (1, 50):  # below and above the limit of the columnar path
            filled = bytes(whole[: sum(sizes[:bad])]) * count + bytes(whole[sum(sizes[:bad]) :])
            filled_sizes = np.array(sizes[:bad] * count + sizes[bad:], ">u4")
            with pytest.raises(CorruptRecord, match=f"record {bad * count}:"):
                parse_columns(array(filled), filled_sizes)
            with pytest.raises(CorruptRecord, match=f"record {bad * count}:"):
                received_messages(filled, filled_sizes, "b")


@pytest.mark.parametrize("topic", ["topic", "t" * 130])
@pytest.mark.parametrize("hosts", [(8, 8), (20, 8), (8, 20), (20, 20)])
@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_every_byte_of_a_record_is_judged_alike(topic: str, hosts: tuple[int, int], flip: int) -> None:
    """One bit after the other, between good records: columns refuse exactly the records that the codec refuses."""
    fields: dict[str, Any] = {"queue_id": 0, "born_host": bytes(hosts[0]), "store_host": bytes(hosts[1])}
    one = encode_record(topic, b"body", properties=b"a\x01b\x02", **fields)
    sizes = np.array([len(one)] * 3)
    for at in range(len(one)):
        changed = bytearray(one)
        changed[at] ^= flip
        try:
            good = decode_record(changed, check_crc=False).size == len(one)
        except CorruptRecord:
            good = False
        buffer = array(one + changed + one)
        if good:
            assert len(parse_columns(buffer, sizes)) == 3
        else:
            with pytest.raises(CorruptRecord, match="record 1:"):
                parse_columns(buffer, sizes)


@given(st.binary(max_size=400), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_raises_the_typed_error(garbage: bytes, sizes: list[int]) -> None:
    """Random bytes and sizes raise ``CorruptRecord`` and no other error."""
    if garbage or sizes:
        for given_sizes in (None, np.array(sizes, ">u4")):
            if given_sizes is None and not garbage:
                continue
            with pytest.raises(CorruptRecord):
                parse_columns(array(garbage), given_sizes)
            with pytest.raises(CorruptRecord):
                received_messages(garbage, given_sizes, "b")


def test_no_bytes_are_no_records() -> None:
    """An empty buffer has no records."""
    assert len(parse_columns(array(b""))) == 0
    assert received_messages(b"", None, "b") == []
    assert len(windows(array(b"abc"), 4)) == 0


def test_a_wrong_body_crc_is_found() -> None:
    """The error names the first record with a changed body."""
    made = [encode_record("t", b"body", queue_id=0, born_host=bytes(8), store_host=bytes(8)) for _ in range(50)]
    buffer = array(b"".join(made))
    for index in (30, 40):
        buffer[index * len(made[0]) + 88] ^= 1
    assert first_bad_crc(parse_columns(buffer)) == 30
    with pytest.raises(CorruptRecord, match="record 30"):
        received_messages(buffer, None, "b", check_crc=True)
    with pytest.raises(CorruptRecord, match="record 30"):
        received_messages(buffer[: 31 * len(made[0])], None, "b", check_crc=True)


@given(st.lists(records(), min_size=1, max_size=60), st.integers(0, (1 << 62)), HOST, HOST, st.booleans())
def test_patched_fields_are_those_and_no_others(
    made: list[bytes], store_timestamp: int, store_host: bytes, born_host: bytes, small: bool
) -> None:
    """A few records (scalar) and many (scatter) give the bytes of a fresh encoding."""
    fitting = []
    for data in made * (1 if small else 60 // len(made) + 1):
        record = decode_record(data)
        if len(record.store_host) == len(store_host) and len(record.born_host) == len(born_host):
            fitting.append(data)
    if not fitting:
        return
    columns = parse_columns(array(b"".join(fitting)))
    queue_offsets = np.arange(7, 7 + len(fitting))
    patch(columns, queue_offsets, columns.starts + 1000, store_timestamp, store_host, born_host)
    expected = []
    for index, data in enumerate(fitting):
        record = decode_record(data)
        expected.append(
            encode_record(
                record.topic,
                record.body,
                queue_id=record.queue_id,
                properties=record.properties,
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                born_host=born_host,
                store_timestamp=store_timestamp,
                store_host=store_host,
                queue_offset=7 + index,
                physical_offset=int(columns.starts[index]) + 1000,
                reconsume_times=record.reconsume_times,
                prepared_offset=record.prepared_offset,
            )
        )
    assert columns.buffer.tobytes() == b"".join(expected)


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("born", [8, 20])
@pytest.mark.parametrize("store", [8, 20])
def test_mixed_and_wrong_host_families(count: int, born: int, store: int) -> None:
    """A host of the other family is refused before any of it is written; born hosts may differ by record."""
    made = [encode_record("t", b"b", queue_id=0, born_host=bytes(born), store_host=bytes(store)) for _ in range(count)]
    columns = parse_columns(array(b"".join(made)))
    numbers = np.arange(count)
    with pytest.raises(MessageIllegal):
        patch(columns, numbers, numbers, 1, bytes(28 - store))
    with pytest.raises(MessageIllegal):
        patch_born_hosts(columns, bytes(28 - born))
    hosts = np.arange(count * born, dtype=np.int64).astype(np.uint8).reshape(count, born)
    patch_born_hosts(columns, hosts)
    view = columns.buffer.tobytes()
    assert decode_record(view, int(columns.starts[2])).born_host == hosts[2].tobytes()


@given(st.lists(records(), min_size=1, max_size=3), st.integers(0, 50), st.booleans())
def test_received_messages_are_the_records(made: list[bytes], repeat: int, walk: bool) -> None:
    """This holds for few and many messages, all kinds of hosts, with and without sizes."""
    made = made * (repeat + 1)
    raw = b"".join(made)
    messages = received_messages(raw, None if walk else np.array([len(data) for data in made], ">u4"), "b")
    assert [message.record for message in messages] == made
    for message, data in zip(messages, made, strict=True):
        record, alone = decode_record(data), received_message(data, "b")
        assert (message.topic, message.queue_id, message.queue_offset) == (
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        assert message.raw_body == alone.raw_body == record.body
        assert isinstance(message.raw_body, bytes)
        assert message.properties == alone.properties == record.property_map()
        assert (message.prepared_offset, message.reconsume_times) == (record.prepared_offset, record.reconsume_times)
        assert (message.store_host_bytes, message.born_host_bytes) == (record.store_host, record.born_host)


def test_sizes_are_walked() -> None:
    """The chain of total sizes ends at the end of the buffer, or raises."""
    data = encode_record("t", b"b", queue_id=0, born_host=bytes(8), store_host=bytes(8))
    assert walk_sizes(array(data * 3)).tolist() == [len(data)] * 3
    assert starts_of(walk_sizes(array(data * 3))).tolist() == [0, len(data), 2 * len(data)]
    with pytest.raises(CorruptRecord, match="record 1"):
        walk_sizes(array(data + data[:-1]))

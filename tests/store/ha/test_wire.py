"""The HA protocol: round trips of every message, and harmless refusals of any other bytes."""

import importlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.ha import wire
from pocketmq.store.ha.rocketmq_protocol import ReportDecoder
from tests.store.ha.transports import make_hello

ALL_KINDS = wire.FROM_SLAVE | wire.FROM_MASTER
offsets = st.integers(0, wire.OFFSET_MAX >> 1)
names = st.text(max_size=20)


@st.composite
def epoch_rows(draw: st.DrawFn) -> list[wire.EpochRow]:
    numbers = sorted(draw(st.sets(st.integers(0, 1 << 53), max_size=6)))
    starts = sorted(draw(st.lists(offsets, min_size=len(numbers), max_size=len(numbers))))
    return [(number, draw(names), start) for number, start in zip(numbers, starts, strict=True)]


@st.composite
def hellos(draw: st.DrawFn) -> wire.Hello:
    low, high = sorted([draw(offsets), draw(offsets)])
    return wire.Hello(
        cluster=draw(names),
        broker_name=draw(names),
        broker_id=draw(st.integers(0, 1 << 40)),
        node_id=draw(names),
        epochs=draw(epoch_rows()),
        end_offset=high,
        min_offset=low,
        segment_bytes=draw(offsets),
        promised=(draw(offsets), draw(names)),
        ack_policy=draw(st.sampled_from(["WRITTEN", "FLUSHED"])),
    )


@st.composite
def welcomes(draw: st.DrawFn) -> wire.Welcome:
    low, start, high = sorted([draw(offsets), draw(offsets), draw(offsets)])
    rows = [*draw(epoch_rows())[:3], (1 << 54, "me", wire.OFFSET_MAX)]
    return wire.Welcome(
        epochs=rows,
        epoch=1 << 54,
        owner="me",
        role=draw(names),
        min_offset=low,
        end_offset=high,
        start_offset=start,
        common_offset=draw(offsets),
        cut_to=draw(st.sampled_from([None, start])),
        restart=draw(st.booleans()),
        recovering=draw(st.booleans()),
        address=draw(names),
        confirm_offset=draw(offsets),
        in_sync_replicas=draw(st.integers(1, 16)),
        total_replicas=draw(st.integers(1, 16)),
        segment_bytes=draw(offsets),
    )


def encode(message: wire.Message) -> bytes:
    """Return the whole frame of any message."""
    match message:
        case wire.Hello():
            return wire.encode_hello(message)
        case wire.Welcome():
            return wire.encode_welcome(message)
        case wire.Refused():
            return wire.encode_refused(message)
        case wire.Data(offset, master_end, confirm_offset, now_ms, crc, body):
            head = wire.encode_data_head(offset, master_end, confirm_offset, now_ms, crc, len(body))
            return head + bytes(body)
        case wire.Heartbeat():
            return wire.encode_heartbeat(message)
        case wire.Ack():
            return wire.encode_ack(message)
        case wire.Fetch():
            return wire.encode_fetch(message)
        case wire.Fetched(offset, crc, body):
            return wire.encode_fetched_head(offset, crc, len(body)) + bytes(body)


empty_or_body: st.SearchStrategy[memoryview] = st.binary(max_size=200).map(lambda data: memoryview(data))
bodies: st.SearchStrategy[memoryview] = st.binary(min_size=1, max_size=200).map(lambda data: memoryview(data))
messages = st.one_of(
    hellos(),
    welcomes(),
    st.builds(wire.Refused, code=names, text=names),
    st.tuples(offsets, bodies, offsets, st.integers(0, (1 << 32) - 1)).map(
        lambda t: wire.Data(t[0], t[0] + len(t[1]) + t[2] % 1000, t[0], t[2], t[3], t[1])
    ),
    st.tuples(offsets, offsets, offsets).map(lambda t: wire.Heartbeat(max(t[:2]), min(t[:2]), t[2])),
    st.builds(wire.Ack, offsets, offsets, offsets),
    st.tuples(offsets, st.integers(1, 1000)).map(lambda t: wire.Fetch(t[0], t[0] + t[1])),
    st.builds(
        wire.Fetched, offsets, st.integers(0, (1 << 32) - 1), st.binary(max_size=200).map(lambda data: memoryview(data))
    ),
)


@given(st.lists(messages, max_size=5), st.lists(st.integers(1, 300), max_size=20))
def test_any_split_of_the_stream_gives_the_same_messages(sent: list[wire.Message], cuts: list[int]) -> None:
    """This holds for any pieces that a socket delivers."""
    stream, got = b"".join(map(encode, sent)), list[wire.Message]()
    decoder = wire.FrameDecoder(ALL_KINDS)
    for cut in [*cuts, len(stream)]:
        got += decoder.feed(stream[:cut])
        stream = stream[cut:]
    assert got == sent
    assert decoder.pending_bytes == 0


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_damaged_frames_are_refused_or_are_other_frames(sent: list[wire.Message], data: st.DataObject) -> None:
    """Any byte changed anywhere gives a message or one error, never another exception; memory stays that of a frame."""
    stream = bytearray(b"".join(map(encode, sent)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    decoder = wire.FrameDecoder(ALL_KINDS)
    try:
        decoder.feed(bytes(stream))
    except wire.HaProtocolError:
        pass
    assert len(decoder._buffer) <= wire.BODY_BYTES_MAX + wire.DATA_HEAD_BYTES


@given(st.binary(max_size=300))
def test_a_stranger_takes_no_memory(data: bytes) -> None:
    """Bytes that are no frame are refused from the head alone; the buffer does not grow for unexpected kinds."""
    decoder = wire.FrameDecoder(frozenset({wire.ACK}))
    try:
        decoder.feed(data)
    except wire.HaProtocolError:
        pass
    assert len(decoder._buffer) == wire.FrameDecoder.FIRST_BYTES


@pytest.mark.parametrize("kind", sorted(ALL_KINDS))
def test_a_frame_too_large_for_its_kind_is_refused_before_it_comes(kind: int) -> None:
    """The first five bytes decide."""
    decoder = wire.FrameDecoder(ALL_KINDS)
    largest = wire._SIZES[kind][1]
    with pytest.raises(wire.HaProtocolError, match=f"kind {kind} with {largest + 1} bytes"):
        decoder.feed(struct.pack(">IB", largest + 6, kind))


def test_a_kind_that_is_not_due_is_refused() -> None:
    """A slave sends no data, and no acknowledgement before its hello."""
    with pytest.raises(wire.HaProtocolError, match="kind 6 is not allowed"):
        wire.FrameDecoder(frozenset({wire.HELLO})).feed(wire.encode_ack(wire.Ack(1, 1, 1)))


@pytest.mark.parametrize(
    "frame",
    [
        encode(wire.Data(100, 104, 0, 0, 0, memoryview(b"12345"))),
        encode(wire.Data(0, 5, 6, 0, 0, memoryview(b"12345"))),
        encode(wire.Heartbeat(5, 6, 0)),
        encode(wire.Heartbeat(1 << 63, 6, 0)),
        encode(wire.Ack(1 << 63, 0, 0)),
        encode(wire.Ack(0, 1 << 63, 0)),
        encode(wire.Fetch(5, 5)),
        encode(wire.Fetched(wire.OFFSET_MAX, 0, memoryview(b"1"))),
        encode(make_hello(end_offset=-1)),
        encode(make_hello(min_offset=5)),
        encode(make_hello(end_offset=1 << 63)),
        encode(make_hello(broker_id=-1)),
        encode(make_hello(cluster="c" * 256)),
        encode(make_hello(promised=(-1, ""))),
        encode(make_hello(promised=(1, "o" * 256))),
        encode(make_hello(epochs=[(2, "a", 0), (1, "b", 0)])),
        encode(make_hello(epochs=[(1, "a", 9), (2, "b", 8)])),
        encode(make_hello(epochs=[(1, "a", -1)])),
        encode(make_hello(epochs=[(number, "a", 0) for number in range(wire.EPOCHS_MAX + 1)])),
        wire._framed(wire.HELLO, b"\x80"),
        wire._framed(wire.HELLO, b"\xc1"),
        wire._framed(wire.HELLO, b"\x91" * 5000 + b"\x90"),
        wire._framed(wire.WELCOME, msgspec.msgpack.encode({"epochs": []})),
    ],
)
def test_impossible_numbers_are_refused(frame: bytes) -> None:
    """Every number is checked before use."""
    with pytest.raises(wire.HaProtocolError):
        wire.FrameDecoder(ALL_KINDS).feed(frame)


def test_the_first_byte_is_never_an_offset_in_rocketmqs_protocol() -> None:
    """Thus both protocols can share the port."""
    assert int.from_bytes(wire.PREAMBLE, "big", signed=True) < 0
    assert len(wire.PREAMBLE) == 8
    with pytest.raises(wire.HaProtocolError, match="the slave reports offset -"):
        ReportDecoder().feed(wire.PREAMBLE)


def test_the_bytes_are_those_that_are_documented() -> None:
    """The bytes are written by hand, and another msgpack library reads the hello."""
    assert wire.encode_ack(wire.Ack(1, 2, 3)) == bytes.fromhex(
        "0000001d 06 62245d72 0000000000000001 0000000000000002 0000000000000003"
    )
    assert wire.encode_data_head(1, 9, 3, 4, 5, 6) == bytes.fromhex(
        "0000002f 04 f0fc5c79 0000000000000001 0000000000000009 0000000000000003 0000000000000004 00000005"
    )
    frame = wire.encode_hello(make_hello(epochs=[(1, "a", 0)]))
    assert frame[4] == wire.HELLO
    assert importlib.import_module("msgpack").unpackb(frame[9:]) == {
        "cluster": "C",
        "broker_name": "b",
        "broker_id": 1,
        "node_id": "slave1",
        "epochs": [[1, "a", 0]],
        "end_offset": 0,
        "min_offset": 0,
        "segment_bytes": 8192,
        "promised": [0, ""],
        "crc": "crc32",
        "ack_policy": "WRITTEN",
    }


def test_bodies_are_not_copied_and_large_frames_reuse_one_buffer() -> None:
    """A stream of large frames settles in a buffer of one frame."""
    decoder = wire.FrameDecoder(wire.FROM_MASTER)
    body = bytes(300_000)
    stream = encode(wire.Data(0, 300_000, 0, 0, 0, memoryview(body))) * 5
    count, buffers = 0, set[int]()
    while stream:
        view = decoder.buffer()
        size = min(len(view), len(stream), 70_000)
        view[:size] = stream[:size]
        stream = stream[size:]
        decoder.received(size)
        while (message := decoder.next()) is not None:
            assert isinstance(message, wire.Data)
            assert message.body.obj is decoder._buffer
            count += 1
            buffers.add(id(decoder._buffer))
    assert count == 5
    assert len(buffers) == 1
    assert len(decoder._buffer) == 300_000 + wire.DATA_HEAD_BYTES


@given(messages, st.data())
def test_a_changed_bit_makes_no_other_message(sent: wire.Message, data: st.DataObject) -> None:
    """The reader checks the CRC of a body; other changes are refused, or never become a whole frame: an ACK of another
    offset would confirm bytes that no slave has, a HELLO with another promise would fence a master.
    """
    frame = bytearray(encode(sent))
    body_bytes = len(sent.body) if isinstance(sent, (wire.Data, wire.Fetched)) else 0
    at = data.draw(st.integers(0, len(frame) - body_bytes - 1))
    frame[at] ^= 1 << data.draw(st.integers(0, 7))
    decoder = wire.FrameDecoder(ALL_KINDS)
    try:
        got = decoder.feed(bytes(frame))
    except wire.HaProtocolError:
        return
    assert got == []

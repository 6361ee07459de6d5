"""The frame decoder and its memory budget."""

import struct

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.errors import BadFrame, FrameTooLarge
from pocketmq.remoting.frame import (
    DEDICATED_BYTES,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    NARROW_BYTES,
    SPEAKS_HTTP,
    Frame,
    FrameDecoder,
    new_scratch,
)
from pocketmq.remoting.frame_budget import FrameBudget

SCRATCH = new_scratch()


def wire(header: bytes, body: bytes, serialize_type: int = 2) -> bytes:
    return (
        struct.pack(">IB", 4 + len(header) + len(body), serialize_type) + len(header).to_bytes(3, "big") + header + body
    )


def plain(frame: Frame) -> tuple[int, bytes, bytes]:
    return frame.serialize_type, bytes(frame.header), bytes(frame.body)


class FakeReader:
    """A connection that records what the budget asks of it."""

    def __init__(self, decoder: FrameDecoder) -> None:
        self.decoder = decoder
        self.paused = False
        self.closed = False

    def pause_for_budget(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_for_budget(self) -> None:
        assert self.paused
        self.paused = False

    def close_for_budget(self) -> None:
        self.closed = True
        self.decoder.close()


SIZES = st.one_of(st.integers(0, 40), st.sampled_from([DEDICATED_BYTES - 9, DEDICATED_BYTES, 300_000]))


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 40), SIZES), max_size=8),
    st.lists(st.integers(1, 50), max_size=30),
    st.lists(st.integers(1, 400_000), max_size=10),
)
def test_any_split_of_the_stream_gives_the_same_frames(
    shapes: list[tuple[int, int, int]], small_cuts: list[int], large_cuts: list[int]
) -> None:
    """Any cuts give the same frames, and at the end no bytes are half received or charged."""
    frames = [
        (kind, bytes([at % 251]) * header_bytes, bytes([at % 241]) * body_bytes)
        for at, (kind, header_bytes, body_bytes) in enumerate(shapes)
    ]
    stream = b"".join(wire(header, body, kind) for kind, header, body in frames)
    budget = FrameBudget()
    decoder = FrameDecoder(SCRATCH, budget)
    got: list[Frame] = []
    for cut in [*small_cuts, *large_cuts, len(stream) + 1]:
        got += decoder.feed(stream[:cut])
        SCRATCH[:] = bytes(len(SCRATCH))  # another connection uses the buffer in between
        stream = stream[cut:]
    assert [plain(frame) for frame in got] == frames
    assert decoder.frame_count == len(frames)
    assert not decoder.half
    assert budget.used_bytes == 0


@given(st.binary(max_size=200), st.integers(1, 30))
def test_garbage_is_an_error_or_an_unfinished_frame(garbage: bytes, step: int) -> None:
    """No error is raised, the verdict does not depend on the split, and the decoder accepts no bytes after an error."""
    verdicts = []
    for size in (step, len(garbage) or 1):
        decoder = FrameDecoder(SCRATCH, FrameBudget())
        got = [f for at in range(0, len(garbage), size) for f in decoder.feed(garbage[at : at + size])]
        verdicts.append(([plain(f) for f in got], type(decoder.error)))
    assert verdicts[0] == verdicts[1]


def test_a_header_has_a_limit_of_its_own() -> None:
    """It is refused by its length, before it arrives: to decode 16 MiB would hold up every other connection."""
    decoder = FrameDecoder(SCRATCH, FrameBudget(), header_bytes_max=HEADER_BYTES_MAX)
    assert decoder.feed(struct.pack(">II", 4 + HEADER_BYTES_MAX + 1, 2 << 24 | HEADER_BYTES_MAX + 1)) == []
    assert isinstance(decoder.error, FrameTooLarge)
    assert f"header has {HEADER_BYTES_MAX + 1} bytes, the limit is {HEADER_BYTES_MAX}" in str(decoder.error)
    at_limit = FrameDecoder(SCRATCH, FrameBudget(), header_bytes_max=HEADER_BYTES_MAX)
    assert [len(frame.header) for frame in at_limit.feed(wire(b"h" * HEADER_BYTES_MAX, b""))] == [HEADER_BYTES_MAX]


def test_frames_before_a_bad_one_are_kept() -> None:
    """A peer's last good request is not lost because of the garbage behind it."""
    budget = FrameBudget()
    decoder = FrameDecoder(SCRATCH, budget)
    frames = decoder.feed(wire(b"h", b"b") + struct.pack(">IB", 10, 0) + b"\0\0\x0b" + wire(b"h", b"c"))
    assert [plain(frame) for frame in frames] == [(2, b"h", b"b")]
    assert isinstance(decoder.error, BadFrame)
    assert "bad header length: 11" in str(decoder.error)
    assert decoder.feed(wire(b"h", b"c")) == []
    assert budget.used_bytes == 0


def test_an_answer_in_http_is_named() -> None:
    """The client has come to a wrong port: the length that the letters seem to be would help nobody."""
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    assert decoder.feed(b"HTTP/1.1 400 Bad Request\r\n") == []
    assert decoder.error is not None
    assert decoder.error.why == SPEAKS_HTTP


@pytest.mark.parametrize("length", [0, 3])
def test_a_frame_shorter_than_its_own_head_is_bad(length: int) -> None:
    """The length includes at least the word with the header length."""
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    decoder.feed(struct.pack(">II", length, 0))
    assert isinstance(decoder.error, BadFrame)


def test_a_frame_above_the_limit_is_refused_from_its_first_bytes() -> None:
    """The decoder does not wait for its body; a frame of exactly the limit is accepted."""
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    decoder.feed(struct.pack(">II", FRAME_BYTES_MAX + 1, 4))
    assert isinstance(decoder.error, FrameTooLarge)
    decoder = FrameDecoder(SCRATCH, FrameBudget(), frame_bytes_max=100)
    assert len(decoder.feed(wire(b"", bytes(96)))) == 1
    decoder.feed(wire(b"", bytes(97)))
    assert isinstance(decoder.error, FrameTooLarge)


def test_bodies_are_private_memory() -> None:
    """Bytes that arrive in the scratch buffer later do not change a frame."""
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    small, large = decoder.feed(wire(b"a", b"small") + wire(b"b", b"L" * 400_000))
    decoder.feed(wire(b"z", b"Z" * 200_000))
    assert plain(small) == (2, b"a", b"small")
    assert plain(large) == (2, b"b", b"L" * 400_000)


def test_a_large_frame_is_read_into_its_own_memory() -> None:
    """The next buffer offered has the size of the frame's rest."""
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    data = wire(b"h", bytes(1_000_000))
    decoder.feed(data[:1000])
    assert len(decoder.get_buffer()) == len(data) - 1000


def test_claimed_bytes_are_neither_charged_nor_resident() -> None:
    """200 peers claim 3 MiB each and send 100 bytes: memory does not grow with the claims."""
    process = psutil.Process()
    budget = FrameBudget()
    before_bytes = process.memory_info().rss
    decoders = [FrameDecoder(SCRATCH, budget) for _ in range(200)]
    for decoder in decoders:
        decoder.feed(struct.pack(">II", 3 << 20, 4) + bytes(100))
    assert budget.used_bytes == 200 * 4096
    assert process.memory_info().rss - before_bytes < 64 << 20


def test_the_largest_half_frames_are_paused_and_read_on_when_memory_is_free() -> None:
    """Above the limit the largest pauses and the smaller one completes; then the large one continues."""
    budget = FrameBudget(limit_bytes=1_000_000)
    decoders = [FrameDecoder(SCRATCH, budget) for _ in range(3)]
    readers = [FakeReader(decoder) for decoder in decoders]
    for decoder, reader in zip(decoders, readers, strict=True):
        budget.register(decoder, reader)
    decoders[0].feed(wire(b"", bytes(900_000))[:600_000])
    decoders[1].feed(wire(b"", bytes(900_000))[:300_000])
    assert [reader.paused for reader in readers] == [False, False, False]
    decoders[2].feed(wire(b"", bytes(900_000))[:200_000])
    assert [reader.paused for reader in readers] == [True, False, False]
    decoders[1].close()
    assert [reader.paused for reader in readers] == [False, False, False]
    assert budget.used_bytes == sum(decoder.charged_bytes for decoder in decoders)


def test_a_narrow_decoder_cuts_the_same_frames() -> None:
    """Only its reads are shorter, also after the rest of a frame."""
    decoder = FrameDecoder(SCRATCH, FrameBudget())
    data = wire(b"h", bytes(50_000)) * 20 + wire(b"", bytes(200_000))
    decoder.narrow(True)
    assert len(decoder.get_buffer()) == NARROW_BYTES
    decoder.feed(data[:30_000])
    assert len(decoder.get_buffer()) == NARROW_BYTES
    assert len(decoder.feed(data[30_000:])) == 21
    decoder.narrow(False)
    assert len(decoder.get_buffer()) == len(SCRATCH)


def test_one_reader_always_goes_on() -> None:
    """If all were paused, no frame would ever complete."""
    budget = FrameBudget(limit_bytes=100_000)
    decoder = FrameDecoder(SCRATCH, budget)
    reader = FakeReader(decoder)
    budget.register(decoder, reader)
    assert len(decoder.feed(wire(b"", bytes(110_000)))) == 1
    assert not reader.paused


def test_a_flood_of_newcomers_stays_in_the_budget() -> None:
    """Half-frames beyond 5/4 of the limit close the largest holders; the sum stays bounded."""
    budget = FrameBudget(limit_bytes=4_000_000)
    readers = []
    for _ in range(100):
        decoder = FrameDecoder(SCRATCH, budget)
        reader = FakeReader(decoder)
        readers.append(reader)
        budget.register(decoder, reader)
        decoder.feed(wire(b"", bytes(300_000))[:200_000])
        assert budget.used_bytes <= 5_000_000 + 204_800
    assert budget.closed_count == sum(reader.closed for reader in readers) > 0
    assert sum(not reader.closed and not reader.paused for reader in readers) >= 1
    for reader in readers:
        budget.unregister(reader.decoder)
    assert budget.used_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60_000)), max_size=60))
def test_the_sum_is_the_sum_of_the_charges(steps: list[tuple[int, int]]) -> None:
    """This holds for charges and releases in any order."""
    budget = FrameBudget(limit_bytes=100_000)
    decoders = [FrameDecoder(SCRATCH, budget) for _ in range(5)]
    readers = [FakeReader(decoder) for decoder in decoders]
    for decoder, reader in zip(decoders, readers, strict=True):
        budget.register(decoder, reader)
    for which, size_bytes in steps:
        if size_bytes < 20_000:
            budget.release(decoders[which])
        else:
            budget.charge(decoders[which], size_bytes)
        assert budget.used_bytes == sum(decoder.charged_bytes for decoder in decoders)
        assert not any(reader.paused and not reader.decoder.charged_bytes for reader in readers)

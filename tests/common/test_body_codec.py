"""Compressed bodies: the formats, the limits, damage."""

import contextlib
import importlib
import lzma
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.body_codec import (
    BODY_BYTES_MAX,
    BodyUnreadable,
    CompressionMissing,
    CompressionType,
    compress_body,
    compression_of,
    decompress_body,
)
from pocketmq.common.record import COMPRESSED_FLAG

KINDS = list(CompressionType)


def flag(kind: CompressionType) -> int:
    return COMPRESSED_FLAG | kind.value


@given(st.sampled_from(KINDS), st.binary(max_size=3000), st.integers(1, 200), st.integers(0, 9))
def test_what_was_compressed_comes_back(kind: CompressionType, part: bytes, times: int, level: int) -> None:
    """Any bytes at any level come back, also where the limit is exactly their size."""
    body = part * times
    packed = compress_body(body, kind, level)
    assert decompress_body(packed, flag(kind)) == body
    assert decompress_body(packed, flag(kind), max(len(body), 1)) == body


@given(st.sampled_from(KINDS), st.binary(min_size=1, max_size=2000), st.data())
def test_a_cut_body_is_never_taken_for_a_whole_one(kind: CompressionType, body: bytes, data: Any) -> None:
    """Every proper prefix of a compressed body is refused."""
    packed = compress_body(body, kind)
    end = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(BodyUnreadable):
        decompress_body(packed[:end], flag(kind))


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_garbage_gives_a_typed_error_or_bytes(kind: CompressionType, garbage: bytes) -> None:
    """No other exception leaves the decoder, whatever the bytes."""
    with contextlib.suppress(BodyUnreadable):
        assert len(decompress_body(garbage, flag(kind), 1 << 16)) <= 1 << 16


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_stopped_at_the_limit(kind: CompressionType) -> None:
    """64 MiB of zeros in a few KiB are refused at 16 MiB; so is one byte above any limit."""
    bomb = compress_body(bytes(64 << 20), kind)
    with pytest.raises(BodyUnreadable, match=f"more than {BODY_BYTES_MAX} bytes"):
        decompress_body(bomb, flag(kind))
    with pytest.raises(BodyUnreadable, match="more than 99 bytes"):
        decompress_body(compress_body(bytes(100), kind), flag(kind), 99)


def test_a_zstd_frame_cannot_ask_for_a_huge_window() -> None:
    """A frame that declares a window of 128 MiB is refused before the decoder allocates it."""
    zstd = pytest.importorskip("backports.zstd")
    options = {zstd.CompressionParameter.window_log: 27}
    compressor = zstd.ZstdCompressor(options=options)
    frame = compressor.compress(b"x" * 1000) + compressor.flush()
    with pytest.raises(BodyUnreadable):
        decompress_body(frame, flag(CompressionType.ZSTD))


def test_no_type_means_zlib_and_an_unknown_one_is_named() -> None:
    """Clients before 5.0 set no type bits."""
    assert decompress_body(zlib.compress(b"old"), COMPRESSED_FLAG) == b"old"
    with pytest.raises(BodyUnreadable, match="0x400 is unknown"):
        compression_of(COMPRESSED_FLAG | 0x400)


def test_an_lz4_frame_has_what_rocketmqs_reader_needs() -> None:
    """Version 1, independent blocks (lz4-java reads no linked ones), no size, no dictionary."""
    frame = compress_body(bytes(100_000), CompressionType.LZ4)
    magic, descriptor = struct.unpack_from("<IB", frame)
    assert magic == 0x184D2204
    assert descriptor >> 6 == 1
    assert descriptor & 0b0010_0000
    assert not descriptor & 0b0000_1001


def test_frames_of_other_writers_are_read() -> None:
    """Linked blocks, content sizes and checksums of lz4; zstd with and without a content size."""
    frames = pytest.importorskip("lz4.frame")
    zstd = pytest.importorskip("backports.zstd")
    body = b"abc" * 100_000
    linked = frames.compress(body, block_linked=True, store_size=True, content_checksum=True, block_checksum=True)
    assert decompress_body(linked, flag(CompressionType.LZ4)) == body
    compressor = zstd.ZstdCompressor()
    streamed = compressor.compress(body) + compressor.flush()
    assert decompress_body(streamed, flag(CompressionType.ZSTD)) == body
    with pytest.raises(BodyUnreadable):
        decompress_body(lzma.compress(body), flag(CompressionType.ZSTD))


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_a_missing_library_is_named_with_its_extra(kind: CompressionType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A send reports the missing library at once, and so does the read of such a body."""
    packed = compress_body(b"x" * 100, kind)
    real = importlib.import_module

    def fail(name: str, package: str | None = None) -> Any:
        if "lz4" in name or "zstd" in name:
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(CompressionMissing, match=f"pocketmq\\[{kind.name.lower()}\\]"):
        compress_body(b"x", kind)
    with pytest.raises(BodyUnreadable, match=f"pocketmq\\[{kind.name.lower()}\\]"):
        decompress_body(packed, flag(kind))

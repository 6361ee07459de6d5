"""Bodies as they travel: compressed and unpacked, in RocketMQ's three formats.

Lives here: ``CompressionType``, ``compress_body``, ``decompress_body`` with its limit, the optional libraries.

ZLIB is a zlib stream (RFC 1950), LZ4 an LZ4 frame, ZSTD a Zstandard frame (RFC 8878): what RocketMQ 5.3's
ZlibCompressor, Lz4Compressor and ZstdCompressor write. LZ4 frames are written with independent blocks, because the
reader of RocketMQ's Java client knows no others; any are read. ``lz4`` and ``zstd`` are extras, imported at first use;
from Python 3.14 on zstd is in the standard library.
"""

import enum
import importlib
import zlib
from typing import Any, Final

from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.record import COMPRESSION_LZ4, COMPRESSION_TYPE_MASK, COMPRESSION_ZLIB, COMPRESSION_ZSTD

BODY_BYTES_MAX: Final = 16 << 20
"""A compressed body that grows beyond this is not unpacked: 4 times RocketMQ's largest message (maxMessageSize)."""
LEVEL_DEFAULT: Final = 5
"""RocketMQ's rocketmq.message.compressLevel."""
_STEP_BYTES: Final = 256 << 10
_WINDOW_LOG_MIN: Final = 10  # ZSTD_WINDOWLOG_MIN


class CompressionType(enum.Enum):
    """How a body is compressed; the values are the sysFlag's type bits (RocketMQ CompressionType, MessageSysFlag)."""

    LZ4 = COMPRESSION_LZ4
    ZSTD = COMPRESSION_ZSTD
    ZLIB = COMPRESSION_ZLIB


class BodyUnreadable(PocketMQError):
    """A compressed body cannot be unpacked; ``raw_body`` still has its bytes."""

    default_cause = Cause.CORRUPT


class CompressionMissing(PocketMQError):
    """The library of a compression is not installed."""

    default_cause = Cause.CONFIG


def load_library(kind: CompressionType) -> Any:
    """Return the module that compresses ``kind``: ``zlib``, ``lz4.frame`` or a ``zstd``. Raises
    ``CompressionMissing``.
    """
    if kind is CompressionType.ZLIB:
        return zlib
    extra = kind.name.lower()
    names = ("lz4.frame",) if kind is CompressionType.LZ4 else ("compression.zstd", "backports.zstd")
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise CompressionMissing(
        f"{kind.name} is not available", why=f"{names[-1]} is not installed", hint=f"pip install 'pocketmq[{extra}]'"
    )


def compress_body(body: bytes, kind: CompressionType, level: int = LEVEL_DEFAULT) -> bytes:
    """Return ``body`` compressed. LZ4 has no use for ``level``, as in RocketMQ. Raises ``CompressionMissing``."""
    library = load_library(kind)
    if kind is CompressionType.LZ4:
        packed: bytes = library.compress(body, block_linked=False, store_size=False)
    else:
        packed = library.compress(body, level)
    return packed


def compression_of(sys_flag: int) -> CompressionType:
    """Return how a body with this sysFlag is compressed; no type means zlib. Raises ``BodyUnreadable``."""
    kind = sys_flag & COMPRESSION_TYPE_MASK
    try:
        return CompressionType(kind or COMPRESSION_ZLIB)
    except ValueError:
        raise BodyUnreadable(
            "body not unpacked", why=f"compression type 0x{kind:x} is unknown", hint="read raw_body"
        ) from None


def decompress_body(body: bytes, sys_flag: int, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return a compressed body unpacked. Raises ``BodyUnreadable`` unless it is sound and of at most ``bytes_max``.

    Memory is bounded by ``bytes_max`` whatever the body says of itself.
    """
    kind = compression_of(sys_flag)
    try:
        library = load_library(kind)
    except CompressionMissing as error:
        raise BodyUnreadable("body not unpacked", why=f"{error.what}: {error.why}", hint=error.hint) from error
    try:
        if kind is CompressionType.ZLIB:
            return _unzip(body, bytes_max)
        return _unpack(_decompressor(kind, library, bytes_max), body, bytes_max)
    except BodyUnreadable:
        raise
    except (zlib.error, RuntimeError, ValueError, EOFError, _zstd_error(kind, library)) as error:
        raise BodyUnreadable("body not unpacked", why=str(error), hint="read raw_body") from error


def _zstd_error(kind: CompressionType, library: Any) -> type[Exception]:
    """Return the error class of the library; lz4 raises ``RuntimeError``."""
    error: type[Exception] = library.ZstdError if kind is CompressionType.ZSTD else zlib.error
    return error


def _decompressor(kind: CompressionType, library: Any, bytes_max: int) -> Any:
    if kind is CompressionType.LZ4:
        return library.LZ4FrameDecompressor()
    # A frame may ask for a window of gigabytes; no window larger than the body is of any use.
    window_log = max(_WINDOW_LOG_MIN, min((bytes_max - 1).bit_length(), 27))
    return library.ZstdDecompressor(options={library.DecompressionParameter.window_log_max: window_log})


def _unzip(body: bytes, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(body, bytes_max)
    if not unpacker.eof:
        if unpacker.unconsumed_tail:
            # the end of a body of exactly the limit may still be unread
            more = unpacker.decompress(unpacker.unconsumed_tail, 1)
            if not more and unpacker.eof:
                return unpacked
            raise _too_large(bytes_max) if more else _cut_off()
        raise _cut_off()
    return unpacked


def _unpack(unpacker: Any, body: bytes, bytes_max: int) -> bytes:
    """Feed a decompressor of the standard library's kind, in steps, until it is at its end."""
    parts: list[bytes] = []
    size_bytes = 0
    data = body
    while not unpacker.eof:
        part = unpacker.decompress(data, max_length=min(_STEP_BYTES + size_bytes, bytes_max - size_bytes + 1))
        data = b""
        size_bytes += len(part)
        if size_bytes > bytes_max:
            raise _too_large(bytes_max)
        if not part and not unpacker.eof and unpacker.needs_input:
            raise _cut_off()
        parts.append(part)
        if unpacker.needs_input and not unpacker.eof:
            raise _cut_off()
    return b"".join(parts)


def _too_large(bytes_max: int) -> BodyUnreadable:
    return BodyUnreadable("body not unpacked", why=f"more than {bytes_max} bytes", hint="read raw_body")


def _cut_off() -> BodyUnreadable:
    return BodyUnreadable("body not unpacked", why="it ends too early", hint="read raw_body")

"""Frames: RocketMQ's envelope, and the decoder that cuts a byte stream into them. No I/O.

    0  u32  length of all that follows = 4 + header length + body length
    4  u8   serialize type: 0 JSON, 1 ROCKETMQ (binary), 2 msgpack (PocketMQ)
    5  u24  header length
    8       header, then body

(RocketMQ ``RemotingCommand.java``, ``NettyDecoder.java``.)

Lives here: ``Frame``, ``FrameDecoder``, the limits of one frame.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from pocketmq.remoting.errors import BadFrame, FrameTooLarge
from pocketmq.remoting.frame_budget import FrameBudget

Buffer = bytes | bytearray | memoryview
"""Anything a transport can write."""

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""RocketMQ's ``com.rocketmq.remoting.frameMaxLength``: the largest value of the length field."""
HEADER_BYTES_MAX = 2 * 1024 * 1024
"""The longest header that a server receives. The codecs answer with a refusal from 256 KiB or 1 MiB on; a peer that
sends more than this does not know those limits, and its connection is closed before the header arrives."""
SCRATCH_BYTES = 256 * 1024
"""How much one read takes from a socket: one buffer a loop, shared by its connections."""
NARROW_BYTES = 16 * 1024
"""How much one read takes from a peer that sends many small frames."""
DEDICATED_BYTES = 64 * 1024
"""An unfinished frame of at least this size is read straight into memory of its own."""
PREFIX_BYTES = 8
_HTTP: Final = int.from_bytes(b"HTTP")
"""The length that an answer in HTTP seems to have."""
SPEAKS_HTTP: Final = "the peer speaks HTTP"
PREFIX = Struct(">II")
"""Length; serialize type and header length in one word."""

JSON = 0
BINARY = 1
MSGPACK = 2

_HUGE_PAGE_BYTES = 2 * 1024 * 1024
_PAGE_BYTES = 4096


class Frame:
    """One whole frame; header and body are memory of its own (the body of a large one is a memoryview)."""

    __slots__ = ("body", "header", "serialize_type")

    def __init__(self, serialize_type: int, header: Buffer, body: Buffer) -> None:
        self.serialize_type = serialize_type
        self.header = header
        self.body = body


def new_scratch() -> memoryview:
    """Return the buffer that all decoders of one loop read into, one after the other."""
    return memoryview(bytearray(SCRATCH_BYTES))


class FrameDecoder:
    """Cuts received bytes into frames; made for ``asyncio.BufferedProtocol``.

    ``get_buffer`` says where the next bytes go, ``buffer_updated`` returns the frames they complete. Between the two
    calls nothing else may use the scratch buffer; between ``buffer_updated`` and the next ``get_buffer`` the decoder
    does not use it.
    Holds: an unfinished frame keeps fewer than ``frame_bytes_max + 4`` bytes, of which only the received ones are
    resident; they are charged to ``budget``.
    ``rest`` and ``large`` hold the received part of an unfinished frame, small or large: without them the next bytes
    begin a frame, at the start of the scratch buffer.
    ``error`` becomes ``FrameTooLarge`` or ``BadFrame`` as soon as the first eight bytes of a frame show it; the frames
    before it are still returned, later bytes are dropped.
    ``in_place``, if set, sees each read that begins with a new frame: the buffer, and how many bytes came. It may take
    frames from the beginning of it, and returns how many bytes they have; the rest is cut into frames as usual.
    """

    __slots__ = (
        "_budget",
        "_filled",
        "_frame_bytes_max",
        "_header_bytes_max",
        "_scratch",
        "_window",
        "charged_bytes",
        "error",
        "frame_count",
        "in_place",
        "large",
        "rest",
    )

    def __init__(
        self,
        scratch: memoryview,
        budget: FrameBudget,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        assert len(scratch) > DEDICATED_BYTES + PREFIX_BYTES
        self._scratch = scratch
        self._window = scratch
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self.rest = b""  # the received part of a small frame
        self.large: memoryview | None = None  # the whole of a large frame, of which _filled bytes have come
        self._filled = 0
        self.charged_bytes = 0
        self.error: BadFrame | None = None
        self.in_place: Callable[[memoryview, int], int] | None = None
        self.frame_count = 0
        """Frames completed so far: if it stays the same while ``half`` is true, a frame is slow."""

    @property
    def half(self) -> bool:
        """Whether part of a frame has been received."""
        return self.large is not None or bool(self.rest)

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Return where to put the next bytes; never empty."""
        if self.large is not None:
            return self.large[self._filled :]
        rest = self.rest
        if rest:
            scratch = self._scratch
            scratch[: len(rest)] = rest
            return scratch[len(rest) : len(rest) + len(self._window)]
        return self._window

    def skip(self, taken_bytes: int, received_bytes: int) -> int:
        """Drop whole frames at the start of the scratch buffer, which another reader has taken, ``rest`` with them;
        return how many of the ``received_bytes`` (with ``rest``) are left, now at its start."""
        if self.rest:
            self.rest = b""
            self._budget.release(self)
        self.frame_count += 1
        left = received_bytes - taken_bytes
        self._scratch[:left] = bytes(self._scratch[taken_bytes:received_bytes])
        return left

    def narrow(self, yes: bool) -> None:
        """Limit a read to ``NARROW_BYTES``, or lift that limit."""
        self._window = self._scratch[:NARROW_BYTES] if yes else self._scratch

    def buffer_updated(self, received_bytes: int) -> list[Frame]:
        """Take the ``received_bytes`` first bytes of the last ``get_buffer``; return the frames they complete."""
        large = self.large
        if large is not None:
            self._filled += received_bytes
            if self._filled < len(large):
                self._charge_large(len(large))
                return []
            self.large = None
            self._budget.release(self)
            self.frame_count += 1
            word = int.from_bytes(large[4:8], "big")
            header_end = PREFIX_BYTES + (word & 0xFFFFFF)
            return [Frame(word >> 24, bytes(large[PREFIX_BYTES:header_end]), large[header_end:])]
        if self.error is not None:
            return []
        at = 0
        if self.in_place is not None and not self.rest:
            at = self.in_place(self._scratch, received_bytes)
            if at:
                self.frame_count += 1
                if at == received_bytes:
                    return []
        return self._parse(at, len(self.rest) + received_bytes)

    def _parse(self, at: int, end: int) -> list[Frame]:
        view = self._scratch
        frames: list[Frame] = []
        total = 0
        while end - at >= PREFIX_BYTES:
            length, word = PREFIX.unpack_from(view, at)
            header_bytes = word & 0xFFFFFF
            if length > self._frame_bytes_max or header_bytes > self._header_bytes_max or header_bytes + 4 > length:
                self.error = self._refusal(length, header_bytes)
                self.close()
                break
            total = length + 4
            next_at = at + total
            if next_at > end:
                break
            header_at = at + PREFIX_BYTES
            body_at = header_at + header_bytes
            frames.append(
                Frame(
                    word >> 24,
                    bytes(view[header_at:body_at]),
                    bytes(view[body_at:next_at]) if body_at != next_at else b"",
                )
            )
            at = next_at
        self.frame_count += len(frames)
        if self.error is not None:
            return frames
        if at == end:
            if self.rest:
                self.rest = b""
                self._budget.release(self)
            return frames
        if end - at >= PREFIX_BYTES and total >= DEDICATED_BYTES:
            import numpy as np  # not at import: most clients get no frame of this size

            # numpy.empty: pages become resident as they are written; bytearray would fill all of them with zeros
            large = np.empty(total, np.uint8).data
            large[: end - at] = view[at:end]
            self.large = large
            self._filled = end - at
            self.rest = b""
            self._charge_large(total)
        else:
            self.rest = bytes(view[at:end])
            self._budget.charge(self, end - at)
        return frames

    def _charge_large(self, total: int) -> None:
        # NumPy asks for huge pages from 4 MiB on: then one received byte can make 2 MiB resident
        page = _HUGE_PAGE_BYTES if total >= 2 * _HUGE_PAGE_BYTES else _PAGE_BYTES
        self._budget.charge(self, min(total, (self._filled + page - 1) // page * page))

    def _refusal(self, length: int, header_bytes: int) -> BadFrame:
        if length == _HTTP:
            return BadFrame("frame refused", why=SPEAKS_HTTP, hint="connect to the port of a name server or broker")
        if length > self._frame_bytes_max:
            return FrameTooLarge(
                "frame refused",
                why=f"its length field says {length} bytes, the limit is {self._frame_bytes_max}",
                hint="send smaller batches; or the peer does not speak RocketMQ's protocol",
            )
        if header_bytes + 4 <= length:
            return FrameTooLarge(
                "frame refused",
                why=f"its header has {header_bytes} bytes, the limit is {self._header_bytes_max}",
                hint="name fewer topics and queues in one request",
            )
        return BadFrame(
            "frame refused",
            why=f"bad header length: {header_bytes} bytes of header in a frame of {length}",
            hint="the peer does not speak RocketMQ's protocol",
        )

    def close(self) -> None:
        """Drop the received part and give its bytes back to the budget."""
        self.large = None
        self.rest = b""
        self._budget.release(self)

    def feed(self, data: Buffer) -> list[Frame]:
        """Take all of ``data`` in one call, as a socket would deliver it."""
        frames: list[Frame] = []
        view = memoryview(data)
        while view:
            target = self.get_buffer()
            count = min(len(target), len(view))
            target[:count] = view[:count]
            frames += self.buffer_updated(count)
            view = view[count:]
        return frames

"""The protocol between a slave and its master on the HA port.

Lives here: every message, its encoding, the checks of received messages, ``FrameDecoder``. No I/O.

One TCP connection, opened by the slave. It begins with ``PREAMBLE``, whose first byte makes it a negative number, which
is never an offset in RocketMQ's protocol. Then frames in both directions, all numbers big-endian:

    u32 length of the rest | u8 kind | u32 crc32 of the 5 bytes before and of the payload without its body | payload

==========  ===============  ==============================================================================
kind        direction        payload
==========  ===============  ==============================================================================
HELLO       slave -> master  msgpack map ``Hello``
WELCOME     master -> slave  msgpack map ``Welcome``
REFUSED     master -> slave  msgpack map ``Refused``; then the master closes
DATA        master -> slave  u64 offset, master_end, confirm_offset, now_ms | u32 crc32 of body | body
HEARTBEAT   master -> slave  u64 master_end, confirm_offset, now_ms
ACK         slave -> master  u64 offset, flushed_offset, echo_ms (``now_ms`` of the last frame that was taken over)
FETCH       master -> slave  u64 from_offset, to_offset (a master in recovery)
FETCHED     slave -> master  u64 offset | u32 crc32 of body | body; an empty body: the slave has no more
==========  ===============  ==============================================================================

A body never crosses the end of a segment; blank ends of segments are sent as well. The stream starts when the slave has
answered WELCOME with an ACK of exactly ``start_offset``: its log then ends there. Each body continues where the one
before it ended.
"""

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, Cause, PocketMQError

PREAMBLE: Final = b"\xffPMQHA\x00\x01"
"""A slave's first bytes; the last one is the version."""
BODY_BYTES_MAX: Final = 8 << 20
HANDSHAKE_BYTES_MAX: Final = 1 << 20
"""Largest HELLO, WELCOME or REFUSED."""
EPOCHS_MAX: Final = 8192
"""Most epochs in a table on the wire."""
NAME_CHARS_MAX: Final = 255
OFFSET_MAX: Final = (1 << 62) - 1
CRC_NAME: Final = "crc32"

HELLO: Final = 1
WELCOME: Final = 2
REFUSED: Final = 3
DATA: Final = 4
HEARTBEAT: Final = 5
ACK: Final = 6
FETCH: Final = 7
FETCHED: Final = 8

_HEAD: Final = struct.Struct(">IB")
_CHECK: Final = struct.Struct(">I")
_BESIDE_PAYLOAD: Final = 1 + _CHECK.size
"""Bytes that the length counts besides the payload."""
_DATA: Final = struct.Struct(">QQQQI")
_HEARTBEAT: Final = struct.Struct(">QQQ")
_ACK: Final = struct.Struct(">QQQ")
_FETCH: Final = struct.Struct(">QQ")
_FETCHED: Final = struct.Struct(">QI")
HEAD_BYTES: Final = _HEAD.size
PAYLOAD_AT: Final = _HEAD.size + _CHECK.size
DATA_HEAD_BYTES: Final = PAYLOAD_AT + _DATA.size

FROM_SLAVE: Final = frozenset({HELLO, ACK, FETCHED})
FROM_MASTER: Final = frozenset({WELCOME, REFUSED, DATA, HEARTBEAT, FETCH})

_SIZES: Final[dict[int, tuple[int, int]]] = {
    HELLO: (1, HANDSHAKE_BYTES_MAX),
    WELCOME: (1, HANDSHAKE_BYTES_MAX),
    REFUSED: (1, HANDSHAKE_BYTES_MAX),
    DATA: (_DATA.size + 1, _DATA.size + BODY_BYTES_MAX),
    HEARTBEAT: (_HEARTBEAT.size, _HEARTBEAT.size),
    ACK: (_ACK.size, _ACK.size),
    FETCH: (_FETCH.size, _FETCH.size),
    FETCHED: (_FETCHED.size, _FETCHED.size + BODY_BYTES_MAX),
}
"""Minimum and maximum payload bytes of each kind."""
_FIXED_BYTES: Final[dict[int, int]] = {DATA: _DATA.size, FETCHED: _FETCHED.size}
"""The fixed part before a body, which has a CRC of its own."""

EpochRow = tuple[int, str, int]
"""(number, owner, start offset) of one epoch."""


class HaProtocolError(PocketMQError):
    """A peer on the HA port sent what the protocol does not allow; the connection is closed."""

    default_cause = Cause.CODEC


class RefusalCode:
    """Why a master refuses a slave: the closed list of ``Refused.code``."""

    OTHER_CLUSTER: Final = "other_cluster"
    OTHER_BROKER_NAME: Final = "other_broker_name"
    OTHER_SEGMENT_SIZE: Final = "other_segment_size"
    OTHER_CHECKSUM: Final = "other_checksum"
    BAD_HELLO: Final = "bad_hello"
    SAME_NODE: Final = "same_node"
    DIFFERENT_LOG: Final = "different_log"
    LARGER_OFFSET: Final = "larger_offset"
    TOO_MANY_SLAVES: Final = "too_many_slaves"
    HIGHER_EPOCH: Final = "higher_epoch"
    """The slave knows an epoch above the master's: the master was replaced."""
    PROMISED_TO_OTHER: Final = "promised_to_other"
    """The slave has promised this epoch's number to another node."""
    FENCED: Final = "fenced"
    NOT_READY: Final = "not_ready"
    """The master starts, or recovers and does not need this slave's log: try again."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A slave's introduction. ``promised``: the (epoch, owner) it has promised, (0, "") for none."""

    cluster: str
    broker_name: str
    broker_id: int
    node_id: str
    epochs: list[EpochRow]
    end_offset: int
    min_offset: int
    segment_bytes: int
    promised: tuple[int, str] = (0, "")
    crc: str = CRC_NAME
    ack_policy: str = "WRITTEN"


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """A master's answer to HELLO.

    ``epochs`` is its whole table, the last one is the present epoch (``epoch``, ``owner``). ``common_offset``: the
    offset up to which the two logs are the same. ``cut_to``: the slave must first cut its log to this offset, then
    ``start_offset`` is the same. ``restart``: the slave must drop its whole log and begin an empty one at
    ``start_offset``, the master's oldest byte. ``recovering``: no stream follows, the master sends FETCH for bytes that
    it may have lost. ``counted`` False: the slave gets the log, but its acknowledgements do not count yet, and it must
    not be promoted. ``address``: where the master serves clients, host:port; the slave fetches tables there. Empty: an
    older master, which does not send it.
    """

    epochs: list[EpochRow]
    epoch: int
    owner: str
    role: str
    min_offset: int
    end_offset: int
    start_offset: int
    common_offset: int = 0
    cut_to: int | None = None
    restart: bool = False
    recovering: bool = False
    counted: bool = True
    address: str = ""
    confirm_offset: int = 0
    in_sync_replicas: int
    total_replicas: int
    segment_bytes: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The master refuses the slave. ``code``: see ``RefusalCode``; ``text``: what happened and what to do."""

    code: str
    text: str


class Data(NamedTuple):
    """Bytes of the log from ``offset``. ``body`` is a view into the decoder's buffer, good until its next use."""

    offset: int
    master_end: int
    confirm_offset: int
    now_ms: int
    crc: int
    body: memoryview


class Heartbeat(NamedTuple):
    """A sign of life, with the end of the master's log."""

    master_end: int
    confirm_offset: int
    now_ms: int


class Ack(NamedTuple):
    """The slave holds all below ``offset`` as its policy requires, and all below ``flushed_offset`` on disk."""

    offset: int
    flushed_offset: int
    echo_ms: int


class Fetch(NamedTuple):
    """The master asks for [from_offset, to_offset) of the slave's log."""

    from_offset: int
    to_offset: int


class Fetched(NamedTuple):
    """Bytes of the slave's log. ``body`` is a view into the decoder's buffer, good until its next use."""

    offset: int
    crc: int
    body: memoryview


Message = Hello | Welcome | Refused | Data | Heartbeat | Ack | Fetch | Fetched

_ENCODER: Final = msgspec.msgpack.Encoder()
_HELLO: Final = msgspec.msgpack.Decoder(Hello)
_WELCOME: Final = msgspec.msgpack.Decoder(Welcome)
_REFUSED: Final = msgspec.msgpack.Decoder(Refused)


def _framed(kind: int, payload: bytes) -> bytes:
    low, high = _SIZES[kind]
    assert low <= len(payload) <= high
    return _checked(_HEAD.pack(_BESIDE_PAYLOAD + len(payload), kind), payload)


def _checked(head: bytes, fixed: bytes) -> bytes:
    """Return both with their check between them: TCP's own has 16 bits, and a middlebox recomputes it. A flipped bit in
    an ACK would confirm bytes that no slave has.
    """
    return head + _CHECK.pack(zlib.crc32(fixed, zlib.crc32(head))) + fixed


def encode_hello(hello: Hello) -> bytes:
    """Return the frame; the preamble goes before it."""
    return _framed(HELLO, _ENCODER.encode(hello))


def encode_welcome(welcome: Welcome) -> bytes:
    """Return the frame."""
    return _framed(WELCOME, _ENCODER.encode(welcome))


def encode_refused(refused: Refused) -> bytes:
    """Return the frame."""
    return _framed(REFUSED, _ENCODER.encode(refused))


def encode_data_head(
    offset: int, master_end: int, confirm_offset: int, now_ms: int, crc: int, body_bytes: int
) -> bytes:
    """Return a DATA frame without its body, which follows it."""
    assert 0 < body_bytes <= BODY_BYTES_MAX
    head = _HEAD.pack(_BESIDE_PAYLOAD + _DATA.size + body_bytes, DATA)
    return _checked(head, _DATA.pack(offset, master_end, confirm_offset, now_ms, crc))


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Return the frame."""
    return _framed(HEARTBEAT, _HEARTBEAT.pack(*heartbeat))


def encode_ack(ack: Ack) -> bytes:
    """Return the frame."""
    return _framed(ACK, _ACK.pack(*ack))


def encode_fetch(fetch: Fetch) -> bytes:
    """Return the frame."""
    return _framed(FETCH, _FETCH.pack(*fetch))


def encode_fetched_head(offset: int, crc: int, body_bytes: int) -> bytes:
    """Return a FETCHED frame without its body, which follows it."""
    assert 0 <= body_bytes <= BODY_BYTES_MAX
    return _checked(_HEAD.pack(_BESIDE_PAYLOAD + _FETCHED.size + body_bytes, FETCHED), _FETCHED.pack(offset, crc))


class FrameDecoder:
    """Turn received bytes into messages. Does no I/O, copies no body.

    ``buffer()`` returns memory to receive into, ``received`` takes the number of received bytes, ``next`` returns whole
    messages. Every frame is checked from its head on: kind, size, then every number. The buffer starts at 64 KiB, and
    grows only to hold a frame whose head was checked. A body is valid until the next ``buffer()``.
    """

    FIRST_BYTES: Final = 64 << 10

    def __init__(self, kinds: frozenset[int]) -> None:
        """``kinds``: the frames that the peer may send now; change ``kinds`` when that changes."""
        self.kinds = kinds
        self._buffer = bytearray(self.FIRST_BYTES)
        self._start = 0
        self._end = 0

    @property
    def pending_bytes(self) -> int:
        """Received bytes not yet returned as messages."""
        return self._end - self._start

    def buffer(self) -> memoryview:
        """Return free memory, never empty. Bodies that ``next`` returned may be overwritten from now on."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            return memoryview(self._buffer)
        need = self._frame_bytes()
        if need > len(self._buffer) - start or end == len(self._buffer):
            held = bytes(memoryview(self._buffer)[start:end])
            if need > len(self._buffer):
                self._buffer = bytearray(need)
            self._buffer[: len(held)] = held
            self._start, self._end = 0, len(held)
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> None:
        """Take over ``count`` bytes that were put at the start of ``buffer()``."""
        assert 0 <= count <= len(self._buffer) - self._end
        self._end += count

    def feed(self, data: bytes | memoryview) -> list[Message]:
        """Take bytes from elsewhere and return the messages that are complete; bodies are copied. For tests and small
        messages. Raises ``HaProtocolError``."""
        out: list[Message] = []
        view = memoryview(data)
        while view:
            free = self.buffer()
            count = min(len(free), len(view))
            free[:count] = view[:count]
            free.release()
            self.received(count)
            view = view[count:]
            while (message := self.next()) is not None:
                if isinstance(message, (Data, Fetched)):
                    message = message._replace(body=memoryview(bytes(message.body)))
                out.append(message)
        return out

    def _frame_bytes(self) -> int:
        """Return the size of the first frame, as far as known. ``next`` has checked its head."""
        if self._end - self._start < HEAD_BYTES:
            return HEAD_BYTES
        length, kind = _HEAD.unpack_from(self._buffer, self._start)
        self._check_head(length, kind)
        return 4 + int(length)

    def _check_head(self, length: int, kind: int) -> None:
        if kind not in self.kinds:
            raise HaProtocolError("HA connection closed", why=f"a frame of kind {kind} is not allowed here")
        low, high = _SIZES[kind]
        size = length - _BESIDE_PAYLOAD
        if not low <= size <= high:
            raise HaProtocolError(
                "HA connection closed", why=f"a frame of kind {kind} with {size} bytes, not {low} to {high}"
            )

    def next(self) -> Message | None:
        """Return the next whole message, None if bytes are missing. Raises ``HaProtocolError``, even for an incomplete
        frame with a bad head; then the connection must be closed."""
        start = self._start
        if self._end - start < HEAD_BYTES:
            return None
        length, kind = _HEAD.unpack_from(self._buffer, start)
        self._check_head(length, kind)
        end = start + 4 + length
        if self._end < end:
            return None
        at = start + PAYLOAD_AT
        fixed_end = at + _FIXED_BYTES[kind] if kind in _FIXED_BYTES else end
        view = memoryview(self._buffer)
        check = zlib.crc32(view[at:fixed_end], zlib.crc32(view[start : start + HEAD_BYTES]))
        if check != _CHECK.unpack_from(self._buffer, start + HEAD_BYTES)[0]:
            raise _bad(f"a frame of kind {kind} was corrupted in transit: its CRC differs")
        self._start = end
        return self._decode(kind, at, end)

    def _decode(self, kind: int, at: int, end: int) -> Message:
        buffer = self._buffer
        if kind == ACK:
            ack = Ack(*_ACK.unpack_from(buffer, at))
            if ack.offset > OFFSET_MAX or ack.flushed_offset > OFFSET_MAX:
                raise _bad(f"an ACK of {ack.offset}, flushed {ack.flushed_offset}")
            return ack
        if kind == DATA:
            offset, master_end, confirm_offset, now_ms, crc = _DATA.unpack_from(buffer, at)
            body = memoryview(buffer)[at + _DATA.size : end].toreadonly()
            if not offset + len(body) <= master_end <= OFFSET_MAX or confirm_offset > master_end:
                raise _bad(f"DATA [{offset}, {offset + len(body)}) of {master_end}, confirmed {confirm_offset}")
            return Data(offset, master_end, confirm_offset, now_ms, crc, body)
        if kind == HEARTBEAT:
            heartbeat = Heartbeat(*_HEARTBEAT.unpack_from(buffer, at))
            if not heartbeat.confirm_offset <= heartbeat.master_end <= OFFSET_MAX:
                raise _bad(f"a HEARTBEAT at {heartbeat.master_end}, confirmed {heartbeat.confirm_offset}")
            return heartbeat
        if kind == FETCHED:
            offset, crc = _FETCHED.unpack_from(buffer, at)
            body = memoryview(buffer)[at + _FETCHED.size : end].toreadonly()
            if offset + len(body) > OFFSET_MAX:
                raise _bad(f"FETCHED [{offset}, {offset + len(body)})")
            return Fetched(offset, crc, body)
        if kind == FETCH:
            fetch = Fetch(*_FETCH.unpack_from(buffer, at))
            if not fetch.from_offset < fetch.to_offset <= OFFSET_MAX:
                raise _bad(f"FETCH [{fetch.from_offset}, {fetch.to_offset})")
            return fetch
        payload = bytes(memoryview(buffer)[at:end])
        try:
            if kind == HELLO:
                return _checked_hello(_HELLO.decode(payload))
            if kind == WELCOME:
                return _checked_welcome(_WELCOME.decode(payload))
            refused = _REFUSED.decode(payload)
        except DECODE_ERRORS as error:
            raise _bad(f"a frame of kind {kind} cannot be decoded: {error}") from error
        return Refused(code=refused.code[:NAME_CHARS_MAX], text=refused.text[:4096])


def _bad(why: str) -> HaProtocolError:
    return HaProtocolError("HA connection closed", why=why)


def _check_offsets(**offsets: int) -> None:
    for name, offset in offsets.items():
        if not 0 <= offset <= OFFSET_MAX:
            raise _bad(f"{name}={offset}")


def _check_names(**names: str) -> None:
    for name, text in names.items():
        if len(text) > NAME_CHARS_MAX:
            raise _bad(f"{name} of {len(text)} characters")


def _check_epochs(rows: list[EpochRow]) -> None:
    """Raise unless numbers ascend and starts do not decrease."""
    if len(rows) > EPOCHS_MAX:
        raise _bad(f"{len(rows)} epochs, more than {EPOCHS_MAX}")
    last_number, last_start = -1, 0
    for number, owner, start in rows:
        if not last_number < number <= OFFSET_MAX or not last_start <= start <= OFFSET_MAX:
            raise _bad(f"epoch {number} at {start} after epoch {last_number} at {last_start}")
        _check_names(owner=owner)
        last_number, last_start = number, start


def _checked_hello(hello: Hello) -> Hello:
    _check_names(
        cluster=hello.cluster,
        broker_name=hello.broker_name,
        node_id=hello.node_id,
        crc=hello.crc,
        ack_policy=hello.ack_policy,
        promised_owner=hello.promised[1],
    )
    _check_offsets(
        broker_id=hello.broker_id,
        end_offset=hello.end_offset,
        min_offset=hello.min_offset,
        segment_bytes=hello.segment_bytes,
        promised_epoch=hello.promised[0],
    )
    _check_epochs(hello.epochs)
    if hello.min_offset > hello.end_offset:
        raise _bad(f"a log from {hello.min_offset} to {hello.end_offset}")
    return hello


def _checked_welcome(welcome: Welcome) -> Welcome:
    _check_names(owner=welcome.owner, role=welcome.role)
    _check_offsets(
        epoch=welcome.epoch,
        min_offset=welcome.min_offset,
        end_offset=welcome.end_offset,
        start_offset=welcome.start_offset,
        common_offset=welcome.common_offset,
        cut_to=welcome.cut_to or 0,
        confirm_offset=welcome.confirm_offset,
        in_sync_replicas=welcome.in_sync_replicas,
        total_replicas=welcome.total_replicas,
        segment_bytes=welcome.segment_bytes,
    )
    _check_epochs(welcome.epochs)
    if not welcome.recovering and not welcome.min_offset <= welcome.start_offset <= welcome.end_offset:
        raise _bad(f"a start at {welcome.start_offset} in a log from {welcome.min_offset} to {welcome.end_offset}")
    if welcome.cut_to is not None and welcome.cut_to != welcome.start_offset:
        raise _bad(f"a cut to {welcome.cut_to} and a start at {welcome.start_offset}")
    if not welcome.recovering and (not welcome.epochs or welcome.epochs[-1][:2] != (welcome.epoch, welcome.owner)):
        raise _bad(f"epoch {welcome.epoch} of {welcome.owner} is not the last of the table")
    return welcome

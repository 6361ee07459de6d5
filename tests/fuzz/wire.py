"""Targets: frames, headers of three kinds, bodies, and the HA connection.

Lives here: ``TARGETS``.
"""

import base64
import gzip
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pocketmq.broker.send.short_rocketmq_header import cut_binary, is_cut_at_fields
from pocketmq.common.errors import PocketMQError
from pocketmq.common.hashes import crc32
from pocketmq.remoting.codec import decode_request, decode_response, encode_request
from pocketmq.remoting.codec_binary import decode_binary
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.fastjson import standard_json
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK, Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.pull import PullMessageRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, SendMessageV2RequestHeader
from pocketmq.remoting.short_answers import ShortAnswers
from pocketmq.store.ha import wire
from tests.fuzz.target import Target
from tests.remoting.test_short_answers import Append
from tests.remoting.test_short_frames import answer_of
from tests.test_decode_errors import JSON_DECODERS, PACKED_DECODERS

VECTORS: Final = Path(__file__).parents[1] / "vectors"
SCRATCH: Final = new_scratch()
CODES: Final = sorted(PROTOCOL)


# ---- frames


def _frames(pieces: list[bytes]) -> tuple[list[tuple[int, bytes, bytes]], str]:
    decoder = FrameDecoder(SCRATCH, FrameBudget(), header_bytes_max=1 << 16)
    found = []
    for piece in pieces:
        got = decoder.feed(piece)
        found += [(frame.serialize_type, bytes(frame.header), bytes(frame.body)) for frame in got]
        if decoder.error is not None:
            return found, type(decoder.error).__name__
    return found, ""


def frames(data: bytes) -> None:
    """The first byte is the size of the pieces; in pieces or at once, the same frames come out."""
    size, stream = data[0] % 64 + 1 if data else 1, data[1:]
    whole = _frames([stream])
    assert _frames([stream[at : at + size] for at in range(0, len(stream), size)]) == whole
    for kind, header, body in whole[0]:
        for decode in (decode_request, lambda frame: decode_response(frame, RequestCode.PULL_MESSAGE)):
            try:
                decode(Frame(kind, header, body))
            except PocketMQError:
                continue


def _rocketmq_frames() -> Iterator[bytes]:
    for path in sorted(VECTORS.glob("rocketmq-*/frames.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                yield base64.b64decode(json.loads(line)["frame"])


def _our_frames() -> Iterator[bytes]:
    send = SendMessageV2RequestHeader("g", "T", "TBW102", 4, 1, 0, 1_700_000_000_000, 0, "TAGS\x01a\x02")
    pull = PullMessageRequestHeader("g", "T", 1, 5, 32, 2, 0, 15_000, 0, "a || b", "TAG")
    append = NativeAppendRequestHeader("g", True, [("T", 1, 1)], 3000)
    for kind in (JSON, BINARY, MSGPACK):
        yield b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, 7, send, b"body", serialize_type=kind))
        yield b"".join(encode_request(RequestCode.PULL_MESSAGE, 8, pull, b"", serialize_type=kind))
    yield b"".join(encode_request(RequestCode.NATIVE_APPEND, 9, append, b"\0\0\0\4body"))


def _seed_frames() -> Iterator[bytes]:
    for frame in (*_our_frames(), *_rocketmq_frames()):
        if len(frame) < 4096:
            yield b"\x07" + frame


# ---- headers


def header(kind: int) -> Callable[[bytes], None]:
    """Read a header as a request and as the answer to the request that the first byte chooses."""

    def run(data: bytes) -> None:
        code, header = CODES[data[0] % len(CODES)] if data else CODES[0], data[1:]
        for decode in (decode_request, lambda frame: decode_response(frame, code)):
            try:
                decode(Frame(kind, header, b""))
            except PocketMQError:
                continue

    return run


def headers_of(kind: int) -> Callable[[], Iterator[bytes]]:
    """Return the headers of this kind in all frames that we have."""

    def seeds() -> Iterator[bytes]:
        for frame in (*_our_frames(), *_rocketmq_frames()):
            if frame[4] == kind:
                yield b"\x00" + frame[8 : 8 + int.from_bytes(frame[5:8], "big")]

    return seeds


def short_binary(data: bytes) -> None:
    """What the short path cuts out of a binary header is what the decoder reads."""
    cut = cut_binary(data)
    if cut is None or not is_cut_at_fields(data, cut[3]):
        return
    opaque, born, properties, _ = cut
    code, wide_opaque, _, _, _, remark, fields = decode_binary(data)
    names = ("bornTimestamp", "properties") if code == RequestCode.SEND_MESSAGE else ("g", "i")
    assert (opaque, remark) == (wide_opaque, "")
    assert (born.decode("utf-8", "replace"), properties.decode("utf-8", "replace")) == tuple(map(fields.get, names))


def short_answers(data: bytes) -> None:
    """An answer that the client reads in place is what the decoder reads."""
    requests = {number: Append(1) for number in range(4)} | {8: Append(1, 1)}
    entries: dict[int, Any] = dict(requests)
    size = ShortAnswers(entries, _raise).take(memoryview(bytearray(data + bytes(64))), len(data))
    for frame in FrameDecoder(SCRATCH, FrameBudget()).feed(data[:size]):
        response = decode_response(frame, RequestCode.NATIVE_APPEND)
        results: Any = response.header
        places = requests[response.opaque].places
        assert response.code == 0
        assert places == [(first, runs[0][0]) for _, first, runs, _ in results.results]


def _raise(error: Exception) -> None:
    raise error


# ---- bodies and tables: the decoders that tests/test_decode_errors.py lists


PLACE_BYTES: Final = 4


def one_of(decoders: dict[str, Callable[[bytes], object]]) -> Callable[[bytes], None]:
    """Read bytes with the decoder that the first four bytes choose. A decoder's place is given by its name, so that a
    committed crash keeps its decoder while others are added."""
    by_place = {place_of(name): decode for name, decode in decoders.items()}
    assert len(by_place) == len(decoders)
    places = sorted(by_place)

    def run(data: bytes) -> None:
        if len(data) > PLACE_BYTES:
            at = bisect_left(places, data[:PLACE_BYTES])
            by_place[places[at % len(places)]](data[PLACE_BYTES:])

    return run


def place_of(name: str) -> bytes:
    """Return the first bytes of the inputs of a decoder."""
    return crc32(name.encode()).to_bytes(PLACE_BYTES, "big")


def _json_bodies() -> Iterator[bytes]:
    java = json.loads((VECTORS / "java-bodies.json").read_text())
    bodies = [text.encode() for version in java.values() for text in version.values() if isinstance(text, str)]
    for at, name in enumerate(JSON_DECODERS):
        yield place_of(name) + b'{"a":[1,"b",null,{"c":1.5}]}'
        yield place_of(name) + bodies[at % len(bodies)]


def _packed_bodies() -> Iterator[bytes]:
    for name in PACKED_DECODERS:
        yield place_of(name) + b"\x93\x01\xa1a\x81\xa1b\x91\xc0"


def fastjson(data: bytes) -> None:
    """Bytes of fastjson's dialect become JSON, or are refused; what is JSON already keeps its value."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        standard_json(data)
        return
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        assert json.loads(standard_json(data)) == value or value != value


# ---- the HA connection


def ha(data: bytes) -> None:
    """One frame with a good checksum around any payload, as master or slave; then the bytes themselves, in pieces."""
    if not data:
        return
    kinds = sorted(wire._SIZES)
    kind, payload = kinds[data[0] % len(kinds)], data[1:]
    # _framed refuses sizes that no encoder makes
    framed = wire._checked(wire._HEAD.pack(wire._BESIDE_PAYLOAD + len(payload), kind), payload)
    assert _ha_messages(framed, len(framed)) == _ha_messages(framed, 7)
    assert _ha_messages(data, len(data)) == _ha_messages(data, 5)


def _ha_messages(stream: bytes, size: int) -> list[Any]:
    decoder = wire.FrameDecoder(frozenset(wire._SIZES))
    found: list[Any] = []
    try:
        for at in range(0, len(stream), size):
            piece = stream[at : at + size]
            while piece:
                free = decoder.buffer()
                count = min(len(free), len(piece))
                free[:count] = piece[:count]
                decoder.received(count)
                piece = piece[count:]
                while (message := decoder.next()) is not None:
                    fields = message if isinstance(message, tuple) else (message,)
                    found.append([bytes(each) if isinstance(each, memoryview) else each for each in fields])
    except wire.HaProtocolError as error:
        found.append(error.why)
    return found


def _ha_seeds() -> Iterator[bytes]:
    rows = [(1, "a", 0), (2, "b", 4096)]
    hello = wire.Hello(
        cluster="c",
        broker_name="b",
        broker_id=1,
        node_id="n",
        epochs=rows,
        end_offset=9,
        min_offset=0,
        segment_bytes=4096,
    )
    welcome = wire.Welcome(
        epochs=rows,
        epoch=2,
        owner="b",
        role="MASTER",
        min_offset=0,
        end_offset=9000,
        start_offset=4096,
        in_sync_replicas=2,
        total_replicas=2,
        segment_bytes=4096,
    )
    for whole in (
        wire.encode_hello(hello),
        wire.encode_welcome(welcome),
        wire.encode_refused(wire.Refused(code="NO", text="because")),
        wire.encode_data_head(4096, 9000, 4096, 1_700_000_000_000, 7, 4) + b"body",
        wire.encode_heartbeat(wire.Heartbeat(5, 4, 1_700_000_000_000)),
        wire.encode_ack(wire.Ack(7, 5, 3)),
        wire.encode_fetch(wire.Fetch(0, 4096)),
    ):
        yield bytes((sorted(wire._SIZES).index(whole[4]),)) + whole[wire.PAYLOAD_AT :]
        yield whole
    for number in range(len(wire._SIZES)):
        yield bytes((number,)) + bytes(60)


TARGETS: Final = {
    "frames": Target(frames, _seed_frames),
    "header_json": Target(header(JSON), headers_of(JSON)),
    "header_binary": Target(header(BINARY), headers_of(BINARY)),
    "header_msgpack": Target(header(MSGPACK), headers_of(MSGPACK)),
    "short_binary": Target(short_binary, lambda: (seed[1:] for seed in headers_of(BINARY)())),
    "short_answers": Target(
        short_answers, lambda: [answer_of(1, 3, [(1, 2, 1)]), answer_of(8, 3, [(1, 2, 1), (7, 900, 1)])]
    ),
    "json": Target(one_of(JSON_DECODERS), _json_bodies),
    "packed": Target(one_of(PACKED_DECODERS), _packed_bodies),
    "fastjson": Target(fastjson, lambda: (seed[PLACE_BYTES:] for seed in _json_bodies())),
    "ha": Target(ha, _ha_seeds),
}

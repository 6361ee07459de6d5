"""Frames to typed requests and responses, and back.

    request = decode_request(frame)                      # any of the three codecs; request.header is the typed struct
    buffers = encode_response(code, request.opaque, request.code, header=..., serialize_type=request.serialize_type)

Lives here: ``Request``, ``Response``, the four functions, the choice of the codec by the frame's type byte.

In all three codecs a header has the parts code, opaque, flag, version, language, remark and the typed fields, plus
``extra``: fields without a place in the table (a refusal's cause, RocketMQ's unknown fields). A peer's bytes raise
only ``HeaderIllegal``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pocketmq.remoting.codec_binary import decode_binary, encode_binary, illegal_binary
from pocketmq.remoting.codec_json import decode_json, encode_json, illegal_json
from pocketmq.remoting.codec_msgpack import (
    decode_msgpack_outer,
    decode_msgpack_request_header,
    decode_msgpack_response_header,
    encode_msgpack,
    illegal_msgpack,
)
from pocketmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, ResponseCode, request_name
from pocketmq.remoting.errors import FrameTooLarge, HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import BINARY, FRAME_BYTES_MAX, JSON, MSGPACK, PREFIX, PREFIX_BYTES, Buffer, Frame
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.string_map import READERS, WRITERS

Body = Buffer | Sequence[Buffer]
"""One buffer, or several in order; an ndarray goes in as ``array.data`` (uint8, contiguous)."""

ACCESS_KEY: Final = "AccessKey"
"""Ext field of RocketMQ's clients that sign their requests: the name of the user."""
REQUEST_MAP_BYTES_MAX = 256 * 1024
"""Longest JSON or binary header of a request. RocketMQ's headers are shorter: its properties end at 32 KiB, at worst
six bytes of JSON for each byte. The limit is ours: a header of 16 MiB, all small fields, would keep an event loop busy
for more than a second."""
REQUEST_MSGPACK_BYTES_MAX = 1024 * 1024
"""Longest msgpack header of a request. A section names a topic in fewer bytes than its records take, and a producer's
frame ends at 1 MiB."""

_NO_EXTRA: Mapping[str, str] = {}
_SUCCESS = int(ResponseCode.SUCCESS)


class Request(msgspec.Struct, eq=False):
    """A request from a peer. ``header`` is None if the table has none for the code.

    ``received_ns`` is when a server read its first byte, on its monotonic clock; ``header_bytes`` the length of its
    header. Both are 0 in a request that was not read from a peer. A struct, because one is made for each frame.
    """

    code: int
    opaque: int
    oneway: bool
    version: int
    language: int
    serialize_type: int
    header: Header | None
    body: Buffer
    extra: Mapping[str, str]
    header_bytes: int = 0
    received_ns: int = 0
    signed: Mapping[str, str] | None = None
    """All ext fields as they were received, of a request that names a user (RocketMQ's ``AccessKey``)."""
    session: Any = None
    """Belongs to the guard of the server."""

    def __repr__(self) -> str:
        return f"Request({request_name(self.code)}, opaque={self.opaque}, {self.header!r}, {len(self.body)} bytes)"


class Response:
    """A response from a peer. ``header`` is typed by the request's code, or None."""

    __slots__ = ("body", "code", "extra", "header", "opaque", "remark", "serialize_type", "version")

    def __init__(
        self,
        code: int,
        opaque: int,
        remark: str,
        header: Header | None,
        body: Buffer,
        serialize_type: int,
        extra: Mapping[str, str],
        version: int,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.remark = remark
        self.header = header
        self.body = body
        self.serialize_type = serialize_type
        self.extra = extra
        self.version = version

    def __repr__(self) -> str:
        parts = f"code={self.code}, opaque={self.opaque}, {self.header!r}, {self.remark!r}"
        return f"Response({parts}, {len(self.body)} bytes)"


def encode_request(
    code: int,
    opaque: int,
    header: Header | None = None,
    body: Body = b"",
    *,
    serialize_type: int = MSGPACK,
    oneway: bool = False,
    extra: Mapping[str, str] | None = None,
) -> list[Buffer]:
    """Return the buffers of a request frame, the first with envelope and header. Raise ``FrameTooLarge``."""
    return _encode(code, opaque, FLAG_ONEWAY if oneway else 0, "", header, body, serialize_type, extra)


def encode_response(
    code: int,
    opaque: int,
    request_code: int,
    *,
    header: Header | None = None,
    remark: str = "",
    body: Body = b"",
    serialize_type: int = MSGPACK,
    extra: Mapping[str, str] | None = None,
) -> list[Buffer]:
    """Return the buffers of the answer to a request with ``request_code``. Raise ``FrameTooLarge``."""
    return _encode(code, opaque, FLAG_RESPONSE, remark, header, body, serialize_type, extra)


def _encode(
    code: int,
    opaque: int,
    flag: int,
    remark: str,
    header: Header | None,
    body: Body,
    serialize_type: int,
    extra: Mapping[str, str] | None,
) -> list[Buffer]:
    if serialize_type == MSGPACK:
        head = encode_msgpack(code, opaque, flag, remark, header, extra)
    else:
        fields = WRITERS[type(header)](header) if header is not None else {}
        if extra:
            fields.update(extra)
        encode = encode_json if serialize_type == JSON else encode_binary
        head = encode(code, opaque, flag, remark, fields)
    buffers: list[Buffer] = [head]
    body_bytes = 0
    if isinstance(body, (bytes, memoryview, bytearray)):
        body_bytes = len(body)
        if body_bytes:
            buffers.append(body)
    else:
        for part in body:
            body_bytes += len(part)
            buffers.append(part)
    header_bytes = len(head) - PREFIX_BYTES
    length = 4 + header_bytes + body_bytes
    if length > FRAME_BYTES_MAX or header_bytes > 0xFFFFFF:
        raise FrameTooLarge(
            "frame not sent",
            why=f"{header_bytes} bytes of header and {body_bytes} of body exceed the limit of {FRAME_BYTES_MAX}",
            hint="split the batch",
        )
    PREFIX.pack_into(head, 0, length, serialize_type << 24 | header_bytes)
    return buffers


def decode_request(frame: Frame) -> Request:
    """Return the typed request of a frame.

    Raise ``HeaderIllegal``, with opaque and code where they could be read; ``WrongDirection`` for a response.
    """
    header_bytes = len(frame.header)
    if header_bytes > REQUEST_MAP_BYTES_MAX:
        _check_length(frame, header_bytes)
    if frame.serialize_type == MSGPACK:
        outer = decode_msgpack_outer(frame.header)
        if outer.flag & FLAG_RESPONSE:
            raise _wrong_direction(outer.opaque, outer.code, "request")
        request = Request(
            outer.code,
            outer.opaque,
            outer.flag & FLAG_ONEWAY != 0,
            outer.version,
            outer.language,
            MSGPACK,
            decode_msgpack_request_header(outer),
            frame.body,
            outer.extra or _NO_EXTRA,
        )
        request.header_bytes = header_bytes
        return request
    code, opaque, flag, version, language, _, fields = _decode_map(frame)
    if flag & FLAG_RESPONSE:
        raise _wrong_direction(opaque, code, "request")
    oneway = flag & FLAG_ONEWAY != 0
    spec = PROTOCOL.get(code)
    header = None
    signed = dict(fields) if ACCESS_KEY in fields else None
    if spec is not None and spec.request is not None:
        try:
            header = READERS[spec.request](fields)
        except HeaderIllegal as error:
            error.opaque, error.request_code, error.oneway = opaque, code, oneway
            error.language, error.version = language, version
            raise
    request = Request(code, opaque, oneway, version, language, frame.serialize_type, header, frame.body, fields)
    request.header_bytes = header_bytes
    request.signed = signed
    return request


def _check_length(frame: Frame, header_bytes: int) -> None:
    """Raise ``HeaderIllegal`` if the header is longer than a client can need."""
    kind = frame.serialize_type
    limit = REQUEST_MSGPACK_BYTES_MAX if kind == MSGPACK else REQUEST_MAP_BYTES_MAX
    if header_bytes > limit:
        error = ValueError(f"it has {header_bytes} bytes, the limit is {limit}")
        illegal = {JSON: illegal_json, BINARY: illegal_binary, MSGPACK: illegal_msgpack}.get(kind)
        if illegal is not None:
            raise illegal(frame.header, error)


def decode_response(frame: Frame, request_code: int) -> Response:
    """Return the typed answer to a request with ``request_code``.

    Raise ``HeaderIllegal`` when it cannot be read, or when it says SUCCESS but lacks required fields; other answers
    then have no header.
    """
    response = decode_response_of(frame, lambda opaque: request_code)
    assert response is not None
    return response


def decode_response_of(frame: Frame, code_of: Callable[[int], int | None]) -> Response | None:
    """Return the typed answer to the request that ``code_of(opaque)`` knows, or None if it knows none.

    Raise ``WrongDirection`` for a request, else as ``decode_response``.
    """
    if frame.serialize_type == MSGPACK:
        outer = decode_msgpack_outer(frame.header)
        if not outer.flag & FLAG_RESPONSE:
            raise _wrong_direction(outer.opaque, outer.code, "response")
        request_code = code_of(outer.opaque)
        if request_code is None:
            return None
        spec = PROTOCOL.get(request_code)
        return Response(
            outer.code,
            outer.opaque,
            outer.remark or "",
            None if spec is None else decode_msgpack_response_header(outer, spec.response),
            frame.body,
            MSGPACK,
            outer.extra or _NO_EXTRA,
            outer.version,
        )
    code, opaque, flag, version, _, remark, fields = _decode_map(frame)
    if not flag & FLAG_RESPONSE:
        raise _wrong_direction(opaque, code, "response")
    request_code = code_of(opaque)
    if request_code is None:
        return None
    spec = PROTOCOL.get(request_code)
    header = None
    if spec is not None and spec.response is not None and (fields or code == _SUCCESS):
        saved = fields if code == _SUCCESS else dict(fields)
        try:
            header = READERS[spec.response](fields)
        except HeaderIllegal as error:
            if code == _SUCCESS:
                error.opaque, error.request_code = opaque, request_code
                raise
            fields = saved
    return Response(code, opaque, remark, header, frame.body, frame.serialize_type, fields, version)


def with_extra(buffers: Sequence[Buffer], opaque: int, name: str, value: str) -> list[Buffer] | None:
    """Return an encoded response with one more field, or None if it is not JSON, or not the one with ``opaque``."""
    head = buffers[0]
    if head[4] != JSON:
        return None
    code, head_opaque, flag, _, _, remark, fields = decode_json(memoryview(head)[PREFIX_BYTES:])
    if head_opaque != opaque:
        return None
    fields[name] = value
    changed = encode_json(code, opaque, flag, remark, fields)
    body_bytes = sum(map(len, buffers)) - len(head)
    header_bytes = len(changed) - PREFIX_BYTES
    PREFIX.pack_into(changed, 0, 4 + header_bytes + body_bytes, header_bytes)
    return [changed, *buffers[1:]]


def peek_response(frame: Frame) -> tuple[bool, int, int]:
    """Return (is a response, opaque, code) without decoding the typed header. Raise ``HeaderIllegal``."""
    if frame.serialize_type == MSGPACK:
        outer = decode_msgpack_outer(frame.header)
        return outer.flag & FLAG_RESPONSE != 0, outer.opaque, outer.code
    code, opaque, flag, *_ = _decode_map(frame)
    return flag & FLAG_RESPONSE != 0, opaque, code


def _decode_map(frame: Frame) -> tuple[int, int, int, int, int, str, dict[str, str]]:
    if frame.serialize_type == JSON:
        return decode_json(frame.header)
    if frame.serialize_type == BINARY:
        return decode_binary(frame.header)
    raise HeaderIllegal(
        "frame refused",
        why=f"serialize type {frame.serialize_type} is unknown",
        hint="0 is JSON, 1 RocketMQ's binary, 2 msgpack",
    )


def _wrong_direction(opaque: int, code: int, what: str) -> WrongDirection:
    return WrongDirection(
        f"frame is no {what}", why="its response flag says otherwise", opaque=opaque, request_code=code, oneway=True
    )

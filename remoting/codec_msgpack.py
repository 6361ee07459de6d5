"""The msgpack header codec: PocketMQ's own, serialize type 2, on the hot path.

    [code, opaque, flag, version, language, remark, ext]        ext: null, or the typed header as an array
    [code, opaque, flag, version, language, remark, ext, extra] extra: map of strings, only where there are any

Lives here: encoding and decoding of that array with pre-built msgspec encoders and decoders.
"""

from collections.abc import Callable, Mapping

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.codes import FLAG_ONEWAY, VERSION_4_9_8, LanguageCode, ResponseCode
from pocketmq.remoting.errors import HeaderIllegal
from pocketmq.remoting.frame import PREFIX_BYTES, Buffer
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.spec import Header, Int

_PYTHON = int(LanguageCode.PYTHON)
_SUCCESS = int(ResponseCode.SUCCESS)
_NIL = b"\xc0"
_RESERVE = b"\0" * PREFIX_BYTES
_encode = msgspec.msgpack.Encoder().encode


class MsgpackOuter(msgspec.Struct, array_like=True, gc=False):
    """The outer array; the typed part is left as bytes."""

    code: Int
    opaque: Int
    flag: Int
    version: Int
    language: Int
    remark: str | None
    ext: msgspec.Raw
    extra: dict[str, str] | None = None


_decode_outer: Callable[[Buffer], MsgpackOuter] = msgspec.msgpack.Decoder(MsgpackOuter).decode
_decode_three: Callable[[Buffer], tuple[int, int, int]] = msgspec.msgpack.Decoder(tuple[Int, Int, Int]).decode
_ARRAY_HEAD_BYTES = {0xDC: 3, 0xDD: 5}
_INT_BYTES = {0xCC: 2, 0xD0: 2, 0xCD: 3, 0xD1: 3, 0xCE: 5, 0xD2: 5, 0xCF: 9, 0xD3: 9}
_DECODERS: Mapping[type[Header], Callable[[Buffer], Header]] = {
    kind: msgspec.msgpack.Decoder(kind).decode
    for spec in PROTOCOL.values()
    for kind in (spec.request, spec.response)
    if kind is not None
}
_REQUEST_DECODERS: Mapping[int, Callable[[Buffer], Header]] = {
    code: _DECODERS[spec.request] for code, spec in PROTOCOL.items() if spec.request is not None
}


def encode_msgpack(
    code: int, opaque: int, flag: int, remark: str, header: Header | None, extra: Mapping[str, str] | None
) -> bytearray:
    """Return eight free bytes for the envelope, then the header."""
    head = bytearray(_RESERVE)
    if extra:
        head += _encode((code, opaque, flag, VERSION_4_9_8, _PYTHON, remark, header, extra))
    else:
        head += _encode((code, opaque, flag, VERSION_4_9_8, _PYTHON, remark, header))
    return head


def decode_msgpack_outer(header: Buffer) -> MsgpackOuter:
    """Decode all but the typed part. Raise ``HeaderIllegal``."""
    try:
        return _decode_outer(header)
    except DECODE_ERRORS as error:
        raise illegal_msgpack(header, error) from error


def decode_msgpack_request_header(outer: MsgpackOuter) -> Header | None:
    """Decode the typed part by the request's code; None for a code that has none. Raise ``HeaderIllegal``."""
    decode = _REQUEST_DECODERS.get(outer.code)
    if decode is None:
        return None
    try:
        return decode(outer.ext)
    except DECODE_ERRORS as error:
        raise HeaderIllegal(
            f"{PROTOCOL[outer.code].request.__name__} refused",  # type: ignore[union-attr]
            why=str(error),
            hint="see docs/protocol.md for its fields",
            opaque=outer.opaque,
            request_code=outer.code,
            oneway=outer.flag & FLAG_ONEWAY != 0,
        ) from error


def decode_msgpack_response_header(outer: MsgpackOuter, kind: type[Header] | None) -> Header | None:
    """Decode the typed part as ``kind``, None where there is none; raise ``HeaderIllegal`` for a bad SUCCESS."""
    if kind is None or (outer.code != _SUCCESS and bytes(outer.ext) == _NIL):
        return None
    try:
        return _DECODERS[kind](outer.ext)
    except DECODE_ERRORS as error:
        if outer.code != _SUCCESS:
            return None
        raise HeaderIllegal(f"{kind.__name__} refused", why=str(error), opaque=outer.opaque) from error


def illegal_msgpack(header: Buffer, error: Exception) -> HeaderIllegal:
    """Return the error for a header that is refused, with what identifies its request where that can be read."""
    opaque: int | None = None
    code: int | None = None
    oneway = False
    try:
        code, opaque, flag = _decode_three(_first_three(header))
        oneway = flag & FLAG_ONEWAY != 0 or flag & 1 != 0
    except (*DECODE_ERRORS, IndexError):  # IndexError: fewer than three parts
        opaque = code = None
    return HeaderIllegal(
        "msgpack header refused",
        why=str(error),
        hint="it is the array [code, opaque, flag, version, language, remark, ext]",
        opaque=opaque,
        request_code=code,
        oneway=oneway,
    )


def _first_three(header: Buffer) -> bytes:
    """Return an array of the first three parts of a header, which should be integers; what follows may be long."""
    head = bytes(header[:64])
    at = end = _ARRAY_HEAD_BYTES.get(head[0], 1)
    for _ in range(3):
        end += _INT_BYTES.get(head[end], 1)
    return b"\x93" + head[at:end]

"""RocketMQ's JSON header codec: serialize type 0.

    {"code":0,"extFields":{...},"flag":0,"language":"PYTHON","opaque":0,"remark":"...","serializeTypeCurrentRPC":"JSON","version":409}

``remark`` and ``extFields`` are left out when there are none. (RocketMQ
``RemotingSerializable.java``; keys sorted as fastjson does.)

Lives here: that object to and from the parts of a header.
"""

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION_4_9_8, LanguageCode
from pocketmq.remoting.errors import HeaderIllegal
from pocketmq.remoting.frame import PREFIX_BYTES, Buffer
from pocketmq.remoting.protocol.spec import Int

_LANGUAGES = {language.name: int(language) for language in LanguageCode}
_OTHER = int(LanguageCode.OTHER)
_RESERVE = b"\0" * PREFIX_BYTES


class _Outgoing(msgspec.Struct, omit_defaults=True, gc=False):
    code: int
    extFields: dict[str, str] | None = None
    flag: int = -1
    language: str = ""
    opaque: int = -1
    remark: str | None = None
    serializeTypeCurrentRPC: str = ""
    version: int = -1


class _Usual(msgspec.Struct, gc=False):
    """As RocketMQ writes it: every value is a string."""

    code: Int = 0
    extFields: dict[str, str] | None = None
    flag: Int = 0
    language: str | None = None
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0


class _Incoming(msgspec.Struct):
    code: Int = 0
    extFields: dict[str, str | int | float | bool | None] | None = None
    flag: Int = 0
    language: str | int | None = None
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0


class _Identity(msgspec.Struct):
    opaque: Int
    code: Int = 0
    flag: Int = 0


_encode = msgspec.json.Encoder().encode
_decode_usual = msgspec.json.Decoder(_Usual).decode
_decode = msgspec.json.Decoder(_Incoming).decode
_decode_identity = msgspec.json.Decoder(_Identity).decode


def encode_json(code: int, opaque: int, flag: int, remark: str, fields: dict[str, str]) -> bytearray:
    """Return eight free bytes for the envelope, then the header."""
    head = bytearray(_RESERVE)
    head += _encode(_Outgoing(code, fields or None, flag, "PYTHON", opaque, remark or None, "JSON", VERSION_4_9_8))
    return head


def decode_json(header: Buffer) -> tuple[int, int, int, int, int, str, dict[str, str]]:
    """Return code, opaque, flag, version, language, remark and the fields. Raise ``HeaderIllegal``."""
    try:
        usual = _decode_usual(header)
    except DECODE_ERRORS:
        return _decode_lenient(header)
    number = _LANGUAGES.get(usual.language, _OTHER) if usual.language is not None else _OTHER
    fields = usual.extFields
    if fields is None:
        fields = {}
    return usual.code, usual.opaque, usual.flag, usual.version, number, usual.remark or "", fields


def _decode_lenient(header: Buffer) -> tuple[int, int, int, int, int, str, dict[str, str]]:
    """Decode the forms that other clients write: values that are not strings, a language as a number."""
    try:
        incoming = _decode(header)
    except DECODE_ERRORS as error:
        raise illegal_json(header, error) from error
    fields: dict[str, str] = {}
    if incoming.extFields:
        for name, value in incoming.extFields.items():
            if type(value) is str:
                fields[name] = value
            elif value is not None:
                fields[name] = ("true" if value else "false") if type(value) is bool else str(value)
    language = incoming.language
    number = _LANGUAGES.get(language, _OTHER) if isinstance(language, str) else _OTHER
    return incoming.code, incoming.opaque, incoming.flag, incoming.version, number, incoming.remark or "", fields


def illegal_json(header: Buffer, error: Exception) -> HeaderIllegal:
    """Return the error for a header that is refused, with what identifies its request where that can be read."""
    opaque = code = None
    oneway = False
    try:
        identity = _decode_identity(header)
        opaque, code = identity.opaque, identity.code
        oneway = identity.flag & (FLAG_ONEWAY | FLAG_RESPONSE) != 0
    except DECODE_ERRORS:
        pass
    return HeaderIllegal(
        "JSON header refused",
        why=str(error),
        hint="it is RocketMQ's RemotingCommand as a JSON object",
        opaque=opaque,
        request_code=code,
        oneway=oneway,
    )

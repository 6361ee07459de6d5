"""The headers of RocketMQ's sends, cut into what differs from send to send and the constant rest.

Lives here: the typed decoding of SEND_MESSAGE and its V2 form in JSON (``decode_short``, ``decode_long``, and
``decode_signed`` for the V2 form of clients that sign), and ``cut_binary``, which finds the two fields that differ in
RocketMQ's binary header without decoding the others.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import SendMessageRequestHeader
from pocketmq.remoting.protocol.spec import Int
from pocketmq.remoting.string_map import wire_names

BORN_CHARS: Final = 13
"""Digits of a time in ms from 2001 to 2286."""
CODES: Final = (int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_MESSAGE_V2))
_BINARY_HEAD: Final = Struct(">hBhiiii")
"""Code, language, version, opaque, flag, bytes of the remark (none here), bytes of the fields."""
_FIELDS_AT: Final = _BINARY_HEAD.size
_length_of = Struct(">i").unpack_from


class _Fields(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The fields of SEND_MESSAGE_V2, all strings."""

    a: str | None = None
    b: str | None = None
    c: str | None = None
    d: str | None = None
    e: str | None = None
    f: str | None = None
    g: str | None = None
    h: str | None = None
    i: str | None = None
    j: str | None = None
    k: str | None = None
    l: str | None = None  # noqa: E741 (the name on the wire)
    m: str | None = None
    n: str | None = None


_LONG_FIELDS: Final = msgspec.defstruct(
    "_LongFields",
    [(name, str | None, None) for name in _Fields.__struct_fields__],
    rename=dict(zip(_Fields.__struct_fields__, wire_names(SendMessageRequestHeader).values(), strict=True)),
    gc=False,
    forbid_unknown_fields=True,
)
"""The same fields of SEND_MESSAGE, under RocketMQ's long names."""


class _Command(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A request as ``codec_json`` reads it, with typed fields and nothing else."""

    extFields: _Fields
    code: Int = 0
    flag: Int = 0
    language: str | None = None
    opaque: Int = 0
    remark: str | None = None
    serializeTypeCurrentRPC: str | None = None
    version: Int = 0


class SignedFields(_Fields, gc=False, forbid_unknown_fields=True):
    """Those of a client that signs, as RocketMQ's do with ``AclClientRPCHook``."""

    AccessKey: str = ""
    Signature: str = ""

    def signed(self, body: bytes) -> bytes:
        """Return what the signature signs (``remoting.security.signature``): the values in the order of the names,
        then the body."""
        text = "".join(
            [
                value
                for value in (
                    self.AccessKey,
                    self.a,
                    self.b,
                    self.c,
                    self.d,
                    self.e,
                    self.f,
                    self.g,
                    self.h,
                    self.i,
                    self.j,
                    self.k,
                    self.l,
                    self.m,
                    self.n,
                )
                if value
            ]
        )
        return text.encode(errors="replace") + body


SIGNED_NAMES: Final = frozenset(("AccessKey", "Signature"))
_SIGNED_COMMAND: Final[Any] = msgspec.defstruct(
    "_SignedCommand", [("extFields", SignedFields)], bases=(_Command,), gc=False, forbid_unknown_fields=True
)
_LONG_COMMAND: Final[Any] = msgspec.defstruct(
    "_LongCommand", [("extFields", _LONG_FIELDS)], bases=(_Command,), gc=False, forbid_unknown_fields=True
)
decode_short: Final[Callable[[bytes], _Command]] = msgspec.json.Decoder(_Command).decode
decode_long: Final[Callable[[bytes], _Command]] = msgspec.json.Decoder(_LONG_COMMAND).decode
decode_signed: Final[Callable[[bytes], _Command]] = msgspec.json.Decoder(_SIGNED_COMMAND).decode


_NAMES: Final = (
    (b"\x00\x01g\x00\x00\x00\x0d", b"\x00\x01i"),
    (b"\x00\x0dbornTimestamp\x00\x00\x00\x0d", b"\x00\x0aproperties"),
)
"""Names of the two fields that differ, with their lengths, and the length of the first one's value; of
SEND_MESSAGE_V2, of SEND_MESSAGE."""


def cut_binary(data: bytes) -> tuple[int, bytes, bytes, tuple[Any, ...]] | None:
    """Return opaque, born timestamp, properties and all other bytes of a binary header, by a search for the two fields
    that differ; ``is_cut_at_fields`` proves once for those other bytes that it found fields."""
    if len(data) < _FIELDS_AT:
        return None
    code, _, _, opaque, _, remark_bytes, fields_bytes = _BINARY_HEAD.unpack_from(data)
    if code not in CODES or remark_bytes or fields_bytes != len(data) - _FIELDS_AT:
        return None
    born_name, properties_name = _NAMES[code == CODES[0]]
    born_at = data.find(born_name, _FIELDS_AT)
    at = data.find(properties_name, _FIELDS_AT)
    value_at = at + len(properties_name) + 4
    if born_at < 0 or at < 0 or value_at > len(data):
        return None
    (count,) = _length_of(data, value_at - 4)
    born_from = born_at + len(born_name)
    born_end, end = born_from + BORN_CHARS, value_at + count
    if count < 0 or max(born_end, end) > len(data):
        return None
    if born_end <= at:
        parts = (data[_FIELDS_AT:born_from], data[born_end : value_at - 4], data[end:], True)
    elif end <= born_at:
        parts = (data[_FIELDS_AT : value_at - 4], data[end:born_from], data[born_end:], False)
    else:
        return None
    return opaque, data[born_from:born_end], data[value_at:end], (data[:5], data[9:13], *parts)


def is_cut_at_fields(data: bytes, key: tuple[Any, ...]) -> bool:
    """Tell whether ``cut_binary`` found whole fields of a well-formed header, each of them once: then every header
    with the same other bytes has its fields at the same places."""
    _, _, before, between, _, born_first = key
    values: dict[bytes, int] = {}
    at = _FIELDS_AT
    while at < len(data):
        middle = at + 2 + int.from_bytes(data[at : at + 2], "big")
        name = data[at + 2 : middle]
        if name in values:
            return False
        values[name] = middle + 4
        at = middle + 4 + int.from_bytes(data[middle : middle + 4], "big")
    born_name, properties_name = _NAMES[int.from_bytes(data[:2], "big") == CODES[0]]
    born, properties = values.get(born_name[2:-4]), values.get(properties_name[2:])
    if at != len(data) or born is None or properties is None:
        return False
    first = _FIELDS_AT + len(before)
    if born_first:
        return first == born and born + BORN_CHARS + len(between) == properties - 4
    properties_end = properties + int.from_bytes(data[properties - 4 : properties], "big")
    return first == properties - 4 and properties_end + len(between) == born

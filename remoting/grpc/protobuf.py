"""Protocol Buffers (proto3) to typed messages and back, from the fields that a message class declares.

    class Address(Message):
        host: Annotated[str, 1] = ""
        port: Annotated[Int32, 2] = 0

    address = decode(Address, data);  data = encode(address)

The number stands in the annotation, the type of the wire follows from the rest of it: ``str``, ``bytes``, ``bool``,
``float``, ``Int32``, ``Int64``, ``Enum``, ``dict[str, str]`` (a map), another message (``None``: absent), and lists of
these. ``X | None`` for a scalar is proto3's ``optional``. An enum's value that nobody knows stays a number.

What a peer sends is bounded before anything is built of it: ``DEPTH_MAX`` levels, ``FIELDS_MAX`` fields in all, known
or not. Whatever is broken raises ``ProtobufIllegal``.

Source of the format: protobuf.dev, "Encoding", and its rules for proto3: unknown fields are skipped, of a scalar the
last value counts, messages that come twice are merged, packed and single elements of a list are both read.

Lives here: ``Message``, ``decode``, ``encode``, ``fields_of``.
"""

import struct
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, NamedTuple, TypeVar

import msgspec

from pocketmq.common.errors import Cause, PocketMQError

DEPTH_MAX: Final = 16
"""Levels of messages in messages; the deepest of RocketMQ has five."""
FIELDS_MAX: Final = 20_000
"""Fields in one message with all that is in it: a thousand messages with 20 properties each."""
VARINT_BYTES_MAX: Final = 10

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)
"""Wire types."""


class Kind(NamedTuple):
    """How a scalar is written; ``bits`` of a number, 0 for others."""

    name: str
    wire: int
    bits: int = 0


INT32: Final = Kind("int32", VARINT, 32)
INT64: Final = Kind("int64", VARINT, 64)
ENUM: Final = Kind("enum", VARINT, 32)
BOOL: Final = Kind("bool", VARINT, 1)
STRING: Final = Kind("string", BYTES)
RAW: Final = Kind("bytes", BYTES)
FLOAT: Final = Kind("float", FIXED32)
MAP: Final = Kind("map", BYTES)
MESSAGE: Final = Kind("message", BYTES)

Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Enum = Annotated[int, ENUM]

_PLAIN: Final[dict[Any, Kind]] = {str: STRING, bytes: RAW, bool: BOOL, float: FLOAT, dict[str, str]: MAP}
_FLOAT = struct.Struct("<f")


class ProtobufIllegal(PocketMQError):
    """Bytes that are no message of the type that they should be."""

    default_cause = Cause.BAD_REQUEST


class Message(msgspec.Struct, kw_only=True):
    """A message; every field has a number and a default."""

    oneofs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields of which at most one is set."""


class Field(NamedTuple):
    """One field of a message class."""

    name: str
    number: int
    kind: Kind
    repeated: bool
    optional: bool
    """Whether ``None`` says that it is absent."""
    message: type[Message] | None
    others: tuple[str, ...]
    """The other fields of its oneof."""


M = TypeVar("M", bound=Message)
_fields: Final[dict[type[Message], tuple[Field, ...]]] = {}
_readers: Final[dict[type[Message], dict[int, Field]]] = {}
_writers: "Final[dict[type[Message], tuple[_Writer, ...]]]" = {}
_Writer = tuple[str, Callable[[Any], bytes]]


def fields_of(kind: type[Message]) -> tuple[Field, ...]:
    """Return the fields that a message class declares, in the order of their numbers."""
    known = _fields.get(kind)
    if known is None:
        hints = typing.get_type_hints(kind, include_extras=True)
        found = [_field(kind, name, hints[name]) for name in kind.__struct_fields__]
        known = _fields[kind] = tuple(sorted(found, key=lambda each: each.number))
        assert len({each.number for each in known}) == len(known), f"{kind.__name__} has a number twice"
    return known


def _field(kind: type[Message], name: str, hint: Any) -> Field:
    inner, *metadata = typing.get_args(hint)
    number = next(each for each in metadata if isinstance(each, int))
    scalar = next((each for each in metadata if isinstance(each, Kind)), None)
    repeated = optional = False
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        optional = True
        inner = next(each for each in typing.get_args(inner) if each is not types.NoneType)
    elif typing.get_origin(inner) is list:
        repeated = True
        inner = typing.get_args(inner)[0]
    if typing.get_origin(inner) is Annotated:
        inner, scalar = typing.get_args(inner)[:2]
    message = inner if isinstance(inner, type) and issubclass(inner, Message) else None
    scalar = MESSAGE if message is not None else scalar or _PLAIN[inner]
    oneof = next((each for each in kind.oneofs if name in each), ())
    others = tuple(each for each in oneof if each != name)
    return Field(name, number, scalar, repeated, optional, message, others)


# ---- reading -------------------------------------------------------------------------------------------------------


def decode(kind: type[M], data: bytes) -> M:
    """Return the message in ``data``. Raise ``ProtobufIllegal``."""
    message = kind()
    try:
        _Reader(data).fill(message, 0, len(data), DEPTH_MAX)
    except IndexError:
        raise _illegal(kind, "it ends in the middle of a number") from None
    except UnicodeDecodeError as error:
        raise _illegal(kind, f"a text is no UTF-8: {error.reason}") from None
    except _Broken as error:
        raise _illegal(kind, str(error)) from None
    return message


def _illegal(kind: type[Message], why: str) -> ProtobufIllegal:
    return ProtobufIllegal(
        f"{kind.__name__} cannot be read", why=why, hint="the client's library is broken, or no gRPC"
    )


class _Broken(Exception):
    """Why bytes cannot be read; the text is for people."""


def _reader_of(kind: type[Message]) -> dict[int, Field]:
    """Return tag → field; a list of numbers has two tags, packed and single."""
    known: dict[int, Field] = {}
    for field in fields_of(kind):
        known[field.number << 3 | field.kind.wire] = field
        if field.repeated and field.kind.wire == VARINT:
            known[field.number << 3 | BYTES] = field
    _readers[kind] = known
    return known


class _Reader:
    """Reads one buffer; ``left`` is how many fields may still come."""

    __slots__ = ("_data", "_left")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = FIELDS_MAX

    def fill(self, message: Message, at: int, end: int, depth: int) -> None:
        """Set the fields of ``message`` from the bytes between ``at`` and ``end``."""
        if not depth:
            raise _Broken(f"more than {DEPTH_MAX} messages in each other")
        data, kind = self._data, type(message)
        fields = _readers.get(kind) or _reader_of(kind)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _Broken(f"more than {FIELDS_MAX} fields")
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = self._varint(at - 1, end)
            field = fields.get(tag)
            if field is None:
                at = self._skip(tag, at, end, depth)
                continue
            if tag & 7 == BYTES:
                size = data[at]
                at += 1
                if size > 0x7F:
                    size, at = self._varint(at - 1, end)
                stop = at + size
                if stop > end:
                    raise _Broken(f"{field.name} has {size} bytes, and {end - at} are left")
                self._take_bytes(message, field, at, stop, depth)
                at = stop
            elif field.kind is FLOAT:
                if at + 4 > end:
                    raise _Broken(f"{field.name} is cut off")
                setattr(message, field.name, _FLOAT.unpack_from(data, at)[0])
                at += 4
            else:
                raw, at = self._varint(at, end)
                number = _number(field.kind, raw)
                if field.repeated:
                    getattr(message, field.name).append(number)
                else:
                    setattr(message, field.name, number)
            if field.others:
                for other in field.others:
                    if getattr(message, other) is not None:
                        setattr(message, other, None)
        if at > end:
            raise _Broken("a field goes beyond its message")

    def _take_bytes(self, message: Message, field: Field, at: int, end: int, depth: int) -> None:
        kind, name = field.kind, field.name
        value: Any
        if kind is STRING:
            value = self._data[at:end].decode()
        elif field.message is not None:
            value = None if field.repeated else getattr(message, name)
            if value is None:
                value = field.message()
            self.fill(value, at, end, depth - 1)
        elif kind is RAW:
            value = self._data[at:end]
        elif kind is MAP:
            key, text = self._entry(at, end, depth)
            getattr(message, name)[key] = text
            return
        else:  # a packed list
            values = getattr(message, name)
            while at < end:
                self._left -= 1
                if self._left < 0:
                    raise _Broken(f"more than {FIELDS_MAX} fields")
                raw, at = self._varint(at, end)
                values.append(_number(kind, raw))
            return
        if field.repeated:
            getattr(message, name).append(value)
        else:
            setattr(message, name, value)

    def _entry(self, at: int, end: int, depth: int) -> tuple[str, str]:
        entry = _Entry()
        self.fill(entry, at, end, depth - 1)
        return entry.key, entry.value

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the number at ``at`` and where it ends."""
        data, value, shift = self._data, 0, 0
        while True:
            if at >= end:
                raise _Broken("it ends in the middle of a number")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
            if shift == 7 * VARINT_BYTES_MAX:
                raise _Broken(f"a number of more than {VARINT_BYTES_MAX} bytes")

    def _skip(self, tag: int, at: int, end: int, depth: int) -> int:
        """Return where the value of an unknown field ends."""
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise _Broken(f"a field with the number {number}")
        if wire == VARINT:
            return self._varint(at, end)[1]
        if wire == BYTES:
            size, at = self._varint(at, end)
            at += size
        elif wire == FIXED64:
            at += 8
        elif wire == FIXED32:
            at += 4
        elif wire == GROUP:
            return self._skip_group(number, at, end, depth - 1)
        else:
            raise _Broken(f"a field with the wire type {wire}")
        if at > end:
            raise _Broken("an unknown field goes beyond its message")
        return at

    def _skip_group(self, number: int, at: int, end: int, depth: int) -> int:
        if not depth:
            raise _Broken(f"more than {DEPTH_MAX} messages in each other")
        while True:
            self._left -= 1
            if self._left < 0:
                raise _Broken(f"more than {FIELDS_MAX} fields")
            tag, at = self._varint(at, end)
            if tag == number << 3 | GROUP_END:
                return at
            at = self._skip(tag, at, end, depth)


class _Entry(Message):
    """One pair of a map."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


def _number(kind: Kind, raw: int) -> int | bool:
    if kind is BOOL:
        return raw != 0
    if kind.bits == 32:
        raw &= 0xFFFF_FFFF
        return raw - (1 << 32) if raw > 0x7FFF_FFFF else raw
    return raw - (1 << 64) if raw > 0x7FFF_FFFF_FFFF_FFFF else raw


# ---- writing -------------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """Return the bytes of a message; fields that have their default are left out."""
    kind = type(message)
    parts = []
    for name, write in _writers.get(kind) or _writer_of(kind):
        value = getattr(message, name)
        if value is not None:
            parts.append(write(value))
    return b"".join(parts)


def _writer_of(kind: type[Message]) -> "tuple[_Writer, ...]":
    known = _writers[kind] = tuple((field.name, _write(field)) for field in fields_of(kind))
    return known


def _write(field: Field) -> Callable[[Any], bytes]:
    """Return what writes a field with its tag."""
    kind = field.kind
    tag = encode_varint(field.number << 3 | kind.wire)
    if kind is MAP:
        return lambda value: b"".join(_sized(tag, encode(_Entry(key=key, value=text))) for key, text in value.items())
    payload = _payload(kind)
    if field.repeated:
        if kind.wire == VARINT:
            packed = encode_varint(field.number << 3 | BYTES)
            return lambda values: _sized(packed, b"".join(map(payload, values))) if values else b""
        return lambda values: b"".join([_sized(tag, payload(value)) for value in values])
    if kind.wire == BYTES:
        if field.optional:
            return lambda value: _sized(tag, payload(value))
        return lambda value: _sized(tag, payload(value)) if value else b""
    if kind is FLOAT:
        return lambda value: tag + raw if (raw := payload(value)) != b"\0\0\0\0" or field.optional else b""
    if field.optional:
        return lambda value: tag + payload(value)
    return lambda value: tag + payload(value) if value else b""


def _payload(kind: Kind) -> Callable[[Any], bytes]:
    if kind is MESSAGE:
        return encode
    if kind is STRING:
        return str.encode
    if kind is RAW:
        return lambda value: value
    if kind is FLOAT:
        return _FLOAT.pack
    return lambda value: encode_varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)


def _sized(tag: bytes, payload: bytes) -> bytes:
    size = len(payload)
    if size < 0x80:
        return b"%b%c%b" % (tag, size, payload)
    return b"".join((tag, encode_varint(size), payload))


def encode_varint(value: int) -> bytes:
    """Return a number, not negative, in as few bytes as it takes."""
    if value < 0x80:
        return value.to_bytes(1, "little")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""RocketMQ's binary header codec: serialize type 1.

    i16 code · u8 language · i16 version · i32 opaque · i32 flag · i32 n, remark · i32 n, fields
    each field: i16 n, key · i32 n, value

(RocketMQ ``RocketMQSerializable.java``; big-endian, UTF-8.) POP's codes, from 200,050 on, do not fit: Java's clients
cut them to 16 bits. Nothing else has these numbers, so they are taken for what they were; RocketMQ's brokers refuse
them.

Lives here: those bytes to and from the parts of a header.
"""

from struct import Struct

from pocketmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION_4_9_8, LanguageCode, RequestCode
from pocketmq.remoting.errors import HeaderIllegal
from pocketmq.remoting.frame import PREFIX_BYTES, Buffer

_FIXED = Struct(">hBhii")
_SHORT = Struct(">h")
_INT = Struct(">i")
_PYTHON = int(LanguageCode.PYTHON)
_RESERVE = b"\0" * PREFIX_BYTES
_LENGTHS = [_INT.pack(length) for length in range(512)]
_CUT = {int(code) & 0xFFFF: int(code) for code in RequestCode if code > 0x7FFF}
"""What is left of a long code → the code. None has the sixteenth bit, which would make it negative."""
_NAMES_MAX = 4_096
_name_bytes: dict[str, bytes] = {}
"""Names of fields with their lengths, as they are written. Only this side's own names, which are few."""


def encode_binary(code: int, opaque: int, flag: int, remark: str, fields: dict[str, str]) -> bytearray:
    """Return eight free bytes for the envelope, then the header."""
    head = bytearray(_RESERVE)
    head += _FIXED.pack(code & 0xFFFF if code > 0x7FFF else code, _PYTHON, VERSION_4_9_8, opaque, flag)
    text = remark.encode()
    head += _INT.pack(len(text))
    head += text
    parts: list[bytes] = []
    add, lengths = parts.append, _LENGTHS
    for name, value in fields.items():
        item = value.encode()
        count = len(item)
        add(_name_bytes.get(name) or _encode_name(name))
        add(lengths[count] if count < 512 else _INT.pack(count))
        add(item)
    packed = b"".join(parts)
    head += _INT.pack(len(packed))
    head += packed
    return head


def _encode_name(name: str) -> bytes:
    key = name.encode()
    packed = _SHORT.pack(len(key)) + key
    if len(_name_bytes) < _NAMES_MAX:
        _name_bytes[name] = packed
    return packed


def decode_binary(header: Buffer) -> tuple[int, int, int, int, int, str, dict[str, str]]:
    """Return code, opaque, flag, version, language, remark and the fields. Raise ``HeaderIllegal``."""
    data = bytes(header)
    if len(data) < _FIXED.size:
        raise _illegal(f"{len(data)} bytes are fewer than its fixed part of {_FIXED.size}")
    code, language, version, opaque, flag = _FIXED.unpack_from(data)
    try:
        remark, at = _take(data, _FIXED.size, len(data), _INT, "remark")
        fields_bytes, at = _length(data, at, len(data), _INT, "fields")
        if at + fields_bytes != len(data):
            raise _illegal(f"its fields end at byte {at + fields_bytes}, the header at byte {len(data)}")
        fields = _usual_fields(data, at)
        if fields is None:
            fields = _fields(data, at)
    except HeaderIllegal as error:
        error.opaque, error.request_code = opaque, _CUT.get(code, code)
        error.oneway = flag & (FLAG_ONEWAY | FLAG_RESPONSE) != 0
        raise
    if code in _CUT and not flag & FLAG_RESPONSE:
        code = _CUT[code]
    return code, opaque, flag, version, language, remark, fields


def _usual_fields(data: bytes, at: int) -> dict[str, str] | None:
    """Return the fields from ``at`` to the end, or None if anything is malformed: then ``_fields`` names the fault."""
    end = len(data)
    text = data.decode("latin-1")  # cut as text once, where the bytes are ASCII: one object a name and value
    fields: dict[str, str] = {}
    unpack = _INT.unpack_from
    while at < end:
        middle = at + 2 + (data[at] << 8 | data[at + 1]) if at + 2 <= end else end
        if middle + 4 > end:
            return None
        (count,) = unpack(data, middle)
        name, value_at = text[at + 2 : middle], middle + 4
        at = value_at + count
        if count < 0 or at > end:
            return None
        value = text[value_at:at]
        if not value.isascii():
            try:
                value = data[value_at:at].decode()
            except UnicodeDecodeError:
                return None
        if not name or not name.isascii():
            return None
        fields[name] = value
    return fields


def _fields(data: bytes, at: int) -> dict[str, str]:
    """Return the fields from ``at`` to the end; raise ``HeaderIllegal``."""
    fields: dict[str, str] = {}
    while at < len(data):
        name, at = _take(data, at, len(data), _SHORT, "name of a field")
        value, at = _take(data, at, len(data), _INT, "value of a field")
        if name:
            fields[name] = value
    return fields


def _length(data: bytes, at: int, end: int, size: Struct, what: str) -> tuple[int, int]:
    if at + size.size > end:
        raise _illegal(f"it ends before the length of its {what}")
    (count,) = size.unpack_from(data, at)
    at += size.size
    if count < 0 or at + count > end:
        raise _illegal(f"the {what} claims {count} bytes, {end - at} are left")
    return count, at


def _take(data: bytes, at: int, end: int, size: Struct, what: str) -> tuple[str, int]:
    count, at = _length(data, at, end, size, what)
    try:
        return data[at : at + count].decode(), at + count
    except UnicodeDecodeError as error:
        raise _illegal(f"the {what} is not UTF-8") from error


def illegal_binary(header: Buffer, error: Exception) -> HeaderIllegal:
    """Return the error for a header that is refused, with what identifies its request where that can be read."""
    illegal = _illegal(str(error))
    if len(header) >= _FIXED.size:
        illegal.request_code, _, _, illegal.opaque, flag = _FIXED.unpack_from(header)
        illegal.request_code = _CUT.get(illegal.request_code, illegal.request_code)
        illegal.oneway = flag & (FLAG_ONEWAY | FLAG_RESPONSE) != 0
    return illegal


def _illegal(why: str) -> HeaderIllegal:
    return HeaderIllegal("binary header refused", why=why, hint="it is RocketMQ's serialize type 1")

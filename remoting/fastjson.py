"""fastjson's JSON made standard: RocketMQ's bodies may have bare numbers or whole objects as keys.

    {0:"10.0.0.1:10911"}            becomes   {"0":"10.0.0.1:10911"}
    {{"topic":"T","queueId":1}:{…}}  becomes   {"{\\"topic\\":\\"T\\",\\"queueId\\":1}":{…}}

Clients that write JSON by hand may also rely on these, which fastjson takes: bare words as keys, texts in single
quotes, control characters in a text, the escapes ``\\'`` and ``\\xNN``, commas too many, a byte order mark.

(fastjson 1.2.69 as RocketMQ 4.9 uses it. A key within a key is refused: RocketMQ's keys are message queues. Comments,
``Set[…]``, ``undefined`` and numbers in Java's forms are refused as well.)

Lives here: the rewrite of such text.
"""

import re

import msgspec

from pocketmq.remoting.errors import BodyIllegal

DEPTH_MAX = 64
_TOKEN = re.compile(rb"""[ \t\r\n]*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\]:,]|[^\s"'{}\[\]:,]+)""", re.DOTALL)
_ODD = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|.)|[\x00-\x1f\"]", re.DOTALL)
"""What stands in a text otherwise than in JSON's, and every escape."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def standard_json(data: bytes) -> bytes:
    """Return ``data`` with every key as a string; values stay as they are. Raise ``BodyIllegal`` if it is not JSON."""
    reader = _Reader(data.removeprefix(_BYTE_ORDER_MARK))
    text = reader.value(0)
    if reader.peek() is not None:
        raise _illegal("text follows its end")
    return text


def _text(token: bytes) -> bytes:
    """Return a quoted text in JSON's form."""
    return b'"' + _ODD.sub(_standard, token[1:-1]) + b'"'


def _standard(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if match[1] is not None:
        return b"\\u00" + match[1]
    if found == b"\\'":
        return b"'"
    if found == b'"':
        return b'\\"'
    return b"\\u%04x" % found[0] if len(found) == 1 else found


def _illegal(why: str) -> BodyIllegal:
    return BodyIllegal("JSON body refused", why=why)


class _Reader:
    """One pass over the tokens; each value is returned as standard JSON text."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def peek(self) -> bytes | None:
        match = _TOKEN.match(self._data, self._at)
        if match is None and self._data[self._at :].strip():
            raise _illegal(f"byte {self._at} begins nothing that JSON knows")
        return match[1] if match else None

    def take(self) -> bytes:
        match = _TOKEN.match(self._data, self._at)
        if match is None:
            raise _illegal(f"it ends, or is malformed, at byte {self._at}")
        self._at = match.end()
        return match[1]

    def value(self, depth: int, *, in_key: bool = False) -> bytes:
        if depth > DEPTH_MAX:
            raise _illegal(f"more than {DEPTH_MAX} levels")
        token = self.take()
        if token == b"{":
            return self._items(depth, b"}", keyed=True, in_key=in_key)
        if token == b"[":
            return self._items(depth, b"]", keyed=False, in_key=in_key)
        if token in (b"}", b"]", b":", b","):
            raise _illegal(f"{token.decode()} before byte {self._at} instead of a value")
        return _text(token) if token[0] in b"\"'" else token

    def _key(self, depth: int, *, in_key: bool) -> bytes:
        """Return a key as a string. One that is an object becomes text, with a backslash before each quote. Keys
        within keys are refused: the text would double with every level."""
        if in_key and self.peek() in (b"{", b"["):
            raise _illegal(f"a whole object as a key within a key, before byte {self._at}")
        item = self.value(depth + 1, in_key=True)
        return item if item.startswith(b'"') else msgspec.json.encode(item.decode(errors="replace"))

    def _items(self, depth: int, end: bytes, *, keyed: bool, in_key: bool) -> bytes:
        opening = b"{" if keyed else b"["
        parts: list[bytes] = []
        while True:
            while self.peek() == b",":
                self.take()
            if self.peek() == end:
                self.take()
                return opening + b",".join(parts) + end
            if keyed:
                item = self._key(depth, in_key=in_key)
                if self.take() != b":":
                    raise _illegal(f"a key without a value before byte {self._at}")
                item += b":" + self.value(depth + 1, in_key=in_key)
            else:
                item = self.value(depth + 1, in_key=in_key)
            parts.append(item)
            token = self.take()
            if token == end:
                return opening + b",".join(parts) + end
            if token != b",":
                raise _illegal(
                    f"{token.decode(errors='replace')[:20]!r} before byte {self._at} instead of , or {end.decode()}"
                )

"""Bodies and texts of messages, safe to look at: cut, without control characters, binary ones as a hex dump.

A template escapes what comes from here, so HTML in a body is text as any other. What a browser would act on without
markup is made visible: control characters, escape sequences of terminals, marks that turn the direction of a line.

Lives here: ``Shown``, ``shown_body``, ``line``.
"""

import json
from dataclasses import dataclass
from typing import Final

from pocketmq.common.errors import DECODE_ERRORS, PocketMQError
from pocketmq.common.message import ReceivedMessage

TEXT_BYTES_MAX: Final = 64 << 10
"""Bytes of a text that a page shows; the rest can be downloaded."""
HEX_BYTES_MAX: Final = 1 << 10
UNPACKED_BYTES_MAX: Final = 16 << 20
LINE_CHARACTERS_MAX: Final = 160
_HEX_WIDTH: Final = 16
_UNPRINTABLE_SHARE: Final = 0.1
"""A text with more unprintable characters than this is shown as bytes."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A body as a page shows it. ``kind``: ``text``, ``json``, ``binary``, ``empty``, ``hidden`` or ``unreadable``."""

    kind: str
    text: str
    size_bytes: int
    is_cut: bool = False


def shown_body(message: ReceivedMessage, *, hide: bool = False) -> Shown:
    """Return the body of a message for a page of its own."""
    raw_bytes = len(message.raw_body)
    if hide:
        return Shown("hidden", "", raw_bytes)
    try:
        body = message.body_within(UNPACKED_BYTES_MAX)
    except PocketMQError as error:
        return Shown("unreadable", str(error), raw_bytes)
    return shown_bytes(body)


def shown_bytes(body: bytes) -> Shown:
    """Return bytes as text where they are text, else as a hex dump of their beginning."""
    if not body:
        return Shown("empty", "", 0)
    text = _text(body)
    if text is None:
        return Shown("binary", hex_dump(body[:HEX_BYTES_MAX]), len(body), len(body) > HEX_BYTES_MAX)
    is_cut = len(body) > TEXT_BYTES_MAX
    if not is_cut and text[:1] in ("{", "["):
        try:
            pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except DECODE_ERRORS:
            pass
        else:
            return Shown("json", visible(pretty[: 4 * TEXT_BYTES_MAX], keep="\n"), len(body))
    return Shown("text", visible(text, keep="\n\t"), len(body), is_cut)


def line(message: ReceivedMessage, *, hide: bool = False) -> str:
    """Return the beginning of a body in one line, for a table."""
    if hide:
        return "hidden"
    try:
        body = message.body_within(UNPACKED_BYTES_MAX)
    except PocketMQError as error:
        return f"unreadable: {error.why or error.what}"
    text = _text(body[: 4 * LINE_CHARACTERS_MAX])
    if text is None:
        return body[:24].hex(" ") + (" …" if len(body) > 24 else "")
    return cut(visible(text), LINE_CHARACTERS_MAX)


def visible(text: str, keep: str = "") -> str:
    """Return ``text`` with its unprintable characters as Python writes them, but for those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else repr(each)[1:-1] for each in text)


def cut(text: str, characters_max: int) -> str:
    """Return ``text``, with an ellipsis for what is beyond the limit."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def hex_dump(data: bytes) -> str:
    """Return lines of an offset, 16 bytes in hex, and their ASCII characters."""
    lines = []
    for start in range(0, len(data), _HEX_WIDTH):
        part = data[start : start + _HEX_WIDTH]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * _HEX_WIDTH}} {letters}")
    return "\n".join(lines)


def _text(body: bytes) -> str | None:
    """Return the beginning of a body as text; None: it is none."""
    part = body[:TEXT_BYTES_MAX]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if error.start < len(part) - 3 or error.reason != "unexpected end of data":
            return None
        text = part[: error.start].decode()  # a character was cut in two
    odd = sum(not each.isprintable() and each not in "\r\n\t" for each in text[:4096])
    return None if odd > _UNPRINTABLE_SHARE * min(len(text), 4096) and "\x1b" not in text[:4096] else text

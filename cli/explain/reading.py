"""Pasted bytes as lines: bounded, in whatever encoding they came.

Lives here: ``read_paste``, ``lines_of``.
"""

import codecs
from typing import IO, Final

READ_BYTES_MAX: Final = 1 << 20
"""Of standard input: a paste, no log."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOKED_AT: Final = 1000
_ESCAPED: Final = ("\\n\\tat ", "\\nCaused by", "\\r\\n\\tat ")


def read_paste(stream: IO[bytes]) -> tuple[bytes, bool]:
    """Read at most ``READ_BYTES_MAX`` bytes; return them, and whether there are more."""
    data = b""
    while len(data) <= READ_BYTES_MAX:
        more = stream.read(READ_BYTES_MAX + 1 - len(data))
        if not more:
            break
        data += more
    return data[:READ_BYTES_MAX], len(data) > READ_BYTES_MAX


def lines_of(data: bytes | str) -> list[str]:
    """Return the lines of a paste. Never raises: what cannot be decoded is replaced.

    Known texts are ASCII, so that every encoding that contains ASCII will do; UTF-16 and UTF-32 are known by their mark
    or by their NULs. A stack trace in one line of JSON becomes lines.
    """
    text = data if isinstance(data, str) else _decoded(data)
    if any(each in text for each in _ESCAPED):
        text = text.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t")
    return text.splitlines()


def _decoded(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    begin = data[:_LOOKED_AT]
    even, odd = begin[::2].count(0), begin[1::2].count(0)
    if even + odd > len(begin) // 3:
        return data.decode("utf-16-le" if odd >= even else "utf-16-be", errors="replace")
    return data.decode("utf-8", errors="replace")

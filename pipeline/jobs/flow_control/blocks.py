"""The bytes of a log as blocks of whole lines, in bounded memory, whatever the file holds.

Lives here: ``read_blocks``, the limit of a line, unpacking of gzip, UTF-16 as UTF-8.
"""

import codecs
import gzip
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

LINE_BYTES_MAX: Final = 1 << 20
"""A broker's lines are below 300 KiB: 64 values of 4,096 characters. Longer ones are skipped and counted."""
BLOCK_BYTES: Final = 1 << 18
STDIN: Final = "-"
_BOMS: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_blocks(path: str) -> Iterator[tuple[bytes, int]]:
    """Yield (whole lines, number of enormous lines skipped before them) of a file, plain or gzip; ``-``: stdin.

    A block is not empty unless lines were skipped. The last line may lack its line end. Raises ``OSError``,
    ``EOFError``, ``zlib.error`` where the file ends being readable.
    """
    raw = io.BufferedReader(cast(Any, sys.stdin.buffer)) if path == STDIN else open(path, "rb")  # noqa: SIM115
    try:
        yield from _blocks(_unpacked(raw))
    finally:
        if path == STDIN:
            raw.detach()
        else:
            raw.close()


def _blocks(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, int]]:
    rest, skips, skipped = b"", False, 0
    while data := read(BLOCK_BYTES):
        if skips:
            end = data.find(b"\n") + 1
            if not end:
                continue
            data, skips = data[end:], False
        end = data.rfind(b"\n") + 1
        if end:
            block, rest = rest + data[:end], data[end:]
            first = block.find(b"\n")
            if first > LINE_BYTES_MAX:  # only the first line of a block spans several reads
                block, skipped = block[first + 1 :], skipped + 1
            if block or skipped:
                yield block, skipped
                skipped = 0
        else:
            rest += data
            if len(rest) > LINE_BYTES_MAX:
                rest, skips, skipped = b"", True, skipped + 1
    if rest or skipped:
        yield rest, skipped


def _unpacked(raw: io.BufferedReader) -> Callable[[int], bytes]:
    """Return what reads a file: gzip unpacked, whatever the file's name, and UTF-16 as UTF-8.

    ``read1`` returns what it has: of a damaged gzip, all that comes before the damage.
    """
    file: io.BufferedReader | gzip.GzipFile = raw
    if raw.peek(2)[:2] == b"\x1f\x8b":
        file = gzip.GzipFile(fileobj=raw)
    bom = file.peek(2)[:2]
    for known, name in _BOMS:
        if bom == known:
            file.read(2)
            return _transcoded(file.read1, name)
    return file.read1


def _transcoded(read: Callable[[int], bytes], encoding: str) -> Callable[[int], bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def read_utf8(count: int) -> bytes:
        while data := read(count):
            if text := decoder.decode(data):
                return text.encode("utf-8", "replace")
        return decoder.decode(b"", final=True).encode("utf-8", "replace")

    return read_utf8

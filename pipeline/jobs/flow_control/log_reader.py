"""Reads one log file, line by line, in bounded memory; no content stops it.

Lives here: ``read_log`` (facts with their lines), ``Reading`` (counts of lines by kind).
"""

import datetime
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import IO, Any, Final, cast

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.jobs.flow_control.facts import Fact, facts_of

LINE_BYTES_MAX: Final = 1 << 20
"""A broker's lines are below 300 KiB: 64 values of 4,096 characters. Longer ones are skipped and counted."""
BACK_MS: Final = 1_000
"""Several threads write, so lines may be slightly out of order; beyond this, a clock was set back."""
YEARS: Final = (2000, 2100)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(slots=True)
class Reading:
    """Counts of one file, of lines unless noted."""

    lines: int = 0
    events: int = 0
    """Events of PocketMQ."""
    broken: int = 0
    """Broken JSON: cut off, half written."""
    foreign: int = 0
    """Other lines: plain text, JSON of another form."""
    enormous: int = 0
    """Longer than ``LINE_BYTES_MAX``."""
    without_time: int = 0
    """Events whose time is missing or outside of ``YEARS``; they are skipped."""
    clock_back: int = 0
    """How often the clock went back by more than ``BACK_MS``."""
    empty_files: int = 0
    unreadable: int = 0
    """1: the file could not be read to its end (permission, damaged gzip); the part before counts."""
    error: str = ""

    def counts(self) -> Iterator[tuple[str, int]]:
        """Yield name and number of each count above 0."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value:
                yield field.name, value


def read_log(path: str, reading: Reading) -> Iterator[tuple[int, int, Fact]]:
    """Yield (line from 1, ms since 1970, fact) of one file, plain or gzip."""
    decoder = msgspec.json.Decoder()
    newest_ms = 0
    try:
        with _opened(path) as file:
            while line := file.readline(LINE_BYTES_MAX + 1):
                reading.lines += 1
                if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                    reading.enormous += 1
                    _skip_line(file)
                    continue
                event = _event(decoder, line, reading)
                if event is None:
                    continue
                at_ms = time_ms(event["timestamp"])
                if at_ms is None:
                    reading.without_time += 1
                    continue
                if at_ms < newest_ms - BACK_MS:
                    reading.clock_back += 1
                    newest_ms = at_ms
                newest_ms = max(newest_ms, at_ms)
                reading.events += 1
                for fact in facts_of(event):
                    yield reading.lines, at_ms, fact
    except (OSError, EOFError, zlib.error) as error:
        reading.unreadable = 1
        reading.error = (str(error) or type(error).__name__)[:200]
    if not reading.lines and not reading.unreadable:
        reading.empty_files = 1


def _opened(path: str) -> IO[bytes]:
    """Open a file; unpack gzip, whatever the file's name."""
    file = open(path, "rb")  # noqa: SIM115
    magic = file.read(2)
    file.seek(0)
    if magic == b"\x1f\x8b":
        file.close()
        return cast(IO[bytes], gzip.open(path, "rb"))
    return file


def _skip_line(file: IO[bytes]) -> None:
    """Skip to the end of the line."""
    while part := file.readline(LINE_BYTES_MAX):
        if part.endswith(b"\n"):
            return


def _event(decoder: "msgspec.json.Decoder[Any]", line: bytes, reading: Reading) -> dict[str, Any] | None:
    text = line.strip()
    if not text:
        return None
    if not text.startswith(b"{"):
        reading.foreign += 1
        return None
    try:
        event = decoder.decode(text)
    except DECODE_ERRORS:
        reading.broken += 1
        return None
    if not isinstance(event.get("event"), str) or not isinstance(event.get("timestamp"), str):
        reading.foreign += 1
        return None
    return cast(dict[str, Any], event)


def time_ms(text: str) -> int | None:
    """Return the ms since 1970 of an ISO 8601 timestamp (without a zone: UTC), None for an invalid one."""
    try:
        when = datetime.datetime.fromisoformat(text[:40])
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.UTC)
        if not YEARS[0] <= when.year < YEARS[1]:
            return None
        return (when - _EPOCH) // datetime.timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None

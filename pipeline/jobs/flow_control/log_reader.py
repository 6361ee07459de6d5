"""Reads one log file, line by line, in bounded memory; no content stops it.

Lives here: ``read_log`` (facts with their lines), ``Reading`` (counts of lines by kind).
"""

import datetime
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.jobs.flow_control.blocks import LINE_BYTES_MAX, read_blocks
from pocketmq.pipeline.jobs.flow_control.facts import Fact, facts_of, is_evidence
from pocketmq.pipeline.jobs.flow_control.rocketmq.facts import DIGITS, LOUD_WORDS, QUIET_WORDS, SHAPE_BYTES_MAX, Merged
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import YEARS, Entry, TextLog, Zones, without_prefix

__all__ = ["LINE_BYTES_MAX", "YEARS", "Reading", "Zones", "read_log", "time_ms"]

BACK_MS: Final = 1_000
"""Several threads write, so lines may be slightly out of order; beyond this, a clock was set back."""
REPEATS_MAX: Final = 512
IDLE_WATERMARK: Final = b" Size: 0 SlowTimeMills: 0"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MERGED: Final = frozenset(("refusal", "attempt", "event", "other", "slow", "part", "hold"))
"""Kinds of facts of which one row a second says the same: counts add up, of times the longest counts."""
_QUIET_LEVELS: Final = frozenset((b"I", b"D", b"T"))
"""First letters of INFO, DEBUG and TRACE."""
_Found = tuple[int, int, Fact]


@dataclass(slots=True)
class Reading:
    """Counts of one file, of lines unless noted."""

    lines: int = 0
    events: int = 0
    """Events of PocketMQ, and lines with a time of RocketMQ or of an application."""
    continued: int = 0
    """Lines below one with a time: stack traces."""
    broken: int = 0
    """Broken JSON: cut off, half written."""
    foreign: int = 0
    """Other lines: text without a time, JSON of another form."""
    enormous: int = 0
    """Longer than ``LINE_BYTES_MAX``."""
    without_time: int = 0
    """Events whose time is missing or outside of ``YEARS``; they are skipped."""
    undated: int = 0
    """Known texts before any line with a time; they count for the time at which the file was changed."""
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


def read_log(path: str, reading: Reading, zones: Zones | None = None) -> Iterator[_Found]:
    """Yield (line from 1, ms since 1970, fact) of one file, plain or gzip; ``-``: stdin."""
    reader = _LogReader(reading, TextLog(zones or Zones(), _changed_ms(path)))
    try:
        for block, skipped in read_blocks(path):
            reading.lines += skipped
            reading.enormous += skipped
            yield from reader.block(block)
    except (OSError, EOFError, zlib.error) as error:
        reading.unreadable = 1
        reading.error = (str(error) or type(error).__name__)[:200]
    yield from reader.end()
    if not reading.lines and not reading.unreadable:
        reading.empty_files = 1


def _changed_ms(path: str) -> int:
    try:
        return int(os.stat(path).st_mtime) * 1000
    except OSError:
        return int(time.time()) * 1000


class _Head(msgspec.Struct):
    """The fields that decide whether a JSON line is looked at."""

    event: str
    timestamp: str
    level: Any = ""
    logger: Any = ""


class _Wrapped(msgspec.Struct):
    log: str


class _LogReader:
    """Splits blocks into lines, and gives each its way: skipped, JSON, text."""

    def __init__(self, reading: Reading, text: TextLog) -> None:
        self._reading, self._text = reading, text
        self._head, self._event = msgspec.json.Decoder(_Head), msgspec.json.Decoder()
        self._merged = Merged()
        self._newest_ms = 0
        self._minute, self._minute_ms = "", 0
        self._second = b""
        """The first 33 bytes of the present second's events, as PocketMQ writes them: up to the second."""
        self._kept_s = -1
        self._shapes: dict[bytes, bool] = {}
        """Lines without a time, without their digits: whether they may be evidence."""
        self._kept: dict[tuple[object, ...], _Found] = {}
        """The facts of that second, equal ones as one."""
        self._repeats: dict[bytes, Fact | None] = {}
        """Events of that second without their digits, and where one more counts; None: nowhere."""

    def block(self, block: bytes) -> Iterator[_Found]:
        """Yield the facts of whole lines.

        Most lines of a busy broker are INFO lines that are no evidence: such a line costs two comparisons, unless the
        block holds words that matter.
        """
        reading, text = self._reading, self._text
        quiet_words = [words for words in QUIET_WORDS if words in block]
        number = reading.lines
        second, events = text.second, 0
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            number += 1
            if line[:19] != second or not second:
                if line[:4] == b"\tat " and second:
                    reading.continued += 1
                    continue
                if line[:7] == b'{"log":':
                    line = _unwrapped(line)
                if line[:1] == b"{":
                    if line[:33] != self._second or not self._second or not self._is_repeated(line):
                        yield from self._json(number, line)
                    continue
                line = without_prefix(line.strip(b" \t\r"))
                if not line:
                    continue
                if len(line) > LINE_BYTES_MAX:
                    reading.enormous += 1
                    continue
                if line[:1] == b"{":
                    yield from self._json(number, line)
                    continue
                if not text.begins(line):
                    if self._matters(line):
                        yield from self._below(number, line)
                    elif second:
                        reading.continued += 1
                    else:
                        reading.foreign += 1
                    continue
                second = text.second
            events += 1
            quiet = (line[20:21] if line[19:20] == b" " else line[24:25]) in _QUIET_LEVELS or b"INFO" in line[19:48]
            if quiet:
                for words in quiet_words:
                    if words in line:
                        quiet = False
                        break
            if quiet:
                finished = text.passed(number, line)
            elif line.rstrip().endswith(IDLE_WATERMARK):
                continue
            else:
                finished = text.head(number, line)
            if finished is not None:
                yield from self._entry(finished)
        reading.lines = number
        reading.events += events

    def end(self) -> Iterator[_Found]:
        """Yield the facts of the last lines."""
        last = self._text.end()
        if last is not None:
            yield from self._entry(last)
        yield from self._merged.end()
        yield from self._repeated()

    def _matters(self, line: bytes) -> bool:
        """Return whether a line without a time may be evidence. Stack traces repeat: a shape is looked at once."""
        shape = line[:SHAPE_BYTES_MAX].translate(None, DIGITS)
        matters = self._shapes.get(shape)
        if matters is None:
            matters = any(words in line for words in LOUD_WORDS)
            if len(self._shapes) >= REPEATS_MAX:
                self._shapes.clear()
            self._shapes[shape] = matters
        return matters

    def _below(self, number: int, line: bytes) -> Iterator[_Found]:
        if self._text.second:
            self._reading.continued += 1
        else:
            self._reading.undated += 1
        finished = self._text.below(number, line)
        if finished is not None:
            yield from self._entry(finished)

    def _entry(self, entry: Entry) -> Iterator[_Found]:
        self._pass(entry.at_ms)
        yield from self._merged.add(entry)

    def _json(self, number: int, line: bytes) -> Iterator[_Found]:
        reading = self._reading
        if len(line) > LINE_BYTES_MAX:
            reading.enormous += 1
            return
        try:
            head = self._head.decode(line)
        except DECODE_ERRORS as error:
            if isinstance(error, msgspec.ValidationError):
                reading.foreign += 1
            else:
                reading.broken += 1
            return
        at_ms = self._at(head.timestamp)
        if at_ms is None:
            reading.without_time += 1
            return
        self._pass(at_ms)
        reading.events += 1
        if at_ms // 1000 != self._kept_s or len(self._repeats) + len(self._kept) >= REPEATS_MAX:
            yield from self._repeated()
            self._kept_s = at_ms // 1000
            self._second = line[:33] if line.startswith(b'{"timestamp":"') else b""
        facts: list[Fact] = []
        if is_evidence(head.event, head.level, head.logger):
            try:
                facts = list(facts_of(self._event.decode(line)))
            except DECODE_ERRORS:
                return
        kept = None
        for fact in facts:
            if fact.kind in _MERGED:
                kept = self._keep(number, at_ms, fact)
            else:
                yield number, at_ms, fact
        counts = kept is None or kept.kind in ("event", "other")
        if counts and len(facts) == bool(kept) and len(line) <= SHAPE_BYTES_MAX and b"_left_out" not in line:
            self._repeats[line.translate(None, DIGITS)] = kept

    def _keep(self, number: int, at_ms: int, fact: Fact) -> Fact:
        """Add a fact to those of its kind in the present second; return the one that counts."""
        key = (fact.kind, fact.name, fact.target, fact.cause, fact.tag, fact.code, fact.for_ms)
        if key not in self._kept:
            self._kept[key] = (number, at_ms, fact)
            return fact
        kept = self._kept[key][2]
        kept.count += fact.count
        kept.again += fact.again
        kept.ended += fact.ended
        kept.value = max(kept.value, fact.value)
        return kept

    def _is_repeated(self, line: bytes) -> bool:
        """Return whether an event of the present second differs from an earlier one in digits only; count it."""
        shape = line.translate(None, DIGITS)
        if shape not in self._repeats:
            return False
        self._reading.events += 1
        kept = self._repeats[shape]
        if kept is not None:
            kept.count += 1
        return True

    def _repeated(self) -> Iterator[_Found]:
        """Yield the merged facts of one second."""
        kept, self._kept, self._repeats = self._kept, {}, {}
        yield from kept.values()

    def _at(self, text: str) -> int | None:
        """Return the ms of a timestamp; quick where it is in the minute of the latest."""
        if len(text) == 24 and text[:17] == self._minute and text[23] == "Z":
            try:
                return self._minute_ms + int(text[17:19]) * 1000 + int(text[20:23])
            except ValueError:
                pass
        at_ms = time_ms(text)
        if at_ms is not None and len(text) == 24 and text[23] == "Z":
            self._minute, self._minute_ms = text[:17], at_ms - at_ms % 60_000
        return at_ms

    def _pass(self, at_ms: int) -> None:
        if at_ms < self._newest_ms - BACK_MS:
            self._reading.clock_back += 1
            self._newest_ms = at_ms
        self._newest_ms = max(self._newest_ms, at_ms)


def _unwrapped(line: bytes) -> bytes:
    """Return the line that a container's runtime (Docker's json-file) put into JSON."""
    try:
        return msgspec.json.decode(line, type=_Wrapped).log.encode("utf-8", "replace")
    except DECODE_ERRORS:
        return line


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

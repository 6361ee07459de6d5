"""Lines of text logs as RocketMQ's logback writes them: time, level, thread, text, with stack traces below.

Lives here: ``Zones``, ``Entry``, ``TextLog``, which puts lines together to entries and passes on those that may be
evidence. Layouts (logback files of the distribution, 4.9.8 and 5.3.3)::

    2026-11-23 22:35:04 INFO main - ...                                    broker.log, store.log, lock.log, remoting.log
    2026-11-23 22:35:04 INFO - ...                                                                             stats.log
    2026-11-23 22:35:04 - ...                                                              watermark.log, protection.log
    2026-11-23 14:35:08,841 WARN RocketmqClient - ...                                       rocketmq_client.log of 4.9.8
    2026-11-23 22:35:08.841 WARN  [4711] [main] [RocketmqClient#send:123] - ...             rocketmq_client.log of 5.3.3

An application's own layout (log4j, Spring Boot, a container's prefix) is read too: what decides is the text.
"""

import datetime
import re
import zoneinfo
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.errors import ConfigError

YEARS: Final = (2000, 2100)
EXTRAS_MAX: Final = 6
"""Lines of a stack trace that are kept: exceptions and their causes."""
HEAD_BYTES: Final = 19
SERVER_ZONE: Final = "+08:00"
"""The zone in the patterns of RocketMQ's logback files (``%d{yyy-MM-dd HH:mm:ss,GMT+8}``)."""
_HEAD: Final = re.compile(
    rb"[\[\x1b\w;]{0,8}?(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{3})\d{0,6})?\]?\s?(Z|[+-]\d\d:?\d\d)?"
)
_LEVEL: Final = re.compile(rb"\b(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)(?:ING)?\b")
_LOUD: Final = frozenset((b"WARN", b"ERROR", b"FATAL"))
_LEVELS: Final = _LOUD | {b"INFO", b"DEBUG", b"TRACE"}
_THREAD: Final = re.compile(rb"[\s\[]*([\w.$-]{1,80})")
_CLIENT_5: Final = re.compile(rb"\s+\[\d+\] \[")
_CONTAINER: Final = re.compile(rb"\S{20,35} std(?:out|err) [FP] ")
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?(\d\d))?")
_UTC: Final = datetime.UTC


def zone_of(text: str) -> datetime.tzinfo | None:
    """Return the zone of ``+08:00``, ``UTC``, ``Asia/Shanghai``; None for ``local``. Raises ``ConfigError``."""
    if text == "local":
        return None
    match = _OFFSET.fullmatch(text)
    if match is not None:
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        if minutes < 1440:
            return datetime.timezone(datetime.timedelta(minutes=-minutes if match[1] == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(text)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ConfigError("bad time zone", why=repr(text), hint="+08:00, UTC, Asia/Shanghai or local") from None


@dataclass(slots=True, frozen=True)
class Zones:
    """The zones of times without a zone. ``server``: logs of brokers, and of clients since 5.0; ``client``: others."""

    server: str = SERVER_ZONE
    client: str = "local"

    @classmethod
    def checked(cls, server: str, client: str) -> "Zones":
        """Return them. Raises ``ConfigError`` for a zone that does not exist."""
        zone_of(server), zone_of(client)
        return cls(server, client)


@dataclass(slots=True)
class Entry:
    """One log entry that may be evidence: its line, its text, and the lines of its stack trace that matter.

    ``at_ms``: ms since 1970. ``loud``: a warning or an error. ``client_5``: by a client of RocketMQ 5.
    """

    line: int
    at_ms: int
    loud: bool
    thread: bytes
    text: bytes
    client_5: bool = False
    extras: list[bytes] = field(default_factory=list)


class TextLog:
    """Puts the lines of one file together to entries. ``undated_ms``: the time of lines before the first time."""

    def __init__(self, zones: Zones, undated_ms: int) -> None:
        self._server, self._client = zone_of(zones.server), zone_of(zones.client)
        self._undated_ms = undated_ms
        self.second = b""
        """The first 19 bytes of the latest line with a time."""
        self.seconds: dict[bool, int | None] = {}
        """Its ms since 1970, by whether the line is a server's; None: outside of ``YEARS``."""
        self.quiet: tuple[int, bytes] | None = None
        """The latest line with a time, if it was passed over."""
        self._entry: Entry | None = None

    def head(self, number: int, line: bytes) -> Entry | None:
        """Take a line that begins with a time; return the entry before it. ``quiet`` has a line without one."""
        finished, self._entry, self.quiet = self._entry, self._made(number, line), None
        return finished

    def passed(self, number: int, line: bytes) -> Entry | None:
        """Pass over a line with a time, whose stack trace may be evidence; return the entry before it."""
        finished, self._entry, self.quiet = self._entry, None, (number, line)
        return finished

    def below(self, number: int, line: bytes) -> Entry | None:
        """Take a line without a time that may be evidence; return an entry that is finished."""
        if not self.second:
            return Entry(number, self._undated_ms, True, b"", line.strip())
        if self._entry is None and self.quiet is not None:
            self._entry, self.quiet = self._made(*self.quiet), None
        if self._entry is not None and len(self._entry.extras) < EXTRAS_MAX:
            self._entry.extras.append(line.strip())
        return None

    def end(self) -> Entry | None:
        """Return the last entry."""
        finished, self._entry = self._entry, None
        return finished

    def begins(self, line: bytes) -> bool:
        """Return whether a line begins with a time; if so, it is the present second."""
        match = _HEAD.match(line)
        if match is None:
            return False
        second = line[:HEAD_BYTES]
        if second != self.second or match.start(1):
            self.second = second
            self.seconds = {}
        return True

    def _made(self, number: int, line: bytes) -> Entry | None:
        """Return the entry of a line; the layouts of RocketMQ's brokers and of 4.9's clients take the short way."""
        mark = line[19:20]
        if (mark == b" " or mark == b",") and line[:HEAD_BYTES] == self.second:
            head, dash, text = line.partition(b" - ")
            second_ms = self.seconds.get(mark == b" ")
            if dash and second_ms is not None and len(head) < 140:
                parts = head[20:].split() if mark == b" " else head[24:].split()
                if len(parts) == 2 and parts[0] in _LEVELS:
                    ms = 0 if mark == b" " else int(head[20:23])
                    return Entry(number, second_ms + ms, parts[0] in _LOUD, parts[1], text.strip())
        return self._parsed(number, line)

    def _parsed(self, number: int, line: bytes) -> Entry | None:
        match = _HEAD.match(line)
        if match is None:
            return None
        end = match.end()
        level = _LEVEL.search(line, end, end + 100)
        after = level.end() if level else end
        client_5 = _CLIENT_5.match(line, after) is not None
        is_server = match[7] is None or client_5
        at_ms = self._zoned(match) if match[8] else self._at(match, is_server)
        if at_ms is None:
            return None
        thread = _THREAD.match(line, after)
        text = line.find(b" - ", end, end + 400)
        if text < 0:
            text = line.find(b" : ", end, end + 400)
        return Entry(
            number,
            at_ms + int(match[7] or 0),
            level is None or level[1] in _LOUD,
            thread[1] if thread else b"",
            line[text + 3 if text >= 0 else after :].strip(),
            client_5,
        )

    def _at(self, match: re.Match[bytes], is_server: bool) -> int | None:
        if is_server not in self.seconds:
            self.seconds[is_server] = _ms(match, self._server if is_server else self._client)
        return self.seconds[is_server]

    @staticmethod
    def _zoned(match: re.Match[bytes]) -> int | None:
        text = match[8].decode()
        return _ms(match, _UTC if text == "Z" else zone_of(text))


def without_prefix(line: bytes) -> bytes:
    """Return a line without what a container's runtime writes before it."""
    match = _CONTAINER.match(line)
    return line[match.end() :] if match else line


def _ms(match: re.Match[bytes], zone: datetime.tzinfo | None) -> int | None:
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    if not YEARS[0] <= year < YEARS[1]:
        return None
    try:
        return int(datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()) * 1000
    except (ValueError, OverflowError, OSError):
        return None

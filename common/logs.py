"""Logs: loggers whose events go through a bounded queue to one writer, off the caller's thread.

Lives here: ``Logs`` and its settings, sampling of repeats, JSON lines and console lines, ``CapturedLog`` for tests.
Nothing global is configured: structlog and ``logging`` stay as they are.
"""

import datetime
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, Literal

import msgspec

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import LEVELS, BoundLog, Threshold
from pocketmq.common.printable import printable
from pocketmq.common.runner import Runner, ThreadRunner

VALUE_CHARACTERS_MAX: Final = 4096
"""Longer values are cut: a log line is no place for a body."""
VALUES_MAX: Final = 64
"""Keys of one event; further ones are left out and counted in ``values_left_out``."""
KINDS_MAX: Final = 4096
"""(logger, event) pairs whose repeats are watched; beyond it the oldest is forgotten."""
EVENT_WIDTH: Final = 28
LEVEL_WIDTH: Final = 9
"""Of ``exception``, structlog's longest level."""
QUOTED: Final = frozenset(" \t=\r\n\"'")
"""A text with one of these is shown as Python writes it."""
PARTS_MAX: Final = 64
"""Parts with a level of their own."""
_PART: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_WINDOW_NS: Final = 1_000_000_000
_DRAIN_MAX: Final = 512
_FLUSH_MS: Final = 1000.0
CLOSE_TIMEOUT_S: Final = 1.5
"""How long the end of a process waits for its last log lines."""

EventDict = dict[str, Any]
Level = Literal["debug", "info", "warning", "error"]


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The level, form and place of the log."""

    level: Level = "info"
    """Events below it are not written. Can change while a server runs."""
    levels: str = ""
    """Other levels for single parts: ``store=debug;ha=warning`` (a line names its part). Can change while a server
    runs."""
    format: Literal["console", "json"] = "console"
    """One line of text or of JSON an event."""
    file: str = ""
    """File to which lines are appended; empty: standard error."""
    queue_events_max: int = 10_000
    """Events that may wait for the writer; more are dropped and counted."""
    queue_size_bytes_max: int = 16 << 20
    """Bytes of the events that may wait for the writer."""
    repeats_per_second_max: int = 10
    """Lines a second for one event of one logger; the rest of that second is counted, not written."""

    def __post_init__(self) -> None:
        for name in ("queue_events_max", "queue_size_bytes_max", "repeats_per_second_max"):
            if getattr(self, name) < 1:
                raise ConfigError("bad setting", why=f"log.{name}={getattr(self, name)}", hint="at least 1")
        self.levels_of_parts()

    def levels_of_parts(self) -> dict[str, int]:
        """Return part → level of ``levels``. Raises ``ConfigError``."""
        found: dict[str, int] = {}
        for text in filter(None, (part.strip() for part in self.levels.split(";"))):
            name, _, level = text.partition("=")
            if level not in LEVELS or _PART.fullmatch(name) is None or len(found) >= PARTS_MAX:
                raise ConfigError(
                    "bad setting",
                    why=f"log.levels has {text[:100]!r}",
                    hint=f"write part=level with ; between them, as in store=debug;ha=warning: {', '.join(LEVELS)}",
                )
            found[name] = LEVELS[level]
        return found


class Repeats:
    """Counts repeats of a kind of event within a second. Pure: fed with times. Not thread-safe; its owner locks.

    Holds: at most ``KINDS_MAX`` kinds are remembered.
    """

    __slots__ = ("_kinds", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kinds: dict[tuple[str, str], list[int]] = {}  # kind → [window begin ns, passed, left out]

    def admit(self, logger: str, event: str, now_ns: int) -> int:
        """Return -1 to leave this one out, else how many of its kind were left out since the last one that passed."""
        window = self._kinds.get((logger, event))
        if window is None:
            if len(self._kinds) >= KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[logger, event] = [now_ns, 1, 0]
            return 0
        if now_ns - window[0] >= _WINDOW_NS:
            left_out = window[2]
            window[:] = [now_ns, 1, 0]
            return left_out
        if window[1] < self._limit:
            window[1] += 1
            return 0
        window[2] += 1
        return -1

    def expire(self, now_ns: int, *, all_of_them: bool = False) -> list[tuple[str, str, int]]:
        """Forget kinds whose second is over; return (logger, event, left out) of those with events left out."""
        over = [kind for kind, window in self._kinds.items() if all_of_them or now_ns - window[0] >= _WINDOW_NS]
        silenced = [(*kind, self._kinds[kind][2]) for kind in over if self._kinds[kind][2]]
        for kind in over:
            del self._kinds[kind]
        return silenced

    def __len__(self) -> int:
        return len(self._kinds)


class Logs:
    """Makes loggers and owns the queue and the worker that writes.

    Callers of a logger never wait: an event that finds the queue full (in count or bytes) is dropped and counted, and
    the next lines written say how many. ``close`` writes what is queued. Safe from any thread.
    """

    def __init__(
        self,
        config: LogConfig | None = None,
        *,
        clock: Clock | None = None,
        runner: Runner | None = None,
        stream: IO[str] | None = None,
    ) -> None:
        """``stream`` replaces ``config.file`` and standard error; it stays open. ``ConfigError``: no such place."""
        self.config = config = config or LogConfig()
        self._clock = clock or SystemClock()
        self._own_stream: IO[str] | None = None
        if stream is None and config.file:
            try:
                stream = self._own_stream = open(config.file, "a", encoding="utf-8")  # noqa: SIM115
            except OSError as error:
                raise ConfigError(
                    "the log file cannot be opened", why=f"log.file={config.file!r}: {error.strerror}"
                ) from error
        self._stream = stream or _standard_error()
        self._render = _json_line if config.format == "json" else _console_renderer(self._stream)
        self._lock = threading.Lock()
        self._queue: deque[tuple[int, EventDict]] = deque()  # (estimated bytes, event)
        self._queue_size_bytes = 0
        self._repeats = Repeats(config.repeats_per_second_max)
        self._dropped_unreported = 0
        self._closed = False
        self._all_written = False
        self.written_count = 0
        self.dropped_count = 0
        self.left_out_count = 0
        self._thresholds: dict[str, Threshold] = {}
        self._worker = (runner or ThreadRunner()).start("log-writer", self._step, first_after_ms=None)

    def logger(self, name: str, **values: Any) -> BoundLog:
        """Return a logger: ``.info(event, key=value)``, ``.warning``, ``.error``, ``.bind(**values)`` and so on."""
        threshold = self._thresholds.get(name)
        if threshold is None:
            level = self.config.levels_of_parts().get(name, LEVELS[self.config.level])
            threshold = self._thresholds.setdefault(name, Threshold(level))
        return BoundLog(self._enqueue, threshold, {"logger": name, **values})

    def levels_changed(self) -> None:
        """Take the levels that ``config`` has now; they hold for the loggers that are there, too."""
        parts, level = self.config.levels_of_parts(), LEVELS[self.config.level]
        for name, threshold in self._thresholds.items():
            threshold.level = parts.get(name, level)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Write the queued events and end the worker. Later events are dropped.

        Return whether all was written in time: a pipe whose reader stands still, or a disk, may take nothing. Then the
        rest is dropped, and so is everything from now on.
        """
        with self._lock:
            if self._closed:
                return self._all_written
            self._closed = True
        # a thread of its own: the caller, often the main thread, must not wait in the write itself
        writer = threading.Thread(target=self._write_rest, args=(timeout_s,), name="log-closer", daemon=True)
        writer.start()
        writer.join(timeout_s)
        if not self._all_written:
            self.dropped_count += len(self._queue)
            return False
        if self._own_stream is not None:
            self._own_stream.close()
        return True

    def _write_rest(self, timeout_s: float) -> None:
        if not self._worker.stop(timeout_s):
            return
        while self._queue:
            self._write_some()
        self._write_some(final=True)
        self._all_written = True

    def _enqueue(self, level: str, event: dict[str, Any]) -> None:
        name, text = str(event.get("event", "")), str(event.get("logger", ""))
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            left_out = self._repeats.admit(text, name, now_ns)
            if left_out < 0:
                self.left_out_count += 1
                return
        line, size_bytes = _bounded(event)
        line["level"] = level
        line["timestamp_ms"] = self._clock.now_ms()
        if left_out:
            line["repeats_left_out"] = left_out
        with self._lock:
            full = (
                len(self._queue) >= self.config.queue_events_max
                or self._queue_size_bytes + size_bytes > self.config.queue_size_bytes_max
            )
            if full or self._closed:
                self.dropped_count += 1
                self._dropped_unreported += 1
            else:
                self._queue.append((size_bytes, line))
                self._queue_size_bytes += size_bytes
        self._worker.wake()

    def _step(self) -> float | None:
        self._write_some()
        if self._queue:
            return 0
        return _FLUSH_MS if len(self._repeats) else None

    def _write_some(self, *, final: bool = False) -> None:
        """Render up to ``_DRAIN_MAX`` events and write them with one call."""
        lines: list[EventDict] = []
        with self._lock:
            while self._queue and len(lines) < _DRAIN_MAX:
                size_bytes, line = self._queue.popleft()
                self._queue_size_bytes -= size_bytes
                lines.append(line)
            dropped, self._dropped_unreported = self._dropped_unreported, 0
            repeats = self._repeats.expire(self._clock.monotonic_ns(), all_of_them=final)
        own = {"level": "warning", "timestamp_ms": self._clock.now_ms()}
        if dropped:
            lines.append({"logger": "log", "event": "log_events_dropped", "count": dropped, **own})
        lines += [{"logger": name, "event": event, "repeats_left_out": n, **own} for name, event, n in repeats]
        if not lines:
            return
        try:
            self._stream.write("".join(self._render(line) for line in lines))
            self._stream.flush()
            self.written_count += len(lines)
        except (OSError, ValueError):  # disk full, or the stream is closed: a broker does not stop for its log
            self.dropped_count += len(lines)


class _StandardError:
    """Writes to descriptor 2 itself.

    A thread that waits in ``sys.stderr.write`` holds a lock that the interpreter wants at its end, which is then fatal.
    """

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return sys.stderr.isatty()

    def write(self, text: str) -> None:
        """Write all of ``text``; raises ``OSError``."""
        data = memoryview(text.encode(errors="backslashreplace"))
        while data:
            data = data[os.write(2, data) :]

    def flush(self) -> None:
        """Do nothing: nothing is kept."""


def _standard_error() -> Any:
    """Return standard error, past its buffer unless a program has replaced it."""
    return _StandardError() if sys.stderr is sys.__stderr__ else sys.stderr


class CapturedLog:
    """A log for tests: keeps each event as a dict. Bound copies share the list."""

    __slots__ = ("_values", "events")

    def __init__(self, values: Mapping[str, Any] | None = None, events: list[dict[str, Any]] | None = None) -> None:
        self._values = dict(values or {})
        self.events: list[dict[str, Any]] = [] if events is None else events

    def _keep(self, level: str, event: str, values: Mapping[str, Any]) -> None:
        self.events.append({**self._values, **values, "event": event, "level": level})

    def debug(self, event: str, **values: Any) -> None:
        """Keep an event of level debug."""
        self._keep("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Keep an event of level info."""
        self._keep("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Keep an event of level warning."""
        self._keep("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Keep an event of level error."""
        self._keep("error", event, values)

    def bind(self, **values: Any) -> "CapturedLog":
        """Return a log that adds ``values`` to each event and keeps it in the same list."""
        return CapturedLog({**self._values, **values}, self.events)

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the events of that name."""
        return [each for each in self.events if each["event"] == event]


def _bounded(event: Mapping[str, Any]) -> tuple[EventDict, int]:
    """Copy an event with values that cannot change or be large; return it and an estimate of its bytes."""
    line: EventDict = {}
    size_bytes = 200
    for key, value in {"logger": "", "event": "", **event}.items():  # those two first: they are never left out
        if len(line) >= VALUES_MAX:
            line["values_left_out"] = len(event) - VALUES_MAX
            break
        if value is None or isinstance(value, bool | int | float):
            line[key] = value
            size_bytes += 100
            continue
        if isinstance(value, str):
            text = value
        elif isinstance(value, bytes):
            text = repr(value[:VALUE_CHARACTERS_MAX])
        else:
            try:
                text = str(value) if isinstance(value, BaseException) else repr(value)
            except Exception as error:
                text = f"<{type(value).__name__}: {type(error).__name__} in its repr>"
        if len(text) > VALUE_CHARACTERS_MAX:
            text = f"{text[:VALUE_CHARACTERS_MAX]}… ({len(text)} characters)"
        line[key] = printable(text, keep="\n\t" if key == "exception" else "")
        size_bytes += 100 + len(text)
    return line, size_bytes


def _timestamp_text(timestamp_ms: int) -> str:
    when = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def _json_line(line: EventDict) -> str:
    timestamp = _timestamp_text(line.pop("timestamp_ms"))
    first = {
        "timestamp": timestamp,
        "level": line.pop("level"),
        "logger": line.pop("logger"),
        "event": line.pop("event"),
    }
    return msgspec.json.encode({**first, **line}).decode() + "\n"


def _console_renderer(stream: IO[str]) -> Callable[[EventDict], str]:
    """Return structlog's console form, in color on a terminal."""
    plain: Callable[[EventDict], str] = console_line
    if hasattr(stream, "isatty") and stream.isatty():
        import structlog.dev  # slow: only where its colors are seen

        in_color = structlog.dev.ConsoleRenderer(colors=True, pad_event_to=EVENT_WIDTH)
        plain = lambda line: str(in_color(None, line["level"], line))  # noqa: E731

    def render(line: EventDict) -> str:
        timestamp = _timestamp_text(line.pop("timestamp_ms"))
        return plain({"timestamp": timestamp, **line}) + "\n"

    return render


def console_line(line: Mapping[str, Any]) -> str:
    """Return the console form of a log line, without its end: structlog's, without color, and without its imports.

    Importing structlog costs a broker 50 ms and 5 MB: it imports rich, pygments and more. On a terminal, where lines
    have colors, structlog's own renderer is used. ``line``: timestamp, level, event, logger and values.
    """
    rest = dict(line)
    exception = rest.pop("exception", None)
    stack = rest.pop("stack", None)
    rest.pop("exc_info", None)
    columns = []
    if "timestamp" in rest:
        columns.append(str(rest.pop("timestamp")))
    if "level" in rest:
        columns.append(f"[{rest.pop('level'):<{LEVEL_WIDTH}}]")
    if "event" in rest:
        columns.append(f"{rest.pop('event')!s:<{EVENT_WIDTH}}")
    columns += [f"[{rest.pop(key)}]" for key in ("logger", "logger_name") if key in rest]
    columns += [f"{key}={_value(rest[key])}" for key in sorted(rest)]
    text = " ".join(column for column in columns if column).rstrip(" ")
    if stack is not None:
        text += f"\n{stack}"
        if exception is not None:
            text += "\n\n" + "=" * 79 + "\n"
    return text if exception is None else f"{text}\n{exception}"


def _value(value: object) -> str:
    return value if isinstance(value, str) and not QUOTED.intersection(value) else repr(value)

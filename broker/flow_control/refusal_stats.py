"""Counts every refusal of the broker by cause, and logs samples of them.

Lives here: ``RefusalStats``: totals, the last minute, the time of the last one; the sampled events.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog
from pocketmq.common.refusals import CLIENTS_OWN
from pocketmq.remoting.telemetry import RefusalCount

KINDS_MAX: Final = 256
"""Kinds of refusals counted separately; further ones are counted by cause only."""
EVENTS_PER_SECOND_MAX: Final = 10
"""Per cause; further refusals are counted and reported with the next event."""
MINUTE_S: Final = 60
_SECOND_NS: Final = 1_000_000_000
_TAG_CHARACTERS_MAX: Final = 24


@dataclass(slots=True)
class _Kind:
    """Counts of one (cause, code, tag). ``seconds[i]`` counts the second whose number is ``numbers[i]``."""

    cause: str
    code: int
    remark: str = ""
    total: int = 0
    last_ms: int = 0
    seconds: list[int] = field(default_factory=lambda: [0] * MINUTE_S)
    numbers: list[int] = field(default_factory=lambda: [0] * MINUTE_S)

    def count(self, count: int, second: int) -> None:
        at = second % MINUTE_S
        if self.numbers[at] != second:
            self.numbers[at] = second
            self.seconds[at] = 0
        self.seconds[at] += count
        self.total += count

    def last_minute(self, second: int) -> int:
        return sum(
            count for count, number in zip(self.seconds, self.numbers, strict=True) if second - number < MINUTE_S
        )


@dataclass(slots=True)
class _Watched:
    """A component that counts its own refusals; ``seen``: how many of them are counted here."""

    cause: str
    code: int
    remark: str
    counter: Callable[[], int]
    seen: int


@dataclass(slots=True)
class _Window:
    """The refusals of one cause in the current second that were logged, and those left out."""

    begin_ns: int
    logged: int = 0
    left_out: int = 0
    code: int = 0
    remark: str = ""


@bounded("kinds of refusals", limit=KINDS_MAX + len(Cause), size="_kinds", entry_bytes=4096, when_full="evicts")
class RefusalStats:
    """Counts and logs refusals. Thread-safe; ``note`` takes about 2 µs and never blocks on a disk.

    A kind is a cause, a code and RocketMQ's tag (the words in brackets at the start of some remarks):
    ``page_cache_busy`` has three kinds. Each keeps its latest remark. An event is named ``refused_<cause>``; ``count``
    is the number of refusals it reports, ``left_out`` the number of that cause since the last event that were not
    logged.
    """

    def __init__(self, clock: Clock, log: EventLog, on_refused: Callable[[str], None] | None = None) -> None:
        """``on_refused`` is called with the cause of every refusal, in its thread; it must return at once."""
        self._clock = clock
        self._log = log
        self._on_refused = on_refused
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], _Kind] = {}
        self._windows: dict[str, _Window] = {}
        self._watched: dict[str, _Watched] = {}

    def note(self, cause: str, code: int, remark: str, count: int = 1) -> None:
        """Count ``count`` refusals with this cause (a value of ``Cause``) and response code."""
        now_ns = self._clock.monotonic_ns()
        now_ms = self._clock.now_ms()
        tag = remark[: remark.find("]", 1, _TAG_CHARACTERS_MAX) + 1] if remark.startswith("[") else ""
        with self._lock:
            kind = self._kind(cause, int(code), tag)
            kind.count(count, now_ns // _SECOND_NS)
            kind.last_ms = now_ms
            kind.remark = remark
            left_out = self._admit(cause, int(code), remark, count, now_ns)
        if self._on_refused is not None:
            self._on_refused(cause)
        if left_out >= 0:
            self._log_event(cause, int(code), remark, count, left_out)

    def watch(self, cause: str, code: int, remark: str, counter: Callable[[], int]) -> None:
        """Count the refusals of a component that only has a running total, at each ``snapshot`` and ``log_left_out``.

        One component per cause: a new one replaces the one before.
        """
        self._watched[cause] = _Watched(cause, code, remark, counter, counter())

    def snapshot(self) -> list[RefusalCount]:
        """Return the counts of every kind, the most frequent first. Any thread."""
        self.log_left_out()
        second = self._clock.monotonic_ns() // _SECOND_NS
        with self._lock:
            counts = [
                RefusalCount(
                    cause=kind.cause,
                    code=kind.code,
                    remark=kind.remark,
                    total=kind.total,
                    last_minute=kind.last_minute(second),
                    last_ms=kind.last_ms,
                )
                for kind in self._kinds.values()
            ]
        return sorted(counts, key=lambda count: -count.total)

    def log_left_out(self, *, all_of_them: bool = False) -> None:
        """Log refusals left out in past seconds, and read the counters of ``watch``. Any thread."""
        for watched in list(self._watched.values()):
            with self._lock:  # two threads must not count the same refusals
                total = watched.counter()
                new, watched.seen = total - watched.seen, total
            if new > 0:
                self.note(watched.cause, watched.code, watched.remark, new)
        now_ns = self._clock.monotonic_ns()
        due: list[tuple[str, int, str, int]] = []
        with self._lock:
            for cause, window in self._windows.items():
                if window.left_out and (all_of_them or now_ns - window.begin_ns >= _SECOND_NS):
                    due.append((cause, window.code, window.remark, window.left_out))
                    window.left_out = 0
        for cause, code, remark, left_out in due:
            self._log_event(cause, code, remark, 0, left_out)

    def _kind(self, cause: str, code: int, tag: str) -> _Kind:
        kind = self._kinds.get((cause, code, tag))
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                code, tag = 0, ""  # causes are a closed list, so these are few
            kind = self._kinds.setdefault((cause, code, tag), _Kind(cause, code))
        return kind

    def _admit(self, cause: str, code: int, remark: str, count: int, now_ns: int) -> int:
        """Return -1 if this refusal is not to be logged, else how many were left out before it."""
        window = self._windows.get(cause)
        if window is None:
            window = self._windows[cause] = _Window(now_ns)
        elif now_ns - window.begin_ns >= _SECOND_NS:
            window.begin_ns = now_ns
            window.logged = 0
        if window.logged < EVENTS_PER_SECOND_MAX:
            window.logged += 1
            left_out, window.left_out = window.left_out, 0
            return left_out
        window.left_out += count
        window.code = code
        window.remark = remark
        return -1

    def _log_event(self, cause: str, code: int, remark: str, count: int, left_out: int) -> None:
        level = self._log.info if cause in CLIENTS_OWN else self._log.warning
        text = f"CODE: {code}  DESC: {remark}"  # as RocketMQ's clients log the answer (MQBrokerException)
        level(f"refused_{cause}", text=text, code=code, remark=remark, count=count, left_out=left_out)

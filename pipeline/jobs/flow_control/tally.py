"""Facts of logs to incidents in one process, without Spark: what ``minutes`` and ``evidence`` do with Spark's tables.

Lives here: ``Tally``. Memory is bounded: facts of one kind and minute are one row, and of calm times only the latest
rows are kept.
"""

import datetime
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.pipeline.jobs.flow_control.chain import Case, Chain, explain
from pocketmq.pipeline.jobs.flow_control.evidence import INCIDENTS_MAX, MARGIN_MINUTES, Evidence, Incident
from pocketmq.pipeline.jobs.flow_control.facts import BUSY_MS, TROUBLES, Fact
from pocketmq.pipeline.jobs.flow_control.minutes import LOCK_WAITS, NO_INCIDENT
from pocketmq.pipeline.jobs.flow_control.reading import INTERVAL_MS_MAX

ROWS_MAX: Final = 100_000
"""About 60 MB. Beyond, calm minutes are forgotten; where all are in trouble, new kinds of facts are left out."""
BROKERS_MAX: Final = 10_000
MINUTE_MS: Final = 60_000
_TROUBLE_SUMS: Final = ("slave_timeouts", "slave_not_available", "page_cache_busy_episodes")
_NO_EVIDENCE: Final = ("file", "broker")
_Key = tuple[str, str, int, str, str, str, str, int]
_Kind = tuple[str, str, str, str, int]
"""Kind, name, cause, tag, code."""


@dataclass(slots=True)
class _Row:
    """Facts of one key, aggregated. ``first``: time, file, line and text of the first."""

    first: tuple[int, str, int, str]
    last_ms: int
    lines: int = 0
    count: int = 0
    again: int = 0
    ended: int = 0
    highest: float = -math.inf
    lowest: float = math.inf
    weighted_p50: float = 0.0
    p99: float = -math.inf

    def add(self, fact: Fact, at_ms: int, file: str, line: int) -> None:
        """Add one fact."""
        place = (at_ms, file, line, fact.text)
        self.first = min(self.first, place)
        self.last_ms = max(self.last_ms, at_ms)
        self.lines += 1
        self.count += fact.count
        self.again += fact.again
        self.ended += fact.ended
        self.highest, self.lowest = max(self.highest, fact.value), min(self.lowest, fact.value)
        self.weighted_p50 += fact.p50 * fact.count
        self.p99 = max(self.p99, fact.p99)

    def merge(self, other: "_Row") -> None:
        """Add another row."""
        self.first, self.last_ms = min(self.first, other.first), max(self.last_ms, other.last_ms)
        self.lines, self.count = self.lines + other.lines, self.count + other.count
        self.again, self.ended = self.again + other.again, self.ended + other.ended
        self.highest, self.lowest = max(self.highest, other.highest), min(self.lowest, other.lowest)
        self.weighted_p50, self.p99 = self.weighted_p50 + other.weighted_p50, max(self.p99, other.p99)


_Minutes = dict[int, dict[_Kind, _Row]]


class Tally:
    """Facts by log, minute and kind; their incidents once all are added."""

    def __init__(self) -> None:
        self._rows: dict[_Key, _Row] = {}
        self._brokers: dict[str, tuple[int, str]] = {}
        self._refused: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: {"line": 0, "interval": 0})
        self.left_out = 0
        """Facts that found no room."""
        self.forgotten = 0
        """Rows of calm minutes that made room."""

    def add(self, log: str, file: str, line: int, at_ms: int, fact: Fact) -> None:
        """Add one fact of a file that belongs to ``log``."""
        if fact.kind in _NO_EVIDENCE:
            if fact.kind == "broker" and (log in self._brokers or len(self._brokers) < BROKERS_MAX):
                self._brokers[log] = max(self._brokers.get(log, (0, "")), (at_ms, fact.name))
            return
        if fact.kind == "refusal":
            self._refused[log, fact.cause][fact.name] += fact.count
        middle_ms = at_ms - min(fact.for_ms, INTERVAL_MS_MAX) // 2
        key = (log, fact.target, middle_ms // MINUTE_MS, fact.kind, fact.name, fact.cause, fact.tag, fact.code)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= ROWS_MAX:
                self._forget(key[2])
            if len(self._rows) >= ROWS_MAX:
                self.left_out += 1
                return
            row = self._rows[key] = _Row((at_ms, file, line, fact.text), at_ms)
        row.add(fact, at_ms, file, line)

    def incidents(self, quiet_minutes: int = 1) -> tuple[list[tuple[Incident, list[Chain]]], int]:
        """Return the worst incidents, explained, worst first, and the number of all."""
        rows = self._by_broker()
        found: list[tuple[Incident, list[Evidence]]] = []
        for broker, minutes in rows.items():
            for begin, end in _runs(minutes, quiet_minutes):
                found.append(_incident(broker, begin, end, minutes))
        found.sort(key=lambda each: (-(each[0].refused + each[0].sends_ended), each[0].begin_ms, each[0].broker))
        worst = found[:INCIDENTS_MAX]
        return [(incident, explain(Case(incident, evidence))) for incident, evidence in worst], len(found)

    def refused(self) -> int:
        """Return the number of refusals."""
        return sum(max(counts.values()) for counts in self._refused.values())

    def _by_broker(self) -> dict[str, _Minutes]:
        """Return the rows by broker, minute and kind. Refusals are in a log twice, line by line and in sums: those
        with more count."""
        found: dict[str, _Minutes] = {}
        for (log, target, minute, kind, name, cause, tag, code), row in self._rows.items():
            if kind == "refusal":
                counts = self._refused[log, cause]
                if name != ("interval" if counts["interval"] > counts["line"] else "line"):
                    continue
            broker = target or self._brokers.get(log, (0, log))[1]
            rows = found.setdefault(broker, {}).setdefault(minute, {})
            key = (kind, name, cause, tag, code)
            if key in rows:
                rows[key].merge(row)
            else:
                rows[key] = _copied(row)
        return found

    def _forget(self, minute: int) -> None:
        """Forget rows of calm minutes, but the latest."""
        margin = MARGIN_MINUTES + 1
        trouble = {key[2] for key, row in self._rows.items() if is_trouble(key[3:6], row)}
        near = {each + step for each in trouble for step in range(-margin, margin + 1)}
        near.update(range(minute - 2 * margin, minute + 2 * margin))
        kept = {key: row for key, row in self._rows.items() if key[2] in near}
        self.forgotten += len(self._rows) - len(kept)
        self._rows = kept


def _copied(row: _Row) -> _Row:
    """Return a row that can grow without changing this one."""
    copy = _Row(row.first, row.last_ms)
    copy.merge(row)
    return copy


def is_trouble(kind: tuple[str, str, str], row: _Row) -> bool:
    """Return whether facts of this kind, name and cause make a minute one of trouble (``evidence.TROUBLE``)."""
    match kind:
        case ("refusal", _, cause):
            return cause not in NO_INCIDENT and row.count > 0
        case ("attempt", _, _):
            return row.again > 0 or row.ended > 0
        case ("event", name, _):
            return (name in LOCK_WAITS or name in TROUBLES) and row.count > 0
        case ("sum", name, _):
            return name in _TROUBLE_SUMS and row.count > 0
        case ("hold", _, _):
            return row.highest >= BUSY_MS
    return False


def _runs(minutes: _Minutes, quiet_minutes: int) -> Iterator[tuple[int, int]]:
    """Yield first and last minute of each run of trouble."""
    begin = last = None
    for minute in sorted(minutes):
        if not any(is_trouble(key[:3], row) for key, row in minutes[minute].items()):
            continue
        if begin is None or last is None:
            begin = minute
        elif minute - last > quiet_minutes + 1:
            yield begin, last
            begin = minute
        last = minute
    if begin is not None and last is not None:
        yield begin, last


def _incident(broker: str, begin: int, end: int, minutes: _Minutes) -> tuple[Incident, list[Evidence]]:
    begun = datetime.datetime.fromtimestamp(begin * 60, datetime.UTC)
    name = f"{broker}@{begun:%Y-%m-%dT%H:%MZ}"
    merged: dict[_Kind, _Row] = {}
    refused = ended = troubled = 0
    for minute in range(begin - MARGIN_MINUTES, end + MARGIN_MINUTES + 1):
        within = begin <= minute <= end
        rows = minutes.get(minute, {})
        troubled += within and any(is_trouble(key[:3], row) for key, row in rows.items())
        for key, row in rows.items():
            if within and key[0] == "refusal" and key[2] not in NO_INCIDENT:
                refused += row.count
            if within and key[0] == "attempt":
                ended += row.ended
            if key[0] == "sum" and not key[1].startswith("slave_"):
                continue
            if key in merged:
                merged[key].merge(row)
            else:
                merged[key] = _copied(row)
    incident = Incident(name, broker, begin * MINUTE_MS, (end + 1) * MINUTE_MS, troubled, refused, ended)
    return incident, [_evidence(name, key, row) for key, row in merged.items()]


def _evidence(incident: str, key: _Kind, row: _Row) -> Evidence:
    first_ms, file, line, text = row.first
    return Evidence(
        incident,
        *key,
        lines=row.lines,
        count=row.count,
        again=row.again,
        ended=row.ended,
        highest=row.highest,
        lowest=row.lowest,
        p50=row.weighted_p50 / max(row.count, 1),
        p99=row.p99,
        first_ms=first_ms,
        last_ms=row.last_ms,
        file=file,
        line=line,
        text=text,
    )

"""The results of a scenario: plain data, the same for the table, the picture and ``--json``.

Lives here: ``Report`` and its parts (the documented JSON), percentiles, and the grouping of sends into outcomes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

SCHEMA: Final = 1
"""Increased when a field of the JSON changes its meaning or is removed."""
POINTS_MAX: Final = 4000
"""Most points of a phase in the report; a larger number is thinned out evenly."""
_NUMBER: Final = re.compile(r"(?<![A-Za-z_])\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Send:
    """One send as its caller saw it. ``at_s`` counts from the start of the load; ``text`` is the receipt's status or
    the error of the last attempt.
    """

    at_s: float
    took_ms: float
    delivered: bool
    text: str
    cause: str = ""
    stored: str = ""
    attempts: int = 1
    body: bytes = b""
    answered: bool = True
    """A broker answered the last attempt; False: time-out, no connection, no route."""


class Latency(msgspec.Struct, frozen=True):
    """Percentiles in ms over ``count`` sends, measured from the moment the send was due (open loop)."""

    count: int = 0
    p50_ms: float = 0
    p99_ms: float = 0
    max_ms: float = 0


class Outcome(msgspec.Struct, frozen=True):
    """Sends with the same result. ``text`` is one of the exact texts; the others differ in numbers only."""

    text: str
    count: int
    delivered: bool
    latency: Latency
    kind: str = ""
    cause: str = ""
    stored: str = ""

    @property
    def text_without_numbers(self) -> str:
        """What the outcomes of several runs have in common: waits and sizes differ."""
        return _NUMBER.sub("0", self.text)


class Evidence(msgspec.Struct, frozen=True):
    """A value that a broker measured or wrote; ``source``: ``runtime info``, ``telemetry``, ``log``, ``topic``."""

    what: str
    value: str
    source: str
    broker: str = ""


class Check(msgspec.Struct, frozen=True):
    """One expectation: what should hold, what was found, and whether that is enough."""

    what: str
    found: str
    ok: bool


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One send in the picture: its second, its latency, its outcome (index into ``Phase.outcomes``)."""

    at_s: float
    took_ms: float
    outcome: int


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A bar in the timeline of a phase. ``what``: the member that had the lock (``lane`` ``lock``), or whose handler
    ran (``work``).
    """

    lane: str
    what: str
    from_s: float
    to_s: float


class Phase(msgspec.Struct, frozen=True):
    """One run: its settings and load, the results of the clients, the broker's evidence, and the checks.

    ``role``: ``fault`` shows the incident, ``bad cure`` a change that does not help, ``cure`` one that does.
    ``stored_for_nobody``: messages in the log whose sender got an error, or no answer.
    """

    name: str
    role: str
    settings: dict[str, str]
    load: str
    sends: int
    delivered: int
    outcomes: list[Outcome]
    delivered_latency: Latency
    failed_latency: Latency
    evidence: list[Evidence]
    checks: list[Check]
    stored_for_nobody: int = 0
    acknowledged_lost: int = 0
    says: str = ""
    points: list[Point] = []
    spans: list[Span] = []
    """A timeline; empty where there is none to draw."""
    ended_s: float = 0
    """Second in which the first consumer ended, in a timeline."""

    @property
    def ok(self) -> bool:
        """Whether all checks hold."""
        return all(check.ok for check in self.checks)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All results of one run of a scenario; ``ok`` is the exit code."""

    schema: int = SCHEMA
    scenario: str
    incident: str
    question: str
    quick: bool
    machine: str
    started_ms: int
    duration_s: float
    phases: list[Phase]
    cure: str
    price: str
    ok: bool
    directory: str = ""
    knobs: dict[str, str] = {}
    """Options of the command that changed the scenario, with their values."""

    @property
    def has_timeline(self) -> bool:
        """Whether the picture is a timeline, not a cloud of sends."""
        return any(phase.spans for phase in self.phases)

    def colors(self, delivered: Sequence[str], failed: Sequence[str]) -> dict[str, str]:
        """Return the color of each outcome by its text without numbers, the same in all runs; the last of a kind for
        those beyond its colors."""
        found: dict[str, str] = {}
        used = {True: 0, False: 0}
        for outcome in (outcome for phase in self.phases for outcome in phase.outcomes):
            text, kind = outcome.text_without_numbers, outcome.delivered
            if text not in found:
                palette = delivered if kind else failed
                found[text] = palette[min(used[kind], len(palette) - 1)]
                used[kind] += 1
        return found

    def failed(self) -> list[tuple[str, Check]]:
        """Return (phase, check) of each check that does not hold."""
        return [(phase.name, check) for phase in self.phases for check in phase.checks if not check.ok]


def latency(times_ms: Sequence[float]) -> Latency:
    """Return the percentiles of ``times_ms``; all zero for none."""
    if not times_ms:
        return Latency()
    p50, p99, highest = np.percentile(np.asarray(times_ms), [50, 99, 100])
    return Latency(len(times_ms), round(float(p50), 2), round(float(p99), 2), round(float(highest), 2))


def kind_of(text: str) -> str:
    """Return a text without its numbers, so that texts that differ in numbers only are counted together."""
    return _NUMBER.sub("N", text)


def outcomes_of(sends: Sequence[Send]) -> list[Outcome]:
    """Return the outcomes, delivered ones first, then by count."""
    groups: dict[tuple[bool, str], list[Send]] = {}
    for send in sends:
        groups.setdefault((send.delivered, kind_of(send.text)), []).append(send)
    outcomes = [
        Outcome(
            group[len(group) // 2].text,
            len(group),
            delivered,
            latency([send.took_ms for send in group]),
            kind,
            group[0].cause,
            group[0].stored,
        )
        for (delivered, kind), group in groups.items()
    ]
    return sorted(outcomes, key=lambda outcome: (not outcome.delivered, -outcome.count))


def points_of(sends: Sequence[Send], outcomes: Sequence[Outcome]) -> list[Point]:
    """Return the picture's points, at most ``POINTS_MAX``."""
    index = {(outcome.delivered, outcome.kind): number for number, outcome in enumerate(outcomes)}
    step = max(1, -(-len(sends) // POINTS_MAX))
    return [
        Point(round(send.at_s, 4), round(send.took_ms, 3), index[send.delivered, kind_of(send.text)])
        for send in sends[::step]
    ]

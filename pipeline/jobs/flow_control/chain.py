"""From evidence to a chain of causes: types, wording, and the choice of rules.

Lives here: ``Step``, ``Chain``, ``Case`` (evidence with look-ups), ``explain``.

A step is *shown* if it has evidence. A chain includes steps without evidence where it needs them, marked as not shown,
with the evidence that is missing.
"""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.flow_control.evidence import Evidence, Incident

CLASSES: Final = {
    1: "[TIMEOUT_CLEAN_QUEUE]: sends waited too long in the queue",
    2: "[REJECTREQUEST], [PCBUSY_CLEAN_QUEUE], [PC_SYNCHRONIZED]: the page cache is busy, or no write buffer is free",
    3: "too many requests and system thread pool busy: the send queue is full",
    4: "a synchronous master waits for a slave that does not confirm",
    5: "an ordered queue stands still: its lock is held by another client",
    6: "sent, but not safe: stored, without what was asked for",
    0: "none of the known incidents",
}
"""The classes of incidents, in the words of docs/scenarios.md; 0: another incident."""


@dataclass(slots=True)
class Step:
    """One link. ``evidence``: citations; empty: not shown."""

    text: str
    evidence: list[str] = field(default_factory=list)

    @property
    def shown(self) -> bool:
        """Whether the logs show it."""
        return bool(self.evidence)


@dataclass(slots=True)
class Chain:
    """Causes first, effects last. ``number``: the class in ``CLASSES``; ``scenario``: one that reproduces it."""

    number: int
    summary: str
    steps: list[Step]
    cures: list[str]
    scenario: str = ""
    weight: int = 0
    missing: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The class in words."""
        return CLASSES[self.number]

    @property
    def complete(self) -> bool:
        """Whether every step is shown."""
        return all(step.shown for step in self.steps)


@dataclass(slots=True)
class Case:
    """One incident with its evidence."""

    incident: Incident
    evidence: Sequence[Evidence]

    def of(self, kind: str, *names: str, cause: str | None = None) -> list[Evidence]:
        """Return the evidence of a kind and of these names (none: all), the most frequent first."""
        found = [
            each
            for each in self.evidence
            if each.kind == kind and (not names or each.name in names) and (cause is None or each.cause == cause)
        ]
        return sorted(found, key=lambda each: (-each.count, each.name, each.tag))

    def one(self, kind: str, name: str) -> Evidence | None:
        """Return the evidence of a kind and name, if there is any."""
        return next(iter(self.of(kind, name)), None)

    def refused(self, *causes: str) -> int:
        """Return the number of requests refused for these causes."""
        return sum(each.count for each in self.of("refusal") if each.cause in causes)

    def cited(self, kind: str, *names: str, cause: str | None = None) -> list[str]:
        """Return citations."""
        return [cite(each) for each in self.of(kind, *names, cause=cause)]


def explain(case: Case) -> list[Chain]:
    """Return the chains that the evidence of an incident supports, at least one, by descending weight."""
    from pocketmq.pipeline.jobs.flow_control import rules_others, rules_send

    found = [*rules_send.chains(case), *rules_others.chains(case)]
    if not found:
        found = [rules_others.unexplained(case)]
    return sorted(found, key=lambda chain: -chain.weight)


def cite(each: Evidence) -> str:
    """Return a piece of evidence as text: numbers, times, file and line."""
    where = f"{os.path.basename(os.path.dirname(each.file))}/{os.path.basename(each.file)}:{each.line}"
    when = clock(each.first_ms) if each.first_ms == each.last_ms else f"{clock(each.first_ms)} to {clock(each.last_ms)}"
    return f"{_numbers(each)} ({when}; {where})"


def _numbers(each: Evidence) -> str:
    quoted = f': "{each.text}"' if each.text else ""
    if each.kind == "refusal":
        code = f"code {each.code}, " if each.code else ""
        return f"{each.count:,} refused, {code}cause {each.cause}{quoted}"
    if each.kind == "stage":
        return (
            f"{each.name}: p50 {ms(each.p50)}, p99 at most {ms(each.p99)}, longest {ms(each.highest)} ({each.count:,})"
        )
    if each.kind == "slow":
        return f"{plural(each.count, 'slow request')}, slowest in {each.name}; longest {ms(each.highest)}"
    if each.kind == "part":
        return f"{plural(each.count, 'slow request')}: up to {ms(each.highest)} of their time in {each.name}"
    if each.kind == "hold":
        state = "held so far for" if each.name == "held" else "held for"
        busy = ", page cache busy" if each.tag == "busy" else ""
        return f"append lock {state} up to {ms(each.highest)}{busy}"
    if each.kind == "gauge":
        if each.name.endswith("_ms") or "_ms_" in each.name:
            return f"{each.name}: {ms(each.lowest)} to {ms(each.highest)}"
        return f"{each.name}: {each.lowest:,.0f} to {each.highest:,.0f}"
    if each.kind == "attempt":
        by = f"code {each.code}, cause {each.cause or 'unknown'}" if each.name == "answer" else f"in phase {each.name}"
        return (
            f"clients: {plural(each.count, 'send')} failed an attempt, {by}; {each.again:,} tried again, "
            f"{each.ended:,} ended; longest {ms(each.highest)}{quoted}"
        )
    return f"{each.count:,} × {each.name}{quoted}"


def ms(value: float) -> str:
    """Return a duration in words."""
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.3g} ms"


def clock(at_ms: int) -> str:
    """Return a time of day, UTC, with ms."""
    when = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    return when.strftime("%H:%M:%S.") + f"{at_ms % 1000:03d}"


def minute_text(at_ms: int) -> str:
    """Return date and minute, UTC."""
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M")

"""What is wanted of single messages, beside what was measured with client and servers pinned to a core each.

Lives here: ``GOALS``, ``verdicts``. Ratios of medians of one run: the machine's speed cancels out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.lean.cases import FDATASYNC, Row
from bench.lean.lineup import CONTENDERS, OURS


@dataclass(frozen=True, slots=True)
class Goal:
    """``who`` divided by ``against`` in a case: at most the limit where the unit is a time, else at least.

    ``default``, ``pool``: the limit in a mode of the broker, or None where there is no goal.
    """

    case: str
    who: str
    against: str
    default: float | None
    pool: float | None

    def limit(self, mode: str) -> float | None:
        """Return the limit of a mode."""
        return self.pool if mode == "pool" else self.default


GOALS: Final = (
    Goal("one", OURS, "nats", 0.75, 0.6),
    Goal("one", OURS, "redis", 1, None),
    Goal("delivery", OURS, "nats", 2, 1.5),
    Goal("connections", OURS, "nats", 1.5, 1.8),
    Goal("connections", OURS, "redis", 1.2, 1.5),
    Goal("64", OURS, "nats", 2.5, 3.5),
    Goal("64", OURS, "aiokafka", None, 2),
    Goal("topics", "100 topics", "1 topic", 0.7, 0.7),
    Goal("topics", "10,000 topics", "1 topic", 0.5, 0.5),
    Goal("processes", "500 connections", "100 connections", 0.8, 0.8),
    Goal("sync", "synced", FDATASYNC, 2, 2),
    Goal("java one", "java", "rocketmq", 1, 1),
    Goal("java 64", "java", "rocketmq", 1, 1),
)


def label(who: str) -> str:
    """Return what a table calls a contender or a variant."""
    return CONTENDERS[who].label if who in CONTENDERS else who


def verdicts(rows: Sequence[Row], mode: str) -> list[list[str]]:
    """Return (case, ratio of, measured, wanted, verdict) of every goal of the mode, also of those not measured."""
    by_case = {row.case: row for row in rows}
    found = []
    for goal in GOALS:
        limit = goal.limit(mode)
        row = by_case.get(goal.case)
        if limit is None or row is None:
            continue
        ours, theirs = row.median(goal.who), row.median(goal.against)
        at_most = row.unit == "µs"
        wanted = f"{'≤' if at_most else '≥'} {limit:g}"
        of = f"{label(goal.who)} / {label(goal.against)}"
        if not ours or not theirs:
            found.append([row.title, of, "–", wanted, "not measured"])
            continue
        ratio = ours / theirs
        reached = ratio <= limit if at_most else ratio >= limit
        found.append(
            [row.title, of, f"{ratio:.2f}", wanted, "reached" if reached else f"missed: {ratio / limit:.2f} of it"]
        )
    return found

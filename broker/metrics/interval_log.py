"""A report in the log on a stretch of time: refusals by kind, stage percentiles, lock, pool, slaves.

Lives here: ``IntervalLog``: differences since the last report, written as the events ``interval`` and
``interval_refusals``. Single values come from the rows that name a key of the event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.broker.metrics.metrics import GROUPS
from pocketmq.broker.metrics.registry import interval_values
from pocketmq.broker.metrics.sources import Reading, Sources
from pocketmq.broker.send.send_times import LOCK_HOLD_NS
from pocketmq.broker.stats import put_statistics
from pocketmq.broker.stats.stage_times import SEND_PAIR, Stage
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.histogram import VALUE_NS_MAX, Histogram

QUIET_NS: Final = 60_000_000_000
"""A report covers this much time, or with trouble one slot of the telemetry, 10 s."""
KINDS_MAX: Final = 8
"""Kinds of refusals listed in one report, the most frequent first; the others share one more line. Together they stay
below the log's limit for repeats of one event in a second."""
STAGES: Final = (
    Stage.QUEUE_WAIT,
    Stage.LOCK_WAIT,
    Stage.APPEND,
    Stage.FLUSH_WAIT,
    Stage.REPLICA_WAIT,
    Stage.PROCESS,
)
"""Stages of the send pair that a report shows."""
TROUBLES: Final = ("page_cache_busy_episodes", "slave_timeouts", "slave_not_available")
"""Counters of the event whose growth makes a report due at once."""


def tag_of(remark: str) -> str:
    """Return the words in brackets that RocketMQ's texts begin with, "" if there are none."""
    return remark[1 : remark.find("]")] if remark.startswith("[") and "]" in remark[:26] else ""


@dataclass(slots=True, eq=False)
class IntervalLog:
    """Writes one report a minute, or every ten seconds while requests are refused or an append hangs; none while the
    broker is idle. One thread calls ``step`` at a steady pace; it uses no disk and is not on a request's path.
    """

    name: str
    """Of the broker."""
    sources: Sources
    clock: Clock
    log: EventLog
    _begin_ns: int = field(init=False)
    _got: int = 0
    _counted: Mapping[str, float] = field(default_factory=dict)
    _stages: dict[Stage, Histogram] = field(default_factory=dict)
    _flushes: Histogram = field(default_factory=Histogram)
    _puts: list[int] = field(default_factory=list)
    _refused: dict[tuple[str, int, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin_ns = self.clock.monotonic_ns()

    def step(self, now_ns: int, *, end: bool = False) -> None:
        """Write a report if one is due; ``end``: the broker is stopping."""
        refusals = self._new_refusals()
        held_ns = self.sources.store.log.lock.held_ns()
        now = interval_values(GROUPS, Reading(self.sources, now_ns))
        grown = {name: max(0, value - self._counted.get(name, 0)) for name, value in now.counters.items()}
        trouble = bool(refusals) or held_ns >= LOCK_HOLD_NS or any(grown.get(name) for name in TROUBLES)
        if not (trouble or end or now_ns - self._begin_ns >= QUIET_NS):
            return
        got = self.sources.counters.totals.get
        times = self._stage_values() | self._disk_values()
        if trouble or any(grown.values()) or got > self._got:
            for_ms = max(1, (now_ns - self._begin_ns) // 1_000_000)
            refused = sum(count for count, _ in refusals.values())
            values: dict[str, Any] = {**grown, "refused_count": refused, **times, **now.gauges}
            self.log.info("interval", broker=self.name, for_ms=for_ms, **values)
            self._log_refusals(refusals, for_ms)
        self._begin_ns, self._got, self._counted = now_ns, got, now.counters

    def _new_refusals(self) -> dict[tuple[str, int, str], tuple[int, str]]:
        """Return (count since the last report, latest text) by cause, code and tag."""
        new: dict[tuple[str, int, str], tuple[int, str]] = {}
        for each in self.sources.refusals():
            kind = (each.cause, each.code, tag_of(each.remark))
            count = each.total - self._refused.get(kind, 0)
            if count > 0:
                new[kind] = (count, each.remark)
        return new

    def _log_refusals(self, refusals: dict[tuple[str, int, str], tuple[int, str]], for_ms: int) -> None:
        ordered = sorted(refusals.items(), key=lambda item: -item[1][0])
        for (cause, code, tag), (count, remark) in ordered[:KINDS_MAX]:
            self.log.warning(
                "interval_refusals",
                broker=self.name,
                for_ms=for_ms,
                cause=cause,
                code=code,
                tag=tag,
                count=count,
                remark=remark,
            )
        rest = sum(count for _, (count, _) in ordered[KINDS_MAX:])
        if rest:
            self.log.warning(
                "interval_refusals", broker=self.name, for_ms=for_ms, cause="others", code=0, tag="", count=rest
            )
        for kind, (count, _) in refusals.items():
            self._refused[kind] = self._refused.get(kind, 0) + count

    def _stage_values(self) -> dict[str, float]:
        values: dict[str, float] = {}
        put_times, stage_times = self.sources.put_times, self.sources.stage_times
        puts = put_times.counts()
        count, p50_ms, p99_ms = put_statistics.between(puts, self._puts, put_times.max_ms)
        self._puts = puts
        if count:
            values |= {"whole_count": count, "whole_p50_ms": round(p50_ms, 3), "whole_p99_ms": round(p99_ms, 3)}
        if stage_times is None:
            return values
        for stage, histogram in stage_times.pair(SEND_PAIR).totals():
            if stage in STAGES:
                before, self._stages[stage] = self._stages.get(stage, Histogram()), histogram
                values |= _percentiles(stage.label, histogram, before)
        return values

    def _disk_values(self) -> dict[str, float]:
        flushes = self.sources.flush_times.totals()
        before, self._flushes = self._flushes, flushes
        return _percentiles("sync", flushes, before)


def _percentiles(name: str, now: Histogram, before: Histogram) -> dict[str, float]:
    """Return count, p50, p99 and maximum in ms of the values between two snapshots; an empty dict without values.

    The maximum is the end of its bucket, at most 1/16 too high: the exact one is kept for the present slot only.
    """
    now.max_ns = VALUE_NS_MAX
    new = now.minus(before)
    count = new.count
    if not count:
        return {}
    return {
        f"{name}_count": count,
        f"{name}_p50_ms": round(new.percentile_ns(0.5) / 1e6, 3),
        f"{name}_p99_ms": round(new.percentile_ns(0.99) / 1e6, 3),
        f"{name}_max_ms": round(new.max_ns / 1e6, 3),
    }

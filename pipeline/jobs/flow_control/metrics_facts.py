"""What two snapshots of ``/metrics``, one after the other, say: the same rows that logs give (``facts``).

Lives here: ``WANTED`` (the closed list of metrics), ``Snapshot``, ``Process`` (what is remembered of one broker's
process). Counters become differences: one that falls began anew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pocketmq.pipeline.jobs.flow_control.facts import BUSY_MS, CAUSES, STAGES, Fact

SEND_PAIR: Final = "SendMessageThread"
GAP_MS_MAX: Final = 120_000
"""Differences over a longer time belong to no minute; they are left out and counted."""
HOLD_MS: Final = 500.0
BOUNDS_MAX: Final = 64
"""Of one stage's buckets; a broker has 13."""
REMEMBERED_MAX: Final = 4_000
"""Series of the snapshots before."""
CODE_MAX: Final = 1 << 31
START: Final = "pocketmq_start_time_seconds"
REFUSALS: Final = "pocketmq_refusals_total"
COUNTERS: Final = {
    "pocketmq_messages_put_total": "put_count",
    "pocketmq_put_bytes_total": "put_bytes",
    "pocketmq_messages_put_failed_total": "put_failed_count",
    "pocketmq_page_cache_busy_episodes_total": "page_cache_busy_episodes",
    "pocketmq_ha_waits_timed_out_total": "slave_timeouts",
    "pocketmq_ha_slave_not_available_total": "slave_not_available",
}
HISTOGRAMS: Final = {
    "pocketmq_stage_seconds_bucket": "",
    "pocketmq_put_seconds_bucket": "whole",
    "pocketmq_flush_seconds_bucket": "sync",
}
"""Metric → stage; "": its label says it."""
GAUGES: Final = {
    "pocketmq_queue_size": ("send_queue_size", 1.0),
    "pocketmq_queue_head_wait_seconds": ("send_head_wait_ms", 1000.0),
    "pocketmq_write_buffers": ("write_buffers", 1.0),
    "pocketmq_write_buffers_available": ("write_buffers_available", 1.0),
    "pocketmq_write_buffers_uncommitted_bytes": ("uncommitted_bytes", 1.0),
    "pocketmq_ha_in_sync_copies": ("copies_in_sync", 1.0),
    "pocketmq_ha_in_sync_copies_needed": ("copies_needed", 1.0),
    "pocketmq_ha_slave_behind_bytes": ("slave_behind_bytes_max", 1.0),
    "pocketmq_ha_slave_behind_seconds": ("slave_behind_ms_max", 1000.0),
    "pocketmq_ha_behind_bytes": ("behind_bytes", 1.0),
    "pocketmq_ha_behind_seconds": ("behind_ms", 1000.0),
}
"""Metric → gauge as the log names it, and what its value is multiplied with."""
APPENDED: Final = "pocketmq_log_appended_offset"
FLUSHED: Final = "pocketmq_log_flushed_offset"
COMMITTED: Final = "pocketmq_log_committed_offset"
DISPATCHED: Final = "pocketmq_log_dispatched_offset"
OFFSETS: Final = ((APPENDED, FLUSHED, "not_flushed_bytes"), (COMMITTED, DISPATCHED, "dispatch_behind_bytes"))
HELD: Final = "pocketmq_append_lock_held_seconds"
LONGEST: Final = "pocketmq_append_lock_longest_hold_seconds"
BUSY: Final = "pocketmq_page_cache_busy"
WANTED: Final = (
    frozenset((START, REFUSALS, APPENDED, FLUSHED, COMMITTED, DISPATCHED, HELD, LONGEST, BUSY))
    | frozenset(COUNTERS)
    | frozenset(HISTOGRAMS)
    | frozenset(GAUGES)
)
LABELS: Final = ("pair", "stage", "cause", "code", "le", "slave", "broker_id")
"""Labels that tell series of one broker apart; others (job, instance) are a collector's."""
Series = tuple[str, tuple[str, ...]]
Value = tuple[float, int]
"""Value and line."""


@dataclass(slots=True)
class Snapshot:
    """All that one scrape said. ``again``: it was told before, in an earlier file."""

    broker: str
    at_ms: int
    again: bool = False
    values: dict[Series, Value] = field(default_factory=dict)

    def one(self, name: str) -> Value | None:
        """Return a metric without labels."""
        return self.values.get((name, ("",) * len(LABELS)))


@dataclass(slots=True)
class Counted:
    """What was met: counters that fell, times without snapshots."""

    restarts: int = 0
    gaps: int = 0


Row = tuple[int, int, Fact]
"""Line, ms since 1970, fact."""


class Process:
    """One broker's process: the last snapshot, and the buckets of the minute that is being counted."""

    def __init__(self) -> None:
        self._at_ms = 0
        self._before: Mapping[Series, Value] = {}
        self._minute = 0
        self._buckets: dict[str, dict[float, float]] = {}
        self._places: dict[str, tuple[int, int, str]] = {}

    @property
    def at_ms(self) -> int:
        """Time of the last snapshot, 0 before the first."""
        return self._at_ms

    def facts(self, snapshot: Snapshot, counted: Counted) -> Iterator[Row]:
        """Yield what this snapshot adds; stages when their minute is over (``end``)."""
        at_ms, values, target = snapshot.at_ms, snapshot.values, snapshot.broker
        start = snapshot.one(START)
        start_ms = int(start[0] * 1000) if start is not None and 0 < start[0] < 1e10 else 0
        since_ms = self._at_ms or min(start_ms, at_ms)
        is_first = not self._at_ms
        for_ms = at_ms - since_ms
        if snapshot.again or not since_ms or for_ms > GAP_MS_MAX:
            counted.gaps += 0 if is_first or snapshot.again else 1
        else:
            middle_minute = (at_ms - for_ms // 2) // 60_000
            if middle_minute != self._minute:
                yield from self.end(target)
                self._minute = middle_minute
            yield from self._differences(snapshot, for_ms, counted)
        if not snapshot.again:
            yield from self._gauges(snapshot)
        # A page that was cut off lacks series; their counters are compared with those of the page before it.
        both = {**self._before, **values}
        self._at_ms, self._before = at_ms, both if len(both) <= REMEMBERED_MAX else values

    def end(self, target: str) -> Iterator[Row]:
        """Yield the percentiles of the minute that was counted."""
        for stage, buckets in self._buckets.items():
            p50, p99, least, count = percentiles(buckets)
            if count:
                line, at_ms, metric = self._places[stage]
                middle_ms = self._minute * 60_000 + 30_000
                place_ms = at_ms if at_ms // 60_000 == self._minute else middle_ms
                yield (
                    line,
                    place_ms,
                    Fact("stage", stage, target, count=count, value=max(least, p99), p50=p50, p99=p99, text=metric),
                )
        self._buckets = {}
        self._places = {}

    def _differences(self, snapshot: Snapshot, for_ms: int, counted: Counted) -> Iterator[Row]:
        at_ms, target = snapshot.at_ms, snapshot.broker
        fell = False
        cumulative: dict[str, dict[float, float]] = {}
        for (name, labels), (value, line) in snapshot.values.items():
            if name not in COUNTERS and name not in HISTOGRAMS and name != REFUSALS:
                continue
            before = self._before.get((name, labels), (0.0, 0))[0]
            fell |= value < before
            more = value - before if value >= before else value
            if more <= 0:
                continue
            if name == REFUSALS:
                cause, code = labels[2], labels[3]
                number = int(code) if code.isascii() and code.isdigit() and len(code) < 10 else 0
                known = cause if cause in CAUSES else "others"
                yield (
                    line,
                    at_ms,
                    Fact(
                        "refusal",
                        "metrics",
                        target,
                        cause=known,
                        code=number if number < CODE_MAX else 0,
                        count=int(more),
                        for_ms=for_ms,
                        text=name,
                    ),
                )
            elif name in COUNTERS:
                yield line, at_ms, Fact("sum", COUNTERS[name], target, count=int(more), for_ms=for_ms, text=name)
            else:
                stage = HISTOGRAMS[name] or labels[1]
                if stage in STAGES:
                    cumulative.setdefault(stage, {})[float(labels[4])] = more
                    self._places.setdefault(stage, (line, at_ms, name.removesuffix("_bucket")))
        counted.restarts += fell
        for stage, bounds in cumulative.items():
            into = self._buckets.setdefault(stage, {})
            below = 0.0
            for bound in sorted(bounds):
                count = max(bounds[bound] - below, 0.0)
                below = max(below, bounds[bound])
                if bound in into or len(into) < BOUNDS_MAX:
                    into[bound] = into.get(bound, 0.0) + count

    def _gauges(self, snapshot: Snapshot) -> Iterator[Row]:
        at_ms, target = snapshot.at_ms, snapshot.broker
        for (name, _), (value, line) in snapshot.values.items():
            if name in GAUGES and value >= 0:  # -1: unknown
                gauge, factor = GAUGES[name]
                yield line, at_ms, Fact("gauge", gauge, target, value=value * factor, text=name)
        for ahead, behind, gauge in OFFSETS:
            first, second = snapshot.one(ahead), snapshot.one(behind)
            if first is not None and second is not None:
                fact = Fact("gauge", gauge, target, value=max(first[0] - second[0], 0.0), text=behind)
                yield second[1], at_ms, fact
        busy, held, longest = snapshot.one(BUSY), snapshot.one(HELD), snapshot.one(LONGEST)
        if held is not None and held[0] * 1000 >= HOLD_MS:
            is_busy = busy is not None and busy[0] > 0
            is_calm = busy is not None and not is_busy and held[0] * 1000 > BUSY_MS
            tag = "busy" if is_busy else "calm" if is_calm else ""
            yield held[1], at_ms, Fact("hold", "held", target, count=1, tag=tag, value=held[0] * 1000, text=HELD)
        if longest is not None and longest[0] * 1000 >= HOLD_MS:
            before = self._before.get((LONGEST, ("",) * len(LABELS)), (0.0, 0))[0]
            if longest[0] > before:  # the same hold stays the longest for a minute
                yield longest[1], at_ms, Fact("hold", "ended", target, count=1, value=longest[0] * 1000, text=LONGEST)


def percentiles(buckets: Mapping[float, float]) -> tuple[float, float, float, int]:
    """Return p50 and p99 in ms (linear within a bucket, as histogram_quantile has it; the last bucket's are its lower
    end), the lower end of the highest bucket that has any, and the count. ``buckets``: upper end in seconds → count."""
    count = sum(buckets.values())
    if count < 1:
        return 0.0, 0.0, 0.0, 0
    found: list[float] = []
    for part in (0.5, 0.99):
        rank, below, low = part * count, 0.0, 0.0
        value = 0.0
        for high in sorted(buckets):
            inside = buckets[high]
            if inside and below + inside >= rank:
                value = low if high == float("inf") else low + (high - low) * (rank - below) / inside
                break
            below += inside
            low = high
        found.append(value * 1000)
    lows = [0.0, *sorted(buckets)]
    least = max((low for low, high in zip(lows, sorted(buckets), strict=False) if buckets[high]), default=0.0)
    return found[0], found[1], least * 1000, int(count)

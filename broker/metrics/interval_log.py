"""What the log alone tells about a stretch of time: refusals by kind, stage percentiles, lock, pool, slaves.

Lives here: ``IntervalLog``: differences since the last report, written as the events ``interval`` and
``interval_refusals``.
"""

from collections.abc import Callable
from dataclasses import astuple
from typing import Any, Final

from pocketmq.broker.send.send_times import LOCK_HOLD_NS
from pocketmq.broker.stats import put_statistics
from pocketmq.broker.stats.counters import BrokerCounters, Totals
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.stage_times import SEND_PAIR, Stage, StageTimes
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.histogram import VALUE_NS_MAX, Histogram
from pocketmq.remoting.telemetry import RefusalCount
from pocketmq.store.message_store import MessageStore

QUIET_NS: Final = 60_000_000_000
"""Without trouble a report covers this much; with trouble one slot of the telemetry, 10 s."""
KINDS_MAX: Final = 8
"""Kinds of refusals told apart in one report, the most frequent first; the rest is one more line. Together they stay
below the log's limit for repeats of one event in a second."""
STAGES: Final = (
    Stage.QUEUE_WAIT,
    Stage.LOCK_WAIT,
    Stage.APPEND,
    Stage.FLUSH_WAIT,
    Stage.REPLICA_WAIT,
    Stage.PROCESS,
)
"""Those of the send pair."""


def tag_of(remark: str) -> str:
    """Return the words in brackets that RocketMQ's texts begin with, "" if there are none."""
    return remark[1 : remark.find("]")] if remark.startswith("[") and "]" in remark[:26] else ""


class IntervalLog:
    """Writes one report a minute, or every ten seconds while something is refused or an append hangs; none while
    nothing is done. ``step`` is called by one thread at a steady pace; no disk, not on a request's path.
    """

    def __init__(
        self,
        name: str,
        store: MessageStore,
        counters: BrokerCounters,
        stage_times: StageTimes | None,
        flush_times: FlushTimes,
        put_times: PutStatistics,
        refusals: Callable[[], list[RefusalCount]],
        replicas: Callable[[], dict[str, int]] | None,
        clock: Clock,
        log: EventLog,
    ) -> None:
        """``name``: of the broker. ``replicas``: figures of replication; those that end in ``_total`` are running
        totals, of which the difference is told."""
        self._name = name
        self._store = store
        self._counters = counters
        self._stage_times = stage_times
        self._flush_times = flush_times
        self._put_times = put_times
        self._refusals = refusals
        self._replicas = replicas
        self._clock = clock
        self._log = log
        self._begin_ns = clock.monotonic_ns()
        self._totals = Totals()
        self._stages: dict[Stage, Histogram] = {}
        self._flushes = Histogram()
        self._puts: list[int] = []
        self._refused: dict[tuple[str, int, str], int] = {}
        self._episodes = 0
        self._told: dict[str, int] = {}

    def step(self, now_ns: int, *, end: bool = False) -> None:
        """Write a report if one is due; ``end``: the broker stops."""
        refusals = self._new_refusals()
        lock = self._store.log.lock
        held_ns = lock.held_ns()
        episodes = lock.busy_episodes
        replicas = self._replicas() if self._replicas is not None else {}
        counted = {name: value - self._told.get(name, 0) for name, value in replicas.items() if name.endswith("_total")}
        trouble = bool(refusals) or held_ns >= LOCK_HOLD_NS or episodes > self._episodes or any(counted.values())
        if not (trouble or end or now_ns - self._begin_ns >= QUIET_NS):
            return
        totals = Totals(*astuple(self._counters.totals))
        done = {
            name: getattr(totals, name) - getattr(self._totals, name) for name in ("put", "put_bytes", "put_failed")
        }
        if trouble or any(done.values()) or totals.get > self._totals.get:
            for_ms = max(1, (now_ns - self._begin_ns) // 1_000_000)
            values: dict[str, Any] = {f"{name}_count" if name != "put_bytes" else name: n for name, n in done.items()}
            values["refused_count"] = sum(count for count, _ in refusals.values())
            values["lock_held_now_ms"] = held_ns // 1_000_000
            values["page_cache_busy_episodes"] = max(0, episodes - self._episodes)
            values |= self._stage_values() | self._disk_values()
            values |= {name: value for name, value in replicas.items() if not name.endswith("_total")}
            values |= {name.removesuffix("_total"): value for name, value in counted.items()}
            self._log.info("interval", broker=self._name, for_ms=for_ms, **values)
            self._tell_refusals(refusals, for_ms)
        else:
            self._stage_values()
            self._disk_values()
        self._begin_ns, self._totals, self._episodes, self._told = now_ns, totals, episodes, replicas

    def _new_refusals(self) -> dict[tuple[str, int, str], tuple[int, str]]:
        """Return (count since the last report, latest text) by cause, code and tag."""
        new: dict[tuple[str, int, str], tuple[int, str]] = {}
        for each in self._refusals():
            kind = (each.cause, each.code, tag_of(each.remark))
            count = each.total - self._refused.get(kind, 0)
            if count > 0:
                new[kind] = (count, each.remark)
        return new

    def _tell_refusals(self, refusals: dict[tuple[str, int, str], tuple[int, str]], for_ms: int) -> None:
        ordered = sorted(refusals.items(), key=lambda item: -item[1][0])
        for (cause, code, tag), (count, remark) in ordered[:KINDS_MAX]:
            self._log.warning(
                "interval_refusals",
                broker=self._name,
                for_ms=for_ms,
                cause=cause,
                code=code,
                tag=tag,
                count=count,
                remark=remark,
            )
        rest = sum(count for _, (count, _) in ordered[KINDS_MAX:])
        if rest:
            self._log.warning(
                "interval_refusals", broker=self._name, for_ms=for_ms, cause="others", code=0, tag="", count=rest
            )
        for kind, (count, _) in refusals.items():
            self._refused[kind] = self._refused.get(kind, 0) + count

    def _stage_values(self) -> dict[str, float]:
        values: dict[str, float] = {}
        puts = self._put_times.counts()
        count, p50_ms, p99_ms = put_statistics.between(puts, self._puts, self._put_times.max_ms)
        self._puts = puts
        if count:
            values |= {"whole_count": count, "whole_p50_ms": round(p50_ms, 3), "whole_p99_ms": round(p99_ms, 3)}
        if self._stage_times is None:
            return values
        for stage, histogram in self._stage_times.pair(SEND_PAIR).totals():
            if stage in STAGES:
                before, self._stages[stage] = self._stages.get(stage, Histogram()), histogram
                values |= _percentiles(stage.label, histogram, before)
        return values

    def _disk_values(self) -> dict[str, float]:
        flushes = self._flush_times.totals()
        before, self._flushes = self._flushes, flushes
        store = self._store
        values = _percentiles("sync", flushes, before)
        values["not_flushed_bytes"] = max(0, store.appended_offset - store.flushed_offset)
        values["dispatch_behind_bytes"] = max(0, store.committed_offset - store.dispatched_offset)
        pool = store.pool
        if pool is not None:
            values["write_buffers"] = pool.size
            values["write_buffers_available"] = pool.available
            values["uncommitted_bytes"] = max(0, store.appended_offset - store.committed_offset)
        return values


def _percentiles(name: str, now: Histogram, before: Histogram) -> dict[str, float]:
    """Return count, p50, p99 and maximum in ms of what was counted between two snapshots; nothing without values.

    The maximum is the end of its bucket, at most 1/16 above: of the true one only that of the present slot is kept.
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

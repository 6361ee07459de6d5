"""The broker's figures for Prometheus.

Lives here: ``BrokerCollector``, which makes metric families out of what the broker counts anyway. It runs in the thread
of the HTTP server and only reads attributes: it takes no lock that disk work can hold, and nothing on the event loop
waits for it. Every metric is described in ``docs/metrics.md``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.metrics.ha_metrics import ha_families
from pocketmq.broker.metrics.reply_metrics import ReplyFigures
from pocketmq.broker.metrics.telemetry import Telemetry, page_cache_telemetry, pair_telemetry, pool_telemetry
from pocketmq.broker.metrics.transaction_metrics import TransactionFigures
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.broker.stats.put_statistics import LABELS
from pocketmq.common.clock import Clock
from pocketmq.common.histogram import Histogram

BOUNDS_S: Final = (0.0001, 0.00025, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper ends of the exported buckets; a value up to 1/16 above one may still count below it."""
PUT_BOUNDS_S: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Ends of RocketMQ's put buckets (``put_statistics.LABELS``); the last one has none."""
assert len(PUT_BOUNDS_S) + 1 == len(LABELS)

Gauges = Sequence[tuple[str, str, Callable[[], float]]]


@dataclass(slots=True)
class MetricsSources:
    """What is exported. All callables return at once, from any thread."""

    telemetry: Telemetry
    disk: DiskSpace
    boot_ms: int
    oneway_dropped: Callable[[], int]
    connections: Callable[[], int]
    connections_refused: Callable[[], int]
    half_frame_bytes: Callable[[], int]
    unwritten_bytes: Callable[[], int]
    clients: Callable[[], int]
    topics: Callable[[], int]
    pulls_held: Callable[[], int]
    thread_dumps: Callable[[], int]
    task_failures: Callable[[], dict[str, int]]
    delays: DelayService | None = None
    """None on a slave."""
    replication: HaNode | None = None
    transactions: TransactionFigures | None = None
    replies: ReplyFigures | None = None
    """None on a slave."""


class BrokerCollector(Collector):
    """One collector for all of it."""

    def __init__(self, sources: MetricsSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Return the families, read now."""
        yield from self._pairs()
        yield from self._stages()
        yield from self._refusals()
        yield from self._puts()
        yield from self._store()
        yield from self._connections()
        if self._sources.delays is not None:
            yield from self._delays(self._sources.delays)
        if self._sources.replication is not None:
            yield from ha_families(self._sources.replication)
        if self._sources.transactions is not None:
            yield from self._sources.transactions.families()
        if self._sources.replies is not None:
            yield from self._sources.replies.families()

    def _pairs(self) -> Iterable[Metric]:
        sources = self._sources.telemetry.sources
        now_ns = self._clock.monotonic_ns()
        gauges = {
            name: GaugeMetricFamily(f"pocketmq_{name}", text, labels=["pair"])
            for name, text in (
                ("queue_size", "Requests that wait for a worker."),
                ("queue_capacity", "Most requests that may wait."),
                ("queue_bytes", "Bytes of the requests that wait."),
                ("queue_bytes_max", "Most bytes that may wait."),
                ("queue_head_wait_seconds", "Age of the oldest waiting request."),
                ("queue_drain_limit", "Most requests that a worker takes at once now."),
            )
        }
        counters = {
            name: CounterMetricFamily(f"pocketmq_{name}", text, labels=["pair"])
            for name, text in (
                ("requests_served", "Requests that a worker took."),
                ("request_drains", "Times that a worker took requests."),
                ("requests_refused_full", "Requests refused because their queue was full."),
                ("requests_swept", "Requests that fast failure answered."),
            )
        }
        for executor in sources.executors:
            pair = pair_telemetry(executor, sources.swept, now_ns)
            labels = [pair.name]
            gauges["queue_size"].add_metric(labels, pair.queue_size)
            gauges["queue_capacity"].add_metric(labels, pair.queue_capacity)
            gauges["queue_bytes"].add_metric(labels, pair.queue_bytes)
            gauges["queue_bytes_max"].add_metric(labels, pair.queue_bytes_max)
            gauges["queue_head_wait_seconds"].add_metric(labels, pair.head_wait_ms / 1000)
            gauges["queue_drain_limit"].add_metric(labels, pair.drain_limit)
            counters["requests_served"].add_metric(labels, pair.served)
            counters["request_drains"].add_metric(labels, pair.drains)
            counters["requests_refused_full"].add_metric(labels, pair.refused_full)
            counters["requests_swept"].add_metric(labels, pair.swept)
        return [*gauges.values(), *counters.values()]

    def _stages(self) -> Iterable[Metric]:
        stage_times = self._sources.telemetry.sources.stage_times
        if stage_times is None:
            return
        family = HistogramMetricFamily(
            "pocketmq_stage_seconds", "Time that requests spent in a stage.", labels=["pair", "stage"]
        )
        for pair, stage, histogram in stage_times.totals():
            buckets, sum_s = histogram_buckets(histogram)
            family.add_metric([pair, stage.label], buckets, sum_s)
        yield family

    def _refusals(self) -> Iterable[Metric]:
        sources = self._sources
        refused = CounterMetricFamily(
            "pocketmq_refusals", "Requests refused, by cause and response code.", labels=["cause", "code"]
        )
        totals: dict[tuple[str, str], int] = {}
        for count in sources.telemetry.sources.refusals():
            key = (count.cause, str(count.code))
            totals[key] = totals.get(key, 0) + count.total
        for key, total in totals.items():
            refused.add_metric(list(key), total)
        yield refused
        requests = CounterMetricFamily(
            "pocketmq_requests_refused",
            "Requests refused for a reason in the request.",
            labels=["request", "code", "cause", "language", "version"],
        )
        for labels, total in sources.telemetry.sources.refused_requests.totals():
            requests.add_metric(labels, total)
        yield requests
        yield CounterMetricFamily(
            "pocketmq_oneway_dropped", "Oneway requests dropped at the door.", value=sources.oneway_dropped()
        )
        yield CounterMetricFamily(
            "pocketmq_slow_requests", "Requests above the slow threshold.", value=sources.telemetry.sources.slow.count
        )
        yield CounterMetricFamily(
            "pocketmq_thread_dumps", "Thread dumps written while refusing.", value=sources.thread_dumps()
        )

    def _puts(self) -> Iterable[Metric]:
        sources = self._sources.telemetry.sources
        totals = sources.counters.totals
        for name, text, value in (
            ("messages_put", "Messages appended.", totals.put),
            ("put_bytes", "Bytes appended.", totals.put_bytes),
            ("messages_put_failed", "Messages that the store did not take.", totals.put_failed),
            ("messages_got", "Messages handed out.", totals.get),
            ("got_bytes", "Bytes handed out.", totals.get_bytes),
            ("pulls_found", "Pulls that found messages.", totals.get_found_requests),
            ("pulls_missed", "Pulls that found none.", totals.get_miss_requests),
            ("messages_sent_back", "Messages that consumers sent back.", totals.sent_back),
            ("dead_letters", "Messages sent back into dead-letter topics.", totals.dead_letters),
        ):
            yield CounterMetricFamily(f"pocketmq_{name}", text, value=value)
        seen = 0
        buckets: list[tuple[str, float]] = []
        for bound, (_, count) in zip((*map(str, PUT_BOUNDS_S), "+Inf"), sources.put_times.totals(), strict=True):
            seen += count
            buckets.append((bound, seen))
        yield HistogramMetricFamily(
            "pocketmq_put_seconds",
            "Whole puts, until the sender could be told, in RocketMQ's buckets.",
            buckets=buckets,
            sum_value=sources.put_times.sum_ns / 1e9,
        )

    def _store(self) -> Iterable[Metric]:
        sources = self._sources.telemetry.sources
        store = sources.store
        cache = page_cache_telemetry(store)
        gauges: list[tuple[str, str, float]] = [
            ("page_cache_busy", "1 while the append lock is held for too long.", cache.busy),
            ("append_lock_held_seconds", "How long the present holder has had it.", cache.lock_held_ms / 1000),
            (
                "append_lock_longest_hold_seconds",
                "Longest hold of the last minute.",
                cache.longest_hold_ms_last_minute / 1000,
            ),
            ("log_appended_offset", "End of what is accepted.", store.appended_offset),
            ("log_committed_offset", "End of what can be read.", store.committed_offset),
            ("log_flushed_offset", "End of what is durable.", store.flushed_offset),
            ("log_dispatched_offset", "End of what consumers see.", store.dispatched_offset),
            ("log_fenced", "1 after a sync has failed: the log takes nothing more.", store.log.fenced_by is not None),
            ("commit_log_disk_used_ratio", "Used part of the disk, -1 unknown.", self._sources.disk.commit_log.ratio),
            ("commit_log_disk_free_bytes", "Free bytes, -1 unknown.", self._sources.disk.commit_log.free_bytes),
            ("consume_queue_disk_used_ratio", "The same, of the queues.", self._sources.disk.consume_queues.ratio),
        ]
        pool = pool_telemetry(store)
        if pool is not None:
            gauges += [
                ("write_buffers", "Buffers of the write-buffer pool.", pool.size),
                ("write_buffers_available", "Those that are free.", pool.available),
                ("write_buffers_locked", "1 if all are locked in RAM.", pool.locked),
                ("write_buffers_uncommitted_bytes", "Bytes not yet in the file.", pool.uncommitted_bytes),
            ]
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"pocketmq_{name}", text, value=float(value))
        yield CounterMetricFamily(
            "pocketmq_page_cache_busy_episodes", "Holds above the limit.", value=cache.busy_episodes
        )
        buckets, sum_s = histogram_buckets(sources.flush_times.totals())
        yield HistogramMetricFamily(
            "pocketmq_flush_seconds", "Syncs of the commit log.", buckets=buckets, sum_value=sum_s
        )

    def _delays(self, delays: DelayService) -> Iterable[Metric]:
        gauges: Gauges = (
            ("delayed_pending", "Messages of delay levels that wait.", delays.pending_levels),
            ("timers_pending", "Messages for any time that wait.", lambda: delays.timers.pending),
            ("timers_in_memory", "Those of them that are in the wheel.", lambda: len(delays.timers.wheel)),
            ("timers_unread", "Stored timers not yet looked at.", delays.timers_unread),
            ("timer_lag_seconds", "Since when the next timer is due.", lambda: delays.timer_lag_ms() / 1000),
            ("delay_lag_seconds", "The same of the levels.", lambda: delays.level_lag_ms() / 1000),
        )
        for name, text, read in gauges:
            yield GaugeMetricFamily(f"pocketmq_{name}", text, value=float(read()))
        deliverer = delays.deliverer
        for name, text, value in (
            ("delayed_delivered", "Delayed messages delivered.", deliverer.delivered),
            ("delayed_dropped", "Delayed messages that could not be delivered.", deliverer.dropped),
            ("delayed_put_failures", "Deliveries that the store refused, tried again.", deliverer.put_failures),
        ):
            yield CounterMetricFamily(f"pocketmq_{name}", text, value=value)

    def _connections(self) -> Iterable[Metric]:
        sources = self._sources
        gauges: Gauges = (
            ("connections", "Open connections.", sources.connections),
            ("half_frame_bytes", "Memory of half-received frames.", sources.half_frame_bytes),
            ("unwritten_bytes", "Answers that their peers have not taken.", sources.unwritten_bytes),
            ("client_entries", "(group, connection) entries of clients.", sources.clients),
            ("topics", "Topics.", sources.topics),
            ("pulls_held", "Pulls that wait for messages.", sources.pulls_held),
            ("loop_lag_seconds", "What the loop took for its last turn.", lambda: sources.telemetry.loop_lag_ns / 1e9),
            ("start_time_seconds", "Start, Unix time.", lambda: sources.boot_ms / 1000),
        )
        for name, text, read in gauges:
            yield GaugeMetricFamily(f"pocketmq_{name}", text, value=read())
        failures = CounterMetricFamily(
            "pocketmq_task_failures", "Errors that nobody expected in background tasks and threads.", labels=["task"]
        )
        for task, count in sources.task_failures().items():
            failures.add_metric([task], count)
        yield failures
        yield CounterMetricFamily(
            "pocketmq_connections_refused",
            "Connections closed at once: too many.",
            value=sources.connections_refused(),
        )


def histogram_buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return cumulative (bound, count) pairs up to ``+Inf``, and the sum in seconds."""
    buckets: list[tuple[str, float]] = [(str(bound), histogram.count_below_ns(int(bound * 1e9))) for bound in BOUNDS_S]
    buckets.append(("+Inf", histogram.count))
    return buckets, histogram.sum_ns / 1e9


def exposition(collector: Collector) -> Callable[[], bytes]:
    """Return what makes the text that Prometheus scrapes, from a registry of its own."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return lambda: generate_latest(registry)

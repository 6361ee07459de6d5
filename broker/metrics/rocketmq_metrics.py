"""The metrics that RocketMQ 5.3's exporter has, under its names and labels: what dashboards and alerts for it ask for.

The names and labels are those of a page that a 5.3.3 broker exported (tests/vectors/rocketmq-5.3.3-metrics.txt). Where
a figure is not known as finely as RocketMQ knows it, a label is missing and the note says so; none is made up.

Lives here: the groups of ``ROCKETMQS``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, TypeVar

from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.metrics.figures import Figures
from pocketmq.broker.metrics.registry import (
    ROCKETMQ,
    Counter,
    CounterLines,
    Distribution,
    Gauge,
    GaugeLines,
    Group,
    Histogram,
    Row,
    Unit,
    only,
)
from pocketmq.broker.metrics.sources import Pops, Reading, Sources, Transactions
from pocketmq.broker.stats.rpc_times import BOUNDS_MS, OTHER
from pocketmq.broker.transaction.transaction_table import Outcome
from pocketmq.remoting.codes import RequestCode

NODE: Final = ("cluster", "node_type", "node_id")
DISK: Final = (*NODE, "storage_type", "storage_medium")
PROCESSORS: Final = {
    "SendMessageThread": "send",
    "PullMessageThread": "pull",
    "AckMessageThread": "ack",
    "QueryMessageThread": "query_message",
    "HeartbeatThread": "heartbeat",
    "ClientManageThread": "client_manager",
    "ConsumerManageThread": "consumer_manager",
    "EndTransactionThread": "transaction",
    "ProcessReplyMessageThread": "reply",
    "AdminBrokerThread": "admin",
}
"""Pairs that RocketMQ has too, and its labels for them."""

T = TypeVar("T")


def _at_node(
    read: Callable[[Reading], T | None], *more: str
) -> Callable[[Reading], Iterable[tuple[tuple[str, ...], T]]]:
    """Return what finds one object with the labels of this node, and ``more`` values."""

    def find(reading: Reading) -> list[tuple[tuple[str, ...], T]]:
        figures, found = reading.sources.figures, read(reading)
        if figures is None or found is None:
            return []
        return [((*(figures.node[name] for name in NODE), *more), found)]

    return find


def _rocketmqs(*rows: Row[Any]) -> tuple[Row[Any], ...]:
    return tuple(replace(row, prefix=ROCKETMQ) for row in rows)


def _sizes(figures: Figures) -> Distribution:
    return list(figures.topics.size_buckets()), float(figures.topics.sizes.size_bytes)


def _watermarks(sources: Sources) -> Iterator[tuple[tuple[str], int]]:
    for executor in sources.executors:
        if executor.name in PROCESSORS:
            yield (PROCESSORS[executor.name],), len(executor.queue)


def _used_bytes(sources: Sources) -> int:
    space = sources.process.disk.commit_log if sources.process is not None else None
    return 0 if space is None else max(0, space.total_bytes - space.free_bytes)


def _ended(transactions: Transactions, *outcomes: Outcome) -> int:
    return sum(transactions.service.writer.totals[outcome] for outcome in outcomes)


def _rpcs(sources: Sources) -> Iterator[tuple[tuple[str, ...], Distribution]]:
    for code, counts, sum_ns in sources.rpc_times.rows():
        name = "other" if code == OTHER else RequestCode(code).name.lower()
        bounds = (*(f"{float(bound)}" for bound in BOUNDS_MS), "+Inf")
        yield ("remoting", name, "false"), (list(zip(bounds, accumulate(counts), strict=True)), sum_ns / 1e6)


IN_LABELS: Final = ("topic", "message_type", "is_system")
OUT_LABELS: Final = ("topic", "consumer_group", "is_system")
LAG_LABELS: Final = ("topic", "consumer_group", "is_retry", "is_system")
CLIENT_LABELS: Final = ("language", "version", "protocol_type")

TRAFFIC: Final[Group[Figures]] = Group(
    _at_node(lambda look: look.sources.figures),
    _rocketmqs(
        CounterLines(
            "messages_in",
            "Messages that topics got.",
            lambda figures: ((text, each.messages) for text, each in figures.topics.lines()),
            labels=IN_LABELS,
            note="messages that the topic's queues got since the start, of whatever way: sends, delayed deliveries, "
            "commits, retries, the master's. `message_type` is the topic's attribute `message.type`, else `normal`",
        ),
        CounterLines(
            "throughput_in",
            "Bytes that topics got.",
            lambda figures: ((text, each.size_bytes) for text, each in figures.topics.lines()),
            Unit.COUNT,
            labels=IN_LABELS,
            note="their records in the log, in bytes",
        ),
        Histogram(
            "message_size",
            "Sizes of the records that topics got, in bytes.",
            _sizes,
            note="those records by size. RocketMQ has one for each topic, with `topic`, `message_type` and `is_system`",
        ),
        CounterLines(
            "messages_out",
            "Messages that groups got.",
            lambda figures: figures.messages_out.items(),
            labels=OUT_LABELS,
            note="messages that pulls handed out to the group, those that it got twice included. A group that got none "
            "for a day starts again at 0",
        ),
        CounterLines(
            "throughput_out",
            "Bytes that groups got.",
            lambda figures: figures.bytes_out.items(),
            Unit.COUNT,
            labels=OUT_LABELS,
            note="their records, in bytes",
        ),
        CounterLines(
            "send_to_dlq_messages",
            "Messages of groups that became dead letters.",
            lambda figures: figures.dead_letters.items(),
            labels=OUT_LABELS,
            note="dead letters of the group; `topic` is where the message was sent first",
        ),
    ),
    labels=NODE,
    in_rounds=True,
)
LAGS: Final[Group[Figures]] = Group(
    _at_node(lambda look: look.sources.figures),
    _rocketmqs(
        GaugeLines(
            "consumer_lag_messages",
            "Messages that a group has not committed.",
            lambda figures: ((text, lag.behind) for text, lag in figures.groups.lines()),
            labels=LAG_LABELS,
            note="messages in the topic's queues that the group has not committed; those that its filter leaves out "
            "count until it has passed them. Groups are here from their first commit on",
        ),
        GaugeLines(
            "consumer_lag_latency_milliseconds",
            "Age of the oldest message that a group has not committed.",
            lambda figures: ((text, lag.behind_ms) for text, lag in figures.groups.lines()),
            Unit.COUNT,
            labels=LAG_LABELS,
            note="since when the oldest of them is stored; 0 without any",
        ),
        GaugeLines(
            "consumer_inflight_messages",
            "Messages that a group got and has not committed.",
            lambda figures: ((text, lag.under_way) for text, lag in figures.groups.lines()),
            labels=LAG_LABELS,
            note="those of them before the end of the group's last pull: handed out. Where the group pops: those that "
            "it has popped and not acknowledged",
        ),
        GaugeLines(
            "consumer_ready_messages",
            "Messages that a group can get now.",
            lambda figures: ((text, lag.ready) for text, lag in figures.groups.lines()),
            labels=LAG_LABELS,
            note="those of them behind it: waiting for a pull",
        ),
        GaugeLines(
            "consumer_queueing_latency_milliseconds",
            "Age of the oldest message that a group can get now.",
            lambda figures: ((text, lag.queueing_ms) for text, lag in figures.groups.lines()),
            Unit.COUNT,
            labels=LAG_LABELS,
            note="since when the oldest of the waiting ones is stored",
        ),
    ),
    labels=NODE,
    in_rounds=True,
)
CONNECTIONS: Final[Group[Figures]] = Group(
    _at_node(lambda look: look.sources.figures),
    _rocketmqs(
        GaugeLines(
            "producer_connections",
            "Connections of producers.",
            lambda figures: figures.producers.items(),
            labels=CLIENT_LABELS,
            note="connections of producers, by what their heartbeats say",
        ),
        GaugeLines(
            "consumer_connections",
            "Connections of consumers.",
            lambda figures: figures.consumers.items(),
            labels=("consumer_group", "consume_mode", "is_system", *CLIENT_LABELS),
            note="connections of the group's members; `consume_mode` is `push`, `pull` or `pop`",
        ),
    ),
    labels=NODE,
    in_rounds=True,
)
BROKER: Final[Group[Sources]] = Group(
    _at_node(lambda look: look.sources if look.sources.process is not None else None),
    _rocketmqs(
        Gauge("topic_number", "Topics.", lambda sources: len(sources.process.topics)),
        Gauge("consumer_group_number", "Consumer groups.", lambda sources: sources.group_count()),
        Gauge(
            "broker_permission",
            "Permission of the whole broker.",
            lambda sources: sources.permission,
            note="permission of the whole broker: 6 read and write, 4 read only, 2 write only",
        ),
        Gauge(
            "processor_watermark",
            "Requests that wait for a worker.",
            _watermarks,
            labels=("processor",),
            note="requests that wait, as `pocketmq_queue_size`, for the processors that RocketMQ has too",
        ),
    ),
    labels=NODE,
)
RPCS: Final[Group[Sources]] = Group(
    _at_node(lambda look: look.sources if look.sources.stage_times is not None else None),
    _rocketmqs(
        Histogram(
            "rpc_latency_milliseconds",
            "Time of requests, from their queue until their answers are written.",
            _rpcs,
            labels=("protocol_type", "request_code", "is_long_polling"),
            note="requests by their code, from the queue until their answers are written, the waits for flush and "
            "slaves included. Pulls that wait for messages and oneway requests are not here. RocketMQ also has "
            "`response_code` and `result`; refusals by code are in `pocketmq_requests_refused_total`",
        ),
    ),
    labels=NODE,
)
STORAGE: Final[Group[Sources]] = Group(
    _at_node(lambda look: look.sources if look.sources.process is not None else None, "local", "disk"),
    _rocketmqs(
        Gauge(
            "storage_size_bytes",
            "Used bytes of the disk of the store.",
            _used_bytes,
            note="used bytes of the disk that has the commit log, whoever uses them",
        ),
        Gauge(
            "storage_flush_behind_bytes",
            "Bytes of the log that are not durable yet.",
            lambda sources: max(0, sources.store.appended_offset - sources.store.flushed_offset),
        ),
        Gauge(
            "storage_dispatch_behind_bytes",
            "Bytes of the log that consumers do not see yet.",
            lambda sources: max(0, sources.store.committed_offset - sources.store.dispatched_offset),
        ),
        Gauge(
            "storage_message_reserve_time_milliseconds",
            "Age of the oldest message of the log.",
            lambda sources: sources.figures.reserve_ms,
            Unit.COUNT,
        ),
    ),
    labels=DISK,
)
TIMERS: Final[Group[DelayService]] = Group(
    _at_node(lambda look: look.sources.delays, "local", "disk"),
    _rocketmqs(
        Gauge(
            "timing_messages",
            "Messages for any time that wait.",
            lambda delays: delays.timers.pending,
            note="as `pocketmq_timers_pending`, of all topics together; missing on a slave, as the next five are",
        ),
        Gauge("timer_enqueue_lag", "Stored timers that are not read yet.", lambda delays: delays.timers_unread()),
        Gauge(
            "timer_dequeue_latency_milliseconds",
            "Time since the next timer was due.",
            lambda delays: delays.timer_lag_ms(),
            Unit.COUNT,
        ),
    ),
    labels=DISK,
)
HALVES: Final[Group[Transactions]] = Group(
    _at_node(lambda look: look.sources.transactions),
    _rocketmqs(
        Gauge(
            "half_messages",
            "Half messages that wait for a decision.",
            lambda transactions: len(transactions.service.table),
            note="half messages that wait, of all topics together, as the two below",
        ),
        Counter("commit_messages", "Transactions that were committed.", lambda each: _ended(each, Outcome.COMMITTED)),
        Counter(
            "rollback_messages", "Transactions that were rolled back.", lambda each: _ended(each, Outcome.ROLLED_BACK)
        ),
    ),
    labels=NODE,
)
POP: Final[Group[Pops]] = Group(
    _at_node(lambda look: look.sources.pops),
    _rocketmqs(
        Gauge(
            "pop_checkpoint_buffer_size",
            "Messages that were popped and are not acknowledged.",
            lambda pops: pops.ledger.count,
            note="messages in flight, as `pocketmq_pop_unacked`; RocketMQ counts check points, each of which is a pop",
        ),
        Counter(
            "pop_revive_retry_messages",
            "Messages that were copied to a retry topic.",
            lambda pops: 0 if pops.revival is None else pops.revival.revived,
            note="messages that were copied to their retry topic because their time was over. RocketMQ has one for "
            "each topic and group",
        ),
        Gauge(
            "pop_revive_latency_milliseconds",
            "Time since the next message was due for its copy.",
            lambda pops: 0 if pops.revival is None else pops.revival.lag_ms(),
            Unit.COUNT,
            note="since when the next message is due for its copy; above a few hundred for long: the store refuses "
            "copies",
        ),
    ),
    labels=NODE,
)
FIGURES: Final[Group[tuple[Figures, int]]] = Group(
    only(lambda look: None if look.sources.figures is None else (look.sources.figures, look.now_ns)),
    (
        Gauge(
            "figures_age_seconds",
            "Age of the figures of topics, groups and clients.",
            lambda each: each[0].age_ns(each[1]) / 1e9 if each[0].looked_ns else -1,
            Unit.SECONDS,
            note="age of the figures by topic, group and kind of client, which are computed every 5 s, or less often "
            "where they are many; -1: none yet. Much more than that: the disk stands still",
        ),
    ),
)
ROCKETMQS: Final = (TRAFFIC, LAGS, CONNECTIONS, BROKER, RPCS, STORAGE, TIMERS, HALVES, POP, FIGURES)
"""In the order of the documentation."""

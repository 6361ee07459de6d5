"""The metrics of requests: stages, puts, pairs, refusals, totals; one row each.

Lives here: the groups of ``REQUESTS``.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pocketmq.broker.metrics.registry import Counter, Distribution, Gauge, Group, Histogram, Unit, only
from pocketmq.broker.metrics.sources import Pair, Sources
from pocketmq.broker.stats.counters import Totals
from pocketmq.broker.stats.put_statistics import LABELS, PutStatistics
from pocketmq.broker.stats.stage_times import StageTimes
from pocketmq.common import histogram

BOUNDS_S: Final = (0.0001, 0.00025, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper ends of the exported buckets; a value at most 1/16 above one may still count below it."""
PUT_BOUNDS_S: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
"""Ends of RocketMQ's put buckets (``put_statistics.LABELS``); the last one has none."""
assert len(PUT_BOUNDS_S) + 1 == len(LABELS)


def distribution(times: histogram.Histogram) -> Distribution:
    """Return a histogram in the buckets of ``/metrics``."""
    buckets: list[tuple[str, float]] = [(str(bound), times.count_below_ns(int(bound * 1e9))) for bound in BOUNDS_S]
    buckets.append(("+Inf", times.count))
    return buckets, times.sum_ns / 1e9


def _stages(times: StageTimes) -> Iterator[tuple[tuple[str, str], Distribution]]:
    for pair, stage, counted in times.totals():
        yield (pair, stage.label), distribution(counted)


def _puts(times: PutStatistics) -> Distribution:
    seen = 0
    buckets: list[tuple[str, float]] = []
    for bound, (_, count) in zip((*map(str, PUT_BOUNDS_S), "+Inf"), times.totals(), strict=True):
        seen += count
        buckets.append((bound, seen))
    return buckets, times.sum_ns / 1e9


def _refusals(sources: Sources) -> Iterable[tuple[tuple[str, str], int]]:
    totals: dict[tuple[str, str], int] = {}
    for count in sources.refusals():
        key = (count.cause, str(count.code))
        totals[key] = totals.get(key, 0) + count.total
    return totals.items()


TIMES: Final[Group[StageTimes]] = Group(
    only(lambda look: look.sources.stage_times),
    (
        Histogram(
            "stage_seconds",
            "Time that requests spent in a stage.",
            _stages,
            labels=("pair", "stage"),
            note="see above. Eleven bounds from 0.1 ms to 5 s; a value up to 1/16 above a bound may still count below "
            "it",
        ),
    ),
)
PUTS: Final[Group[Sources]] = Group(
    only(lambda look: look.sources),
    (
        Histogram(
            "put_seconds",
            "Time of whole puts, until the answer could be sent, in RocketMQ's buckets.",
            lambda sources: _puts(sources.put_times),
            note="whole puts: from the wait for the append lock until the answer could be sent; one a request. "
            "RocketMQ's 13 buckets",
        ),
        Histogram(
            "flush_seconds",
            "Syncs of the commit log.",
            lambda sources: distribution(sources.flush_times.totals()),
            note="syncs of the commit log. Under ASYNC_FLUSH read once a second: the latest as measured, others "
            "with their mean",
        ),
    ),
)
PAIRS: Final[Group[Pair]] = Group(
    lambda look: [((pair.executor.name,), pair) for pair in look.pairs()],
    (
        Gauge(
            "queue_size",
            "Requests that wait for a worker.",
            lambda pair: len(pair.executor.queue),
            telemetry="queue_size",
            runtime="ThreadPoolQueueSize",
        ),
        Gauge(
            "queue_capacity",
            "Limit of waiting requests.",
            lambda pair: pair.executor.queue.count_max,
            note="their limit; one more is refused with `[OVERLOAD]`",
            telemetry="queue_capacity",
            runtime="ThreadPoolQueueCapacity",
        ),
        Gauge(
            "queue_bytes",
            "Bytes of the requests that wait.",
            lambda pair: pair.executor.queue.size_bytes,
            telemetry="queue_bytes",
        ),
        Gauge(
            "queue_bytes_max",
            "Limit of the bytes of waiting requests.",
            lambda pair: pair.executor.queue.size_bytes_max,
            telemetry="queue_bytes_max",
        ),
        Gauge(
            "queue_head_wait_seconds",
            "Age of the oldest waiting request.",
            lambda pair: pair.executor.queue.head_wait_ms(pair.now_ns),
            note="age of the oldest: above `wait_time_mills_in_send_queue` fast failure answers",
            telemetry="head_wait_ms",
            runtime="ThreadPoolQueueHeadWaitTimeMills",
        ),
        Gauge(
            "queue_drain_limit",
            "Present limit of the requests that a worker takes at once.",
            lambda pair: pair.executor.adaptive.count,
            note="most requests a worker takes at once now; 1 on the send pair means appends of more than 20 ms",
            telemetry="drain_limit",
        ),
        Gauge(
            "",
            "How long a request may wait before fast failure answers it, 0: no limit.",
            lambda pair: pair.executor.max_wait_ms,
            Unit.MS,
            telemetry="max_wait_ms",
        ),
        Counter(
            "requests_served",
            "Requests that a worker took.",
            lambda pair: pair.executor.served,
            telemetry="served",
            runtime="ThreadPoolServed",
        ),
        Counter(
            "request_drains",
            "Times that a worker took requests.",
            lambda pair: pair.executor.drains,
            note="times a worker took requests; served / drains is the batch",
            telemetry="drains",
        ),
        Counter(
            "requests_refused_full",
            "Requests refused because their queue was full.",
            lambda pair: pair.executor.refused,
            telemetry="refused_full",
            runtime="ThreadPoolRefused",
        ),
        Counter("requests_swept", "Requests that fast failure answered.", lambda pair: pair.swept, telemetry="swept"),
    ),
    labels=("pair",),
    telemetry="pairs",
)
REFUSALS: Final[Group[Sources]] = Group(
    only(lambda look: look.sources),
    (
        Counter(
            "refusals",
            "Requests refused, by cause and response code.",
            _refusals,
            labels=("cause", "code"),
            note="refusals of flow control and of the store, and sends refused for their content",
        ),
        Counter(
            "requests_refused",
            "Requests refused for a reason in the request.",
            lambda sources: sources.refused_requests.totals(),
            labels=("request", "code", "cause", "language", "version"),
            note="requests refused for their content, or by a fault of the broker; `code` is the response code, "
            "language and version come from the client's header. At most 256 sets of labels (then `other`), and 32 "
            "versions",
        ),
        Counter(
            "access_denials",
            "Requests and proofs refused by access control, by kind.",
            lambda sources: [((kind,), count) for kind, count in list(sources.denials.items())],
            labels=("kind",),
            note="refusals of access control: `user` (unknown, disabled, or without a valid proof or signature), "
            "`policy` (a known user may not do this), `flood` (an address fails too often and is refused unread)",
        ),
        Counter(
            "quota_refusals",
            "Requests and connections refused by the limits of a client, an address or a user, by limit.",
            lambda sources: [((kind,), count) for kind, count in list(sources.quota_refusals.items())],
            labels=("limit",),
            note="refusals by the limits in `[limits]`: `bytes_in`, `messages_in` (sends), `bytes_out`, "
            "`messages_out` (pulls that may not wait), `connections` (of a user), `connects` (new connections closed "
            "at once), `logins` (proofs, signatures and connections of an address that fails too often)",
        ),
        Counter(
            "slow_requests",
            "Requests above the slow threshold.",
            lambda sources: sources.slow.count,
            note="requests above `slow_request_mills`",
        ),
    ),
)
TOTALS: Final[Group[Totals]] = Group(
    only(lambda look: look.sources.counters.totals),
    (
        Counter(
            "messages_put",
            "Messages appended.",
            lambda totals: totals.put,
            runtime="msgPutTotalTodayNow",
            interval="put_count",
        ),
        Counter(
            "put_bytes",
            "Bytes appended.",
            lambda totals: totals.put_bytes,
            runtime="putMessageSizeTotal",
            interval="put_bytes",
        ),
        Counter(
            "messages_put_failed",
            "Messages that the store refused.",
            lambda totals: totals.put_failed,
            runtime="putMessageFailedTimes",
            interval="put_failed_count",
        ),
        Counter("messages_got", "Messages handed out.", lambda totals: totals.get, runtime="msgGetTotalTodayNow"),
        Counter("got_bytes", "Bytes handed out.", lambda totals: totals.get_bytes, runtime="getMessageSizeTotal"),
        Counter("pulls_found", "Pulls that found messages.", lambda totals: totals.get_found_requests),
        Counter("pulls_missed", "Pulls that found none.", lambda totals: totals.get_miss_requests),
        Counter(
            "messages_sent_back",
            "Messages that consumers sent back.",
            lambda totals: totals.sent_back,
            note="messages that consumers sent back for a retry; dead letters included",
        ),
        Counter(
            "dead_letters",
            "Messages sent back into dead-letter topics.",
            lambda totals: totals.dead_letters,
            note="sent-back messages that went to a dead-letter topic",
        ),
    ),
)
REQUESTS: Final = (TIMES, PUTS, PAIRS, REFUSALS, TOTALS)
"""In the order of the documentation."""

"""One line for each area of a broker: its light, its values, and their limits.

Lives here: ``area_lines``. A line without values says "no data", which is not the same as green.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pocketmq.cli.doctor.broker_metrics import PULL_PAIR, SEND_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Area, AreaLine, Finding, Light, Severity
from pocketmq.cli.doctor.rules.disk_space import disk_ratios
from pocketmq.cli.doctor.rules.locks import lock_line
from pocketmq.cli.doctor.rules.replication import replication_line
from pocketmq.cli.doctor.rules.rocketmq import groups_line, slaves_line
from pocketmq.cli.doctor.rules.security import security_line
from pocketmq.cli.doctor.rules.send import page_cache_timeout_ms
from pocketmq.cli.doctor.rules.slow_stage import held_ms
from pocketmq.cli.doctor.rules.store import behind_bytes, flush_mode, free_buffers
from pocketmq.cli.doctor.words import (
    clean,
    count_text,
    ms_text,
    percent_text,
    rate_text,
    us_text,
)
from pocketmq.common.units import NO_DATA, bytes_text, plural
from pocketmq.remoting.telemetry import PairTelemetry

KINDS_MAX: Final = 5
RUNNING_MS: Final = 100
"""A sync that runs for longer is shown."""
_LIGHTS: Final = {Severity.ERROR: Light.RED, Severity.WARNING: Light.YELLOW, Severity.NOTE: Light.GREEN}


def area_lines(metrics: BrokerMetrics, findings: Sequence[Finding]) -> Iterator[AreaLine]:
    """Yield the line of each area, in the order in which a message passes them."""
    for area, describe in _AREAS.items():
        parts = [part for part in describe(metrics) if part]
        concern = [each.severity for each in findings if each.area is area or area in each.concerns]
        worst = min(concern, key=lambda each: each.rank, default=None)
        fine = Light.NO_DATA if not parts or parts[0].startswith(NO_DATA) else Light.GREEN
        light = fine if worst is None else _LIGHTS[worst]
        yield AreaLine(area, light, "; ".join(parts) or NO_DATA)


def _admission(metrics: BrokerMetrics) -> Iterator[str]:
    if metrics.telemetry is None:
        full, failed = metrics.grown("sendThreadPoolRefused"), metrics.grown("putMessageFailedTimes")
        if full is not None and metrics.since_s is not None:
            yield f"{count_text(full)} refused by a full send queue within {metrics.since_s:.1f} s"
        if failed is not None and metrics.since_s is not None:
            yield f"{plural(failed, 'failed put')} within {metrics.since_s:.1f} s"
        return
    refused = sum(each.recent or 0 for each in metrics.refusals)
    for_what_is_in_them = sum(each.last_minute for each in metrics.refused_requests)
    if for_what_is_in_them:
        yield f"{plural(for_what_is_in_them, 'request')} refused for what is in them in the last minute"
    if refused:
        kinds = ", ".join(
            f"{each.tag or clean(each.cause)} {count_text(each.recent or 0)}" for each in metrics.refusals[:5]
        )
        yield f"{plural(refused, 'request')} refused {metrics.window}: {kinds}"
    elif not for_what_is_in_them:
        total = sum(each.total for each in metrics.telemetry.refusals)
        yield f"nothing refused {metrics.window}, {count_text(total)} since the start"


def _send_queue(metrics: BrokerMetrics) -> Iterator[str]:
    pair = metrics.pair(SEND_PAIR)
    if pair is None:
        return
    yield _queue(pair, metrics.wait_limit_ms(SEND_PAIR))
    waited = metrics.stage("queue_wait")
    if waited is not None:
        yield f"waits p99 {us_text(waited.p99_us)}, longest {us_text(waited.max_us)} {metrics.window}"
    if pair.drain_limit > 0:
        shrunk = pair.drain_limit < (metrics.settings.number("send_drain_max") or 0)
        why = ", reduced since appends were slow" if shrunk else ""
        yield f"up to {plural(pair.drain_limit, 'request')} a drain{why}"


def _queue(pair: PairTelemetry, limit_ms: int) -> str:
    text = f"{count_text(pair.queue_size)} of {count_text(pair.queue_capacity)} requests wait"
    if pair.queue_bytes_max > 0:
        text += f" ({bytes_text(pair.queue_bytes)} of {bytes_text(pair.queue_bytes_max)})"
    return f"{text}, the oldest for {ms_text(pair.head_wait_ms)} of {ms_text(limit_ms)}"


def _append(metrics: BrokerMetrics) -> Iterator[str]:
    append, lock, rate = metrics.stage("append"), metrics.stage("lock_wait"), metrics.rate("putTps")
    if append is not None:
        yield f"p50 {us_text(append.p50_us)}, p99 {us_text(append.p99_us)}, longest {us_text(append.max_us)}"
    elif metrics.telemetry is not None:
        yield f"{NO_DATA} (no sends {metrics.window})"
    if lock is not None:
        yield f"lock wait p99 {us_text(lock.p99_us)}"
    latency = metrics.number("putLatency99")
    if append is None and latency is not None and metrics.telemetry is None:
        yield f"whole put p99 {ms_text(latency)}"
    if rate is not None and (append is not None or metrics.telemetry is None):
        yield f"{rate_text(rate)} messages stored"


def _page_cache(metrics: BrokerMetrics) -> Iterator[str]:
    held, limit_ms = held_ms(metrics), page_cache_timeout_ms(metrics)
    if held is None:
        return
    yield f"append lock held now for {ms_text(held)}" if held > 0 else "append lock free now"
    if metrics.telemetry is not None:
        page_cache = metrics.telemetry.page_cache
        yield f"longest hold {ms_text(page_cache.longest_hold_ms_last_minute)} of {ms_text(limit_ms)} {metrics.window}"
        if page_cache.busy_episodes > 0:
            yield f"busy {plural(page_cache.busy_episodes, 'time')} since the start"
    else:
        yield f"the limit is {ms_text(limit_ms)}"


def _pool(metrics: BrokerMetrics) -> Iterator[str]:
    buffers = free_buffers(metrics)
    if buffers is not None:
        yield f"{count_text(buffers[0])} of {plural(buffers[1], 'write buffer')} free"
        pool = metrics.pool
        if pool is not None:
            yield f"{'locked' if pool.locked else 'not locked'} in RAM"
            yield f"{bytes_text(pool.uncommitted_bytes)} not committed"
    elif metrics.telemetry is not None or metrics.settings.flag("transient_store_pool_enable") is False:
        yield "off: appends go to the mapped file"


def _flush(metrics: BrokerMetrics) -> Iterator[str]:
    mode, behind = flush_mode(metrics), behind_bytes(metrics)
    if mode and behind is not None:
        yield mode
    if metrics.telemetry is not None:
        flush = metrics.telemetry.flush
        if flush.count > 0:
            yield (
                f"{plural(flush.count, 'sync')} {metrics.window}, p50 {us_text(flush.p50_us)}, "
                f"p99 {us_text(flush.p99_us)}, longest {us_text(flush.max_us)}"
            )
        else:
            yield f"no sync {metrics.window}"
        if flush.running_ms >= RUNNING_MS:
            yield f"one has run for {ms_text(flush.running_ms)} so far"
    if behind is not None:
        yield f"{bytes_text(behind)} not durable"


def _reads(metrics: BrokerMetrics) -> Iterator[str]:
    pair, reads = metrics.pair(PULL_PAIR), metrics.stage("process", PULL_PAIR)
    if pair is not None:
        yield _queue(pair, metrics.wait_limit_ms(PULL_PAIR))
    if reads is not None:
        yield f"reads p99 {us_text(reads.p99_us)}"
    rate, holds = metrics.rate("getTransferedTps"), metrics.number("pullHolds")
    if rate is None:
        rate = metrics.rate("getTransferredTps")  # RocketMQ 5.3
    if rate is not None:
        yield f"{rate_text(rate)} messages read"
    if holds is not None:
        yield f"{plural(holds, 'pull')} held"
    dispatch = metrics.size_bytes("dispatchBehindBytes")
    if dispatch is not None:
        yield f"dispatch {bytes_text(dispatch)} behind"
    yield from groups_line(metrics)


def _disk(metrics: BrokerMetrics) -> Iterator[str]:
    for name, ratio in disk_ratios(metrics).items():
        yield f"{name}: {percent_text(ratio)} used"


def _replication(metrics: BrokerMetrics) -> Iterator[str]:
    yield from replication_line(metrics)
    yield from slaves_line(metrics)


_AREAS: Final[dict[Area, Callable[[BrokerMetrics], Iterator[str]]]] = {
    Area.ADMISSION: _admission,
    Area.SEND_QUEUE: _send_queue,
    Area.APPEND: _append,
    Area.PAGE_CACHE: _page_cache,
    Area.POOL: _pool,
    Area.FLUSH: _flush,
    Area.REPLICATION: _replication,
    Area.READS: _reads,
    Area.LOCKS: lock_line,
    Area.DISK: _disk,
    Area.ACCESS: security_line,
}

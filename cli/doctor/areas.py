"""One line for each area of a broker: its light, its figures and how far they are from their limits.

Lives here: ``area_lines``. A line without figures says "no data", which is not the same as green.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pocketmq.cli.doctor.figures import PULL_PAIR, SEND_PAIR, Figures
from pocketmq.cli.doctor.finding import Area, AreaLine, Finding, Light, Severity
from pocketmq.cli.doctor.rules.reads import pull_limit_ms
from pocketmq.cli.doctor.rules.replication import replication_line
from pocketmq.cli.doctor.rules.send import page_cache_timeout_ms
from pocketmq.cli.doctor.rules.slow_stage import held_ms, wait_limit_ms
from pocketmq.cli.doctor.rules.store import behind_bytes, disk_ratios, flush_mode, free_buffers
from pocketmq.cli.doctor.words import (
    NO_DATA,
    bytes_text,
    clean,
    count_text,
    ms_text,
    percent_text,
    plural,
    rate_text,
    us_text,
)
from pocketmq.remoting.telemetry import PairTelemetry

KINDS_MAX: Final = 5
_LIGHTS: Final = {Severity.ERROR: Light.RED, Severity.WARNING: Light.YELLOW, Severity.NOTE: Light.GREEN}


def area_lines(figures: Figures, findings: Sequence[Finding]) -> Iterator[AreaLine]:
    """Yield the line of each area, in the order of a message's way."""
    for area, describe in _AREAS.items():
        parts = [part for part in describe(figures) if part]
        concern = [each.severity for each in findings if _concerns(each, area)]
        worst = min(concern, key=lambda each: each.rank, default=None)
        fine = Light.NO_DATA if not parts or parts[0].startswith(NO_DATA) else Light.GREEN
        light = fine if worst is None else _LIGHTS[worst]
        yield AreaLine(area, light, "; ".join(parts) or NO_DATA)


def _concerns(finding: Finding, area: Area) -> bool:
    return finding.area is area or area in finding.concerns


def _admission(figures: Figures) -> Iterator[str]:
    if figures.telemetry is None:
        full, failed = figures.grown("sendThreadPoolRefused"), figures.grown("putMessageFailedTimes")
        if full is not None and figures.since_s is not None:
            yield f"{count_text(full)} refused by a full send queue within {figures.since_s:.1f} s"
        if failed is not None and figures.since_s is not None:
            yield f"{plural(failed, 'failed put')} within {figures.since_s:.1f} s"
        return
    refused = sum(each.recent or 0 for each in figures.refusals)
    for_what_is_in_them = sum(each.last_minute for each in figures.refused_requests)
    if for_what_is_in_them:
        yield f"{plural(for_what_is_in_them, 'request')} refused for what is in them in the last minute"
    if refused:
        kinds = ", ".join(
            f"{each.tag or clean(each.cause)} {count_text(each.recent or 0)}" for each in figures.refusals[:5]
        )
        yield f"{plural(refused, 'request')} refused {figures.window}: {kinds}"
    elif not for_what_is_in_them:
        total = sum(each.total for each in figures.telemetry.refusals)
        yield f"nothing refused {figures.window}, {count_text(total)} since the start"


def _send_queue(figures: Figures) -> Iterator[str]:
    pair = figures.pair(SEND_PAIR)
    if pair is None:
        return
    yield _queue(pair, wait_limit_ms(figures))
    waited = figures.stage("queue_wait")
    if waited is not None:
        yield f"waits p99 {us_text(waited.p99_us)}, longest {us_text(waited.max_us)} {figures.window}"
    if pair.drain_limit > 0:
        shrunk = pair.drain_limit < (figures.settings.number("send_drain_max") or 0)
        why = ", few since appends were slow" if shrunk else ""
        yield f"up to {plural(pair.drain_limit, 'request')} a drain{why}"


def _queue(pair: PairTelemetry, limit_ms: int) -> str:
    text = f"{count_text(pair.queue_size)} of {count_text(pair.queue_capacity)} requests wait"
    if pair.queue_bytes_max > 0:
        text += f" ({bytes_text(pair.queue_bytes)} of {bytes_text(pair.queue_bytes_max)})"
    return f"{text}, the oldest for {ms_text(pair.head_wait_ms)} of {ms_text(limit_ms)}"


def _append(figures: Figures) -> Iterator[str]:
    append, lock, rate = figures.stage("append"), figures.stage("lock_wait"), figures.rate("putTps")
    if append is not None:
        yield f"p50 {us_text(append.p50_us)}, p99 {us_text(append.p99_us)}, longest {us_text(append.max_us)}"
    elif figures.telemetry is not None:
        yield f"{NO_DATA} (no sends {figures.window})"
    if lock is not None:
        yield f"lock wait p99 {us_text(lock.p99_us)}"
    latency = figures.number("putLatency99")
    if append is None and latency is not None and figures.telemetry is None:
        yield f"whole put p99 {ms_text(latency)}"
    if rate is not None and (append is not None or figures.telemetry is None):
        yield f"{rate_text(rate)} messages stored"


def _page_cache(figures: Figures) -> Iterator[str]:
    held, limit_ms = held_ms(figures), page_cache_timeout_ms(figures)
    if held is None:
        return
    yield f"append lock held now for {ms_text(held)}" if held > 0 else "append lock free now"
    if figures.telemetry is not None:
        page_cache = figures.telemetry.page_cache
        yield f"longest hold {ms_text(page_cache.longest_hold_ms_last_minute)} of {ms_text(limit_ms)} {figures.window}"
        if page_cache.busy_episodes > 0:
            yield f"busy {plural(page_cache.busy_episodes, 'time')} since the start"
    else:
        yield f"the limit is {ms_text(limit_ms)}"


def _pool(figures: Figures) -> Iterator[str]:
    buffers = free_buffers(figures)
    if buffers is not None:
        yield f"{count_text(buffers[0])} of {plural(buffers[1], 'write buffer')} free"
        pool = figures.telemetry.pool if figures.telemetry is not None else None
        if pool is not None:
            yield f"{'locked' if pool.locked else 'not locked'} in RAM"
            yield f"{bytes_text(pool.uncommitted_bytes)} not committed"
    elif figures.telemetry is not None or figures.settings.flag("transient_store_pool_enable") is False:
        yield "off: appends go to the mapped file"


def _flush(figures: Figures) -> Iterator[str]:
    mode, behind = flush_mode(figures), behind_bytes(figures)
    if mode and behind is not None:
        yield mode
    if figures.telemetry is not None:
        flush = figures.telemetry.flush
        if flush.count > 0:
            yield (
                f"{plural(flush.count, 'sync')} {figures.window}, p50 {us_text(flush.p50_us)}, "
                f"p99 {us_text(flush.p99_us)}, longest {us_text(flush.max_us)}"
            )
        else:
            yield f"no sync {figures.window}"
    if behind is not None:
        yield f"{bytes_text(behind)} not durable"


def _reads(figures: Figures) -> Iterator[str]:
    pair, reads = figures.pair(PULL_PAIR), figures.stage("process", PULL_PAIR)
    if pair is not None:
        yield _queue(pair, pull_limit_ms(figures))
    if reads is not None:
        yield f"reads p99 {us_text(reads.p99_us)}"
    rate, holds = figures.rate("getTransferedTps"), figures.number("pullHolds")
    if rate is not None:
        yield f"{rate_text(rate)} messages read"
    if holds is not None:
        yield f"{plural(holds, 'pull')} held"
    dispatch = figures.size_bytes("dispatchBehindBytes")
    if dispatch is not None:
        yield f"dispatch {bytes_text(dispatch)} behind"


def _disk(figures: Figures) -> Iterator[str]:
    for name, ratio in disk_ratios(figures).items():
        yield f"{name}: {percent_text(ratio)} used"


_AREAS: Final[dict[Area, Callable[[Figures], Iterator[str]]]] = {
    Area.ADMISSION: _admission,
    Area.SEND_QUEUE: _send_queue,
    Area.APPEND: _append,
    Area.PAGE_CACHE: _page_cache,
    Area.POOL: _pool,
    Area.FLUSH: _flush,
    Area.REPLICATION: replication_line,
    Area.READS: _reads,
    Area.DISK: _disk,
}

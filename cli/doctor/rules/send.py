"""Rules: a send's way through the broker, before any refusal.

Lives here: the send queue, the append and its lock, the page cache, reading requests and writing answers.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import SEND_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity, error, note, warning
from pocketmq.cli.doctor.rules.refusals import page_cache_lines
from pocketmq.cli.doctor.rules.slow_stage import (
    HELD_MS_MAX,
    SLOW_US,
    drain_advice,
    explain_wait,
    held_ms,
    pool_advice,
    slowest_lines,
    stage_line,
)
from pocketmq.cli.doctor.words import count_text, ms_text, percent_text, us_text
from pocketmq.common.units import bytes_text
from pocketmq.remoting.telemetry import ALL_PAIRS, PairTelemetry

FULL_SHARE: Final = 0.5
"""A queue or a wait above this share of its limit is worth a warning: the other half can fill within a stall."""
PAGE_CACHE_TIMEOUT_MS: Final = 1000
"""RocketMQ MessageStoreConfig.osPageCacheBusyTimeOutMills."""
SLOW_SOCKET_US: Final = 100_000.0
"""Reading a request or writing an answer for longer than this at p99 is due to the network or the client."""


def send_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on slow stages and limits that are near, on the way of a send."""
    yield from _page_cache(metrics)
    yield from _queue(metrics)
    yield from _append(metrics)
    yield from _pace(metrics)
    yield from _sockets(metrics)


def queue_share(pair: PairTelemetry) -> float:
    """Return how full a queue is, by count or bytes, whichever is more."""
    by_count = pair.queue_size / pair.queue_capacity if pair.queue_capacity > 0 else 0.0
    by_bytes = pair.queue_bytes / pair.queue_bytes_max if pair.queue_bytes_max > 0 else 0.0
    return max(by_count, by_bytes)


def page_cache_timeout_ms(metrics: BrokerMetrics) -> int:
    """Return the limit of a hold of the append lock."""
    sent = metrics.telemetry.page_cache.timeout_ms if metrics.telemetry is not None else 0
    return max(0, sent) or metrics.settings.number("os_page_cache_busy_timeout_mills") or PAGE_CACHE_TIMEOUT_MS


def page_cache_busy(metrics: BrokerMetrics) -> bool:
    """Return whether the page cache is busy at this moment."""
    if metrics.telemetry is not None and metrics.telemetry.page_cache.busy:
        return True
    held = held_ms(metrics)
    return held is not None and page_cache_timeout_ms(metrics) < held < HELD_MS_MAX


def _longest_hold_ms(metrics: BrokerMetrics) -> int | None:
    return held_ms(metrics) if metrics.telemetry is None else metrics.telemetry.page_cache.longest_hold_ms_last_minute


def _held_long(metrics: BrokerMetrics) -> bool:
    """Return whether the append lock was held for more than half of the limit of a busy page cache."""
    longest = _longest_hold_ms(metrics)
    return longest is not None and page_cache_timeout_ms(metrics) * FULL_SHARE < longest < HELD_MS_MAX


def _page_cache(metrics: BrokerMetrics) -> Iterator[Finding]:
    limit_ms, held = page_cache_timeout_ms(metrics), held_ms(metrics)
    pool_on = metrics.pool is not None
    advice = () if pool_on else pool_advice(metrics)
    cure = (
        "Find out what keeps the disk busy; do not raise the limit. "
        + ("" if pool_on else "The write-buffer pool takes the append off the page cache; ")
        + "faster disk, more brokers."
    )
    if page_cache_busy(metrics):
        yield error(
            key="page-cache-busy",
            area=Area.PAGE_CACHE,
            title=f"the page cache is busy now: the append lock is held for {ms_text(held or 0)}",
            evidence=page_cache_lines(metrics),
            cause="One append does not return: a page fault or the kernel's write-back waits for the disk. Until it "
            "does, every send is refused.",
            cure=cure,
            settings=advice,
            reference="pocketmq scenario pcbusy",
        )
        return
    longest = _longest_hold_ms(metrics)
    if longest is not None and _held_long(metrics):
        yield warning(
            key="page-cache-long-hold",
            is_slowness=True,
            area=Area.PAGE_CACHE,
            title=f"an append took {ms_text(longest)} of {ms_text(limit_ms)}, above which the broker refuses sends",
            evidence=page_cache_lines(metrics),
            cause="An append stood still under the append lock. Later sends waited as long.",
            cure=cure,
            settings=advice,
            reference="pocketmq scenario pcbusy",
        )


def _queue(metrics: BrokerMetrics) -> Iterator[Finding]:
    pair = metrics.pair(SEND_PAIR)
    if pair is None or metrics.refused("TIMEOUT_CLEAN_QUEUE", "OVERLOAD", "PCBUSY_CLEAN_QUEUE"):
        return  # the finding on the refusal explains it
    title = filling_title(pair, metrics.wait_limit_ms(SEND_PAIR), "send")
    if not title:
        return
    why = explain_wait(metrics)
    yield warning(
        key="send-queue-filling",
        area=Area.SEND_QUEUE,
        title=title,
        evidence=(queue_line(pair), *why.evidence),
        cause=why.cause,
        cure=why.cure,
        settings=why.settings,
        reference="pocketmq scenario timeout-clean-queue",
        concerns=why.concerns,
    )


def filling_title(pair: PairTelemetry, limit_ms: int, what: str) -> str:
    """Return the title for a queue that is above half of a limit; empty for another."""
    if pair.head_wait_ms > limit_ms * FULL_SHARE:
        return f"{what}s wait {ms_text(pair.head_wait_ms)} of {ms_text(limit_ms)} in the queue"
    share = queue_share(pair)
    return f"the {what} queue is {percent_text(share)} full" if share > FULL_SHARE else ""


def queue_line(pair: PairTelemetry) -> str:
    """Return a queue's values of this moment."""
    size = f"{count_text(pair.queue_size)} of {count_text(pair.queue_capacity)} requests"
    if pair.queue_bytes_max > 0:
        size += f", {bytes_text(pair.queue_bytes)} of {bytes_text(pair.queue_bytes_max)}"
    return f"waiting now: {size}; the oldest for {ms_text(pair.head_wait_ms)}"


def _append(metrics: BrokerMetrics) -> Iterator[Finding]:
    """A slow append that has not caused a refusal yet."""
    append, lock = metrics.stage("append"), metrics.stage("lock_wait")
    explained = metrics.refused("TIMEOUT_CLEAN_QUEUE", "OVERLOAD")
    wait_limit_us = metrics.wait_limit_ms(SEND_PAIR) * 1000.0
    if append is not None and append.p99_us >= SLOW_US and not explained:
        why = explain_wait(metrics)
        yield Finding(
            key="append-slow",
            severity=Severity.WARNING if append.p99_us >= wait_limit_us * FULL_SHARE else Severity.NOTE,
            is_slowness=True,
            area=Area.APPEND,
            title=f"appends are slow: p99 {us_text(append.p99_us)}",
            evidence=(stage_line(append, metrics.window), *slowest_lines(metrics, "append")),
            cause=why.cause,
            cure=why.cure,
            settings=why.settings,
            reference="pocketmq scenario timeout-clean-queue",
        )
    elif append is not None and append.max_us >= wait_limit_us and not explained and not _held_long(metrics):
        yield note(
            key="append-stalled",
            area=Area.APPEND,
            title=f"an append took {us_text(append.max_us)}, most were quick: p99 {us_text(append.p99_us)}",
            evidence=(stage_line(append, metrics.window), *slowest_lines(metrics, "append")),
            cause="Now and then an append stands still: the disk or the processors were busy with something else. "
            "A send that waits behind one for longer than the limit of the send queue is answered as busy.",
            cure="Watch whether it happens again (--watch 5), and what else runs on this machine then.",
            reference="pocketmq scenario timeout-clean-queue",
        )
    if lock is not None and lock.p99_us >= SLOW_US and not explained:
        yield warning(
            key="append-lock-contended",
            is_slowness=True,
            area=Area.APPEND,
            title=f"appends wait for the append lock: p99 {ms_text(lock.p99_us / 1000)}",
            evidence=(stage_line(lock, metrics.window), *page_cache_lines(metrics)),
            cause="Two writers need the log at the same time, and the one that holds the lock is slow.",
            cure="Cure the holder's append; with one send thread no thread waits for the lock.",
            settings=metrics.advice("send_message_thread_pool_nums", "1", "nothing: the log has one writer"),
        )


def _pace(metrics: BrokerMetrics) -> Iterator[Finding]:
    if metrics.settings.number("send_drain_max") != 1:
        return
    append = metrics.stage("append")
    late = bool(metrics.refused("TIMEOUT_CLEAN_QUEUE", "OVERLOAD"))
    evidence = ["the send worker takes 1 request at a time"]
    if append is not None and append.p50_us > 0:
        evidence.append(f"append p50 {ms_text(append.p50_us / 1000)}: at most {1e6 / append.p50_us:,.0f} requests/s")
    yield Finding(
        key="rocketmq-pace",
        area=Area.SEND_QUEUE,
        severity=Severity.WARNING if late else Severity.NOTE,
        title="send_drain_max = 1: RocketMQ's pace, one request for each append",
        evidence=tuple(evidence),
        cause="Every request pays the whole cost of its own append. That is right for reproducing RocketMQ's "
        "incidents, and slow otherwise.",
        cure="Let the worker append all waiting requests as one group.",
        settings=drain_advice(metrics),
        reference="pocketmq scenario timeout-clean-queue",
    )


def _sockets(metrics: BrokerMetrics) -> Iterator[Finding]:
    read, write = metrics.stage("read", ALL_PAIRS), metrics.stage("write", ALL_PAIRS)
    if read is not None and read.p99_us >= SLOW_SOCKET_US:
        yield note(
            key="requests-arrive-slowly",
            area=Area.ADMISSION,
            title=f"requests take long to arrive: p99 {ms_text(read.p99_us / 1000)} from first to last byte",
            evidence=(stage_line(read, metrics.window),),
            cause="Large frames over a slow network, or the broker does not read: the event loop is busy, or the "
            "memory for half-received frames is used up.",
            cure="Compare with the network's rate; send smaller batches; check the processor time of the broker.",
        )
    if write is not None and write.p99_us >= SLOW_SOCKET_US:
        yield warning(
            key="answers-leave-slowly",
            is_slowness=True,
            area=Area.ADMISSION,
            title=f"answers take long to leave: p99 {ms_text(write.p99_us / 1000)}",
            evidence=(stage_line(write, metrics.window), *slowest_lines(metrics, "write")),
            cause="The event loop was busy when the answers were ready; clients see this as latency although the store "
            "was quick.",
            cure="Check the processor time of the broker and of this machine; send fewer, larger requests.",
        )

"""Which stage of a send is slow, and whether that explains requests that wait.

Lives here: ``explain_wait``, for rules about the send queue; evidence lines of stages and of the slowest requests.
"""

from dataclasses import dataclass
from typing import Final

from pocketmq.cli.doctor.broker_metrics import SEND_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Advice, Area
from pocketmq.cli.doctor.words import clean, count_text, ms_text, rate_text, us_text
from pocketmq.remoting.telemetry import StageTelemetry

SLOW_US: Final = 20_000.0
"""A stage that takes longer is slow: above it a drain without a longest wait shrinks
(docs/adr/0007-drains-and-slow-disks.md).
"""
SHOWN_MAX: Final = 3
HELD_MS_MAX: Final = 10_000_000
"""From here on a hold of the append lock means that it is free (DefaultMessageStore.isOSPageCacheBusy)."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why requests wait in the send queue."""

    stage: str
    """``lock_wait``, ``append``, ``process``, ``queue_wait`` (no stage is slow: too much arrives) or empty: no data."""
    evidence: tuple[str, ...]
    cause: str
    cure: str
    settings: tuple[Advice, ...] = ()

    @property
    def concerns(self) -> tuple[Area, ...]:
        """The areas that cause the wait, beside the queue itself."""
        return (Area.APPEND,) if self.stage in ("append", "lock_wait") else ()


def stage_line(stage: StageTelemetry, window: str) -> str:
    """Return a stage's values as evidence."""
    return (
        f"{stage.stage}: p50 {us_text(stage.p50_us)}, p99 {us_text(stage.p99_us)}, longest {us_text(stage.max_us)} "
        f"({count_text(stage.count)} {window})"
    )


def pool_advice(metrics: BrokerMetrics) -> tuple[Advice, ...]:
    """Return the advice to switch the write-buffer pool on."""
    segment_bytes = metrics.settings.number("mapped_file_size_commit_log") or 1 << 30
    buffers = metrics.settings.number("transient_store_pool_size") or 5
    gib = max(segment_bytes, 0) * max(buffers, 0) / (1 << 30)
    return metrics.advice(
        "transient_store_pool_enable",
        "true",
        f"{gib:.1f} GiB of locked memory in /dev/shm; only with ASYNC_FLUSH; uncommitted messages in the buffers "
        "(about 200 ms) are lost when the machine dies or the container is replaced; it takes stalls of single appends "
        "away, not a disk that is too slow: compare both on this machine",
    )


def slowest_lines(metrics: BrokerMetrics, *stages: str) -> tuple[str, ...]:
    """Return lines on the slowest requests whose slowest stage is one of these."""
    slowest = [each for each in metrics.telemetry.slowest if each.slowest_stage in stages] if metrics.telemetry else []
    slowest.sort(key=lambda each: -each.total_ms)
    return tuple(
        f"slow request: code {each.code} from {clean(each.remote) or 'unknown'} took {ms_text(each.total_ms)}, "
        f"{ms_text(each.stages.get(each.slowest_stage, 0.0))} of it in {clean(each.slowest_stage)}"
        for each in slowest[:SHOWN_MAX]
    )


def explain_wait(metrics: BrokerMetrics) -> Explanation:
    """Return the reason for the wait: the slow stage, or more requests than the worker can serve."""
    found = (metrics.stage("lock_wait"), metrics.stage("append"), metrics.stage("process"))
    on_the_way = [each for each in found if each is not None]
    waited = metrics.stage("queue_wait")
    evidence = [stage_line(each, metrics.window) for each in (waited, *on_the_way) if each is not None]
    held = held_ms(metrics) or 0
    if SLOW_US / 1000 <= held < HELD_MS_MAX:
        evidence.insert(0, f"an append has held the append lock for {ms_text(held)} so far")
        return _slow_append(metrics, tuple(evidence))
    longest_ms = metrics.telemetry.page_cache.longest_hold_ms_last_minute if metrics.telemetry is not None else 0
    if metrics.wait_limit_ms(SEND_PAIR) <= longest_ms < HELD_MS_MAX:  # a failed append may be in no stage
        evidence.insert(0, f"the append lock was held for {ms_text(longest_ms)} at a time {metrics.window}")
        return _slow_append(metrics, tuple(evidence))
    if not on_the_way:
        return Explanation(
            "",
            tuple(evidence),
            "Which stage is slow: no data. No append has ended in the window, or this broker measures no stages.",
            "Check how long the append lock is held (page cache), and the disk: pocketmq doctor disk DIR.",
        )
    limit_us = metrics.wait_limit_ms(SEND_PAIR) * 1000.0
    slow_ones = [each for each in on_the_way if each.p99_us >= SLOW_US or each.max_us >= limit_us]
    if not slow_ones:
        return _too_much(metrics, tuple(evidence))
    slow = max(slow_ones, key=lambda each: (each.p99_us, each.max_us))
    evidence += slowest_lines(metrics, slow.stage)
    if slow.stage == "lock_wait":
        return Explanation(
            "lock_wait",
            tuple(evidence),
            "Appends wait for one another: another writer holds the append lock for a long time.",
            "Check the stage append: it is the holder's time. One send thread is enough; a second one only waits for "
            "the first.",
            metrics.advice("send_message_thread_pool_nums", "1", "nothing: the log has one writer"),
        )
    if slow.stage == "process":
        return Explanation(
            "process",
            tuple(evidence),
            "The checks of the requests before their append are slow: very many or very large messages at once, or the "
            "processors are busy with something else.",
            "Check the processor time of the broker and of this machine; batches built by PocketMQ's producer are "
            "checked in columns, which is ten times cheaper than one by one.",
        )
    return _slow_append(metrics, tuple(evidence))


def held_ms(metrics: BrokerMetrics) -> int | None:
    """Return how long the append lock is held now."""
    if metrics.telemetry is not None:
        return metrics.telemetry.page_cache.lock_held_ms
    return metrics.number("pageCacheLockTimeMills")


def _slow_append(metrics: BrokerMetrics, evidence: tuple[str, ...]) -> Explanation:
    if metrics.pool is not None:
        return Explanation(
            "append",
            evidence,
            "The append itself is slow, although it goes to memory: the buffers are swapped or touched for the first "
            "time, the processors are busy, or the next segment was not ready.",
            "Check this machine for swapping and other processes; allow the buffers to be locked (ulimit -l).",
        )
    return Explanation(
        "append",
        evidence,
        "The append itself is slow: mapped writes, reads and the kernel's write-back share the page cache, so one "
        "append can stand still while the disk is busy. All later sends wait.",
        "Find out what else uses the disk (measure it: pocketmq doctor disk DIR); enable the write-buffer pool, so "
        "that appends go to locked memory; a faster disk, or more brokers.",
        pool_advice(metrics),
    )


def _too_much(metrics: BrokerMetrics, evidence: tuple[str, ...]) -> Explanation:
    append = metrics.stage("append")
    rate = metrics.rate("putTps")
    more: tuple[str, ...] = () if rate is None else (f"stored: {rate_text(rate)} messages over the last 10 s",)
    settings: tuple[Advice, ...] = ()
    cause = "No stage is slow: more requests arrive than the send worker can serve."
    if metrics.settings.number("send_drain_max") == 1:
        settings = drain_advice(metrics)
        cause += " It takes one request at a time (RocketMQ's pace)."
        if append is not None and append.p50_us > 0:
            more += (f"one append at a time at p50 is at most {rate_text(1e6 / append.p50_us)} requests",)
    return Explanation(
        "queue_wait",
        evidence + more,
        cause,
        "Send in batches or with more in flight per connection, spread the topics over more brokers, or slow the "
        "producers down. A longer queue only makes every send wait longer for the same rate.",
        settings,
    )


def drain_advice(metrics: BrokerMetrics) -> tuple[Advice, ...]:
    """Return the advice to let the send worker take several requests at once."""
    return metrics.advice(
        "send_drain_max",
        "4096",
        "up to one drain of requests waits for the append of its group; the drain shrinks to 1 while appends are slow",
    )

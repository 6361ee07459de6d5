"""Rules: settings that look like a cure and are none.

Lives here: raised limits, fast failure switched off, settings that contradict each other.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import SEND_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity, note, warning
from pocketmq.cli.doctor.rules.send import PAGE_CACHE_TIMEOUT_MS
from pocketmq.cli.doctor.rules.store import flush_mode
from pocketmq.cli.doctor.words import count_text, ms_text
from pocketmq.common.units import bytes_text

SEND_QUEUE_CAPACITY: Final = 10_000
SEND_WAIT_MS: Final = 200
SEND_QUEUE_BYTES: Final = 256 << 20
CLIENT_TIMEOUT_MS: Final = 3000
"""RocketMQ's defaults: BrokerConfig.sendThreadPoolQueueCapacity, waitTimeMillsInSendQueue and the producer's
sendMsgTimeout; the bytes are a default of PocketMQ.
"""


def setting_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield a finding for each bad cure among the settings."""
    yield from _page_cache_timeout(metrics)
    yield from _fast_failure(metrics)
    yield from _queue_capacity(metrics)
    yield from _queue_bytes(metrics)
    yield from _wait_time(metrics)
    yield from _pool_and_sync_flush(metrics)


def _page_cache_timeout(metrics: BrokerMetrics) -> Iterator[Finding]:
    limit_ms = metrics.settings.number("os_page_cache_busy_timeout_mills")
    if limit_ms is None or limit_ms <= PAGE_CACHE_TIMEOUT_MS:
        return
    advice = metrics.advice(
        "os_page_cache_busy_timeout_mills",
        str(PAGE_CACHE_TIMEOUT_MS),
        "refusals return while an append is stuck; they make producers go to another broker",
    )
    longest = metrics.telemetry.page_cache.longest_hold_ms_last_minute if metrics.telemetry is not None else None
    lines = () if longest is None else (f"longest hold of the append lock {metrics.window}: {ms_text(longest)}",)
    yield warning(
        key="bad-cure-page-cache-timeout",
        area=Area.PAGE_CACHE,
        title=f"bad cure: {advice[0].name} is raised to {ms_text(limit_ms)}",
        evidence=(f"{advice[0].name} = {limit_ms} ms, the default is {PAGE_CACHE_TIMEOUT_MS} ms", *lines),
        cause="A higher limit does not make an append quicker. It makes every producer wait for a stuck one instead of "
        "going elsewhere.",
        cure="Restore the default and cure the append: write-buffer pool, faster or less busy disk, more brokers.",
        settings=advice,
        reference="pocketmq scenario pcbusy",
    )


def _fast_failure(metrics: BrokerMetrics) -> Iterator[Finding]:
    if metrics.settings.flag("broker_fast_failure_enable") is not False:
        return
    pair = metrics.pair(SEND_PAIR)
    lines = () if pair is None else (f"oldest send waits for {ms_text(pair.head_wait_ms)} now",)
    advice = metrics.advice(
        "broker_fast_failure_enable",
        "true",
        "sends that waited too long are answered with code 2; clients must retry it (see retry-codes)",
    )
    yield warning(
        key="bad-cure-fast-failure-off",
        area=Area.ADMISSION,
        title=f"bad cure: {advice[0].name} is off",
        evidence=(f"{advice[0].name} = false", *lines),
        cause="Requests wait in the queue until their turn, even when their client gave up long ago. The broker then "
        "works for clients that are gone, while every client times out.",
        cure="Enable it and let clients retry code 2 on another broker.",
        settings=advice,
        reference="pocketmq scenario timeout-clean-queue",
    )


def _queue_capacity(metrics: BrokerMetrics) -> Iterator[Finding]:
    capacity = metrics.settings.number("send_thread_pool_queue_capacity")
    if capacity is None or capacity <= SEND_QUEUE_CAPACITY:
        return
    advice = metrics.advice(
        "send_thread_pool_queue_capacity",
        str(SEND_QUEUE_CAPACITY),
        "a burst above it is refused at once",
    )
    yield warning(
        key="bad-cure-queue-capacity",
        area=Area.SEND_QUEUE,
        title=f"bad cure: {advice[0].name} is raised to {count_text(capacity)}",
        evidence=(f"{advice[0].name} = {count_text(capacity)}, the default is {count_text(SEND_QUEUE_CAPACITY)}",),
        cause="A longer queue serves no client faster: a send at its end has timed out before its turn, and takes "
        "memory meanwhile.",
        cure="Restore the default; raise the rate instead (batches, more brokers) or slow the producers down.",
        settings=advice,
        reference="pocketmq scenario too-many-requests",
    )


def _queue_bytes(metrics: BrokerMetrics) -> Iterator[Finding]:
    limit = metrics.settings.number("send_queue_size_bytes_max")
    if limit is None or limit <= 1 << 30:
        return
    yield note(
        key="queue-bytes-high",
        area=Area.SEND_QUEUE,
        title=f"the send queue may hold {bytes_text(limit)}",
        evidence=(f"send_queue_size_bytes_max = {bytes_text(limit)}, the default is {bytes_text(SEND_QUEUE_BYTES)}",),
        cause="A flood can fill this much memory before the broker refuses a send.",
        cure="Set it to an amount that the machine can spare.",
        settings=metrics.advice(
            "send_queue_size_bytes_max",
            str(SEND_QUEUE_BYTES),
            "bursts of large messages are refused earlier",
        ),
    )


def _wait_time(metrics: BrokerMetrics) -> Iterator[Finding]:
    wait_ms = metrics.settings.number("wait_time_mills_in_send_queue")
    if wait_ms is None or wait_ms <= SEND_WAIT_MS:
        return
    useless = wait_ms >= CLIENT_TIMEOUT_MS
    advice = metrics.advice(
        "wait_time_mills_in_send_queue",
        str(SEND_WAIT_MS),
        "sends are answered as busy earlier; clients must retry code 2",
    )
    yield Finding(
        key="send-wait-raised",
        area=Area.ADMISSION,
        severity=Severity.WARNING if useless else Severity.NOTE,
        title=f"sends may wait {ms_text(wait_ms)} in the queue before they are answered as busy",
        evidence=(
            f"{advice[0].name} = {wait_ms} ms, the default is {SEND_WAIT_MS} ms; clients wait {CLIENT_TIMEOUT_MS} ms",
        ),
        cause=(
            "That is as long as a client waits: it has given up when the busy answer arrives, and cannot try elsewhere."
            if useless
            else "A stopgap for clients that do not retry code 2. It leaves the others less time for another broker."
        ),
        cure="Let clients retry code 2, then restore the default.",
        settings=advice,
        reference="pocketmq scenario retry-codes",
    )


def _pool_and_sync_flush(metrics: BrokerMetrics) -> Iterator[Finding]:
    """RocketMQ 4.9 ignores the pool with SYNC_FLUSH; PocketMQ refuses to start."""
    if metrics.settings.flag("transient_store_pool_enable") is not True or flush_mode(metrics) != "SYNC_FLUSH":
        return
    yield warning(
        key="pool-without-effect",
        area=Area.POOL,
        title="the write-buffer pool is on, and has no effect: SYNC_FLUSH",
        evidence=("transientStorePoolEnable = true, flushDiskType = SYNC_FLUSH",),
        cause="RocketMQ 4.9 uses the pool only with ASYNC_FLUSH on a master.",
        cure="Decide which one you need: the pool (quick appends, loss with the process) or SYNC_FLUSH.",
        settings=metrics.advice(
            "transient_store_pool_enable",
            "false",
            "nothing: it is not in use",
        ),
    )

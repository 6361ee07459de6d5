"""Rules: settings that look like a cure and are none, each called by name.

Lives here: raised limits, fast failure switched off, settings that contradict each other.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import SEND_PAIR, BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity
from pocketmq.cli.doctor.rules.send import PAGE_CACHE_TIMEOUT_MS
from pocketmq.cli.doctor.rules.store import flush_mode
from pocketmq.cli.doctor.words import bytes_text, count_text, ms_text

SEND_QUEUE_CAPACITY: Final = 10_000
SEND_WAIT_MS: Final = 200
CLIENT_TIMEOUT_MS: Final = 3000
"""RocketMQ's defaults: BrokerConfig.sendThreadPoolQueueCapacity, waitTimeMillsInSendQueue and the producer's
sendMsgTimeout."""


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
        "osPageCacheBusyTimeOutMills",
        str(PAGE_CACHE_TIMEOUT_MS),
        "refusals come back while an append is stuck; they are what sends producers to another broker",
    )
    longest = metrics.telemetry.page_cache.longest_hold_ms_last_minute if metrics.telemetry is not None else None
    lines = () if longest is None else (f"longest hold of the append lock {metrics.window}: {ms_text(longest)}",)
    yield Finding(
        key="bad-cure-page-cache-timeout",
        area=Area.PAGE_CACHE,
        severity=Severity.WARNING,
        title=f"bad cure: {advice.name} is raised to {ms_text(limit_ms)}",
        evidence=(f"{advice.name} = {limit_ms} ms, the default is {PAGE_CACHE_TIMEOUT_MS} ms", *lines),
        cause="A higher limit does not make an append quicker. It makes every producer wait for a stuck one instead of "
        "going elsewhere.",
        cure="Set it back and cure the append: write-buffer pool, faster or less busy disk, more brokers.",
        settings=(advice,),
        reference="pocketmq scenario pcbusy",
    )


def _fast_failure(metrics: BrokerMetrics) -> Iterator[Finding]:
    if metrics.settings.flag("broker_fast_failure_enable") is not False:
        return
    pair = metrics.pair(SEND_PAIR)
    lines = () if pair is None else (f"oldest send waits for {ms_text(pair.head_wait_ms)} now",)
    advice = metrics.advice(
        "broker_fast_failure_enable",
        "brokerFastFailureEnable",
        "true",
        "sends that waited too long are answered with code 2; clients must retry it (see retry-codes)",
    )
    yield Finding(
        key="bad-cure-fast-failure-off",
        area=Area.ADMISSION,
        severity=Severity.WARNING,
        title=f"bad cure: {advice.name} is off",
        evidence=(f"{advice.name} = false", *lines),
        cause="Requests wait in the queue until their turn, even when their client gave up long ago. The broker then "
        "works for nobody while every client times out.",
        cure="Switch it on and let clients retry code 2 on another broker.",
        settings=(advice,),
        reference="pocketmq scenario timeout-clean-queue",
    )


def _queue_capacity(metrics: BrokerMetrics) -> Iterator[Finding]:
    capacity = metrics.settings.number("send_thread_pool_queue_capacity")
    if capacity is None or capacity <= SEND_QUEUE_CAPACITY:
        return
    advice = metrics.advice(
        "send_thread_pool_queue_capacity",
        "sendThreadPoolQueueCapacity",
        str(SEND_QUEUE_CAPACITY),
        "a burst above it is refused at once",
    )
    yield Finding(
        key="bad-cure-queue-capacity",
        area=Area.SEND_QUEUE,
        severity=Severity.WARNING,
        title=f"bad cure: {advice.name} is raised to {count_text(capacity)}",
        evidence=(f"{advice.name} = {count_text(capacity)}, the default is {count_text(SEND_QUEUE_CAPACITY)}",),
        cause="A longer queue does not serve anybody faster: what comes in at its end has timed out before its turn, "
        "and the memory is used meanwhile.",
        cure="Set it back; raise the rate instead (batches, more brokers) or let the producers slow down.",
        settings=(advice,),
        reference="pocketmq scenario too-many-requests",
    )


def _queue_bytes(metrics: BrokerMetrics) -> Iterator[Finding]:
    limit = metrics.settings.number("send_queue_size_bytes_max")
    if limit is None or limit <= 1 << 30:
        return
    yield Finding(
        key="queue-bytes-high",
        area=Area.SEND_QUEUE,
        severity=Severity.NOTE,
        title=f"the send queue may hold {bytes_text(limit)}",
        evidence=(f"send_queue_size_bytes_max = {bytes_text(limit)}, the default is {bytes_text(256 << 20)}",),
        cause="A flood can fill this much memory before anybody is refused.",
        cure="Set it so that the machine has that memory to spare.",
        settings=(
            metrics.advice(
                "send_queue_size_bytes_max",
                "send_queue_size_bytes_max",
                str(256 << 20),
                "bursts of large messages are refused earlier",
            ),
        ),
    )


def _wait_time(metrics: BrokerMetrics) -> Iterator[Finding]:
    wait_ms = metrics.settings.number("wait_time_mills_in_send_queue")
    if wait_ms is None or wait_ms <= SEND_WAIT_MS:
        return
    useless = wait_ms >= CLIENT_TIMEOUT_MS
    advice = metrics.advice(
        "wait_time_mills_in_send_queue",
        "waitTimeMillsInSendQueue",
        str(SEND_WAIT_MS),
        "busy answers come earlier; clients must retry code 2",
    )
    yield Finding(
        key="send-wait-raised",
        area=Area.ADMISSION,
        severity=Severity.WARNING if useless else Severity.NOTE,
        title=f"sends may wait {ms_text(wait_ms)} in the queue before they are answered as busy",
        evidence=(
            f"{advice.name} = {wait_ms} ms, the default is {SEND_WAIT_MS} ms; clients wait {CLIENT_TIMEOUT_MS} ms",
        ),
        cause=(
            "That is as long as a client waits: it has given up when the busy answer comes, and cannot try elsewhere."
            if useless
            else "A stopgap for clients that do not retry code 2. It leaves the others less time for another broker."
        ),
        cure="Let clients retry code 2, then set it back.",
        settings=(advice,),
        reference="pocketmq scenario retry-codes",
    )


def _pool_and_sync_flush(metrics: BrokerMetrics) -> Iterator[Finding]:
    """RocketMQ ignores the pool then (4.9); this broker does not start so."""
    if metrics.settings.flag("transient_store_pool_enable") is not True or flush_mode(metrics) != "SYNC_FLUSH":
        return
    yield Finding(
        key="pool-without-effect",
        area=Area.POOL,
        severity=Severity.WARNING,
        title="the write-buffer pool is on, and has no effect: SYNC_FLUSH",
        evidence=("transientStorePoolEnable = true, flushDiskType = SYNC_FLUSH",),
        cause="RocketMQ 4.9 uses the pool only with ASYNC_FLUSH on a master.",
        cure="Decide which one is needed: the pool (quick appends, loss with the process) or SYNC_FLUSH.",
        settings=(
            metrics.advice(
                "transient_store_pool_enable",
                "transientStorePoolEnable",
                "false",
                "nothing: it is not in use",
            ),
        ),
    )

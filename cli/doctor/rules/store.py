"""Rules: the work behind the append: write buffers, flush, dispatch.

Lives here: pool, flush and its cost, the fence, bytes behind. ``disk_space`` has the space on the disk.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import NO_POOL_BUFFERS, BrokerMetrics
from pocketmq.cli.doctor.finding import Advice, Area, Finding, Severity, error, note, warning
from pocketmq.cli.doctor.rules.disk_space import disk_space
from pocketmq.cli.doctor.rules.refusals import SEGMENTS_AHEAD, more_buffers, too_small
from pocketmq.cli.doctor.rules.slow_stage import slowest_lines, stage_line
from pocketmq.cli.doctor.words import clean, count_text, ms_text, us_text
from pocketmq.common.units import bytes_text

POOL_LOW_SHARE: Final = 0.4
"""RocketMQ warns below this share of free buffers (TransientStorePool.java)."""
FLUSH_BEHIND_BYTES: Final = 256 << 20
DISPATCH_BEHIND_BYTES: Final = 16 << 20
SYNC_SLOW_MS: Final = 100.0
"""A sync that takes this long at p99 is slow for any disk that serves a queue."""
FLUSH_INTERVAL_MS: Final = 500
"""RocketMQ MessageStoreConfig.flushIntervalCommitLog."""


def store_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on faults and limits behind the append."""
    yield from _pool(metrics)
    yield from _fence(metrics)
    yield from _flush(metrics)
    yield from _behind(metrics)
    yield from disk_space(metrics)


def free_buffers(metrics: BrokerMetrics) -> tuple[int, int] | None:
    """Return the numbers of free and of all write buffers; None if the pool is off or unknown."""
    if metrics.telemetry is not None:
        pool = metrics.pool
        return None if pool is None else (pool.available, pool.size)
    free = metrics.number("remainTransientStoreBufferNumbs")
    if free is None or free >= NO_POOL_BUFFERS or metrics.settings.flag("transient_store_pool_enable") is False:
        return None
    return free, metrics.settings.number("transient_store_pool_size") or 0


def pool_path(metrics: BrokerMetrics) -> str:
    """Return where the write buffers are, as the broker's settings say."""
    return clean(metrics.settings.text("transient_store_pool_path") or "") or "unknown"


def _pool(metrics: BrokerMetrics) -> Iterator[Finding]:
    buffers = free_buffers(metrics)
    if buffers is None:
        return
    free, size = buffers
    pool = metrics.pool
    evidence = f"free write buffers: {free} of {size}"
    behind = pool.uncommitted_bytes if pool is not None else metrics.size_bytes("remainHowManyDataToCommit") or 0
    waiting = f"in buffers, not committed yet: {bytes_text(behind)}"
    cure = "Find out why the commit to the file is slow (pocketmq doctor disk DIR); more buffers absorb longer bursts."
    if free <= 0 or (pool is not None and pool.deficient):
        yield error(
            key="pool-deficient",
            area=Area.POOL,
            title="no write buffer is free: sends are refused",
            evidence=(evidence, waiting),
            cause="A buffer is free again when its segment is committed; the disk takes less than producers send."
            if size > SEGMENTS_AHEAD
            else too_small(size),
            cure=cure if size > SEGMENTS_AHEAD else "Make the pool larger.",
            settings=more_buffers(metrics),
            reference="pocketmq scenario reject-request",
        )
    elif size > 0 and free < size * POOL_LOW_SHARE:
        yield warning(
            key="pool-low",
            area=Area.POOL,
            title=f"few write buffers are free: {free} of {size}",
            evidence=(evidence, waiting),
            cause="The commit lags behind the appends. At 0 free buffers sends are refused.",
            cure=cure,
            settings=more_buffers(metrics),
            reference="pocketmq scenario reject-request",
        )
    if pool is not None and pool.size > 0 and not pool.locked:
        yield warning(
            key="pool-not-locked",
            area=Area.POOL,
            title="the write buffers are not locked in RAM",
            evidence=(f"{pool.size} buffers, locked: no",),
            cause="The machine does not permit the lock, so the kernel may swap a buffer out, and an append then waits "
            "for the disk, which the pool is meant to prevent.",
            cure="Raise the limit of locked memory (ulimit -l, LimitMEMLOCK= in the service, docker run --ulimit "
            "memlock=-1) or give CAP_IPC_LOCK; disable swap.",
        )
    elif pool is not None and pool.survives and not pool.cannot_stall:
        yield warning(
            key="pool-on-disk",
            area=Area.POOL,
            title="the write buffers are files on a disk, not in shared memory",
            evidence=(f"store.transient_store_pool_path: {pool_path(metrics)}",),
            cause="Their pages are written back like those of the log, so a slow disk holds appends back.",
            cure="Set store.transient_store_pool_path to a directory on a tmpfs, as /dev/shm.",
        )
    survives = pool is not None and pool.survives
    yield note(
        key="pool-price",
        area=Area.POOL,
        title="the pool is on: messages in the buffers are lost when the machine dies, or with its shared memory"
        if survives
        else "the pool is on: messages in the buffers are lost when the process dies",
        evidence=(f"{waiting} (acknowledged, not in the file)",),
        cause="An append ends in memory; the commit thread writes it to the file up to 200 ms later."
        + (
            " After the death of the process the next start does that; but a new container has a new /dev/shm, and a "
            "restart of the machine an empty one."
            if survives
            else ""
        ),
        cure="Keep it if that loss is acceptable, and let containers share one /dev/shm (docker run --ipc=host, or a "
        "tmpfs of the host as volume); SYNC_FLUSH without the pool if it is not."
        if survives
        else "Set store.transient_store_pool_path to /dev/shm, so that the buffers survive the process; SYNC_FLUSH "
        "without the pool if no loss is acceptable.",
        settings=metrics.advice("commit_interval_commit_log", "smaller", "more, smaller writes"),
        reference="pocketmq scenario pool-loss",
    )


def _fence(metrics: BrokerMetrics) -> Iterator[Finding]:
    if metrics.telemetry is not None and metrics.telemetry.flush.fenced:
        yield error(
            key="log-fenced",
            area=Area.FLUSH,
            title="the log is fenced: a sync failed, and sends are refused until a restart",
            evidence=(f"not durable: {bytes_text(metrics.telemetry.flush.behind_bytes)}",),
            cause="After a failed sync the kernel may have dropped the pages, so data written since the last good sync "
            "may not be on the disk. The broker therefore acknowledges no more sends.",
            cure="See the store_error log and the kernel log, repair the disk, restart: recovery reads the log "
            "from the disk. Consumers can read meanwhile.",
        )


def flush_mode(metrics: BrokerMetrics) -> str:
    """Return ASYNC_FLUSH, SYNC_FLUSH or empty."""
    sent = metrics.telemetry.flush.mode if metrics.telemetry is not None else ""
    return clean(sent) or metrics.settings.text("flush_disk_type") or ""


def _flush(metrics: BrokerMetrics) -> Iterator[Finding]:
    if metrics.telemetry is None:
        return
    flush, waited = metrics.telemetry.flush, metrics.stage("flush_wait")
    sync_mode = flush_mode(metrics) == "SYNC_FLUSH"
    timeout_ms = metrics.settings.number("sync_flush_timeout") or 5000
    line = (
        f"sync: p50 {us_text(flush.p50_us)}, p99 {us_text(flush.p99_us)}, longest {us_text(flush.max_us)} "
        f"({count_text(flush.count)} {metrics.window})"
    )
    lines = (line,) if waited is None else (line, stage_line(waited, metrics.window))
    if sync_mode and waited is not None and waited.max_us >= timeout_ms * 1000:
        yield error(
            key="flush-timeout",
            area=Area.FLUSH,
            title=f"sends waited for their sync longer than {ms_text(timeout_ms)}: FLUSH_DISK_TIMEOUT",
            evidence=(*lines, *slowest_lines(metrics, "flush_wait")),
            cause="The disk did not sync in time. The message is stored, but its receipt cannot promise that it "
            "survives a loss of power.",
            cure="Find out what else uses the disk; use a disk with a protected write cache; more brokers.",
            settings=_flush_advice(metrics),
        )
    elif flush.count > 0 and flush.p99_us >= SYNC_SLOW_MS * 1000:
        interval_ms = metrics.settings.number("flush_interval_commit_log") or FLUSH_INTERVAL_MS
        late = sync_mode or flush.p99_us >= max(SYNC_SLOW_MS, interval_ms) * 1000
        yield Finding(
            key="sync-slow",
            severity=Severity.WARNING if late else Severity.NOTE,
            is_slowness=True,
            area=Area.FLUSH,
            title=f"syncs of the disk are slow: p99 {us_text(flush.p99_us)}",
            evidence=(*lines, *slowest_lines(metrics, "flush_wait")),
            cause="The disk needs this long to make written bytes durable; "
            + (
                "with SYNC_FLUSH every send waits for one of these."
                if sync_mode
                else f"with ASYNC_FLUSH sends do not wait for it. Above the {ms_text(interval_ms)} between two syncs "
                "(flush_interval_commit_log) the flush falls behind, and more is lost with the machine."
            ),
            cure="Measure the disk alone: pocketmq doctor disk DIR. If it is quick, something else keeps it busy.",
            settings=_flush_advice(metrics) if sync_mode else (),
        )
    elif sync_mode and flush.count > 0:
        yield note(
            key="sync-flush-cost",
            area=Area.FLUSH,
            title=f"SYNC_FLUSH: each send waits for the disk, {us_text(flush.p50_us)} at p50",
            evidence=lines,
            cause="A send gets its receipt when a sync has covered the message. One sync serves all waiting sends, so "
            "the rate grows with the requests in flight, but the latency does not fall.",
            cure="Nothing, if messages must survive a loss of power. Send with more in flight for a higher rate.",
            settings=_flush_advice(metrics),
        )


def _flush_advice(metrics: BrokerMetrics) -> tuple[Advice, ...]:
    return metrics.advice(
        "flush_disk_type",
        "ASYNC_FLUSH",
        "messages acknowledged since the last flush (up to 500 ms, at most 10 s when little is written) are lost with "
        "the machine",
    )


def behind_bytes(metrics: BrokerMetrics) -> int | None:
    """Return the number of bytes in the log that are not durable."""
    if metrics.telemetry is not None:
        return metrics.telemetry.flush.behind_bytes
    return metrics.size_bytes("remainHowManyDataToFlush")


def _behind(metrics: BrokerMetrics) -> Iterator[Finding]:
    behind = behind_bytes(metrics)
    if behind is not None and behind > FLUSH_BEHIND_BYTES:
        yield warning(
            key="flush-behind",
            is_slowness=True,
            area=Area.FLUSH,
            title=f"the flush is behind: {bytes_text(behind)} are not durable",
            evidence=(f"not flushed: {bytes_text(behind)} now",),
            cause="The disk writes back less than producers send. These bytes are lost with the machine; and dirty "
            "pages above the kernel's limit make appends stand still.",
            cure="Slow the producers down, or use more brokers or a faster disk. A shorter flush interval spreads the "
            "write-back, but does not speed up the disk.",
            settings=metrics.advice("flush_interval_commit_log", "200", "more syncs, each of them smaller"),
        )
    dispatch = metrics.size_bytes("dispatchBehindBytes")
    if dispatch is not None and dispatch > DISPATCH_BEHIND_BYTES:
        yield warning(
            key="dispatch-behind",
            area=Area.READS,
            title=f"consumers do not see the newest messages: dispatch is {bytes_text(dispatch)} behind",
            evidence=(f"stored and not visible yet: {bytes_text(dispatch)} now",),
            cause="Messages are stored faster than dispatch writes their entries in the consume queues, or dispatch "
            "stands still at a damaged record or a full disk.",
            cure="Watch whether it falls (--watch 5). If it grows without sends, see the store_error log.",
        )

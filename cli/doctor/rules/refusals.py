"""Rules: which refusal fires, and why.

Lives here: the refusals of flow control, explained with metrics; all other causes, as the table of refusals explains
them; and the reaction of old clients to a refusal.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import SEND_PAIR, BrokerMetrics, Refused
from pocketmq.cli.doctor.finding import Advice, Area, Finding, Severity, error, note
from pocketmq.cli.doctor.rules.slow_stage import explain_wait, pool_advice
from pocketmq.cli.doctor.words import clean, count_text, ms_text
from pocketmq.common.errors import Cause
from pocketmq.common.refusals import CLIENTS_OWN, REFUSALS
from pocketmq.common.units import bytes_text, plural

SYSTEM_BUSY: Final = 2
SEGMENTS_AHEAD: Final = 2
"""The current segment and the next one, prepared ahead (RocketMQ AllocateMappedFileService)."""
POOL_SIZE: Final = 5
"""RocketMQ MessageStoreConfig.transientStorePoolSize."""
_STAGES_IN_WORDS: Final = {
    "append": "the append is slow",
    "lock_wait": "the append lock is held",
    "process": "the checks are slow",
    "queue_wait": "more arrives than is served",
}


def refusal_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield a finding for each kind of refusal within the window."""
    yield from _page_cache(metrics)
    yield from _no_buffer(metrics)
    yield from _overload(metrics)
    yield from _timeout(metrics)
    yield from _others(metrics)
    yield from _without_telemetry(metrics)
    yield from _old_clients(metrics)


def seen(metrics: BrokerMetrics, refused: Refused) -> str:
    """Return how often requests were refused, as evidence."""
    remark = f'; the last: "{clean(refused.remark)}"' if refused.remark else ""
    return (
        f"{plural(refused.recent or 0, 'request')} refused {metrics.window}, {count_text(refused.total)} since the "
        f"start, code {refused.code}{remark}"
    )


def _page_cache(metrics: BrokerMetrics) -> Iterator[Finding]:
    busy = "the page cache is busy"
    kinds = {
        "REJECTREQUEST": ("-reject", f"sends are refused at admission: {busy}", "reject-request"),
        "PCBUSY_CLEAN_QUEUE": ("-sweep", f"the send queue is emptied: {busy}", "pcbusy"),
        "PC_SYNCHRONIZED": ("-put", f"puts are refused: {busy}", "pc-synchronized"),
        "": ("", f"sends are refused: {busy}", "pcbusy"),
    }
    for tag, (key, title, scenario) in kinds.items():
        for refused in metrics.refused(tag, cause="page_cache_busy"):
            yield _refusal(
                f"refused-page-cache{key}",
                Area.ADMISSION if tag == "REJECTREQUEST" else Area.PAGE_CACHE,
                f"[{tag}] {title}" if tag else title,
                (seen(metrics, refused), *page_cache_lines(metrics)),
                REFUSALS[Cause.PAGE_CACHE_BUSY].why,
                REFUSALS[Cause.PAGE_CACHE_BUSY].advice,
                () if _has_pool(metrics) else pool_advice(metrics),
                scenario,
            )


def page_cache_lines(metrics: BrokerMetrics) -> tuple[str, ...]:
    """Return the present and the longest hold of the append lock, as evidence."""
    if metrics.telemetry is None:
        held_ms = metrics.number("pageCacheLockTimeMills")
        return () if held_ms is None else (f"append lock held now for {ms_text(held_ms)}",)
    page_cache = metrics.telemetry.page_cache
    limit = f" of {ms_text(page_cache.timeout_ms)} allowed" if page_cache.timeout_ms > 0 else ""
    now = f"held now for {ms_text(page_cache.lock_held_ms)}" if page_cache.lock_held_ms > 0 else "free now"
    return (
        f"append lock {now}; longest hold {metrics.window}: {ms_text(page_cache.longest_hold_ms_last_minute)}{limit}",
    )


def _no_buffer(metrics: BrokerMetrics) -> Iterator[Finding]:
    pool = metrics.pool
    for refused in metrics.refusals:
        if refused.cause == "no_write_buffer":
            more: tuple[str, ...] = ()
            why, advice = REFUSALS[Cause.NO_WRITE_BUFFER].why, REFUSALS[Cause.NO_WRITE_BUFFER].advice
            if pool is not None and 0 < pool.size <= SEGMENTS_AHEAD:
                why, advice = too_small(pool.size), "Make the pool larger: the disk is not the reason."
            if pool is not None:
                more = (f"write buffers free now: {pool.available} of {pool.size}",)
                more += (f"not committed yet: {bytes_text(pool.uncommitted_bytes)}",)
            yield _refusal(
                "refused-no-buffer",
                Area.POOL,
                "[REJECTREQUEST] sends are refused: no free write buffer",
                (seen(metrics, refused), *more),
                why,
                advice,
                more_buffers(metrics),
                REFUSALS[Cause.NO_WRITE_BUFFER].scenario,
            )


def too_small(size: int) -> str:
    """Return why a pool of at most ``SEGMENTS_AHEAD`` buffers runs out of them."""
    return (
        f"The current segment and the next one take a buffer each: with {size} none is free while both exist, even "
        "when the disk is quick."
    )


def more_buffers(metrics: BrokerMetrics) -> tuple[Advice, ...]:
    """Return the advice to make the pool larger."""
    size = metrics.settings.number("transient_store_pool_size")
    segment_bytes = metrics.settings.number("mapped_file_size_commit_log") or 1 << 30
    return metrics.advice(
        "transient_store_pool_size",
        "more" if size is None or size < 1 else str(max(POOL_SIZE, size * 2)),
        f"{bytes_text(segment_bytes)} of locked memory for each buffer",
    )


def _overload(metrics: BrokerMetrics) -> Iterator[Finding]:
    for refused in [each for each in metrics.refusals if each.cause == "queue_full" or each.tag == "OVERLOAD"]:
        full = _full_pairs(metrics)
        send = metrics.pair(SEND_PAIR)
        if full and (send is None or send.refused_full <= 0):
            yield _refusal(
                "refused-queue-full-other",
                Area.READS,
                "[OVERLOAD] requests are refused: a queue other than the send queue is full",
                (seen(metrics, refused), *full),
                "The queue of these workers is at its limit of requests or bytes; sends are not affected.",
                "Find out what these requests wait for: reads from a busy disk, or a client that sends requests "
                "without a pause.",
            )
            continue
        why = explain_wait(metrics)
        yield _refusal(
            "refused-queue-full",
            Area.SEND_QUEUE,
            "[OVERLOAD] requests are refused: a queue is full (too many requests and system thread pool busy)",
            (seen(metrics, refused), *full, *why.evidence),
            f"{REFUSALS[Cause.QUEUE_FULL].why} {why.cause}",
            f"{why.cure} No cure: {'; '.join(REFUSALS[Cause.QUEUE_FULL].bad_cures)}.",
            why.settings,
            REFUSALS[Cause.QUEUE_FULL].scenario,
            why.concerns,
        )


def _full_pairs(metrics: BrokerMetrics) -> tuple[str, ...]:
    pairs = metrics.telemetry.pairs if metrics.telemetry is not None else []
    return tuple(
        f"{clean(pair.name)}: {count_text(pair.refused_full)} refused since the start; {count_text(pair.queue_size)} "
        f"of {count_text(pair.queue_capacity)} requests and {bytes_text(pair.queue_bytes)} of "
        f"{bytes_text(pair.queue_bytes_max)} waiting now"
        for pair in pairs
        if pair.refused_full > 0
    )


def _timeout(metrics: BrokerMetrics) -> Iterator[Finding]:
    for refused in [each for each in metrics.refusals if each.cause == "queue_timeout"]:
        swept = {pair.name: pair.swept for pair in metrics.telemetry.pairs} if metrics.telemetry is not None else {}
        others = [name for name, count in swept.items() if count > 0 and name != SEND_PAIR]
        if others and swept.get(SEND_PAIR, 0) <= 0:
            yield _refusal(
                "refused-timeout-other",
                Area.READS,
                f"[TIMEOUT_CLEAN_QUEUE] requests of {', '.join(map(clean, others))} waited too long",
                (seen(metrics, refused), *(f"{clean(name)}: {swept[name]} since the start" for name in others)),
                "They waited in their queue for longer than its limit; sends are not affected.",
                "Check the slow requests of these pairs; most are reads of old messages from a busy disk.",
            )
            continue
        why = explain_wait(metrics)
        limit_ms = metrics.wait_limit_ms(SEND_PAIR)
        yield _refusal(
            "refused-timeout",
            Area.SEND_QUEUE,
            f"[TIMEOUT_CLEAN_QUEUE] sends waited {limit_ms} ms or more in the queue: "
            f"{_STAGES_IN_WORDS.get(why.stage, 'which stage is slow is not known')}",
            (seen(metrics, refused), *why.evidence),
            f"{why.cause} Fast failure refuses a send after {limit_ms} ms, so that its client can still try another "
            "broker.",
            why.cure,
            why.settings,
            REFUSALS[Cause.QUEUE_TIMEOUT].scenario,
            why.concerns,
        )


OF_THEIR_OWN: Final = (Cause.PAGE_CACHE_BUSY, Cause.NO_WRITE_BUFFER, Cause.QUEUE_FULL, Cause.QUEUE_TIMEOUT)
"""Causes with their own rule, which reads metrics; the table of refusals explains all others."""
_SEVERITIES: Final = {Cause.SHUTTING_DOWN: Severity.WARNING}
"""Of causes that are neither an ERROR nor a client's mistake, which is a NOTE."""


def _others(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Causes that the table of refusals explains."""
    handled = {cause.value for cause in OF_THEIR_OWN}
    by_client = {each.cause for each in metrics.refused_requests}  # ``rules.requests`` reports them by client
    for refused in metrics.refusals:
        if refused.cause in handled or refused.cause in by_client or refused.tag == "OVERLOAD":
            continue
        row = _KNOWN.get(refused.cause)
        severity = Severity.NOTE if refused.cause in CLIENTS_OWN else Severity.ERROR
        yield Finding(
            key=f"refused-{clean(refused.cause) or 'other'}".replace("_", "-"),
            area=Area.ADMISSION if row is None else Area(row.area),
            severity=severity if row is None else _SEVERITIES.get(row.cause, severity),
            title=f"requests are refused: {f'cause {clean(refused.cause)}' if row is None else row.what}",
            evidence=(seen(metrics, refused),),
            cause="This version does not know the cause; see the last text." if row is None else row.why,
            cure="See the broker's log at the time of the last one." if row is None else row.advice,
            reference=f"pocketmq scenario {row.scenario}" if row is not None and row.scenario else "",
            concerns=(Area.ADMISSION,),
        )


_KNOWN: Final = {row.cause.value: row for row in REFUSALS.values()}


def _without_telemetry(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Refusals between two reads of the runtime table, for a broker that does not count them by cause."""
    if metrics.telemetry is not None or metrics.since_s is None:
        return
    failed, full = metrics.grown("putMessageFailedTimes"), metrics.grown("sendThreadPoolRefused")
    if full:
        yield _refusal(
            "refused-queue-full",
            Area.SEND_QUEUE,
            "[OVERLOAD] requests are refused: the send queue is full",
            (f"{plural(full, 'request')} refused within {metrics.since_s:.1f} s",),
            "The queue of the send worker is at its limit.",
            "Check the append (page cache, disk) and the rate of the producers. A longer queue only delays the "
            "refusals.",
            (),
            REFUSALS[Cause.QUEUE_FULL].scenario,
        )
    if failed:
        yield _refusal(
            "puts-failed",
            Area.APPEND,
            "puts fail",
            (f"{plural(failed, 'put')} failed within {metrics.since_s:.1f} s",),
            "The store refused these messages. No data on the reason from this broker.",
            "See the broker's store and store_error logs.",
        )


def _old_clients(metrics: BrokerMetrics) -> Iterator[Finding]:
    busy = [each for each in metrics.refusals if each.code == SYSTEM_BUSY]
    if not busy:
        return
    count = sum(each.recent or 0 for each in busy)
    yield note(
        key="old-clients-do-not-retry",
        area=Area.ADMISSION,
        title="old RocketMQ clients do not retry code 2 (SYSTEM_BUSY)",
        evidence=(f"{plural(count, 'answer')} with code 2 {metrics.window}",),
        cause="These refusals are meant for a retry on another broker. Clients before 5.3.0 do not have code 2 in "
        "their retry set and end the send with an exception instead.",
        cure="Clients from 4.9.2 on: producer.addRetryResponseCode(2). Clients from 5.3.0 on and PocketMQ's producer "
        "do it by default. For older ones a longer wait in the queue is a stopgap.",
        settings=metrics.advice(
            "wait_time_mills_in_send_queue",
            "1000, only while old clients exist",
            "up to 1 s more, of its 3 s, before a client learns that it should try elsewhere",
        ),
        reference="pocketmq scenario retry-codes",
    )


def _has_pool(metrics: BrokerMetrics) -> bool:
    if metrics.telemetry is not None:
        return metrics.pool is not None
    return metrics.settings.flag("transient_store_pool_enable") is True


def _refusal(
    key: str,
    area: Area,
    title: str,
    evidence: tuple[str, ...],
    cause: str,
    cure: str,
    settings: tuple[Advice, ...] = (),
    scenario: str = "",
    concerns: tuple[Area, ...] = (),
) -> Finding:
    return error(
        key=key,
        area=area,
        title=title,
        evidence=evidence,
        cause=cause,
        cure=cure,
        settings=settings,
        reference=f"pocketmq scenario {scenario}" if scenario else "",
        concerns=(Area.ADMISSION, *concerns),
    )

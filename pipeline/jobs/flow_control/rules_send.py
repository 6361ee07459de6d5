"""Rules for refused sends: the queue, the page cache, the write-buffer pool (classes 1 to 3).

Lives here: ``chains``, and the link of clients, which other rules share.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

from pocketmq.common.errors import Cause
from pocketmq.common.refusals import REFUSALS
from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.flow_control.chain import Case, Chain, Step, cite, ms
from pocketmq.pipeline.jobs.flow_control.facts import BUSY_MS

SLOW_APPEND_MS: Final = 20.0
"""An append from this on is slow, as in the doctor."""
SLOW_SYNC_MS: Final = 100.0
LONG_HOLD_MS: Final = 500.0
SMALL_POOL: Final = 3
APART_MS: Final = 15_000
ROOTS: Final = (
    ("fault_injected", "The disk's calls were delayed or failed on purpose: this broker runs with fault.enable"),
    ("create_mapped_file_timeout", "The next file of the log was not ready in time"),
    ("create_mapped_file_failed", "The next file of the log could not be made"),
    ("commit_slow", "The commit of write buffers to the file took long"),
    ("commit_failed", "The commit of write buffers to the file failed"),
    ("thread_dump", "While sends were refused, the stack of the send thread shows where it waited"),
)
"""Events that explain a slow append, and their texts."""
SEND_CAUSES: Final = (Cause.QUEUE_FULL, Cause.QUEUE_TIMEOUT, Cause.PAGE_CACHE_BUSY, Cause.NO_WRITE_BUFFER)
"""Causes with rules in this module."""
CLEAN_CURES: Final = (
    "Find what else uses the disk (pocketmq doctor disk DIR, iostat): appends must become fast.",
    "Write-buffer pool (store.transient_store_pool_enable=true): appends go to locked memory. It costs "
    "transient_store_pool_size segments of memory, and what is not committed is lost with the process.",
    "A second broker, and clients that try SYSTEM_BUSY again (PocketMQ and RocketMQ 5.3: default; 4.9.2 on: "
    "addRetryResponseCode(2)).",
)


def chains(case: Case) -> Iterator[Chain]:
    """Yield at most one chain: of refused sends the first cause in the order page cache, pool, full queue, wait."""
    case = _told_apart(case)
    busy, no_buffer = case.refused("page_cache_busy"), case.refused("no_write_buffer")
    full, late = case.refused("queue_full"), case.refused("queue_timeout")
    apart = bool(busy) and _apart(case)
    if busy:
        causes = ("page_cache_busy",) if apart else ("page_cache_busy", "queue_timeout", "queue_full")
        yield _page_cache(case, case.refused(*causes), causes)
    if no_buffer:
        yield _no_buffer(case, no_buffer)
    if (apart or not busy) and (full or late):
        yield _queue(case, full, late)
    if not (busy or no_buffer or full or late):
        yield from _slow_without_refusal(case)


def _told_apart(case: Case) -> Case:
    """Return the case with the cause of [REJECTREQUEST] that RocketMQ's text leaves open: no buffer was free."""
    if not case.one("event", "transient_store_pool_low") or case.of("hold"):
        return case
    evidence = [
        dataclasses.replace(each, cause="no_write_buffer")
        if each.tag == "REJECTREQUEST" and each.cause == "page_cache_busy"
        else each
        for each in case.evidence
    ]
    return Case(case.incident, evidence)


def _apart(case: Case) -> bool:
    """Return whether the queue also refused long before or after the page cache was busy, for a cause of its own."""
    busy = case.of("refusal", cause="page_cache_busy")
    others = [each for each in case.of("refusal") if each.cause in ("queue_timeout", "queue_full")]
    first_ms, last_ms = min(each.first_ms for each in busy), max(each.last_ms for each in busy)
    return any(each.first_ms < first_ms - APART_MS or each.last_ms > last_ms + APART_MS for each in others)


def clients(case: Case) -> Step:
    """Return the link of the clients' reactions."""
    attempts = case.of("attempt")
    again, ended = sum(each.again for each in attempts), sum(each.ended for each in attempts)
    if not attempts:
        return Step("What became of these sends in their clients is not known: no client's log names this broker")
    text = f"Clients tried {plural(again, 'send')} again; {ended:,} ended with an error"
    return Step(text, [cite(each) for each in attempts])


def no_cure(cause: Cause) -> str:
    """Return common advice against this cause that only hides it."""
    return f"No cure: {'; '.join(REFUSALS[cause].bad_cures)}."


def _refusals(case: Case, *causes: str) -> Step:
    refused = [each for each in case.of("refusal") if each.cause in causes]
    kinds = ", ".join(f"{each.count:,} × {f'[{each.tag}]' if each.tag else each.cause}" for each in refused)
    count = plural(case.refused(*causes), "request")
    return Step(f"The broker refused {count}: {kinds}", [cite(each) for each in refused])


def _roots(case: Case) -> list[Step]:
    """Return the reasons for a slow append in the logs, else that there are none."""
    unknown = Step("What made the append slow is not in the logs: look at the disk and the machine of that time")
    return _shown_roots(case) or [unknown]


def _shown_roots(case: Case) -> list[Step]:
    steps: list[Step] = []
    for name, text in ROOTS:
        event = case.one("event", name)
        if event is not None:
            steps.append(Step(text, [cite(event)]))
    sync = case.one("stage", "sync")
    if sync is not None and (sync.p99 >= SLOW_SYNC_MS or sync.highest >= LONG_HOLD_MS):
        steps.append(Step(f"The disk was slow: a sync took up to {ms(sync.highest)}", [cite(sync)]))
    return steps


def _append(case: Case) -> Step | None:
    """Return the link of the slow append, None if the logs show none."""
    cited: list[str] = []
    longest = 0.0
    for each in (case.one("stage", "append"), *case.of("part", "append"), *case.of("hold")):
        if each is not None and each.highest >= SLOW_APPEND_MS:
            longest = max(longest, each.highest)
            cited.append(cite(each))
    return Step(f"An append took up to {ms(longest)}, under the append lock", cited) if cited else None


def _lock(case: Case) -> list[Step]:
    waits = [each for each in case.of("stage", "lock_wait") if each.highest >= LONG_HOLD_MS]
    waits += [each for each in case.of("slow", "lock_wait") if each.count]
    return [Step("Others waited for the append lock", [cite(each) for each in waits])] if waits else []


def _queued(case: Case) -> Step:
    cited = case.cited("stage", "queue_wait") + case.cited("slow", "queue_wait")
    cited += case.cited("gauge", "send_queue_size", "send_head_wait_ms")
    cited += case.cited("refusal", cause="queue_timeout")  # its text has the time in the queue and its size
    return Step("Sends waited in the queue", cited)


def _page_cache(case: Case, weight: int, causes: tuple[str, ...]) -> Chain:
    append = _append(case)
    holds = [each for each in case.of("hold") if each.highest >= LONG_HOLD_MS]
    longest = max((each.highest for each in holds), default=0.0)
    steps = _roots(case)
    steps.append(append or Step("An append was slow; how slow is not in the logs"))
    steps += _lock(case)
    steps.append(
        Step(
            f"The append lock was held for more than {ms(BUSY_MS)} ({ms(longest)}): the page cache counts as busy"
            if longest
            else "The page cache counted as busy; how long the append lock was held is not in the logs",
            [cite(each) for each in holds],
        )
    )
    steps += [_refusals(case, *causes), clients(case)]
    cures = [*CLEAN_CURES, no_cure(Cause.PAGE_CACHE_BUSY)]
    summary = "One append stood still, so the page cache was busy and sends were refused"
    return Chain(2, summary, steps, cures, REFUSALS[Cause.PAGE_CACHE_BUSY].scenario, weight)


def _no_buffer(case: Case, weight: int) -> Chain:
    small = case.one("event", "write_buffer_pool_too_small")
    size, free = case.one("gauge", "write_buffers"), case.one("gauge", "write_buffers_available")
    free_cited = [cite(each) for each in (size, free) if each is not None]
    free_cited += case.cited("event", "transient_store_pool_low")
    is_small = small is not None or (size is not None and 0 < size.highest < SMALL_POOL)
    if is_small:
        cited = [cite(each) for each in (small, size) if each is not None]
        steps = [
            Step(
                "The write-buffer pool is too small: one buffer is in use and one prepared, so none is ever free",
                cited,
            )
        ]
        summary = "The write-buffer pool has too few buffers, so every send was refused"
        cures = ["store.transient_store_pool_size = 5 (default) or more: one segment of locked memory each."]
    else:
        behind = case.one("gauge", "uncommitted_bytes")
        steps = [
            *_roots(case),
            Step(
                "Buffers were filled faster than they were committed to the file",
                [] if behind is None else [cite(behind)],
            ),
        ]
        summary = "The disk took commits more slowly than sends came, so no write buffer was free"
        cures = [
            "Find why commits are slow (pocketmq doctor disk DIR); a faster disk or more brokers.",
            no_cure(Cause.NO_WRITE_BUFFER),
        ]
    steps += [Step("No write buffer was free", free_cited), _refusals(case, "no_write_buffer"), clients(case)]
    return Chain(2, summary, steps, cures, REFUSALS[Cause.NO_WRITE_BUFFER].scenario, weight)


def _queue(case: Case, full: int, late: int) -> Chain:
    """Classes 1 and 3: the queue in front of the send worker."""
    append = _append(case)
    stages = case.of("stage")
    missing: list[str] = []
    if append is not None:
        steps = [*_roots(case), append, *_lock(case)]
        why = "because appends were slow"
        cures = [*CLEAN_CURES]
        cures.append(
            "Group append (broker.send_drain_max=4096, the default) if it is set lower: one append for all that wait."
        )
        calm = [each for each in case.of("hold") if each.tag == "calm"]
        if calm:
            steps.append(
                Step(
                    f"The append lock was held for {ms(calm[0].highest)} and the page cache did not count as busy: "
                    "os_page_cache_busy_timeout_mills is above its 1,000 ms",
                    [cite(each) for each in calm],
                )
            )
            cures.append(
                "Set store.os_page_cache_busy_timeout_mills back to 1000: raised, it only makes refusals slow."
            )
    else:
        slow = [each for each in stages if each.name in ("process", "lock_wait") and each.p99 >= SLOW_APPEND_MS]
        if slow:
            worst = max(slow, key=lambda each: each.p99)
            steps = [Step(f"Requests took up to {ms(worst.highest)} in stage {worst.name}", [cite(worst)])]
            why = f"because of the stage {worst.name}"
            cures = ["Look at the slow requests (slow_request_… events) of that stage."]
        elif stages:
            steps = [
                Step(
                    "More came than the broker serves: no stage but the queue was slow", [cite(each) for each in stages]
                )
            ]
            why = "because more came than is served"
            cures = ["More brokers or queues over brokers; producers that send batches; fewer clients at once."]
        else:
            steps = [*_shown_roots(case), Step("Which stage was slow is not in the logs")]
            why = "for a reason that the logs do not show"
            missing.append("stage times: lines of the event interval, level info (docs/metrics.md)")
            cures = ["Keep the broker's log at level info, then ask again; pocketmq doctor shows the live broker."]
    steps.append(_queued(case))
    if full:
        busy = case.cited("event", "thread_pool_busy")
        if busy:
            steps.append(Step("The queue reached its limit", busy))
        cures.append(no_cure(Cause.QUEUE_FULL))
    steps += [_refusals(case, "queue_timeout", "queue_full"), clients(case)]
    number, cause = (3, Cause.QUEUE_FULL) if full else (1, Cause.QUEUE_TIMEOUT)
    what = "The send queue was full" if full else "Sends waited too long in the queue and were refused"
    return Chain(number, f"{what}, {why}", steps, cures, REFUSALS[cause].scenario, full + late, missing)


def _slow_without_refusal(case: Case) -> Iterator[Chain]:
    """Yield the chain of a long hold, or of slow requests, without a refusal."""
    append = _append(case)
    attempts = case.of("attempt", "send")
    slow = case.of("slow", "queue_wait", "append", "process", "lock_wait")
    longest = max((each.highest for each in case.of("hold")), default=0.0)
    if not (slow or longest >= BUSY_MS) or case.of("slow", "replica_wait"):
        return
    steps = _shown_roots(case) if append is None else _roots(case)
    steps += [append or Step("Which stage was slow is not in the logs"), _queued(case), clients(case)]
    text = "Appends or requests took long, and the broker refused no request"
    cures = [*CLEAN_CURES, "Is broker_fast_failure_enable off? Then the broker works for clients that gave up."]
    yield Chain(1, text, steps, cures, REFUSALS[Cause.QUEUE_TIMEOUT].scenario, sum(each.count for each in attempts))

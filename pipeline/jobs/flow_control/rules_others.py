"""Rules beside those of the send queue: slaves, locks of ordered queues, disks, roles, clients alone.

Lives here: ``chains``, ``unexplained``.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.common.errors import Cause
from pocketmq.common.refusals import REFUSALS
from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.flow_control.chain import Case, Chain, Step, cite, ms
from pocketmq.pipeline.jobs.flow_control.minutes import NO_INCIDENT
from pocketmq.pipeline.jobs.flow_control.rules_send import SEND_CAUSES, clients

SLAVE_ROOTS: Final = (
    ("slave_disk_failed", "The slave's disk failed: it takes no more of the log"),
    ("slave_disconnected", "A slave lost its connection"),
    ("slave_lost_master", "A slave lost its master"),
    ("slave_not_counted", "A slave's confirmations do not count"),
)
OTHER_CAUSES: Final = tuple(
    row
    for row in REFUSALS.values()
    if row.cause not in SEND_CAUSES and row.cause.value not in NO_INCIDENT and not row.never_from_broker
)
"""Causes whose chain is their row in the table of refusals."""
EVENTS: Final = ("disk_full", "log_fenced", "fenced", "master_fenced", "append_failed")
"""Events that show one of these causes."""
OWN_EVENTS: Final = {Cause.DISK_FULL: ("disk_full",), Cause.DISK_ERROR: ("append_failed",)}
"""Events that need no refusal beside them: clients' logs may be missing, or the process ended."""


def chains(case: Case) -> Iterator[Chain]:
    """Yield a chain for each trouble of these kinds."""
    yield from _slaves(case)
    yield from _locks(case)
    yield from _unsafe(case)
    for row in OTHER_CAUSES:
        refused = case.of("refusal", cause=row.cause.value)
        shown = case.of("event", *OWN_EVENTS.get(row.cause, ()))
        if refused or (shown and row.cause in OWN_EVENTS):
            count = sum(each.count for each in refused)
            text = f"{row.what[0].upper()}{row.what[1:]}: requests were refused"
            steps = [Step(text, case.cited("event", *EVENTS))]
            if refused:
                steps.append(Step(f"The broker refused {plural(count, 'request')}", [cite(each) for each in refused]))
            steps.append(clients(case))
            yield Chain(0, text, steps, [row.advice], row.scenario, count or sum(each.count for each in shown))


def _slaves(case: Case) -> Iterator[Chain]:
    timeouts, missing = case.of("sum", "slave_timeouts"), case.of("sum", "slave_not_available")
    waits = case.of("slow", "replica_wait")
    answers = [each for each in case.of("attempt", "stored") if each.code in (11, 12)]
    late = [each for each in case.of("stage", "replica_wait") if each.highest >= 1000]
    disk = case.of("event", "slave_disk_failed")
    late_events = case.of("event", "flush_slave_timeout", "replica_wait_long")
    if not (timeouts or missing or waits or answers or late or disk or late_events):
        return
    steps: list[Step] = []
    for name, text in SLAVE_ROOTS:
        event = case.one("event", name)
        if event is not None:
            steps.append(Step(text, [cite(event)]))
    if not steps:
        steps.append(Step("Why the slave did not confirm is not in the logs: no line of a slave is among them"))
    behind = case.of("gauge", "slave_behind_bytes_max", "slave_behind_ms_max", "copies_in_sync")
    steps.append(Step("The slave fell behind", [cite(each) for each in behind]))
    longest = max((each.highest for each in (*waits, *late)), default=0.0)
    if waits or late:
        text = f"Sends waited for the slave, up to {ms(longest)}"
        steps.append(Step(text, [cite(each) for each in (*late, *waits)]))
    count = sum(each.count for each in (*timeouts, *missing))
    if not timeouts:  # the process ended before it summed them up
        timeouts = [each for each in late_events if each.name == "flush_slave_timeout"]
        count += sum(each.count for each in timeouts)
    if timeouts or missing:
        steps.append(
            Step(
                "The master answered FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE (stored here, not there)",
                [cite(each) for each in (*timeouts, *missing)],
            )
        )
    steps.append(clients(case))
    ended = sum(each.ended for each in case.of("attempt", "send"))
    cures = [
        "Repair or replace the slave: pocketmq ha status shows which one is behind.",
        "A smaller store.ha_slave_fallbehind_max (256 MB): beyond the gap the answer is SLAVE_NOT_AVAILABLE at once, "
        "not a wait.",
        "A shorter store.slave_timeout than the clients' send timeout: clients then get a status, not an exception.",
        "A second slave with in_sync_replicas=2 of total_replicas=3: one may be missing.",
    ]
    summary = "A slave did not confirm, so sends of a synchronous master waited for it"
    scenario = "slave-readonly" if disk else "slave-frozen" if waits or late else "slave-killed"
    yield Chain(4, summary, steps, cures, scenario, count + ended + sum(each.count for each in waits))


def _locks(case: Case) -> Iterator[Chain]:
    refused = case.of("event", "queue_lock_refused", "queue_waits_for_lock")
    if not refused:
        return
    expired = case.of("event", "queue_lock_expired", "queue_lock_taken_away", "consumer_disconnected")
    count = sum(each.count for each in refused)
    steps = [
        Step(
            "A consumer held the lock of a queue and was gone without giving it back"
            if expired
            else "A consumer held the lock of a queue; whether it was still there is not in the logs",
            [cite(each) for each in expired],
        ),
        Step(f"Another one found the queue locked {plural(count, 'time')}", [cite(each) for each in refused]),
    ]
    cures = [
        "End consumers gracefully (SIGTERM, then wait): that unlocks.",
        "Renew every 5 s and let locks expire after 15 s (expiry at three times the renewal).",
        "pocketmq lock list shows who holds the lock (RocketMQ: its lock.log), pocketmq lock release takes it away.",
    ]
    yield Chain(
        5, "An ordered queue waited for a lock that another consumer held", steps, cures, "ordered-lock-stuck", count
    )


def _unsafe(case: Case) -> Iterator[Chain]:
    flush = case.of("event", "flush_disk_timeout")
    answers = [each for each in case.of("attempt", "stored") if each.code == 10]
    if not (flush or answers):
        return
    waits = [each for each in (case.one("stage", "flush_wait"), case.one("stage", "sync")) if each is not None]
    steps = [
        Step("The disk was slow to make the log durable", [cite(each) for each in waits]),
        Step(
            "Sends were answered FLUSH_DISK_TIMEOUT: stored, not known to be durable",
            [cite(e) for e in (*flush, *answers)],
        ),
        clients(case),
    ]
    cures = [
        "Find why syncs are slow: pocketmq doctor disk DIR.",
        "A send that was tried again can be there twice: consumers must be idempotent (docs/consuming.md).",
    ]
    yield Chain(
        6, "Syncs were slower than senders wait", steps, cures, "", sum(each.count for each in (*flush, *answers))
    )


def unexplained(case: Case) -> Chain:
    """Return the chain of an incident that no rule fits."""
    refused = [each for each in case.of("refusal") if each.cause not in NO_INCIDENT]
    steps = [Step("The broker refused requests", [cite(each) for each in refused])] if refused else []
    attempts = case.of("attempt")
    if attempts and not refused:
        steps.append(Step("The broker's own logs show nothing: it was not reached, or its logs are missing"))
    steps.append(clients(case))
    missing = ["the broker's log of that time, at level info"]
    cures = ["Look at the broker's process, machine and network of that time; add its logs and run again."]
    weight = sum(each.count for each in (*refused, *attempts))
    return Chain(0, "Not enough evidence for a cause", steps, cures, "", weight, missing)

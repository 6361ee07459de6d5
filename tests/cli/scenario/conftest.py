"""A small report for the drawings."""

import pytest

from pocketmq.cli.scenario.report.report import (
    Check,
    Evidence,
    Phase,
    Report,
    Send,
    latency,
    outcomes_of,
    points_of,
)

BUSY = "2 SYSTEM_BUSY: [TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: {}ms, size of queue: {}"


def sends() -> list[Send]:
    delivered = [Send(number / 10, 1.5 + number, True, "SEND_OK", stored="yes") for number in range(30)]
    refused = [
        Send(number / 10, 200.0 + number, False, BUSY.format(200 + number, number), "queue_timeout", "no")
        for number in range(10)
    ]
    return delivered + refused


def phase(*, ok: bool = True, name: str = "as it is", role: str = "fault") -> Phase:
    all_sends = sends()
    outcomes = outcomes_of(all_sends)
    return Phase(
        name=name,
        role=role,
        settings={"broker.send_drain_max": "1"},
        load="40 sends",
        sends=len(all_sends),
        delivered=30,
        outcomes=outcomes,
        delivered_latency=latency([send.took_ms for send in all_sends if send.delivered]),
        failed_latency=latency([send.took_ms for send in all_sends if not send.delivered]),
        evidence=[Evidence("most sends that waited in the queue", "875", "runtime info", "broker-1a")],
        checks=[Check("some are refused", "10", True), Check("the fault hit the disk", "0 calls hit", ok)],
        says="what it says",
        points=points_of(all_sends, outcomes),
    )


def report_of(*phases: Phase) -> Report:
    return Report(
        scenario="timeout-clean-queue",
        incident="an incident",
        question="a question?",
        quick=True,
        machine="2 cores",
        started_ms=1,
        duration_s=12.0,
        phases=list(phases),
        cure="the cure",
        price="the price",
        ok=all(each.ok for each in phases),
    )


@pytest.fixture
def report() -> Report:
    return report_of(phase(), phase(name="cured", role="cure"))


@pytest.fixture
def report_that_differs() -> Report:
    return report_of(phase(ok=False))

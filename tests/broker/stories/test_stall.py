"""The disk stalls for three seconds under load: which requests wait, which are answered, and the state afterwards.

Real threads, a real connection for each client, and a real store whose segment does not return from one append.
"""

import asyncio
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pull.pull_checks import SUBSCRIPTION_FLAG
from pocketmq.broker.request.request_task import Drain
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.pull import PullMessageRequestHeader
from tests.broker.conftest import Client, eventually, split_records, store_config
from tests.broker.raw_client import RawClient
from tests.broker.stalled_disk import StalledDisk

STALL_S = 3.0
LIMIT_MS = 200
SEND_EVERY_S = 0.005
CLIENTS = 8
BODY = 1000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class RecordingProcessor:
    """The send processor, and how many requests each drain took."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.drains: list[int] = []

    def reject_request(self) -> Any:
        return self.inner.reject_request()

    def process(self, drain: Drain) -> None:
        self.drains.append(len(drain.tasks))
        self.inner.process(drain)


@dataclass
class Report:
    """The results of the sends posted while the disk stalled, and of the other requests."""

    unanswered: list[bytes] = field(default_factory=list)
    """Sends without an answer when the disk went on."""
    responses: dict[bytes, Any] = field(default_factory=dict)
    other_codes: set[int] = field(default_factory=set)
    drains: list[int] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)

    def refused(self, tag: str) -> list[bytes]:
        return [body for body, response in self.responses.items() if response.remark.startswith(f"[{tag}]")]

    def acknowledged(self) -> list[bytes]:
        return [body for body, response in self.responses.items() if response.code == 0]


async def run_stall(path: Path, **settings: Any) -> Report:
    """Start a broker, put load on it, let its disk stall for ``STALL_S``, and report."""
    disk, report = StalledDisk(), Report()
    config = BrokerConfig(**{"listen_port": 0, "wait_time_mills_in_send_queue": LIMIT_MS, **settings})
    app = BrokerApp(config, store_config(path / "store"), file_system=disk, log=CapturedLog())
    await app.start()
    clients = [await RawClient(app.port).__aenter__() for _ in range(CLIENTS + 1)]
    try:
        await load_and_stall(app, disk, clients, report)
        wanted = len(report.acknowledged()) + 1
        await eventually(lambda: app.store.max_offset("T", 0) >= wanted)
        await asyncio.sleep(0.05)  # unexpected messages have had time to arrive
        report.stored = [body async for body in read_all(clients[0], app.store.max_offset("T", 0))]
    finally:
        disk.open_gate()
        for client in clients:
            await client.__aexit__()
        await app.stop()
    return report


async def load_and_stall(app: BrokerApp, disk: StalledDisk, clients: list[RawClient], report: Report) -> None:
    *senders, other = clients
    while (await senders[0].answer(senders[0].post_send(b"first"))).code != 0:
        pass
    await eventually(lambda: app.store.max_offset("T", 0) == 1)
    executor = app.request_table.executor("SendMessageThread")
    recording = RecordingProcessor(executor.processor)
    executor.processor = recording
    posted: dict[bytes, tuple[RawClient, int]] = {}
    others: list[int] = []
    records = Client(None, None)
    disk.shut()
    number = 0
    next_send = time.monotonic()
    while number < STALL_S / SEND_EVERY_S:
        while next_send <= time.monotonic():  # an open loop: sends that the machine delayed follow nevertheless
            client = senders[number % CLIENTS]
            body = b"%08d" % number + b"x" * BODY
            opaque = client.post_append(records.record("T", body)) if number % 2 else client.post_send(body)
            posted[body] = (client, opaque)
            if number % 10 == 0:
                others += post_others(other)
            number += 1
            next_send += SEND_EVERY_S
        await asyncio.sleep(max(0.0, next_send - time.monotonic()))
    # All requests outside the append are answered while the disk stalls: otherwise the test's timeout ends this.
    report.other_codes = {(await other.answer(opaque)).code for opaque in others}

    def unanswered() -> list[bytes]:
        return [body for body, (client, opaque) in posted.items() if opaque not in client.answered_ns]

    if app.config.broker_fast_failure_enable:
        await eventually(lambda: len(unanswered()) <= max(recording.drains))
    report.unanswered = unanswered()
    report.drains = list(recording.drains)
    disk.open_gate()
    for body, (client, opaque) in posted.items():
        report.responses[body] = await client.answer(opaque)


def post_others(client: RawClient) -> list[int]:
    """Post one request of each other kind."""
    pull = PullMessageRequestHeader("group", "T", 0, 0, 32, SUBSCRIPTION_FLAG, 0, 0, 0, "*")
    return [
        client.post(RequestCode.PULL_MESSAGE, pull),
        client.post(RequestCode.HEART_BEAT, None, b'{"clientID":"c","producerDataSet":[]}'),
        client.post(RequestCode.GET_BROKER_RUNTIME_INFO),
    ]


async def read_all(client: RawClient, end: int) -> Any:
    """Yield the bodies of the queue, in order."""
    offset = 0
    while offset < end:
        pull = PullMessageRequestHeader("group", "T", 0, offset, 32, SUBSCRIPTION_FLAG, 0, 0, 0, "*")
        response: Any = await client.answer(client.post(RequestCode.PULL_MESSAGE, pull))
        assert response.code == 0, response
        for record in split_records(response.body):
            yield record.body
        offset = response.header.next_begin_offset


def queue_wait_ms(response: Any) -> float:
    """Return the queue wait of a refused request, as the broker reports it."""
    period = re.search(r"period in queue: (\d+)ms", response.remark)
    return float(period[1]) if period else 0.0


def check_truth(report: Report) -> None:
    """Every request has one true answer: acknowledged and stored messages are the same, once each, in order."""
    stored = [body for body in report.stored if body != b"first"]
    assert sorted(stored) == sorted(report.acknowledged())
    assert len(report.responses) >= STALL_S / SEND_EVERY_S
    for response in report.responses.values():
        if response.code != 0:
            assert (response.code, response.extra["stored"]) == (2, "no")
            assert int(response.extra["retry_after_ms"]) > 0
    assert report.other_codes == {0}


async def test_everybody_but_one_drain_is_answered_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk stalls: those in the queue expire, later ones fail at admission; only the drain that hangs
    in the append waits, and it is acknowledged correctly. Pulls, heartbeats and runtime info still work."""
    monkeypatch.setattr("pocketmq.broker.flow_control.fast_failure.FIRST_AFTER_S", 0.0)
    report = await run_stall(tmp_path)
    check_truth(report)
    assert len(report.drains) == 1
    assert len(report.unanswered) <= report.drains[0]
    assert set(report.unanswered) <= set(report.acknowledged())
    swept, emptied, rejected = (
        report.refused(tag) for tag in ("TIMEOUT_CLEAN_QUEUE", "PCBUSY_CLEAN_QUEUE", "REJECTREQUEST")
    )
    assert len(swept) + len(emptied) + len(rejected) + len(report.acknowledged()) == len(report.responses)
    assert rejected
    assert swept or emptied
    assert all(queue_wait_ms(report.responses[body]) >= LIMIT_MS for body in swept)


@pytest.mark.soak
async def test_without_fast_failure_the_same_requests_wait_for_the_disk(tmp_path: Path) -> None:
    """They sit in the queue until the stall is over, longer than most of a client's 3 s; only admission control still
    refuses. Their answers are true all the same."""
    report = await run_stall(tmp_path, broker_fast_failure_enable=False)
    check_truth(report)
    assert report.refused("TIMEOUT_CLEAN_QUEUE") == report.refused("PCBUSY_CLEAN_QUEUE") == []
    assert len(report.unanswered) > report.drains[0]
    assert set(report.unanswered) <= set(report.acknowledged())
    assert report.refused("REJECTREQUEST")


@pytest.mark.soak
async def test_with_two_send_threads_the_second_drain_waits_for_the_busy_limit_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives up with [PC_SYNCHRONIZED] when the first has held the lock for a second; all others are answered."""
    monkeypatch.setattr("pocketmq.broker.flow_control.fast_failure.FIRST_AFTER_S", 0.0)
    report = await run_stall(tmp_path, send_message_thread_pool_nums=2)
    check_truth(report)
    assert report.refused("PC_SYNCHRONIZED")
    assert len(report.unanswered) <= max(report.drains)
    assert set(report.unanswered) <= set(report.acknowledged())

"""Parts of the scenarios about replication: RocketMQ's serial wait, the cable, the definition of a lost message."""

import asyncio
import inspect
from collections import Counter
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.cli.scenario.harness.cable import Cable
from pocketmq.cli.scenario.harness.original import SerialTransfer, StubbornSlave
from pocketmq.cli.scenario.harness.replicas import READ_ONLY, GroupMeasured, GroupPlan, all_ok, all_safe_after
from pocketmq.cli.scenario.incidents import network_cut, slave_frozen, slave_killed, slave_readonly
from pocketmq.cli.scenario.report.report import Send
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import StoreError
from pocketmq.store.ha.group_transfer import GroupTransfer
from pocketmq.store.ha.service import HaService
from pocketmq.store.ha.slave import HaSlave

TIMEOUT_MS = 5000


class Group:
    """A transfer with slaves whose offsets a test sets; ``answers``: (number, status, ms since the start)."""

    def __init__(self, kind: type[GroupTransfer]) -> None:
        self.confirmed = 0
        self.slave_ok = True
        self.clock = ManualClock()
        self.begin_ns = self.clock.monotonic_ns()
        self.transfer = kind(self.clock, TIMEOUT_MS, lambda: self.confirmed, lambda end: self.slave_ok, CapturedLog())
        self.transfer.start(SteppedRunner())
        self.answers: list[tuple[int, PutStatus, int]] = []

    def wait(self, number: int) -> None:
        def done(status: PutStatus) -> None:
            self.answers.append((number, status, (self.clock.monotonic_ns() - self.begin_ns) // 1_000_000))

        self.transfer.wait(number, done)

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.transfer.watch()
            self.clock.advance_ms(100)
        self.transfer.watch()


def test_the_original_answers_one_after_the_other() -> None:
    """The third of three simultaneous waiters gets its answer after three timeouts; in PocketMQ all do after one."""
    serial, ours = Group(SerialTransfer), Group(GroupTransfer)
    for group in (serial, ours):
        for number in (1, 2, 3):
            group.wait(number)
        assert len(group.transfer.waiters) == 3
        group.pass_ms(3 * TIMEOUT_MS)
    late = PutStatus.FLUSH_SLAVE_TIMEOUT
    assert serial.answers == [(1, late, 5000), (2, late, 10_000), (3, late, 15_000)]
    assert ours.answers == [(1, late, 5000), (2, late, 5000), (3, late, 5000)]


def test_the_original_serves_what_is_confirmed_and_refuses_what_is_too_far() -> None:
    """The statuses are the same; only the time differs."""
    group = Group(SerialTransfer)
    for number in (1, 2, 3):
        group.wait(number)
    group.confirmed = 2
    group.transfer.release(2)
    group.pass_ms(100)
    assert [each[:2] for each in group.answers] == [(1, PutStatus.PUT_OK), (2, PutStatus.PUT_OK)]
    group.slave_ok = False
    group.wait(4)
    group.wait(2)
    assert [each[:2] for each in group.answers[2:]] == [(4, PutStatus.SLAVE_NOT_AVAILABLE), (2, PutStatus.PUT_OK)]


def test_the_product_does_not_know_the_original() -> None:
    """Only the scenario's own processes wait in RocketMQ's way."""
    assert HaService.transfer_class is GroupTransfer
    assert inspect.signature(BrokerApp).parameters["slave_type"].default is HaSlave


class Refusing:
    """A disk that refuses until a test heals it."""

    is_well = False
    tries = 0

    def retry(self) -> None:
        self.tries += 1
        if not self.is_well:
            raise StoreError("append refused", why="read-only", hint="")


def test_the_original_s_slave_stays_connected_when_its_disk_refuses() -> None:
    """It still reports its offset, retries, and follows again when the disk is repaired."""
    slave: Any = StubbornSlave.__new__(StubbornSlave)
    acknowledged: list[bool] = []
    disk = Refusing()
    slave._transport, slave._following, slave._stopping = object(), True, False
    slave._log, slave._appender = CapturedLog(), disk
    slave._acknowledge = lambda *, always: acknowledged.append(always)
    slave._failed(StoreError("append refused", why="read-only", hint=""))
    assert slave.step() > 0
    assert slave.step() > 0
    assert (disk.tries, acknowledged) == (2, [True, True])
    disk.is_well = True
    assert slave.step() == 0
    assert not slave._refused
    assert [event["event"] for event in slave._log.events] == ["slave_disk_failed"]


async def test_a_cable_is_silent_while_it_is_cut() -> None:
    """Bytes sent during a cut arrive after it; connections stay open."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    cable = Cable(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await cable.open()
    host, _, port = cable.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"one")
    assert await reader.read(100) == b"one"
    cable.cut()
    writer.write(b"two")
    answer = asyncio.ensure_future(reader.read(100))
    await asyncio.sleep(0.05)
    assert not answer.done()
    cable.heal()
    assert await answer == b"two"
    writer.close()
    await cable.close()
    server.close()


def measured(**more: Any) -> GroupMeasured:
    sends = [
        Send(0.0, 5, True, "SEND_OK", stored="yes", body=b"1"),
        Send(0.1, 5, True, "SLAVE_NOT_AVAILABLE", stored="yes", body=b"2"),
        Send(1.9, 700, True, "FLUSH_SLAVE_TIMEOUT", stored="yes", body=b"3"),
        Send(1.9, 3000, False, "no answer", stored="unknown", body=b"4", answered=False),
    ]
    return GroupMeasured(sends, [], Counter(), sends, load_s=2.0, **more)


def test_only_send_ok_can_be_lost() -> None:
    """The other statuses warn that the loss of the master may lose the message."""
    found = measured()
    assert found.lost == 1
    found.stored[b"1"] = 1
    assert found.lost == 0
    assert not all_ok(found).ok
    assert [send.body for send in found.said("SLAVE_NOT_AVAILABLE")] == [b"2"]


def test_the_rate_is_what_was_answered_in_the_last_second() -> None:
    """Earlier answers, answers after the load, and sends without an answer do not count."""
    found = measured()
    assert found.answered_in_last_second == 0
    found.load_s = 2.65
    assert found.answered_in_last_second == 1


def test_a_group_that_is_not_repaired_is_noticed() -> None:
    """Each of the sends after the repair counts."""
    good = [Send(0, 1, True, "SEND_OK") for _ in range(20)]
    assert all_safe_after(measured(after=good)).ok
    assert not all_safe_after(measured(after=[*good[:19], Send(0, 1, True, "SLAVE_NOT_AVAILABLE")])).ok


@pytest.mark.parametrize("quick", [True, False])
def test_acts_fit_their_loads(quick: bool) -> None:
    """A fault happens to an existing broker within the load."""
    plans: list[GroupPlan] = [
        plan for module in (network_cut, slave_frozen, slave_killed, slave_readonly) for plan in module.plans(quick)
    ]
    for plan in plans:
        assert plan.acts or plan.switches
        for act in plan.acts:
            assert 0 < act.at_s < plan.load.due_s()[-1]
            assert act.broker < len(plan.brokers)
            assert plan.has_cable or act.deed not in ("cut", "heal")
    readonly = slave_readonly.plans(quick)
    times = slave_readonly.scale(quick)
    assert times.own_ms < times.client_ms < times.serial_ms < times.probe_ms
    assert [plan.originals for plan in readonly] == [(0, 1), (0, 1), (1,), ()]
    assert READ_ONLY["error"] == "EROFS"

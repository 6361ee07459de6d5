"""A replicated group of real processes under faults; ``make partitions`` runs many more rounds of the same."""

import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from tests.e2e.checks import LogBytes, Reign, compare, missing, split_reigns
from tests.e2e.load import TOPIC, Sent
from tests.e2e.network import why_not
from tests.e2e.nodes import Group, free_ports
from tests.e2e.rounds import FAULTS, Life, a_life, faults_of
from tests.e2e.tally import Tally
from tests.sim.seeds import base_seed

WHY_NOT = why_not()


async def live(
    directory: Path, faults: list[str], capsys: pytest.CaptureFixture[str], *, network: bool, seed: int
) -> Tally:
    tally = Tally()
    async with a_life(seed, directory, tally, network=network) as life:
        for fault in faults:
            await life.round(fault)
    with capsys.disabled():
        print(f" POCKETMQ_SEED={seed}: {tally}", end="")
    return tally


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
async def test_partitions_between_hosts_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The master is cut off and replaced while its own host still sends to it; then a disk is deleted."""
    seed = base_seed()
    other = random.Random(seed).choice(["cut_to_slave", "cut_to_master", "cut_both", "freeze_slave"])
    faults = ["isolate_master_promote", other, "throw_master"]
    tally = await live(tmp_path, faults, capsys, network=True, seed=seed)
    assert (tally.rounds, tally.lost, tally.promotions) == (3, 0, 2)
    assert tally.bytes_compared
    assert tally.insiders["SLAVE_NOT_AVAILABLE"] + tally.insiders["FLUSH_SLAVE_TIMEOUT"], (
        "nobody sent to the old master"
    )


@pytest.mark.soak
@pytest.mark.slow
async def test_a_link_that_harms_bytes_harms_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Doubled, swapped and changed bytes between master and slave; then both are killed at once."""
    tally = await live(tmp_path, ["damage", "kill_all"], capsys, network=False, seed=base_seed())
    assert tally.proxy_faults
    assert (tally.rounds, tally.lost) == (2, 0)


@pytest.mark.soak
@pytest.mark.slow
async def test_sends_time_out_at_their_own_deadline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slave stands still; 10,000 sends wait for it, each with its own time; prints how late the answers come."""
    count, timeout_ms = 10_000, 5000
    settings: dict[str, Any] = {
        "broker.send_drain_max": 1,  # one waiter per send
        "broker.broker_fast_failure_enable": "false",
        "store.slave_timeout": timeout_ms,
        "store.ha_housekeeping_interval": 60_000,
    }
    port = free_ports(5)
    group = Group(tmp_path, "127.0.0.1", port)
    master = group.add("n0", "127.0.0.1", port + 1, port + 2, (), **settings)
    slave = group.add("n1", "127.0.0.1", port + 3, port + 4, (), **settings)
    master.role, master.broker_id = "SYNC_MASTER", 0
    async with group, Producer("e2e", group.namesrv, send_msg_timeout_ms=60_000) as producer:
        await asyncio.gather(master.start(), slave.start())
        await group.wait_for(master, lambda status: any(each.is_in_sync for each in status.slaves), "in sync")
        assert (await producer.send(Message(TOPIC, b"first"))).status.value == "SEND_OK"
        slave.freeze()
        took_ms: list[float] = []
        statuses: set[str] = set()

        async def send() -> None:
            begin = time.monotonic()
            receipt = await producer.send(Message(TOPIC, b"x"))
            took_ms.append((time.monotonic() - begin) * 1000)
            statuses.add(receipt.status.value)

        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(send()))
            await asyncio.sleep(0)
        waiters = 0
        while not took_ms:
            status = await group.status(master)
            waiters = max(waiters, status.waiters if status is not None else 0)
            await asyncio.sleep(0.2)
        await asyncio.gather(*tasks)
        slave.thaw()
    late_ms = [each - timeout_ms for each in took_ms]
    with capsys.disabled():
        told = f"median {statistics.median(late_ms):.0f} ms, worst {max(late_ms):.0f} ms"
        print(f" {count} sends, most waiters seen {waiters}, beyond their {timeout_ms} ms: {told}", end="")
    assert statuses == {"FLUSH_SLAVE_TIMEOUT"}
    assert waiters > count // 2
    assert min(late_ms) > -50, "nobody is told much before its time"
    assert max(late_ms) < count * timeout_ms / 100, "one behind the other would take hours"


def sent(number: int, address: str, sent_ns: int, answered_ns: int, status: str = "SEND_OK") -> Sent:
    return Sent(number, address, status, 0, number, number * 100, sent_ns, answered_ns)


def test_the_checks_find_what_they_look_for() -> None:
    """They find a lost message, one at another place, a log that differs, two masters at once."""
    told = [sent(1, "a:1", 10, 20), sent(2, "a:1", 10, 20), sent(3, "a:1", 10, 20, "SLAVE_NOT_AVAILABLE")]
    assert missing(told, {1: {(0, 1, 100)}, 2: {(0, 2, 200)}}) == []
    assert missing(told, {1: {(0, 1, 100)}, 2: {(0, 2, 300)}}) == [told[1]]
    assert missing(told, {}) == told[:2]
    assert compare(LogBytes(4, b"efgh"), LogBytes(0, b"abcdefghij")) == 4
    with pytest.raises(AssertionError, match="differ from 6"):
        compare(LogBytes(4, b"efXh"), LogBytes(0, b"abcdefghij"))
    with pytest.raises(AssertionError, match="ends at 8"):
        compare(LogBytes(4, b"efgh"), LogBytes(0, b"abcdef"))
    reigns = [Reign("a:1", 0), Reign("b:1", 100), Reign("a:1", 200)]
    fine = [sent(1, "a:1", 10, 20), sent(2, "a:1", 90, 130), sent(3, "b:1", 110, 120), sent(4, "a:1", 210, 220)]
    assert split_reigns(fine, reigns) == []
    late = sent(5, "a:1", 125, 140)
    assert split_reigns([*fine, late], reigns) == [late]
    stranger = sent(6, "c:1", 10, 20)
    assert split_reigns([*fine, stranger], reigns) == [stranger]


async def test_a_round_notices_a_lost_message(tmp_path: Path) -> None:
    """A receipt without a message fails the round, and is counted."""
    life = Life(1, tmp_path, Group(tmp_path, "127.0.0.1", 1), None, Tally())
    life.load = type("Load", (), {"sent": [sent(1, "a:1", 1, 2)], "given": 2})()
    life.reigns.append(Reign("a:1", 0))
    with pytest.raises(AssertionError, match="1 messages with SEND_OK are lost"):
        life.check_log(LogBytes(0, b""))
    assert life.tally.lost == 1


def test_every_fault_is_reached() -> None:
    """Each fault works with hosts, with proxies, or with both."""
    assert set(faults_of(network=True)) | set(faults_of(network=False)) == FAULTS.keys()

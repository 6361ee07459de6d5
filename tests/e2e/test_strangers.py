"""A stranger attacks a name server and a replicated pair, real processes: the pair goes on, and memory stays bounded.

Times are printed, never asserted: they belong to the machine.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.ha import HaPromiseRequestHeader, HaStatusBody
from pocketmq.store.ha import wire
from tests.broker.conftest import eventually
from tests.e2e.false_master import FalseMaster
from tests.e2e.nodes import BROKER_NAME, WAIT_S_MAX, CommandError, Group, Node, free_ports
from tests.e2e.rounds import Life
from tests.e2e.strangers import (
    Bystander,
    HaStrangers,
    channel_to,
    fills_the_routes,
    invents_names,
    memory_mib,
    registration,
    wants_the_name,
)
from tests.e2e.tally import Tally

pytestmark = [pytest.mark.slow, pytest.mark.soak]
MEMORY_MIB_MAX = 450


@asynccontextmanager
async def a_pair(directory: Path) -> AsyncIterator[tuple[Life, Node, Node]]:
    """Start a name server and a synchronous pair."""
    port = free_ports(8)
    group = Group(directory, "127.0.0.1", port)
    for number in range(2):
        group.add(f"n{number}", "127.0.0.1", port + 1 + 2 * number, port + 2 + 2 * number, ())
    async with group:
        life = Life(1, directory, group, None, Tally())
        await life.begin()
        master, slave = life.nodes
        yield life, master, slave


def outside(directory: Path) -> list[str]:
    """Return what is beside the stores."""
    known = {"n0", "n1", "namesrv", "namesrv.txt"}
    return sorted(path.name for path in directory.iterdir() if path.name not in known)


async def status_of(life: Life, node: Node) -> HaStatusBody:
    status = await life.group.status(node)
    assert status is not None
    return status


def no_task_died(*nodes: Node) -> None:
    for node in nodes:
        assert not node.events("task_failed"), node.events("task_failed")


async def stops(process: asyncio.subprocess.Process, what: str) -> None:
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_S_MAX):
        assert await process.wait() == 0
    print(f"{what} stopped in {time.monotonic() - begin:.2f} s")


async def test_no_request_to_the_name_server_takes_a_pair_out(tmp_path: Path) -> None:
    """False registrations, claims, unregistrations and forgetting; then invented names and full tables."""
    async with a_pair(tmp_path) as (life, master, slave), Bystander(life.group.namesrv) as bystander:
        await bystander.sends(50)
        before = await status_of(life, master), await status_of(life, slave)
        codes = await wants_the_name(life.group.namesrv, *before)
        assert 1000 not in codes[6:], "no claim was granted"
        assert 0 not in codes[:6], "no registration, no unregistration"
        print(f"after {len(codes)} requests for the name: {bystander.text()}")
        print(f"{await invents_names(life.group.namesrv, 3_000)} invented names granted")
        taken = await fills_the_routes(life.group.namesrv, 12, 40_000)
        await bystander.sends(50)
        name_server = life.group._name_server
        assert name_server is not None
        sizes = {"name server": name_server.pid}
        sizes |= {node.name: node.process.pid for node in (master, slave) if node.process is not None}
        memory = {name: memory_mib(pid) for name, pid in sizes.items()}
        print(f"registrations (taken, refused) {taken}; MiB {memory}; bystander {bystander.text()}")
        assert max(memory.values()) < MEMORY_MIB_MAX
        assert set(bystander.statuses) == {"SEND_OK"}
        after = await status_of(life, master)
        assert (after.is_master, after.epoch, after.promised_epoch) == (True, before[0].epoch, before[0].promised_epoch)
        fresh = life.group.add("n2", "127.0.0.1", master.port + 4, master.port + 5, ())
        fresh.settings["broker.broker_name"] = "broker-b"
        fresh.role, fresh.broker_id = "SYNC_MASTER", 0
        await fresh.start()
        no_task_died(master, slave)
        await fresh.kill()
        await stops(name_server, "the name server")
        life.group._name_server = None
    assert outside(tmp_path) == ["n2"]


async def test_strangers_on_the_ha_port_change_nothing(tmp_path: Path) -> None:
    """Silent ones keep no slave out; one that pretends gets no SEND_OK, no place in the file, and fences nobody."""
    async with a_pair(tmp_path) as (life, master, slave):
        before = await status_of(life, master)
        async with Bystander(life.group.namesrv) as bystander:
            with HaStrangers(master.ip, master.ha_port) as strangers:
                await asyncio.to_thread(strangers.silent, 120)
                await slave.kill()
                await asyncio.to_thread(strangers.silent, 20)
                await slave.start()
                await life.in_sync()
                await bystander.sends(20)
                assert bystander.statuses["SEND_OK"]
                epochs = [(row.number, row.owner, row.start_offset) for row in before.epochs]
                liar = await asyncio.to_thread(strangers.pretends, "ee", epochs, promised=(1 << 52, "ee.1"))
                assert isinstance(liar[0], wire.Refused)
                bystander.statuses.clear()
                bystander.times_ms.clear()
                for number in range(500):
                    got = await asyncio.to_thread(strangers.pretends, f"e{number}")
                    assert isinstance(got[0], wire.Refused) or not got[0].counted
                print(f"while 500 pretend to be slaves: {bystander.text()}")
                assert set(bystander.statuses) == {"SEND_OK"}
                await slave.kill()
                for number in range(5):
                    got = await asyncio.to_thread(strangers.pretends, f"f{number}")
                    assert isinstance(got[0], wire.Refused) or not got[0].counted
                bystander.statuses.clear()
                await bystander.sends(5)
                assert "SEND_OK" not in bystander.statuses, "no copy, no SEND_OK"
                now = await status_of(life, master)
                assert (now.is_master, now.epoch, now.promised_epoch) == (True, before.epoch, before.promised_epoch)
                assert now.followers == before.followers
                await slave.start()
                await life.in_sync()
                bystander.statuses.clear()
                await bystander.sends(20)
                assert set(bystander.statuses) <= {"SEND_OK", "SLAVE_NOT_AVAILABLE"}
                assert bystander.statuses["SEND_OK"]
            print(bystander.text())
        no_task_died(master, slave)
        assert master.process is not None
        await stops(master.process, "the master")
        master.process = None


async def test_a_false_promise_is_cured_by_a_promotion(tmp_path: Path) -> None:
    """The largest one is refused, and one to a node that is no slave of the master. One that is possible fences it; the
    pair leads again without a loss."""
    async with a_pair(tmp_path) as (life, master, slave):
        known = (await status_of(life, slave)).node_id
        async with channel_to(master.address) as channel:
            for epoch, asking, is_taken in (
                (1 << 52, known, False),
                (2_000_000, "ee", False),
                (2_000_000, known, True),
            ):
                header = HaPromiseRequestHeader(BROKER_NAME, epoch, f"{asking}.1", "127.0.0.1:9")
                answer = await channel.request(RequestCode.HA_PROMISE, header, timeout_ms=5000)
                assert (answer.code == 0 and answer.header.granted) is is_taken
        await life.group.wait_for(master, lambda status: status.is_fenced, "the fence")
        begin = time.monotonic()
        done = await life.group.command("promote", BROKER_NAME, "--json")
        print(f"cured in {time.monotonic() - begin:.1f} s: {done}")
        node = next(each for each in (master, slave) if each.address == done["master"])
        other = slave if node is master else master
        await life.group.wait_for(node, lambda status: status.is_master, "the promotion")
        if (await status_of(life, other)).is_fenced:
            await life.group.command("demote", BROKER_NAME, "--at", other.address)
        async with Bystander(life.group.namesrv) as bystander:
            while not bystander.statuses["SEND_OK"]:
                await bystander.sends(1)
        no_task_died(master, slave)


async def test_a_false_master_reaches_nothing_outside_its_slaves_store(tmp_path: Path) -> None:
    """It takes the name while the master is away, streams nothing, and serves tables full of paths. The slave skips and
    reports them, its threads live, and the pair is in sync again once the master is back."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"precious")
    async with a_pair(tmp_path) as (life, master, slave):
        before = await status_of(life, master)
        await master.kill()
        async with FalseMaster(life.group.namesrv, before, victim) as false:
            tables = (
                *(RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET),
                *(RequestCode.GET_ALL_DELAY_OFFSET, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
            )
            # the slave asks for the second time: it has gone through all that it got at first
            await eventually(lambda: min(false.asked.count(code) for code in tables) >= 1)
            rounds = false.asked.count(RequestCode.HA_STATUS)
            await eventually(lambda: false.asked.count(RequestCode.HA_STATUS) >= rounds + 3)
        assert (victim / "file").read_bytes() == b"precious"
        queues = slave.store / "consumequeue"
        assert not queues.exists() or all(path.name.isprintable() for path in queues.iterdir())
        skipped = [each for each in slave.events("master_entry_skipped") if "table" in each]
        assert {"topics", "deletedTopics"} <= {each["table"] for each in skipped}  # a second logs ten at most
        no_task_died(slave)
        await master.start()
        await life.in_sync()
        no_task_died(master, slave)
    assert outside(tmp_path) == ["victim"]


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_a_broker_that_stands_still_gives_way_and_finds_out_when_it_goes_on(tmp_path: Path, role: str) -> None:
    """A plain broker whose host hangs, with its connection still open; the same name starts elsewhere, plain or as the
    master of a pair. The first one returns when the other is gone, unless that one has an epoch."""
    port = free_ports(8)
    group = Group(tmp_path, "127.0.0.1", port)
    first, second = (
        group.add(f"n{number}", "127.0.0.1", port + 1 + 2 * number, port + 2 + 2 * number, ()) for number in (0, 1)
    )
    first.role, second.role = "ASYNC_MASTER", role
    first.broker_id = second.broker_id = 0
    second.settings["broker.register_broker_timeout_mills"] = 6000

    async def master() -> str:
        known = (await admin.cluster_info()).broker_addr_table.get(BROKER_NAME)
        return "" if known is None else known.broker_addrs.get("0", "")

    async with group, Admin(group.namesrv) as admin:
        await first.start()
        assert await master() == first.address
        first.freeze()
        await second.start()
        begin = time.monotonic()
        await eventually(lambda: master_is(master, second))
        print(f"replaced {time.monotonic() - begin:.1f} s after the ready line")
        first.thaw()
        await eventually(lambda: [each for each in first.events("register_failed") if "lives" in each["error"]])
        assert await master() == second.address
        await second.kill()
        if role == "ASYNC_MASTER":
            await eventually(lambda: master_is(master, first))
        else:
            await eventually(lambda: "epoch 1 of" in first.events("register_failed")[-1]["error"])
        no_task_died(first, second)


async def master_is(master: Callable[[], Awaitable[str]], node: Node) -> bool:
    return await master() == node.address


async def test_an_unused_name_is_forgotten(tmp_path: Path) -> None:
    """The pair's own epoch stays while one of its brokers is registered."""
    async with a_pair(tmp_path) as (life, master, slave):
        assert await invents_names(life.group.namesrv, 2) == 2
        await life.group.command("forget", "invented-1", "--yes")
        record = await life.group.ha.epoch_at(life.group.namesrv, "invented-1")
        assert record is not None
        assert record.epoch == 0
        with pytest.raises(CommandError, match="broker-a is registered: its epoch is in use"):
            await life.group.command("forget", BROKER_NAME, "--yes")
        async with channel_to(life.group.namesrv) as channel:
            header, body = registration("illegal", "10.0.0.9:1", ["a\x1b[2J", "", "Legal"])
            answer = await channel.request(RequestCode.REGISTER_BROKER, header, body, timeout_ms=5000)
            assert answer.code == 0
            listed = await channel.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, timeout_ms=5000)
            assert b"Legal" in bytes(listed.body)
            assert b"\\u001b" not in bytes(listed.body)
        no_task_died(master, slave)

"""Real processes: a master is killed, its slave is promoted, the old master comes back and follows."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.daemon.cluster import Member, members, screen
from pocketmq.client import ClientInstance, ClientOptions, Message, Producer, PullConsumer, SendFailed
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin, HaFailed
from pocketmq.client.admin.promotion import promote
from pocketmq.client.errors import NoRoute
from pocketmq.client.message.receipts import SendStatus
from pocketmq.common.errors import Cause

pytestmark = pytest.mark.slow

SETTINGS = (
    "store.mapped_file_size_commit_log=1048576",
    "store.max_hash_slot_num=1000",
    "store.max_index_num=4000",
    "store.mapped_file_size_consume_queue=20000",
    "store.sync_on_close=false",
    "broker.register_name_server_period=500",
    "broker.slave_sync_interval=50",
    "log.format=json",
)
TOPIC = "BenchmarkTest"


def free_ports(count: int) -> int:
    """Return the first of ``count`` free ports in steps of ten, each with the next port free, too."""
    for first in range(21_000, 60_000, 100):
        with contextlib.ExitStack() as stack:
            try:
                for at in range(count):
                    for port in (first + 10 * at, first + 10 * at + 1):
                        stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[Member]]:
    """A name server and a synchronous pair."""
    first = free_ports(4)
    started = members(tmp_path, "127.0.0.1", first + 30, first, SETTINGS)[:3]
    try:
        await started[0].start()
        await asyncio.gather(*(member.start() for member in started[1:]))
        yield started
    finally:
        await asyncio.gather(*(member.stop() for member in started[1:]))
        await started[0].stop()


def namesrv_of(pair: list[Member]) -> str:
    return pair[0].addresses["namesrv"]


def command(*words: str) -> Any:
    """Run ``pocketmq`` and return (exit code, standard output, standard error)."""
    done = subprocess.run(
        [sys.executable, "-m", "pocketmq.cli.main", *words], capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout, done.stderr


def log_bytes(directory: Path) -> bytes:
    """Return the commit log of a store, without the zeros at its end."""
    files = sorted((directory / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


async def follows(ha: HaAdmin, pair: list[Member]) -> None:
    """Wait until the second process follows the first, and the first counts it."""
    await ha.wait_for(pair[2].addresses["broker"], 60_000, lambda status: status.is_connected, "following")
    await counts_its_slave(ha, pair[1].addresses["broker"])


async def counts_its_slave(ha: HaAdmin, master: str) -> None:
    """Wait until a master waits for its slave: a send before that is confirmed without it."""
    await ha.wait_for(master, 60_000, lambda status: any(each.is_in_sync for each in status.slaves), "in sync")


async def routed(producer: Producer) -> Any:
    """Send one message once the name server has its route: a broker reports ready before that."""
    while True:
        try:
            return await producer.send(Message(TOPIC, b"first"))
        except NoRoute:
            await asyncio.sleep(0.01)


async def test_kill_promote_return_demote(pair: list[Member], tmp_path: Path) -> None:
    """No SEND_OK is lost, the old master acknowledges no send after its return, and at last both logs are equal."""
    old, new = pair[1].addresses["broker"], pair[2].addresses["broker"]
    namesrv = namesrv_of(pair)
    options = ClientOptions(poll_name_server_interval_ms=100)
    confirmed: list[str] = []
    async with Admin(namesrv) as admin, Producer("p", instance=ClientInstance(namesrv, options=options)) as producer:
        ha = HaAdmin(admin)
        await follows(ha, pair)

        async def send(count: int) -> list[Any]:
            results = await asyncio.gather(
                *(producer.send(Message(TOPIC, b"%d" % number * 50)) for number in range(count)),
                return_exceptions=True,
            )
            confirmed.extend(
                each.msg_id
                for each in results
                if not isinstance(each, BaseException) and each.status is SendStatus.SEND_OK
            )
            return results

        await routed(producer)
        receipts = await send(300)
        assert {each.status for each in receipts} == {SendStatus.SEND_OK}
        assert "2 copies have it" in receipts[0].durability
        sending = asyncio.ensure_future(send(300))
        await asyncio.sleep(0.002)
        assert pair[1].process is not None
        os.kill(pair[1].process.pid, signal.SIGKILL)
        await pair[1].process.wait()
        promoted = await promote(ha, "broker-a")
        assert (promoted.master.address, promoted.planned) == (new, False)
        assert promoted.master.epoch == 1_000_000
        await sending
        alone = await send(1)
        assert [each.status for each in alone] == [SendStatus.SLAVE_NOT_AVAILABLE]

        await pair[1].start()  # the old master returns
        status = await ha.wait_for(old, 60_000, lambda each: each.is_fenced, "the fence")
        assert (status.fenced_by_epoch, status.fenced_by_address) == (1_000_000, new)
        async with Producer("q", instance=ClientInstance(namesrv, options=options)) as other:
            assert (await routed(other)).broker == "broker-a"
        group = await ha.group("broker-a")
        assert group.leader is not None
        assert group.leader.address == new
        code, out, err = command("ha", "demote", "broker-a", "--namesrv", namesrv)
        assert code == 0, err
        assert "SLAVE" in out
        await ha.wait_for(old, 60_000, lambda each: each.is_connected and each.behind_bytes == 0, "the catch-up")
        await counts_its_slave(ha, new)
        assert {each.status for each in await send(50)} == {SendStatus.SEND_OK}
        code, out, _ = command("ha", "status", "broker-a", "--json", "--namesrv", namesrv)
        told = json.loads(out)[0]
        assert (code, told["leader"], told["epoch"]) == (0, new, 1_000_000)
        assert {node["address"]: node["state"] for node in told["nodes"]} == {new: "SYNC_MASTER", old: "SLAVE"}
        async with PullConsumer("c", namesrv) as consumer:
            stream = consumer.stream(TOPIC, start="earliest", stop_at_end=True)
            found = {message.msg_id async for message in stream}
        assert set(confirmed) <= found
        assert len(confirmed) >= 350
    for member in reversed(pair[1:]):
        await member.stop()
    one, other_log = log_bytes(tmp_path / "broker-a-0"), log_bytes(tmp_path / "broker-a-1")
    assert one == other_log
    assert len(one) > 100_000


async def test_a_planned_switch_loses_nothing_and_turns_the_old_master_around(pair: list[Member]) -> None:
    """Under load: sends wait or are refused for a moment, all confirmed messages are there, roles are swapped."""
    old, new = pair[1].addresses["broker"], pair[2].addresses["broker"]
    namesrv = namesrv_of(pair)
    confirmed: set[str] = set()
    stopped = asyncio.Event()
    async with Admin(namesrv) as admin, Producer("p", namesrv) as producer:  # the producer asks for routes every 30 s
        ha = HaAdmin(admin)
        await follows(ha, pair)
        code, _, err = command("ha", "demote", "broker-a", "--at", old, "--namesrv", namesrv)
        assert code == 1
        assert "is led by this broker" in err

        async def load() -> None:
            while not stopped.is_set():
                try:
                    receipt = await producer.send(Message(TOPIC, b"x" * 100))
                except SendFailed:
                    continue
                if receipt.status is SendStatus.SEND_OK:
                    confirmed.add(receipt.msg_id)

        await routed(producer)
        loads = [asyncio.ensure_future(load()) for _ in range(8)]
        while not confirmed:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        done = await promote(ha, "broker-a")
        assert (done.master.address, done.old_address, done.planned) == (new, old, True)
        await ha.wait_for(old, 60_000, lambda status: status.is_connected, "following")
        at_switch = len(confirmed)
        async with asyncio.timeout(100):
            while len(confirmed) < at_switch + 50:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        stopped.set()
        await asyncio.gather(*loads)
        async with PullConsumer("c", namesrv) as consumer:
            found = {each.msg_id async for each in consumer.stream(TOPIC, start="earliest", stop_at_end=True)}
        assert confirmed <= found
        await pair[1].stop()
        with pytest.raises(HaFailed, match="no slave of broker-a answers"):
            await promote(ha, "broker-a")


def test_the_screen_names_every_process(tmp_path: Path) -> None:
    """Name, address and purpose of each, and commands to try."""
    started = members(tmp_path, "127.0.0.1", 9876, 10911, ())
    for member, address in zip(started, ("9876", "10911", "10921", "10931"), strict=True):
        member.addresses = {"namesrv" if member.name == "namesrv" else "broker": f"127.0.0.1:{address}"}
    text = screen(started, tmp_path)
    assert [line.split()[:2] for line in text.splitlines()[1:5]] == [
        ["namesrv", "127.0.0.1:9876"],
        ["broker-a-0", "127.0.0.1:10911"],
        ["broker-a-1", "127.0.0.1:10921"],
        ["broker-b-0", "127.0.0.1:10931"],
    ]
    assert "pocketmq ha promote broker-a --namesrv 127.0.0.1:9876" in text
    assert Cause.FENCED_BY_EPOCH.value == "fenced_by_epoch"

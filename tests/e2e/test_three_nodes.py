"""A master and two slaves as real processes: which may be promoted when, and which messages are there afterwards."""

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.load import ProducerLoad
from tests.e2e.nodes import BROKER_NAME, CommandError, Group, free_ports
from tests.e2e.rounds import Life
from tests.e2e.tally import Tally

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@asynccontextmanager
async def three(directory: Path, in_sync_replicas: int, *, total_replicas: int = 3) -> AsyncIterator[Life]:
    """Start as many nodes as there are copies, without load."""
    port = free_ports(10)
    group = Group(directory, "127.0.0.1", port)
    settings = {"store.total_replicas": total_replicas, "store.in_sync_replicas": in_sync_replicas}
    for number in range(total_replicas):
        group.add(f"n{number}", "127.0.0.1", port + 1 + 2 * number, port + 2 + 2 * number, (), **settings)
    async with group:
        life = Life(int(time.time()), directory, group, None, Tally())
        await life.begin()
        async with ProducerLoad(group.namesrv, random.Random(1)) as life.load:
            yield life


@pytest.mark.parametrize("in_sync_replicas", [2, pytest.param(3, marks=pytest.mark.scenario)])
async def test_the_master_of_three_dies_and_one_slave_is_away(tmp_path: Path, in_sync_replicas: int) -> None:
    """SEND_OK of two copies may be on the slave that is away: refused until it is back. Of three it is on both: one is
    enough. The old master and the one that was away follow, with the same bytes, and nothing confirmed is missing.
    """
    async with three(tmp_path, in_sync_replicas) as life:
        old, first, away = life.nodes
        life.load.start()
        await life.load.confirmed(100)
        await away.kill()  # it lags: of two copies sends go on to be confirmed, of three they do not
        await life.load.confirmed(100) if in_sync_replicas == 2 else None
        await old.kill()
        if in_sync_replicas == 2:
            with pytest.raises(CommandError, match="2 nodes beside the old master must promise, 1 answered"):
                await life.group.command("promote", BROKER_NAME)
            status = await life.group.status(first)
            assert status is not None
            assert status.promised_epoch < 1_000_000, "nobody was asked for anything"
            await away.start()
            await life.promote()
        else:
            await life.promote()
            await away.start()
        assert life.master is first, "the most advanced log"
        await old.start()
        await life.demote(old)
        await life.in_sync()
        await life.load.confirmed(100)
        await life.load.stop()
        await life.check()
        assert life.tally.bytes_compared
        assert life.tally.lost == 0


@pytest.mark.scenario
async def test_a_slave_that_was_replaced_is_not_promoted(tmp_path: Path) -> None:
    """Its replacement has confirmed messages that it lacks: the name server knows, and the refusal names it. With the
    replacement present no message is lost.
    """
    async with three(tmp_path, 2, total_replicas=2) as life:
        master, replaced = life.nodes
        port = free_ports(2)
        life.load.start()
        await life.load.confirmed(50)
        await replaced.kill()
        new = life.group.add("n2", "127.0.0.1", port, port + 1, (), **replaced.settings)
        new.broker_id = 2
        await new.start()
        await life.load.confirmed(50)  # written by the new master
        await master.kill()
        await new.kill()
        await life.load.stop()
        await replaced.start()
        with pytest.raises(CommandError, match=r"epoch 100 was opened.* it lacks messages confirmed since"):
            await life.group.command("promote", BROKER_NAME)
        await new.start()
        await life.promote()
        assert life.master is new
        del life.group.nodes["n0"]
        await life.in_sync()  # the replaced slave has a place again
        await life.check()
        assert life.tally.lost == 0
        life.group.nodes["n0"] = master

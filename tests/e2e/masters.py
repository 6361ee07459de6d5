"""Rounds of kills and freezes on one master, or on two with a store each, under every kind of load.

Lives here: ``Masters`` and its faults. ``rounds.py`` has replicated groups.

A kill of a broker whose write buffers die with it may take what was acknowledged in the last moments before
(docs/durability.md); only there is that excused, and only for ``LOSS_S``.
"""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.e2e.crowd import Crowd, lost_plain
from tests.e2e.load import ProducerLoad
from tests.e2e.nodes import Group, Node, free_ports
from tests.e2e.tally import Tally
from tests.modes import KINDS, Mode

BEFORE: Final = 200
LOSS_S: Final = 2.0
"""The commit thread writes every 0.2 s; a busy machine lets it wait."""
SETTLE_S_MAX: Final = 60.0
ROLE: Final = "ASYNC_MASTER"
DAMAGE: Final = ("log_damaged", "dispatch_skipped_damage", "index_skipped_damage", "config_file_damaged")
"""Events that no kill may cause."""


class Masters:
    """One or two masters without slaves, and their rounds. Every random choice comes from ``seed``."""

    def __init__(self, seed: int, mode: Mode, group: Group, tally: Tally) -> None:
        self.rng = random.Random(seed)
        self.mode = mode
        self.group = group
        self.tally = tally
        self.load: ProducerLoad
        self.crowd: Crowd
        self.kills_ns: list[int] = []

    @property
    def nodes(self) -> list[Node]:
        """All brokers."""
        return list(self.group.nodes.values())

    async def begin(self) -> None:
        """Start all brokers."""
        for node in self.nodes:
            node.role, node.broker_id = ROLE, 0
            await node.start()

    async def round(self, fault: str) -> None:
        """Run one fault under load, and check."""
        self.load.start()
        self.crowd.start()
        await self.load.confirmed(BEFORE)
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        await MASTER_FAULTS[fault](self)
        await self.load.confirmed(BEFORE)
        await self.load.stop()
        await self.crowd.stop()
        await self.check()
        self.tally.rounds += 1
        self.tally.faults[fault] += 1

    async def kill(self, node: Node) -> None:
        """``kill -9``, and remember when."""
        await node.kill()
        self.kills_ns.append(time.monotonic_ns())

    def excused(self, sent_ns: int, acknowledged_ns: int) -> bool:
        """Return whether this mode may lose what was acknowledged then."""
        if not self.mode.loses_with_its_process:
            return False
        window_ns = int(LOSS_S * 1e9)
        return any(sent_ns <= kill_ns and kill_ns - acknowledged_ns <= window_ns for kill_ns in self.kills_ns)

    async def check(self) -> None:
        """Compare the logs with all receipts. The loads have stopped."""
        until_s = time.monotonic() + SETTLE_S_MAX
        while True:
            lost = [
                each
                for node in self.nodes
                for each in lost_plain(
                    node.store,
                    [sent for sent in self.load.sent if sent.address == node.address],
                    self.load.given,
                    self.excused,
                )
            ]
            if not lost or time.monotonic() > until_s:
                break
            await asyncio.sleep(0.2)  # what still lies in write buffers
        self.tally.lost += len(lost)
        assert not lost, f"{len(lost)} messages with SEND_OK are lost: {lost[:5]}; kills {self.kills_ns}"
        await self.crowd.settle({node.name: node.store for node in self.nodes}, self.excused)
        for node in self.nodes:
            damaged = [event for name in DAMAGE for event in node.events(name)]
            assert not damaged, f"{node.name} found damage that nobody made: {damaged[0]}"

    def close(self) -> None:
        """Add the sends to the tally."""
        self.tally.add_sends(self.load, self.crowd)


async def kill_one(life: Masters) -> None:
    """One broker is killed and started again."""
    node = life.rng.choice(life.nodes)
    await life.kill(node)
    await asyncio.sleep(life.rng.uniform(0, 1))
    await node.start()


async def kill_every(life: Masters) -> None:
    """All brokers are killed at once and started again."""
    await asyncio.gather(*(life.kill(node) for node in life.nodes))
    await asyncio.gather(*(node.start() for node in life.nodes))


async def kill_in_start(life: Masters) -> None:
    """A broker is killed, and killed again while it recovers."""
    node = life.rng.choice(life.nodes)
    await life.kill(node)
    starting = asyncio.create_task(node.start())
    await asyncio.sleep(life.rng.uniform(0.05, 0.8))
    await node.kill_start()
    await asyncio.gather(starting, return_exceptions=True)
    await life.kill(node)  # where the start was quicker
    await node.start()


async def freeze_one(life: Masters) -> None:
    """One broker stands still with open connections."""
    node = life.rng.choice(life.nodes)
    node.freeze()
    await asyncio.sleep(life.rng.uniform(0.2, 2.5))
    node.thaw()


async def stop_one(life: Masters) -> None:
    """One broker is stopped cleanly and started again."""
    node = life.rng.choice(life.nodes)
    await node.terminate()
    await node.start()


MASTER_FAULTS: Final[dict[str, Callable[[Masters], Awaitable[None]]]] = {
    each.__name__: each for each in (kill_one, kill_every, kill_in_start, freeze_one, stop_one)
}


@contextlib.asynccontextmanager
async def masters_life(
    seed: int, directory: Path, tally: Tally, mode: Mode, kinds: tuple[str, ...] = KINDS
) -> AsyncIterator[Masters]:
    """Start the brokers of a mode in an empty directory. A life that fails keeps it, and prints its path."""
    names = ("broker-a",) if mode.shape == "alone" else ("broker-a", "broker-b")
    settings = {f"store.{key}": value for key, value in mode.store_settings.items()}
    try:
        async with contextlib.AsyncExitStack() as stack:
            port = free_ports(1 + 2 * len(names))
            group = Group(directory, "127.0.0.1", port)
            life = Masters(seed, mode, group, tally)
            for at, name in enumerate(names):
                values: dict[str, Any] = {**settings, "broker.broker_name": name}
                group.add(name, "127.0.0.1", port + 1 + 2 * at, port + 2 + 2 * at, (), **values)
            await stack.enter_async_context(group)
            await life.begin()
            life.load = await stack.enter_async_context(ProducerLoad(group.namesrv, life.rng))
            life.crowd = await stack.enter_async_context(Crowd(group.namesrv, seed, life.rng, kinds))
            yield life
            life.close()
    except BaseException as error:
        error.add_note(f"seed {seed}, {mode}; left in {directory}")
        raise
    shutil.rmtree(directory)

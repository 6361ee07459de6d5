"""Rounds of faults on a replicated group of real daemons under load, and the rules after each.

Lives here: ``Life`` (one group and its rounds), the faults. ``masters.py`` has brokers without slaves.

Every round: load, one fault with parameters from the seed, repair, load again until all copies are in sync, then the
checks. With ``in_sync_replicas`` of two and as many copies, every message with SEND_OK must be on both disks then, so
that either may be thrown away; some faults throw one away, or look at both right after a ``kill -9`` of all.
"""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from pocketmq.remoting.protocol.ha import HaStatusBody
from tests.e2e.checks import LogBytes, Reign, compare, missing, places_of, read_log, recovered_end, split_reigns
from tests.e2e.crowd import Crowd
from tests.e2e.load import Insider, ProducerLoad, Sent
from tests.e2e.network import HUB, Network
from tests.e2e.nodes import BROKER_NAME, BROKER_PORT, CommandError, Group, Node, free_ports
from tests.e2e.tally import Tally
from tests.e2e.tcp_proxy import TcpProxy
from tests.modes import KINDS, LEGAL, Mode

INSIDERS_FROM: Final = 1 << 32
"""Numbers of insiders' messages, each insider with a range of its own."""
INSIDER_RANGE: Final = 1 << 20
BEFORE: Final = 200
"""SEND_OKs before a fault, and after its repair."""
PROMOTE_S_MAX: Final = 30.0
PLAIN_PAIR: Final = Mode("mapped", "none", "ASYNC_FLUSH", "pair")
QUIET_S: Final = 2.5
"""Longer than the longest delay, and than the pause between two checks of a transaction."""


class Life:
    """One group and its rounds. ``network``: separate hosts; without it all share an address, and the HA connections go
    through proxies. Every random choice comes from ``seed``.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        group: Group,
        network: Network | None,
        tally: Tally,
        mode: Mode = PLAIN_PAIR,
    ) -> None:
        self.rng = random.Random(seed)
        self.mode = mode
        self.tally = tally
        self.group = group
        self.network = network
        self.proxies: dict[str, TcpProxy] = {}
        self.load: ProducerLoad
        self.crowd = Crowd(group.namesrv, seed, self.rng, ())
        self.master: Node
        self.reigns: list[Reign] = []
        self._directory = directory
        self._insiders = 0
        self._told: list[Sent] = []  # by insiders

    # ---- which nodes run

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return list(self.group.nodes.values())

    @property
    def slaves(self) -> list[Node]:
        """All but the master."""
        return [node for node in self.nodes if node is not self.master]

    def one_slave(self) -> Node:
        """Return any slave."""
        return self.rng.choice(self.slaves)

    async def begin(self) -> None:
        """Start the first of the nodes as master, the others as its slaves."""
        self.master, *others = self.nodes
        self.master.role, self.master.broker_id = "SYNC_MASTER", 0
        for number, node in enumerate(others, 1):
            node.role, node.broker_id = "SLAVE", number
        await self.master.start()
        await asyncio.gather(*(node.start() for node in others))
        self.reigns.append(Reign(self.master.address, 0))
        await self.in_sync()

    async def round(self, fault: str) -> None:
        """Run one fault and all checks."""
        self.load.start()
        self.crowd.start()
        await self.load.confirmed(BEFORE)
        await asyncio.sleep(self.rng.uniform(0, 0.3))
        await FAULTS[fault](self)
        await self.in_sync()
        await self.load.confirmed(BEFORE)
        await self.load.stop()
        await self.crowd.stop()
        await self.crowd.settle({BROKER_NAME: self.master.store})
        await self.check()
        self.tally.rounds += 1
        self.tally.faults[fault] += 1

    # ---- repair

    async def in_sync(self) -> None:
        """Return when every node runs, and the master counts all of them in sync."""
        wanted = len(self.nodes)
        await self.group.wait_for(
            self.master,
            lambda status: status.is_master and 1 + sum(each.is_in_sync for each in status.slaves) == wanted,
            f"{wanted} copies in sync",
        )

    async def promote(self, *words: str) -> None:
        """Promote as an operator does; repeat it while it is refused for a temporary reason."""
        begun_ns = time.monotonic_ns()
        until_s = time.monotonic() + PROMOTE_S_MAX
        while True:
            try:
                told = await self.group.command("promote", BROKER_NAME, "--json", *words)
                break
            except CommandError:
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(0.2)
        self.master = next(node for node in self.nodes if node.address == told["master"])
        self.reigns.append(Reign(self.master.address, begun_ns))
        self.tally.promotions += 1

    async def demote(self, node: Node) -> None:
        """Make a replaced node a slave, once it knows that it was replaced."""
        await self.group.wait_for(node, lambda status: status.is_fenced, "the fence")
        await self.group.command("demote", BROKER_NAME, "--at", node.address)

    async def rejoin_empty(self, node: Node) -> None:
        """Start a node on an empty disk, as a slave."""
        node.wipe()
        used: set[int] = set()
        for other in self.nodes:
            status = await self.group.status(other) if other.lives and not other.is_frozen else None
            if status is not None:
                used.add(status.broker_id)
        node.role = "SLAVE"
        node.broker_id = next(number for number in range(1, len(self.nodes) + 2) if number not in used)
        await node.start()

    def cut(self, source: Node, target: Node) -> None:
        """Drop the bytes from ``source`` to ``target``."""
        if self.network is not None:
            self.network.cut(source.name, target.name)
        else:  # a slave connects to its master: "up" is the slave's side
            proxy = self.proxies[self.master.name]
            (proxy.down if source is self.master else proxy.up).cut()

    def heal(self) -> None:
        """Repair all links."""
        if self.network is not None:
            self.network.heal()
        for proxy in self.proxies.values():
            self.tally.proxy_faults += proxy.up.faults + proxy.down.faults
            proxy.up.faults = proxy.down.faults = 0
            proxy.heal()

    async def some_time(self, low_s: float = 0.2, high_s: float = 2.5) -> None:
        """Let a fault last, both shorter and longer than ``slave_timeout`` and the housekeeping."""
        await asyncio.sleep(self.rng.uniform(low_s, high_s))

    @contextlib.asynccontextmanager
    async def insider(self, node: Node) -> AsyncIterator[None]:
        """Send to ``node`` from its own host, where no other broker is known."""
        self._insiders += 1
        path = self._directory / f"insider-{self._insiders}.jsonl"
        insider = Insider(list(node.prefix), node.address, INSIDERS_FROM + self._insiders * INSIDER_RANGE, path)
        await insider.start()
        try:
            yield
        finally:
            self._told += await insider.stop()

    # ---- checks

    async def check(self) -> None:
        """Compare all logs and search them for every send answered with SEND_OK. The load has stopped."""
        end = await self._quiet_end()
        log = read_log(self.master.store, end)
        for slave in self.slaves:
            status = await self.group.wait_for(slave, lambda each: each.end_offset >= end, "the catch-up")
            assert status.end_offset == end, f"{slave.name} ends at {status.end_offset}, its master at {end}"
            self.tally.bytes_compared += compare(read_log(slave.store, end), log)
            assert not slave.events("slave_copies_damage"), f"{slave.name} has copied damage that nobody made"
        self.check_log(log)

    async def _quiet_end(self) -> int:
        """Return where the master's log ends once nothing is on its way any more: sends may have been given up by their
        clients only, and what nobody was promised may still be delivered."""
        quiet_s = QUIET_S if self.crowd.loads else 0.1
        status: HaStatusBody | None = None
        since_s = 0.0
        while True:
            last, status = status, await self.group.wait_for(self.master, lambda each: each.is_master, "the master")
            if last is None or last.end_offset != status.end_offset or status.waiters:
                since_s = time.monotonic()
            elif time.monotonic() - since_s >= quiet_s:
                return status.end_offset
            await asyncio.sleep(0.1)

    def check_log(self, log: LogBytes) -> None:
        """Search one log for every SEND_OK so far, and for two masters at once."""
        sent = [*self.load.sent, *self._told]
        places = places_of(log)
        strange = [number for number in places if self.load.given <= number < INSIDERS_FROM]
        assert not strange, f"messages that were never sent: {strange[:5]}"
        lost = missing(sent, places)
        self.tally.lost += len(lost)
        assert not lost, f"{len(lost)} messages with SEND_OK are lost: {lost[:5]}; reigns {self.reigns}"
        split = split_reigns(sent, self.reigns)
        assert not split, f"two masters at once: {split[:5]}; reigns {self.reigns}"

    def close(self) -> None:
        """Add the sends to the tally."""
        self.load.sent += self._told
        self.tally.add_sends(self.load, self.crowd)
        self.tally.insiders.update(each.status for each in self._told)


# ---- faults; each ends with every node running and catching up


async def cut_to_slave(life: Life) -> None:
    """A slave receives nothing from its master."""
    life.cut(life.master, life.one_slave())
    await life.some_time()
    life.heal()


async def cut_to_master(life: Life) -> None:
    """The master receives nothing from a slave, which goes on storing."""
    life.cut(life.one_slave(), life.master)
    await life.some_time()
    life.heal()


async def cut_both(life: Life) -> None:
    """No bytes pass in either direction."""
    slave = life.one_slave()
    life.cut(life.master, slave)
    life.cut(slave, life.master)
    await life.some_time()
    life.heal()


async def freeze_slave(life: Life) -> None:
    """A slave stands still with open connections."""
    slave = life.one_slave()
    slave.freeze()
    await life.some_time()
    slave.thaw()


async def freeze_master(life: Life) -> None:
    """The master stands still for a while, and continues as master."""
    life.master.freeze()
    await life.some_time()
    life.master.thaw()


async def freeze_master_promote(life: Life) -> None:
    """The master stands still, a slave is promoted, the old master wakes up during its sends."""
    old = life.master
    old.freeze()
    await life.promote()
    await life.some_time(0, 1)
    async with life.insider(old):
        old.thaw()
        await life.some_time(0.5, 1.5)
    await life.demote(old)


async def kill_slave(life: Life) -> None:
    """A slave is killed and restarted."""
    slave = life.one_slave()
    await slave.kill()
    await life.some_time(0, 1)
    await slave.start()


async def kill_master(life: Life) -> None:
    """The master is killed and restarts as master."""
    await life.master.kill()
    await life.some_time(0, 1)
    await life.master.start()


async def kill_master_promote(life: Life) -> None:
    """The master is killed, a slave is promoted, the old master restarts with a client that knows only it."""
    old = life.master
    await old.kill()
    await life.promote()
    async with life.insider(old):
        await old.start()
        await life.some_time(0.3, 1)
    await life.demote(old)


async def kill_all(life: Life) -> None:
    """All are killed at once; before they restart, both disks are checked."""
    await asyncio.gather(*(node.kill() for node in life.nodes))
    if life.mode.pool != "none":  # no log of the master without its write buffers; its slaves bring what died
        await asyncio.gather(*(node.start() for node in life.nodes))
        return
    logs = {}
    for node in life.nodes:
        logs[node.name] = recovered_end(node.store, node.directory / "copy", node.settings)
    for slave in life.slaves:
        life.tally.bytes_compared += compare(logs[slave.name], logs[life.master.name])
    if len(life.nodes) == 2:  # with more, each message is on any two of them
        await asyncio.sleep(0.2)  # for answers under way
        for log in logs.values():
            life.check_log(log)
    await life.master.start()
    await asyncio.gather(*(node.start() for node in life.slaves))


async def throw_slave(life: Life) -> None:
    """A slave's disk is deleted; it returns empty."""
    slave = life.one_slave()
    await slave.kill()
    await life.some_time(0, 0.5)
    await life.rejoin_empty(slave)


async def throw_master(life: Life) -> None:
    """The master's disk is deleted; a promoted slave has everything; the old master returns empty."""
    old = life.master
    await old.kill()
    old.wipe()
    await life.promote()
    await life.rejoin_empty(old)


async def planned_switch(life: Life) -> None:
    """Master and slave swap roles under load."""
    await life.promote()


async def isolate_master_promote(life: Life) -> None:
    """The master is cut off from all but a client on its own host; a slave is promoted meanwhile."""
    assert life.network is not None
    old = life.master
    async with life.insider(old):
        await life.some_time(0.1, 0.5)
        life.network.isolate(old.name)
        await life.promote()
        await life.some_time(0.2, 1.5)
        life.heal()
        await life.some_time(0.2, 0.5)
    await life.demote(old)


async def isolate_slave(life: Life) -> None:
    """A slave is cut off from all others."""
    assert life.network is not None
    life.network.isolate(life.one_slave().name)
    await life.some_time()
    life.heal()


async def damage(life: Life) -> None:
    """Bytes of the HA connection are doubled, swapped, changed and delayed, in both directions."""
    proxy = life.proxies[life.master.name]
    for direction in (proxy.up, proxy.down):
        direction.delay_ms = life.rng.choice((0.0, 1.0, 5.0))
        direction.double_share = life.rng.uniform(0, 0.1)
        direction.swap_share = life.rng.uniform(0, 0.1)
        direction.damage_share = life.rng.uniform(0.02, 0.2)
    await life.some_time(1.5, 3)
    life.heal()


FAULTS: Final[dict[str, Callable[[Life], Awaitable[None]]]] = {
    each.__name__: each
    for each in (
        cut_to_slave,
        cut_to_master,
        cut_both,
        freeze_slave,
        freeze_master,
        freeze_master_promote,
        kill_slave,
        kill_master,
        kill_master_promote,
        kill_all,
        throw_slave,
        throw_master,
        planned_switch,
        isolate_master_promote,
        isolate_slave,
        damage,
    )
}
ONLY_NETWORK: Final = frozenset({"isolate_master_promote", "isolate_slave"})
ONLY_PROXY: Final = frozenset({"damage"})


def faults_of(*, network: bool) -> list[str]:
    """Return the faults that work with separate hosts, or with proxies."""
    return sorted(FAULTS.keys() - (ONLY_PROXY if network else ONLY_NETWORK))


@contextlib.asynccontextmanager
async def a_life(
    seed: int,
    directory: Path,
    tally: Tally,
    *,
    network: bool,
    copies: int = 2,
    mode: Mode | None = None,
    kinds: tuple[str, ...] = KINDS,
) -> AsyncIterator[Life]:
    """Start a group in an empty directory; ``mode``: by default one of the seed. A life that fails keeps the directory
    and prints its path.
    """
    rng = random.Random(seed)
    mode = mode or rng.choice([each for each in LEGAL if each.shape == "pair"])
    settings = {
        "store.total_replicas": copies,
        **{f"store.{key}": value for key, value in mode.store_settings.items()},
        "store.slave_ack_policy": rng.choice(("WRITTEN", "FLUSHED")),
        "store.ha_transfer_batch_size": rng.choice((4096, 65_536, 1 << 20)),
    }
    names = [f"n{number}" for number in range(copies)]
    try:
        async with contextlib.AsyncExitStack() as stack:
            hosts = stack.enter_context(Network(*names)) if network else None
            port = free_ports(1 + 2 * copies)
            ip = hosts[HUB].address if hosts is not None else "127.0.0.1"
            group = Group(directory, ip, port)
            life = Life(seed, directory, group, hosts, tally, mode)
            if hosts is not None:
                for name in names:
                    group.add(name, hosts[name].address, BROKER_PORT, BROKER_PORT + 1, hosts[name].prefix, **settings)
            else:
                for at, name in enumerate(names):
                    ha_port = port + 2 + 2 * at
                    proxy = await stack.enter_async_context(TcpProxy(f"127.0.0.1:{ha_port}", seed + at))
                    life.proxies[name] = proxy
                    group.add(name, ip, port + 1 + 2 * at, ha_port, (), **settings)
                for at, node in enumerate(life.nodes):  # in a pair, each one's master is the other
                    node.settings["store.ha_master_address"] = life.proxies[names[1 - at]].address
            await stack.enter_async_context(group)
            life.load = await stack.enter_async_context(ProducerLoad(group.namesrv, life.rng))
            await life.begin()
            life.crowd = await stack.enter_async_context(Crowd(group.namesrv, seed, life.rng, kinds))
            yield life
            life.close()
    except BaseException as error:
        error.add_note(f"seed {seed}, network={network}, copies={copies}, {mode}; left in {directory}")
        raise
    shutil.rmtree(directory)

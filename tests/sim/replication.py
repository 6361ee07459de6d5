"""The life of a replicated group: one seed drives a master and its slaves as ordered steps, on disks that crash.

Lives here: ``ReplicatedLife``: the steps, the faults, what must hold.

Rules, after every step: a slave that follows has a byte prefix of its master's log. Whenever the group is whole again:
every message that was answered with SEND_OK is in every log, once, and the logs are the same. Power cuts, lost disks
and promotions come one at a time, and only when what was acknowledged is on as many nodes as the settings promise; but
slaves that acknowledge only what is flushed may all lose power with a lost master. Kills and cut connections come at
any time. So do slaves that are replaced: one goes away, another one takes its place, and the master may then be lost to
an operator who reaches only some of the nodes, and who is refused or promotes by the rules of ``promotion_rules``.
"""

import random
from pathlib import Path
from typing import Any

from pocketmq.client.admin.ha_admin import Group
from pocketmq.client.admin.promotion_rules import counted, lacks, newest_opened
from pocketmq.common.clock import ManualClock
from pocketmq.common.epochs import next_promotion
from pocketmq.namesrv.epochs import EpochRecord, EpochTable
from pocketmq.remoting.protocol.ha import HaEpochBody, HaEpochResponseHeader, HaPromiseResponseHeader, HaStatusBody
from pocketmq.store.append_result import PutStatus
from tests.sim.checkers import fresh_disk
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at
from tests.store.ha.nodes import Network, Node, drive, follow, is_prefix, texts_of
from tests.store.log_fakes import bodies

SETTLE_ROUNDS = 60


NUMBER_MAX = (1 << 53) - 1


class NameServer:
    """The epochs of a name server, which is down at times. ``forgets`` makes it grant any newer epoch."""

    def __init__(self, rng: random.Random, forgets: bool) -> None:
        self.table = EpochTable(4)
        self.rng = rng
        self.forgets = forgets

    def claim(self, number: int, owner: str, last_epoch: int = 0, *, force: bool = False) -> bool:
        record = EpochRecord(number, owner, f"{owner}:1", "SYNC_MASTER")
        granted = self.table.judge("b", record, force=force, last_epoch=NUMBER_MAX if self.forgets else last_epoch)
        if granted:
            self.table.records = self.table.with_claim("b", record)
        return granted

    def claim_of_members(self, number: int, owner: str) -> str:
        if self.rng.random() < 0.2:
            return "silent"
        return "" if self.claim(number, owner) else "refused"

    @property
    def answer(self) -> HaEpochResponseHeader:
        known = self.table.get("b")
        return HaEpochResponseHeader(False) if known is None else HaEpochResponseHeader(False, known.epoch, known.owner)


class SimNode(Node):
    """A node on a disk in memory."""

    def __init__(
        self, name: str, network: Network, clock: ManualClock, role: str, name_server: NameServer, **changes: Any
    ) -> None:
        self.disk = fresh_disk()
        self.name_server = name_server
        super().__init__(Path("/data") / name, network, clock, role, files=self.disk, **changes)

    def _start(self) -> None:
        super()._start()
        if self.service is not None:
            self.service.members.claim = self.name_server.claim_of_members

    @property
    def last_epoch(self) -> int:
        return self.state.epochs.cut(self.end).last_number if self.state.counted else 0

    def status(self) -> HaStatusBody:
        entries = self.state.epochs.cut(self.end).entries
        return HaStatusBody(
            address=self.name,
            role=self.role,
            node_id=self.state.node_id,
            epochs=[HaEpochBody(each.number, each.owner, each.start_offset) for each in entries],
            promised_epoch=self.state.promised_epoch,
            is_counted=self.state.counted,
            end_offset=self.end,
            in_sync_replicas=self.store.config.in_sync_replicas,
            total_replicas=self.store.config.total_replicas,
        )

    def come_back(self, disk: CrashFileSystem) -> None:
        """Start on the disk of a crash."""
        self.disk = disk
        self.files = disk
        self.open()


class ReplicatedLife:
    """One group with ``total_replicas`` 3 or 2; ``counts`` says what happened in it."""

    def __init__(self, seed: int, *, ignore_members: bool = False) -> None:
        """``ignore_members``: the operator and the name server do not look at epochs of counted slaves."""
        self.rng = random.Random(seed)
        rng = self.rng
        self.ignore_members = ignore_members
        self.name_server = NameServer(rng, ignore_members)
        slaves = rng.choice((1, 1, 2))
        self.changes: dict[str, Any] = {
            "flush_disk_type": rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
            "slave_ack_policy": rng.choice(("WRITTEN", "FLUSHED")),
            "ha_transfer_batch_size": rng.choice((4096, 1 << 20)),
            "append_mode": rng.choice(("mapped", "written")),
            "total_replicas": slaves + 1,
            "sync_on_close": True,
        }
        self.network = Network()
        self.clock = ManualClock()
        self.master = SimNode("n0", self.network, self.clock, "SYNC_MASTER", self.name_server, **self.changes)
        self.slaves = [
            SimNode(f"n{number + 1}", self.network, self.clock, "SLAVE", self.name_server, **self.changes)
            for number in range(slaves)
        ]
        self.names = slaves + 1
        self.away: list[SimNode] = []
        """Slaves that were replaced: they reach no other node, and have their disks."""
        self.point_at_master()
        self.sent = 0
        self.acknowledged: set[bytes] = set()
        self.counts = dict.fromkeys(
            ("sends", "acknowledged", "kills", "power_losses", "lost_disks", "promotions", "cuts", "recovered"), 0
        )
        self.counts |= dict.fromkeys(("replaced", "refused", "claims_refused", "chosen"), 0)

    # ---- parts

    @property
    def nodes(self) -> list[SimNode]:
        return [self.master, *self.slaves]

    def point_at_master(self) -> None:
        follow(self.master, *self.slaves)
        self.master.others = tuple(self.slaves)

    def send(self) -> None:
        """Send one group of messages; those that get SEND_OK must never be lost."""
        texts = []
        for _ in range(self.rng.randint(1, 3)):
            self.sent += 1
            texts.append(f"{self.sent}:".encode().ljust(self.rng.choice((20, 100, 700, 2500)), b"."))
        result = self.master.store.append(bodies(*texts))
        if not result.status.is_stored:
            return

        def told(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                self.acknowledged.update(texts)
                self.counts["acknowledged"] += len(texts)

        self.master.store.acknowledge(result.end_offset, True, told)
        self.counts["sends"] += 1

    def work(self, node: SimNode) -> None:
        """Let one worker of a node take a step."""
        workers = [worker for worker in node.runner.workers if not worker.stopped]
        worker = self.rng.choice(workers)
        worker.woken = False
        worker.step()

    def reopen_who_waits(self) -> None:
        """Reopen a slave whose log must be cut, as the broker does."""
        for slave in self.slaves:
            if slave.slave is not None and slave.slave.status().waits_for_restart:
                self.counts["cuts"] += 1
                slave.restart()

    def settle(self) -> None:
        """Let the group become whole, then run all checks."""
        for _ in range(SETTLE_ROUNDS):
            self.clock.advance_ms(500)
            drive(*self.nodes, rounds=3)
            self.reopen_who_waits()
            self.register()
            assert self.master.service is not None
            in_sync = self.master.service.status().in_sync_count
            if in_sync > len(self.slaves) and all(
                slave.end == self.master.end and self.is_following(slave) for slave in self.slaves
            ):
                break
        drive(*self.nodes, rounds=3)
        self.check_whole()

    def register(self) -> None:
        """Let the master claim its epoch, as it does periodically."""
        last, known = self.master.state.epochs.last, self.name_server.table.get("b")
        assert last is not None
        if not self.name_server.claim(last.number, last.owner):
            assert known is not None
            assert self.master.state.is_reserved(known.epoch, known.owner), "a master that nobody has replaced"

    @staticmethod
    def is_following(slave: SimNode) -> bool:
        return slave.slave is not None and slave.slave.status().connected

    # ---- rules

    def check_prefixes(self) -> None:
        for slave in self.slaves:
            if self.is_following(slave):
                assert is_prefix(slave, self.master), f"{slave.name} is no prefix of {self.master.name}"

    def check_whole(self) -> None:
        everything = texts_of(self.master)
        assert len(everything) == len(set(everything)), "a message is there twice"
        lost = self.acknowledged - set(everything)
        assert not lost, f"{len(lost)} acknowledged messages are lost"
        for slave in self.slaves:
            assert self.is_following(slave), f"{slave.name} does not follow: {slave.slave and slave.slave.status()}"
            assert slave.end == self.master.end
            assert is_prefix(slave, self.master)
            assert texts_of(slave) == everything
            assert slave.state.epochs == self.master.state.epochs

    # ---- faults

    def kill(self, node: SimNode, disk: CrashFileSystem) -> None:
        """Kill the process; it restarts on ``disk``."""
        self.network.cut()
        self.counts["kills"] += 1
        if node.name in self.network.listeners:
            self.network.listeners.pop(node.name).close()
        node.come_back(disk)
        self.point_at_master()

    def kill_in_the_middle(self) -> None:
        """Kill a node at some change of its disk, while it works."""
        node = self.rng.choice(self.nodes)
        node.disk.before = kill_at(self.rng.randrange(1, 25), self.rng)
        try:
            for _ in range(self.rng.randint(5, 40)):
                if self.rng.random() < 0.3:
                    self.send()
                self.clock.advance_ms(self.rng.choice((0, 1, 500)))
                self.work(self.rng.choice(self.nodes))
                self.reopen_who_waits()
        except Killed:
            pass
        node.disk.before = None
        self.kill(node, node.disk.after_kill())

    def power_loss(self, node: SimNode) -> None:
        """One node loses its bytes that are not durable; the others run all the time."""
        self.network.cut()
        self.counts["power_losses"] += 1
        if node.name in self.network.listeners:
            self.network.listeners.pop(node.name).close()
        node.boot += "+"
        node.recovered_bytes = -1
        self.point_at_master()
        node.come_back(self.rng.choice(list(node.disk.crash_states(self.rng, 6))))
        self.point_at_master()
        self.counts["recovered"] += max(0, node.recovered_bytes)

    def promote(self, *, throw_away: bool) -> None:
        """The master is gone: the most advanced slave leads. The old master's disk is gone too, or it comes back."""
        old = self.master
        self.network.cut()
        self.network.listeners.pop(old.name).close()
        known = self.name_server.answer.epoch
        epoch = next_promotion(max(known, *(slave.state.promised_epoch for slave in self.slaves)))
        keys = [(slave.state.epochs.cut(slave.end).last_number, slave.end) for slave in self.slaves]
        candidate = self.slaves[keys.index(max(keys))]
        owner = candidate.state.new_owner()
        for slave in self.slaves:
            assert slave.slave is not None
            assert slave.slave.promise(epoch, owner)
        assert self.name_server.claim(epoch, owner, candidate.last_epoch), "all are there"
        candidate.state.set_role("SYNC_MASTER", 0)
        candidate.restart("SYNC_MASTER")
        self.master = candidate
        if throw_away:
            self.counts["lost_disks"] += 1
            old = self.new_node()
        else:
            old.role = "SLAVE"
            old.come_back(old.disk.after_kill())
        self.slaves = [*(slave for slave in self.slaves if slave is not candidate), old]
        self.counts["promotions"] += 1
        self.point_at_master()

    # ---- slaves that are replaced

    def new_node(self) -> SimNode:
        self.names += 1
        return SimNode(f"n{self.names - 1}", self.network, self.clock, "SLAVE", self.name_server, **self.changes)

    def some_work(self, steps_max: int) -> None:
        for _ in range(self.rng.randint(0, steps_max)):
            if self.rng.random() < 0.15:
                self.send()
            if self.rng.random() < 0.1:
                self.clock.advance_ms(self.rng.choice((100, 1000, 5000)))
            self.work(self.rng.choice(self.nodes))
            self.reopen_who_waits()

    def replace(self) -> None:
        """One slave leaves, another takes its place; then an operator may lose the master."""
        self.settle()
        self.some_work(30)
        gone = self.rng.choice(self.slaves)
        self.network.cut()
        self.slaves.remove(gone)
        self.some_work(20)
        if self.away and self.rng.random() < 0.4:
            new = self.away.pop(self.rng.randrange(len(self.away)))
            new.come_back(new.disk.after_kill())
        else:
            new = self.new_node()
        self.away.append(gone)
        self.slaves.append(new)
        self.point_at_master()
        self.counts["replaced"] += 1
        self.some_work(150)
        if self.rng.random() < 0.6:
            others = [*self.slaves, *self.away[-2:]]
            reached = self.rng.sample(others, self.rng.randint(1, len(others)))
            self.choose_master(reached, lives=self.rng.random() < 0.5)
        self.settle()

    def choose_master(self, reached: list[SimNode], *, lives: bool) -> None:
        """Promote as ``pocketmq ha promote`` does, by an operator who reaches only some nodes and not the master, which
        may run nevertheless (``lives``).
        """
        if not lives:
            self.network.cut()
            self.network.listeners.pop(self.master.name).close()
        group = Group("b", {node.name: node.status() for node in reached}, name_servers={"ns": self.name_server.answer})
        best = group.others[0]
        candidate = next(node for node in reached if node.name == best.address)
        opened = newest_opened(group, best)
        needed = group.promises_needed("SYNC_MASTER")
        useful = [node for node in group.others if self.ignore_members or not lacks(node.last_epoch, opened)]
        if (lacks(best.last_epoch, opened) and not self.ignore_members) or len(useful) < needed:
            self.counts["refused"] += 1
            if not lives:
                self.master.come_back(self.master.disk.after_kill())
                self.point_at_master()
            return
        epoch = next_promotion(group.highest_epoch)
        owner = candidate.state.new_owner()
        if lives:
            self.some_work(20)
        granted: dict[str, HaPromiseResponseHeader] = {}
        for node in reached:
            assert node.slave is not None
            if node.slave.promise(epoch, owner):
                granted[node.name] = HaPromiseResponseHeader(True, epoch, owner, node.last_epoch, node.end)
        own = granted.get(candidate.name)
        count = granted if self.ignore_members else counted(granted, opened)
        if lives:
            self.some_work(20)
        if (
            own is None
            or len(count) < needed
            or any((each.last_epoch, each.end_offset) > (own.last_epoch, own.end_offset) for each in granted.values())
            or not self.name_server.claim(epoch, owner, own.last_epoch)
        ):
            self.counts["claims_refused"] += 1
            self.lead_again(reached)
            return
        self.counts["chosen"] += 1
        candidate.state.set_role("SYNC_MASTER", 0)
        candidate.restart("SYNC_MASTER")
        self.take_over(candidate, reached)

    def take_over(self, candidate: SimNode, reached: list[SimNode]) -> None:
        """The candidate leads; those that were reached follow first, then the old master, then the rest."""
        old = self.master
        self.network.cut()
        if old.name in self.network.listeners:
            self.network.listeners.pop(old.name).close()
        old.role = "SLAVE"
        old.come_back(old.disk.after_kill())
        rest = [node for node in (*reached, old, *self.slaves, *self.away) if node is not candidate]
        nodes = list(dict.fromkeys(rest))
        count = self.changes["total_replicas"] - 1
        self.master, self.slaves, self.away = candidate, nodes[:count], nodes[count:]
        self.point_at_master()

    def lead_again(self, reached: list[SimNode]) -> None:
        """Promises were made and no node may lead: the old master, which has everything, is promoted by force."""
        master = self.master
        self.network.cut()
        if master.name in self.network.listeners:
            self.network.listeners.pop(master.name).close()
        master.role = "SLAVE"
        master.come_back(master.disk.after_kill())
        everybody = [*self.nodes, *self.away]
        known = max(self.name_server.answer.epoch, *(node.state.promised_epoch for node in everybody))
        epoch, owner = next_promotion(known), master.state.new_owner()
        assert master.state.promise(epoch, owner)
        assert self.name_server.claim(epoch, owner, force=True)
        master.state.set_role("SYNC_MASTER", 0)
        master.restart("SYNC_MASTER")
        self.point_at_master()

    # ---- life

    def live(self, steps: int) -> None:
        """Take random steps, settling before and after the faults that may come only one at a time."""
        self.settle()
        for _ in range(steps):
            kind = self.rng.random()
            if kind < 0.35:
                self.send()
            elif kind < 0.80:
                for _ in range(self.rng.randint(1, 12)):
                    self.work(self.rng.choice(self.nodes))
            elif kind < 0.86:
                self.clock.advance_ms(self.rng.choice((1, 100, 1000, 4000)))
            elif kind < 0.90:
                self.network.cut()
            elif kind < 0.93:
                node = self.rng.choice(self.nodes)
                self.kill(node, node.disk.after_kill())
            elif kind < 0.95:
                self.kill_in_the_middle()
            elif kind < 0.97:
                self.replace()
            else:
                self.great_fault()
            self.reopen_who_waits()
            self.check_prefixes()
        self.settle()

    def great_fault(self) -> None:
        """A power cut or a lost master, somewhere within ordinary work behind a settled state."""
        self.settle()
        for _ in range(self.rng.randint(0, 6)):
            self.send()
            for _ in range(self.rng.randint(0, 10)):
                self.work(self.rng.choice(self.nodes))
        kind = self.rng.random()
        if kind < 0.3:
            self.power_loss(self.master)
        elif kind < 0.6:
            self.power_loss(self.rng.choice(self.slaves))
        else:
            if self.changes["slave_ack_policy"] == "FLUSHED" and self.rng.random() < 0.5:
                for slave in self.slaves:  # acknowledged bytes are on their disks: the whole group may lose power
                    self.power_loss(slave)
            self.promote(throw_away=kind > 0.8)
        self.settle()

"""What goes wrong, and how it is repaired.

Lives here: ``Faults``. Kills, cuts, frozen nodes, clocks and slow disks come at any time, several at once. The loss of
power, of a disk or of a master comes one at a time in a group, and only once the group is whole: more than one at once
is beyond what ``docs/durability.md`` and ``docs/replication.md`` promise.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.cluster_sim.kernel import NS_PER_MS
from tests.cluster_sim.nodes import BrokerNode, Node

if TYPE_CHECKING:
    from tests.cluster_sim.life import Group, Life

WHOLE_MS: Final = 240_000
PEACE_MS: Final = 240_000


class Faults:
    """Injects faults into one life."""

    def __init__(self, life: "Life") -> None:
        self.life = life
        self.kernel = life.kernel
        self.rng = life.rng
        self._repairs: list[Callable[[], None]] = []
        self._kinds: list[tuple[Callable[[], bool], int]] = [
            (self.kill, 4),
            (self.kill_in_a_write, 3),
            (self.kill_in_an_append, 3),
            (self.stop, 1),
            (self.freeze, 3),
            (self.cut, 4),
            (self.half_open, 3),
            (self.slow_link, 2),
            (self.step_clock, 3),
            (self.slow_disk, 2),
            (self.full_disk, 2),
            (self.failing_disk, 2),
            (self.kill_client, 2),
            (self.power_loss, 3),
            (self.lying_disk, 2),
            (self.promote, 6),
            (self.empty_slave, 1),
        ]

    def one(self) -> None:
        """Let one thing go wrong."""
        calls = [call for call, weight in self._kinds for _ in range(weight)]
        call = self.rng.choice(calls)
        self.kernel.note("fault", call.__name__)
        if call():
            self.life.counts["faults"] += 1
            self.life.counts[call.__name__] += 1

    def later(self, low_ms: int, high_ms: int, repair: Callable[[], None]) -> None:
        """Repair after a while."""
        done: list[bool] = []

        def once() -> None:
            if not done:
                done.append(True)
                self._repairs.remove(once)
                repair()

        self._repairs.append(once)
        self.kernel.after(self.rng.randrange(low_ms, high_ms) * NS_PER_MS, None, once)

    def end_all(self) -> None:
        """Repair everything now."""
        for repair in list(self._repairs):
            repair()

    # ---- nodes

    def a_node(self) -> Any:
        return self._running(self.life.nodes)

    def a_broker(self) -> Any:
        return self._running(self.life.brokers)

    def _running(self, nodes: Any) -> Any:
        found = [node for node in nodes if node.runs and not node.stopping]
        return self.rng.choice(found) if found else None

    def group_of(self, node: Node) -> "Group | None":
        return next((group for group in self.life.groups if node in group.nodes), None)

    def _group(self, node: Node) -> "Group":
        group = self.group_of(node)
        assert group is not None
        return group

    def start(self, node: Node) -> None:
        node.stopping = False
        if node.process is None:
            node.start()

    def crashed(self, node: Node) -> None:
        group = self.group_of(node)
        if group is not None:
            self.interrupt(group)

    def interrupt(self, group: "Group") -> None:
        """Note that deliveries of a group may be repeated, and its locks are lost."""
        group.crashed = True
        group.interruptions.append((self.kernel.now_ns, self.kernel.now_ns))

    def kill(self) -> bool:
        """kill -9."""
        node = self.a_node()
        if node is None:
            return False
        self.crashed(node)
        node.stopping = True
        node.machine.kill()
        self.later(50, 6000, lambda: self.start(node))
        return True

    def kill_in_a_write(self) -> bool:
        """kill -9 in the middle of a change of the disk."""
        return self._kill_in(self.a_broker(), "kill_in", self.rng.randrange(1, 40))

    def kill_in_an_append(self) -> bool:
        """kill -9 of a master in the middle of the copy of a group into a mapped file: any of its lines are there."""
        masters = [group.master for group in self.life.groups]
        mapped = [
            node
            for node in masters
            if node.store["append_mode"] == "mapped" or "transient_store_pool_buffer_size" in node.store
        ]
        return self._kill_in(self._running(mapped), "kill_in_append", self.rng.randrange(4))

    def _kill_in(self, node: Any, what: str, number: int) -> bool:
        if node is None:
            return False
        self.crashed(node)
        node.stopping = True
        setattr(node.machine.faults, what, number)

        def start() -> None:
            setattr(node.machine.faults, what, None)
            if node.process is not None:
                node.machine.kill()
            self.start(node)

        self.later(500, 6000, start)
        return True

    def stop(self) -> bool:
        """A clean stop."""
        node = self.a_node()
        if node is None:
            return False
        node.stopping = True
        group = self.group_of(node)
        if group is not None:
            group.interruptions.append((self.kernel.now_ns, self.kernel.now_ns))
        node.stop()

        def start() -> None:
            if node.process is not None:  # it takes too long: the service manager kills it
                self.crashed(node)
                node.machine.kill()
            self.start(node)

        self.later(2000, 9000, start)
        return True

    def freeze(self) -> bool:
        """SIGSTOP, then SIGCONT."""
        programs = [node for node in self.life.nodes if node.runs and not node.stopping]
        processes = [node.process for node in programs] + [each.process for each in self.life.programs]
        process = self.rng.choice(processes)
        assert process is not None
        self.life.freezes_ns.append(self.kernel.now_ns)
        process.freeze(self.rng.choice((100, 1000, 4000, 12_000)) * NS_PER_MS)
        return True

    def kill_client(self) -> bool:
        """A consumer is killed and started again."""
        program = self.rng.choice(self.life.consumers)
        if program.machine.process is None:
            return False
        self.life.ledger.died(program.process.name)
        program.machine.kill()
        self.later(50, 6000, program.start)
        return True

    # ---- links

    def _hosts(self) -> tuple[str, str]:
        machines = [node.machine for node in self.life.nodes] + [each.machine for each in self.life.programs]
        group = self.rng.choice(self.life.groups)
        if len(group.nodes) > 1 and self.rng.random() < 0.4:
            machines = [node.machine for node in group.nodes]
        one, other = self.rng.sample(machines, 2)
        return one.host, other.host

    def cut(self) -> bool:
        """A link lets nothing through."""
        one, other = self._hosts()
        self._cut([(one, other), (other, one)])
        return True

    def half_open(self) -> bool:
        """A link lets nothing through in one direction."""
        self._cut([self._hosts()])
        return True

    def _cut(self, links: list[tuple[str, str]]) -> None:
        network = self.life.network
        for link in links:
            network.cut(*link)

        def heal() -> None:
            for link in links:
                network.heal(*link)

        self.later(100, 15_000, heal)

    def slow_link(self) -> bool:
        """A link delays by up to a second."""
        link = self._hosts()
        self.life.network.slow[link] = self.rng.choice((20, 200, 1000)) * NS_PER_MS

        def quick() -> None:
            self.life.network.slow.pop(link, None)

        self.later(500, 10_000, quick)
        return True

    # ---- clocks and disks

    def step_clock(self) -> bool:
        """Somebody sets a wall clock."""
        machines = [node.machine for node in self.life.nodes] + [each.machine for each in self.life.programs]
        if self.rng.random() < 0.5:  # delays pend there
            machines = [group.master.machine for group in self.life.groups]
        machine = self.rng.choice(machines)
        step_ms = self.rng.choice((1500, 5000, 60_000, 3_600_000)) * self.rng.choice((-1, 1, 1))
        machine.clock.step_ms = step_ms
        self.kernel.note("step", machine.name, step_ms)
        begun_ns = self.kernel.now_ns

        def back() -> None:
            machine.clock.step_ms = 0
            if step_ms > PEACE_MS // 4:
                machine.clock.ahead_ns.append((begun_ns, self.kernel.now_ns))

        self.later(1000, 10_000, back)
        return True

    def slow_disk(self) -> bool:
        """A disk stands still for a while."""
        node = self.a_broker()
        if node is None:
            return False
        node.machine.faults.stalls_until_ns = self.kernel.now_ns + self.rng.choice((50, 500, 3000)) * NS_PER_MS
        return True

    def full_disk(self) -> bool:
        """A disk is full for a while."""
        node = self.a_broker()
        if node is None:
            return False
        files = node.machine.files
        files.capacity_bytes = files.used_bytes() + self.rng.randrange(1, 200_000)

        def space() -> None:
            node.machine.files.capacity_bytes = None
            files.capacity_bytes = None

        self.later(500, 8000, space)
        return True

    def failing_disk(self) -> bool:
        """Writes and syncs fail for a moment; the log is fenced, and the operator starts the broker again."""
        node = self.a_broker()
        if node is None:
            return False
        self.crashed(node)
        node.stopping = True
        self._group(node).disk_failed = True
        faults = node.machine.faults
        faults.fails_until_ns = self.kernel.now_ns + self.rng.choice((5, 100, 1000)) * NS_PER_MS

        def start() -> None:
            faults.fails_until_ns = 0
            node.machine.kill()
            self.start(node)

        self.later(2000, 8000, start)
        return True

    # ---- one at a time

    def _whole_group(self) -> "Group | None":
        """Choose a group, and wait until it is whole."""
        group: Group = self.rng.choice(self.life.groups)
        self.end_all()
        self.life.whole(WHOLE_MS, [group])
        return group

    def power_loss(self) -> bool:
        """A machine loses power: what is not synced may be gone."""
        group = self._whole_group()
        assert group is not None
        node = self.rng.choice(group.nodes)
        is_covered = group.flush == "SYNC_FLUSH" or (group.synchronous and len(group.nodes) > 1)
        if node is group.master and not is_covered:
            return False
        if not node.runs:
            return False
        self.interrupt(group)
        group.disk_failed = True
        node.stopping = True
        node.machine.kill(power=True)
        self.life.pass_ms(self.rng.randrange(20, 5000))
        self.start(node)
        self.life.whole(WHOLE_MS, [group])
        return True

    def lying_disk(self) -> bool:
        """A disk of a synchronous pair reports syncs that it does not carry out; its machine loses power. The other
        node has all. If the small files of a slave are lost, the operator gives it an empty disk; if those of a master
        are, or it does not lead again, a slave is promoted first."""
        group = self._whole_group()
        assert group is not None
        if not group.synchronous:
            return False
        node = self.rng.choice(group.nodes)
        if not node.runs:
            return False
        self.life.counts["lying_master"] += node is group.master
        node.last_failure = ""
        lies_ms = self.rng.choice((100, 1000, 3000))
        node.machine.faults.lies_until_ns = self.kernel.now_ns + lies_ms * NS_PER_MS
        self.life.pass_ms(lies_ms)
        if not node.runs:
            return True
        self.interrupt(group)
        group.disk_failed = True
        node.stopping = True
        node.machine.kill(power=True)
        self.life.pass_ms(self.rng.randrange(20, 5000))
        self.start(node)
        self.life.until(lambda: node.runs or "Corrupt" in node.last_failure, WHOLE_MS)
        if not node.runs:
            self.life.counts["start_refused"] += 1
            node.stopping = True  # until its disk is replaced
            node.machine.kill()
            if node is group.master:
                self._promote(group, self.rng.choice(group.slaves))
            self._new_disk(node)
        self.life.whole(WHOLE_MS, [group])
        return True

    def empty_slave(self) -> bool:
        """A slave gets a new disk."""
        group = self._whole_group()
        assert group is not None
        if not group.slaves:
            return False
        node = self.rng.choice(group.slaves)
        if not node.runs:
            return False
        node.stopping = True
        node.machine.kill()
        self._new_disk(node)
        self.life.whole(WHOLE_MS, [group])
        return True

    def _new_disk(self, node: BrokerNode) -> None:
        node.failed = ""
        node.machine.lose_disk()
        node.role, node.broker_id = "SLAVE", 1 + node.machine.lives
        self.start(node)

    def promote(self) -> bool:
        """The master is killed, frozen, cut off or healthy; its slave leads; the old one becomes a slave."""
        life = self.life
        group = self._whole_group()
        assert group is not None
        if not group.synchronous or not group.slaves:
            return False
        old, new = group.master, self.rng.choice(group.slaves)
        begun_ns = self.kernel.now_ns
        how = self.rng.choice(("kill", "freeze", "cut", "power", "empty", "planned"))
        life.counts[f"promote_{how}"] += 1
        others: list[Any] = [*life.nodes, *life.programs, life.operator]
        hosts = [each.machine.host for each in others if each is not old]
        links = [pair for host in hosts for pair in ((host, old.machine.host), (old.machine.host, host))]
        self.interrupt(group)  # the new master goes on from the progress of delays that it last copied
        group.disk_failed |= how == "power"
        if self.rng.random() < 0.5:  # its slave is late
            self._late_slave(old.machine.host, [node.machine.host for node in group.slaves])
        if how in ("kill", "power", "empty"):
            self._until_late(old, new)
            old.stopping = True
            old.machine.kill(power=how == "power")
        elif how == "freeze":
            assert old.process is not None
            old.process.freeze(600_000 * NS_PER_MS)
        elif how == "cut":
            for link in links:
                life.network.cut(*link)
        life.pass_ms(self.rng.randrange(0, 3000))
        self._promote(group, new)
        group.interruptions.append((begun_ns, self.kernel.now_ns))
        life.pass_ms(self.rng.randrange(0, 3000))
        if how == "empty":
            old.machine.lose_disk()
            old.role, old.broker_id = "SLAVE", 1 + old.machine.lives
        if how in ("kill", "power", "empty"):
            self.start(old)
        elif how == "freeze":
            assert old.process is not None
            old.process.thaw()
        elif how == "cut":
            for link in links:
                life.network.heal(*link)
        if how not in ("planned", "empty"):
            self._demote(group, old)
        life.whole(WHOLE_MS, [group])
        return True

    def _promote(self, group: "Group", new: BrokerNode) -> None:
        """Order a promotion, again and again while it is refused."""
        life = self.life
        while True:
            result = life.operator.promote(group.name)
            if not life.until(lambda: bool(result), WHOLE_MS):  # noqa: B023
                raise AssertionError("the promotion does not end")
            self.kernel.note("promotion", result[0])
            if not isinstance(result[0], Exception):
                break
            life.pass_ms(500)
            life.counts["promotions_refused"] += 1
            if life.counts["promotions_refused"] > 200:
                raise AssertionError(f"not promoted: {result[0]}")
        group.master = new

    def _until_late(self, master: BrokerNode, slave: BrokerNode) -> None:
        """Wait for a moment in which the slave lacks something, for a second at most."""
        for _ in range(1000):
            if not (master.runs and slave.runs):
                return
            if master.app.store.committed_offset > slave.app.store.committed_offset:
                return
            self.life.pass_ms(1)

    def _late_slave(self, master: str, slaves: list[str]) -> None:
        """Let a slave get the log, or its master the acknowledgements, late, while the producers go on."""
        slow = self.life.network.slow
        links = [(master, slave) if self.rng.random() < 0.7 else (slave, master) for slave in slaves]
        for link in links:
            slow[link] = self.rng.choice((50, 300, 1500)) * NS_PER_MS
        self.life.pass_ms(self.rng.randrange(100, 2500))

        def quick() -> None:
            for link in links:
                slow.pop(link, None)

        self.later(200, 3000, quick)

    def _demote(self, group: "Group", old: BrokerNode) -> None:
        """Let a replaced master follow, once it knows that it was replaced."""
        life = self.life
        fenced = life.until(
            lambda: old.runs and (old.app.replication.node.fenced_by is not None or old.app.role.is_slave),
            WHOLE_MS,
        )
        assert fenced, f"{old.name} never learns that it was replaced"
        for _ in range(100):
            if old.runs and old.app.role.is_slave:
                return
            result = life.operator.demote(old.address, group.name, 1 + old.machine.lives)
            life.until(lambda: bool(result), WHOLE_MS)  # noqa: B023
            self.kernel.note("demotion", result[0])
            if not isinstance(result[0], Exception):
                return
            life.pass_ms(500)
        raise AssertionError(f"not demoted: {result[0]}")

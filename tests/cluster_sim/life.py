"""One run: a cluster, its clients, faults from the seed, then peace, then the checks.

Lives here: ``Life``, which builds the cluster, lets time pass and ends the run; ``faults.py`` has what goes wrong.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.cluster_sim.clients import ConsumerProgram, Operator, ProducerProgram, Program
from tests.cluster_sim.kernel import NS_PER_MS, Kernel, Stuck
from tests.cluster_sim.ledger import Broken, Ledger
from tests.cluster_sim.machines import Machine
from tests.cluster_sim.network import Network
from tests.cluster_sim.nodes import NAMESRV_PORT, BrokerNode, NameServerNode, Node

EVENTS_MAX: Final = 400_000
START_MS: Final = 60_000
PEACE_MS: Final = 240_000
"""How long the cluster may take to become whole again once nothing goes wrong any more."""
DRIFT_PPM: Final = 500
POOL: Final = {"transient_store_pool_enable": True, "transient_store_pool_size": 3}
SURVIVING: Final = {**POOL, "transient_store_pool_buffer_size": 1 << 16}
"""Write buffers in shared memory."""
ANONYMOUS: Final = {**POOL, "transient_store_pool_path": "anonymous"}
"""RocketMQ's kind. A kill takes what was not committed: the slaves of a synchronous master have it."""


class Group:
    """The brokers of one name."""

    def __init__(self, name: str, nodes: list[BrokerNode], *, synchronous: bool, flush: str) -> None:
        self.name = name
        self.nodes = nodes
        self.synchronous = synchronous
        self.flush = flush
        self.master = nodes[0]
        self.last_power_ns = -1
        self.crashed = False
        """Whether a broker of it was ever not stopped cleanly: deliveries since then may be repeated."""
        self.disk_failed = False
        """Whether a disk of it has failed, or a machine lost power: its log may have damage."""
        self.interruptions: list[tuple[int, int]] = []
        """From when to when its brokers crashed, stopped or changed their roles."""

    @property
    def slaves(self) -> list[BrokerNode]:
        return [node for node in self.nodes if node is not self.master]


class Life:
    """One seed."""

    def __init__(self, kernel: Kernel, *, acknowledged: int = 1000, faults: int = 6) -> None:
        self.kernel = kernel
        self.rng = random.Random(self.kernel.rng.getrandbits(64))
        self.network = Network(self.kernel)
        self.ledger = Ledger()
        self.wanted = acknowledged
        self.faults_wanted = faults
        self.counts: Counter[str] = Counter()
        self._hosts = 0
        self.epochs: dict[str, dict[str, int]] = {}
        self.freezes_ns: list[int] = []
        """When processes were frozen by themselves, not for a promotion."""
        rng = self.rng
        self.name_servers = [NameServerNode(self.machine(f"ns{number}")) for number in range(rng.choice((1, 2, 3)))]
        self.namesrv = ";".join(f"{node.machine.host}:{NAMESRV_PORT}" for node in self.name_servers)
        self.groups = [self._group(name) for name in "abc"[: rng.choice((2, 2, 3))]]
        self.producer = ProducerProgram(self.machine("producer"), self.namesrv, self.ledger)
        self.producer.wanted = acknowledged
        self.consumers = [
            ConsumerProgram(self.machine(f"consumer{number}"), self.namesrv, self.ledger) for number in range(2)
        ]
        self.operator = Operator(self.machine("operator"), self.namesrv, self.ledger)

    def machine(self, name: str) -> Machine:
        self._hosts += 1
        rng = self.rng
        return Machine(
            name,
            self.kernel,
            self.network,
            f"10.0.0.{self._hosts}",
            rng.randint(-DRIFT_PPM, DRIFT_PPM),
            rng.randint(-300, 300),
        )

    def _group(self, name: str) -> Group:
        rng = self.rng
        synchronous = rng.random() < 0.7
        flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        batch_bytes, bytes_per_s = rng.choice(((1 << 20, 0), (4096, 0), (4096, 120_000)))
        store: dict[str, Any] = {
            "flush_disk_type": flush,
            "append_mode": rng.choice(("mapped", "written")),
            "slave_ack_policy": rng.choice(("WRITTEN", "FLUSHED")),
            "ha_transfer_batch_size": batch_bytes,
            "max_ha_transfer_byte_in_second": bytes_per_s,
        }
        pool: dict[str, Any] = {}
        if flush == "ASYNC_FLUSH":
            pool = rng.choice(({}, {}, SURVIVING, ANONYMOUS if synchronous else SURVIVING))
        count = 2 if synchronous or rng.random() < 0.5 else 1
        role = "SYNC_MASTER" if synchronous else "ASYNC_MASTER"
        nodes = [
            BrokerNode(
                self.machine(f"{name}{number}"),
                name,
                number,
                "SLAVE" if number else role,
                self.namesrv,
                **store,
                **({} if number else pool),
            )
            for number in range(count)
        ]
        return Group(name, nodes, synchronous=synchronous, flush=flush)

    # ---- parts

    @property
    def brokers(self) -> list[BrokerNode]:
        return [node for group in self.groups for node in group.nodes]

    @property
    def nodes(self) -> list[Node]:
        return [*self.name_servers, *self.brokers]

    @property
    def programs(self) -> list[Program]:
        return [self.producer, *self.consumers]

    # ---- time

    def until(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        """Let time pass until ``condition()``, looked at every 50 ms; return False after ``limit_ms``."""
        end_ns = self.kernel.now_ns + int(limit_ms * NS_PER_MS)
        while not condition():
            if self.kernel.now_ns >= end_ns:
                return False
            self.pass_ms(50)
            self.keep_running()
        return True

    def pass_ms(self, delay_ms: float) -> None:
        """Let time pass."""
        done: list[bool] = []
        self.kernel.after(int(delay_ms * NS_PER_MS), None, lambda: done.append(True))
        self.kernel.run(lambda: bool(done), EVENTS_MAX - self.kernel.events)

    def keep_running(self) -> None:
        """Start again what has failed to start, as a service manager does; look at what the name servers know."""
        for server in self.name_servers:
            if server.runs:
                self._check_epochs(server)
        for node in self.nodes:
            if node.failed and node.process is None and not node.stopping:
                self.counts["starts_again"] += 1
                self.kernel.note("again", node.name, node.failed)
                node.failed = ""
                self.kernel.after(500 * NS_PER_MS, None, lambda node=node: self._start_again(node))  # type: ignore[misc]

    def _check_epochs(self, server: NameServerNode) -> None:
        """The epoch of a name never goes back, whatever happens to the name server."""
        records = server.app.epochs.table.records
        for name, highest in self.epochs.setdefault(server.name, {}).items():
            record = records.get(name)
            if record is None or record.epoch < highest:
                raise Broken(f"{server.name} knew epoch {highest} of {name}, and has {record}")
        self.epochs[server.name] = {name: record.epoch for name, record in records.items()}

    def _start_again(self, node: Node) -> None:
        if node.process is None and not node.stopping:
            node.start()

    # ---- the run

    def run(self) -> None:
        """Live, then check. Raises ``Broken``, ``Stuck``."""
        from tests.cluster_sim.checks import check_everything
        from tests.cluster_sim.faults import Faults

        self.start()
        faults = Faults(self)
        while self.counts["faults"] < self.faults_wanted:
            self.pass_ms(self.rng.randrange(200, 3000))
            faults.one()
            self.keep_running()
        faults.end_all()
        missing = self.wanted
        if not self.until(lambda: self.ledger.acknowledged >= missing, PEACE_MS):
            raise Stuck(f"{self.ledger.acknowledged} acknowledged; {self.state()}")
        self.producer.stop_asked = True
        if not self.until(lambda: self.producer.running == 0, PEACE_MS):
            raise Stuck(f"the producers do not end; {self.state()}")
        self.whole(PEACE_MS)
        self.settle()
        self.whole(PEACE_MS)  # what the last deliveries have stored
        check_everything(self)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        if not self.until(lambda: all(node.runs for node in self.nodes), START_MS):
            raise Stuck(f"not started: {self.state()}")
        self.whole(START_MS)
        for program in (*self.programs, self.operator):
            program.start()

    def is_whole(self, group: Group) -> bool:
        """Whether the master runs, is not fenced, shows all it has, and its slaves have everything it has."""
        if not all(node.runs for node in group.nodes):
            return False
        store = group.master.app.store
        if store.dispatched_offset < store.log.committed_offset:
            return False  # a slave has shown the last message already, and the word of that is on its way
        for node in group.slaves:
            replication = node.app.replication
            slave = replication.node.slave
            if slave is None or not slave.status().connected:
                return False
            if node.app.store.log.committed_offset != group.master.app.store.log.committed_offset:
                return False
            if replication.node.slave.status().waits_for_restart:
                return False
        if group.slaves and group.synchronous:
            service = group.master.app.replication.node.service
            if service is None or service.status().in_sync_count < len(group.nodes):
                return False
        return True

    def whole(self, limit_ms: float, groups: list[Group] | None = None) -> None:
        """Wait until groups are whole."""
        chosen = self.groups if groups is None else groups
        if not self.until(lambda: all(self.is_whole(group) for group in chosen), limit_ms):
            raise Stuck(f"not whole: {self.state()}")

    def settle(self) -> None:
        """Wait until consumers have everything."""
        from tests.cluster_sim.checks import due_to_consumers, missing_for_consumers

        missing = due_to_consumers(self)

        def have_all() -> bool:
            while missing and missing[-1][1] in self.ledger.handled.get(missing[-1][0], {}):
                missing.pop()
            return not missing

        if not self.until(have_all, PEACE_MS):
            raise Broken(f"never delivered: {missing_for_consumers(self)[:5]}; {self.state()}")

    def state(self) -> str:
        """Return what each node is doing, for a failure."""
        return "; ".join(f"{node.name} {'runs' if node.runs else 'is down'} {node.failed}" for node in self.nodes)

    def close(self) -> None:
        self.kernel.close()

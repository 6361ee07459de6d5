"""Replication of one run of a broker: built with the run, opened with the store, closed before it.

Lives here: ``Replication``, which opens and closes the master's or the slave's side and the mirrored tables in order.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.ha_environment import ReplicationEnvironment
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.ha.ha_roles import RoleOfRun, role_of_run
from pocketmq.broker.ha.master_address import MASTER_FILE, MasterAddress
from pocketmq.broker.ha.members_claim import MembersClaim, NameServers
from pocketmq.broker.ha.off_loop import run_off_loop
from pocketmq.broker.ha.slave_mirror import COMMITS_FILE, LocalCommits, SlaveMirror
from pocketmq.broker.ha.slave_sync import SlaveSync, TablesFrom
from pocketmq.broker.persisted_table import PersistedTable, Table
from pocketmq.broker.topic.topic_table import MASTER_GONE, remake_topics
from pocketmq.common.addresses import address_text
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import AllSteps
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.security.tls_config import ENFORCING
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.opening import needs_recovery, open_store
from pocketmq.store.ha.recover import recover_from_slaves
from pocketmq.store.ha.service import HaService, port_of
from pocketmq.store.ha.state import HaState
from pocketmq.store.ha.tls_transport import HaTls
from pocketmq.store.message_store import MessageStore, RecoveryReport

ANY_PORT: Final = -1


def load_role(
    config: BrokerConfig, store_config: StoreConfig, file_system: FileSystem, clock: Clock, log: EventLog
) -> tuple[RoleOfRun, HaState]:
    """Return the role and the remembered state of this start. Blocks. Raises ``CorruptStore``, ``ConfigError``."""
    root = os.path.abspath(os.path.expanduser(store_config.store_path_root_dir))
    state = HaState(file_system, StorePaths(root), clock, os.urandom)
    state.load()
    return role_of_run(config, store_config, state, log), state


class Replication:
    """One run. ``open``, ``stop`` and ``closed`` block, in a worker; ``start`` and ``stop_asking`` in the loop."""

    def __init__(self, node: HaNode, store: MessageStore, environment: ReplicationEnvironment) -> None:
        """``environment.reopen`` is called, in any thread, when a slave's store must be opened again."""
        self.role = role = node.role
        self.node = node
        self.commits = LocalCommits()
        self.master = MasterAddress()
        self._state = node.state
        self._store = store
        self._environment = environment
        self._log = log = environment.logger("ha")
        self._fencing: asyncio.Task[bool] | None = None
        self._members_claim = MembersClaim(environment.mailbox, environment.supervisor)

        def file(table: Table, name: str) -> PersistedTable:
            path = f"{store.config.store_path_root_dir}/{name}"
            return PersistedTable(table, path, environment.file_system, log, durable=store.config.sync_on_close)

        self._commits_file = file(self.commits, COMMITS_FILE)
        self._master_file = file(self.master, MASTER_FILE)
        self._is_open = False
        self._mirror: SlaveMirror | None = None
        self._sync: SlaveSync | None = None
        if role.is_slave:
            self._mirror = SlaveMirror(environment, store, self.commits, [self._commits_file, self._master_file])
            self._sync = SlaveSync(self._mirror, self._tables_from, role.config.slave_sync_interval, environment)

    # ---- the view of the name servers (registration.ReplicationView); loop thread

    @property
    def ha_address(self) -> str:
        """Where slaves connect; empty: nowhere."""
        return self.node.ha_address

    @property
    def role_name(self) -> str:
        """The role of this run."""
        return self.role.store_config.broker_role

    @property
    def may_register(self) -> bool:
        """False once another master has replaced this one."""
        return self.node.fenced_by is None

    def claim(self) -> tuple[int, str]:
        """Return the (epoch, owner) to register."""
        return self.node.claim()

    def status(self) -> HaStatusBody:
        """Return what this node is, for a name server that asks whether it lives and what it has promised."""
        return self.node.status()

    def learn_epoch(self, epoch: int, owner: str, address: str) -> None:
        """Learn that another master has this name: fence this one, in a worker. Loop thread."""
        if self._fencing is None:
            runner, mailbox = self._environment.runner, self._environment.mailbox
            call = run_off_loop(runner, mailbox, "HaFence", lambda: self.node.fence(epoch, owner, address))
            self._fencing = asyncio.get_running_loop().create_task(call, name="ha-fence")
            self._fencing.add_done_callback(self._fenced)

    def learn_known_epoch(self, epoch: int) -> None:
        """Learn the newest epoch that a name server knows."""
        self.node.learn_known_epoch(epoch)

    def _fenced(self, task: asyncio.Task[bool]) -> None:
        self._fencing = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("fence_not_written", error=str(error), what_to_do="check the disk; sends are refused")

    def learn_master(self, ha_address: str, broker_address: str) -> None:
        """Learn from a name server where this slave's master is. Without an answer the last known address stays: a
        master that restarts may ask its slaves for lost records before it registers again."""
        if ha_address and broker_address:
            self.master.learn(ha_address, broker_address)

    def _master_ha_address(self) -> str:
        return self.role.store_config.ha_master_address or self.master.ha_address

    def _tables_from(self) -> TablesFrom | None:
        """Return where tables come from: the node that streams the log, at the address that it sent with the log, or,
        for masters of older versions, which send none, at the address that name servers returned."""
        followed = None if self.node.slave is None else self.node.slave.followed
        if followed is None:
            return None
        address = followed.address or self.master.broker_address
        return TablesFrom(address, followed.epoch, followed.owner) if address else None

    @property
    def has_master(self) -> bool:
        """Whether this slave follows a master now. Any thread."""
        slave = self.node.slave
        return slave is not None and slave.status().connected

    @property
    def wants_master(self) -> bool:
        """Whether this is a slave without a master: it then asks name servers more often."""
        return self.role.is_slave and not (self.has_master and self.master.broker_address)

    # ---- life

    def open(self, address: str, host: str, port: int, progress: Callable[[int, int], None] | None) -> None:
        """Open the store as this node's state requires, then its side of replication.

        ``address``: the registered one; ``host``: where slaves connect; ``port``: where this broker listens.

        A master that must ask its slaves for lost records does so here. Raises the errors of ``open_store``,
        ``HaService`` and ``recover_from_slaves``; the caller closes the store.
        """
        self.node.address = address
        report = open_store(self._store, self._state, self._log, progress)
        if self.role.is_slave:
            return
        if self.node.fenced_by is not None:
            fenced_by = self.node.fenced_by
            is_synchronous = self.role.store_config.broker_role == "SYNC_MASTER"
            self._store.reads_wait = is_synchronous and self._store.committed_offset > self._state.confirmed_offset
            self._log.error(
                "starts_fenced",
                epoch=fenced_by.epoch,
                master=fenced_by.address,
                what_to_do=f"let it follow: pocketmq ha demote {self.role.config.broker_name}",
            )
            return
        self._open_master(host, port, report)

    def _ha_environment(self) -> HaEnvironment:
        config = self.role.config
        return HaEnvironment(
            self._store,
            self._state,
            config.broker_cluster_name,
            config.broker_name,
            self._environment.clock,
            self._environment.runner,
            self._log,
            self._environment.cluster_secret,
            self._ha_tls(),
        )

    def _ha_tls(self) -> HaTls | None:
        tls = self._environment.tls
        if not tls.files:
            return None
        return HaTls(
            lambda: tls.server, tls.config.server_mode == ENFORCING, tls.links.context, tls.links.server_hostname
        )

    def _open_master(self, host: str, port: int, report: RecoveryReport) -> None:
        config, store_config = self.role.config, self.role.store_config
        environment = self._ha_environment()
        service = HaService(environment, address=self.node.address)
        # A broker on a port that the system chose must not depend on the port beside it.
        is_any = config.listen_port == 0 and not store_config.ha_listen_port
        wanted = ANY_PORT if is_any else port_of(store_config, port)
        if needs_recovery(self._state, store_config, report):
            recover_from_slaves(environment, config.bind_address, wanted)
            if self._state.fenced_by is not None:
                self.node.was_fenced(self._state.fenced_by)
                return
        try:
            ha_port = service.open_port(config.bind_address, wanted)
        except ConfigError as error:
            if store_config.broker_role == "SYNC_MASTER" or store_config.ha_listen_port or self._state.slaves:
                raise
            self._log.warning(
                "ha_port_not_opened", error=str(error), what_to_do="nothing, unless this broker is to have slaves"
            )
            self._store.set_epoch(self._state.open_epoch(self._store.log.committed_offset).number)
            return
        try:
            service.on_fenced = self.node.was_fenced
            if config.name_servers():
                service.members.claim = service.shown.claim = self._members_claim.claim
                service.members.admit = self._members_claim.admit
            service.start()
        except BaseException:
            service.stop()
            raise
        self.node.service = service
        self.node.ha_address = address_text(host, ha_port)

    def open_tables(self, *, topics_are_old: bool = False) -> None:
        """Reconcile the tables with the log, after both are loaded. Blocks.

        ``topics_are_old``: the topics come from a backup, or no file was found: some may be missing.
        """
        self._commits_file.load()
        self._is_open = True
        if not self.role.is_slave:
            self.commits.clear()
            self._commits_file.persist()
            topics, offsets = self._environment.topics, self._environment.offsets
            clamped = offsets.clamp(self._store.max_offset)
            if clamped:
                self._log.warning(
                    "consumer_offsets_clamped", entries=clamped, why="they were beyond the ends of queues"
                )
            if self._state.tables_due or topics_are_old:
                topics.add_system_topics()  # first: they have numbers of queues of their own
                why = "topics.json did not have them" if topics_are_old else MASTER_GONE
                remake_topics(topics, self._store, self._log, why)
            return
        assert self._mirror is not None
        self._mirror.load()
        self._master_file.load()
        environment = self._environment
        self.node.slave = environment.slave_type(
            self._ha_environment(),
            self._master_ha_address,
            broker_id=self.role.config.broker_id,
            on_reopen=environment.reopen,
        )

    def tables_written(self) -> None:
        """Note that the tables are on disk as ``open_tables`` has reconciled them. Blocks."""
        if self._state.tables_due and not self.role.is_slave:
            self._state.tables_done()

    def ask(self, name_servers: NameServers) -> None:
        """Let the master claim epochs and admit slaves, now that it is registered."""
        self._members_claim.name_servers = name_servers

    def start(self) -> None:
        """Begin to follow and to mirror tables, after name servers have returned the address of the master."""
        if self.node.slave is not None:
            self.node.slave.start()
        if self._sync is not None:
            self._sync.start()

    async def stop_asking(self) -> None:
        """Stop the mirroring, and refuse claims."""
        self._members_claim.name_servers = None
        if self._sync is not None:
            await self._sync.stop()

    def stop(self) -> None:
        """Stop both sides; the store is still open. Takes every step, then raises the first error."""
        node = self.node
        steps = AllSteps(
            lambda step, error: self._log.error("replication_stop_failed", step=step, error=str(error) or repr(error))
        )
        if node.slave is not None:
            steps.take("slave", node.slave.stop)
        if node.service is not None:
            steps.take("service", node.service.stop)
        if self._is_open:
            steps.take("commits", self._commits_file.persist)
            steps.take("master", self._master_file.persist)
        steps.raise_first()

    def closed(self) -> None:
        """Note that the store was closed without an error: no record of this run can be lost."""
        store_config = self.role.store_config
        durable = store_config.sync_on_close or store_config.flush_disk_type == "SYNC_FLUSH"
        if self.node.service is not None and durable:
            self._state.mark_clean()

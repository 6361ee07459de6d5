"""One broker: starts and stops its parts in order.

    app = BrokerApp(BrokerConfig(listen_port=0), StoreConfig(store_path_root_dir=path))
    await app.start();  print(app.address);  await app.stop()

Lives here: ``BrokerApp``.
"""

import asyncio
import posixpath
import secrets
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

from pocketmq.auth.config import AuthConfig
from pocketmq.auth.server_auth import FILE_NAME, ServerAuth
from pocketmq.broker.assembly.advertised import advertised_addresses, resolve, warn_of_loopback
from pocketmq.broker.assembly.build import Running, build
from pocketmq.broker.assembly.build_pop import PopParts
from pocketmq.broker.assembly.changed_settings import ChangedSettings
from pocketmq.broker.assembly.environment import BrokerEnvironment
from pocketmq.broker.assembly.role_changes import RoleChanges, RoleNotTaken
from pocketmq.broker.assembly.start_checks import (
    check_together,
    machine_memory_bytes,
    report_overdue_stop,
    warn_of_small_pool,
)
from pocketmq.broker.config import VIP_PORT_STEP, BrokerConfig
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.flow_control.admission import Admission
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.grpc.entrance import GrpcEntrance, GrpcMissing
from pocketmq.broker.ha.ha_roles import RoleOfRun
from pocketmq.broker.ha.newer_master import fence_if_replaced
from pocketmq.broker.ha.off_loop import run_off_loop
from pocketmq.broker.ha.replication import Replication, load_role
from pocketmq.broker.lock.lock_manager import LockManager
from pocketmq.broker.metrics.observation import Observation
from pocketmq.broker.metrics.security_metrics import security_telemetry
from pocketmq.broker.metrics.thread_dump import ThreadDumper
from pocketmq.broker.registration import Registration
from pocketmq.broker.request.request_table import RequestTable
from pocketmq.broker.settings.live_settings import Change
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.stats_items import StatsItems
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.common.addresses import address_text
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.logs import Logs
from pocketmq.common.record import host_text
from pocketmq.common.runner import AllSteps, LoopMailbox, Runner, Supervisor, ThreadNotStarted, ThreadRunner
from pocketmq.remoting.errors import AddressInUse, BindFailed
from pocketmq.remoting.http_server import MetricsConfig
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.quota import QuotaExceeded
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.spec import Pool
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.security.client_security import ClientSecurity
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.ha.opening import needs_recovery
from pocketmq.store.ha.proved_transport import ClusterSecret
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.ha.state import HaState
from pocketmq.store.message_store import MessageStore

SERVER_GRACE_MS = 1000
STOP_THREAD = "BrokerStop"
STOP_SERVES_S = 1.0
"""How long a stop serves waiting requests that store nothing."""
STORING = frozenset(pool.value for pool in (Pool.SEND, Pool.REPLY, Pool.END_TRANSACTION, Pool.STAGED))
"""Pairs whose waiting requests are served for ``shutdown_timeout_mills``: their clients have sent something."""
STOP_OVERDUE_S = 1.0
"""Time after ``shutdown_timeout_mills`` when a stop that still waits is logged."""


class BrokerApp:
    """A broker in the event loop that ``start`` is awaited in; several can live in one process and loop.

    After ``start`` it serves; ``address`` (advertised) and ``port`` are known, the first registration was attempted.
    After ``stop`` every request is answered or its connection is closed, tables and log are on disk, and no thread or
    timer is left. Raises from ``start`` (and cleans up): ``ConfigError``, ``AddressInUse``, ``StoreError``,
    ``CorruptRecord``.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        server_config: ServerConfig | None = None,
        store: MessageStore | None = None,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        runner: Runner | None = None,
        log: EventLog | None = None,
        loggers: Callable[[str], EventLog] | None = None,
        memory_bytes: int | None = None,
        metrics_config: MetricsConfig | None = None,
        metrics_required: bool = True,
        grpc_required: bool = True,
        stage_times: bool = True,
        recovery_progress: Callable[[int, int], None] | None = None,
        still_wanted: Callable[[], None] | None = None,
        slave_type: type[HaSlave] = HaSlave,
        on_failed: Callable[[BaseException], None] | None = None,
        auth_config: AuthConfig | None = None,
        auth: ServerAuth | None = None,
        tls_config: TlsConfig | None = None,
        limits_config: LimitsConfig | None = None,
        logs: Logs | None = None,
    ) -> None:
        """``store``: one to use instead of that of ``store_config``; it is opened and closed all the same. ``loggers``
        returns the log of each part by its name ("broker", "store", "remoting"); else all use ``log``.
        ``metrics_config``: the address of ``/metrics`` and ``/health``, if they are served; a port in use stops the
        start only if ``metrics_required``; ``grpc_required``: the same for ``grpc_port``. ``stage_times`` False counts
        no times, for the benchmark of their cost.
        ``recovery_progress(offset, end)`` and ``still_wanted()``, which may end the opening by an error: see
        ``MessageStore``; called in a worker thread. ``slave_type`` follows a master; scenarios pass another one.
        ``on_failed(error)`` is called in the loop when the broker cannot start again after a change of its role: it
        then serves no requests. ``auth_config``: who may ask for what; without it
        everybody may ask for everything. ``auth``: that of a name server in this process, to share users with it.
        ``tls_config``: without it every connection is plain. ``limits_config``: what clients, addresses and users may
        ask for; without it there are no limits but those of users who have their own. ``logs``: those whose levels
        can change while the broker runs; without them ``log.level`` cannot.
        """
        config, store_config = copy(config), copy(store_config)  # they change with the settings; the caller's do not
        self.config = config
        self.store_config = store_config
        self._server_config = server_config or ServerConfig()
        self._given_store = store
        self._file_system = file_system or OsFileSystem()
        self._clock = clock or SystemClock()
        one_log = log or NullLog()
        self._logger: Callable[[str], EventLog] = loggers or (lambda name: one_log)
        self._log = self._logger("broker")
        self._changed_settings = ChangedSettings(store_config, self._file_system, self._clock, self._log, logs)
        self.supervisor = Supervisor(self._log, self._clock)
        self._runner = runner or ThreadRunner(self.supervisor.crashed)
        self._memory_bytes = memory_bytes or machine_memory_bytes()
        self._advertised = advertised_addresses(config)
        self._record_host = self._advertised.record_host
        check_together(config, store_config)
        self.counters = BrokerCounters(StatsItems(self._clock.now_ms()))
        self.topics = TopicTable(config, self._clock, self._topic_changed)
        self.groups = SubscriptionGroups(config, self._clock)
        self.offsets = ConsumerOffsets(config.consumer_offsets_max, self._logger("broker"))
        self.thread_dumper = ThreadDumper(self._clock, self._log)
        self.refusals = RefusalStats(self._clock, self._log, self.thread_dumper.on_refused)
        self.refused_requests = RefusedRequests(self._clock, self._log)
        self.auth = ServerAuth(
            auth_config or AuthConfig(),
            posixpath.join(store_config.store_path_root_dir, "config", FILE_NAME),
            cluster=config.broker_cluster_name,
            clock=self._clock,
            log=self._logger("auth"),
            refused=self.refused_requests,
        )
        """Users, policies and who was refused."""
        if auth is not None:
            self.auth.share(auth)
        self.limits = ServerLimits(limits_config or LimitsConfig(), self._clock, self._over_limits)
        """What clients, addresses and users may ask for."""
        if self.auth.guard is not None:
            self.auth.guard.limits = self.limits
        self.tls = TlsFiles(tls_config or TlsConfig(), self._clock, self._logger("remoting"))
        """Certificates of the listeners, and the security of connections to other servers."""
        self._server: RemotingServer | None = None
        self._admission: Admission | None = None
        self._metrics_config = metrics_config or MetricsConfig()
        self._metrics_required = metrics_required
        self._grpc_required = grpc_required
        self._grpc: GrpcEntrance | None = None
        self._stage_times = stage_times
        self._recovery_progress = recovery_progress
        self._still_wanted = still_wanted
        self._slave_type = slave_type
        self._observation = self._new_observation()
        self._registration: Registration | None = None
        self._running: Running | None = None
        self._role = RoleOfRun(config, store_config)
        self._pinned_port: int | None = None
        self._pinned_grpc_port: int | None = None
        self._roles = RoleChanges(self._restart, on_failed, self._logger("ha"), self.supervisor)

    def _over_limits(self, error: QuotaExceeded) -> None:
        self.refusals.note(error.cause.value, error.code, str(error))

    @property
    def _security(self) -> ClientSecurity:
        """How this broker connects to name servers and other brokers."""
        return replace(self.tls.links, credentials=self.auth.inner)

    @property
    def port(self) -> int:
        """Where the broker listens; 0 when it does not run."""
        return 0 if self._server is None else self._server.port

    @property
    def grpc_port(self) -> int:
        """Where gRPC is served; 0: nowhere."""
        return 0 if self._grpc is None else self._grpc.port

    @property
    def address(self) -> str:
        """The advertised ``host:port``."""
        return self._advertised.address(self.port)

    @property
    def _store_host(self) -> bytes:
        """The host of records."""
        return self._advertised.store_host(self._record_host, self.port)

    @property
    def _family(self) -> int:
        return 6 if ":" in self._record_host else 4

    @property
    def not_registered(self) -> dict[str, str]:
        """Why each name server has not accepted this broker, by address; empty as soon as one has, or without any."""
        return {} if self._registration is None else self._registration.refusals

    @property
    def metrics_address(self) -> str:
        """``host:port`` of ``/metrics`` and ``/health``; empty where they are not served."""
        port = self._observation.http_port
        return address_text(self._metrics_config.bind_address, port) if port else ""

    @property
    def observation(self) -> Observation:
        """Times, slow requests, health of this run."""
        return self._observation

    @property
    def role(self) -> RoleOfRun:
        """The settings of this run, with the role that a promotion or demotion gave."""
        return self._role

    @property
    def _run(self) -> Running:
        assert self._running is not None, "only while the broker runs"
        return self._running

    @property
    def replication(self) -> Replication:
        """The master's or slave's side; only while the broker runs."""
        return self._run.replication

    @property
    def store(self) -> MessageStore:
        """The open store; only while the broker runs."""
        return self._run.store

    @property
    def request_table(self) -> RequestTable:
        """The pairs, processors with their thread pools; only while the broker runs."""
        return self._run.table

    @property
    def clients(self) -> ClientTable[Connection]:
        """The connected producers and consumers; only while the broker runs."""
        return self._run.clients

    @property
    def pop(self) -> PopParts:
        """POP of the present run."""
        return self._run.pop

    @property
    def delays(self) -> DelayService | None:
        """The delivery of delayed messages; None on a slave; only while the broker runs."""
        return self._run.delays

    @property
    def locks(self) -> LockManager:
        """The queue locks of ordered consumption; only while the broker runs."""
        return self._run.locks

    @property
    def transactions(self) -> TransactionService | None:
        """The checks of half messages; None on a slave; only while the broker runs."""
        return self._run.transactions

    @property
    def pulls_held(self) -> int:
        """Pulls that wait for messages now."""
        return 0 if self._running is None else self._running.pulls.count

    @property
    def admission(self) -> Admission:
        """Admission control, with its counts of refusals; only while the broker runs."""
        assert self._admission is not None
        return self._admission

    async def start(self) -> None:
        """Listen, open the store, serve, register. Returns when the broker serves."""
        async with self._roles.lock:
            await self._start()

    async def stop(self) -> None:
        """Refuse new requests, answer waiting ones, unregister, write the tables. Does nothing if it does not run."""
        self._roles.close()
        async with self._roles.lock:
            await self._stop()

    async def change_role(self, role: str, broker_id: int, *, accept_loss: bool = False) -> None:
        """Stop, and start again on the same ports as ``role`` (SYNC_MASTER, ASYNC_MASTER or SLAVE).

        The role is remembered and overrides the settings from now on. ``accept_loss``: as a slave, cut records that
        differ from the master's even if they were confirmed. Raises the errors of ``start``; then it serves nothing.
        """
        await self._roles.change(role, broker_id, accept_loss=accept_loss)

    async def _restart(self, remember: Callable[[HaState], None] | None) -> None:
        """Stop, and start on the same port; ``remember`` changes the state before. Under the lock of the roles."""
        running = self._run
        state = running.replication.node.state
        before = state.remembered_role
        if remember is not None:
            await run_off_loop(self._runner, running.environment.mailbox, "HaRole", lambda: remember(state))
        self._pinned_port, self._pinned_grpc_port = self.port, self.grpc_port or None
        await self._stop()
        try:
            await self._start()
        except Exception as error:
            if remember is None:
                raise
            self._roles.log_not_taken(state.role, before.role, error)

            def take_back() -> None:
                state.load()
                state.take_back(before)

            await run_off_loop(self._runner, running.environment.mailbox, "HaRole", take_back)
            await self._start()
            raise RoleNotTaken("role not changed", why=str(error), hint="it serves in its old role") from error

    async def _start(self) -> None:
        assert self._server is None
        loop = asyncio.get_running_loop()
        mailbox = LoopMailbox(loop)
        admission = Admission(self._connection_closed, self._clock, self._log, self.refusals)
        self._observation = observation = self._new_observation()
        server = RemotingServer(
            self._server_config,
            admission,
            announce=self._announce,
            log=self._logger("remoting"),
            clock=self._clock,
            read_times=None if observation.stage_times is None else observation.stage_times.read,
            slow_read_ms=self.config.slow_request_mills,
            on_slow_read=observation.on_slow_read,
            serves=admission.serves,
            refused=self.refused_requests,
            tls=self.tls,
        )
        if self.tls.files:
            await run_off_loop(self._runner, mailbox, "BrokerTls", self.tls.load)
        server.guard, server.limits = self.auth.guard, self.limits
        if not self._record_host:
            name = self._advertised.host
            self._record_host = await run_off_loop(self._runner, mailbox, "BrokerAddress", lambda: resolve(name))
        # The port is opened first: the store needs it in its records, and a start that fails on a port in use must not
        # touch the store. Until the store is open every request is refused.
        port = self.config.listen_port if self._pinned_port is None else self._pinned_port
        await server.start(self.config.bind_address, port)
        self._server, self._admission = server, admission
        self.refusals.watch(
            Cause.CONNECTION_LIMIT.value, 0, "too many connections: closed at once", lambda: server.refused_count
        )
        off_loop = partial(run_off_loop, self._runner, mailbox)
        try:
            await self._open_vip_channel(server)
            for host, more_port in self.config.more_listeners():
                await server.listen_also(host, more_port)
            await self._open_grpc(server)
            observation.bind(required=self._metrics_required)
            await run_off_loop(self._runner, mailbox, "BrokerAuth", self.auth.load)
            self._role, state = await run_off_loop(self._runner, mailbox, "BrokerRole", self._load_role)
            await run_off_loop(self._runner, mailbox, "BrokerSettings", self._load_settings)
            if needs_recovery(state, self._role.store_config) and state.fenced_by is None:
                await fence_if_replaced(
                    self._role.config, state, off_loop, self._clock, self._logger("ha"), self._security
                )
            running = build(self._environment(observation, state, mailbox), loop, server, admission)
            self._changed_settings.begin(running)
            self.auth.table.on_change = partial(mailbox.post, running.recheck)
            await run_off_loop(self._runner, mailbox, "BrokerStart", lambda: self._open(running))
        except BaseException:
            self._server = self._admission = None
            observation.close()
            await self._close_grpc()
            await server.stop(0)
            raise
        self._running = running
        try:
            self._start_threads(running)
        except BaseException:
            await self._stop()
            raise
        if self.config.broker_fast_failure_enable:
            running.fast_failure.start(loop)
        admission.open(running.table)
        server.short_path = None if running.short_path is None else running.short_path.take
        replication = running.replication
        registration = self._registration = Registration(
            self._role.config,
            self.address,
            self._advertised.listener_addresses(self.port),
            self.topics,
            running.registered_topics,
            mailbox,
            self._clock,
            self._log,
            replication,
            self.supervisor,
            self._security,
        )
        await registration.start()
        running.assignments.route = registration.route
        if self._grpc is not None:
            self._grpc.use_route(registration.route)
        replication.ask(registration)
        replication.start()
        warn_of_small_pool(self._role.store_config, self._log)
        warn_of_loopback(self.config, self._advertised, self._log)
        self._log.info("broker_started", broker=self.config.broker_name, address=self.address, topics=len(self.topics))

    def _start_threads(self, running: Running) -> None:
        """Start every thread that serving needs: a limit of threads shows now, not at some request. Raise
        ``ThreadNotStarted``."""
        running.housekeeping.start(self._runner)
        for service in running.services:
            service.start(self._runner)
        self.thread_dumper.start(self._runner)
        for executor in running.table.executors():
            executor.start()
        self._observation.start()

    async def _open_vip_channel(self, server: RemotingServer) -> None:
        """Listen at RocketMQ's VIP port too. Raise ``AddressInUse`` or ``BindFailed`` only if the setting is ON."""
        config = self.config
        if not config.vip_channel_wanted:
            return
        port = server.port - VIP_PORT_STEP
        try:
            await server.listen_also(config.bind_address, port)
        except (AddressInUse, BindFailed) as error:
            if config.vip_channel == "ON":
                raise
            self._log.warning(
                "vip_channel_not_open",
                port=port,
                why=error.why,
                consequence="Java clients up to 4.4 send there unless they call setVipChannelEnabled(false)",
                hint="free that port, or set broker.vip_channel=OFF if no such client is used",
            )

    async def _open_grpc(self, server: RemotingServer) -> None:
        """Serve gRPC too. Raise ``AddressInUse``, ``BindFailed`` or ``GrpcMissing`` only if the settings ask for it."""
        config = self.config
        port = config.grpc_port if self._pinned_grpc_port is None else self._pinned_grpc_port
        if not port:
            return
        grpc = GrpcEntrance(
            self._role.config,
            self._role.store_config,
            self.topics,
            self.groups,
            self.auth.guard,
            self._advertised.host,
            self._clock,
            self._logger("grpc"),
        )
        try:
            await grpc.start(server, config.bind_address, port)
        except (AddressInUse, BindFailed, GrpcMissing) as error:
            if self._grpc_required:
                raise
            self._log.warning(
                "grpc_not_served",
                port=port,
                why=error.why,
                consequence="RocketMQ's clients for gRPC cannot connect; all others can",
                hint=f"{error.hint}, or broker.grpc_port=0",
            )
            return
        self._grpc = grpc

    async def _close_grpc(self) -> None:
        grpc, self._grpc = self._grpc, None
        if grpc is not None:
            await grpc.stop()

    async def _stop(self) -> None:
        running, server, admission = self._running, self._server, self._admission
        if running is None or server is None or admission is None:
            return
        self._running = None
        self.auth.table.on_change = None
        self._observation.stopping()
        server.short_path = None
        if running.short_path is not None and running.short_path.here is not None:
            running.short_path.here.stop()
        admission.close()
        running.fast_failure.stop()
        running.budgets.close()
        self.refusals.log_left_out(all_of_them=True)
        self.refused_requests.log_left_out(all_of_them=True)
        running.pulls.close()
        running.pop.service.close()
        registration, self._registration = self._registration, None
        await running.replication.stop_asking()
        closing = self._close_off_loop(running)
        ends = [closing] if registration is None else [registration.stop(), closing]
        *_, result = await asyncio.gather(*ends, return_exceptions=True)
        await self._close_grpc()
        if isinstance(result, BaseException):
            await server.stop(SERVER_GRACE_MS)
            self._server = self._admission = None
            self._observation.close()
            raise result
        # after the last answers, which came through the mailbox before ``closing`` ended
        await server.stop(SERVER_GRACE_MS)
        self._server = self._admission = None
        self._observation.close()
        self._log.info("broker_stopped", broker=self.config.broker_name)

    def _new_observation(self) -> Observation:
        observation = Observation(
            self.config,
            self._metrics_config,
            self.counters,
            self.refusals,
            self.refused_requests,
            self._clock,
            self._logger,
            self._runner,
            self.supervisor,
            enabled=self._stage_times,
            tls_context=lambda: self.tls.http,
            denials=self.auth.denials.counts,
            access=self.auth.http.refusal,
            security=lambda: security_telemetry(
                self.auth,
                self.tls,
                (
                    ("broker.bind_address", self.config.bind_address),
                    *(("broker.listeners", host) for host, _ in self.config.more_listeners()),
                    *((("metrics.bind_address", self._metrics_config.bind_address),) if self.metrics_address else ()),
                ),
            ),
            quota_refusals=self.limits.counts,
        )
        observation.health.not_registered = self._not_registered_yet
        return observation

    def _not_registered_yet(self) -> dict[str, str]:
        """Return why each name server has not accepted this broker, also before it was asked. Any thread."""
        if self._registration is None:
            return dict.fromkeys(self._role.config.name_servers(), "not asked yet")
        return self._registration.refusals

    def _load_role(self) -> tuple[RoleOfRun, HaState]:
        """Return the role of this start. Blocks; worker thread."""
        given = self._given_store
        store_config = self.store_config if given is None else given.config
        role, state = load_role(self.config, store_config, self._file_system, self._clock, self._logger("ha"))
        if given is not None and role.store_config != store_config:
            raise ConfigError(
                "this store has another role", why=f"it was opened for {store_config.broker_role}", hint="pass no store"
            )
        return role, state

    def _cluster_secret(self) -> ClusterSecret | None:
        """Return what slaves must know; None: anybody may follow. A protected broker without keys for its cluster has
        a secret that nobody knows: its log is not read by strangers."""
        inner = self.auth.inner
        if inner is not None:
            return ClusterSecret(inner.access_key, inner.secret_key)
        if self.auth.guard is None:
            return None
        self._logger("ha").info(
            "ha_port_closed_to_all",
            why="auth.inner_access_key is not set",
            hint="set it and its secret to the same values on all members, if this broker is to have slaves",
        )
        return ClusterSecret("nobody", secrets.token_urlsafe(32))

    def _load_settings(self) -> None:
        """Take the settings that were changed while this broker ran before. Blocks; worker thread."""
        role, given = self._role, self._given_store
        stores = (self.store_config, role.store_config, *(() if given is None else (given.config,)))
        self._changed_settings.load((self.config, role.config), stores)

    def _settings_changed(self, changes: Sequence[Change]) -> None:
        self._changed_settings.take_effect(self._role, changes)

    def _environment(self, observation: Observation, state: HaState, mailbox: LoopMailbox) -> BrokerEnvironment:
        def change_role(role: str, broker_id: int, accept_loss: bool) -> None:
            mailbox.post(self._roles.begin, role, broker_id, accept_loss)

        inner = self.auth.inner
        return BrokerEnvironment(
            config=self._role.config,
            store_config=self._role.store_config,
            auth=self.auth,
            cluster_secret=self._cluster_secret(),
            security=self._security,
            mirror_users=None if inner is None or self.auth.guard is None else self.auth.mirror,
            ha_state=state,
            change_role=change_role,
            role_changed=self._role_changed,
            live=self._changed_settings.live,
            settings_changed=self._settings_changed,
            reopen=lambda: mailbox.post(self._roles.begin_reopen),
            given_store=self._given_store,
            file_system=self._file_system,
            clock=self._clock,
            runner=self._runner,
            mailbox=mailbox,
            slave_type=self._slave_type,
            logger=self._logger,
            memory_bytes=self._memory_bytes,
            store_host=self._store_host,
            family=self._family,
            counters=self.counters,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            refusals=self.refusals,
            refused_requests=self.refused_requests,
            thread_dumper=self.thread_dumper,
            observation=observation,
            supervisor=self.supervisor,
            tls=self.tls,
        )

    def _open(self, running: Running) -> None:
        """Open the store and load the tables. Blocks; worker thread."""
        replication = running.replication
        if self._still_wanted is not None:
            running.store.still_wanted = self._still_wanted
        try:
            replication.open(self.address, self._advertised.ha_host, self.port, self._recovery_progress)
            running.housekeeping.load()
            replication.open_tables(topics_are_old=running.topics_file.is_old)
            self.topics.add_system_topics()
            self.groups.add_system_groups()
            running.housekeeping.persist()
            replication.tables_written()
            for service in running.services:
                service.open()
        except BaseException:
            steps = AllSteps(self._stop_failed)
            steps.take("replication", replication.stop)
            steps.take("store", running.store.close)
            raise

    async def _close_off_loop(self, running: Running) -> None:
        overdue_s = self.config.shutdown_timeout_mills / 1000 + STOP_OVERDUE_S
        overdue = asyncio.get_running_loop().call_later(
            overdue_s, report_overdue_stop, running.store, STOP_THREAD, self._log
        )
        try:
            await run_off_loop(self._runner, running.environment.mailbox, STOP_THREAD, lambda: self._close(running))
        except ThreadNotStarted:  # it serves nobody, or soon nobody: the loop may wait
            self._close(running)
        finally:
            overdue.cancel()

    def _close(self, running: Running) -> None:
        """Serve queued requests, write the tables, close the store. Blocks; worker thread.

        Requests that store something have the whole time, all others ``STOP_SERVES_S``: a crowd of them does not hold
        up the stop.

        Takes every step, whatever earlier ones raised, then raises the first error.
        """
        now_ns = self._clock.monotonic_ns()
        deadline_ns = now_ns + self.config.shutdown_timeout_mills * 1_000_000
        serve_until_ns = now_ns + int(STOP_SERVES_S * 1e9)
        steps = AllSteps(self._stop_failed)
        for executor in running.table.executors():
            until_ns = deadline_ns if executor.name in STORING else serve_until_ns
            steps.take("requests", partial(executor.finish, deadline_ns, until_ns))
        for service in reversed(running.services):
            steps.take(type(service).__name__, service.stop)
        steps.take("observation", self._observation.stop)
        steps.take("tables", running.housekeeping.stop)
        steps.take("thread_dumper", self.thread_dumper.stop)
        is_let_go = steps.take("replication", running.replication.stop)
        if steps.take("store", running.store.close) and is_let_go:
            steps.take("replication", running.replication.closed)
        steps.raise_first()

    def _stop_failed(self, step: str, error: Exception) -> None:
        self._log.error("broker_stop_failed", step=step, error=str(error) or repr(error))

    def _announce(self, connection: Connection) -> Announcement:
        return Announcement(
            native=1,
            family=self._family,
            frame_bytes_max=self._server_config.frame_bytes_max,
            cluster=self.config.broker_cluster_name,
            message_bytes_max=self.store_config.max_message_size,
            broker=self.config.broker_name,
            flush="WRITE_BUFFER" if self._dies_with_the_process else self.store_config.flush_disk_type,
            replication=self._role.store_config.broker_role,
            in_sync_replicas=self.store_config.in_sync_replicas,
            transactions=1,
            staged_transactions=1,
            store_host=host_text(self._store_host) if self.port else "",  # none while the port is being opened
            trace_on=self.config.trace_on,
            region=self.config.region_id,
        )

    @property
    def _dies_with_the_process(self) -> bool:
        """Whether acknowledged messages may be only in this process's own memory."""
        running = self._running
        pool = None if running is None else running.store.pool
        if pool is not None:
            return not pool.survives
        return self._role.store_config.transient_store_pool_enable and not self._role.store_config.pool_survives

    def _connection_closed(self, connection: Connection) -> None:
        running = self._running
        if running is not None:
            running.pulls.connection_closed(connection)
            running.pop.service.connection_closed(connection)
            running.locks.connection_closed(connection)
            running.notifier.members_changed(running.clients.close(connection))

    def _role_changed(self) -> None:
        registration = self._registration
        if registration is not None:
            registration.role_changed()

    def _topic_changed(self) -> None:
        registration = self._registration
        if registration is not None:
            registration.topic_changed()

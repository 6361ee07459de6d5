"""One broker: builds every object, starts and stops them in order.

    app = BrokerApp(BrokerConfig(listen_port=0), StoreConfig(store_path_root_dir=path))
    await app.start();  print(app.address);  await app.stop()

Lives here: ``BrokerApp``.
Not here: the daemon's command line, signals and files (``cli``), the name server (``namesrv``).
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.admin_processor import AdminProcessor
from pocketmq.broker.admission import Admission
from pocketmq.broker.broker_admin import BrokerAdmin
from pocketmq.broker.client_processor import ClientProcessor
from pocketmq.broker.client_table import ClientTable
from pocketmq.broker.config import MASTER_ID, BrokerConfig
from pocketmq.broker.consumer_offsets import ConsumerOffsets
from pocketmq.broker.consumer_processor import ConsumerProcessor
from pocketmq.broker.counters import BrokerCounters
from pocketmq.broker.delay_plan import DelayPlan
from pocketmq.broker.delay_service import DelayService
from pocketmq.broker.fast_failure import FastFailure
from pocketmq.broker.group_admin import GroupAdmin
from pocketmq.broker.group_notifier import GroupNotifier
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.broker.json_file import PersistedTable, Table
from pocketmq.broker.long_polling import PullHolds
from pocketmq.broker.metrics_server import MetricsConfig
from pocketmq.broker.native_append import NativeAppend
from pocketmq.broker.native_pull import NativePull
from pocketmq.broker.notices import tell_of_overdue_stop, tell_of_small_pool
from pocketmq.broker.observation import Counts, Observation
from pocketmq.broker.off_loop import run_off_loop
from pocketmq.broker.pairs import Processors, build_request_table
from pocketmq.broker.pull_checks import PullChecks
from pocketmq.broker.pull_processor import PullProcessor
from pocketmq.broker.pull_service import PullService
from pocketmq.broker.query_processor import QueryProcessor
from pocketmq.broker.recent_messages import RecentMessages
from pocketmq.broker.refusal_book import RefusalBook
from pocketmq.broker.registration import Registration
from pocketmq.broker.request_table import RequestTable
from pocketmq.broker.send_checks import SendChecks
from pocketmq.broker.send_planner import SendPlanner
from pocketmq.broker.send_processor import SendProcessor
from pocketmq.broker.subscription_groups import SubscriptionGroups
from pocketmq.broker.thread_dump import ThreadDumper
from pocketmq.broker.topic_admin import TopicAdmin
from pocketmq.broker.topic_table import TopicTable
from pocketmq.broker.typed_send import TypedSends
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import Cause, ConfigError, MessageIllegal
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.plain_check import PlainRules
from pocketmq.common.record import HOST_V6_BYTES, encode_host
from pocketmq.common.runner import LoopMailbox, Runner, ThreadRunner
from pocketmq.remoting.bodies import Announcement
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig
from pocketmq.store.config import StoreConfig
from pocketmq.store.file_system import FileSystem
from pocketmq.store.message_store import MessageStore
from pocketmq.store.os_file_system import OsFileSystem

DEFAULT_MEMORY_BYTES = 4 << 30
"""Taken for the machine's memory where the system does not tell."""
SERVER_GRACE_MS = 1000
STOP_THREAD = "BrokerStop"
STOP_OVERDUE_S = 1.0
"""How long after ``shutdown_timeout_mills`` a stop that still waits says so."""


@dataclass(slots=True)
class _Running:
    """What exists between start and stop."""

    mailbox: LoopMailbox
    store: MessageStore
    clients: ClientTable[Connection]
    notifier: GroupNotifier
    pulls: PullService
    table: RequestTable
    housekeeping: Housekeeping
    fast_failure: FastFailure
    topics_file: PersistedTable
    delays: DelayService | None


class BrokerApp:
    """A broker in the event loop that ``start`` is awaited in; several can live in one process and loop.

    After ``start`` it serves: ``address`` (advertised) and ``port`` are known, and the first registration was tried.
    After ``stop`` every request has been answered or its connection is gone, tables and log are on disk, and no thread
    or timer of it is left. Raises from ``start`` (and cleans up): ``ConfigError``, ``AddressInUse``, ``StoreError``,
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
        stage_times: bool = True,
        recovery_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """``store``: one to use instead of opening the one in ``store_config``; it is opened and closed all the
        same. ``loggers``: gives the log of each part by its name ("broker", "store", "remoting"); else all use ``log``.
        ``metrics_config``: where ``/metrics`` and ``/health`` are served, if anywhere; a port that is taken stops the
        start only if ``metrics_required``. ``stage_times`` False counts no times, for the benchmark of their cost.
        ``recovery_progress(offset, end)``: see ``MessageStore.open``; called in a worker thread.
        """
        self.config = config
        self.store_config = store_config
        self._server_config = server_config or ServerConfig()
        self._given_store = store
        self._file_system = file_system or OsFileSystem()
        self._clock = clock or SystemClock()
        one_log = log or NullLog()
        self._logger: Callable[[str], EventLog] = loggers or (lambda name: one_log)
        self._log = self._logger("broker")
        self._runner = runner or ThreadRunner(self._thread_crashed)
        self._memory_bytes = memory_bytes or _machine_memory_bytes()
        self._host = _advertised_host(config)
        _check_together(config, store_config)
        self.counters = BrokerCounters()
        self.topics = TopicTable(config, self._clock, self._topic_changed)
        self.groups = SubscriptionGroups(config, self._clock)
        self.offsets = ConsumerOffsets(config.consumer_offsets_max)
        self.thread_dumper = ThreadDumper(self._clock, self._log)
        self.refusals = RefusalBook(self._clock, self._log, self.thread_dumper.on_refused)
        self._server: RemotingServer | None = None
        self._admission: Admission | None = None
        self._metrics_config = metrics_config or MetricsConfig()
        self._metrics_required = metrics_required
        self._stage_times = stage_times
        self._recovery_progress = recovery_progress
        self._observation = self._new_observation()
        self._registration: Registration | None = None
        self._running: _Running | None = None
        self._family = 6 if ":" in self._host else 4

    @property
    def port(self) -> int:
        """Where the broker listens; 0 when it does not run."""
        return 0 if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """The advertised ``host:port``."""
        return f"{self._host}:{self.port}"

    @property
    def metrics_address(self) -> str:
        """``host:port`` of ``/metrics`` and ``/health``; empty where they are not served."""
        port = self._observation.http_port
        return f"{self._metrics_config.bind_address}:{port}" if port else ""

    @property
    def observation(self) -> Observation:
        """Times, slow requests, health of this run."""
        return self._observation

    @property
    def store(self) -> MessageStore:
        """The open store; only while the broker runs."""
        assert self._running is not None
        return self._running.store

    @property
    def request_table(self) -> RequestTable:
        """The pairs; only while the broker runs."""
        assert self._running is not None
        return self._running.table

    @property
    def clients(self) -> ClientTable[Connection]:
        """Who is connected as producer or consumer; only while the broker runs."""
        assert self._running is not None
        return self._running.clients

    @property
    def delays(self) -> DelayService | None:
        """The delivery of delayed messages; None on a slave; only while the broker runs."""
        assert self._running is not None
        return self._running.delays

    @property
    def pulls_held(self) -> int:
        """Pulls that wait for messages now."""
        return 0 if self._running is None else self._running.pulls.count

    @property
    def admission(self) -> Admission:
        """The door, with its counts of refusals; only while the broker runs."""
        assert self._admission is not None
        return self._admission

    async def start(self) -> None:
        """Listen, open the store, serve, register. Returns when the broker serves."""
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
        )
        # The port is taken first: the store needs it in its records, and a port in use must not touch the store. Until
        # the store is open every request is refused.
        await server.start(self.config.bind_address, self.config.listen_port)
        self._server, self._admission = server, admission
        self.refusals.watch(
            Cause.CONNECTION_LIMIT.value, 0, "too many connections: closed at once", lambda: server.refused_count
        )
        try:
            observation.bind(required=self._metrics_required)
            running = self._build(mailbox, loop, server, admission)
            await run_off_loop(self._runner, mailbox, "BrokerStart", lambda: self._open(running))
        except BaseException:
            self._server = self._admission = None
            observation.close()
            await server.stop(0)
            raise
        self._running = running
        running.housekeeping.start(self._runner)
        if running.delays is not None:
            running.delays.start(self._runner)
        self.thread_dumper.start(self._runner)
        if self.config.broker_fast_failure_enable:
            running.fast_failure.start(loop)
        observation.start()
        admission.open(running.table)
        self._registration = Registration(self.config, self.address, self.topics, mailbox, self._clock, self._log)
        await self._registration.start()
        tell_of_small_pool(self.store_config, self._log)
        self._log.info("broker_started", broker=self.config.broker_name, address=self.address, topics=len(self.topics))

    async def stop(self) -> None:
        """Refuse what comes, answer what waits, unregister, write everything down. Does nothing if it does not run."""
        running, server, admission = self._running, self._server, self._admission
        if running is None or server is None or admission is None:
            return
        self._running = None
        self._observation.stopping()
        admission.close()
        running.fast_failure.stop()
        self.refusals.tell(all_of_them=True)
        running.pulls.close()
        registration, self._registration = self._registration, None
        closing = self._close_off_loop(running)
        if registration is None:
            await closing
        else:
            _, result = await asyncio.gather(registration.stop(), closing, return_exceptions=True)
            if isinstance(result, BaseException):
                await server.stop(SERVER_GRACE_MS)
                self._server = self._admission = None
                self._observation.close()
                raise result
        await server.stop(
            SERVER_GRACE_MS
        )  # behind the last answers, which came through the mailbox before ``closing`` ended
        self._server = self._admission = None
        self._observation.close()
        self._log.info("broker_stopped", broker=self.config.broker_name)

    def _new_observation(self) -> Observation:
        return Observation(
            self.config,
            self._metrics_config,
            self.counters,
            self.refusals,
            self._clock,
            self._logger,
            self._runner,
            enabled=self._stage_times,
        )

    def _build(
        self, mailbox: LoopMailbox, loop: asyncio.AbstractEventLoop, server: RemotingServer, admission: Admission
    ) -> _Running:
        config, store_config, clock = self.config, self.store_config, self._clock
        log = self._log
        store = self._given_store or MessageStore(
            store_config,
            file_system=self._file_system,
            clock=clock,
            runner=self._runner,
            log=self._logger("store"),
            error_log=self._logger("store_error"),
        )
        store.store_host = self._store_host()
        delays: DelayService | None = None
        if store_config.broker_role != "SLAVE":
            delays = DelayService(store_config, store, self._file_system, self.counters, clock, log)
        answers = self._observation.answer_port(mailbox)
        clients: ClientTable[Connection] = ClientTable(config.clients_max)
        notifier = GroupNotifier(clients, self.groups, mailbox, enabled=config.notify_consumer_ids_changed_enable)
        directory = f"{store.config.store_path_root_dir}/config"

        def file(table: Table, name: str) -> PersistedTable:
            return PersistedTable(
                table, f"{directory}/{name}", self._file_system, log, durable=store_config.sync_on_close
            )

        topics_file = file(self.topics, "topics.json")
        groups_file = file(self.groups, "subscriptionGroup.json")
        offsets_file = file(self.offsets, "consumerOffset.json")
        holds = PullHolds(config.pull_holds_max, config.pull_holds_size_bytes_max)
        pulls = PullService(holds, store.max_offset, mailbox, loop, clock, self.refusals)
        pull_checks = PullChecks(config, self.topics, self.groups, clients)
        rules = PlainRules(
            cluster=config.broker_cluster_name.encode(),
            message_size_max=store_config.max_message_size,
            family=self._family,
        )
        broker_admin = BrokerAdmin(config, store_config, store, self.topics, self.counters, lambda: pulls.count, clock)
        topic_admin = TopicAdmin(
            config, store, self.topics, self.offsets, topics_file.persist, offsets_file.persist, log
        )
        group_admin = GroupAdmin(
            config,
            store,
            self.topics,
            self.groups,
            self.offsets,
            clients,
            notifier,
            groups_file.persist,
            offsets_file.persist,
        )
        recent = RecentMessages(store, self._memory_bytes * store_config.access_message_in_memory_max_ratio // 100)
        processors = Processors(
            send=SendProcessor(
                store,
                [self._send_planner(rules, store, delays) for _ in range(config.send_message_thread_pool_nums)],
                topics_file.persist,
                answers,
                self.counters,
                self.refusals,
                clock,
                log,
                self._observation.send_times(store),
            ),
            pull=PullProcessor(
                config,
                store_config,
                store,
                recent,
                pull_checks,
                self.offsets,
                pulls,
                NativePull(config, store, pull_checks, pulls, self.counters, clock),
                self.counters,
                clock,
                log,
            ),
            query=QueryProcessor(store),
            client=ClientProcessor(clients, self.groups, self.topics, notifier, topics_file.persist, clock),
            consumer=ConsumerProcessor(store, self.topics, self.offsets, clients, recent),
            admin=AdminProcessor({**topic_admin.handlers(), **group_admin.handlers(), **broker_admin.handlers()}, log),
            dispatch=store.dispatch,
        )
        table = build_request_table(config, processors, runner=self._runner, answers=answers, clock=clock, log=log)
        pulls.use_executor(table.executor("PullMessageThread"))
        store.on_dispatched.append(pulls.news)
        fast_failure = FastFailure(table.executors(), table.executor("SendMessageThread"), store, clock, self.refusals)
        counts = Counts(
            swept=fast_failure.swept,
            oneway_dropped=lambda: admission.oneway_dropped,
            clients=lambda: len(clients),
            topics=lambda: len(self.topics),
            pulls_held=lambda: pulls.count,
            thread_dumps=lambda: self.thread_dumper.dumps,
            delays=delays,
        )
        telemetry, disk = self._observation.watch(store, self._file_system, table.executors(), server, mailbox, counts)
        broker_admin.use_telemetry(telemetry, disk)
        housekeeping = Housekeeping(
            config, [topics_file, groups_file, offsets_file], clients, notifier, disk, mailbox, clock, log
        )
        if delays is not None:
            broker_admin.use_delays(delays)
        return _Running(
            mailbox, store, clients, notifier, pulls, table, housekeeping, fast_failure, topics_file, delays
        )

    def _send_planner(self, rules: PlainRules, store: MessageStore, delays: DelayService | None) -> SendPlanner:
        """Return what one send thread needs for itself."""
        checks = SendChecks(self.config, self.topics)
        is_congested = _never if delays is None else delays.is_congested
        plan = DelayPlan(self.store_config, store.delay_levels, is_congested, self._clock)
        typed = TypedSends(self.config, checks, self._store_host(), self.store_config.max_message_size, plan)
        return SendPlanner(NativeAppend(rules, checks), typed, checks, self.store_config.group_bytes_max, self.refusals)

    def _open(self, running: _Running) -> None:
        """Open the store and load the tables. Blocks; worker thread."""
        running.store.open(self._recovery_progress)
        try:
            self._file_system.make_dirs(f"{running.store.config.store_path_root_dir}/config")
            running.housekeeping.load()
            self.topics.add_system_topics()
            self.groups.add_system_groups()
            running.housekeeping.persist()
            if running.delays is not None:
                running.delays.open()
        except BaseException:
            running.store.close()
            raise

    async def _close_off_loop(self, running: _Running) -> None:
        overdue_s = self.config.shutdown_timeout_mills / 1000 + STOP_OVERDUE_S
        overdue = asyncio.get_running_loop().call_later(
            overdue_s, tell_of_overdue_stop, running.store, STOP_THREAD, self._log
        )
        try:
            await run_off_loop(self._runner, running.mailbox, STOP_THREAD, lambda: self._close(running))
        finally:
            overdue.cancel()

    def _close(self, running: _Running) -> None:
        """Serve what is queued, write the tables, close the store. Blocks; worker thread."""
        deadline_ns = self._clock.monotonic_ns() + self.config.shutdown_timeout_mills * 1_000_000
        for executor in running.table.executors():
            executor.finish(deadline_ns)
        if running.delays is not None:
            running.delays.stop()
        self._observation.stop()
        running.housekeeping.stop()
        self.thread_dumper.stop()
        running.store.close()

    def _announce(self, connection: Connection) -> Announcement:
        return Announcement(
            native=1,
            family=self._family,
            frame_bytes_max=self._server_config.frame_bytes_max,
            cluster=self.config.broker_cluster_name,
            message_bytes_max=self.store_config.max_message_size,
            broker=self.config.broker_name,
            flush="WRITE_BUFFER"
            if self.store_config.transient_store_pool_enable
            else self.store_config.flush_disk_type,
        )

    def _connection_closed(self, connection: Connection) -> None:
        running = self._running
        if running is not None:
            running.pulls.connection_closed(connection)
            running.notifier.members_changed(running.clients.close(connection))

    def _topic_changed(self) -> None:
        registration = self._registration
        if registration is not None:
            registration.topic_changed()

    def _store_host(self) -> bytes:
        return encode_host(self._host, self.port)

    def _thread_crashed(self, name: str, error: BaseException) -> None:
        self._log.error("thread_crashed", thread=name, error=repr(error), exc_info=error)


def _check_together(config: BrokerConfig, store_config: StoreConfig) -> None:
    """Raise ``ConfigError`` for settings of broker and store that are impossible together."""
    if store_config.broker_role == "SLAVE" and config.broker_id == MASTER_ID:
        raise ConfigError(
            "bad setting",
            why=f"store.broker_role=SLAVE with broker.broker_id={MASTER_ID}, a master's (RocketMQ BrokerStartup)",
            hint="give the slave a broker_id above 0",
        )
    if store_config.broker_role != "SLAVE" and config.broker_id != MASTER_ID:
        raise ConfigError(
            "bad setting",
            why=f"store.broker_role={store_config.broker_role} with broker.broker_id={config.broker_id}, a slave's: "
            "clients would find no master to send to",
            hint=f"leave broker_id at {MASTER_ID}, or set store.broker_role=SLAVE",
        )


def _advertised_host(config: BrokerConfig) -> str:
    """Return the numeric address that clients shall use; raises ``ConfigError`` where there is none."""
    host = config.broker_ip1 or config.bind_address
    if host == "localhost":
        host = "127.0.0.1"
    try:
        encoded = encode_host(host, 0)
    except MessageIllegal as error:
        raise ConfigError(
            "bad setting", why=f"broker.broker_ip1={host!r} is no numeric address", hint="write an IP address"
        ) from error
    if not any(encoded):
        raise ConfigError(
            "bad setting",
            why=f"broker.bind_address={config.bind_address} is no address that clients can reach",
            hint="set broker.broker_ip1 to the address that clients shall use",
        )
    assert len(encoded) in (8, HOST_V6_BYTES)
    return host


def _never(due_ms: int) -> bool:
    """Tell that a slave, which takes no sends, has no timers to count."""
    return False


def _machine_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return DEFAULT_MEMORY_BYTES

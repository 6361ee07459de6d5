"""Everything that watches one run of a broker, built and wired in one place.

Lives here: ``Observation``: stage times, put times, slow requests, telemetry, health, metrics, their start and stop.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.flow_control.refusal_stats import RefusalBook
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.metrics.ha_metrics import ha_interval
from pocketmq.broker.metrics.health import Health
from pocketmq.broker.metrics.interval_log import IntervalLog
from pocketmq.broker.metrics.metrics import BrokerCollector, MetricsSources, exposition
from pocketmq.broker.metrics.metrics_server import TEXT, Answer, MetricsConfig, MetricsServer
from pocketmq.broker.metrics.reply_metrics import ReplyFigures
from pocketmq.broker.metrics.slow_requests import SlowRequests
from pocketmq.broker.metrics.telemetry import Telemetry, TelemetrySources
from pocketmq.broker.metrics.transaction_metrics import TransactionFigures
from pocketmq.broker.metrics.watermarks import Watermarks
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort
from pocketmq.broker.send.send_times import SendTimes
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.stage_times import SEND_PAIR, StageTimes
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner
from pocketmq.common.supervised import Supervisor
from pocketmq.remoting.codec import Request
from pocketmq.remoting.errors import AddressInUse, BindFailed
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server import Connection, RemotingServer
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.message_store import MessageStore

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""


@dataclass(slots=True)
class Counts:
    """Figures that other parts of the broker keep; each returns at once."""

    swept: dict[str, int]
    oneway_dropped: Callable[[], int]
    clients: Callable[[], int]
    topics: Callable[[], int]
    pulls_held: Callable[[], int]
    thread_dumps: Callable[[], int]
    delays: DelayService | None = None
    replication: HaNode | None = None
    transactions: TransactionFigures | None = None
    replies: ReplyFigures | None = None


class Observation:
    """One run of a broker, seen from outside.

    Order of calls: ``bind``, then the parts (``on_slow_read``, ``answer_port``, ``send_times``) while the broker is
    built, ``watch`` when it is, ``start`` when it serves, ``stopping``, ``stop``, ``close``. ``enabled`` False counts
    no times at all: for the benchmark that shows what they cost.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metrics_config: MetricsConfig,
        counters: BrokerCounters,
        refusals: RefusalBook,
        refused_requests: RefusedRequests,
        clock: Clock,
        logger: Callable[[str], EventLog],
        runner: Runner,
        supervisor: Supervisor,
        *,
        enabled: bool = True,
    ) -> None:
        self._config = config
        self._metrics_config = metrics_config
        self._counters = counters
        self._refusals = refusals
        self._refused_requests = refused_requests
        self._clock = clock
        self._logger = logger
        self._runner = runner
        self._supervisor = supervisor
        self._boot_ms = clock.now_ms()
        self.stage_times = StageTimes() if enabled else None
        self.put_times = PutStatistics()
        self.slow = SlowRequests(config.slow_request_mills, clock, logger("broker"))
        self.health = Health(config.broker_name, clock, supervisor)
        self._flush_times: FlushTimes | None = None
        self.telemetry: Telemetry | None = None
        self.disk: DiskSpace | None = None
        self._http: MetricsServer | None = None
        self._metrics: Callable[[], bytes] | None = None

    @property
    def http_port(self) -> int:
        """Where ``/metrics`` and ``/health`` are; 0: nowhere."""
        return 0 if self._http is None else self._http.port

    def bind(self, *, required: bool) -> None:
        """Serve ``/metrics`` and ``/health`` if a port is set. Raise ``AddressInUse`` or ``BindFailed``; a port that is
        not ``required`` is done without, with a warning.
        """
        config = self._metrics_config
        if not config.listen_port:
            return
        log = self._logger("broker")
        http = MetricsServer({"/metrics": self._metrics_page, "/health": self._health_page}, self._clock, log)
        try:
            http.bind(config.bind_address, config.listen_port)
        except (AddressInUse, BindFailed) as error:
            if required:
                raise
            log.warning("metrics_not_served", address=f"{config.bind_address}:{config.listen_port}", error=str(error))
            return
        self._http = http
        http.start(self._runner)

    def on_slow_read(self, connection: Connection, request: Request, took_ns: int) -> None:
        """Hear of a request whose frame took long to arrive. Loop thread."""
        self.slow.read_slowly(connection.remote, request, took_ns)

    def answer_port(self, mailbox: LoopMailbox) -> AnswerPort:
        """Return the way back to the loop, which counts its times."""
        if self.stage_times is None:
            return AnswerPort(mailbox)
        return AnswerPort(mailbox, clock=self._clock, write_times=self.stage_times.write, finished=self.slow.finished)

    def send_times(self, store: MessageStore) -> SendTimes | None:
        """Return where the send processor counts."""
        self._flush_times = FlushTimes(store)
        if self.stage_times is None:
            return None
        return SendTimes(
            self.stage_times.pair(SEND_PAIR),
            self.put_times,
            self._flush_times,
            store.config.flush_disk_type == "SYNC_FLUSH",
            self._clock,
            self._logger("lock"),
            replicates=store.config.broker_role == "SYNC_MASTER",
        )

    def watch(
        self,
        store: MessageStore,
        files: FileSystem,
        executors: list[DrainExecutor],
        server: RemotingServer,
        mailbox: LoopMailbox,
        counts: Counts,
    ) -> tuple[Telemetry, DiskSpace]:
        """Take the parts of a broker that is built, and let its executors count."""
        if self.stage_times is not None:
            for executor in executors:
                executor.stages = self.stage_times.pair(executor.name)
        self.disk = DiskSpace(files, store.paths.commit_log, f"{store.paths.root}/consumequeue")
        flush_times = self._flush_times or FlushTimes(store)
        node = counts.replication
        intervals = IntervalLog(
            self._config.broker_name,
            store,
            self._counters,
            self.stage_times,
            flush_times,
            self.put_times,
            self._refusals.snapshot,
            None if node is None else lambda: ha_interval(node),
            self._clock,
            self._logger("broker"),
        )
        sources = TelemetrySources(
            store=store,
            counters=self._counters,
            executors=executors,
            swept=counts.swept,
            refusals=self._refusals.snapshot,
            refused_requests=self._refused_requests,
            stage_times=self.stage_times,
            put_times=self.put_times,
            flush_times=flush_times,
            slow=self.slow,
            watermarks=Watermarks(executors, self._clock.monotonic_ns(), self._logger("watermark")),
            intervals=intervals,
        )
        self.telemetry = Telemetry(sources, mailbox, self._clock, self._logger)
        metrics_sources = MetricsSources(
            telemetry=self.telemetry,
            disk=self.disk,
            boot_ms=self._boot_ms,
            oneway_dropped=counts.oneway_dropped,
            connections=lambda: len(server.connections),
            connections_refused=lambda: server.refused_count,
            half_frame_bytes=lambda: server.budget.used_bytes,
            unwritten_bytes=lambda: server.unwritten_bytes,
            clients=counts.clients,
            topics=counts.topics,
            pulls_held=counts.pulls_held,
            thread_dumps=counts.thread_dumps,
            task_failures=lambda: self._supervisor.failures,
            delays=counts.delays,
            replication=counts.replication,
            transactions=counts.transactions,
            replies=counts.replies,
        )
        self.health.replication = counts.replication
        self._metrics = exposition(BrokerCollector(metrics_sources, self._clock))
        return self.telemetry, self.disk

    def start(self) -> None:
        """Watch, now that the broker serves."""
        assert self.telemetry is not None
        assert self.disk is not None
        self.telemetry.start(self._runner)
        self.health.running(self.telemetry, self.disk)

    def stopping(self) -> None:
        """Say so when asked."""
        self.health.stopping()

    def stop(self) -> None:
        """End the telemetry thread. Blocks for a moment; worker thread."""
        if self.telemetry is not None:
            self.telemetry.stop()

    def close(self) -> None:
        """Serve nothing any more."""
        http, self._http = self._http, None
        if http is not None:
            with contextlib.suppress(OSError):
                http.stop()

    def _metrics_page(self) -> Answer:
        if self._metrics is None:
            return Answer(503, TEXT, b"the broker is starting\n")
        return Answer(200, METRICS_TYPE, self._metrics())

    def _health_page(self) -> Answer:
        report = self.health.report()
        body = msgspec.json.encode(report) + b"\n"
        return Answer(503 if report.reasons else 200, "application/json", body)

"""The parts that watch one run of a broker, built and connected in one place.

Lives here: ``Observation``: stage times, put times, slow requests, telemetry, health, metrics, their start and stop.
"""

import contextlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.flow_control.admission import Admission
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.metrics.connz import Connz
from pocketmq.broker.metrics.figures import Figures
from pocketmq.broker.metrics.health import Health, HealthReport, Probe
from pocketmq.broker.metrics.interval_log import IntervalLog
from pocketmq.broker.metrics.metrics import exposition, texts_of_figures
from pocketmq.broker.metrics.slow_requests import SlowRequests, topic_of
from pocketmq.broker.metrics.sources import Pops, Process, Sources, Transactions
from pocketmq.broker.metrics.telemetry import Telemetry
from pocketmq.broker.metrics.thread_dump import ThreadDumper
from pocketmq.broker.metrics.watermarks import Watermarks
from pocketmq.broker.pull.pull_service import PullService
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort
from pocketmq.broker.send.reply_processor import ReplyProcessor
from pocketmq.broker.send.send_times import SendTimes
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.rpc_times import RpcTimes
from pocketmq.broker.stats.sent_topics import SendSamples
from pocketmq.broker.stats.stage_times import SEND_PAIR, RequestTiming, StageTimes
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.addresses import address_text
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner, Supervisor
from pocketmq.remoting.codec import Request
from pocketmq.remoting.errors import AddressInUse, BindFailed
from pocketmq.remoting.http_server import (
    JSON,
    TEXT,
    Answer,
    HttpRequest,
    HttpServer,
    MetricsConfig,
    Route,
    everyone,
)
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server import Connection, RemotingServer
from pocketmq.remoting.telemetry import SecurityTelemetry
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.message_store import MessageStore

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""


@dataclass(slots=True, kw_only=True)
class Watched:
    """The parts of a broker that keep their own statistics."""

    store: MessageStore
    files: FileSystem
    server: RemotingServer
    admission: Admission
    executors: list[DrainExecutor]
    swept: dict[str, int]
    clients: ClientTable[Any]
    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    pulls: PullService
    thread_dumper: ThreadDumper
    node: HaNode
    replies: ReplyProcessor
    delays: DelayService | None
    transactions: Transactions | None
    pops: Pops


@dataclass(slots=True, eq=False)
class Observation:
    """Observes one run of a broker.

    Order of calls: ``bind``, then the parts (``on_slow_read``, ``answer_port``, ``send_times``) while the broker is
    built, ``watch`` when it is, ``start`` when it serves, ``stopping``, ``stop``, ``close``. ``enabled`` False counts
    no times: for the benchmark of their cost.
    """

    config: BrokerConfig
    metrics_config: MetricsConfig
    counters: BrokerCounters
    refusals: RefusalStats
    refused_requests: RefusedRequests
    clock: Clock
    logger: Callable[[str], EventLog]
    runner: Runner
    supervisor: Supervisor
    enabled: bool = True
    tls_context: Callable[[], ssl.SSLContext | None] = lambda: None
    """The context of the HTTP port; None: plain."""
    denials: Mapping[str, int] = field(default_factory=dict)
    """Refusals of access control, by kind."""
    security: Callable[[], SecurityTelemetry] | None = None
    access: Callable[[HttpRequest], Answer | None] = everyone
    """Refuses requests for pages that are not public."""
    quota_refusals: Mapping[str, int] = field(default_factory=dict)
    """Refusals by limits, by limit."""
    stage_times: StageTimes | None = field(init=False)
    put_times: PutStatistics = field(init=False, default_factory=PutStatistics)
    rpc_times: RpcTimes = field(init=False, default_factory=RpcTimes)
    _samples: SendSamples = field(init=False, default_factory=partial(SendSamples, topic_of))
    slow: SlowRequests = field(init=False)
    health: Health = field(init=False)
    sources: Sources | None = field(init=False, default=None)
    telemetry: Telemetry | None = field(init=False, default=None)
    figures: Figures | None = field(init=False, default=None)
    """By topic, group and kind of client: a service of the broker."""
    disk: DiskSpace | None = field(init=False, default=None)
    _boot_ms: int = field(init=False)
    _flush_times: FlushTimes | None = field(init=False, default=None)
    _connz: Connz | None = field(init=False, default=None)
    _http: HttpServer | None = field(init=False, default=None)
    _metrics: Callable[[], list[bytes]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._boot_ms = self.clock.now_ms()
        self.stage_times = StageTimes() if self.enabled else None
        self.slow = SlowRequests(self.config.slow_request_mills, self.clock, self.logger("broker"))
        self.health = Health(self.config.broker_name, self.clock, self.supervisor)

    @property
    def http_port(self) -> int:
        """The HTTP port; 0: not served."""
        return 0 if self._http is None else self._http.port

    def bind(self, *, required: bool) -> None:
        """Serve the pages of ``routes`` if a port is set. Raises ``AddressInUse`` or ``BindFailed`` if the port is
        ``required``, else logs a warning.
        """
        config = self.metrics_config
        if not config.listen_port:
            return
        log = self.logger("broker")
        http = HttpServer(self.routes(), self.clock, log, self.tls_context, self.access)
        try:
            http.bind(config.bind_address, config.listen_port)
        except (AddressInUse, BindFailed) as error:
            if required:
                raise
            log.warning(
                "metrics_not_served", address=address_text(config.bind_address, config.listen_port), error=str(error)
            )
            return
        self._http = http
        http.start(self.runner)

    def routes(self) -> list[Route]:
        """Return the pages of the HTTP port. Public ones name no topic, group or client."""
        return [
            Route("/metrics", self._metrics_page),
            Route("/connz", self._connz_page),
            Route("/health", self._health_page, is_public=True),
            Route("/live", self._live_page, is_public=True),
            Route("/ready", self._ready_page, is_public=True),
        ]

    def add_page(self, route: Route) -> None:
        """Serve one more page at the HTTP port, after ``bind``; nothing where there is none."""
        if self._http is not None:
            self._http.add(route)

    def on_slow_read(self, connection: Connection, request: Request, took_ns: int) -> None:
        """Note a request whose frame took long to arrive. Loop thread."""
        self.slow.read_slowly(connection.remote, request, took_ns)

    def answer_port(self, mailbox: LoopMailbox) -> AnswerPort:
        """Return the port of answers to the loop, which counts its times."""
        if self.stage_times is None:
            return AnswerPort(mailbox)
        return AnswerPort(mailbox, clock=self.clock, write_times=self.stage_times.write, finished=self._finished)

    def _finished(self, timing: RequestTiming, write_ns: int, now_ns: int) -> None:
        self.rpc_times.finished(timing, now_ns)
        self._samples.finished(timing, now_ns)
        self.slow.finished(timing, write_ns, now_ns)

    def send_times(self, store: MessageStore) -> SendTimes | None:
        """Return the counters of the send processor."""
        self._flush_times = FlushTimes(store)
        if self.stage_times is None:
            return None
        return SendTimes(
            self.stage_times.pair(SEND_PAIR),
            self.put_times,
            self._flush_times,
            store.config.flush_disk_type == "SYNC_FLUSH",
            self.clock,
            self.logger("lock"),
            rpc_times=self.rpc_times,
            replicates=store.config.broker_role == "SYNC_MASTER",
        )

    def watch(self, watched: Watched, mailbox: LoopMailbox) -> DiskSpace:
        """Take the parts of a built broker, and let its executors count."""
        store, executors = watched.store, watched.executors
        if self.stage_times is not None:
            for executor in executors:
                executor.stages = self.stage_times.pair(executor.name)
        self.disk = DiskSpace(watched.files, store.paths.commit_log, f"{store.paths.root}/consumequeue")
        self.figures = Figures(
            self.config,
            store,
            watched.topics,
            watched.offsets,
            watched.clients,
            self.counters,
            self.clock,
            series_max=self.metrics_config.series_max,
            is_served=self._http is not None,
            popped=watched.pops.ledger.progress,
        )
        self.sources = Sources(
            store=store,
            counters=self.counters,
            executors=executors,
            swept=watched.swept,
            refusals=self.refusals.snapshot,
            refused_requests=self.refused_requests,
            denials=self.denials,
            security=self.security,
            quota_refusals=self.quota_refusals,
            stage_times=self.stage_times,
            rpc_times=self.rpc_times,
            put_times=self.put_times,
            flush_times=self._flush_times or FlushTimes(store),
            slow=self.slow,
            process=Process(
                watched.server,
                watched.admission,
                watched.clients,
                watched.topics,
                watched.pulls,
                watched.thread_dumper,
                self.supervisor,
                self.disk,
                self._boot_ms,
            ),
            figures=self.figures,
            group_count=lambda: len(watched.groups.names()),
            permission=self.config.broker_permission,
            node=watched.node,
            replies=watched.replies,
            delays=watched.delays,
            transactions=watched.transactions,
            pops=watched.pops,
        )
        watermarks = Watermarks(executors, self.clock.monotonic_ns(), self.logger("watermark"))
        intervals = IntervalLog(self.config.broker_name, self.sources, self.clock, self.logger("broker"))
        self.telemetry = Telemetry(self.sources, watermarks, intervals, mailbox, self.clock, self.logger)
        self.health.replication = watched.node
        self._metrics = exposition(self.sources, self.clock)
        self.figures.render = partial(texts_of_figures, self.sources, self.clock)
        self._connz = Connz(self.config.broker_name, watched.server, watched.clients, self.clock)
        return self.disk

    def start(self) -> None:
        """Begin to watch, when the broker serves."""
        assert self.telemetry is not None
        assert self.disk is not None
        self.telemetry.start(self.runner)
        self.health.running(self.telemetry, self.disk)

    def stopping(self) -> None:
        """Report from now on that the broker is stopping."""
        self.health.stopping()

    def stop(self) -> None:
        """Stop the telemetry thread. Blocks for a moment; worker thread."""
        if self.telemetry is not None:
            self.telemetry.stop()

    def close(self) -> None:
        """Stop serving pages."""
        http, self._http = self._http, None
        if http is not None:
            with contextlib.suppress(OSError):
                http.stop()

    def _metrics_page(self, request: HttpRequest) -> Answer:
        if self._metrics is None:
            return Answer(503, TEXT, b"the broker is starting\n")
        return Answer(200, METRICS_TYPE, self._metrics())

    def _connz_page(self, request: HttpRequest) -> Answer:
        if self._connz is None:
            return Answer(503, TEXT, b"the broker is starting\n")
        return self._connz.page(request)

    def _health_page(self, request: HttpRequest) -> Answer:
        return _answer(self.health.report())

    def _live_page(self, request: HttpRequest) -> Answer:
        return _answer(self.health.live())

    def _ready_page(self, request: HttpRequest) -> Answer:
        return _answer(self.health.ready())


def _answer(report: HealthReport | Probe) -> Answer:
    return Answer(503 if report.reasons else 200, JSON, msgspec.json.encode(report) + b"\n")

"""What a name server says at its HTTP port: ``/metrics``, ``/health``, ``/ready``, ``/live``.

Lives here: ``HttpPages``. All is read from attributes in the HTTP server's thread; the loop waits for none of it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pocketmq.auth.server_auth import ServerAuth
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.exposition import Family, page
from pocketmq.common.runner import Runner, Supervisor
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.remoting.errors import AddressInUse, BindFailed
from pocketmq.remoting.http_server import JSON, Answer, HttpRequest, HttpServer, MetricsConfig, Route
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.server import RemotingServer

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
TICK_S: Final = 1.0
STALLED_NS: Final = 5_000_000_000
"""A loop that has not come round for this long serves nobody."""


class Report(msgspec.Struct, frozen=True):
    """The answer of ``/health``, ``/ready`` and ``/live``."""

    status: str
    reasons: list[str]


class HttpPages:
    """The HTTP port of one name server. ``start`` and ``stop`` in the loop's thread."""

    def __init__(
        self,
        config: MetricsConfig,
        server: RemotingServer,
        routes: RouteTable,
        auth: ServerAuth,
        tls: TlsFiles,
        refused: RefusedRequests,
        supervisor: Supervisor,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._config = config
        self._server = server
        self._routes = routes
        self._auth = auth
        self._refused = refused
        self._supervisor = supervisor
        self._clock = clock
        self._start_s = clock.now_ms() / 1000
        self._seen_ns = clock.monotonic_ns()
        self._timer: asyncio.TimerHandle | None = None
        pages = [
            Route("/metrics", self._metrics),
            Route("/health", self._health, is_public=True),
            Route("/ready", self._health, is_public=True),
            Route("/live", self._health, is_public=True),
        ]
        self._http = HttpServer(pages, clock, log, lambda: tls.http, auth.http.refusal)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._http.port

    def start(self, runner: Runner, loop: asyncio.AbstractEventLoop) -> None:
        """Listen and serve. Raise ``AddressInUse`` or ``BindFailed``."""
        try:
            self._http.bind(self._config.bind_address, self._config.listen_port)
        except (AddressInUse, BindFailed):
            self._http.stop()
            raise
        self._http.start(runner)
        self._tick(loop)

    def stop(self) -> None:
        """Stop serving. Blocks for a moment."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._http.stop()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that the loop comes round."""
        self._seen_ns = self._clock.monotonic_ns()
        self._timer = loop.call_later(TICK_S, self._tick, loop)

    def _health(self, request: HttpRequest) -> Answer:
        reasons = ["event_loop_stalled"] if self._clock.monotonic_ns() - self._seen_ns > STALLED_NS else []
        report = Report("failing" if reasons else "ok", reasons)
        return Answer(503 if reasons else 200, JSON, msgspec.json.encode(report) + b"\n")

    def _metrics(self, request: HttpRequest) -> Answer:
        return Answer(200, METRICS_TYPE, page(self.families()))

    def families(self) -> list[Family]:
        """Return every metric, read now."""
        brokers, topics, entries = self._routes.counts()
        families = [
            _one("pocketmq_namesrv_brokers", "Addresses of registered brokers.", "gauge", brokers),
            _one("pocketmq_namesrv_topics", "Topics with a route.", "gauge", topics),
            _one("pocketmq_namesrv_topic_entries", "Topics by broker.", "gauge", entries),
            _one("pocketmq_namesrv_routes_bytes", "Memory of routes, estimated.", "gauge", self._routes.size_bytes),
            _one("pocketmq_connections", "Open connections.", "gauge", len(self._server.connections)),
            _one(
                "pocketmq_connections_refused",
                "Connections closed at once because there were too many.",
                "counter",
                self._server.refused_count,
            ),
            _one("pocketmq_start_time_seconds", "Start of the name server, Unix time.", "gauge", self._start_s),
        ]
        refused = Family(
            "pocketmq_requests_refused",
            "Requests refused for a reason in the request.",
            "counter",
            ("request", "code", "cause", "language", "version"),
        )
        for labels, count in self._refused.totals():
            refused.add_value(labels, count)
        families.append(refused)
        by_kind: list[tuple[str, str, str, Callable[[], Mapping[str, int]]]] = [
            (
                "pocketmq_access_denials",
                "Requests and proofs refused by access control, by kind.",
                "kind",
                lambda: self._auth.denials.counts,
            ),
            (
                "pocketmq_task_failures",
                "Unexpected errors in background tasks and threads.",
                "task",
                lambda: self._supervisor.failures,
            ),
        ]
        for name, text, label, read in by_kind:
            family = Family(name, text, "counter", (label,))
            for value, count in list(read().items()):
                family.add_value((value,), count)
            families.append(family)
        return families


def _one(name: str, text: str, kind: str, value: float) -> Family:
    family = Family(name, text, kind)
    family.add_value((), value)
    return family

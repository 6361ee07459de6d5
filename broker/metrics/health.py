"""Whether the broker can do its work: the reports of ``/health``, ``/ready`` and ``/live``.

Lives here: ``Health``, which names the reasons.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.metrics.ha_metrics import ha_health
from pocketmq.broker.metrics.telemetry import Telemetry
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.common.clock import Clock
from pocketmq.common.runner import Supervisor
from pocketmq.store.disk.disk_limits import worst
from pocketmq.store.errors import StoreFull
from pocketmq.store.message_store import MessageStore

LOOP_STALLED_NS: Final = 5_000_000_000
"""The event loop is probed once a second; one that has not answered for this long serves no client."""
REFUSED_NS: Final = 10_000_000_000
"""How long a refused connection is listed: longer than the time between two checks of a monitor that tries again."""
TASK_FAILED_NS: Final = 600_000_000_000
"""How long a task or thread is listed after an unexpected error."""


class Phase(enum.Enum):
    """The phase of a broker's life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class HealthReport(msgspec.Struct, frozen=True):
    """``reasons`` why sends or all requests fail now; ``warnings`` of failures that may come; ``details``: explanations
    of some of either, and what to do.
    """

    status: str
    phase: str
    broker: str
    reasons: list[str]
    warnings: list[str]
    details: dict[str, str] = {}


class Probe(msgspec.Struct, frozen=True):
    """The answer to a probe of an orchestrator. ``details``: explanations of some reasons."""

    status: str
    phase: str
    reasons: list[str]
    details: dict[str, str] = {}


class Health:
    """Judged at each request, from attributes only: it answers while the disk or the loop stands still."""

    def __init__(self, broker_name: str, clock: Clock, supervisor: Supervisor | None = None) -> None:
        self._broker_name = broker_name
        self._clock = clock
        self._supervisor = supervisor
        self.phase = Phase.STARTING
        self._telemetry: Telemetry | None = None
        self._disk: DiskSpace | None = None
        self.replication: HaNode | None = None
        """Master or slave: a master that was replaced takes no sends."""
        self.not_registered: Callable[[], Mapping[str, str]] = dict
        """Returns why each name server has not accepted the broker; empty once one has."""

    def running(self, telemetry: Telemetry, disk: DiskSpace) -> None:
        """Note that the broker serves; it is judged by these from now on."""
        self._telemetry = telemetry
        self._disk = disk
        self.phase = Phase.RUNNING

    def stopping(self) -> None:
        """Note that the broker is stopping."""
        self.phase = Phase.STOPPING

    def report(self) -> HealthReport:
        """Return the state and its reasons."""
        reasons: list[str] = []
        warnings: list[str] = []
        details: dict[str, str] = {}
        if self.phase is not Phase.RUNNING:
            reasons.append(self.phase.value)
        if self._telemetry is not None and self._disk is not None:
            self._judge(self._telemetry, reasons)
            self._judge_disk(self._telemetry.sources.store, self._disk, reasons, warnings, details)
        if self.replication is not None and self.phase is Phase.RUNNING:
            failing, warned = ha_health(self.replication)
            reasons += failing
            warnings += warned
        if self._supervisor is not None:
            warnings += [f"task_failed:{name}" for name in self._supervisor.failed_within(TASK_FAILED_NS)]
        status = "failing" if reasons else "ok"
        return HealthReport(status, self.phase.value, self._broker_name, reasons, warnings, details)

    def live(self) -> Probe:
        """Return whether this process can still do its work; one that cannot is to be started again. A long recovery
        and a full disk are no reason: another start would change nothing.
        """
        telemetry = self._telemetry
        stalled = telemetry is not None and self.phase is Phase.RUNNING and self._loop_is_stalled(telemetry)
        reasons = ["event_loop_stalled"] if stalled else []
        return Probe("stalled" if stalled else "live", self.phase.value, reasons)

    def ready(self) -> Probe:
        """Return whether clients should be sent here: it has recovered, is registered, is not fenced, and its loop
        answers."""
        reasons: list[str] = []
        details: dict[str, str] = {}
        if self.phase is not Phase.RUNNING:
            reasons.append(self.phase.value)
        telemetry = self._telemetry
        if telemetry is not None:
            if telemetry.sources.store.log.fenced_by is not None:
                reasons.append("log_fenced")
            if self._loop_is_stalled(telemetry):
                reasons.append("event_loop_stalled")
        if self.replication is not None and self.replication.fenced_by is not None:
            reasons.append("fenced_by_epoch")
        if self.not_registered():
            reasons.append("not_registered")
            details["not_registered"] = "no name server has accepted this broker, so no client finds it"
        return Probe("not_ready" if reasons else "ready", self.phase.value, reasons, details)

    def _loop_is_stalled(self, telemetry: Telemetry) -> bool:
        return self._clock.monotonic_ns() - telemetry.sources.loop.seen_ns > LOOP_STALLED_NS

    def _judge(self, telemetry: Telemetry, reasons: list[str]) -> None:
        store = telemetry.sources.store
        if store.log.fenced_by is not None:
            reasons.append("log_fenced")
        if store.is_os_page_cache_busy():
            reasons.append("page_cache_busy")
        if store.is_transient_store_pool_deficient():
            reasons.append("write_buffers_used_up")
        if self._loop_is_stalled(telemetry):
            reasons.append("event_loop_stalled")
        process = telemetry.sources.process
        refused_ns = 0 if process is None else process.server.full_ns
        if refused_ns and self._clock.monotonic_ns() - refused_ns < REFUSED_NS:
            reasons.append("connections_refused")

    def _judge_disk(
        self,
        store: MessageStore,
        disk: DiskSpace,
        reasons: list[str],
        warnings: list[str],
        details: dict[str, str],
    ) -> None:
        retention = store.retention
        limits = retention.limits
        space = worst(limits, (disk.commit_log, disk.consume_queues))
        text = limits.warning(store.paths.root, space)
        no_next_file = isinstance(store.components.allocator.failure, StoreFull)
        if retention.flags.is_disk_full or limits.is_full(space) or no_next_file:
            reasons.append("disk_full")
            details["disk_full"] = text or str(retention.refusal())
        elif limits.is_short(space):
            warnings.append("disk_almost_full")
            details["disk_almost_full"] = text

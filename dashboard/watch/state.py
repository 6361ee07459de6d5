"""What is known of a cluster, as the pages read it: plain values, no questions.

Lives here: ``BrokerState``, ``TopicState``, ``GroupState``, ``ClusterState``, ``is_system_group``.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.topics import is_dlq_topic, is_retry_topic, is_system_topic
from pocketmq.dashboard.options import DoctorFinding
from pocketmq.remoting.protocol.group import Connection, ProducerInfo
from pocketmq.remoting.telemetry import TelemetrySnapshot

_SYSTEM_PREFIXES: Final = (
    "CID_ONS",
    "CID_RMQ_SYS_",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_",
    "CID_HOUSE",
)
"""Groups that RocketMQ makes for itself; tools and this dashboard's live tail read as ``TOOLS_CONSUMER``."""
POINTS: Final = 90
"""Values that a picture has: four and a half minutes at a look every three seconds."""


def is_system_group(name: str) -> bool:
    """Return whether RocketMQ, a tool or a live tail made the group for itself."""
    return name.startswith(_SYSTEM_PREFIXES)


def points() -> deque[float]:
    """Return an empty row of values."""
    return deque(maxlen=POINTS)


@dataclass(slots=True)
class BrokerState:
    """One broker. ``error``: why it did not answer; the rest is then of the last answer."""

    name: str
    broker_id: int
    address: str
    cluster: str = ""
    error: str = ""
    version: str = ""
    is_pocketmq: bool = False
    runtime: dict[str, str] = field(default_factory=dict)
    telemetry: TelemetrySnapshot | None = None
    puts: deque[float] = field(default_factory=points)
    gets: deque[float] = field(default_factory=points)
    read_ns: int = 0
    put_total: float = 0.0
    get_total: float = 0.0

    @property
    def label(self) -> str:
        """Its name, with the id of a slave."""
        return self.name if self.broker_id == 0 else f"{self.name}#{self.broker_id}"

    @property
    def put_rate(self) -> float:
        """Messages stored a second, between the last two looks."""
        return self.puts[-1] if self.puts and not self.error else 0.0

    @property
    def get_rate(self) -> float:
        """Messages read a second, between the last two looks."""
        return self.gets[-1] if self.gets and not self.error else 0.0


@dataclass(slots=True)
class TopicState:
    """One topic. ``ends``: the end of each queue, by broker and id; ``read_ns`` 0: not known yet."""

    name: str
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    newest_ms: int = 0
    read_ns: int = 0
    rates: deque[float] = field(default_factory=points)

    @property
    def kind(self) -> str:
        """``user``, ``retry``, ``dead letters`` or ``system``."""
        if is_retry_topic(self.name):
            return "retry"
        if is_dlq_topic(self.name):
            return "dead letters"
        return "system" if is_system_topic(self.name) or self.name.endswith("_REPLY_TOPIC") else "user"

    @property
    def rate(self) -> float:
        """Messages stored a second, between the last two looks."""
        return self.rates[-1] if self.rates else 0.0

    @property
    def count(self) -> int:
        """Messages in its queues; where only the ends are known, those that were ever stored."""
        return sum(self.ends.values()) - sum(self.begins.get(queue, 0) for queue in self.ends)

    def take_ends(self, ends: dict[tuple[str, int], int], now_ns: int) -> None:
        """Note the ends of queues; the growth since the last look is a rate."""
        grown = sum(max(0, end - self.ends[queue]) for queue, end in ends.items() if queue in self.ends)
        took_s = (now_ns - self.read_ns) / 1e9
        if self.read_ns and took_s > 0:
            self.rates.append(grown / took_s)
        self.ends.update(ends)
        self.read_ns = now_ns


@dataclass(slots=True)
class GroupTopic:
    """A group's progress in one topic. ``behind_ms``: the age of the oldest message it has not committed; None: not
    asked yet. ``last_ms``: when the newest message that it committed was stored."""

    topic: str
    lag: int = 0
    tps: float = 0.0
    last_ms: int = 0
    behind_ms: int | None = None


@dataclass(slots=True)
class GroupState:
    """One consumer group. ``members`` None: not asked yet."""

    name: str
    topics: dict[str, GroupTopic] = field(default_factory=dict)
    members: int | None = None
    connections: list[tuple[str, Connection]] = field(default_factory=list)
    """(broker, member), as they were when the watch last asked."""
    asked_ns: int = 0
    """When its members were asked for."""
    aged_ns: int = 0
    """When its lag in time was asked for."""
    lags: deque[float] = field(default_factory=points)

    @property
    def lag(self) -> int:
        """Messages not committed yet, in all topics."""
        return sum(each.lag for each in self.topics.values())

    @property
    def tps(self) -> float:
        """Messages a second that its members got in the last minute."""
        return sum(each.tps for each in self.topics.values())

    @property
    def behind_ms(self) -> int | None:
        """The age of the oldest message that waits for it; None: not known yet, or there is none."""
        known = [each.behind_ms for each in self.topics.values() if each.lag and each.behind_ms is not None]
        return max(known, default=None)


@dataclass(slots=True)
class ClusterState:
    """All that is known. ``revision`` grows with every look; ``problems``: what could not be read, with the reason."""

    revision: int = 0
    at_ms: int = 0
    needs_login: bool = False
    brokers: dict[str, BrokerState] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    producers: dict[str, list[tuple[str, ProducerInfo]]] = field(default_factory=dict)
    """Producer group → (broker, producer)."""
    findings: list[DoctorFinding] = field(default_factory=list)
    has_doctor: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    puts: deque[float] = field(default_factory=points)
    gets: deque[float] = field(default_factory=points)
    lags: deque[float] = field(default_factory=points)

    @property
    def masters(self) -> list[BrokerState]:
        """The brokers with id 0."""
        return [each for each in self.brokers.values() if each.broker_id == 0]

    def health(self) -> tuple[str, list[str]]:
        """Return ``failing``, ``warning`` or ``ok``, and the reasons."""
        failing = [f"{each.label} does not answer: {each.error}" for each in self.brokers.values() if each.error]
        if "cluster" in self.problems:
            failing.insert(0, self.problems["cluster"])
        elif self.revision and not self.brokers:
            failing.append("no broker is registered at the name servers")
        failing += [f"{each.broker}: {each.title}" for each in self.findings if each.severity == "error"]
        warnings = [f"{each.broker}: {each.title}" for each in self.findings if each.severity == "warning"]
        warnings += [f"{what}: {why}" for what, why in self.problems.items() if what != "cluster"]
        return ("failing" if failing else "warning" if warnings else "ok"), failing + warnings

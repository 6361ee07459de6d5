"""The rows of ``pocketmq top``.

Lives here: ``Overview``, made of what the watch knows; the three orders.
"""

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.dashboard.watch.state import ClusterState


class Sort(enum.StrEnum):
    """The order of all tables."""

    RATE = "rate"
    LAG = "lag"
    REFUSALS = "refusals"


@dataclass(slots=True, frozen=True)
class BrokerRow:
    """Messages a second stored and read; refusals in the last minute, None where a broker does not count them."""

    broker: str
    version: str
    in_rate: float
    out_rate: float
    refused: int | None
    health: str


@dataclass(slots=True, frozen=True)
class TopicRow:
    """Messages a second stored; what all its groups together have not read yet."""

    topic: str
    in_rate: float
    lag: int
    groups: int


@dataclass(slots=True, frozen=True)
class GroupRow:
    """``lag_s``: the age of the oldest message that waits; None: nothing waits, or it is not known."""

    group: str
    topics: int
    out_rate: float
    lag: int
    lag_s: float | None


@dataclass(slots=True, frozen=True)
class RefusalRow:
    """Refusals of one cause by all brokers."""

    cause: str
    text: str
    last_minute: int
    total: int


@dataclass(slots=True, frozen=True)
class Overview:
    """All rows, ordered. ``health``: ``ok``, ``warning`` or ``failing``."""

    at_ms: int
    health: str
    reasons: list[str] = field(default_factory=list)
    in_rate: float = 0.0
    out_rate: float = 0.0
    lag: int = 0
    refused: int = 0
    brokers: list[BrokerRow] = field(default_factory=list)
    topics: list[TopicRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    refusals: list[RefusalRow] = field(default_factory=list)


def overview_of(state: "ClusterState", sort: Sort) -> Overview:
    """Return the rows of a moment. Idle topics, and groups that have read nothing and lag behind nothing, are left
    out.
    """
    health, reasons = state.health()
    refusals = _refusals(state)
    brokers = _brokers(state, sort)
    return Overview(
        at_ms=state.at_ms,
        health=health,
        reasons=reasons,
        in_rate=sum(each.put_rate for each in state.masters),
        out_rate=sum(each.get_rate for each in state.brokers.values()),
        lag=sum(each.lag for each in state.groups.values()),
        refused=sum(each.last_minute for each in refusals),
        brokers=brokers,
        topics=_topics(state, sort),
        groups=_groups(state, sort),
        refusals=refusals,
    )


def _brokers(state: "ClusterState", sort: Sort) -> list[BrokerRow]:
    rows = []
    for each in state.brokers.values():
        refused = None if each.telemetry is None else sum(count.last_minute for count in each.telemetry.refusals)
        findings = [found for found in state.findings if found.broker == each.name]
        health = "does not answer" if each.error else "; ".join(found.title for found in findings[:2]) or "ok"
        rows.append(BrokerRow(each.label, each.version or "?", each.put_rate, each.get_rate, refused, health))
    if sort is Sort.REFUSALS:
        return sorted(rows, key=lambda row: (-(row.refused or 0), row.broker))
    if sort is Sort.RATE:
        return sorted(rows, key=lambda row: (-row.in_rate - row.out_rate, row.broker))
    return sorted(rows, key=lambda row: row.broker)


def _topics(state: "ClusterState", sort: Sort) -> list[TopicRow]:
    lags: dict[str, int] = {}
    groups: dict[str, int] = {}
    for group in state.groups.values():
        for topic in group.topics.values():
            lags[topic.topic] = lags.get(topic.topic, 0) + topic.lag
            groups[topic.topic] = groups.get(topic.topic, 0) + 1
    rows = [
        TopicRow(each.name, each.rate, lags.get(each.name, 0), groups.get(each.name, 0))
        for each in state.topics.values()
        if each.rate > 0 or lags.get(each.name)
    ]
    if sort is Sort.LAG:
        return sorted(rows, key=lambda row: (-row.lag, -row.in_rate, row.topic))
    return sorted(rows, key=lambda row: (-row.in_rate, -row.lag, row.topic))


def _groups(state: "ClusterState", sort: Sort) -> list[GroupRow]:
    rows = [
        GroupRow(
            each.name,
            len(each.topics),
            each.tps,
            each.lag,
            None if not each.lag or each.behind_ms is None else each.behind_ms / 1000,
        )
        for each in state.groups.values()
        if each.lag or each.tps > 0
    ]
    if sort is Sort.RATE:
        return sorted(rows, key=lambda row: (-row.out_rate, -row.lag, row.group))
    return sorted(rows, key=lambda row: (-row.lag, -row.out_rate, row.group))


def _refusals(state: "ClusterState") -> list[RefusalRow]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for broker in state.brokers.values():
        for each in broker.telemetry.refusals if broker.telemetry is not None else ():
            if each.total:
                minute, total = found.get((each.cause, each.remark), (0, 0))
                found[each.cause, each.remark] = (minute + each.last_minute, total + each.total)
    rows = [RefusalRow(cause, text, minute, total) for (cause, text), (minute, total) in found.items()]
    return sorted(rows, key=lambda row: (-row.last_minute, -row.total, row.cause))

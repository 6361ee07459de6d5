"""The sources of the metrics.

Lives here: ``Sources``, the parts of a running broker that keep statistics; ``Reading``, their values at one moment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.flow_control.admission import Admission
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.metrics.figures import Figures
from pocketmq.broker.metrics.slow_requests import SlowRequests
from pocketmq.broker.metrics.thread_dump import ThreadDumper
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pop.pop_service import PopService
from pocketmq.broker.pop.revival import Revival
from pocketmq.broker.pull.pull_service import PullService
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.send.reply_processor import ReplyProcessor
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.rpc_times import RpcTimes
from pocketmq.broker.stats.stage_times import StageTimes
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.broker.transaction.end_transaction_processor import EndTransactionProcessor
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.common.runner import Supervisor
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server import RemotingServer
from pocketmq.remoting.telemetry import RefusalCount, SecurityTelemetry
from pocketmq.store.ha.status import HaStatus
from pocketmq.store.message_store import MessageStore


@dataclass(slots=True)
class LoopTimes:
    """When the event loop last answered, on the monotonic clock, how long that answer took, and the tasks it had."""

    seen_ns: int = 0
    lag_ns: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """The parts that a broker has once, whatever its role. ``boot_ms``: Unix time."""

    server: RemotingServer
    admission: Admission
    clients: ClientTable[Any]
    topics: TopicTable
    pulls: PullService
    thread_dumper: ThreadDumper
    supervisor: Supervisor
    disk: DiskSpace
    boot_ms: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """The parts that count transactions."""

    service: TransactionService
    end: EndTransactionProcessor


@dataclass(frozen=True, slots=True)
class Pops:
    """The parts that count pops; a slave has no revival."""

    ledger: PopLedger
    service: PopService
    revival: Revival | None


@dataclass(slots=True, kw_only=True)
class Sources:
    """The objects that metrics read: attributes only, from any thread, without blocking on a disk."""

    store: MessageStore
    counters: BrokerCounters
    executors: Sequence[DrainExecutor]
    swept: Mapping[str, int]
    """Requests answered by fast failure, by pair."""
    refusals: Callable[[], list[RefusalCount]]
    refused_requests: RefusedRequests
    stage_times: StageTimes | None
    rpc_times: RpcTimes = field(default_factory=RpcTimes)
    put_times: PutStatistics
    flush_times: FlushTimes
    slow: SlowRequests
    denials: Mapping[str, int] = field(default_factory=dict)
    """Refusals of access control, by kind."""
    security: Callable[[], SecurityTelemetry] | None = None
    """Who may connect, for the doctor."""
    quota_refusals: Mapping[str, int] = field(default_factory=dict)
    """Refusals by the limits of clients, addresses and users, by limit."""
    loop: LoopTimes = field(default_factory=LoopTimes)
    process: Process | None = None
    figures: Figures | None = None
    """By topic, group and kind of client."""
    group_count: Callable[[], int] = int
    permission: int = 6
    node: HaNode | None = None
    replies: ReplyProcessor | None = None
    delays: DelayService | None = None
    """None on a slave, as are transactions."""
    transactions: Transactions | None = None
    pops: Pops | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One processor's queue and threads, at ``now_ns`` on the monotonic clock."""

    executor: DrainExecutor
    swept: int
    now_ns: int


@dataclass(frozen=True, slots=True)
class Replication:
    """State and progress of a node; ``service``: the counters of a master that serves slaves."""

    status: HaStatusBody
    service: HaStatus | None


class Reading:
    """The sources at one moment; values that are costly to read are read once."""

    def __init__(self, sources: Sources, now_ns: int) -> None:
        self.sources = sources
        self.now_ns = now_ns

    def pairs(self) -> list[Pair]:
        """Return every pair."""
        swept = self.sources.swept
        return [Pair(each, swept.get(each.name, 0), self.now_ns) for each in self.sources.executors]

    @cached_property
    def replication(self) -> Replication | None:
        """The state of replication; None for a broker that is watched without it."""
        node = self.sources.node
        if node is None:
            return None
        service = node.service
        return Replication(node.status(), None if service is None else service.status())

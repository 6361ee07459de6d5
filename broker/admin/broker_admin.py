"""What the broker says about itself.

Lives here: handlers of GET_BROKER_CONFIG and GET_BROKER_RUNTIME_INFO, and of the two that start a cleaning of the
store.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.metrics.ha_metrics import ha_runtime_info
from pocketmq.broker.metrics.telemetry import Telemetry
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.staged.staged_service import NamedService
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.broker.stats.put_statistics import text as put_times_text
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.common.clock import Clock
from pocketmq.remoting.codes import VERSION_4_9_8, RequestCode
from pocketmq.remoting.protocol.body import KVTable, encode_body
from pocketmq.remoting.protocol.broker import GetBrokerConfigResponseHeader
from pocketmq.remoting.telemetry import TELEMETRY_KEY, encode_telemetry
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

VERSION_TEXT: Final = "V4_9_8"
"""The RocketMQ version whose protocol is announced."""
QUEUE_NAMES: Final[Mapping[str, str]] = {
    "SendMessageThread": "send",
    "PullMessageThread": "pull",
    "QueryMessageThread": "query",
}
"""Executors that RocketMQ reports, and the prefix of their keys."""

CONSTANT_SETTINGS: Final[Mapping[str, str]] = {"filterServerNums": "0", "useTLS": "false"}
"""What RocketMQ's exportConfigs wants to read of every broker, and what holds for every one of ours."""
OWN_SPELLING: Final[Mapping[str, str]] = {"brokerIp1": "brokerIP1"}
"""Settings whose name in RocketMQ is no plain camel case."""

RUNTIME_KEPT_NS: Final = 50_000_000
"""Askers within this time get the same runtime table: it takes a millisecond or two to make, and many may ask."""


def camel_case(name: str) -> str:
    """Return RocketMQ's name of a setting: ``listen_port`` → ``listenPort``."""
    first, *rest = name.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return OWN_SPELLING.get(camel, camel)


class BrokerAdmin:
    """Handlers about the broker. Admin worker thread."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        store: MessageStore,
        topics: TopicTable,
        counters: BrokerCounters,
        holds: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._store = store
        self._topics = topics
        self._counters = counters
        self._holds = holds
        self._clock = clock
        self._boot_ms = clock.now_ms()
        self._telemetry: Telemetry | None = None
        self._disk: DiskSpace | None = None
        self._delays: DelayService | None = None
        self._replication: HaNode | None = None
        self._transactions: TransactionService | None = None
        self._named: NamedService | None = None
        self._runtime_body = b""
        self._runtime_read_ns = 0

    def use_transactions(self, transactions: TransactionService) -> None:
        """Set whose figures are reported."""
        self._transactions = transactions

    def use_named(self, named: NamedService) -> None:
        """Show the named transactions in the runtime table."""
        self._named = named

    def use_delays(self, delays: DelayService) -> None:
        """Set whose progress is reported."""
        self._delays = delays

    def use_replication(self, node: HaNode) -> None:
        """Set whose role, slaves and lag are reported."""
        self._replication = node

    def use_telemetry(self, telemetry: Telemetry, disk: DiskSpace) -> None:
        """Set whose queues and times are reported."""
        self._telemetry = telemetry
        self._disk = disk

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_BROKER_CONFIG: self._settings,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delay_offsets,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired_commit_log,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_consume_queues,
        }

    def _settings(self, task: Task) -> Buffers:
        lines: list[str] = []
        for struct in (self._config, self._store_config):
            for name in struct.__struct_fields__:
                value = getattr(struct, name)
                text = str(value).lower() if isinstance(value, bool) else str(value)
                lines.append(f"{camel_case(name)}={text}\n")
        lines += [f"{name}={text}\n" for name, text in CONSTANT_SETTINGS.items()]
        version = msgspec.json.encode(self._topics.snapshot()[1]).decode()
        return encode_answer(
            task.request, header=GetBrokerConfigResponseHeader(version=version), body="".join(lines).encode()
        )

    def _delay_offsets(self, task: Task) -> Buffers:
        delays = self._delays
        return encode_answer(task.request, body=b"{}" if delays is None else delays.progress_body())

    def _delete_expired_commit_log(self, task: Task) -> Buffers:
        """Start it: as RocketMQ, the answer does not wait."""
        self._store.retention.delete_soon()
        return encode_answer(task.request)

    def _clean_expired_consume_queues(self, task: Task) -> Buffers:
        removed = self._store.retention.clean_up()
        return encode_answer(task.request, remark=f"{len(removed)} files removed" if removed else "")

    def _runtime_info(self, task: Task) -> Buffers:
        now_ns = self._clock.monotonic_ns()
        if not self._runtime_body or now_ns - self._runtime_read_ns >= RUNTIME_KEPT_NS:
            self._runtime_body = encode_body(KVTable(table=self.runtime_info()))
            self._runtime_read_ns = now_ns
        return encode_answer(task.request, body=self._runtime_body)

    def runtime_info(self) -> dict[str, str]:
        """Return RocketMQ's runtime table (AdminBrokerProcessor.prepareRuntimeInfo), as far as there are figures for
        it."""
        store, counters, now_ns = self._store, self._counters, self._clock.monotonic_ns()
        totals = counters.totals
        found, miss = counters.rates("get_found_requests", now_ns), counters.rates("get_miss_requests", now_ns)
        table = {
            "brokerVersionDesc": VERSION_TEXT,
            "brokerVersion": str(VERSION_4_9_8),
            "brokerActive": "true",
            "bootTimestamp": str(self._boot_ms),
            "runtime": f"[ {(self._clock.now_ms() - self._boot_ms) // 1000} seconds ]",
            "putTps": _text(counters.rates("put", now_ns)),
            "getFoundTps": _text(found),
            "getMissTps": _text(miss),
            "getTotalTps": _text([one + other for one, other in zip(found, miss, strict=True)]),
            "getTransferedTps": _text(counters.rates("get", now_ns)),
            "getTransferredTps": _text(counters.rates("get", now_ns)),  # 5.3 writes it so, and its tools want it
            "msgPutTotalTodayNow": str(totals.put),
            "msgPutTotalTodayMorning": str(counters.this_morning.put),
            "msgPutTotalYesterdayMorning": str(counters.yesterday_morning.put),
            "msgGetTotalTodayNow": str(totals.get),
            "msgGetTotalTodayMorning": str(counters.this_morning.get),
            "msgGetTotalYesterdayMorning": str(counters.yesterday_morning.get),
            "putMessageSizeTotal": str(totals.put_bytes),
            "putMessageAverageSize": str(totals.put_bytes / totals.put if totals.put else 0.0),
            "getMessageSizeTotal": str(totals.get_bytes),
            "putMessageFailedTimes": str(totals.put_failed),
            "dispatchBehindBytes": str(max(0, store.committed_offset - store.dispatched_offset)),
            "remainHowManyDataToCommit": str(store.appended_offset - store.committed_offset),
            "remainHowManyDataToFlush": str(store.appended_offset - store.flushed_offset),
            "commitLogMinOffset": str(store.log.min_offset),
            "commitLogMaxOffset": str(store.committed_offset),
            "pageCacheLockTimeMills": str(store.lock_time_mills()),
            "remainTransientStoreBufferNumbs": str(store.pool.available if store.pool is not None else 0),
            "earliestMessageTimeStamp": str(store.earliest_store_time()),
            "pullHolds": str(self._holds()),
            "topics": str(len(self._topics)),
        }
        if self._telemetry is not None:
            self._add_telemetry(table, self._telemetry, now_ns)
        if self._delays is not None:
            table.update(self._delays.runtime_info())
        if self._replication is not None:
            table.update(ha_runtime_info(self._replication))
        if self._transactions is not None:
            table.update(self._transactions.runtime_info())
        if self._named is not None:
            table.update(self._named.runtime_info())
        if self._disk is not None:
            table["commitLogDiskRatio"] = f"{self._disk.commit_log.ratio:.4f}"
            table["consumeQueueDiskRatio"] = f"{self._disk.consume_queues.ratio:.4f}"
        return dict(sorted(table.items()))

    def _add_telemetry(self, table: dict[str, str], telemetry: Telemetry, now_ns: int) -> None:
        sources = telemetry.sources
        puts = sources.put_times
        table["putMessageEntireTimeMax"] = str(puts.max_ms)
        table["putMessageTimesTotal"] = str(puts.total)
        table["putMessageDistributeTime"] = put_times_text(puts.window())
        table["putLatency99"] = f"{puts.latency_ms(0.99):.2f}"
        table["putLatency999"] = f"{puts.latency_ms(0.999):.2f}"
        for executor in sources.executors:
            table.update(_queue_info(executor, now_ns))
        table[TELEMETRY_KEY] = encode_telemetry(telemetry.snapshot())


def _queue_info(executor: DrainExecutor, now_ns: int) -> dict[str, str]:
    name = QUEUE_NAMES.get(executor.name)
    if name is None:
        name = executor.name[0].lower() + executor.name[1:].removesuffix("Thread")
    info = {
        f"{name}ThreadPoolQueueSize": str(len(executor.queue)),
        f"{name}ThreadPoolQueueCapacity": str(executor.queue.count_max),
        f"{name}ThreadPoolQueueHeadWaitTimeMills": str(executor.queue.head_wait_ms(now_ns)),
        f"{name}ThreadPoolServed": str(executor.served),
        f"{name}ThreadPoolRefused": str(executor.refused),
    }
    if executor.name == "EndTransactionThread":
        info["EndTransactionQueueSize"] = info[f"{name}ThreadPoolQueueSize"]
        info["EndTransactionThreadPoolQueueCapacity"] = info[f"{name}ThreadPoolQueueCapacity"]
    return info


def _text(rates: list[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)

"""Runtime information of the broker.

Lives here: the handler of GET_BROKER_RUNTIME_INFO, and those of the two codes that clean the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.metrics.ha_metrics import ha_runtime_info
from pocketmq.broker.metrics.metrics import GROUPS
from pocketmq.broker.metrics.observation import Observation
from pocketmq.broker.metrics.registry import runtime_table
from pocketmq.broker.metrics.request_metrics import PAIRS
from pocketmq.broker.metrics.sources import Pair, Reading
from pocketmq.broker.metrics.telemetry import Telemetry
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.staged.staged_service import StagedService
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.put_statistics import text as put_times_text
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.remoting.codes import VERSION_4_9_8, RequestCode
from pocketmq.remoting.protocol.body import KVTable, encode_body
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

NO_POOL_BUFFERS: Final = str((1 << 31) - 1)
"""``remainTransientStoreBufferNumbs`` of a broker without a pool (RocketMQ: Integer.MAX_VALUE); 0 would say that sends
are refused."""

RUNTIME_KEPT_NS: Final = 50_000_000
"""Requests within this time get the same runtime table, which takes a millisecond or two to make."""


@dataclass(slots=True, eq=False)
class BrokerAdmin:
    """Handlers about the broker. Admin worker thread."""

    config: BrokerConfig
    store_config: StoreConfig
    store: MessageStore
    topics: TopicTable
    counters: BrokerCounters
    delays: DelayService | None
    staged: StagedService | None
    observation: Observation
    clock: Clock
    _runtime_body: bytes = b""
    _runtime_read_ns: int = 0

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delay_offsets,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired_commit_log,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_consume_queues,
        }

    def _delay_offsets(self, task: Task) -> Buffers:
        delays = self.delays
        return encode_answer(task.request, body=b"{}" if delays is None else delays.progress_body())

    def _delete_expired_commit_log(self, task: Task) -> Buffers:
        """Start the deletion; as with RocketMQ, the answer does not wait for it."""
        self.store.retention.delete_soon()
        return encode_answer(task.request)

    def _clean_expired_consume_queues(self, task: Task) -> Buffers:
        removed = self.store.retention.clean_up()
        return encode_answer(task.request, remark=f"{len(removed)} files removed" if removed else "")

    def _runtime_info(self, task: Task) -> Buffers:
        now_ns = self.clock.monotonic_ns()
        if not self._runtime_body or now_ns - self._runtime_read_ns >= RUNTIME_KEPT_NS:
            self._runtime_body = encode_body(KVTable(table=self.runtime_info()))
            self._runtime_read_ns = now_ns
        return encode_answer(task.request, body=self._runtime_body)

    def runtime_info(self) -> dict[str, str]:
        """Return RocketMQ's runtime table (AdminBrokerProcessor.prepareRuntimeInfo), as far as there are values for
        it. Values that are metrics too come from their rows."""
        store, counters, now_ns = self.store, self.counters, self.clock.monotonic_ns()
        totals = counters.totals
        found, miss = counters.rates("get_found_requests", now_ns), counters.rates("get_miss_requests", now_ns)
        table = {
            "brokerVersionDesc": VERSION_TEXT,
            "brokerVersion": str(VERSION_4_9_8),
            "brokerActive": "true",
            "putTps": _text(counters.rates("put", now_ns)),
            "getFoundTps": _text(found),
            "getMissTps": _text(miss),
            "getTotalTps": _text([one + other for one, other in zip(found, miss, strict=True)]),
            "getTransferedTps": _text(counters.rates("get", now_ns)),
            "getTransferredTps": _text(counters.rates("get", now_ns)),  # the spelling of 5.3, which its tools need
            "msgPutTotalTodayMorning": str(counters.this_morning.put),
            "msgPutTotalYesterdayMorning": str(counters.yesterday_morning.put),
            "msgGetTotalTodayMorning": str(counters.this_morning.get),
            "msgGetTotalYesterdayMorning": str(counters.yesterday_morning.get),
            "putMessageAverageSize": str(totals.put_bytes / totals.put if totals.put else 0.0),
            "commitLogMinOffset": str(store.log.min_offset),
            "remainTransientStoreBufferNumbs": NO_POOL_BUFFERS,
            "earliestMessageTimeStamp": str(store.earliest_store_time()),
        }
        if self.delays is not None:
            table |= self.delays.runtime_info()
        if self.staged is not None:
            table |= self.staged.runtime_info()
        observation = self.observation
        if observation.sources is not None and observation.telemetry is not None:
            reading = Reading(observation.sources, now_ns)
            table |= ha_runtime_info(reading) | runtime_table(GROUPS, reading)
            table["runtime"] = f"[ {(self.clock.now_ms() - int(table['bootTimestamp'])) // 1000} seconds ]"
            self._add_telemetry(table, observation.telemetry, reading)
        return dict(sorted(table.items()))

    def _add_telemetry(self, table: dict[str, str], telemetry: Telemetry, reading: Reading) -> None:
        puts = reading.sources.put_times
        table["putMessageEntireTimeMax"] = str(puts.max_ms)
        table["putMessageTimesTotal"] = str(puts.total)
        table["putMessageDistributeTime"] = put_times_text(puts.window())
        table["putLatency99"] = f"{puts.latency_ms(0.99):.2f}"
        table["putLatency999"] = f"{puts.latency_ms(0.999):.2f}"
        for pair in reading.pairs():
            table |= _queue_info(pair)
        table[TELEMETRY_KEY] = encode_telemetry(telemetry.snapshot())


def _queue_info(pair: Pair) -> dict[str, str]:
    thread = pair.executor.name
    name = QUEUE_NAMES.get(thread, thread[0].lower() + thread[1:].removesuffix("Thread"))
    info = PAIRS.runtime_of(pair, name)
    if thread == "EndTransactionThread":
        info["EndTransactionQueueSize"] = info[f"{name}ThreadPoolQueueSize"]
        info["EndTransactionThreadPoolQueueCapacity"] = info[f"{name}ThreadPoolQueueCapacity"]
    return info


def _text(rates: list[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)

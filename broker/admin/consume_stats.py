"""The progress of consumer groups: the statistics of RocketMQ's admin tools.

Lives here: ``ConsumeStatistics``, one group in one topic, queue by queue; handlers of GET_BROKER_CONSUME_STATS,
QUERY_CONSUME_TIME_SPAN and VIEW_BROKER_STATS_DATA.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.stats.stats_items import GROUP_GET_NUMS, StatsItems, group_key
from pocketmq.broker.topic.queue_checks import find_topic
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import MessageQueue, encode_body
from pocketmq.remoting.protocol.group import (
    ConsumeStats,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    encode_consume_stats_list,
)
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore

QUEUES_MAX: Final = 50_000
"""Queues of one answer: about 200 bytes each."""


@dataclass(slots=True, eq=False)
class ConsumeStatistics:
    """Progress of groups. Any worker thread."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    clients: ClientTable[Connection]
    items: StatsItems
    clock: Clock

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
            RequestCode.VIEW_BROKER_STATS_DATA: self._stats_data,
        }

    def of_topic(self, group: str, topic: str, queue_nums: int) -> ConsumeStats:
        """Return a group's offset in each queue of a topic, and the messages per second it got in the last minute.

        ``last_timestamp`` is the store time of the last message that was consumed (RocketMQ AdminBrokerProcessor).
        ``pull_offset`` (5.3, "inflight" in its tools) is the committed offset: only the client knows which
        messages are under way.
        """
        committed = self.offsets.of(group, topic)
        table: dict[MessageQueue, OffsetWrapper] = {}
        for queue_id in range(queue_nums):
            end = max(0, self.store.max_offset(topic, queue_id))
            offset = max(0, committed.get(queue_id, 0))
            time = self.store.store_time(topic, queue_id, offset - 1) if offset > 0 else 0
            queue = MessageQueue(topic, self.config.broker_name, queue_id)
            table[queue] = OffsetWrapper(end, offset, max(0, time), offset)
        tps = self.items.tps(GROUP_GET_NUMS, group_key(topic, group), self.clock.now_ms())
        return ConsumeStats(offset_table=table, consume_tps=tps)

    def _all_groups(self, task: Task) -> Buffers:
        header: Any = task.request.header
        stats: list[tuple[str, list[ConsumeStats]]] = []
        total_diff = queues = 0
        for group, topics in sorted(self.offsets.topics_by_group().items()):
            of_group: list[ConsumeStats] = []
            for topic in sorted(topics):
                config = self.topics.get(topic)
                if config is None or (header.is_order and not config.order) or self._has_left(group, topic):
                    continue
                queues += config.write_queue_nums
                if queues > QUEUES_MAX:
                    raise AdminRefused(
                        "too many queues for one answer", why=f"more than {QUEUES_MAX}", hint="ask group by group"
                    )
                statistics = self.of_topic(group, topic, config.write_queue_nums)
                of_group.append(statistics)
                total_diff += sum(
                    each.broker_offset - each.consumer_offset for each in statistics.offset_table.values()
                )
            if of_group:
                stats.append((group, of_group))
        return encode_answer(task.request, body=encode_consume_stats_list(stats, self._address(), total_diff))

    def _has_left(self, group: str, topic: str) -> bool:
        """Return whether a group that is online no longer subscribes to the topic."""
        model, subscription = self.clients.subscription(group, topic)
        return model is not None and subscription is None

    def _address(self) -> str:
        host = self.store.store_host
        address = ".".join(map(str, host[:4])) if len(host) == 8 else self.config.bind_address
        return f"{address}:{int.from_bytes(host[-4:], 'big')}"

    def _time_span(self, task: Task) -> Buffers:
        """Return the times of the first, the last and the last consumed message of each queue, and the lag in ms."""
        header: Any = task.request.header
        topic, store = header.topic, self.store
        config = find_topic(self.topics, topic)
        committed = self.offsets.of(header.group, topic)
        spans: list[QueueTimeSpan] = []
        for queue_id in range(config.write_queue_nums):
            low, end = max(0, store.min_offset(topic, queue_id)), max(0, store.max_offset(topic, queue_id))
            offset = max(0, committed.get(queue_id, 0))
            span = QueueTimeSpan(MessageQueue(topic, self.config.broker_name, queue_id))
            span.min_time_stamp = store.store_time(topic, queue_id, low)
            span.max_time_stamp = store.store_time(topic, queue_id, end - 1) if end > 0 else -1
            consumed = store.store_time(topic, queue_id, offset - 1) if offset > 0 else span.min_time_stamp
            span.consume_time_stamp = consumed
            if offset < end:
                next_time = store.store_time(topic, queue_id, max(offset, low))
                span.delay_time = max(0, self.clock.now_ms() - next_time) if next_time > 0 else 0
            spans.append(span)
        return encode_answer(task.request, body=encode_body(QueryConsumeTimeSpanBody(spans)))

    def _stats_data(self, task: Task) -> Buffers:
        header: Any = task.request.header
        data = self.items.data(header.stats_name, header.stats_key, self.clock.now_ms())
        if data is None:
            raise AdminRefused(f"The stats <{header.stats_name[:64]}> <{header.stats_key[:256]}> not exist")
        return encode_answer(task.request, body=encode_body(data))

"""Administration of consumer groups: settings, progress, members, resets.

Lives here: handlers of the subscription-group codes, GET_CONSUME_STATS, the connection lists, groups of a topic
and topics of a group, GET_ALL_CONSUMER_OFFSET, INVOKE_BROKER_TO_RESET_OFFSET, CLONE_GROUP_OFFSET and our GROUP_LIST.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pocketmq.broker.admin.consume_stats import ConsumeStatistics
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientInfo, ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.group_notifier import GroupNotifier
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.stats.sent_topics import sent_topics
from pocketmq.broker.topic.queue_checks import find_queue, find_topic
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import check_group_name
from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.group import Connection as ConnectionBody
from pocketmq.remoting.protocol.group import (
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionBody,
    SubscriptionGroupConfigBody,
    SubscriptionGroupListBody,
)
from pocketmq.remoting.protocol.offset import ResetOffsetBody, ResetOffsetRequestHeader
from pocketmq.remoting.protocol.topic import TopicList
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore


class ConsumerNotOnline(PocketMQError):
    """No client of the group is connected."""

    code = 206  # CONSUMER_NOT_ONLINE
    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, eq=False)
class GroupAdmin:
    """Handlers about groups. Admin worker thread."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    clients: ClientTable[Connection]
    notifier: GroupNotifier
    persist_groups: Callable[[], object]
    persist_offsets: Callable[[], object]
    statistics: ConsumeStatistics
    clock: Clock

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._put_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
            RequestCode.GROUP_LIST: self._list,
        }

    def _put(self, task: Task) -> Buffers:
        self.groups.put(decode_body(task.request.body, SubscriptionGroupConfigBody), task.request.session)
        self.persist_groups()
        return encode_answer(task.request)

    def _put_list(self, task: Task) -> Buffers:
        """Create or change several groups: all, or none if a name is illegal."""
        groups = decode_body(task.request.body, SubscriptionGroupListBody).group_config_list
        for group in groups:
            check_group_name(group.group_name)
        for group in groups:
            self.groups.put(group, task.request.session)
        self.persist_groups()
        return encode_answer(task.request)

    def _all(self, task: Task) -> Buffers:
        return encode_answer(task.request, body=self.groups.encode())

    def _one(self, task: Task) -> Buffers:
        header: Any = task.request.header
        known = self.groups.get(header.group)
        if known is None:
            return self._no_group(task, header.group)
        return encode_answer(task.request, body=msgspec.json.encode(known))

    def _no_group(self, task: Task, group: str) -> Buffers:
        text = f"subscription group [{group[:128]}] does not exist"
        return encode_answer(task.request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=text)

    def _delete(self, task: Task) -> Buffers:
        header: Any = task.request.header
        self.groups.delete(header.group_name)
        self.persist_groups()
        if header.clean_offset or header.remove_offset:
            self.offsets.remove_group(header.group_name)
            self.persist_offsets()
        self.statistics.items.forget(group=header.group_name)
        return encode_answer(task.request)

    def _list(self, task: Task) -> Buffers:
        names = {*self.groups.names(), *self.clients.consumer_groups(), *self.offsets.groups()}
        return encode_answer(task.request, body=encode_body(GroupList(group_list=sorted(names))))

    def _groups_of_topic(self, task: Task) -> Buffers:
        header: Any = task.request.header
        names = {*self.offsets.groups_of(header.topic), *self.clients.groups_subscribed_to(header.topic)}
        return encode_answer(task.request, body=encode_body(GroupList(group_list=sorted(names))))

    def _topics_of_group(self, task: Task) -> Buffers:
        header: Any = task.request.header
        topics = sorted(self.offsets.topics_of(header.group))
        return encode_answer(task.request, body=encode_body(TopicList(topic_list=topics)))

    def _subscription(self, task: Task) -> Buffers:
        header: Any = task.request.header
        _, subscription = self.clients.subscription(header.group, header.topic)
        body = QuerySubscriptionBody(subscription, header.group, header.topic)
        return encode_answer(task.request, body=encode_body(body))

    def _all_offsets(self, task: Task) -> Buffers:
        return encode_answer(task.request, body=self.offsets.encode())

    def _consume_stats(self, task: Task) -> Buffers:
        header: Any = task.request.header
        group = header.consumer_group
        topics = [header.topic] if header.topic else self.offsets.topics_of(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in topics:
            config = self.topics.get(topic)
            if config is None:
                continue
            statistics = self.statistics.of_topic(group, topic, config.read_queue_nums)
            table.update(statistics.offset_table)
            tps += statistics.consume_tps
        return encode_answer(task.request, body=encode_body(ConsumeStats(offset_table=table, consume_tps=tps)))

    def _consumer_connections(self, task: Task) -> Buffers:
        header: Any = task.request.header
        known = self.clients.consumer_group(header.consumer_group)
        if known is None:
            raise ConsumerNotOnline(f"the consumer group[{header.consumer_group[:128]}] not online")
        body = ConsumerConnection(
            connection_set=[_describe(client) for client in known.clients.values()],
            subscription_table=known.subscriptions,
            consume_type=known.consume_type,
            message_model=known.message_model,
            consume_from_where=known.consume_from_where,
        )
        return encode_answer(task.request, body=encode_body(body))

    def _producer_connections(self, task: Task) -> Buffers:
        header: Any = task.request.header
        clients = self.clients.producers(header.producer_group)
        if not clients:
            text = f"the producer group[{header.producer_group[:128]}] not exist"
            return encode_answer(task.request, ResponseCode.SYSTEM_ERROR, remark=text)
        body = ProducerConnection(connection_set=[_describe(client) for client in clients])
        return encode_answer(task.request, body=encode_body(body))

    def _all_producers(self, task: Task) -> Buffers:
        """List every producer, with its heartbeat's time as wall time."""
        now_ms, now_ns = self.clock.now_ms(), self.clock.monotonic_ns()
        table = {
            group: [
                ProducerInfo(
                    client.client_id,
                    client.connection.remote,
                    language_name(client.language),
                    client.version,
                    now_ms - (now_ns - client.last_update_ns) // 1_000_000,
                    sent_topics(client.connection),
                )
                for client in clients
            ]
            for group, clients in sorted(self.clients.producer_groups().items())
        }
        return encode_answer(task.request, body=encode_body(ProducerTableInfo(table)))

    def _clone(self, task: Task) -> Buffers:
        """Give a group the offsets of another one: of one topic, or of all that exist. Topics that an online
        source group has left are skipped unless ``offline`` (RocketMQ cloneGroupOffset)."""
        header: Any = task.request.header
        check_group_name(header.dest_group)
        for topic in [header.topic] if header.topic else self.offsets.topics_of(header.src_group):
            model, subscription = self.clients.subscription(header.src_group, topic)
            has_left = model is not None and subscription is None
            if self.topics.get(topic) is None or (has_left and not header.offline):
                continue
            for queue_id, offset in self.offsets.of(header.src_group, topic).items():
                self.offsets.commit(header.dest_group, topic, queue_id, offset)
        self.persist_offsets()
        return encode_answer(task.request)

    def _reset(self, task: Task) -> Buffers:
        """Set a group's offsets of a topic by time (or one queue's to an offset, 5.3), then notify its clients.

        ``timestamp`` -1 is the end of each queue, and so is a time after its last message, as with RocketMQ 5.3 (4.9:
        the last message, which is then delivered again). Without ``is_force`` an offset only goes back. RocketMQ
        leaves the commit to the clients and refuses a reset without them; here the broker commits, so a group can be
        reset while it is offline.
        """
        header: Any = task.request.header
        group, topic = header.group, header.topic
        check_group_name(group)
        config = find_topic(self.topics, topic)
        queue_ids = range(config.write_queue_nums)
        if header.queue_id >= 0:
            find_queue(self.topics, topic, header.queue_id)
            queue_ids = range(header.queue_id, header.queue_id + 1)
        table: dict[MessageQueue, int] = {}
        for queue_id in queue_ids:
            target = self._target(topic, queue_id, header)
            committed = self.offsets.query(group, topic, queue_id)
            if committed is not None and not header.is_force and target >= committed:
                target = committed
            self.offsets.commit(group, topic, queue_id, target)
            table[MessageQueue(topic, self.config.broker_name, queue_id)] = target
        self.persist_offsets()
        body = encode_body(ResetOffsetBody(offset_table=table))
        notice = ResetOffsetRequestHeader(topic, group, header.timestamp, header.is_force)
        self.notifier.send(group, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, notice, body)
        return encode_answer(task.request, body=body)

    def _target(self, topic: str, queue_id: int, header: Any) -> int:
        low = max(0, self.store.min_offset(topic, queue_id))
        high = max(0, self.store.max_offset(topic, queue_id))
        if header.offset is not None and header.queue_id >= 0:
            return max(low, min(int(header.offset), high))
        if header.timestamp == -1:
            return high
        if high > low and self.store.store_time(topic, queue_id, high - 1) < header.timestamp:
            return high
        return self.store.offset_by_time(topic, queue_id, header.timestamp)


def _describe(client: ClientInfo[Connection]) -> ConnectionBody:
    return ConnectionBody(
        client_id=client.client_id,
        client_addr=client.connection.remote,
        language=language_name(client.language),
        version=client.version,
    )


def language_name(language: int) -> str:
    """Return RocketMQ's name of a language code, ``OTHER`` for one that is unknown."""
    try:
        return LanguageCode(language).name
    except ValueError:
        return LanguageCode.OTHER.name

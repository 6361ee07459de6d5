"""Administration of topics and their queues.

Lives here: handlers of UPDATE_AND_CREATE_TOPIC (also in a list), MAKE_TOPIC, DELETE_TOPIC_IN_BROKER,
GET_ALL_TOPIC_CONFIG, GET_TOPIC_CONFIG, GET_TOPIC_STATS_INFO, GET_SYSTEM_TOPIC_LIST_FROM_BROKER and the four questions
about one queue's offsets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Refusal, Task, encode_answer, encode_refusal
from pocketmq.broker.send.send_checks import ANY_QUEUE, SendChecks
from pocketmq.broker.stats.stats_items import StatsItems
from pocketmq.broker.topic.message_types import changes_of, check_changes
from pocketmq.broker.topic.queue_checks import find_queue, find_topic
from pocketmq.broker.topic.topic_table import PERM_MAX, TopicTable
from pocketmq.common.events import EventLog
from pocketmq.common.limits import NAME_LENGTH_MAX, too_long
from pocketmq.common.topics import SYSTEM_TOPICS, TopicConfig, check_topic_name, is_system_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.offset import OffsetResponseHeader, TimestampResponseHeader
from pocketmq.remoting.protocol.topic import CreateTopicListBody, TopicList, TopicOffset, TopicStatsTable
from pocketmq.store.message_store import MessageStore


@dataclass(slots=True, eq=False)
class TopicAdmin:
    """Handlers about topics. Admin worker thread."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicTable
    offsets: ConsumerOffsets
    persist_topics: Callable[[], object]
    persist_offsets: Callable[[], object]
    statistics: StatsItems
    log: EventLog

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._put,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._put_list,
            RequestCode.MAKE_TOPIC: self._make,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
            RequestCode.GET_TOPIC_CONFIG: self._one,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._offset_by_time,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_time,
        }

    def _put(self, task: Task) -> Buffers:
        header: Any = task.request.header
        config, changes = self._checked(header.topic, header), changes_of(header.attributes)
        self.topics.put(config, task.request.session, changes)
        self.persist_topics()
        self.log.info("topic_changed", topic=header.topic, remote=task.connection.remote)
        return encode_answer(task.request)

    def _checked(self, topic: str, given: Any) -> TopicConfig:
        """Return the settings in a header or in a body's entry. Raises ``AdminRefused``."""
        if why := too_long([("topicFilterType", given.topic_filter_type, NAME_LENGTH_MAX)]):
            raise AdminRefused("topic refused", why=why, hint="SINGLE_TAG or MULTI_TAG")
        if topic == self.config.broker_cluster_name or is_system_topic(topic):
            raise AdminRefused(f"The topic[{topic[:128]}] is conflict with system topic.")
        if not 0 <= given.perm <= PERM_MAX:
            raise AdminRefused("topic refused", why=f"perm {given.perm} is unknown", hint="2 write, 4 read, 6 both")
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=given.read_queue_nums,
            write_queue_nums=given.write_queue_nums,
            perm=given.perm,
            topic_filter_type=given.topic_filter_type or "SINGLE_TAG",
            topic_sys_flag=given.topic_sys_flag or 0,
            order=given.order,
        )

    def _put_list(self, task: Task) -> Buffers:
        """Create or change several topics (5.3); except for the limits of the table, all are checked before any
        changes."""
        configs: list[tuple[TopicConfig, dict[str, str | None]]] = []
        for topic in decode_body(task.request.body, CreateTopicListBody).topic_config_list:
            check_topic_name(topic.topic_name)
            configs.append((self._checked(topic.topic_name, topic), check_changes(topic.attributes or {})))
        for config, changes in configs:
            self.topics.put(config, task.request.session, changes)
        self.persist_topics()
        self.log.info("topics_changed", topics=len(configs), remote=task.connection.remote)
        return encode_answer(task.request)

    def _make(self, task: Task) -> Buffers:
        """Make a topic as a send to it would; the name servers know it before the answer leaves."""
        header: Any = task.request.header
        checks = SendChecks(self.config, self.topics)
        made = checks.check(header.topic, ANY_QUEUE, header.default_topic, header.queue_nums, task.request.session)
        if isinstance(made, Refusal):
            return encode_refusal(task.request, made)
        self.persist_topics()
        return encode_answer(task.request)

    def _delete(self, task: Task) -> Buffers:
        header: Any = task.request.header
        topic = header.topic
        if not topic or topic == self.config.broker_cluster_name or is_system_topic(topic):
            raise AdminRefused(f"The topic[{topic[:128]}] is conflict with system topic.")
        known = self.topics.delete(topic)
        if known or any(queue[0] == topic for queue in self.store.queues()):  # else a failed deletion stays half done
            self.persist_topics()  # before its data: after a crash the topic must not exist without it
            self.offsets.remove_topic(topic)
            self.persist_offsets()  # else a crash restores them: new messages below them would be skipped
            self.store.delete_topic(topic)
            self.statistics.forget(topic=topic)
            self.log.info("topic_deleted", topic=topic, remote=task.connection.remote)
        return encode_answer(task.request)

    def _all(self, task: Task) -> Buffers:
        """Return RocketMQ's body, and for our slaves the end of the log at each deletion of a topic."""
        body = self.topics.encode()
        deleted = self.store.consume_queues.deleted.table()
        if deleted:
            body = body[:-1] + b',"deletedTopics":' + msgspec.json.encode(deleted) + b"}"
        return encode_answer(task.request, body=body)

    def _one(self, task: Task) -> Buffers:
        header: Any = task.request.header
        return encode_answer(task.request, body=msgspec.json.encode(find_topic(self.topics, header.topic)))

    def _stats(self, task: Task) -> Buffers:
        header: Any = task.request.header
        config = find_topic(self.topics, header.topic)
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low = max(0, self.store.min_offset(header.topic, queue_id))
            high = max(0, self.store.max_offset(header.topic, queue_id))
            time = self.store.store_time(header.topic, queue_id, high - 1) if high > 0 else 0
            queue = MessageQueue(header.topic, self.config.broker_name, queue_id)
            table[queue] = TopicOffset(low, high, max(0, time))
        return encode_answer(task.request, body=encode_body(TopicStatsTable(offset_table=table)))

    def _system_topics(self, task: Task) -> Buffers:
        topics = sorted(SYSTEM_TOPICS | {self.config.broker_cluster_name, self.config.broker_name})
        return encode_answer(task.request, body=encode_body(TopicList(topic_list=topics)))

    def _queue(self, task: Task) -> tuple[str, int]:
        header: Any = task.request.header
        find_queue(self.topics, header.topic, header.queue_id)
        return header.topic, header.queue_id

    def _max_offset(self, task: Task) -> Buffers:
        """Return the end of a queue, never below an offset that a client already has in a receipt."""
        self.store.show_all()
        offset = self.store.max_offset(*self._queue(task))
        return encode_answer(task.request, header=OffsetResponseHeader(max(0, offset)))

    def _min_offset(self, task: Task) -> Buffers:
        offset = self.store.first_offset(*self._queue(task))
        return encode_answer(task.request, header=OffsetResponseHeader(max(0, offset)))

    def _offset_by_time(self, task: Task) -> Buffers:
        header: Any = task.request.header
        offset = self.store.offset_by_time(*self._queue(task), header.timestamp)
        return encode_answer(task.request, header=OffsetResponseHeader(offset))

    def _earliest_time(self, task: Task) -> Buffers:
        topic, queue_id = self._queue(task)
        time = self.store.store_time(topic, queue_id, self.store.first_offset(topic, queue_id))
        return encode_answer(task.request, header=TimestampResponseHeader(time))

"""Entries of consume queues, and the removal of queues without a topic.

Lives here: handlers of QUERY_CONSUME_QUEUE and CLEAN_UNUSED_TOPIC.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.message_filter import message_filter
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.events import EventLog
from pocketmq.common.topics import is_system_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import SubscriptionData
from pocketmq.remoting.protocol.pull import ConsumeQueueData, QueryConsumeQueueBody
from pocketmq.remoting.server import Connection
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE
from pocketmq.store.message_store import MessageStore

ENTRIES_MAX: Final = 10_000
"""Entries of one answer."""


@dataclass(slots=True, eq=False)
class QueueAdmin:
    """Handlers about consume queues. Admin worker thread."""

    store: MessageStore
    topics: TopicTable
    offsets: ConsumerOffsets
    clients: ClientTable[Connection]
    persist_offsets: Callable[[], object]
    log: EventLog

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self._query,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused,
        }

    def _query(self, task: Task) -> Buffers:
        """Return entries as they are, also blank ones and those whose records the log has lost."""
        header: Any = task.request.header
        topic, queue_id, index = header.topic, header.queue_id, header.index
        if not any(queue[:2] == (topic, queue_id) for queue in self.store.queues()):
            raise AdminRefused(f"{queue_id}@{topic[:128]} is not exist!")
        body = QueryConsumeQueueBody(
            max_queue_index=self.store.max_offset(topic, queue_id),
            min_queue_index=self.store.min_offset(topic, queue_id),
        )
        tags: frozenset[int] | None = None
        is_judged = False
        if header.consumer_group:
            _, body.subscription_data = self.clients.subscription(header.consumer_group, topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group[:128]}@{topic[:128]} is not online!"
            else:
                is_judged, tags = _tags_of(body.subscription_data)
        count = max(1, min(header.count, ENTRIES_MAX))
        entries = self.store.read_entries(topic, queue_id, max(0, index), count)
        if index < 0 or len(entries) == 0:
            raise AdminRefused(f"Index {index} of {queue_id}@{topic[:128]} is not exist!")
        for entry in entries:
            data = ConsumeQueueData(int(entry["offset"]), int(entry["size"]), int(entry["tags_code"]))
            if data.physic_size == BLANK_SIZE:
                data.msg = "no message: the queue had a gap here"
            elif is_judged:
                data.eval = tags is None or data.tags_code in tags
            body.queue_data.append(data)
        return encode_answer(task.request, body=encode_body(body))

    def _clean_unused(self, task: Task) -> Buffers:
        """Remove the queues of topics that do not exist (RocketMQ cleanUnusedTopic): an interrupted deletion
        leaves them."""
        unused = sorted({queue[0] for queue in self.store.queues()})
        removed = [topic for topic in unused if self.topics.get(topic) is None and not is_system_topic(topic)]
        for topic in removed:
            self.offsets.remove_topic(topic)
            self.persist_offsets()
            self.store.delete_topic(topic)
            self.log.info("unused_topic_removed", topic=topic, remote=task.connection.remote)
        return encode_answer(task.request, remark=f"{len(removed)} topics removed" if removed else "")


def _tags_of(subscription: SubscriptionData) -> tuple[bool, frozenset[int] | None]:
    """Return (whether entries alone decide a match, codes of the wanted tags or None for all)."""
    wanted = message_filter(subscription.expression_type, subscription.sub_string, properties_enabled=True)
    return wanted.sql is None, wanted.tags

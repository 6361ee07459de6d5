"""Requests of consumers between pulls: their offsets and the members of their group.

Lives here: QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.lock.lock_manager import LockManager
from pocketmq.broker.pull.slave_reads import RecentMessages
from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Buffers, Drain, Task, encode_answer
from pocketmq.broker.topic.queue_checks import CommitOffsetIllegal, check_commit, find_queue
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.topics import check_group_name
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.offset import OffsetResponseHeader
from pocketmq.store.message_store import MessageStore

NOT_FOUND_TEXT: Final = "Not found, V3_0_6_SNAPSHOT maybe this consumer group boot first"

CONFLICT_FIELD: Final = "subscription_conflict"
"""Ours: an extra field of the member list that says how the members' subscriptions differ."""


@dataclass(slots=True, eq=False)
class ConsumerProcessor(OneByOne):
    """Serves codes 14, 15 and 38 (RocketMQ ConsumerManageProcessor)."""

    store: MessageStore
    topics: TopicTable
    offsets: ConsumerOffsets
    clients: ClientTable[Any]
    recent: RecentMessages
    locks: LockManager
    note_commit: Callable[[str, str, int, int], None] | None = None
    """Called with (group, topic, queue id, offset) of each commit: a slave passes them on to its master."""

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer one request."""
        code = task.request.code
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            drain.answer(task, self._update(task))
        elif code == RequestCode.QUERY_CONSUMER_OFFSET:
            drain.answer(task, self._query(task))
        else:
            drain.answer(task, self._list(task))

    def _update(self, task: Task) -> Buffers:
        header: Any = task.request.header
        check_group_name(header.consumer_group)
        find_queue(self.topics, header.topic, header.queue_id)
        if self.note_commit is None:  # a slave has no locks, and its queues may be behind the consumers
            check_commit(self.store, header.topic, header.queue_id, header.commit_offset)
            token, connection = header.fencing_token, task.connection
            self.locks.check_commit(header.consumer_group, header.topic, header.queue_id, token, connection)
        elif header.commit_offset < 0:
            raise CommitOffsetIllegal("offset refused", why=f"{header.commit_offset} is negative")
        self.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        if self.note_commit is not None:
            self.note_commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return encode_answer(task.request)

    def _query(self, task: Task) -> Buffers:
        header: Any = task.request.header
        offset = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False:
                text = "Not found, do not set to zero, maybe this group boot first"
                return encode_answer(task.request, ResponseCode.QUERY_NOT_FOUND, remark=text)
            find_queue(self.topics, header.topic, header.queue_id)
            if not self._starts_at_zero(header.topic, header.queue_id):
                return encode_answer(task.request, ResponseCode.QUERY_NOT_FOUND, remark=NOT_FOUND_TEXT)
            offset = 0
        return encode_answer(task.request, header=OffsetResponseHeader(offset))

    def _starts_at_zero(self, topic: str, queue_id: int) -> bool:
        """Return whether a new group starts at offset 0: the queue still has it, recent enough to be in memory.

        RocketMQ's rule (ConsumerManageProcessor); so CONSUME_FROM_LAST_OFFSET starts at 0 on a young topic.
        """
        return self.store.min_offset(topic, queue_id) <= 0 and not self.recent.is_on_disk(topic, queue_id, 0)

    def _list(self, task: Task) -> Buffers:
        header: Any = task.request.header
        group = header.consumer_group
        body = self.clients.id_list(group)
        if not body:
            text = f"no consumer for this group, {group}"
            return encode_answer(task.request, ResponseCode.SYSTEM_ERROR, remark=text)
        conflict = self.clients.conflict(group)
        extra = {CONFLICT_FIELD: conflict} if conflict else None  # RocketMQ's clients skip unknown fields
        return encode_answer(task.request, body=body, extra=extra)

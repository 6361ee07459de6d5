"""The retry and dead-letter topics of consumer groups.

Lives here: ``RetryTopics``: their creation with RocketMQ's sizes, the choice of a queue, and where a message goes that
a client sends to a retry topic itself.
"""

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import RETRY_PREFIX, TOPIC_LENGTH_MAX, Perm, dlq_topic, retry_topic
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from pocketmq.store.disk.queue_paths import topic_error

DLQ_QUEUE_NUMS: Final = 1
"""RocketMQ AbstractSendMessageProcessor.DLQ_NUMS_PER_GROUP."""
UNIT_SUB_FLAG: Final = 0x2
"""Topic sysFlag of a retry topic in a unit (RocketMQ TopicSysFlag)."""
RETRY_QUEUE_NUMS_MAX: Final = 1024
"""A group's setting above this counts as this."""


class RetryTopics:
    """Belongs to one send thread at a time; the tables are shared."""

    __slots__ = ("_groups", "_holds_locks", "_topics", "_turn")

    def __init__(
        self, topics: TopicTable, groups: SubscriptionGroups, holds_locks: Callable[[str], bool] | None = None
    ) -> None:
        """``holds_locks(group)``: whether a consumer of the group holds an unexpired queue lock (RocketMQ
        RebalanceLockManager.isLockAllExpired, negated)."""
        self._topics = topics
        self._groups = groups
        self._holds_locks = holds_locks
        self._turn = 0

    def group(self, name: str) -> SubscriptionGroupConfigBody | Refusal:
        """Return the settings of a group, created where that is allowed, or why there are none."""
        if len(retry_topic(name)) > TOPIC_LENGTH_MAX:
            longest = TOPIC_LENGTH_MAX - len(RETRY_PREFIX)
            text = f"group of {len(name)} characters has no retry topic: at most {longest}"
            return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), text, Cause.BAD_REQUEST)
        try:
            config = self._groups.find(name)
        except PocketMQError as error:
            return Refusal(int(error.code), str(error), error.cause)
        if config is None:
            text = f"subscription group not exist, {name}"
            return Refusal(int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), text, Cause.BAD_REQUEST)
        return config

    def retry_queue(self, config: SubscriptionGroupConfigBody, unit_mode: bool = False) -> tuple[str, int] | Refusal:
        """Return (retry topic, queue) for one message; creates the topic."""
        nums = min(max(config.retry_queue_nums, 1), RETRY_QUEUE_NUMS_MAX)
        return self._queue(retry_topic(config.group_name), nums, UNIT_SUB_FLAG if unit_mode else 0)

    def dead_letter_queue(self, group: str) -> tuple[str, int] | Refusal:
        """Return (dead-letter topic, queue) for one message; creates the topic."""
        return self._queue(dlq_topic(group), DLQ_QUEUE_NUMS, 0)

    def _queue(self, topic: str, queue_nums: int, sys_flag: int) -> tuple[str, int] | Refusal:
        illegal = topic_error(topic)  # another program's subscriptionGroup.json may hold such a group
        if illegal is not None:
            return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), illegal, Cause.BAD_REQUEST)
        try:
            config = self._topics.create(topic, queue_nums, int(Perm.READ | Perm.WRITE), sys_flag)
        except PocketMQError as error:  # the table is full
            return Refusal(int(error.code), str(error), error.cause)
        self._turn += 1
        return topic, self._turn % max(1, min(queue_nums, config.write_queue_nums))

    def redirected(self, topic: str, header: Any) -> tuple[str, int] | Refusal | None:
        """Decide about a SEND_MESSAGE to a retry topic: None, it goes there; else the dead-letter queue.

        RocketMQ 5.3 SendMessageProcessor.handleRetryAndDLQ: dead when tried more often than the client allows: a
        concurrent consumer has counted the next try already. An ordered one, which holds locks, sends a message only
        when it gives it up and counts the tries that were made. (5.3 lets every send to the group's retry topic die
        then, also a dead letter that an administrator sends again.)
        """
        group = topic.removeprefix(RETRY_PREFIX)
        config = self.group(group)
        if isinstance(config, Refusal):
            return config
        max_times = config.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        times = header.reconsume_times or 0
        is_ordered = times == max_times and self._holds_locks is not None and self._holds_locks(group)
        if times > max_times or is_ordered:
            return self.dead_letter_queue(group)
        created = self.retry_queue(config, bool(header.unit_mode))
        return created if isinstance(created, Refusal) else None

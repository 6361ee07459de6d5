"""The retry and dead-letter topics of consumer groups.

Lives here: ``RetryTopics``: their creation with RocketMQ's sizes, the choice of a queue, and the destination of a
message that a client itself sends to a retry topic.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.auth.session import Session
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
"""A larger setting of a group counts as this."""


@dataclass(slots=True, eq=False)
class RetryTopics:
    """Belongs to one send thread at a time; the tables are shared."""

    topics: TopicTable
    groups: SubscriptionGroups
    holds_locks: Callable[[str], bool] | None = None
    """Whether a consumer of the group holds an unexpired queue lock (RocketMQ RebalanceLockManager.isLockAllExpired,
    negated)."""
    _turn: int = field(init=False, default=0)

    def group(self, name: str, session: Session | None = None) -> SubscriptionGroupConfigBody | Refusal:
        """Return the settings of a group, created if that is allowed, or why there are none."""
        if len(retry_topic(name)) > TOPIC_LENGTH_MAX:
            longest = TOPIC_LENGTH_MAX - len(RETRY_PREFIX)
            text = f"group of {len(name)} characters has no retry topic: at most {longest}"
            return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), text, Cause.BAD_REQUEST)
        try:
            config = self.groups.find(name, session)
        except PocketMQError as error:
            return Refusal(int(error.code), str(error), error.cause)
        if config is None:
            text = f"subscription group not exist, {name}"
            return Refusal(int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), text, Cause.BAD_REQUEST)
        return config

    def retry_queue(self, config: SubscriptionGroupConfigBody, unit_mode: bool = False) -> tuple[str, int] | Refusal:
        """Return (retry topic, queue) for one message; create the topic if it is missing."""
        nums = min(max(config.retry_queue_nums, 1), RETRY_QUEUE_NUMS_MAX)
        return self._queue(retry_topic(config.group_name), nums, UNIT_SUB_FLAG if unit_mode else 0)

    def dead_letter_queue(self, group: str) -> tuple[str, int] | Refusal:
        """Return (dead-letter topic, queue) for one message; create the topic if it is missing."""
        return self._queue(dlq_topic(group), DLQ_QUEUE_NUMS, 0)

    def _queue(self, topic: str, queue_nums: int, sys_flag: int) -> tuple[str, int] | Refusal:
        illegal = topic_error(topic)  # another program's subscriptionGroup.json may hold such a group
        if illegal is not None:
            return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), illegal, Cause.BAD_REQUEST)
        try:
            config = self.topics.create(topic, queue_nums, int(Perm.READ | Perm.WRITE), sys_flag)
        except PocketMQError as error:  # the table is full
            return Refusal(int(error.code), str(error), error.cause)
        self._turn += 1
        return topic, self._turn % max(1, min(queue_nums, config.write_queue_nums))

    def redirected(self, topic: str, header: Any, session: Session | None = None) -> tuple[str, int] | Refusal | None:
        """Return the dead-letter queue for a SEND_MESSAGE to a retry topic, a refusal, or None if it may go there.

        RocketMQ 5.3 SendMessageProcessor.handleRetryAndDLQ: dead after more attempts than the client allows. A
        concurrent consumer has already counted the next attempt. An ordered one, which holds locks, sends a message
        only when it gives up, and counts the attempts made. (In 5.3 every send to the group's retry topic is dead then,
        even a dead letter that an administrator sends again.)
        """
        group = topic.removeprefix(RETRY_PREFIX)
        config = self.group(group, session)
        if isinstance(config, Refusal):
            return config
        max_times = config.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        times = header.reconsume_times or 0
        is_ordered = times == max_times and self.holds_locks is not None and self.holds_locks(group)
        if times > max_times or is_ordered:
            return self.dead_letter_queue(group)
        created = self.retry_queue(config, bool(header.unit_mode))
        return created if isinstance(created, Refusal) else None

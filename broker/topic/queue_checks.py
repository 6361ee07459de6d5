"""Checks of requests that name one queue: does it exist, and can a group have consumed it up to this offset?

Lives here: ``find_topic``, ``find_queue``, ``check_commit`` and their errors. RocketMQ accepts any number as an offset;
the group then waits for messages that may never arrive, or skips messages.
"""

from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import TopicConfig
from pocketmq.store.message_store import MessageStore


class TopicNotExist(PocketMQError):
    """The broker has no such topic."""

    code = 17  # TOPIC_NOT_EXIST
    default_cause = Cause.NO_ROUTE


class QueueUnknown(PocketMQError):
    """The topic has no such queue."""

    code = 29  # INVALID_PARAMETER, as RocketMQ 5.3 answers
    default_cause = Cause.BAD_REQUEST


class CommitOffsetIllegal(PocketMQError):
    """A commit of an offset outside the queue."""

    default_cause = Cause.BAD_REQUEST


def find_topic(topics: TopicTable, topic: str) -> TopicConfig:
    """Return the topic; raises ``TopicNotExist``."""
    config = topics.get(topic)
    if config is None:
        raise TopicNotExist(f"topic[{topic[:128]}] not exist")
    return config


def find_queue(topics: TopicTable, topic: str, queue_id: int) -> TopicConfig:
    """Return the topic of a queue; raises ``TopicNotExist``, ``QueueUnknown``."""
    config = find_topic(topics, topic)
    queue_nums = max(config.read_queue_nums, config.write_queue_nums)
    if not 0 <= queue_id < queue_nums:
        raise QueueUnknown(f"queueId[{queue_id}] is illegal, topic[{topic}] has {queue_nums} queues")
    return config


def check_commit(store: MessageStore, topic: str, queue_id: int, offset: int) -> None:
    """Raise ``CommitOffsetIllegal`` for an offset below 0 or behind the end of the queue.

    An offset below the queue's first message is fine: retention may have overtaken a slow consumer.
    """
    if offset < 0:
        raise CommitOffsetIllegal(
            "offset refused", why=f"{offset} is negative", hint="commit the next offset to consume"
        )
    end = max(0, store.max_offset(topic, queue_id))
    if offset > end:  # a consumer with a receipt may be ahead of the dispatch
        store.show_all()
        end = max(0, store.max_offset(topic, queue_id))
    if offset > end:
        raise CommitOffsetIllegal(
            "offset refused",
            why=f"{offset} is outside of queue {queue_id} of {topic[:128]}, which ends at {end}",
            hint="commit the next offset to consume; to skip the queue's messages, commit its end",
        )

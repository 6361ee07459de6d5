"""Does this queue exist? The check of requests that name one queue and neither send nor pull.

Lives here: ``find_queue``.
"""

from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import TopicConfig


class TopicUnknown(PocketMQError):
    """The broker has no such topic."""

    code = 17  # TOPIC_NOT_EXIST
    default_cause = Cause.NO_ROUTE


class QueueUnknown(PocketMQError):
    """The topic has no such queue."""

    code = 29  # INVALID_PARAMETER, as RocketMQ 5.3 answers
    default_cause = Cause.BAD_REQUEST


def find_topic(topics: TopicTable, topic: str) -> TopicConfig:
    """Return the topic; raises ``TopicUnknown``."""
    config = topics.get(topic)
    if config is None:
        raise TopicUnknown(f"topic[{topic[:128]}] not exist")
    return config


def find_queue(topics: TopicTable, topic: str, queue_id: int) -> TopicConfig:
    """Return the topic of a queue; raises ``TopicUnknown``, ``QueueUnknown``."""
    config = find_topic(topics, topic)
    queue_nums = max(config.read_queue_nums, config.write_queue_nums)
    if not 0 <= queue_id < queue_nums:
        raise QueueUnknown(f"queueId[{queue_id}] is illegal, topic[{topic}] has {queue_nums} queues")
    return config

"""Whether a message may go to a queue: RocketMQ's codes and words, to the letter."""

from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.topics import TopicConfig
from tests.broker.refused_texts import said


def checked(topic: str, queue_id: int = 0, **settings: Any) -> Any:
    config = BrokerConfig(broker_name="broker-a", **settings)
    topics = TopicTable(config, ManualClock())
    topics.put(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    topics.put(TopicConfig(topic_name="ReadOnly", perm=4))
    topics.put(TopicConfig(topic_name="Batch", attributes={"queue.type": "BatchCQ"}))
    return SendChecks(config, topics).check(topic, queue_id)


@pytest.mark.parametrize(
    ("topic", "queue_id", "settings", "expected"),
    [
        ("SCHEDULE_TOPIC_XXXX", 0, {}, (16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.")),
        ("T", 0, {"broker_permission": 4}, (16, "the broker[broker-a] sending message is forbidden")),
        ("ReadOnly", 0, {}, (16, "the topic[ReadOnly] sending message is forbidden")),
        ("Batch", 0, {}, (16, "the topic[Batch] sending message is forbidden, queue.type BatchCQ is not served")),
        ("T", 4, {}, (29, "request queueId[4] is illegal, topic[T] has 4 queues")),
        ("New", 0, {"auto_create_topic_enable": False}, (17, "topic[New] not exist, apply first please!")),
    ],
)
def test_what_a_client_reads(topic: str, queue_id: int, settings: dict[str, Any], expected: tuple[int, str]) -> None:
    assert said(checked(topic, queue_id, **settings)) == expected


@pytest.mark.parametrize("queue_id", [-1, 0, 3])
def test_a_queue_that_is_there(queue_id: int) -> None:
    assert checked("T", queue_id).topic_name == "T"

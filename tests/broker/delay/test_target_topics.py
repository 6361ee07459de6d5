"""Topics of delayed messages that a promoted slave does not know."""

from pathlib import Path

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.target_topics import TargetTopics
from pocketmq.broker.topic.topic_table import QUEUES_MIN, TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from tests.store.log_fakes import Stepped


def targets(tmp_path: Path) -> tuple[TargetTopics, TopicTable, Stepped, CapturedLog]:
    stepped, log = Stepped(tmp_path), CapturedLog()
    topics = TopicTable(BrokerConfig(), ManualClock())
    return TargetTopics(topics, stepped.store, log), topics, stepped, log


def test_a_topic_with_only_delayed_messages_is_made_when_they_are_due(tmp_path: Path) -> None:
    """With the queues of RocketMQ's clients, or more where a message needs them; said once."""
    wanted, topics, stepped, log = targets(tmp_path)
    wanted.need("T", 1, 100)
    made = topics.get("T")
    assert made is not None
    assert made.read_queue_nums == made.write_queue_nums == QUEUES_MIN
    wanted.need("T", QUEUES_MIN + 2, 200)
    made = topics.get("T")
    assert made is not None
    assert made.read_queue_nums == QUEUES_MIN + 3
    assert [event["topics"] for event in log.events if event["event"] == "topics_made_again"] == [["T"]]
    stepped.store.close()


def test_a_topic_that_is_there_keeps_its_queues(tmp_path: Path) -> None:
    """An operator may have fewer on purpose."""
    wanted, topics, stepped, _ = targets(tmp_path)
    topics.create("T", 1)
    wanted.need("T", 3, 100)
    known = topics.get("T")
    assert known is not None
    assert known.read_queue_nums == 1
    stepped.store.close()


def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    """For what was stored before the deletion; a message of later times makes it again."""
    wanted, topics, stepped, _ = targets(tmp_path)
    stepped.store.consume_queues.deleted.add("T", 1_000)
    wanted.need("T", 0, 999)
    assert topics.get("T") is None
    wanted.need("T", 0, 1_000)
    assert topics.get("T") is not None
    stepped.store.close()

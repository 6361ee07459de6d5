"""RocketMQ 5's topic attributes without use here stay in ``topics.json``; unsupported kinds are refused."""

import json

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.topics import TOPIC_ID_ATTRIBUTE, TopicConfig
from pocketmq.remoting.codes import ResponseCode

FILE = json.dumps(
    {
        "topicConfigTable": {
            "B": {"topicName": "B", "readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}},
            "F": {"topicName": "F", "attributes": {"message.type": "FIFO"}},
            "E": {"topicName": "E", "attributes": {}},
            "N": {"topicName": "N", "attributes": None},
            "old": {"topicName": "old"},
        }
    }
).encode()
WIDE = {"topicName": "wide", "writeQueueNums": 1 << 30}


def table() -> TopicTable:
    made = TopicTable(BrokerConfig(), ManualClock())
    made.load(FILE)
    return made


def test_attributes_are_written_as_they_were_read() -> None:
    """Even after an administrator changed the numbers of queues; each topic also gets an identity."""
    topics = table()
    topics.put(TopicConfig(topic_name="F", read_queue_nums=2, write_queue_nums=2))
    written = json.loads(topics.encode())["topicConfigTable"]
    for name in "BFEN":
        assert written[name]["attributes"].pop(TOPIC_ID_ATTRIBUTE)
    assert written["B"]["attributes"] == {"queue.type": "BatchCQ"}
    assert (written["F"]["attributes"], written["F"]["readQueueNums"]) == ({"message.type": "FIFO"}, 2)
    assert written["E"]["attributes"] == {}
    assert list(written["old"]["attributes"]) == [TOPIC_ID_ATTRIBUTE]


def test_a_send_to_a_batch_queue_is_refused() -> None:
    """Its queues are files that only RocketMQ reads: a message of ours would take an offset that is not free."""
    checks = SendChecks(BrokerConfig(), table())
    refused = checks.check("B", 0)
    assert isinstance(refused, Refusal)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "BatchCQ" in refused.remark
    assert not isinstance(checks.check("F", 0), Refusal)
    assert not isinstance(checks.check("N", 0), Refusal)


def test_a_send_that_no_queue_can_take_is_refused() -> None:
    """A table from elsewhere may name such a topic: acknowledged messages must reach a queue."""
    topics = TopicTable(BrokerConfig(), ManualClock())
    topics.load(json.dumps({"topicConfigTable": {"../x": {"topicName": ""}}}).encode())
    refused = SendChecks(BrokerConfig(), topics).check("../x", 0)
    assert isinstance(refused, Refusal)
    assert refused.code == ResponseCode.INVALID_PARAMETER


def test_a_table_with_more_queues_than_a_topic_can_have_is_damaged() -> None:
    """So no send reaches a queue id that no directory can have."""
    topics = TopicTable(BrokerConfig(), ManualClock())
    with pytest.raises(msgspec.ValidationError, match="topic 'wide' has 16 queues to read and 1073741824 to write"):
        topics.load(json.dumps({"topicConfigTable": {"wide": WIDE}}).encode())
    assert topics.get("wide") is None

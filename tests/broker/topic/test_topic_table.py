"""The topics of a broker: automatic creation, limits, JSON."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.topic.topic_table import CHANGES_MAX, TableFull, TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import TopicConfig, TopicIllegal


def table(**settings: Any) -> TopicTable:
    topics = TopicTable(BrokerConfig(**settings), ManualClock())
    topics.add_system_topics()
    return topics


def test_a_topic_created_by_a_send_takes_after_the_default_topic() -> None:
    """Four queues when the client asks for four, the default topic's permissions without INHERIT."""
    created = table().create_on_send("orders", "TBW102", 4)
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (4, 4, 6)
    wide = table().create_on_send("orders", "TBW102", 100)
    assert wide is not None
    assert wide.write_queue_nums == 8


def test_no_topic_is_created_where_it_is_not_allowed() -> None:
    """Not with the setting off, nor from a topic that is not inheritable, nor from one that does not exist."""
    assert table(auto_create_topic_enable=False).create_on_send("orders", "TBW102", 4) is None
    assert table().create_on_send("orders", "BenchmarkTest", 4) is None
    assert table().create_on_send("orders", "nothing", 4) is None


def test_changes_count_and_are_reported() -> None:
    """Version, generation and the callback move together, and only when something changes."""
    told: list[int] = []
    topics = TopicTable(BrokerConfig(), ManualClock(), lambda: told.append(topics.version.counter))
    topics.create("a", 4)
    topics.create("a", 9)
    assert topics.snapshot()[0]["a"].read_queue_nums == 4
    topics.put(TopicConfig(topic_name="a", read_queue_nums=2, write_queue_nums=2))
    assert topics.delete("a")
    assert not topics.delete("a")
    assert told == [1, 2, 3]
    assert topics.generation == 3


def test_topics_and_queues_are_bounded() -> None:
    """Topics beyond the limits are refused with the name of the setting; a deleted one makes room."""
    topics = TopicTable(BrokerConfig(topics_max=2, queues_max=10), ManualClock())
    topics.create("a", 4)
    with pytest.raises(TableFull, match="queues_max"):
        topics.create("b", 7)
    topics.create("b", 6)
    with pytest.raises(TableFull, match="topics_max"):
        topics.create("c", 0)
    topics.delete("a")
    topics.create("c", 4)
    with pytest.raises(PocketMQError, match="65537"):
        topics.put(TopicConfig(topic_name="b", read_queue_nums=65_537))
    with pytest.raises(TopicIllegal):
        topics.put(TopicConfig(topic_name="no spaces"))


@given(st.dictionaries(st.from_regex(r"[a-zA-Z0-9_%-]{1,20}", fullmatch=True), st.integers(1, 16), max_size=10))
def test_the_json_brings_every_topic_back(names: Any) -> None:
    """Encoding and loading keeps settings and version."""
    topics = TopicTable(BrokerConfig(), ManualClock())
    for name, queue_nums in names.items():
        topics.create(name, queue_nums)
    again = TopicTable(BrokerConfig(), ManualClock())
    again.load(topics.encode())
    assert again.snapshot() == topics.snapshot()


def test_a_file_of_rocketmq_is_read() -> None:
    """RocketMQ's own topics.json, with fields we do not keep."""
    content = {
        "dataVersion": {"counter": 2, "timestamp": 1700000000000, "stateVersion": 0},
        "topicConfigTable": {
            "T": {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": 8,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "T",
                "topicSysFlag": 0,
                "writeQueueNums": 8,
            }
        },
    }
    topics = TopicTable(BrokerConfig(), ManualClock())
    topics.load(msgspec.json.encode(content))
    assert topics.snapshot()[0]["T"].write_queue_nums == 8
    assert topics.version.counter == 2


def test_changes_since_a_generation_are_known_until_too_many() -> None:
    """The changes a name server has missed: topics put since then; None when the list of changes is too short."""
    topics = TopicTable(BrokerConfig(), ManualClock())
    topics.create("a", 1)
    seen = topics.generation
    assert topics.changed_since(seen) == {}
    topics.create("b", 1)
    topics.create("c", 1)
    topics.delete("c")
    changed = topics.changed_since(seen)
    assert changed is not None
    assert set(changed) == {"b"}
    for _ in range(CHANGES_MAX):
        topics.put(TopicConfig(topic_name="b"))
    assert topics.changed_since(seen) is None

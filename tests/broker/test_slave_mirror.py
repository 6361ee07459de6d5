"""What a slave takes over beside the log, and what it hands back."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.consumer_offsets import ConsumerOffsets
from pocketmq.broker.delay_service import DelayProgressBody
from pocketmq.broker.master_address import MasterAddress
from pocketmq.broker.slave_mirror import LocalCommits, SlaveMirror
from pocketmq.broker.subscription_groups import SubscriptionGroups
from pocketmq.broker.timer_queue import TimerState
from pocketmq.broker.topic_table import TopicTable
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.bodies import SubscriptionGroupConfigBody
from pocketmq.store.os_file_system import OsFileSystem


class FakeStore:
    """A log of which only the end matters, and queues by name."""

    def __init__(self, path: Path) -> None:
        self.config: Any = type("Config", (), {"store_path_root_dir": str(path)})
        self.committed_offset = self.dispatched_offset = 0
        self.topics: set[str] = set()
        self.deleted: list[str] = []
        self.deleted_below: dict[str, int] = {}
        offsets: Any = type("Deleted", (), {"get": lambda _, topic: self.deleted_below.get(topic, 0)})()
        self.consume_queues: Any = type("Queues", (), {"deleted": offsets})()

    def delete_topic_below(self, topic: str, end_offset: int) -> None:
        self.deleted_below[topic] = end_offset

    def queues(self) -> list[tuple[str, int, int, int]]:
        return [(topic, 0, 0, 1) for topic in self.topics]

    def delete_topic(self, topic: str) -> None:
        self.topics.discard(topic)
        self.deleted.append(topic)


class World:
    """A slave's tables beside a master's."""

    def __init__(self, path: Path) -> None:
        config, clock = BrokerConfig(), SystemClock()
        self.topics, self.groups = TopicTable(config, clock), SubscriptionGroups(config, clock)
        self.offsets = ConsumerOffsets(1000)
        self.master_topics, self.master_groups = TopicTable(config, clock), SubscriptionGroups(config, clock)
        self.master_offsets = ConsumerOffsets(1000)
        self.commits = LocalCommits()
        self.store = FakeStore(path)
        self.path = path
        (path / "config").mkdir()
        (path / "pocketmq").mkdir()
        store: Any = self.store
        self.mirror = SlaveMirror(
            self.topics,
            self.groups,
            self.offsets,
            self.commits,
            [],
            store,
            OsFileSystem(),
            NullLog(),
            durable=False,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A slave that has mirrored nothing yet."""
    return World(tmp_path)


def test_topics_become_the_masters_and_a_deleted_ones_queues_go_when_the_log_is_there(world: World) -> None:
    """Not before: records of the deleted topic may still come."""
    world.master_topics.create("A", 2)
    world.master_topics.create("B", 3)
    world.mirror.topics(world.master_topics.encode(), 100)
    assert world.topics.get("B") is not None
    assert world.topics.version == world.master_topics.version or world.topics.get("SELF_TEST_TOPIC")
    world.offsets.commit("g", "A", 0, 7)
    world.store.topics = {"A", "B"}
    world.master_topics.delete("A")
    world.mirror.topics(world.master_topics.encode(), 500)
    assert world.topics.get("A") is None
    assert world.offsets.query("g", "A", 0) is None
    world.store.dispatched_offset = 499
    world.mirror.settle()
    assert world.store.deleted == []
    world.store.dispatched_offset = 500
    world.mirror.settle()
    assert world.store.deleted == ["A"]
    world.mirror.settle()
    assert world.store.deleted == ["A"]


def test_a_deletion_is_repeated_at_its_place_of_the_log_once(world: World) -> None:
    """Also of a topic that exists again: only what came before belongs to the deleted one."""
    world.master_topics.create("A", 2)
    content = world.master_topics.encode()[:-1] + b',"deletedTopics":{"A":700}}'
    world.offsets.commit("g", "A", 0, 5)
    world.commits.note("g", "A", 0, 6)
    world.mirror.topics(content, 900)
    assert world.store.deleted_below == {"A": 700}
    assert world.offsets.query("g", "A", 0) is None
    assert world.commits.ahead_of({}) == []
    world.store.deleted_below["A"] = 800
    world.mirror.topics(content, 900)
    assert world.store.deleted_below == {"A": 800}
    assert world.topics.get("A") is not None


def test_groups_become_the_masters(world: World) -> None:
    """Settings too."""
    world.master_groups.put(SubscriptionGroupConfigBody(group_name="g", retry_max_times=3))
    world.mirror.groups(world.master_groups.encode())
    known = world.groups.get("g")
    assert known is not None
    assert known.retry_max_times == 3


def test_commits_made_here_are_handed_back_only_while_they_are_ahead(world: World) -> None:
    """What the master has, or has passed, is forgotten; what it lacks stays ours until it was told."""
    world.commits.note("g", "T", 0, 50)
    world.commits.note("g", "T", 1, 10)
    world.master_offsets.commit("g", "T", 0, 40)
    world.master_offsets.commit("g", "T", 1, 12)
    commits = world.mirror.offsets(world.master_offsets.encode())
    assert commits == [("g", "T", 0, 50)]
    assert (world.offsets.query("g", "T", 0), world.offsets.query("g", "T", 1)) == (50, 12)
    world.commits.done(commits[0])
    assert world.mirror.offsets(world.master_offsets.encode()) == []
    assert world.offsets.query("g", "T", 0) == 40  # a reset at the master counts here from now on


def test_a_commit_that_moved_on_while_it_was_handed_back_stays_due(world: World) -> None:
    """Only what the master was told is done."""
    world.commits.note("g", "T", 0, 5)
    world.commits.note("g", "T", 0, 6)
    world.commits.done(("g", "T", 0, 5))
    assert world.commits.ahead_of({}) == [("g", "T", 0, 6)]
    restored = LocalCommits()
    restored.load(world.commits.encode())
    assert restored.ahead_of({}) == [("g", "T", 0, 6)]


def test_progress_of_deliveries_waits_for_the_log(world: World) -> None:
    """A delivery that is counted and not here would be lost by a promotion."""
    state = msgspec.Raw(msgspec.json.encode(TimerState(read_offset=9)))
    body = DelayProgressBody({3: 17}, state, 1000)
    world.store.committed_offset = 999
    world.mirror.progress(msgspec.json.encode(body))
    world.mirror.settle()
    path = world.path / "config" / "delayOffset.json"
    assert not path.exists()
    world.mirror.progress(msgspec.json.encode(DelayProgressBody({3: 20}, state, 2000)))  # the older one is kept
    world.store.committed_offset = 1000
    world.mirror.settle()
    assert msgspec.json.decode(path.read_bytes()) == {"offsetTable": {"3": 17}}
    timers = msgspec.json.decode((world.path / "pocketmq" / "timerProgress.json").read_bytes())
    assert timers["readOffset"] == 9


def test_offsets_behind_the_end_of_a_queue_come_back_to_it() -> None:
    """What is stored there next must not be skipped."""
    offsets = ConsumerOffsets(10)
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "T", 1, 3)
    assert offsets.clamp(lambda topic, queue_id: 5) == 1
    assert (offsets.query("g", "T", 0), offsets.query("g", "T", 1)) == (5, 3)


def test_the_masters_address_survives() -> None:
    """Told once, found again by the next start."""
    known = MasterAddress()
    known.learn("10.0.0.1:10912", "10.0.0.1:10911")
    generation = known.generation
    known.learn("10.0.0.1:10912", "10.0.0.1:10911")
    assert known.generation == generation
    again = MasterAddress()
    again.load(known.encode())
    assert (again.ha_address, again.broker_address) == ("10.0.0.1:10912", "10.0.0.1:10911")

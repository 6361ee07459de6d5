"""Tables that a slave copies beside the log, and commits that it returns to the master."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_service import DelayProgressBody
from pocketmq.broker.delay.timer_queue import TimerState
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.ha.master_address import MasterAddress
from pocketmq.broker.ha.slave_mirror import ENTRIES_LOGGED_MAX, LocalCommits, SlaveMirror
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.common.sealed_json import unseal
from pocketmq.common.topics import TopicConfig, retry_topic
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.message_store import MessageStore


class FakeStore:
    """A log of which only the end matters, and queues by name."""

    def __init__(self, path: Path) -> None:
        self.config: Any = type("Config", (), {"store_path_root_dir": str(path), "sync_on_close": False})
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

    def __init__(self, path: Path, store: Any = None, **settings: Any) -> None:
        config, clock = BrokerConfig(**settings), SystemClock()
        self.topics, self.groups = TopicTable(config, clock), SubscriptionGroups(config, clock)
        self.offsets = ConsumerOffsets(1000)
        self.master_topics, self.master_groups = TopicTable(config, clock), SubscriptionGroups(config, clock)
        self.master_offsets = ConsumerOffsets(1000)
        self.commits = LocalCommits()
        self.store = cast("Any", FakeStore(path) if store is None else store)
        self.log = CapturedLog()
        self.path = path
        (path / "config").mkdir(exist_ok=True)
        (path / "pocketmq").mkdir(exist_ok=True)
        self.file_system = OsFileSystem()
        self.mirror = SlaveMirror(cast("Any", self), self.store, self.commits, [])

    def logger(self, name: str) -> CapturedLog:
        return self.log

    def logged(self) -> list[tuple[str, str]]:
        """Return (table, name) of the entries that were logged."""
        return [(each["table"], each["name"]) for each in self.log.events if each["event"] == "master_entry_skipped"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A slave that has not mirrored any table."""
    return World(tmp_path)


def test_topics_become_the_masters_and_a_deleted_ones_queues_go_when_the_log_is_there(world: World) -> None:
    """Not before: records of the deleted topic may still arrive."""
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
    """Also of a topic that exists again: only earlier records belong to the deleted one."""
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


def test_a_deletion_that_the_store_has_forgotten_is_not_repeated_again(world: World) -> None:
    """Retention has removed this log up to there, and not yet the master's: each copy of the topics would read the
    whole log again, and drop the offsets of a new topic of this name."""
    world.master_topics.create("A", 2)
    content = world.master_topics.encode()[:-1] + b',"deletedTopics":{"A":700}}'
    world.mirror.topics(content, 900)
    world.store.deleted_below.clear()
    world.offsets.commit("g", "A", 0, 5)
    world.mirror.topics(content, 900)
    assert world.store.deleted_below == {}
    assert world.offsets.query("g", "A", 0) == 5
    world.mirror.topics(content.replace(b"700", b"800"), 900)
    assert world.store.deleted_below == {"A": 800}
    world.store.deleted_below.clear()
    world.mirror.topics(world.master_topics.encode(), 900)
    world.mirror.topics(content, 900)
    assert world.store.deleted_below == {"A": 700}, "what the master lists no more is forgotten"


def test_groups_become_the_masters(world: World) -> None:
    """Settings too."""
    world.master_groups.put(SubscriptionGroupConfigBody(group_name="g", retry_max_times=3))
    world.mirror.groups(world.master_groups.encode())
    known = world.groups.get("g")
    assert known is not None
    assert known.retry_max_times == 3


def test_commits_made_here_are_handed_back_only_while_they_are_ahead(world: World) -> None:
    """Commits that the master has, or has passed, are forgotten; others are kept until it has them."""
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
    """Only the commit that the master got is done."""
    world.commits.note("g", "T", 0, 5)
    world.commits.note("g", "T", 0, 6)
    world.commits.done(("g", "T", 0, 5))
    assert world.commits.ahead_of({}) == [("g", "T", 0, 6)]
    restored = LocalCommits()
    restored.load(world.commits.encode())
    assert restored.ahead_of({}) == [("g", "T", 0, 6)]


def test_progress_of_deliveries_waits_for_the_log(world: World) -> None:
    """A promotion would lose a delivery that is counted but not in this log."""
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
    assert msgspec.json.decode(unseal(path.read_bytes())) == {"offsetTable": {"3": 17}}
    timers = msgspec.json.decode((world.path / "pocketmq" / "timerProgress.json").read_bytes())
    assert timers["readOffset"] == 9


def test_offsets_behind_the_end_of_a_queue_come_back_to_it() -> None:
    """The next messages there must not be skipped."""
    offsets = ConsumerOffsets(10)
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "T", 1, 3)
    assert offsets.clamp(lambda topic, queue_id: 5) == 1
    assert (offsets.query("g", "T", 0), offsets.query("g", "T", 1)) == (5, 3)


def test_the_masters_address_survives() -> None:
    """Learned once, known to the next start."""
    known = MasterAddress()
    known.learn("10.0.0.1:10912", "10.0.0.1:10911")
    generation = known.generation
    known.learn("10.0.0.1:10912", "10.0.0.1:10911")
    assert known.generation == generation
    again = MasterAddress()
    again.load(known.encode())
    assert (again.ha_address, again.broker_address) == ("10.0.0.1:10912", "10.0.0.1:10911")


# ---- a false master, or damaged tables

PATHS = ["../../../victim", "..", "", "a/b", "x\0y", "T" * 128]


def topics_of(table: dict[str, dict[str, Any]], **others: Any) -> bytes:
    return msgspec.json.encode({"topicConfigTable": table, **others})


def test_a_hostile_masters_tables_remove_nothing_outside_the_store(tmp_path: Path) -> None:
    """With a real store: files beside it stay, legal entries are copied, each illegal one is logged once."""
    victim = tmp_path / "victim"
    (victim / "deep").mkdir(parents=True)
    root = tmp_path / "1" / "store"
    (root / "consumequeue").mkdir(parents=True)
    config = StoreConfig(store_path_root_dir=str(root), broker_role="SLAVE", mapped_file_size_commit_log=1 << 16)
    store = MessageStore(config, runner=SteppedRunner())
    store.open()
    world = World(root, store)
    names = [*PATHS, str(victim), "../../1/../victim"]
    content = topics_of({"Good": {"topicName": "Good"}}, deletedTopics={**dict.fromkeys(names, 1 << 50), "Gone": 10})
    for _ in range(2):
        world.mirror.topics(content, 1 << 51)
    world.mirror.settle()
    assert (victim / "deep").is_dir()
    assert root.is_dir()
    assert store.consume_queues.deleted.table() == {"Gone": 10}
    assert world.topics.get("Good") is not None
    assert sorted(world.logged()) == sorted(("deletedTopics", ascii(name)) for name in names)
    store.close()


def test_system_topics_are_not_deleted_at_a_masters_word(world: World) -> None:
    """No request can delete them; their queues hold delayed messages and half messages."""
    for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
        world.mirror.topics(topics_of({}, deletedTopics={name: 5}), 10)
        assert ("deletedTopics", ascii(name)) in world.logged()
    assert world.store.deleted_below == {}


def test_a_deletion_beyond_the_end_of_the_masters_log_is_asked_for_again(world: World) -> None:
    """A write-buffer pool commits later than it appends; a deletion that stays beyond the end is logged, not done."""
    content = topics_of({"T": {"topicName": "T"}}, deletedTopics={"A": 700, "B": -1})
    assert not world.mirror.topics(content, 600)
    assert world.logged() == [("deletedTopics", "'B'")]
    assert world.store.deleted_below == {}
    assert world.topics.get("T") is not None
    assert world.mirror.topics(content, 700)
    assert world.store.deleted_below == {"A": 700}
    later = topics_of({}, deletedTopics={"C": 1 << 50})
    assert not world.mirror.topics(later, 700)
    assert not world.mirror.topics(later, 700)
    assert ("deletedTopics", "'C'") in world.logged()
    assert world.store.deleted_below == {"A": 700}


def test_topics_that_no_request_could_make_are_skipped(world: World) -> None:
    """Names, numbers of queues, permissions; a known topic stays as it is and loses no queue."""
    world.topics.create("Known", 3)
    world.store.topics = {"Known"}
    long = retry_topic("g" * 200)
    table: dict[str, dict[str, Any]] = {name: {"topicName": name} for name in PATHS}
    table |= {
        "a b": {"topicName": "a b"},
        "Wide": {"topicName": "Wide", "writeQueueNums": 65_537},
        "Negative": {"topicName": "Negative", "readQueueNums": -1},
        "Known": {"topicName": "Known", "readQueueNums": 1 << 70},
        "Perm": {"topicName": "Perm", "perm": 16},
        "Flag": {"topicName": "Flag", "topicSysFlag": 1 << 31},
        "Good": {"topicName": "other", "perm": 15, "writeQueueNums": 65_536},
        long: {"topicName": long},
        "DefaultCluster": {"topicName": "DefaultCluster", "perm": 7},
    }
    world.mirror.topics(topics_of(table, dataVersion={"timestamp": 1 << 80, "counter": -(1 << 90)}), 100)
    skipped = [*PATHS, "a b", "Wide", "Negative", "Known", "Perm", "Flag"]
    assert sorted(world.logged()) == sorted(("topics", ascii(name)) for name in skipped)
    assert [world.topics.get(name) for name in skipped if name != "Known"] == [None] * (len(skipped) - 1)
    known, good = world.topics.get("Known"), world.topics.get("Good")
    assert known is not None
    assert known.read_queue_nums == 3
    assert good is not None
    assert (good.topic_name, good.perm) == ("Good", 15)
    assert world.topics.get(long) is not None
    world.store.dispatched_offset = 100
    world.mirror.settle()
    assert world.store.deleted == []
    world.topics.encode()  # every number fits


def test_a_masters_table_is_no_larger_than_ones_own_may_be(tmp_path: Path) -> None:
    """Topics, queues, groups and offsets beyond the limits of this broker are skipped, those before them copied."""
    world = World(tmp_path, topics_max=40, queues_max=3000, subscription_groups_max=20)
    world.mirror.topics(topics_of({}), 100)
    own = len(world.topics)
    world.mirror.topics(topics_of({f"T{number}": {"topicName": ""} for number in range(41 - own)}), 100)
    assert len(world.topics) == 40
    assert world.logged() == [("topics", f"'T{40 - own}'")]
    wide = {f"W{number}": {"topicName": "", "writeQueueNums": 900} for number in range(3)}
    world.mirror.topics(topics_of(wide), 100)
    assert [world.topics.get(name) is None for name in wide] == [False, False, True]
    assert world.logged()[1:] == [("topics", "'W2'")]
    world.log.events.clear()
    groups = {f"g{number}": {"groupName": "x"} for number in range(22)}
    world.mirror.groups(msgspec.json.encode({"subscriptionGroupTable": groups}))
    assert world.groups.get("g19") is not None
    assert world.logged() == [("groups", "'g20'"), ("groups", "'g21'")]
    offsets = {f"T@g{number}": {str(queue): 1 for queue in range(100)} for number in range(11)}
    world.mirror.offsets(msgspec.json.encode({"offsetTable": offsets}))
    assert len(world.offsets) == 1000
    assert world.logged()[2:] == [("offsets", "'T@g10'")]


def test_groups_and_offsets_that_no_request_could_make_are_skipped(world: World) -> None:
    """The others are copied, and the commits handed back name no skipped entry."""
    world.commits.note("g", "T", 0, 5)
    groups = {
        "good": {"groupName": "../x", "retryMaxTimes": -1},
        "../x": {"groupName": "good"},
        "large": {"groupName": "large", "retryQueueNums": 1 << 64},
        "g" * 256: {},
    }
    world.mirror.groups(msgspec.json.encode({"subscriptionGroupTable": groups}))
    good = world.groups.get("good")
    assert good is not None
    assert (good.group_name, good.retry_max_times) == ("good", -1)
    assert world.logged() == [("groups", ascii(name[:128])) for name in list(groups)[1:]]
    world.groups.encode()
    offsets = {
        "T@g": {"0": 3},
        "../x@g": {"0": 1},
        "T@": {"0": 1},
        "T": {"0": 1},
        "N@g": {"0": -1},
        "Q@g": {str(1 << 40): 1},
        "O@g": {"0": 1 << 70},
    }
    commits = world.mirror.offsets(msgspec.json.encode({"offsetTable": offsets}))
    assert commits == [("g", "T", 0, 5)]
    assert world.offsets.query("g", "T", 0) == 5
    assert len(world.offsets) == 1
    assert world.logged()[3:] == [("offsets", ascii(name)) for name in list(offsets)[1:]]


def test_progress_that_no_master_has_is_skipped_and_blocks_nothing(world: World) -> None:
    """Impossible levels and offsets; an end that the log will never reach does not block a later answer."""
    nothing = msgspec.Raw(b"{}")
    world.mirror.progress(msgspec.json.encode(DelayProgressBody({1: 5}, nothing, 1 << 60)))
    table = {1: 7, -1: 3, 2: -4, 3: 1 << 60, 4: 9}
    timers = msgspec.Raw(msgspec.json.encode(TimerState(read_offset=-9)))
    world.mirror.progress(msgspec.json.encode(DelayProgressBody(table, timers, 100)))
    world.store.committed_offset = 100
    with pytest.raises(msgspec.ValidationError, match="readOffset"):
        world.mirror.settle()
    path = world.path / "config" / "delayOffset.json"
    assert msgspec.json.decode(unseal(path.read_bytes())) == {"offsetTable": {"1": 7, "4": 9}}
    timers_now = msgspec.json.decode((world.path / "pocketmq" / "timerProgress.json").read_bytes())
    assert timers_now["readOffset"] == 0
    assert world.logged() == [("delayOffset", ascii(str(level))) for level in (-1, 2, 3)]


def test_a_table_full_of_lies_does_not_fill_the_log(world: World) -> None:
    """A hundred are logged one by one, then the fact that there are more."""
    table = {f"../{number}": TopicConfig(topic_name="") for number in range(500)}
    for _ in range(3):
        world.mirror.topics(msgspec.json.encode({"topicConfigTable": table}), 0)
    events = [each["event"] for each in world.log.events]
    assert (events.count("master_entry_skipped"), events.count("master_entries_left_out")) == (ENTRIES_LOGGED_MAX, 1)

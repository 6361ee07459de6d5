"""What is constant in the frames of the short path, and that it stays bounded."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import StoredAt
from pocketmq.client.producer import short_targets
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.short_targets import ShortTargets, array_head
from pocketmq.client.sender.native_send import NativeSend
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.retry import RetryPolicy
from pocketmq.common.clock import ManualClock
from pocketmq.common.message import Message
from pocketmq.remoting.frame import JSON, MSGPACK
from pocketmq.remoting.protocol.hello import Announcement


class World:
    """Targets over connections that a test opens, without sockets."""

    def __init__(self, **options: Any) -> None:
        self.instance = ClientInstance("127.0.0.1:1", clock=ManualClock(), rng=random.Random(1))
        self.open: dict[str, BrokerConnection] = {}
        self.asked = 0
        opened: Any = self.connection
        self.instance.open_connection = opened  # type: ignore[method-assign]
        at = StoredAt("T", 0, "a", b"", "", 1, "", True)
        sender: Any = SimpleNamespace(native=NativeSend("g"), stored_at=lambda connection, queue: at)
        chooser = QueueChooser(self.instance.clock, random.Random(1), None)
        self.targets = ShortTargets(self.instance, sender, chooser, RetryPolicy(), ProducerOptions(**options), "g")

    def connection(self, name: str) -> BrokerConnection | None:
        self.asked += 1
        return self.open.get(name)

    def connect(self, name: str, *, serialize_type: int = MSGPACK, **fields: Any) -> BrokerConnection:
        channel: Any = SimpleNamespace(closed=False, writable=True, serialize_type=serialize_type)
        announcement = Announcement(cluster=fields.pop("cluster", "c"), **fields)
        connection = self.open[name] = BrokerConnection(name, f"{name}:1", channel, announcement)
        self.instance.connections_opened += 1
        return connection

    def know(self, topic: str, *brokers: str) -> None:
        queues = tuple(MessageQueue(topic, broker, number) for broker in brokers for number in range(2))
        self.instance.routes.put(TopicRoute(topic, {}, queues, queues), 0)


def test_a_topic_is_prepared_when_its_route_and_a_connection_are_there() -> None:
    """Until one of both changes, nothing is looked up again."""
    world = World()
    assert world.targets.topic("T") is None
    world.know("T", "a", "b")
    assert world.targets.topic("T") is None
    asked = world.asked
    assert world.targets.topic("T") is None
    assert world.asked == asked
    world.connect("b")
    topic = world.targets.topic("T")
    assert topic is not None
    found = [world.targets.next(topic) for _ in range(8)]
    assert {target.queue.broker_name for target in found if target is not None} == {"b"}
    first = topic.turns.index
    world.connect("a")
    brokers = {target.queue.broker_name for _ in range(4) if (target := world.targets.next(topic)) is not None}
    assert brokers == {"a", "b"}
    assert topic.turns.index == first + 4


def test_a_turn_is_taken_only_with_its_queue() -> None:
    """The usual way takes it otherwise; a turn given back is taken again."""
    world = World()
    world.know("T", "a")
    connection = world.connect("a")
    topic = world.targets.topic("T")
    assert topic is not None
    before = topic.turns.index
    connection.channel.writable = False
    assert (world.targets.next(topic), topic.turns.index) == (None, before)
    connection.channel.writable = True
    assert world.targets.next(topic) is not None
    world.targets.give_back(topic)
    assert (topic.target, topic.turns.index) == (None, before)
    world.targets.next(topic)
    topic.turns.index += 1  # somebody else
    world.targets.give_back(topic)
    assert topic.turns.index == before + 2


def test_a_lost_connection_and_a_broker_that_moved_are_replaced() -> None:
    """By the connection that is open for that name now."""
    world = World()
    world.know("T", "a")
    first = world.connect("a")
    topic = world.targets.topic("T")
    assert topic is not None
    for _ in range(2):
        world.targets.next(topic)
    first.channel.closed = True
    second = world.connect("a")
    target = world.targets.next(topic)
    assert target is not None
    assert target.line.connection is second
    assert [line.connection for line in world.targets.lines()] == [second]
    third = world.connect("a")  # another address, told by the route of another topic
    world.know("U", "a")
    target = world.targets.next(topic)
    assert target is not None
    assert target.line.connection is third


@pytest.mark.parametrize("fields", [{"serialize_type": JSON}, {"native": 0}])
def test_other_peers_are_left_to_the_usual_way(fields: Any) -> None:
    """JSON headers, no native append."""
    world = World()
    world.know("T", "a")
    world.connect("a", **fields)
    assert world.targets.topic("T") is None


def test_a_broker_of_another_cluster_is_left_to_the_usual_way() -> None:
    """Records name the cluster, and templates are those of one."""
    world = World()
    world.know("T", "a", "b")
    world.connect("a")
    world.connect("b", cluster="other")
    topic = world.targets.topic("T")
    assert topic is not None
    names = set()
    for _ in range(4):
        target = world.targets.next(topic)
        if target is None:
            topic.turns.index += 1
        else:
            names.add(target.queue.broker_name)
    assert names == {"a"}


def test_topics_that_clients_may_not_send_to_are_left_to_the_usual_way() -> None:
    """It words the refusal."""
    world = World()
    world.connect("a")
    for name in ("SCHEDULE_TOPIC_XXXX", "bad topic", "%RETRY%group"):
        world.know(name, "a")
        assert world.targets.topic(name) is None


def test_the_first_attempt_has_the_time_of_the_usual_way() -> None:
    """Two thirds while another broker could be tried, else all of it."""
    for brokers, retries, expected in ((("a",), 2, 3000), (("a", "b"), 2, 2000), (("a", "b"), 0, 3000)):
        world = World(retry_times_when_send_failed=retries)
        world.know("T", *brokers)
        world.connect("a")
        topic = world.targets.topic("T")
        assert topic is not None
        assert topic.timeout_ms == expected


def test_topics_and_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest topic goes first; templates are collected again."""
    monkeypatch.setattr(short_targets, "TOPICS_MAX", 3)
    monkeypatch.setattr(short_targets, "TAGS_MAX", 3)
    world = World()
    world.connect("a")
    for number in range(5):
        world.know(f"T{number}", "a")
        assert world.targets.topic(f"T{number}") is not None
        world.targets.topic(f"unknown{number}")
    assert list(world.targets.topics) == ["T2", "T3", "T4"]
    assert len(world.targets._unfit) <= 3
    topic = world.targets.topics["T4"]
    for number in range(5):
        assert world.targets.template(topic, Message("T4", b"x", tags=f"tag{number}")) is not None
    assert len(topic.templates) <= 3
    assert world.targets.template(topic, Message("T4", b"x", tags="a\x01")) is None


def test_array_heads_are_those_of_msgpack() -> None:
    """Short and long."""
    import msgspec

    for length in (0, 1, 15, 16, 300, 4096):
        assert msgspec.msgpack.encode([0] * length) == array_head(length) + bytes(length)

"""Choice of a queue for messages without an order."""

import random

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.sender.fault_items import FaultItems
from pocketmq.client.sender.queue_choice import QueueChooser, RoundRobin
from pocketmq.common.clock import ManualClock

QUEUES = [MessageQueue("T", name, number) for name in "ab" for number in range(2)]


def test_round_robin_takes_every_queue_in_turn() -> None:
    """A round takes each queue once, wherever it starts."""
    turns = RoundRobin(12345)
    assert sorted(turns.next(QUEUES) for _ in QUEUES) == QUEUES


def test_round_robin_avoids_brokers_that_failed_if_there_are_others() -> None:
    """A retry goes to another broker; if none is left, to any."""
    turns = RoundRobin(0)
    assert {turns.next(QUEUES, {"a"}).broker_name for _ in range(8)} == {"b"}
    assert turns.next(QUEUES, {"a", "b"}) in QUEUES


def chooser_of(faults: FaultItems | None) -> tuple[QueueChooser, TopicRoute, ManualClock]:
    clock = ManualClock()
    route = TopicRoute("T", {}, tuple(QUEUES), ())
    return QueueChooser(clock, random.Random(1), faults), route, clock


def test_first_attempts_avoid_slow_brokers_until_their_time_is_over() -> None:
    """Available brokers first; else reachable ones; else any."""
    faults = FaultItems()
    chooser, route, clock = chooser_of(faults)
    assert {chooser.first(route).broker_name for _ in range(4)} == {"a", "b"}
    faults.update("a", 0, clock.monotonic_ns(), isolation=True, reachable=False)
    assert {chooser.first(route).broker_name for _ in range(4)} == {"b"}
    faults.update("b", 0, clock.monotonic_ns(), isolation=True)
    assert {chooser.first(route).broker_name for _ in range(4)} == {"b"}
    faults.update("b", 0, clock.monotonic_ns(), isolation=True, reachable=False)
    assert {chooser.first(route).broker_name for _ in range(4)} == {"a", "b"}
    clock.advance_ms(10_001)
    assert {chooser.first(route).broker_name for _ in range(4)} == {"a", "b"}
    assert not faults.avoided


def test_further_attempts_go_elsewhere_but_never_to_a_barred_broker() -> None:
    """An untried broker first, else not the last one, else the same; None when all are barred."""
    chooser, route, _ = chooser_of(None)
    for _ in range(4):
        queue = chooser.again(route, {"a"}, "a", set())
        assert queue is not None
        assert queue.broker_name == "b"
        queue = chooser.again(route, {"a", "b"}, "b", set())
        assert queue is not None
        assert queue.broker_name == "a"
        queue = chooser.again(route, {"a"}, "a", {"b"})
        assert queue is not None
        assert queue.broker_name == "a"
    assert chooser.again(route, {"a"}, "a", {"a", "b"}) is None


def test_all_ways_of_sending_share_the_turns_of_a_topic() -> None:
    """A turn that one way takes is not taken again by another."""
    chooser = QueueChooser(ManualClock(), random.Random(1), None)
    turns = chooser.turns("T")
    before = turns.index
    chooser.first(TopicRoute("T", {}, (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)), ()))
    assert chooser.turns("T") is turns
    assert turns.index == before + 1

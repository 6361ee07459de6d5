"""Choice of a queue."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import SelectorFailed
from pocketmq.client.producer.fault_items import FaultItems
from pocketmq.client.producer.selectors import QueueChooser, RoundRobin, select_by_hash, select_by_user
from pocketmq.common.clock import ManualClock
from pocketmq.common.message import Message

QUEUES = [MessageQueue("T", name, number) for name in "ab" for number in range(2)]
MESSAGE = Message("T", b"x")


def test_round_robin_takes_every_queue_in_turn() -> None:
    """A round takes each queue once, wherever it starts."""
    turns = RoundRobin(12345)
    assert sorted(turns.next(QUEUES) for _ in QUEUES) == QUEUES


def test_round_robin_avoids_brokers_that_failed_if_there_are_others() -> None:
    """A retry goes to another broker; with none left it goes anywhere."""
    turns = RoundRobin(0)
    assert {turns.next(QUEUES, {"a"}).broker_name for _ in range(8)} == {"b"}
    assert turns.next(QUEUES, {"a", "b"}) in QUEUES


@given(st.text(max_size=20), st.integers(1, 9))
def test_a_key_has_one_queue(key: Any, count: Any) -> None:
    """The same key always goes to the same queue."""
    queues = [MessageQueue("T", "a", number) for number in range(count)]
    assert select_by_hash(key, queues) == select_by_hash(key, queues)


def test_hash_selection_is_java_s() -> None:
    """|hashCode % size| as Java computes it, negative hashes too."""
    queues = [MessageQueue("T", "a", number) for number in range(7)]
    assert select_by_hash("polygenelubricants", queues).queue_id == 2147483648 % 7  # hashCode is -2^31
    assert select_by_hash("Aa", queues) == select_by_hash("BB", queues) == queues[2112 % 7]


def test_a_users_function_returns_a_queue_or_an_index() -> None:
    """Both forms select."""
    assert select_by_user(lambda queues, message: queues[2], QUEUES, MESSAGE) == QUEUES[2]
    assert select_by_user(lambda queues, message: 1, QUEUES, MESSAGE) == QUEUES[1]


@pytest.mark.parametrize("answer", [None, 4, -1, True, "a", MessageQueue("T", "c", 0), 1.0])
def test_anything_else_from_a_users_function_is_refused(answer: Any) -> None:
    """A wrong answer names itself; nothing is sent."""
    with pytest.raises(SelectorFailed):
        select_by_user(lambda queues, message: answer, QUEUES, MESSAGE)


def test_a_users_function_that_raises_is_named() -> None:
    """The user's exception is the cause."""
    with pytest.raises(SelectorFailed, match="KeyError") as caught:
        select_by_user(lambda queues, message: queues[{0: 1}[9]], QUEUES, MESSAGE)
    assert isinstance(caught.value.__cause__, KeyError)


def chooser_of(faults: FaultItems | None) -> tuple[QueueChooser, TopicRoute, ManualClock]:
    clock = ManualClock()
    route = TopicRoute("T", {}, tuple(QUEUES), ())
    return QueueChooser(clock, random.Random(1), faults), route, clock


def test_first_attempts_avoid_slow_brokers_until_their_time_is_over() -> None:
    """Available first; when none is, those that could be reached; when none was, any."""
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
    """Not tried yet, else not the last one, else the same; None when all are barred."""
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

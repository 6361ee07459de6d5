"""Threads that create topics wait for name servers that answer, never for others."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.logs import CapturedLog

A, B = "10.0.0.1:9876", "10.0.0.2:9876"


class Made:
    """The real table, and a loop thread's view of two name servers that know all of it."""

    def __init__(self) -> None:
        self.log = CapturedLog()
        self.persisted: list[int] = []
        self.topics = TopicTable(BrokerConfig(), ManualClock())
        self.registered = RegisteredTopics(self.topics, self.persist, self.log)
        for address in (A, B):
            self.registered.follow(address)
            self.registered.reached(address, self.topics.generation)

    def persist(self) -> None:
        self.persisted.append(self.topics.generation)

    def publish(self) -> threading.Thread:
        """Publish a new topic in another thread."""
        self.topics.create(f"T{self.topics.generation}", 4)
        thread = threading.Thread(target=self.registered.publish)
        thread.start()
        return thread


@pytest.fixture
def made() -> Made:
    return Made()


def test_a_new_topic_waits_for_every_name_server(made: Made) -> None:
    """One of two is not enough; known to both, the next call returns at once."""
    made.registered.wait_ms = 60_000
    thread = made.publish()
    made.registered.reached(A, made.topics.generation)
    assert made.registered._behind(made.topics.generation) == [B]
    made.registered.reached(B, made.topics.generation)
    thread.join(60)
    assert not thread.is_alive()
    assert made.persisted == [1]
    called = threading.Thread(target=made.registered.publish)
    called.start()
    called.join(60)
    assert not called.is_alive()
    assert not made.log.events


@pytest.mark.parametrize("end", [lambda made: made.registered.missed(B), lambda made: made.registered.close()])
def test_a_name_server_that_goes_away_ends_the_wait(made: Made, end: Callable[[Any], None]) -> None:
    """Its failure, or the stop of the broker."""
    made.registered.wait_ms = 60_000
    thread = made.publish()
    made.registered.reached(A, made.topics.generation)
    end(made)
    thread.join(60)
    assert not thread.is_alive()


def test_a_silent_name_server_is_waited_for_once(made: Made) -> None:
    """Until it answers again: then it has to know the next topic."""
    made.registered.wait_ms = 1
    made.publish().join(60)
    (event,) = made.log.events
    assert (event["event"], event["namesrv"], event["waited_ms"]) == ("namesrv_silent", f"{A};{B}", 1)
    made.registered.wait_ms = 60_000
    thread = made.publish()
    thread.join(60)
    assert not thread.is_alive()
    made.registered.reached(A, 1)
    thread = made.publish()
    assert made.registered._behind(made.topics.generation) == [A]
    made.registered.reached(A, made.topics.generation)
    thread.join(60)
    assert not thread.is_alive()
    assert len(made.log.events) == 1


def test_the_thread_that_registers_never_waits(made: Made) -> None:
    """It would wait for itself."""
    made.registered.wait_ms = 60_000
    made.topics.create("T", 4)
    made.registered.publish()
    assert made.persisted == [1]


def test_topics_that_could_not_be_written_are_not_waited_for(made: Made) -> None:
    """The error of the disk goes to the caller."""

    def fail() -> None:
        raise PocketMQError("disk full")

    registered = RegisteredTopics(made.topics, fail, made.log)
    registered.follow(A)
    with pytest.raises(PocketMQError, match="disk full"):
        registered.publish()

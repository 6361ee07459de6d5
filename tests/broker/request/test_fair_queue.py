"""Connections take turns, whatever one of them has queued."""

from typing import Any

from pocketmq.broker.request.fair_queue import FairQueue
from pocketmq.broker.request.request_task import Task


def task(connection: Any, number: int) -> Task:
    """Return a waiting request; its context is a number."""
    nothing: Any = None
    return Task(connection, nothing, number, 10, number)


def test_each_connection_has_its_turn() -> None:
    """A connection with one request waits for one of each other connection; within one the order is kept."""
    flood, other, third = object(), object(), object()
    queue = FairQueue(100, 10_000)
    for number in range(10):
        assert queue.offer(task(flood, number))
    assert queue.offer(task(other, 10))
    assert queue.offer(task(third, 11))
    order: list[Any] = []
    while drained := queue.drain(5, 10_000):
        assert len(drained) == 1
        order.append(drained[0].context)
    assert order == [0, 10, 11, *range(1, 10)]
    assert queue.size_bytes == 0


def test_the_oldest_tasks_still_expire() -> None:
    """Fast failure takes them from the head, as from any queue."""
    queue = FairQueue(100, 10_000)
    one, other = object(), object()
    for number, connection in enumerate((one, one, other)):
        queue.offer(task(connection, number * 1_000_000))
    assert [each.context for each in queue.drain(1, 100)] == [0]
    assert [each.context for each in queue.drain(1, 100)] == [2_000_000]
    assert [each.context for each in queue.expire(2_000_000, 1)] == [1_000_000]
    assert queue.drain(1, 100) == []

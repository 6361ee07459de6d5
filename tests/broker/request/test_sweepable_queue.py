"""The queue between loop and workers: bounded, first in first out, one owner per task."""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.request.sweepable_queue import SweepableQueue


@dataclass(slots=True, eq=False)
class FakeTask:
    size_bytes: int
    created_ns: int = 0
    number: int = 0


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 40)),
        st.tuples(st.just("drain"), st.integers(1, 5), st.integers(1, 60)),
        st.tuples(st.just("expire"), st.integers(0, 5)),
        st.tuples(st.just("clear")),
        st.tuples(st.just("close")),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_any_order_of_calls_agrees_with_the_model(operations: Any) -> None:
    """Every call returns the same as on a plain list, and no bound is exceeded."""
    queue: SweepableQueue[FakeTask] = SweepableQueue(6, 100)
    model: deque[FakeTask] = deque()
    closed = False
    for now_ms, operation in enumerate(operations, start=1):
        if operation[0] == "offer":
            task = FakeTask(operation[1], now_ms * 1_000_000)
            fits = not model or sum(each.size_bytes for each in model) + task.size_bytes <= 100
            expected = not closed and len(model) < 6 and fits
            assert queue.offer(task) is expected
            if expected:
                model.append(task)
        elif operation[0] == "drain":
            wanted: list[FakeTask] = []
            while model and len(wanted) < operation[1]:
                if wanted and sum(each.size_bytes for each in wanted) + model[0].size_bytes > operation[2]:
                    break
                wanted.append(model.popleft())
            assert queue.drain(operation[1], operation[2]) == wanted
        elif operation[0] == "expire":
            wanted = []
            while model and now_ms - model[0].created_ns // 1_000_000 >= operation[1]:
                wanted.append(model.popleft())
            assert queue.expire(now_ms * 1_000_000, operation[1]) == wanted
        else:
            closed = closed or operation[0] == "close"
            wanted = list(model)
            model.clear()
            assert (queue.close() if operation[0] == "close" else queue.clear()) == wanted
        assert len(queue) == len(model)
        assert queue.size_bytes == sum(each.size_bytes for each in model)
        assert queue.head_wait_ms(now_ms * 1_000_000) == (now_ms - model[0].created_ns // 1_000_000 if model else 0)


def test_a_task_that_came_after_the_reading_began_has_not_waited() -> None:
    """Whoever reads many values takes the time once, before all of them."""
    queue: SweepableQueue[FakeTask] = SweepableQueue(10, 100)
    queue.offer(FakeTask(1, created_ns=5_000_000))
    assert queue.head_wait_ms(3_000_000) == 0


def test_a_task_larger_than_the_bound_passes_alone() -> None:
    """An empty queue accepts a single oversized task; behind another task it is refused."""
    queue: SweepableQueue[FakeTask] = SweepableQueue(10, 100)
    assert queue.offer(FakeTask(500))
    assert not queue.offer(FakeTask(1))
    assert [task.size_bytes for task in queue.drain(10, 10)] == [500]
    assert queue.size_bytes == 0


def test_only_accepted_tasks_wake_the_worker() -> None:
    """A refused task wakes no worker."""
    wakes: list[int] = []
    queue: SweepableQueue[FakeTask] = SweepableQueue(1, 100, lambda: wakes.append(1))
    assert queue.offer(FakeTask(1))
    assert not queue.offer(FakeTask(1))
    assert wakes == [1]


@pytest.mark.parametrize("drainers", [1, 3])
def test_each_task_comes_back_exactly_once_under_threads(drainers: Any) -> None:
    """Offering, draining and expiring at once loses no task and returns none twice."""
    queue: SweepableQueue[FakeTask] = SweepableQueue(64, 1 << 20)
    total = 20_000
    owned: list[list[int]] = [[] for _ in range(drainers + 2)]
    done = threading.Event()

    def drain(slot: int) -> None:
        while not done.is_set() or len(queue):
            owned[slot].extend(task.number for task in queue.drain(7, 1 << 20))

    def expire() -> None:
        while not done.is_set():
            owned[drainers].extend(task.number for task in queue.expire(1, 0))

    threads = [threading.Thread(target=drain, args=(slot,)) for slot in range(drainers)] + [
        threading.Thread(target=expire)
    ]
    for thread in threads:
        thread.start()
    for number in range(total):
        task = FakeTask(1, 0, number)
        if not queue.offer(task):
            owned[drainers + 1].append(number)
    done.set()
    for thread in threads:
        thread.join()
    assert sorted(number for numbers in owned for number in numbers) == list(range(total))
    assert len(queue) == 0
    assert queue.size_bytes == 0
    for numbers in owned:
        assert numbers == sorted(numbers)


def test_expired_heads_can_be_taken_in_portions() -> None:
    """Tasks beyond a portion stay in the queue, in order, with their bytes."""
    queue: SweepableQueue[FakeTask] = SweepableQueue(10, 1000)
    tasks = [FakeTask(10, number) for number in range(5)]
    assert all(queue.offer(task) for task in tasks)
    assert queue.expire(10**9, 1, 2) == tasks[:2]
    assert (len(queue), queue.size_bytes) == (3, 30)
    assert queue.expire(10**9, 1, 9) == tasks[2:]
    assert queue.expire(10**9, 1, 9) == []

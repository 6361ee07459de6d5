"""Fast failure: which requests are answered, with which text, and which are left alone."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.flow_control.fast_failure import (
    CHUNK_TASKS,
    IDLE_PERIOD_S_MAX,
    PERIOD_S,
    SLICE_NS,
    FastFailure,
)
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.executor import AdaptiveDrain, DrainExecutor, OneByOne
from pocketmq.broker.request.request_task import AnswerPort, Drain, Task
from pocketmq.common.clock import ManualClock
from pocketmq.common.events import NullLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import eventually
from tests.broker.fakes import DirectMailbox, FakeConnection, make_request, parse_response

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


class Never(OneByOne):
    """A processor whose worker is never stepped."""

    def serve(self, task: Task, drain: Drain) -> None:
        raise AssertionError("nothing is served here")


class FakePageCache:
    """The store as fast failure sees it; its first ``busy_looks`` checks find it busy."""

    def __init__(self, busy_looks: int = 0, held_ms: int = 1500) -> None:
        self.busy_looks = busy_looks
        self.held_ms = held_ms

    def is_os_page_cache_busy(self) -> bool:
        self.busy_looks -= 1
        return self.busy_looks >= 0

    def lock_time_mills(self) -> int:
        return self.held_ms


class World:
    """Some executors, a page cache, fast failure."""

    def __init__(
        self,
        *max_waits_ms: int,
        count_max: int = 100,
        page_cache: Any = None,
        clock: Any = None,
        page_cache_busy_ms: int = 1000,
    ) -> None:
        self.clock: Any = clock or ManualClock()
        direct: Any = DirectMailbox()
        self.executors = [
            DrainExecutor(
                f"Pair{number}",
                Never(),
                count_max=count_max,
                size_bytes_max=1 << 30,
                threads=1,
                drain=AdaptiveDrain(1, 1 << 20),
                max_wait_ms=max_wait_ms,
                runner=SteppedRunner(),
                answers=AnswerPort(direct),
                clock=self.clock,
                log=NullLog(),
            )
            for number, max_wait_ms in enumerate(max_waits_ms)
        ]
        self.send = self.executors[0]
        self.page_cache = page_cache or FakePageCache()
        self.refusal_stats = RefusalStats(self.clock, NullLog())
        self.fast_failure = FastFailure(
            self.executors,
            self.send,
            self.page_cache,
            self.clock,
            self.refusal_stats,
            page_cache_busy_ms=page_cache_busy_ms,
        )
        self.connection: Any = FakeConnection()

    def offer(self, count: int = 1, *, pair: int = 0, opaque: int = 1, oneway: bool = False) -> None:
        for number in range(count):
            request = make_request(opaque=opaque + number, oneway=oneway)
            assert self.executors[pair].offer(Task(self.connection, request, self.clock.monotonic_ns(), 10))

    def responses(self) -> list[Any]:
        return [parse_response(each, CODE) for each in self.connection.responses]


def test_heads_that_waited_their_limit_are_answered_in_rocketmqs_words() -> None:
    """At 200 ms exactly, oldest first, each with its own wait and the queue behind it; oneway requests are dropped."""
    world = World(200)
    for opaque, oneway in ((1, False), (2, True), (3, False), (4, False)):
        world.offer(opaque=opaque, oneway=oneway)
        world.clock.advance_ms(35)
    world.clock.advance_ms(235 - 4 * 35 - 1)
    world.fast_failure.expire()
    world.clock.advance_ms(1)
    world.fast_failure.expire()
    (response,) = world.responses()
    assert (response.opaque, response.code) == (1, 2)
    assert response.remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 234ms, size of queue: 3"
    )
    assert response.extra == {
        "cause": "queue_timeout",
        "stored": "no",
        "retry_after_ms": "200",
        "stages": "queue_wait=234.00",
    }
    world.clock.advance_ms(60)
    world.fast_failure.expire()
    assert [response.opaque for response in world.responses()] == [1, 3]
    assert (len(world.send.queue), world.fast_failure.swept) == (1, {"Pair0": 3})
    (count,) = world.refusal_stats.snapshot()
    assert (count.cause, count.code, count.total) == ("queue_timeout", 2, 3)


def test_a_pair_without_a_longest_wait_is_left_alone() -> None:
    """0 means no limit (RocketMQ's query and admin queues)."""
    world = World(0)
    world.offer()
    world.clock.advance_ms(1e9)
    world.fast_failure.expire()
    assert (len(world.send.queue), world.responses()) == (1, [])


def test_a_busy_page_cache_empties_the_send_queue_whatever_its_age() -> None:
    """Sizes are those after each removal, the other queues keep requests within their limit, oneways are counted."""
    world = World(200, 5000, page_cache=FakePageCache(busy_looks=2, held_ms=1234))
    world.offer(2, opaque=1)
    world.offer(oneway=True)
    world.clock.advance_ms(7)
    world.offer(opaque=3)
    world.offer(pair=1, opaque=9)
    world.fast_failure.expire()
    assert [(response.opaque, response.code, response.remark) for response in world.responses()] == [
        (
            opaque,
            2,
            "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {waited_ms}ms, size of queue: {left}",
        )
        for opaque, waited_ms, left in ((1, 7, 3), (2, 7, 2), (3, 0, 0))
    ]
    assert world.responses()[0].extra == {
        "cause": "page_cache_busy",
        "stored": "no",
        "retry_after_ms": "1234",
        "stages": "queue_wait=7.00",
    }
    assert [len(executor.queue) for executor in world.executors] == [0, 1]
    assert world.fast_failure.swept == {"Pair0": 4}


def test_the_emptying_ends_when_the_page_cache_is_free_again() -> None:
    """Requests that the worker can serve now are left to it."""
    world = World(200, page_cache=FakePageCache(busy_looks=1))
    world.offer(CHUNK_TASKS + 10)
    world.fast_failure.expire()
    assert len(world.send.queue) == 10


def test_queues_are_looked_at_in_the_order_of_their_pairs() -> None:
    """RocketMQ: send, pull, heartbeat, end-transaction."""
    world = World(200, 0, 100, 300)
    for pair in (3, 2, 1, 0):
        world.offer(pair=pair, opaque=pair)
    world.clock.advance_ms(300)
    world.fast_failure.expire()
    assert [response.opaque for response in world.responses()] == [0, 2, 3]


class TickingClock(ManualClock):
    """A clock that advances by 1 ms with each reading, as if work took that time."""

    def monotonic_ns(self) -> int:
        self.advance_ms(1)
        return super().monotonic_ns()


@pytest.mark.parametrize("busy", [True, False])
def test_ten_thousand_requests_are_answered_in_slices(busy: bool) -> None:
    """No turn of the loop answers more than a few chunks; the rest is reported as due at once, until none is left."""
    page_cache = FakePageCache(busy_looks=1_000_000 if busy else 0)
    world = World(200, count_max=10_000, page_cache=page_cache, clock=TickingClock())
    world.offer(10_000)
    world.clock.advance_ms(200)
    chunks_max = SLICE_NS // 1_000_000 + 1
    answered, slices = 0, 0
    while world.fast_failure.expire():
        slices += 1
        assert 0 < len(world.connection.responses) - answered <= chunks_max * CHUNK_TASKS
        answered = len(world.connection.responses)
    assert len(world.connection.responses) == 10_000
    assert slices >= 10_000 // (chunks_max * CHUNK_TASKS)


async def test_slices_follow_each_other_at_once_and_stop_ends_them() -> None:
    """Between two slices the loop runs other callbacks; after ``stop`` no request expires."""
    world = World(200, count_max=10_000, clock=TickingClock())
    world.offer(5000)
    world.clock.advance_ms(200)
    loop = asyncio.get_running_loop()
    world.fast_failure._tick(loop)
    turns = 0
    while len(world.connection.responses) < 2000:
        before = len(world.connection.responses)
        await asyncio.sleep(0)
        turns += 1
        assert len(world.connection.responses) - before < 1000
    assert turns > 1
    world.fast_failure.stop()
    left = len(world.send.queue)
    await asyncio.sleep(0.03)
    assert left == len(world.send.queue) > 0


async def test_a_run_that_fails_is_not_the_last() -> None:
    """The loop reports an error, and the next run follows nevertheless."""
    world = World(200)
    world.offer()
    world.clock.advance_ms(200)
    loop = asyncio.get_running_loop()
    page_cache: Any = world.page_cache
    page_cache.is_os_page_cache_busy = None
    with pytest.raises(TypeError):
        world.fast_failure._tick(loop)
    page_cache.is_os_page_cache_busy = lambda: False
    await eventually(lambda: world.connection.responses)
    world.fast_failure.stop()


@pytest.mark.parametrize(
    ("max_waits_ms", "busy_ms", "idle_s"),
    [
        ((200, 5000), 1000, 0.1),  # the defaults
        ((60, 5000), 1000, 0.03),
        ((200, 0), 40, 0.02),
        ((5,), 1000, PERIOD_S),
        ((0,), 1000, IDLE_PERIOD_S_MAX),
    ],
)
def test_while_nothing_waits_the_period_is_half_of_the_shortest_limit(
    max_waits_ms: tuple[int, ...], busy_ms: int, idle_s: float
) -> None:
    world = World(*max_waits_ms, page_cache=FakePageCache(held_ms=0), page_cache_busy_ms=busy_ms)
    assert world.fast_failure.period_s() == pytest.approx(idle_s)


@pytest.mark.parametrize("pair", [0, 1])
def test_a_request_that_waits_is_checked_every_10_ms(pair: int) -> None:
    world = World(200, 5000, page_cache=FakePageCache(held_ms=0))
    world.offer(pair=pair)
    assert world.fast_failure.period_s() == PERIOD_S


def test_an_append_that_goes_on_is_checked_every_10_ms() -> None:
    assert World(200, page_cache=FakePageCache(held_ms=1)).fast_failure.period_s() == PERIOD_S


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=30))
def test_no_request_waits_longer_than_its_limit_and_one_period(steps: list[tuple[int, bool]]) -> None:
    """Whenever requests arrive: the timer of the test runs the checks at the times that fast failure chooses."""
    world = World(200, page_cache=FakePageCache(held_ms=0))
    next_ms = 0.0
    now_ms = 0.0
    for wait_ms, arrives in steps:
        until_ms = now_ms + wait_ms
        while next_ms <= until_ms:
            world.clock.advance_ms(next_ms - now_ms)
            now_ms = next_ms
            world.fast_failure.expire()
            oldest_ms = world.send.queue.head_wait_ms(world.clock.monotonic_ns())
            assert oldest_ms < 200
            assert all(period_in_queue_ms(each.remark) <= 200 + 10 for each in world.responses())
            next_ms += world.fast_failure.period_s() * 1000
        world.clock.advance_ms(until_ms - now_ms)
        now_ms = until_ms
        if arrives:
            world.offer()


def period_in_queue_ms(remark: str) -> int:
    return int(remark.partition("period in queue: ")[2].partition("ms")[0])

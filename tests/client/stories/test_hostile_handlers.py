"""Handlers that return nonsense, raise errors that are no ``Exception``, or ignore their cancellation."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.handlers import ordered as ordered_mode
from pocketmq.client.handlers import worker_pool
from pocketmq.client.handlers.consume_result import Later
from pocketmq.client.pull.pull_wire import PullResult, QueueResult
from pocketmq.client.pull.subscription import parse_subscription
from pocketmq.client.push.pull_failures import PullFailures
from pocketmq.client.push.push_consumer import PushConsumer
from pocketmq.client.push.queue_pull import PullSettings, QueuePull
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.codes import ResponseCode
from tests.client.consume_fakes import Bench, Events, FakeMessage, until
from tests.client.handlers.test_ordered import World, feed

KINDS = pytest.mark.parametrize("kind", ["async", "plain", "batch", "plain batch"])


class Broken:
    """Its ``repr`` raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class BrokenError(Exception):
    __repr__ = __str__ = Broken.__repr__


class NotAnException(BaseException):
    """Some libraries have such errors, pytest's ``fail`` among them."""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    running = Bench(concurrency=2)
    yield running
    async with asyncio.timeout(60):
        await running.stop()


def handler_of(kind: str, act: Callable[[], Any]) -> tuple[Any, int]:
    """Return (handler, batch size); the handler misbehaves for the first three messages."""

    def plain(argument: Any) -> Any:
        first = argument[0] if isinstance(argument, list) else argument
        return act() if first.queue_offset < 3 else None

    async def handle(argument: Any) -> Any:
        return plain(argument)

    return (plain if "plain" in kind else handle), (1 if "batch" in kind else 0)


def fail_with(error: type[BaseException]) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@KINDS
@pytest.mark.parametrize("error", [BrokenError, NotAnException, StopIteration, asyncio.CancelledError])
async def test_whatever_a_handler_raises_is_its_failure(bench: Bench, error: Any, kind: str) -> None:
    """There are more failures than workers: all of them go to the policy, and the other messages are handled."""
    handler, batch_max = handler_of(kind, fail_with(error))
    runner = bench.queue(bench.call(handler, batch_max), 10)
    await until(lambda: runner.process_queue.commit_offset == 10)
    assert sorted(m.queue_offset for messages, _, _ in bench.policy.calls for m in messages) == [0, 1, 2]


@KINDS
@pytest.mark.parametrize("named", [5, [1], "ab"])
async def test_later_for_what_is_no_message_is_a_failure(bench: Bench, named: Any, kind: str) -> None:
    """The whole call is repeated."""

    def answer() -> Later:
        return Later(messages=named)

    handler, batch_max = handler_of(kind, answer)
    runner = bench.queue(bench.call(handler, batch_max), 10)
    await until(lambda: runner.process_queue.commit_offset == 10)
    assert sorted(m.queue_offset for messages, _, _ in bench.policy.calls for m in messages) == [0, 1, 2]
    with pytest.raises(ConfigError, match="no message"):
        answer()


@KINDS
async def test_an_answer_without_a_repr_is_done_with_a_warning(bench: Bench, kind: str) -> None:
    """It counts as nonsense."""
    handler, batch_max = handler_of(kind, Broken)
    runner = bench.queue(bench.call(handler, batch_max), 10)
    await until(lambda: runner.process_queue.commit_offset == 10)
    [told] = bench.log.named("handler_answer_unknown")
    assert "Broken" in told["returned"]


def test_later_takes_a_generator() -> None:
    """It is read twice: by a wrapper around the handler, and by the consumer."""
    given: Any = (message for message in [FakeMessage(3)])
    later = Later(messages=given)
    assert later.messages is not None
    assert [message.queue_offset for message in later.messages] == [3]
    assert [message.queue_offset for message in later.messages] == [3]


async def test_a_handler_that_cannot_be_canceled_does_not_keep_the_consumer_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is cancelled, awaited for another while, and left behind."""
    monkeypatch.setattr(worker_pool, "CANCEL_WAIT_S", 0.05)
    bench, end = Bench(concurrency=1), asyncio.Event()

    async def handle(message: Any) -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    bench.queue(bench.call(handle), 1)
    await until(lambda: len(bench.watch.running()) == 1)
    async with asyncio.timeout(60):
        await bench.stop()
    assert not end.is_set(), "the handler was still at work when the stop ended"
    end.set()


@pytest.mark.parametrize("kind", ["async", "plain", "batch"])
async def test_an_ordered_queue_survives_what_its_handler_raises(kind: str) -> None:
    """The head is retried after the pause; the worker survives, and the queue continues in order."""
    tries: list[int] = []

    def plain(argument: Any) -> None:
        first = argument[0] if isinstance(argument, list) else argument
        tries.append(first.queue_offset)
        if tries.count(1) < 3 and first.queue_offset == 1:
            raise NotAnException

    async def handle(argument: Any) -> None:
        plain(argument)

    world = World(plain if kind == "plain" else handle, batch_max=1 if kind == "batch" else 0, concurrency=1)
    feed(world.open(), 0, 1, 2)
    await until(lambda: tries == [0, 1, 1, 1, 2])
    async with asyncio.timeout(60):
        await world.mode.stop(0.1)
    world.close()


async def test_an_ordered_handler_that_cannot_be_canceled_does_not_keep_the_mode_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mode does the same as concurrent consumption."""
    monkeypatch.setattr(ordered_mode, "CANCEL_WAIT_S", 0.05)
    end, began = asyncio.Event(), asyncio.Event()

    async def handle(message: Any) -> None:
        began.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    world = World(handle, concurrency=1)
    feed(world.open(), 0)
    await began.wait()
    async with asyncio.timeout(60):
        await world.mode.stop(0)
    end.set()
    world.close()


async def test_a_queue_that_lost_what_is_in_hand_begins_anew(bench: Bench) -> None:
    """A broker that returns with less has the same offsets for other messages: old and new must not be confused."""
    end = asyncio.Event()

    async def handle(message: Any) -> None:
        await end.wait()

    runner = bench.queue(bench.call(handle), 10)
    process_queue = runner.process_queue

    class Wire:
        def frame(self, *_: Any) -> None:
            """Not needed: no short pull is possible."""

        async def pull_short(self, *_: Any) -> None:
            """Leave it to ``pull``."""

        async def pull(self, broker_name: str, positions: Any, *_: Any, **__: Any) -> list[PullResult]:
            (queue, offset), code = positions[0], int(ResponseCode.PULL_OFFSET_MOVED)
            assert offset == 10
            return [PullResult("b", [QueueResult(queue, code, 5, 0, 5, 0)], memoryview(b""), None)]

    wire: Any = Wire()
    subscription = parse_subscription("T", "*", 1)
    settings = PullSettings(32, 0, lambda: False, PullFailures(bench.instance.clock, bench.instance.log))
    pull = QueuePull(wire, bench.mode, runner, subscription, bench.instance, settings, bench.statistics.counts("T"))
    pull.start()
    await until(lambda: process_queue.dropped)
    await pull.stop()
    end.set()
    await until(lambda: bench.watch.running() == [])
    assert process_queue.next_pull_offset == 10


@pytest.mark.parametrize(("ordered", "level"), [(False, 0), (True, -1)])
async def test_the_retry_of_a_topic_that_nobody_handles_here_is_not_lost(ordered: bool, level: int) -> None:
    """An older member may subscribe to the topic; at last, or if it would block its queue, it becomes a dead letter."""
    consumer = PushConsumer("g", instance=ClientInstance("127.0.0.1:1", log=Events()))
    for topic in ("A", "B"):
        consumer.subscribe(topic, ordered=ordered)(print)
    consumer._concurrent.start()
    consumer._subscribe_to_retries()
    message: Any = FakeMessage(0, "C")
    outcome = await consumer._topics["%RETRY%g"].call.run([message])
    assert (list(outcome.later), outcome.delay_level) == ([message], level)

"""Concurrent consumption without a broker: calls of handlers, and the results for their messages."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.handlers.consume_result import ConsumeResult, Later
from pocketmq.client.handlers.handler_call import handler_name
from tests.client.consume_fakes import Bench, until


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    running = Bench(concurrency=5)
    yield running
    await running.stop()


@pytest.mark.parametrize("answer", [None, True, ConsumeResult.SUCCESS])
async def test_answers_that_mean_done(bench: Bench, answer: Any) -> None:
    """Every message is finished, none goes to the policy, none is logged."""

    async def handle(message: Any) -> Any:
        return answer

    runner = bench.queue(bench.call(handle), 100)
    await until(lambda: runner.process_queue.commit_offset == 100)
    assert bench.policy.calls == []
    assert bench.log.events == []
    assert bench.statistics.counts("T").ok == 100


@pytest.mark.parametrize(
    ("answer", "level"), [(False, 0), (ConsumeResult.LATER, 0), (Later(delay_level=5), 5), (Later(delay_level=-1), -1)]
)
@pytest.mark.parametrize("kind", ["async", "plain", "batch"])
async def test_answers_that_mean_later(bench: Bench, answer: Any, level: int, kind: str) -> None:
    """The policy gets the messages with the delay level; those it accepts are finished."""

    async def handle(message: Any) -> Any:
        return answer

    handler = handle if kind != "plain" else lambda message: answer
    runner = bench.queue(bench.call(handler, 4 if kind == "batch" else 0), 8)
    await until(lambda: runner.process_queue.commit_offset == 8)
    taken = [message.queue_offset for messages, _, _ in bench.policy.calls for message in messages]
    assert sorted(taken) == list(range(8))
    assert {called for _, _, called in bench.policy.calls} == {level}
    assert bench.statistics.counts("T").failed == 8


@pytest.mark.parametrize("kind", ["async", "plain", "batch"])
async def test_an_exception_means_later(bench: Bench, kind: str) -> None:
    """The reason is its repr; the other messages are not affected."""

    def fail(messages: Any) -> None:
        first = messages[0] if isinstance(messages, list) else messages
        if first.queue_offset == 3:
            raise ValueError("three")

    async def handle(message: Any) -> None:
        fail(message)

    runner = bench.queue(bench.call(fail if kind == "plain" else handle, 1 if kind == "batch" else 0), 10)
    await until(lambda: runner.process_queue.commit_offset == 10)
    [(messages, reason, level)] = bench.policy.calls
    assert [message.queue_offset for message in messages] == [3]
    assert reason == "ValueError('three')"
    assert level == 0
    assert [fields["reason"] for fields in bench.log.named("handler_failed")] == [reason]


async def test_a_batch_can_name_what_failed(bench: Bench) -> None:
    """The rest of the batch is done."""

    async def handle(messages: list[Any]) -> Any:
        return Later(messages=[message for message in messages if message.queue_offset % 3 == 0])

    runner = bench.queue(bench.call(handle, 10), 10)
    await until(lambda: runner.process_queue.commit_offset == 10)
    assert [message.queue_offset for messages, _, _ in bench.policy.calls for message in messages] == [0, 3, 6, 9]
    assert bench.statistics.counts("T").ok == 6


async def test_batches_have_at_most_the_size_asked_for(bench: Bench) -> None:
    """They are in order, from one queue, and never empty."""
    sizes: list[int] = []

    async def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))

    runner = bench.queue(bench.call(handle, 7), 100)
    await until(lambda: runner.process_queue.commit_offset == 100)
    assert sum(sizes) == 100
    assert max(sizes) == 7
    assert min(sizes) >= 1


async def test_nonsense_is_warned_of_once_and_counts_as_done(bench: Bench) -> None:
    """The handler did not raise."""

    async def handle(message: Any) -> Any:
        return {"rows": 3}

    runner = bench.queue(bench.call(handle), 50)
    await until(lambda: runner.process_queue.commit_offset == 50)
    [warning] = bench.log.named("handler_answer_unknown")
    assert "rows" in warning["returned"]
    assert warning["handler"].endswith("handle")


async def test_what_the_policy_does_not_take_comes_again_here(bench: Bench) -> None:
    """They repeat after the pause, until they are accepted or done; meanwhile they hold the commit."""
    calls: list[int] = []
    bench.policy.takes = False

    async def handle(message: Any) -> Any:
        calls.append(message.queue_offset)
        return message.queue_offset != 2 or len(calls) > 12

    runner = bench.queue(bench.call(handle), 6)
    await until(lambda: len(calls) > 8)
    assert runner.process_queue.commit_offset == 2
    await until(lambda: runner.process_queue.commit_offset == 6)


async def test_a_policy_that_raises_has_taken_nothing(bench: Bench) -> None:
    """Its fault is logged; the message is retried, and no worker is lost."""
    bench.policy.raises = True

    async def handle(message: Any) -> Any:
        return False

    runner = bench.queue(bench.call(handle), 3)
    await until(lambda: len(bench.log.named("failure_policy_failed")) > 3)
    bench.policy.raises = False
    await until(lambda: runner.process_queue.commit_offset == 3)


async def test_a_handler_that_fails_always_does_not_flood_the_log(bench: Bench) -> None:
    """At most ten lines a second; the number left out is logged."""

    async def handle(message: Any) -> None:
        raise ValueError

    runner = bench.queue(bench.call(handle), 900)
    await until(lambda: runner.process_queue.commit_offset == 900)
    assert len(bench.policy.calls) == 900
    assert 1 <= len(bench.log.named("handler_failed")) <= 200


async def test_a_queue_that_hangs_leaves_workers_to_the_others(bench: Bench) -> None:
    """All calls for queue 0 hang for ever; queue 1, which gets messages later, is completed."""
    forever = asyncio.Event()

    async def handle(message: Any) -> None:
        if message.queue_id == 0:
            await forever.wait()

    call = bench.call(handle)
    hung, quick = bench.queue(call, queue_id=0), bench.queue(call, queue_id=1)
    from tests.client.consume_fakes import FakeMessage

    bench.put(hung, [FakeMessage(offset) for offset in range(100)])
    await until(lambda: len(bench.watch.running()) == 4)
    bench.put(quick, [FakeMessage(offset, queue_id=1) for offset in range(100)])
    await until(lambda: quick.process_queue.commit_offset == 100)
    assert hung.process_queue.commit_offset == 0
    assert len(bench.watch.running()) == 4


async def test_handlers_of_two_topics_do_not_share_workers(bench: Bench) -> None:
    """One topic's handler hangs on as many messages as it may have; the other topic goes on."""

    async def hang(message: Any) -> None:
        await asyncio.Event().wait()

    async def handle(message: Any) -> None:
        pass

    hung = bench.queue(bench.call(hang), 100)
    quick = bench.queue(bench.call(handle), 100, topic="U")
    await until(lambda: quick.process_queue.commit_offset == 100)
    assert hung.process_queue.commit_offset == 0
    assert len(bench.watch.running()) == 5


async def test_no_more_calls_run_at_once_than_asked_for(bench: Bench) -> None:
    """This holds for async and plain handlers."""
    running, most = 0, [0, 0]

    async def handle(message: Any) -> None:
        nonlocal running
        running += 1
        most[0] = max(most[0], running)
        await asyncio.sleep(0.001)
        running -= 1

    lock, in_threads, pair = threading.Lock(), [0], threading.Barrier(2)

    def plain(message: Any) -> None:
        with lock:
            in_threads[0] += 1
            most[1] = max(most[1], in_threads[0])
        if message.queue_offset < 2:
            pair.wait(60)  # two at least run at once
        threading.Event().wait(0.001)
        with lock:
            in_threads[0] -= 1

    one = bench.queue(bench.call(handle), 60)
    two = bench.queue(bench.call(plain), 60, topic="U")
    await until(lambda: one.process_queue.commit_offset == two.process_queue.commit_offset == 60)
    assert most[0] == 5
    assert 2 <= most[1] <= 5


async def test_messages_of_the_retry_topic_go_to_the_handler_of_their_own(bench: Bench) -> None:
    """They share its workers, and finish in the retry topic's queue."""
    from tests.client.consume_fakes import FakeMessage

    got: dict[str, list[int]] = {"T": [], "U": []}

    async def one(message: Any) -> None:
        got["T"].append(message.queue_offset)

    async def two(message: Any) -> None:
        got["U"].append(message.queue_offset)

    first, second = bench.call(one), bench.call(two)
    bench.mode.add_topic("T", first)
    bench.mode.add_topic("U", second)
    retries = bench.queue(first, topic="%RETRY%g")
    bench.put(retries, [FakeMessage(offset, "TU"[offset % 2]) for offset in range(10)])
    await until(lambda: retries.process_queue.commit_offset == 10)
    assert sorted(got["T"]) == [0, 2, 4, 6, 8]
    assert sorted(got["U"]) == [1, 3, 5, 7, 9]


async def test_a_full_queue_is_told_when_it_has_room(bench: Bench) -> None:
    """It is notified once, after the pull reported that it waits."""
    release = asyncio.Event()

    async def handle(message: Any) -> None:
        await release.wait()

    runner = bench.queue(bench.call(handle), 10, count_max=10)
    assert runner.process_queue.full() == "count"
    runner.process_queue.wants_room = True
    release.set()
    await until(lambda: runner.process_queue.commit_offset == 10)
    assert bench.drained == [runner.process_queue]


async def test_finish_waits_for_what_runs_and_starts_nothing(bench: Bench) -> None:
    """Messages whose handler has not begun stay uncommitted."""
    release, begun = asyncio.Event(), []

    async def handle(message: Any) -> None:
        begun.append(message.queue_offset)
        await release.wait()

    runner = bench.queue(bench.call(handle), 50)
    await until(lambda: len(begun) == 5)
    finishing = asyncio.create_task(bench.mode.finish([runner], 10))
    await asyncio.sleep(0.01)
    assert not finishing.done()
    release.set()
    assert await finishing == ()
    assert len(begun) == 5
    assert runner.process_queue.commit_offset == 5


async def test_a_failure_while_the_queue_is_given_up_is_not_sent_back(bench: Bench) -> None:
    """The queue's next owner gets the message, because the offset stays before it."""
    release = asyncio.Event()

    async def handle(message: Any) -> None:
        await release.wait()
        raise ValueError

    runner = bench.queue(bench.call(handle), 3)
    await until(lambda: len(bench.watch.running()) == 3)
    finishing = asyncio.create_task(bench.mode.finish([runner], 10))
    await asyncio.sleep(0)
    release.set()
    await finishing
    assert bench.policy.calls == []
    assert runner.process_queue.commit_offset == 0


async def test_stop_cancels_what_does_not_end() -> None:
    """The log names the cancelled calls."""
    bench = Bench(concurrency=2)
    ended: list[str] = []

    async def handle(message: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    bench.queue(bench.call(handle), 3)
    await until(lambda: len(bench.watch.running()) == 2)
    await bench.stop()
    assert ended == ["cancelled"] * 2
    assert [fields["handlers"] for fields in bench.log.named("handlers_cancelled")] == [2]
    assert bench.watch.running() == []


async def test_kinds_of_handlers(bench: Bench) -> None:
    """A partial of a coroutine function and an async __call__ are async; a lambda around one is awaited."""
    threads: set[int] = set()

    async def handle(mark: str, message: Any) -> None:
        threads.add(threading.get_ident())

    class Handler:
        async def __call__(self, message: Any) -> None:
            threads.add(threading.get_ident())

    calls = [
        bench.call(functools.partial(handle, "x")),
        bench.call(Handler()),
        bench.call(lambda message: handle("x", message)),
    ]
    assert [call.is_async for call in calls] == [True, True, False]
    runners = [bench.queue(call, 5, topic=f"T{number}") for number, call in enumerate(calls)]
    await until(lambda: all(runner.process_queue.commit_offset == 5 for runner in runners))
    assert threads == {threading.get_ident()}
    assert handler_name(functools.partial(handle, "x")).endswith(".handle")
    nothing: Any = None
    with pytest.raises(SubscriptionIllegal, match="cannot be called"):
        bench.call(nothing)

"""Handlers that take too long, and handlers that hold the event loop."""

import asyncio
import threading
from typing import Any

from pocketmq.client.handlers.handler_watch import HandlerWatch
from pocketmq.client.push.consume_timeout import ConsumeTimeout
from pocketmq.client.push.consumer_options import ConsumerOptions
from pocketmq.client.push.loop_watch import LoopWatch
from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.runner import SteppedRunner
from tests.client.consume_fakes import Bench, Events, FakeMessage, until


def timeouts(bench: Bench, **settings: Any) -> ConsumeTimeout:
    options = ConsumerOptions(**settings)
    return ConsumeTimeout(bench.watch, bench.mode, bench.policy, options, bench.instance.clock, bench.log)


async def test_a_slow_call_is_reported_once() -> None:
    """The log has handler, message and age; the call goes on."""
    clock = ManualClock()
    bench = Bench(concurrency=2, clock=clock)
    release = asyncio.Event()

    async def handle(message: Any) -> None:
        await release.wait()

    runner = bench.queue(bench.call(handle), 1)
    await until(lambda: len(bench.watch.running()) == 1)
    look = timeouts(bench, slow_handler_ms=1000).check
    await look()
    assert bench.log.events == []
    clock.advance_ms(1500)
    await look()
    await look()
    [told] = bench.log.named("handler_slow")
    assert told["age_ms"] == 1500
    assert told["message"].queue_offset == 0
    assert told["handler"].endswith("handle")
    release.set()
    await until(lambda: runner.process_queue.commit_offset == 1)
    await bench.stop()


async def test_a_hung_call_gives_its_message_back_and_is_replaced() -> None:
    """This happens after the consume timeout, with level 3; a late answer has no effect, other messages are handled."""
    clock = ManualClock()
    bench = Bench(concurrency=1, clock=clock)
    release, done = asyncio.Event(), []

    async def handle(message: Any) -> bool:
        if message.queue_offset == 0:
            await release.wait()
            return False
        done.append(message.queue_offset)
        return True

    runner = bench.queue(bench.call(handle), 5)
    await until(lambda: len(bench.watch.running()) == 1)
    look = timeouts(bench, consume_timeout_ms=60_000).check
    clock.advance_ms(60_000)
    await look()
    await look()
    [told] = bench.log.named("consume_timeout")
    assert told["age_ms"] == 60_000
    assert told["queue"] == "T@b:0"
    [(messages, reason, level)] = bench.policy.calls
    assert [message.queue_offset for message in messages] == [0]
    assert "60000 ms" in reason
    assert level == 3
    await until(lambda: runner.process_queue.commit_offset == 5)
    assert done == [1, 2, 3, 4]
    await asyncio.sleep(0.005)
    bench.put(runner, [FakeMessage(5)])
    await until(lambda: done == [1, 2, 3, 4, 5])
    release.set()
    await until(lambda: bench.watch.running() == [])
    assert len(bench.policy.calls) == 1
    [pool] = bench.mode._pools.values()
    await until(lambda: pool.worker_count == 1)
    assert runner.process_queue.commit_offset == 6
    assert runner.process_queue.size_bytes == 0
    await bench.stop()


async def test_replacements_are_bounded() -> None:
    """A handler that hangs on every message gets as many additional workers, and no more."""
    clock = ManualClock()
    bench = Bench(concurrency=2, clock=clock)
    begun: list[int] = []

    async def handle(message: Any) -> None:
        begun.append(message.queue_offset)
        await asyncio.Event().wait()

    bench.queue(bench.call(handle), 50)
    look = timeouts(bench, consume_timeout_ms=1000).check
    for workers in (2, 4, 4, 4, 4):
        await until(lambda workers=workers: len(begun) == workers)
        clock.advance_ms(1000)
        await look()
    await asyncio.sleep(0.01)
    assert begun == [0, 1, 2, 3]
    await bench.stop()


async def test_messages_that_nobody_takes_stay_with_the_hung_call() -> None:
    """The next check tries again."""
    clock = ManualClock()
    bench = Bench(concurrency=1, clock=clock)
    bench.policy.takes = False

    async def handle(message: Any) -> None:
        await asyncio.Event().wait()

    runner = bench.queue(bench.call(handle), 1)
    await until(lambda: len(bench.watch.running()) == 1)
    look = timeouts(bench, consume_timeout_ms=1000).check
    clock.advance_ms(1000)
    await look()
    assert runner.process_queue.commit_offset == 0
    bench.policy.takes = True
    await look()
    assert runner.process_queue.commit_offset == 1
    await bench.stop()


async def test_calls_of_ordered_consumption_never_time_out() -> None:
    """Their queue would lose its order; the log reports that they are slow."""
    clock = ManualClock()
    bench = Bench(clock=clock)
    runner = bench.queue(bench.call(print))
    message: Any = FakeMessage(0)
    call = bench.watch.began("ordered", runner.process_queue, [message])
    clock.advance_ms(10_000_000)
    await timeouts(bench).check()
    assert bench.policy.calls == []
    assert len(bench.log.named("handler_slow")) == 1
    bench.watch.remove(call)
    await bench.stop()


async def test_a_handler_that_blocks_the_loop_is_named() -> None:
    """A real loop and a real thread that checks it: handler, message, place in the code and a hint, logged once."""
    events = Events()
    bench = Bench(concurrency=1)
    looked = threading.Event()
    runner = SteppedRunner()
    watch = LoopWatch(bench.watch, 20, SystemClock(), events, runner)

    def look_while_blocked() -> None:
        threading.Event().wait(0.05)
        watch.check()
        watch.check()
        looked.set()

    async def handle(message: Any) -> None:
        threading.Thread(target=look_while_blocked).start()
        looked.wait(60)

    watch.start()
    queue = bench.queue(bench.call(handle), 1)
    await until(lambda: queue.process_queue.commit_offset == 1)
    watch.stop()
    [told] = events.named("event_loop_blocked")
    assert told["handler"].endswith("handle")
    assert told["message"].queue_offset == 0
    assert told["blocked_ms"] >= 20
    assert "test_hung_handlers.py" in told["where"]
    assert "plain function" in told["hint"]
    assert runner.workers[0].stopped
    await bench.stop()


async def test_a_loop_that_turns_is_not_reported() -> None:
    """This holds for any number of checks; 0 ms disables the check."""
    events, clock, runner = Events(), ManualClock(), SteppedRunner()
    watch = LoopWatch(HandlerWatch(clock), 1000, clock, events, runner)
    watch.start()
    for _ in range(10):
        clock.advance_ms(240)
        watch._beat()
        assert watch.check() == 250
    clock.advance_ms(1300)
    watch.check()
    [told] = events.named("event_loop_blocked")
    assert told["blocked_ms"] == 1300
    watch.stop()
    LoopWatch(HandlerWatch(clock), 0, clock, events, runner).start()
    assert len(runner.workers) == 1

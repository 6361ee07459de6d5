"""The ordered mode alone: order, failures, locks; the tests act as brokers and pulls."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.consume_result import DEAD_LETTER, ConsumeResult, Later
from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.handler_watch import HandlerWatch
from pocketmq.client.handlers.ordered import NOT_LOCKED_PAUSE_MS, OrderedMode
from pocketmq.client.handlers.process_queue import ProcessLimits, ProcessQueue
from pocketmq.client.handlers.queue_mode import ConsumeContext
from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record_codec import encode_record, received_message
from pocketmq.common.runner import Supervisor


class Instance:
    """The part of a client instance that the mode needs."""

    def __init__(self) -> None:
        self.routes: dict[str, Any] = {}
        self.clock = SystemClock()
        self.log = CapturedLog()
        self.supervisor = Supervisor(self.log, self.clock)
        self.client_id = "me"


class Policy:
    """Keeps the messages it gets; with ``takes`` False it accepts none."""

    retry_topic = "%RETRY%g"

    def __init__(self) -> None:
        self.given: list[tuple[int, str, int]] = []
        self.takes = True

    async def failed(self, messages: Sequence[ReceivedMessage], reason: str, level: int) -> Sequence[ReceivedMessage]:
        self.given += [(message.queue_offset, reason, level) for message in messages]
        return () if self.takes else messages


class Lease:
    def __init__(self, token: int) -> None:
        self.token = token
        self.valid = True

    def is_valid(self, now_ns: int) -> bool:
        return self.valid


class Locks:
    """Leases that the test grants and withdraws."""

    def __init__(self) -> None:
        self.leases: dict[MessageQueue, Lease] = {}

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.leases.clear()

    def lease(self, queue: MessageQueue) -> Lease | None:
        return self.leases.get(queue)

    def is_valid(self, queue: MessageQueue) -> bool:
        lease = self.leases.get(queue)
        return lease is not None and lease.valid

    def token(self, queue: MessageQueue) -> int:
        lease = self.leases.get(queue)
        return lease.token if lease else 0


class World:
    """A mode with its surroundings. ``got`` keeps the messages that handlers were called with."""

    def __init__(
        self, handler: Callable[[Any], Any], *, batch_max: int = 0, locks: Locks | None = None, **options: Any
    ):
        self.instance = Instance()
        self.policy = Policy()
        self.drained: list[ProcessQueue] = []
        self.rebalances = 0
        self.statistics = ConsumerStatistics(self.instance.clock)
        instance: Any = self.instance
        context = ConsumeContext(
            group="g",
            message_model="BROADCASTING",
            instance=instance,
            policy=self.policy,
            watch=HandlerWatch(self.instance.clock),
            drained=self.drained.append,
            rebalance_soon=self._rebalance,
            consume_retry_ms=10,
            statistics=self.statistics,
            **{"concurrency": 20, "max_reconsume_times": -1, "suspend_current_queue_time_millis": 10, **options},
        )
        self.mode = OrderedMode(context)
        if locks is not None:
            given: Any = locks
            self.mode.locks = given
        self.threads = ThreadPoolExecutor(4)
        self.call = HandlerCall(handler, batch_max=batch_max, log=self.instance.log, threads=lambda: self.threads)
        self.mode.start()

    def _rebalance(self) -> None:
        self.rebalances += 1

    def open(self, queue_id: int = 0, topic: str = "T") -> Any:
        queue = MessageQueue(topic, "b", queue_id)
        return self.mode.runner(ProcessQueue(queue, 0, ProcessLimits()), self.call)

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
async def world_of() -> AsyncIterator[Any]:
    """Make worlds, and stop their modes at the end."""
    worlds: list[World] = []

    def make(handler: Callable[[Any], Any], **options: Any) -> World:
        worlds.append(World(handler, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.mode.stop(5)
        world.close()


def message(offset: int, queue_id: int = 0, topic: str = "T") -> ReceivedMessage:
    record = encode_record(
        topic,
        b"%d" % offset,
        queue_id=queue_id,
        queue_offset=offset,
        properties=b"",
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )
    return received_message(record, "b")


def feed(runner: Any, *offsets: int) -> None:
    """Act as a pull."""
    queue = runner.process_queue.queue
    messages = [message(offset, queue.queue_id, queue.topic) for offset in offsets]
    runner.process_queue.pulled(messages, offsets[-1] + 1)
    runner.put(messages)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def commit_offset(runner: Any) -> int:
    offset: int = runner.process_queue.commit_offset
    return offset


@pytest.mark.parametrize("kind", ["async", "plain", "batch", "plain batch"])
async def test_each_queue_keeps_its_order_and_has_one_call_at_a_time(world_of: Any, kind: str) -> None:
    """Whatever the handlers do, wait for, fail or put off; different queues run in parallel."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    done: dict[int, list[int]] = {number: [] for number in range(6)}
    running: set[int] = set()
    together = 0

    def decide(messages: list[ReceivedMessage]) -> Any:
        if rng.random() < 0.05:
            raise ValueError("unlucky")
        if rng.random() < 0.05:
            return ConsumeResult.LATER
        done[messages[0].queue_id] += [each.queue_offset for each in messages]
        return None

    async def handle(given: Any) -> Any:
        nonlocal together
        messages = given if isinstance(given, list) else [given]
        queue_id = messages[0].queue_id
        assert queue_id not in running
        running.add(queue_id)
        together = max(together, len(running))
        try:
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() / 500)
            return decide(messages)
        finally:
            running.discard(queue_id)

    def handle_plain(given: Any) -> Any:
        messages = given if isinstance(given, list) else [given]
        queue_id = messages[0].queue_id
        assert queue_id not in running
        running.add(queue_id)
        try:
            return decide(messages)
        finally:
            running.discard(queue_id)

    world = world_of(handle_plain if "plain" in kind else handle, batch_max=5 if "batch" in kind else 0, concurrency=3)
    runners = [world.open(number) for number in range(6)]
    for start in range(0, 120, 30):
        for runner in runners:
            feed(runner, *range(start, start + 30))
        await asyncio.sleep(0)
    await until(lambda: all(commit_offset(runner) == 120 for runner in runners))
    assert all(offsets == list(range(120)) for offsets in done.values())
    if kind == "async":
        assert together == 3


async def test_a_failed_message_holds_its_queue_and_no_other(world_of: Any) -> None:
    """It is retried after the pause, with its count; messages behind it wait and are not committed."""
    calls: list[tuple[int, int, int]] = []

    async def handle(each: ReceivedMessage) -> Any:
        calls.append((each.queue_id, each.queue_offset, each.reconsume_times))
        if each.queue_id == 0 and each.queue_offset == 1 and each.reconsume_times < 2:
            return ConsumeResult.LATER
        return None

    world = world_of(handle, suspend_current_queue_time_millis=60)
    slow, quick = world.open(0), world.open(1)
    feed(slow, 0, 1, 2)
    feed(quick, 0, 1, 2)
    await until(lambda: commit_offset(quick) == 3)
    assert commit_offset(slow) == 1
    await until(lambda: commit_offset(slow) == 3)
    assert [call for call in calls if call[0] == 0] == [(0, 0, 0), (0, 1, 0), (0, 1, 1), (0, 1, 2), (0, 2, 0)]
    [event] = world.instance.log.of("ordered_queue_suspended")
    assert (event["queue"], event["attempts"], event["behind_it"], event["again_in_ms"]) == ("T@b:0", 1, 1, 60)


async def test_after_the_last_try_the_message_is_a_dead_letter_and_the_queue_goes_on(world_of: Any) -> None:
    """RocketMQ: one try and ``max_reconsume_times`` more."""
    calls: list[int] = []

    async def handle(each: ReceivedMessage) -> None:
        calls.append(each.queue_offset)
        if each.queue_offset == 1:
            raise ValueError("never")

    world = world_of(handle, max_reconsume_times=2)
    runner = world.open()
    feed(runner, 0, 1, 2)
    await until(lambda: commit_offset(runner) == 3)
    assert calls == [0, 1, 1, 1, 2]
    assert world.policy.given == [(1, "ValueError('never')", DEAD_LETTER)]
    assert runner.attempts == {}


async def test_a_dead_letter_that_nobody_takes_stays_at_the_head(world_of: Any) -> None:
    """Order and message matter more than progress."""
    world = world_of(lambda each: False, max_reconsume_times=0)
    world.policy.takes = False
    runner = world.open()
    feed(runner, 0, 1)
    await until(lambda: len(world.policy.given) >= 3)
    assert {offset for offset, _, _ in world.policy.given} == {0}
    assert commit_offset(runner) == 0
    world.policy.takes = True
    await until(lambda: commit_offset(runner) == 2)


async def test_a_handler_can_ask_for_a_rest_or_for_the_dead_letters(world_of: Any) -> None:
    """``Later(suspend_ms=...)`` and ``Later(delay_level=-1)``; other delay levels have no meaning in order."""
    answers = iter([Later(suspend_ms=77), Later(delay_level=5), Later(delay_level=-1), None])

    async def handle(each: ReceivedMessage) -> Any:
        return next(answers)

    world = world_of(handle)
    runner = world.open()
    feed(runner, 0, 1)
    await until(lambda: commit_offset(runner) == 2)
    assert [given[::2] for given in world.policy.given] == [(0, DEAD_LETTER)]
    assert world.instance.log.of("ordered_queue_suspended")[0]["again_in_ms"] == 77


async def test_a_batch_that_failed_in_part_tries_that_part_again_before_all_others(world_of: Any) -> None:
    """They are retried in the queue's order."""
    calls: list[list[int]] = []

    async def handle(batch: list[ReceivedMessage]) -> Any:
        calls.append([each.queue_offset for each in batch])
        return Later(messages=[batch[3], batch[1]]) if len(calls) == 1 else None

    world = world_of(handle, batch_max=4)
    runner = world.open()
    feed(runner, 0, 1, 2, 3, 4)
    await until(lambda: commit_offset(runner) == 5)
    assert calls == [[0, 1, 2, 3], [1, 3, 4]]
    assert world.statistics.counts("T").ok == 5
    assert world.statistics.counts("T").failed == 2


async def test_without_its_lock_a_queue_calls_nobody_and_is_not_pulled(world_of: Any) -> None:
    """Messages in hand wait; under the same token the queue continues with them."""
    locks = Locks()
    got: list[Any] = []

    async def handle(each: ReceivedMessage) -> None:
        got.append((each.queue_offset, each.fencing_token))
        if each.queue_offset == 1:
            lease.valid = False

    queue = MessageQueue("T", "b", 0)
    lease = locks.leases[queue] = Lease(7)
    world = world_of(handle, locks=locks)
    runner = world.open()
    assert (runner.fencing_token, runner.pull_pause_ms()) == (7, 0)
    feed(runner, 0, 1, 2, 3)
    await until(lambda: commit_offset(runner) == 2)
    feed(runner, 4)
    await asyncio.sleep(0.02)
    assert got == [(0, 7), (1, 7)]
    assert runner.pull_pause_ms() == NOT_LOCKED_PAUSE_MS
    assert commit_offset(runner) == 2
    lease.valid = True
    world.mode._regained(queue, True)
    await until(lambda: commit_offset(runner) == 5)
    assert world.drained == [runner.process_queue]
    assert [offset for offset, _ in got] == [0, 1, 2, 3, 4]


async def test_under_another_token_the_queue_begins_anew(world_of: Any) -> None:
    """Another client may have consumed meanwhile: messages in hand are dropped, none of them is committed."""
    locks = Locks()
    got: list[Any] = []
    queue = MessageQueue("T", "b", 0)
    lease = locks.leases[queue] = Lease(7)
    world = world_of(lambda each: got.append(each.queue_offset), locks=locks)
    runner = world.open()
    lease.valid = False
    feed(runner, 0, 1)
    lease.valid, lease.token = True, 9
    world.mode._regained(queue, False)
    await until(lambda: runner.process_queue.dropped and world.rebalances)
    await asyncio.sleep(0.02)
    assert got == []
    assert runner.process_queue.dropped
    assert world.rebalances == 1
    again = world.open()
    assert (again.fencing_token, runner.fencing_token) == (9, 7)
    feed(again, 0)
    await until(lambda: commit_offset(again) == 1)


async def test_a_queue_that_is_taken_away_ends_its_call_first(world_of: Any) -> None:
    """It is busy until then, and keeps its lock; waiting messages are left to the next owner."""
    gate = asyncio.Event()
    got: list[int] = []

    async def handle(each: ReceivedMessage) -> None:
        got.append(each.queue_offset)
        await gate.wait()

    world = world_of(handle)
    runner, other = world.open(0), world.open(1)
    feed(runner, 0, 1)
    await until(lambda: got == [0])
    assert await world.mode.finish([runner, other], 0.01) == [runner]
    gate.set()
    await until(lambda: world.rebalances == 1)
    assert await world.mode.finish([runner], 0.01) == []
    assert got == [0]
    assert commit_offset(runner) == 1


async def test_a_stop_waits_for_calls_then_cancels_them(world_of: Any) -> None:
    """The message of a cancelled call is not done."""
    cancelled: list[int] = []

    async def handle(each: ReceivedMessage) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(each.queue_offset)
            raise

    world = world_of(handle)
    runner = world.open()
    feed(runner, 0, 1)
    await until(lambda: runner.is_busy)
    await asyncio.sleep(0)
    await world.mode.stop(0.02)
    assert cancelled == [0]
    assert commit_offset(runner) == 0
    assert world.instance.log.of("handlers_cancelled")[0]["handlers"] == 1


async def test_a_handler_may_stop_its_consumer(world_of: Any) -> None:
    """The stop does not wait for the call that requested it."""
    stopped: list[int] = []

    async def handle(each: ReceivedMessage) -> None:
        assert world.mode.runs_here()
        await world.mode.stop(5)
        stopped.append(each.queue_offset)

    world = world_of(handle)
    runner = world.open()
    feed(runner, 0, 1)
    await until(lambda: stopped == [0])


async def test_a_queue_that_never_waits_leaves_the_loop_and_the_others_their_turns(world_of: Any) -> None:
    """With one worker for two queues."""
    order: list[int] = []

    async def handle(each: ReceivedMessage) -> None:
        order.append(each.queue_id)

    world = world_of(handle, concurrency=1)
    runners = [world.open(0), world.open(1)]
    for runner in runners:
        feed(runner, *range(200))
    await until(lambda: all(commit_offset(runner) == 200 for runner in runners))
    assert 1 in order[:64]
    assert 0 in order[-64:]


async def test_messages_of_the_retry_topic_go_to_the_handler_of_their_own_topic(world_of: Any) -> None:
    """A batch holds messages of one handler only."""
    got: list[tuple[str, list[int]]] = []

    async def handle(batch: list[ReceivedMessage]) -> None:
        got.append(("T", [each.queue_offset for each in batch]))

    async def handle_other(batch: list[ReceivedMessage]) -> None:
        got.append(("U", [each.queue_offset for each in batch]))

    world = world_of(handle, batch_max=10)
    world.mode.add_topic("T", world.call)
    world.mode.add_topic(
        "U", HandlerCall(handle_other, batch_max=10, log=world.instance.log, threads=lambda: world.threads)
    )
    runner = world.open(0, "%RETRY%g")
    messages = [message(offset, 0, topic) for offset, topic in enumerate(["T", "T", "U", "T"])]
    runner.process_queue.pulled(messages, 4)
    runner.put(messages)
    await until(lambda: commit_offset(runner) == 4)
    assert got == [("T", [0, 1]), ("U", [2]), ("T", [3])]

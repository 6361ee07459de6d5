"""A push consumer against a real broker."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import ConsumeFromWhere, Message, NotStarted, Producer, PushConsumer, ReceivedMessage
from pocketmq.client.admin.admin import Admin
from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.handlers.consume_result import KeepHere
from pocketmq.common.errors import ConfigError
from pocketmq.testing.broker import PocketBroker

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Any]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


def consumer_of(broker: PocketBroker, group: str, **options: Any) -> PushConsumer:
    options = {"consume_from_where": FIRST, "rebalance_interval_ms": 100, **options}
    return PushConsumer(group, broker.namesrv, **options)


async def until(condition: Any, timeout_s: Any = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def fill(producer: Producer, topic: str, count: Any, **fields: Any) -> None:
    messages = [Message(topic, b"%d" % number, sharding_key=f"s{number % 13}", **fields) for number in range(count)]
    await producer.send_batch(messages)


async def committed(broker: PocketBroker, group: str, topic: str) -> Any:
    """Read the group's offsets without joining it."""
    async with Admin(broker.namesrv) as admin:
        return [queue.consumer_offset for queue in (await admin.describe_group(group, topic=topic)).queues]


async def until_committed(broker: PocketBroker, group: str, topic: str, count: int) -> None:
    """Wait until the group has committed so many messages in all queues together."""
    async with asyncio.timeout(60):
        while sum(await committed(broker, group, topic)) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_every_message_reaches_the_handler_and_is_committed(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """Messages from before and after the start arrive; after the stop the broker has the offsets."""
    await fill(producer, topic, 200)
    got: list[Any] = []
    consumer = consumer_of(broker, group + "c")

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        got.append(int(message.body))

    async with consumer:
        await until(lambda: len(got) == 200)
        await producer.send(Message(topic, b"200"))
        await until(lambda: len(got) == 201)
    assert sorted(got) == list(range(201))
    assert sum(await committed(broker, group + "c", topic)) == 201


async def test_plain_functions_run_in_threads(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """A handler may block; it never runs in the thread of the event loop."""
    await fill(producer, topic, 30)
    threads = []
    consumer = consumer_of(broker, group + "c", concurrency=3)

    @consumer.subscribe(topic)
    def handle(message: ReceivedMessage) -> None:
        threads.append(threading.get_ident())

    async with consumer:
        await until(lambda: len(threads) == 30)
    assert threading.get_ident() not in threads
    assert len(set(threads)) <= 3


async def test_tags_are_filtered(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """Unwanted messages are skipped, and count as read."""
    await producer.send_batch([Message(topic, b"%d" % n, tags="AB"[n % 2]) for n in range(40)])
    got: list[Any] = []
    consumer = consumer_of(broker, group + "c", persist_interval_ms=10)
    consumer.subscribe(topic, tags="B || C")(lambda message: got.append(int(message.body)))
    async with consumer:
        await until_committed(broker, group + "c", topic, 40)
    assert sorted(got) == list(range(1, 40, 2))
    assert sum(await committed(broker, group + "c", topic)) == 40


async def test_a_failed_message_is_tried_again_and_holds_the_commit(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """With a policy that takes nothing: no offset at or above the failure is committed until it has succeeded."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(10)])
    attempts, done, fail = [], [], True
    consumer = consumer_of(broker, group + "c", retry_delay_ms=20, persist_interval_ms=10, failure_policy=KeepHere())

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"4":
            attempts.append(1)
            if fail:
                raise ValueError("not now")
        done.append(int(message.body))

    async with consumer:
        await until(lambda: len(done) == 9 and len(attempts) > 3)
        await until_committed(broker, group + "c", topic, 4)
        await asyncio.sleep(0.05)
        assert sum(await committed(broker, group + "c", topic)) == 4
        fail = False
        await until(lambda: len(done) == 10)
    assert sum(await committed(broker, group + "c", topic)) == 10


async def test_a_handler_that_is_cancelled_from_inside_has_failed(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """It awaited an operation that was cancelled: the message is retried, and the worker survives."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(10)])
    done: list[bytes] = []
    attempts = 0
    consumer = consumer_of(broker, group + "c", retry_delay_ms=10, concurrency=1, failure_policy=KeepHere())

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        nonlocal attempts
        if message.body == b"4" and (attempts := attempts + 1) < 3:
            raise asyncio.CancelledError
        done.append(message.body)

    async with consumer:
        await until(lambda: len(done) == 10)
    assert attempts == 3
    assert sum(await committed(broker, group + "c", topic)) == 10


async def test_handlers_may_stop_their_consumer(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """This works for several at once: they do not wait for each other."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(50)])
    consumer = consumer_of(broker, group + "c", concurrency=10)

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        await consumer.stop()

    async with asyncio.timeout(60):
        await consumer.run()


async def test_a_group_shares_the_queues(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """Two consumers have all queues between them, none twice; a leaving consumer releases its queues."""
    await fill(producer, topic, 4)
    got: list[Any] = []
    consumers = [consumer_of(broker, group + "c") for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(topic)(lambda message: got.append(int(message.body)))
    one, two = consumers
    async with one:
        await until(lambda: len(one.assigned) == 4)
        async with two:
            await until(lambda: len(one.assigned) == len(two.assigned) == 2)
            assert not set(one.assigned) & set(two.assigned)
        await until(lambda: len(one.assigned) == 4)
        await fill(producer, topic, 100)
        await until(lambda: len(got) >= 104)


async def test_broadcast_gives_everybody_everything(
    broker: PocketBroker, producer: Producer, topic: str, group: str, tmp_path: Path
) -> None:
    """Each consumer reads all queues, keeps its offsets in a file, and continues there."""
    await fill(producer, topic, 20)
    got: dict[int, list[int]] = {0: [], 1: []}

    def make(number: int) -> PushConsumer:
        consumer = consumer_of(
            broker, group + "c", message_model="BROADCASTING", offset_store_dir=tmp_path / str(number)
        )
        consumer.subscribe(topic)(lambda message: got[number].append(int(message.body)))
        return consumer

    async with make(0), make(1):
        await until(lambda: len(got[0]) == len(got[1]) == 20)
    assert sorted(got[0]) == sorted(got[1]) == list(range(20))
    got[0].clear()
    async with make(0):
        await producer.send(Message(topic, b"777"))
        await until(lambda: got[0] != [])
    assert got[0] == [777]


async def test_stop_waits_for_running_handlers(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """A running handler finishes and its message is committed; waiting messages are not."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(10)])
    begun, ended, release = [], [], asyncio.Event()
    consumer = consumer_of(broker, group + "c", concurrency=2)

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.queue_offset)
        await release.wait()
        ended.append(message.queue_offset)

    await consumer.start()
    await until(lambda: len(begun) == 2)
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    release.set()
    await stopping
    assert sorted(ended) == [0, 1]
    assert sum(await committed(broker, group + "c", topic)) == 2


async def test_a_handler_that_never_ends_does_not_hold_the_stop(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """After the given time it is cancelled, and its message is not committed."""
    await producer.send(Message(topic, b"x"))
    begun = []
    consumer = consumer_of(broker, group + "c")

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        begun.append(1)
        await asyncio.Event().wait()

    await consumer.start()
    await until(lambda: begun)
    await consumer.stop(timeout_ms=50)
    assert sum(await committed(broker, group + "c", topic)) == 0


async def test_run_ends_with_stop_and_with_cancellation(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """Neither leaves tasks behind."""
    await fill(producer, topic, 1)
    for end in ("stop", "cancel"):
        got: list[Any] = []
        consumer = consumer_of(broker, group + end)
        consumer.subscribe(topic)(got.append)
        running = asyncio.create_task(consumer.run())
        await until(lambda got=got: got)
        if end == "stop":
            await consumer.stop()
            await running
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert consumer.assigned == []


@pytest.mark.parametrize("ordered", [False, True])
def test_a_stopped_consumer_starts_again_in_another_loop(
    broker: PocketBroker, topic: str, group: str, ordered: bool
) -> None:
    """As the tests of an application do, whose module has the consumer: handlers, plain or not, and streams go on."""
    got: list[Any] = []
    consumer = consumer_of(broker, group + "c", enable_message_trace=True)
    streamed = consumer.messages(topic + "s")

    @consumer.subscribe(topic, ordered=ordered)
    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer.subscribe(topic + "p")(lambda message: got.append(message.body))

    async def live(number: int) -> None:
        async with consumer, Producer(group=group, namesrv=broker.namesrv) as producer:
            for name in (topic, topic + "p", topic + "s"):
                await producer.send(Message(name, b"%d" % number))
            await until(lambda: len(got) == 2)
            assert (await anext(streamed)).body == b"%d" % number
            streamed.ack(streamed._last)  # type: ignore[arg-type]
        assert got == [b"%d" % number] * 2  # what was committed does not come again
        assert not consumer.running
        got.clear()

    for number in range(3):
        asyncio.run(live(number))


async def test_subscriptions_can_be_added_between_two_runs(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """A start while the stop waits for a handler is refused, and says when it is not."""
    await fill(producer, topic, 1)
    begun, release = asyncio.Event(), asyncio.Event()
    got: list[Any] = []
    consumer = consumer_of(broker, group + "c")

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        await release.wait()

    await consumer.start()
    await begun.wait()
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    with pytest.raises(NotStarted, match="once stop"):
        await consumer.start()
    release.set()
    await stopping
    consumer.subscribe(topic + "b")(got.append)
    async with consumer:
        await fill(producer, topic + "b", 1)
        await until(lambda: got)


async def test_a_topic_that_comes_later_is_consumed(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """A consumer may subscribe before the topic exists."""
    got: list[Any] = []
    consumer = consumer_of(broker, group + "c")
    consumer.subscribe(topic)(got.append)
    async with consumer:
        await asyncio.sleep(0.05)
        await producer.send(Message(topic, b"x"))
        await until(lambda: got)


async def test_the_limits_pause_the_pull(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """Messages in hand stay within the limits while handlers hang; then all arrive."""
    from pocketmq.client.handlers.process_queue import ProcessLimits

    await producer.send_batch([Message(topic, b"%d" % n) for n in range(1500)])
    release, done = asyncio.Event(), []
    consumer = consumer_of(broker, group + "c", limits=ProcessLimits(count_max=300))

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        await release.wait()
        done.append(1)

    async with consumer:
        await until(lambda: any(len(pull.process_queue) >= 300 for pull in consumer._pulls.values()))
        await asyncio.sleep(0.05)
        assert max(len(pull.process_queue) for pull in consumer._pulls.values()) < 600
        release.set()
        await until(lambda: len(done) == 1500)


def test_misuse_is_reported(broker: PocketBroker) -> None:
    """Impossible settings and subscriptions are refused."""
    for wrong in ({"message_model": "both"}, {"concurrency": 0}, {"rebalance_interval_ms": 0}):
        with pytest.raises(ConfigError):
            PushConsumer("g", broker.namesrv, **wrong)
    with pytest.raises(SubscriptionIllegal, match="AVG"):
        PushConsumer("g", broker.namesrv, allocate="BEST")
    nothing: Any = None
    consumer = PushConsumer("g", broker.namesrv)
    consumer.subscribe("T")(print)
    with pytest.raises(SubscriptionIllegal, match="has a handler"):
        consumer.subscribe("T")
    with pytest.raises(SubscriptionIllegal, match="cannot be called"):
        consumer.subscribe("U")(nothing)


async def test_without_a_subscription_there_is_nothing_to_run(broker: PocketBroker) -> None:
    """The start raises the error."""
    with pytest.raises(SubscriptionIllegal, match="no topic"):
        await PushConsumer("g", broker.namesrv).run()

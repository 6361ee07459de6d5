"""A push consumer against a real broker: filters, batches, iteration, pauses, administration, differing groups."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import BrokerAnswerError, ClientInstance, Later, Message, Producer, PushConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.client.pull.pull_wire import PullWire
from pocketmq.common.errors import ConfigError
from pocketmq.testing.broker import PocketBroker
from tests.client.conftest import until_known
from tests.client.consume_fakes import Events
from tests.client.push.test_push_consumer import FIRST, committed, consumer_of, until

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Any]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


def priced(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % n, tags="AB"[n % 2], properties={"price": str(n)}) for n in range(count)]


async def test_sql_filters_select_by_properties(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """The filter works before and after the start; other messages count as read."""
    await producer.send_batch(priced(topic, 1000))
    got: list[int] = []
    consumer = consumer_of(broker, group + "c")

    @consumer.subscribe(topic, sql="price BETWEEN 100 AND 199 AND TAGS = 'A' OR price > 2000")
    async def handle(message: Any) -> None:
        got.append(int(message.body))

    async with consumer:
        await until(lambda: len(got) == 50)
        await producer.send(Message(topic, b"x", properties={"price": "5"}))
        await producer.send(Message(topic, b"3000", properties={"price": "3000"}))
        await until(lambda: len(got) == 51)
    assert sorted(got) == [*range(100, 200, 2), 3000]
    # the other message may still be behind the pull that the broker holds for its queue
    assert sum(await committed(broker, group + "c", topic)) in (1001, 1002)


def test_a_filter_that_does_not_parse_is_refused_at_once(broker: PocketBroker) -> None:
    """The error has the position and the expected words, and no consumer runs yet."""
    consumer = PushConsumer("g", broker.namesrv)
    with pytest.raises(SubscriptionIllegal, match=r"column 9: '> 5'.*a number"):
        consumer.subscribe("T", sql="price > > 5")
    with pytest.raises(SubscriptionIllegal, match="give one"):
        consumer.subscribe("T", "A", sql="price > 5")
    with pytest.raises(SubscriptionIllegal, match="max_messages"):
        consumer.subscribe_batch("T", max_messages=0)
    with pytest.raises(ConfigError, match="no setting 'concurency'"):
        PushConsumer("g", broker.namesrv, concurency=5)  # type: ignore[call-arg]


async def test_a_broker_without_property_filters_refuses_the_start(topic: str, group: str) -> None:
    """Otherwise the consumer would run silently without messages."""
    with PocketBroker(broker={"enable_property_filter": False}) as broker:
        async with Producer(group=group, namesrv=broker.namesrv) as producer:
            await producer.send(Message(topic, b"x"))
        consumer = consumer_of(broker, group)
        consumer.subscribe(topic, sql="price > 5")(print)
        with pytest.raises(SubscriptionIllegal, match="enable_property_filter"):
            await consumer.start()
        assert not consumer.instance.running


@pytest.mark.slow
async def test_batches_and_partial_failures(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """The handler gets a list; messages named in its answer return through the retry topic, with topic and attempt."""
    await producer.send_batch(priced(topic, 300))
    got: list[tuple[int, int, str]] = []
    consumer = consumer_of(broker, group + "c")

    @consumer.subscribe_batch(topic, max_messages=50)
    async def handle(messages: list[Any]) -> Any:
        assert len(messages) <= 50
        got.extend((int(message.body), message.reconsume_times, message.topic) for message in messages)
        odd = [message for message in messages if message.body == b"77" and not message.reconsume_times]
        return Later(messages=odd, delay_level=1) if odd else None

    async with consumer:
        await until(lambda: len(got) == 301)
    assert sorted(number for number, _, _ in got) == sorted([*range(300), 77])
    assert [entry for entry in got if entry[1]] == [(77, 1, topic)]
    assert sum(await committed(broker, group + "c", topic)) == 300


async def test_iteration_acknowledges_by_asking_for_more(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """The message at which the loop was left is delivered again, earlier ones are not."""
    await producer.send_batch(priced(topic, 20))
    seen = []
    consumer = consumer_of(broker, group + "c")
    async for message in consumer.messages(topic):
        seen.append(int(message.body))
        if len(seen) == 10:
            break
    await consumer.stop()
    last = seen[-1]
    again = consumer_of(broker, group + "c")
    rest = []
    async for message in again.messages(topic):
        rest.append(int(message.body))
        if {*seen, *rest} == set(range(20)) and last in rest:
            break
    await again.stop()
    assert last in rest
    assert len(set(seen[:-1]) & set(rest)) < 9  # an offset covers the start of a queue, not single messages


@pytest.mark.slow
async def test_iteration_with_acknowledgements_of_its_own(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """Unacknowledged messages hold the commit; ``later`` sends one back; a stop ends the loop."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(8)])
    consumer = consumer_of(broker, group + "c", persist_interval_ms=10)
    stream = consumer.messages(topic, auto_ack=False)
    taken: list[Any] = []

    async def read() -> None:
        async for message in stream:
            assert message not in taken
            taken.append(message)

    reading = asyncio.create_task(read())
    await until(lambda: len(taken) == 8)
    await asyncio.sleep(0.05)
    assert sum(await committed(broker, group + "c", topic)) == 0
    assert stream.later(taken[3], delay_level=1)
    for message in taken[:3] + taken[4:]:
        assert stream.ack(message)
    assert not stream.ack(taken[0])
    await until(lambda: len(taken) == 9)
    assert (taken[8].body, taken[8].reconsume_times) == (taken[3].body, 1)
    stream.ack(taken[8])
    await consumer.stop()
    async with asyncio.timeout(60):
        await reading
    assert sum(await committed(broker, group + "c", topic)) == 8


async def test_a_paused_consumer_pulls_nothing(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """It pulls none until it is resumed. A pull that checks again and still skips is the proof, without timed waits."""
    got: list[Any] = []
    consumer = consumer_of(broker, group + "c")
    consumer.subscribe(topic)(got.append)
    await producer.send(Message(topic, b"1"))
    async with consumer:
        await until(lambda: len(got) == 1)
        route = await until_known(producer.instance, topic)
        await until(lambda: sum(queue.topic == topic for queue in consumer.assigned) == len(route.read_queues))
        consumer.pause()
        pulls = [pull for queue, pull in consumer._pulls.items() if queue.topic == topic]
        for pull in pulls:  # the pulls that the broker holds now would end with the next message
            await pull.stop()
            pull._last_pull_ns = 0
            pull.start()
        await producer.send(Message(topic, b"2"))
        for pull in pulls:
            pull.wake()
        await until(lambda: not any(pull._room.is_set() for pull in pulls))
        assert [pull.last_pull_ms for pull in pulls] == [0] * len(pulls)
        assert len(got) == 1
        consumer.resume()
        await until(lambda: len(got) == 2)


async def test_members_with_different_subscriptions_are_told_both(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """Each logs an error event with both clients and both subscriptions; none when they agree again."""
    await producer.send(Message(topic, b"x"))
    logs, consumers = [], []
    for number, tags in enumerate(("A", "A || B")):
        log = Events()
        instance = ClientInstance(broker.namesrv, log=log, instance_name=f"member{number}-{group}")
        consumer = PushConsumer(group + "c", instance=instance, rebalance_interval_ms=50)
        consumer.subscribe(topic, tags=tags)(print)
        logs.append(log)
        consumers.append(consumer)
    one, two = consumers
    async with one:
        await until(lambda: one.assigned)
        assert logs[0].named("subscriptions_differ") == []
        async with two:
            await until(lambda: all(log.named("subscriptions_differ") for log in logs))
            await asyncio.sleep(0.15)
    for log in logs:
        [told] = log.named("subscriptions_differ")
        assert "member0" in told["difference"]
        assert "member1" in told["difference"]
        assert "'A'" in told["difference"]
        assert "'A || B'" in told["difference"]


async def test_an_administrator_sees_what_a_consumer_does(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """The broker passes on queues, messages in hand, rates and the longest calls."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(40)])
    release = asyncio.Event()
    consumer = consumer_of(broker, group + "c", concurrency=3)

    @consumer.subscribe(topic)
    async def stuck(message: Any) -> None:
        await release.wait()

    async with consumer, Admin(broker.namesrv) as admin:
        await until(lambda: sum(len(pull.process_queue) for pull in consumer._pulls.values()) == 40)
        info = await admin.consumer_running_info(group + "c", consumer.instance.client_id, jstack=True)
        queues = {queue.queue_id: state for queue, state in info.mq_table.items() if queue.topic == topic}
        assert sum(state.cached_msg_count for state in queues.values()) == 40
        assert {each.topic for each in info.subscription_set} == {topic, f"%RETRY%{group}c"}
        assert any("stuck" in text for text in info.user_consumer_info.values())
        assert info.jstack is not None
        assert "test_push_features.py" in info.jstack
        release.set()
        await until(lambda: all(not len(pull.process_queue) for pull in consumer._pulls.values()))
        info = await admin.consumer_running_info(group + "c", consumer.instance.client_id)
        assert info.status_table[topic].consume_ok_tps > 0
        with pytest.raises(BrokerAnswerError, match="not online"):
            await admin.consumer_running_info(group + "c", "nobody")


async def test_a_reset_moves_a_running_consumer(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """It is forced while the consumer runs: the consumer reads everything again, and commits from there."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(30)])
    got: list[int] = []
    consumer = consumer_of(broker, group + "c", persist_interval_ms=20)
    consumer.subscribe(topic)(lambda message: got.append(int(message.body)))
    async with consumer, Admin(broker.namesrv) as admin:
        await until(lambda: len(got) == 30)
        await until(lambda: sum(p.process_queue.commit_offset for p in consumer._pulls.values()) == 30)
        await admin.seek_group(group + "c", topic, "earliest", force=True)
        await until(lambda: len(got) == 60)
    assert sorted(got) == sorted([*range(30), *range(30)])
    assert sum(await committed(broker, group + "c", topic)) == 30


async def test_a_new_group_commits_where_it_starts_at_once(
    broker: PocketBroker, producer: Producer, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts behind the last message; killed before its first commit, it would skip what comes meanwhile."""
    await producer.send_batch([Message(topic, b"%d" % n) for n in range(8)])
    ask = PullWire.stored_offset

    async def of_an_old_queue(wire: PullWire, queue: Any, **_: Any) -> int:
        return await ask(wire, queue, zero_if_young=False)  # a young queue is read from its beginning

    monkeypatch.setattr(PullWire, "stored_offset", of_an_old_queue)
    consumer = consumer_of(
        broker, group + "n", consume_from_where=LAST, persist_interval_ms=3_600_000, rebalance_interval_ms=20
    )
    consumer.subscribe(topic)(lambda message: None)
    async with consumer:
        await until(lambda: bool(consumer._pulls))
        while sum(await committed(broker, group + "n", topic)) < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_commit_outside_of_the_queue_is_refused(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """The error has the queue's end; the earlier commit stays."""
    await producer.send(Message(topic, b"x"))
    async with ClientInstanceOf(broker) as instance:
        route = await until_known(instance, topic)
        queue = route.read_queues[0]
        wire = PullWire(instance, group)
        end = await wire.max_offset(queue)
        await wire.store_offset(queue, end)
        with pytest.raises(BrokerAnswerError, match=f"which ends at {end}"):
            await wire.store_offset(queue, end + 1)
        assert await wire.stored_offset(queue) == end


class ClientInstanceOf:
    """Open a running instance for a test."""

    def __init__(self, broker: PocketBroker) -> None:
        self._instance = ClientInstance(broker.namesrv, rng=random.Random(1))

    async def __aenter__(self) -> ClientInstance:
        await self._instance.start()
        return self._instance

    async def __aexit__(self, *_: object) -> None:
        await self._instance.stop()


async def test_two_consumers_of_a_group_need_two_instances(broker: PocketBroker, topic: str, group: str) -> None:
    """It gets an error, instead of replacing the other's place in the heartbeats."""
    instance = ClientInstance(broker.namesrv)
    one, two = (PushConsumer(group, instance=instance) for _ in range(2))
    for consumer in (one, two):
        consumer.subscribe(topic)(print)
    async with one:
        with pytest.raises(ConfigError, match="has a consumer of group"):
            await two.start()
    assert not instance.running


@pytest.mark.slow
async def test_a_handler_that_blocks_the_loop_is_reported_while_it_does(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """A separate thread, which the stop ends, logs it; plain handlers may block without a limit."""
    await producer.send(Message(topic, b"x"))
    log, done = Events(), []
    instance = ClientInstance(broker.namesrv, log=log)
    consumer = PushConsumer(group + "c", instance=instance, consume_from_where=FIRST, loop_block_ms=40)

    def told_of_handler() -> list[Any]:
        return [each for each in log.named("event_loop_blocked") if each["handler"]]  # a loaded machine stops it, too

    @consumer.subscribe(topic)
    async def blocks(message: Any) -> None:
        blocked_until_ns = instance.clock.monotonic_ns() + 60_000_000_000
        while not told_of_handler() and instance.clock.monotonic_ns() < blocked_until_ns:
            threading.Event().wait(0.01)
        done.append(message)

    async with consumer:
        await until(lambda: done)
    [told] = told_of_handler()
    assert told["handler"].endswith("blocks")
    assert told["message"] is done[0]
    assert "test_push_features.py" in told["where"]
    assert not [
        thread for thread in threading.enumerate() if thread.name == "pocketmq-loop-watch" and not thread.daemon
    ]

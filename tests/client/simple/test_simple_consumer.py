"""A simple consumer against a real broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import ClientOptions, Message, NoRoute, NotStarted, Producer, blocking
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.simple.popped_message import PoppedMessage, ReceiptExpired
from pocketmq.client.simple.simple_consumer import SimpleConsumer
from pocketmq.common.errors import ConfigError
from pocketmq.testing.broker import PocketBroker
from tests.broker.conftest import eventually
from tests.client.conftest import until_known
from tests.client.pull.test_pull_consumer import fill

HOUR_MS = 3_600_000


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Producer]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


@pytest.fixture(params=["native", "rocketmq"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """PocketMQ's own requests, and those that a RocketMQ broker gets."""
    if request.param == "rocketmq":
        monkeypatch.setattr(
            "pocketmq.client.connection.instance.BrokerConnection.is_native", property(lambda connection: False)
        )
    return str(request.param)


@pytest.fixture
async def consumer(broker: PocketBroker, group: str, topic: str, wire: str) -> AsyncIterator[SimpleConsumer]:
    async with SimpleConsumer(group, topic, broker.namesrv, invisible_ms=HOUR_MS) as running:
        yield running


def numbers(messages: Any) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def received(consumer: SimpleConsumer, wanted: int, **more: Any) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < wanted:
        found += await consumer.receive_batch(wanted - len(found), **more)
    return found


async def test_messages_are_received_once_and_acknowledged_one_by_one(
    producer: Producer, consumer: SimpleConsumer, topic: str
) -> None:
    """In any order, one at a time and in batches; then nothing is left."""
    await fill(producer, topic, 40)
    messages = await received(consumer, 40)
    assert numbers(messages) == list(range(40))
    assert {(message.topic, message.attempt, message.is_settled) for message in messages} == {(topic, 1, False)}
    for message in messages[::-2]:
        await consumer.ack(message)
    assert await consumer.ack_batch(messages) == []
    assert all(message.is_settled for message in messages)
    assert await consumer.receive(wait_ms=50) is None


async def test_a_message_that_is_not_acknowledged_comes_again(
    producer: Producer, consumer: SimpleConsumer, topic: str
) -> None:
    """After a nack at once, with one attempt more; the old handle is dead."""
    await fill(producer, topic, 1)
    (first,) = await received(consumer, 1)
    await consumer.nack(first, 0)
    (again,) = await received(consumer, 1)
    assert (again.body, again.topic, again.attempt) == (first.body, topic, 2)
    with pytest.raises(ReceiptExpired):
        await consumer.ack(first)
    await consumer.extend(again, 2 * HOUR_MS)
    assert again.invisible_ms == 2 * HOUR_MS
    await consumer.ack(again)
    (soon,) = await _with_short_time(producer, consumer, topic)
    last = await received(consumer, 1)
    assert numbers(last) == numbers([soon])
    assert await consumer.ack_batch([soon, *last]) == [soon]


async def _with_short_time(producer: Producer, consumer: SimpleConsumer, topic: str) -> list[PoppedMessage]:
    await fill(producer, topic, 1)
    return await received(consumer, 1, invisible_ms=1)


async def test_a_receive_waits_for_a_message(producer: Producer, consumer: SimpleConsumer, topic: str) -> None:
    """Many that wait share one request; each message goes to one of them."""
    await fill(producer, topic, 1)
    await received(consumer, 1)
    waiting = [asyncio.create_task(consumer.receive(wait_ms=60_000)) for _ in range(8)]
    await asyncio.sleep(0)
    await fill(producer, topic, 8)
    found = [message for message in await asyncio.gather(*waiting) if message is not None]
    assert numbers(found) == list(range(8))


async def test_a_short_wait_ends_beside_a_long_one(producer: Producer, consumer: SimpleConsumer, topic: str) -> None:
    """Both share a request to the broker, which waits for as long as the patient one."""
    await fill(producer, topic, 1)
    await received(consumer, 1)
    patient = asyncio.create_task(consumer.receive(wait_ms=HOUR_MS))
    await asyncio.sleep(0)
    assert await consumer.receive(wait_ms=1) is None
    assert not patient.done()
    await fill(producer, topic, 1)
    assert await patient is not None


async def test_what_nobody_asks_for_is_given_back(
    broker: PocketBroker, producer: Producer, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pop brings a message for an hour when nobody waits any more: another consumer gets it, here as soon as it is
    less than fresh."""
    monkeypatch.setattr("pocketmq.client.simple.pop_lanes.FRESH_SHARE", 1.0)
    await fill(producer, topic, 1)
    async with SimpleConsumer(group, topic, broker.namesrv, invisible_ms=HOUR_MS) as first:
        await first.receive(invisible_ms=1)
        cancelled = asyncio.create_task(first.receive(wait_ms=HOUR_MS))
        await eventually(lambda: broker.app.pop.service.count == 1)
        cancelled.cancel()
        async with SimpleConsumer(group, topic, broker.namesrv, invisible_ms=HOUR_MS) as second:
            found = await second.receive(wait_ms=HOUR_MS)
            assert found is not None
            assert found.attempt > 1
            await second.ack(found)


async def test_a_receive_that_is_cancelled_loses_nothing(
    producer: Producer, consumer: SimpleConsumer, topic: str
) -> None:
    """What its request brings is for the next one."""
    await fill(producer, topic, 1)
    await received(consumer, 1)
    waiting = [asyncio.create_task(consumer.receive(wait_ms=60_000)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await fill(producer, topic, 5)
    assert numbers(await received(consumer, 5)) == list(range(5))


async def test_a_loop_acknowledges_and_renews(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """A body that takes longer than the invisible time keeps its message; leaving the loop gives the last one back."""
    await fill(producer, topic, 3)
    async with SimpleConsumer(group, topic, broker.namesrv, invisible_ms=400) as consumer:
        seen: list[tuple[int, int]] = []
        async for message in consumer:
            seen.append((int(message.body), message.attempt))
            if len(seen) == 1:
                for _ in range(2):
                    before = message.receipt
                    await eventually(lambda message=message, before=before: message.receipt != before)
            if len(seen) == 3:
                break
        assert sorted(seen) == [(0, 1), (1, 1), (2, 1)]
        (again,) = await received(consumer, 1)
        assert (int(again.body), again.attempt) == (seen[2][0], 2)
        await consumer.ack(again)


async def test_filters(broker: PocketBroker, producer: Producer, topic: str, group: str, wire: str) -> None:
    """Tags and SQL92; what does not match is skipped."""
    await fill(producer, topic, 2, tags="a")
    await fill(producer, topic, 3, tags="b", properties={"price": "7"})
    async with SimpleConsumer(group, topic, broker.namesrv, tags="a") as consumer:
        assert numbers(await received(consumer, 2)) == [0, 1]
    async with SimpleConsumer(f"{group}-sql", topic, broker.namesrv, sql="price > 5") as consumer:
        assert numbers(await received(consumer, 3)) == [0, 1, 2]


async def test_many_workers_share_a_topic_with_a_single_consumer(
    producer: Producer, consumer: SimpleConsumer, topic: str
) -> None:
    """Each message is worked on once."""
    await fill(producer, topic, 500)
    done: list[int] = []

    async def work() -> None:
        while len(done) < 500:
            message = await consumer.receive(wait_ms=200)
            if message is not None:
                done.append(int(message.body))
                await consumer.ack(message)

    await asyncio.gather(*(work() for _ in range(16)))
    assert sorted(done) == list(range(500))


async def test_wrong_use_is_refused(broker: PocketBroker, group: str, topic: str) -> None:
    """In words, before anything is sent."""
    for more in ({"invisible_ms": 0}, {"invisible_ms": 13 * HOUR_MS}, {"start": "middle"}):
        with pytest.raises(ConfigError):
            SimpleConsumer(group, topic, broker.namesrv, **more)
    consumer = SimpleConsumer(group, topic, broker.namesrv)
    with pytest.raises(NotStarted):
        await consumer.receive()
    async with consumer:
        with pytest.raises(NoRoute):
            await consumer.receive(wait_ms=10)
        with pytest.raises(ConfigError):
            await consumer.receive_batch(0)
    await consumer.stop()


async def test_json_and_binary_headers(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """POP's codes do not fit RocketMQ's binary header; PocketMQ understands what is left of them."""
    await fill(producer, topic, 4)
    await until_known(producer.instance, topic)
    for number, kind in enumerate(("JSON", "ROCKETMQ", "MSGPACK")):
        instance = ClientInstance(broker.namesrv, options=ClientOptions(serialize_type=kind))
        async with SimpleConsumer(f"{group}{number}", topic, instance=instance) as consumer:
            messages = await received(consumer, 4)
            assert await consumer.ack_batch(messages) == []
    assert isinstance(Message(topic, b"x"), Message)


def test_the_blocking_face(broker: PocketBroker, topic: str, group: str) -> None:
    """The same for threads."""
    with blocking.Producer(group, broker.namesrv) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(4)])
        with blocking.SimpleConsumer(group, topic, broker.namesrv, invisible_ms=HOUR_MS) as consumer:
            first = consumer.receive()
            assert first is not None
            consumer.extend(first)
            consumer.nack(first, 0)
            found = {int(message.body) for message, _ in zip(consumer, range(3), strict=False)}
            rest = consumer.receive_batch()
            assert consumer.ack_batch(rest) == []
            assert found | set(numbers(rest)) == {0, 1, 2, 3}
            with pytest.raises(ReceiptExpired):
                consumer.ack(first)

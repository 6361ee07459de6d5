"""``consumer.messages()`` as docs/consuming.md says: inside ``async with``, and beside running handlers."""

import asyncio
from typing import Any

import pytest

from pocketmq.client import Message, Producer, PushConsumer, blocking
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.common.logs import CapturedLog
from pocketmq.testing.broker import PocketBroker
from tests.client.push.test_push_consumer import committed, until


async def send(broker: PocketBroker, *messages: Message) -> None:
    async with Producer("senders", broker.namesrv) as producer:
        for message in messages:
            await producer.send(message)


def consumer_of(broker: PocketBroker, group: str, **options: Any) -> PushConsumer:
    return PushConsumer(group, broker.namesrv, start="earliest", rebalance_interval_ms=100, **options)


async def test_async_with_around_the_loop(broker: PocketBroker, topic: str, group: str) -> None:
    """The block starts nothing while nothing is subscribed; its end stops and commits what was acknowledged."""
    await send(broker, *(Message(topic, b"%d" % number) for number in range(3)))
    got: list[bytes] = []
    async with consumer_of(broker, group) as consumer, asyncio.timeout(60):
        async for message in (stream := consumer.messages(topic)):
            got.append(message.body)
            if len(got) == 3:
                stream.ack(message)
                break
    assert sorted(got) == [b"0", b"1", b"2"]
    assert sum(await committed(broker, group, topic)) == 3


@pytest.mark.parametrize("sql", [None, "n > 0"])
async def test_a_running_consumer_takes_another_topic(
    broker: PocketBroker, topic: str, group: str, sql: str | None
) -> None:
    """Its handlers go on; a message that the loop puts off comes back to the loop."""
    other = topic + "-other"
    await send(broker, Message(topic, b"a"), Message(other, b"b", properties={"n": "1"}))
    handled: list[bytes] = []
    consumer = consumer_of(broker, group)
    consumer.subscribe(topic)(lambda message: handled.append(message.body))
    async with consumer, asyncio.timeout(60):
        await until(lambda: handled)
        stream = consumer.messages(other, sql=sql, auto_ack=False)
        first = await anext(stream)
        assert stream.later(first, delay_level=1)
        second = await anext(stream)
        assert (second.body, second.msg_id, second.reconsume_times) == (b"b", first.msg_id, 1)
        stream.ack(second)
        with pytest.raises(SubscriptionIllegal, match="has a handler"):
            consumer.messages(other)
        with pytest.raises(SubscriptionIllegal, match="use messages"):
            consumer.subscribe(topic + "-third")
    assert handled == [b"a"]


async def test_a_block_without_any_subscription_says_so(broker: PocketBroker, group: str) -> None:
    """Otherwise it would wait in silence; and a start by hand refuses at once."""
    log = CapturedLog()
    consumer = PushConsumer(group, instance=ClientInstance(broker.namesrv, log=log))
    with pytest.raises(SubscriptionIllegal, match="iterate over"):
        await consumer.start()
    async with consumer:
        await until(lambda: log.events)
    assert [event["event"] for event in log.events] == ["nothing_subscribed"]


def test_the_blocking_face_takes_a_topic_while_it_runs(broker: PocketBroker, topic: str, group: str) -> None:
    """As the other one; its loop has a thread of its own."""
    with blocking.Producer("senders", broker.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    consumer = blocking.PushConsumer(group, broker.namesrv, start="earliest", rebalance_interval_ms=100)
    consumer.subscribe(topic + "-other")(print)
    with consumer:
        assert next(consumer.messages(topic)).body == b"x"

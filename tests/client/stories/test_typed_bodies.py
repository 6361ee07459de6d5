"""Values from a producer to a handler through a real broker, and bodies that are none, by the retry rules."""

import asyncio
import contextlib
from typing import Any

import msgspec

from pocketmq.client import Idempotent, Message, NoRoute, Producer, PushConsumer, ReceivedMessage, blocking
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.dead_letters import DeadLetters, last_error
from pocketmq.testing.broker import PocketBroker
from tests.client.push.test_push_consumer import until


class Order(msgspec.Struct):
    number: int


async def test_a_handler_gets_orders_and_bad_bodies_become_dead_letters(
    broker: PocketBroker, topic: str, group: str
) -> None:
    """One that cannot be decoded is sent back as a failed one is; its last error says what is wrong with it."""
    got: list[Any] = []
    consumer = PushConsumer(group, broker.namesrv, start="earliest", rebalance_interval_ms=100, max_reconsume_times=0)

    @consumer.subscribe(topic)
    @Idempotent(store="memory:", scope=group)
    async def charge(order: Order, message: ReceivedMessage) -> None:
        got.append((order, message.msg_id))

    async with Producer(group + "p", broker.namesrv) as producer, Admin(broker.namesrv) as admin:
        receipt = await producer.send(Message.of(topic, Order(7), sharding_key="7"))
        bad = await producer.send(Message(topic, b'{"number": "x"}'))
        async with consumer:
            dead: list[Any] = []
            while not dead or not got:
                await asyncio.sleep(0.01)
                with contextlib.suppress(NoRoute):  # there is no dead letter yet
                    dead = [each async for each in DeadLetters(admin).read(group)]
    assert got == [(Order(7), receipt.msg_id)]
    assert [each.msg_id for each in dead] == [bad.msg_id]
    assert f"body of {topic}/" in last_error(dead[0])
    assert "is no Order: Expected `int`, got `str` - at `$.number`" in last_error(dead[0])


def test_blocking_handlers_and_streams_take_values(broker: PocketBroker, topic: str, group: str) -> None:
    """The same for plain threads; a stream's messages decode themselves."""
    got: list[Order] = []
    with blocking.Producer(group + "p", broker.namesrv) as producer:
        producer.send(Message.of(topic, Order(1)))
    consumer = blocking.PushConsumer(group, broker.namesrv, start="earliest", rebalance_interval_ms=100)

    @consumer.subscribe_batch(topic)
    def charge(orders: list[Order]) -> None:
        got.extend(orders)

    with consumer, blocking.PullConsumer(group + "r", broker.namesrv) as reader:
        [message] = reader.poll(topic, timeout_ms=60_000)
        assert message.decode(Order) == Order(1)
        asyncio.run(until(lambda: got == [Order(1)]))

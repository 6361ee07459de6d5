"""A RocketMQ broker that goes away during work: killed during sends and consumption, and restarted."""

import asyncio

import pytest

from pocketmq.client import ClientInstance, ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer, Receipt
from pocketmq.client.errors import SendFailed
from pocketmq.common.errors import PocketMQError, Stored
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_name, new_topic, read_all, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Sending:
    """Sends numbered messages, a keyed and a free one in turn, and keeps the result of each."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.receipts: dict[int, Receipt] = {}
        self.errors: dict[int, PocketMQError] = {}
        self.is_over = False
        self._producer, self._topic = producer, topic

    async def run(self) -> None:
        number = 0
        while not self.is_over:
            key = "key" if number % 2 else None
            try:
                receipt = await self._producer.send(
                    Message(self._topic, b"%d" % number, sharding_key=key), timeout_ms=1_000
                )
                self.receipts[number] = receipt
            except PocketMQError as error:
                self.errors[number] = error
            number += 1
            await asyncio.sleep(0.002)


async def test_a_broker_killed_under_load_comes_back_and_nothing_acknowledged_is_missing(
    rocketmq: RocketMQServers,
) -> None:
    """kill -9 of the JVM: sends fail in time with the reason, clients find the new process, every receipt holds."""
    topic, group = await new_topic(rocketmq, 2), new_name("group")
    consumed: list[int] = []
    instance = ClientInstance(rocketmq.namesrv)
    consumer = PushConsumer(group, rocketmq.namesrv, consume_from_where=FIRST)

    @consumer.subscribe(topic)
    async def note(message: object) -> None:
        consumed.append(int(getattr(message, "body")))  # noqa: B009

    async with consumer, Producer(new_name("producer"), instance=instance) as producer:
        sending = Sending(producer, topic)
        task = asyncio.create_task(sending.run())
        await until(lambda: len(sending.receipts) > 50 and len(consumed) > 20, 20, "a start")
        acknowledged_before = len(sending.receipts)
        rocketmq.kill_broker()
        await until(lambda: len(sending.errors) >= 3, 15, "refused sends")
        await asyncio.to_thread(rocketmq.start_broker)
        await until(lambda: len(sending.receipts) > acknowledged_before + 50, 60, "sends that succeed again")
        sending.is_over = True
        await task
        stored = {int(message.body) for message in await read_all(rocketmq, topic, len(sending.receipts))}
        await until(lambda: set(sending.receipts) <= set(consumed), 60, "everything acknowledged, consumed")
    assert set(sending.receipts) <= stored, "what was acknowledged is there"
    surely_not = {number for number, error in sending.errors.items() if error.stored is Stored.NO}
    assert not surely_not & stored, "what was called not stored is not there"
    texts = [str(error) for error in sending.errors.values()]
    assert all(rocketmq.broker in text or topic in text for text in texts), texts[:3]
    assert any("cannot connect" in text or "Connection refused" in text or "lost" in text for text in texts), texts[:3]
    assert all(isinstance(error, SendFailed) or error.retriable for error in sending.errors.values())


async def _poll_for_ever(consumer: PullConsumer, topic: str) -> None:
    while True:
        await consumer.poll(topic, max_messages=1, timeout_ms=0)


async def test_a_broker_that_stops_in_order_and_returns_goes_on_where_it_was(rocketmq: RocketMQServers) -> None:
    """SIGTERM: pulls and commits fail with a clear text meanwhile; offsets and messages are unchanged afterwards."""
    topic, group = await new_topic(rocketmq, 1), new_name("reader")
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % number) for number in range(20)])
    async with PullConsumer(group, rocketmq.namesrv) as consumer:
        await consumer.poll(topic, max_messages=5)
        await consumer.commit()
        rocketmq.stop_broker()
        with pytest.raises(PocketMQError, match=f"{rocketmq.broker}|{rocketmq.broker_name}") as refused:
            await _poll_for_ever(consumer, topic)
        assert refused.value.retriable
        await asyncio.to_thread(rocketmq.start_broker)
        rest = []
        for _ in range(200):
            try:
                rest += await consumer.poll(topic, timeout_ms=100)
            except PocketMQError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)
            if len(rest) >= 10:
                break
    assert rest, "the same consumer reads on"
    async with PullConsumer(group, rocketmq.namesrv) as again:
        (message,) = await again.poll(topic, max_messages=1)
    assert message.body == b"5", "the committed offset was kept"

"""A client instance: shared, stopped and started again."""

import asyncio

from pocketmq.client import ClientInstance, Message, Producer
from pocketmq.testing.broker import PocketBroker


async def test_a_start_while_the_last_user_stops_is_a_fresh_start(broker: PocketBroker, topic: str) -> None:
    """The stop closes what it had; the new user gets a pool of its own, at whatever point of the stop it comes."""
    for turns in range(6):
        instance = ClientInstance(broker.namesrv)
        await instance.start()
        await instance.route("TBW102", timeout_ms=5_000)
        stopping = asyncio.ensure_future(instance.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        async with Producer(group=f"again-{turns}", instance=instance) as producer:
            await stopping
            assert (await producer.send(Message(topic, b"x"))).attempts == 1
        assert not instance.running

"""RabbitMQ's classic queues by aio-pika: persistent messages, publisher confirms; a topic is one durable queue."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import aio_pika

from bench.clients.base import PushedClient

PREFETCH = 1_000


class RabbitmqClient(PushedClient):
    """One connection with one channel for publishing and one for reading."""

    async def open(self) -> None:
        self.connection = await aio_pika.connect(
            host=self.target["host"], port=self.target["port"], login="guest", password="guest"
        )
        self.channel = await self.connection.channel(publisher_confirms=True)

    async def close(self) -> None:
        await self.connection.close()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        for topic in topics:
            await self.channel.declare_queue(topic, durable=True, arguments={"x-queue-type": "classic"})

    async def delete(self, topics: Sequence[str]) -> None:
        for topic in topics:
            await self.channel.queue_delete(topic)

    async def send(self, topic: str, body: bytes) -> None:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self.channel.default_exchange.publish(message, routing_key=topic)

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        await asyncio.gather(*(self.send(topic, body) for _ in range(count)))

    async def consume(self, topic: str, saw: Callable[[bytes], None], *, from_start: bool) -> Callable[[], Any]:
        channel = await self.connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        queue = await channel.get_queue(topic)
        if not from_start:
            await queue.purge()

        async def took(message: Any) -> None:
            saw(message.body)

        return partial(queue.cancel, await queue.consume(took, no_ack=True))

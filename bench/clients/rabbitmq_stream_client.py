"""RabbitMQ's streams by rstream: a topic is one stream; messages are raw bodies without AMQP 1.0 framing."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rstream import Consumer, ConsumerOffsetSpecification, OffsetType, Producer

from bench.clients.base import PushedClient

FRAME_BYTES = 1_000_000
"""A publish frame must stay below the negotiated 1 MiB."""


class RabbitmqStreamClient(PushedClient):
    """One producer, and one consumer when there is something to read."""

    async def open(self) -> None:
        self.producer = Producer(**self._where(), default_batch_publishing_delay=0.001)
        await self.producer.start()

    def _where(self) -> dict[str, Any]:
        address = {"host": self.target["host"], "port": self.target["stream_port"]}
        return {**address, "username": "guest", "password": "guest"}

    async def close(self) -> None:
        await self.producer.close()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        for topic in topics:
            await self.producer.create_stream(topic, exists_ok=True)

    async def delete(self, topics: Sequence[str]) -> None:
        for topic in topics:
            await self.producer.clean_up_publishers(topic)
            await self.producer.delete_stream(topic, missing_ok=True)

    async def send(self, topic: str, body: bytes) -> None:
        await self.producer.send_wait(topic, body)

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        left = count
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def confirmed(status: Any) -> None:
            nonlocal left
            left -= 1
            if not status.is_confirmed and not done.done():
                done.set_exception(RuntimeError(f"refused with code {status.response_code}"))
            if not left and not done.done():
                done.set_result(None)

        per_frame = max(1, FRAME_BYTES // (len(body) + 16))
        for start in range(0, count, per_frame):
            batch = [body] * min(per_frame, count - start)
            await self.producer.send_batch(topic, batch, on_publish_confirm=confirmed)
        await done

    async def consume(self, topic: str, saw: Callable[[bytes], None], *, from_start: bool) -> Callable[[], Any]:
        consumer = Consumer(**self._where())
        await consumer.start()

        async def took(message: Any, context: Any) -> None:
            saw(message)

        offset = ConsumerOffsetSpecification(OffsetType.FIRST if from_start else OffsetType.NEXT, None)
        await consumer.subscribe(topic, took, offset_specification=offset, initial_credit=50)
        close: Callable[[], Any] = consumer.close
        return close

"""NATS JetStream by nats-py: a topic is one stream with one subject; many are publishes whose answers are awaited
together."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from bench.clients.base import Client, ReadTimer

FETCH = 1_000


class NatsClient(Client):
    """One connection and its JetStream context."""

    async def open(self) -> None:
        self.nats = await nats.connect(f"nats://{self.target['host']}:{self.target['port']}")
        self.stream = self.nats.jetstream(publish_async_max_pending=100_000, timeout=30)

    async def close(self) -> None:
        await self.nats.close()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        replicas = int(self.target.get("replicas", 1))
        if len(topics) > 100:  # as JetStream has many topics: subjects of one stream
            await self._add("bench_many", ["many.*"], replicas)
            return
        for topic in topics:
            await self._add(topic, [topic], replicas)

    async def _add(self, name: str, subjects: list[str], replicas: int) -> None:
        config = StreamConfig(name=name, subjects=subjects, storage=StorageType.FILE, num_replicas=replicas)
        await self.stream.add_stream(config)

    async def delete(self, topics: Sequence[str]) -> None:
        for topic in topics if len(topics) <= 100 else ["bench_many"]:
            await self.stream.delete_stream(topic)

    async def send(self, topic: str, body: bytes) -> None:
        await self.stream.publish(topic, body)

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        futures = [await self.stream.publish_async(topic, body) for _ in range(count)]
        await asyncio.gather(*futures)

    async def _subscribe(self, topic: str, policy: DeliverPolicy) -> "nats.js.JetStreamContext.PullSubscription":
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=policy)
        return await self.stream.pull_subscribe(topic, durable=None, config=config)

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        count = touched = 0
        if how == "message":  # the ordered consumer pushes
            subscription = await self.stream.subscribe(
                topic, ordered_consumer=True, pending_msgs_limit=1_000_000, pending_bytes_limit=1 << 30
            )
            timer.begin()
            async for message in subscription.messages:
                count += 1
                touched += len(message.data)
                if count >= expected:
                    break
        else:
            puller = await self._subscribe(topic, DeliverPolicy.ALL)
            timer.begin()
            while count < expected:
                messages = await puller.fetch(min(FETCH, expected - count), timeout=10)
                count += len(messages)
                touched += sum(len(message.data) for message in messages)
        timer.end()
        return touched

    async def push(self, topic: str, saw: Callable[[bytes], None]) -> Callable[[], Coroutine[Any, Any, object]]:
        async def handle(message: Msg) -> None:
            saw(message.data)

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
        subscription = await self.stream.subscribe(topic, cb=handle, config=config, manual_ack=True)

        async def end() -> None:
            await subscription.unsubscribe()

        return end

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
        subscription = await self.stream.subscribe(
            topic, ordered_consumer=True, config=config, pending_msgs_limit=1_000_000, pending_bytes_limit=1 << 30
        )
        ready.set()
        async for message in subscription.messages:
            saw(message.data)

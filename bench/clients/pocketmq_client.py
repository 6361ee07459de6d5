"""PocketMQ by its own SDK."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bench.clients.base import Client, ReadTimer
from pocketmq.client import ClientInstance, Message, MessageQueue, Producer, PullConsumer, PushConsumer, ReceivedMessage
from pocketmq.client.admin.admin import Admin
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.topic import CreateTopicListBody, TopicConfigBody

TIMEOUT_MS = 10_000
TOPICS_ONE_BY_ONE = 10
FIRST_PULLS_S = 0.2
"""From the assignment of queues to pulls that wait at the end of each."""


def _nth(at: int) -> "Callable[[Sequence[MessageQueue], Message], MessageQueue]":
    """Return a selector of one queue."""
    return lambda queues, _: queues[at % len(queues)]


def _bodies(batch: Any) -> Any:
    return batch.column("body")


class PocketmqClient(Client):
    """A producer, and a consumer when one is needed, over an instance of their own: one connection to the broker."""

    async def open(self) -> None:
        self.instance = ClientInstance(self.target["namesrv"], instance_name=f"bench-{id(self)}")
        self.producer = Producer("bench", instance=self.instance, send_msg_timeout_ms=TIMEOUT_MS)
        await self.producer.start()

    async def close(self) -> None:
        await self.producer.stop()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        async with Admin(self.target["namesrv"]) as admin:
            if len(topics) > TOPICS_ONE_BY_ONE:
                await self._create_many(topics, queues)
            else:
                for topic in topics:
                    await admin.create_topic(topic, queues=queues)
            await admin.create_topic(topics[-1], queues=queues)  # returns when the route is known

    async def _create_many(self, topics: Sequence[str], queues: int) -> None:
        """Ask the broker for all of them with one request (RocketMQ 5.3's), which is written down once."""
        channel = ClientChannel(self.target["address"], clock=SystemClock(), log=NullLog())
        await channel.open()
        await channel.hello()
        made = [TopicConfigBody(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues) for topic in topics]
        body = encode_body(CreateTopicListBody(topic_config_list=made))
        try:
            answer = await channel.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body, timeout_ms=60_000)
            if answer.code:
                raise RuntimeError(f"{len(topics)} topics refused: {answer.remark}")
        finally:
            channel.close()

    async def delete(self, topics: Sequence[str]) -> None:
        async with Admin(self.target["namesrv"]) as admin:
            for topic in topics:
                await admin.delete_topic(topic)

    async def send(self, topic: str, body: bytes) -> None:
        await self.producer.send(Message(topic, body))

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        if how == "arrow":
            await self.producer.send_arrow(self._columns(body, count), topic=topic)
        elif how == "interleaved":
            sends = [self.producer.send_nowait(Message(topic, body), selector=_nth(at)) for at in range(count)]
            await asyncio.gather(*sends)
        else:
            await self.producer.send_batch([Message(topic, body) for _ in range(count)])

    def _columns(self, body: bytes, count: int) -> Any:
        key = (len(body), count)
        if getattr(self, "_columns_key", None) != key:
            import pyarrow as pa

            bodies = pa.array([os.urandom(len(body))] * count, pa.binary())
            self._columns_made, self._columns_key = pa.record_batch([bodies], names=["body"]), key
        return self._columns_made

    def send_soon(self, topic: str, body: bytes, done: Callable[[BaseException | None], None]) -> None:
        self.producer.send_nowait(Message(topic, body)).add_done_callback(lambda future: done(future.exception()))

    def _consumer(self) -> PullConsumer:
        return PullConsumer(f"bench-{os.urandom(4).hex()}", self.target["namesrv"])

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        count = touched = 0
        async with self._consumer() as consumer:
            await consumer.queues(topic)
            if how == "arrow":
                import pyarrow as pa
                import pyarrow.compute as pc

                pc.cast(pa.array(["warm"]), pa.binary())  # the import takes 0.3 s
                timer.begin()
                while count < expected:
                    batch = await consumer.poll_arrow(topic, max_messages=100_000, timeout_ms=TIMEOUT_MS)
                    count += batch.num_rows
                    touched += pc.sum(pc.binary_length(_bodies(batch))).as_py() or 0
            elif how == "batch":
                timer.begin()
                async for messages in consumer.stream_batches(topic, start="earliest"):
                    count += len(messages)
                    touched += sum(len(message.body) for message in messages)
                    if count >= expected:
                        break
            else:
                timer.begin()
                async for message in consumer.stream(topic, start="earliest"):
                    count += 1
                    touched += len(message.body)
                    if count >= expected:
                        break
            timer.end()
        return touched

    async def push(self, topic: str, saw: Callable[[bytes], None]) -> Callable[[], Coroutine[Any, Any, object]]:
        consumer = PushConsumer(f"bench-{os.urandom(4).hex()}", instance=self.instance)

        @consumer.subscribe(topic)
        async def handle(message: ReceivedMessage) -> None:
            saw(message.body)

        await consumer.start()
        while not consumer.assigned:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await asyncio.sleep(FIRST_PULLS_S)
        return consumer.stop

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        async with self._consumer() as consumer:
            for queue in await consumer.queues(topic):
                await consumer.seek(queue, "latest")
            ready.set()
            async for messages in consumer.stream_batches(topic, start="latest"):
                for message in messages:
                    saw(message.body)

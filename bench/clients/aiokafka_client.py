"""Kafka by aiokafka: acks=all, no compression; a batch is built by ``create_batch``, the library's fastest way."""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from bench.clients.base import Client, ReadTimer

BATCH_BYTES = 1 << 20
FETCH_BYTES = 4 << 20


class AiokafkaClient(Client):
    """One producer; a consumer with partitions assigned, without a group, when there is something to read."""

    async def open(self) -> None:
        self.where = f"{self.target['host']}:{self.target['port']}"
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.where,
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            max_request_size=BATCH_BYTES + (1 << 16),
            request_timeout_ms=30_000,
        )
        await self.producer.start()
        self.turn = 0

    async def close(self) -> None:
        await self.producer.stop()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.where, request_timeout_ms=120_000)
        await admin.start()
        try:
            new = [NewTopic(topic, queues, int(self.target.get("replicas", 1))) for topic in topics]
            for start in range(0, len(new), 500):
                try:
                    await admin.create_topics(new[start : start + 500], timeout_ms=120_000)
                except TopicAlreadyExistsError:
                    pass
        finally:
            await admin.close()
        for _ in range(200):
            partitions = await self.producer.client._wait_on_metadata(topics[-1])
            if len(partitions) == queues:
                break
            await asyncio.sleep(0.05)

    async def delete(self, topics: Sequence[str]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.where)
        await admin.start()
        try:
            await admin.delete_topics(list(topics))
        finally:
            await admin.close()

    async def send(self, topic: str, body: bytes) -> None:
        await self.producer.send_and_wait(topic, body)

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        partitions = sorted(await self.producer.partitions_for(topic))
        left = count
        answers: list[Any] = []
        while left:
            batch = self.producer.create_batch()
            while left and batch.append(key=None, value=body, timestamp=None) is not None:
                left -= 1
            self.turn += 1
            answers.append(
                await self.producer.send_batch(batch, topic, partition=partitions[self.turn % len(partitions)])
            )
        await asyncio.gather(*answers)

    async def _consumer(self, topic: str, reset: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.where,
            group_id=None,
            client_id=f"bench-{os.urandom(4).hex()}",
            auto_offset_reset=reset,
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_bytes=16 << 20,
            enable_auto_commit=False,
        )
        await consumer.start()
        partitions = sorted(await self.producer.partitions_for(topic))
        consumer.assign([TopicPartition(topic, partition) for partition in partitions])
        return consumer

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        count = touched = 0
        consumer = await self._consumer(topic, "earliest")
        try:
            timer.begin()
            if how == "message":
                async for record in consumer:
                    count += 1
                    touched += len(record.value)
                    if count >= expected:
                        break
            else:
                while count < expected:
                    for records in (await consumer.getmany(timeout_ms=5000, max_records=10_000)).values():
                        count += len(records)
                        touched += sum(len(record.value) for record in records)
            timer.end()
        finally:
            await consumer.stop()
        return touched

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        consumer = await self._consumer(topic, "latest")
        try:
            await consumer.seek_to_end()
            for partition in consumer.assignment():
                await consumer.position(partition)
            ready.set()
            async for record in consumer:
                saw(record.value)
        finally:
            await consumer.stop()

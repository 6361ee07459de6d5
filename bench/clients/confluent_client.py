"""Kafka by confluent-kafka (librdkafka): acks=all, no compression. Its own threads send; loads run by callbacks.

The closed loop here is written for its callbacks: an asyncio future for each message would measure asyncio. A batch of
``n`` is ``produce_batch`` where the version has it, else ``produce`` n times. ``linger.ms`` is what measured best: 0
with one in flight, 0.5 with more (0 sends a request for each message: a thirtieth of the rate), 5, its default, for
batches.
"""

import asyncio
import os
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.base.histogram import Latencies
from bench.clients.base import Client, ClosedLoad, Measured, ReadTimer

COMMON = {"log_level": 0}
LINGER_ONE_MS, LINGER_MANY_MS, LINGER_BATCH_MS = 0.0, 0.5, 5.0
POLL_S = 0.1


class ConfluentClient(Client):
    """One producer; a consumer with partitions assigned when there is something to read."""

    async def open(self) -> None:
        self.where = f"{self.target['host']}:{self.target['port']}"
        self.lingering: dict[float, Producer] = {}
        self.polling: asyncio.Task[None] | None = None

    def _producer(self, linger_ms: float) -> Producer:
        if linger_ms not in self.lingering:
            self.lingering[linger_ms] = Producer(
                {
                    **COMMON,
                    "bootstrap.servers": self.where,
                    "acks": "all",
                    "compression.type": "none",
                    "linger.ms": linger_ms,
                    "batch.size": 1 << 20,
                    "batch.num.messages": 10_000,
                    "queue.buffering.max.messages": 1_000_000,
                    "queue.buffering.max.kbytes": 1 << 20,
                }
            )
        return self.lingering[linger_ms]

    async def close(self) -> None:
        if self.polling is not None:
            self.polling.cancel()
        for producer in self.lingering.values():
            producer.flush(5)

    async def create(self, topics: Sequence[str], queues: int) -> None:
        admin = AdminClient({**COMMON, "bootstrap.servers": self.where})
        replicas = int(self.target.get("replicas", 1))
        for start in range(0, len(topics), 500):
            new = [NewTopic(topic, queues, replicas) for topic in topics[start : start + 500]]
            for made in admin.create_topics(new, operation_timeout=120, request_timeout=120).values():
                try:
                    await asyncio.to_thread(made.result)
                except Exception as error:
                    if "TOPIC_ALREADY_EXISTS" not in str(error):
                        raise
        for _ in range(200):
            known = await asyncio.to_thread(admin.list_topics, topics[-1], 10)
            if len(known.topics[topics[-1]].partitions) == queues:
                break
            await asyncio.sleep(0.05)

    async def delete(self, topics: Sequence[str]) -> None:
        admin = AdminClient({**COMMON, "bootstrap.servers": self.where})
        for gone in admin.delete_topics(list(topics)).values():
            await asyncio.to_thread(gone.result)

    async def closed(self, load: ClosedLoad) -> Measured:
        """Keep the messages in flight from one thread; callbacks are served by ``poll``."""
        return await asyncio.to_thread(self._closed, load)

    def _closed(self, load: ClosedLoad) -> Measured:
        many_ms = LINGER_MANY_MS if load.in_flight > 1 else LINGER_ONE_MS
        producer = self._producer(many_ms if load.batch == 1 else LINGER_BATCH_MS)
        body, topics = load.body(), list(load.topics)
        for topic in topics[:1]:
            producer.list_topics(topic, 10)
        measured = Measured()
        taken = array("q")
        outstanding = answered = sent = 0
        limit = load.in_flight * load.batch
        messages_max = max(limit, load.bytes_max // max(1, load.size_bytes))
        batch_of = getattr(producer, "produce_batch", None) if load.batch > 1 else None
        messages = [{"value": body} for _ in range(load.batch)]
        clock = time.perf_counter_ns

        def answer(started: int) -> Callable[[Any, Any], None]:
            def done(error: Any, message: Any) -> None:
                nonlocal outstanding, answered
                outstanding -= 1
                if error is None:
                    answered += 1
                    taken.append(clock() - started)
                else:
                    measured.failed += 1
                    measured.error = measured.error or str(error)

            return done

        begin = clock()
        end = begin + int(load.seconds * 1e9)
        while (now := clock()) < end and sent < messages_max:
            if outstanding + load.batch > limit:
                producer.poll(POLL_S)
                continue
            outstanding += load.batch
            done = answer(now)
            topic = topics[(sent // load.batch) % len(topics)]
            if batch_of is not None:
                batch_of(topic, messages, callback=done)
            else:
                for _ in range(load.batch):
                    producer.produce(topic, body, on_delivery=done)
            sent += load.batch
            producer.poll(0)
        give_up = clock() + int(30e9)
        while outstanding and clock() < give_up:
            producer.poll(POLL_S)
        measured.elapsed_s = (clock() - begin) / 1e9
        measured.count = answered
        measured.latencies = Latencies.of_taken(taken)
        return measured

    def send_soon(self, topic: str, body: bytes, done: Callable[[BaseException | None], None]) -> None:
        many_ms = LINGER_MANY_MS if int(self.target.get("in_flight", 2)) > 1 else LINGER_ONE_MS
        producer = self._producer(many_ms)
        if self.polling is None:
            self.polling = asyncio.get_running_loop().create_task(self._poll(producer))

        def answered(error: Any, message: Any) -> None:
            done(None if error is None else RuntimeError(str(error)))

        producer.produce(topic, body, on_delivery=answered)

    async def _poll(self, producer: Producer) -> None:
        while True:  # noqa: ASYNC110  (the library has no event to wait for)
            await asyncio.sleep(0 if producer.poll(0) else 0.0002)

    async def send(self, topic: str, body: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.send_soon(topic, body, done)
        await future

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        measured = await self.closed(ClosedLoad([topic], len(body), 1, batch=count, bytes_max=0))
        if measured.failed:
            raise RuntimeError(measured.error)

    def _consumer(self, topic: str, where: str) -> Consumer:
        consumer = Consumer(
            {
                **COMMON,
                "bootstrap.servers": self.where,
                "group.id": f"bench-{os.urandom(4).hex()}",
                "enable.auto.commit": False,
                "auto.offset.reset": where,
                "fetch.message.max.bytes": 4 << 20,
                "queued.max.messages.kbytes": 256 << 10,
            }
        )
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        assigned = []
        for number in sorted(partitions):
            partition = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(partition, timeout=10)
            partition.offset = low if where == "earliest" else high
            assigned.append(partition)
        consumer.assign(assigned)
        return consumer

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        return await asyncio.to_thread(self._read, topic, how, expected, timer)

    def _read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        count = touched = 0
        consumer = self._consumer(topic, "earliest")
        give_up = time.monotonic() + 60
        timer.begin()
        while count < expected:
            if how == "message":
                message = consumer.poll(1)
                got = [] if message is None else [message]
            else:
                got = consumer.consume(1000, 1)
            if not got and time.monotonic() > give_up:
                raise TimeoutError(f"{count} of {expected} messages arrived")
            count += len(got)
            for message in got:
                touched += len(message.value())
        timer.end()
        consumer.close()
        return touched

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        consumer = await asyncio.to_thread(self._consumer, topic, "latest")
        try:
            ready.set()
            while True:
                got = consumer.consume(1000, 0)
                for message in got:
                    if message.error() is None:
                        saw(message.value())
                await asyncio.sleep(0 if got else 0.0005)
        finally:
            consumer.close()

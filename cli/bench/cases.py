"""The cases of ``pocketmq bench``: each sends or reads real messages through a running broker and returns one row.

Lives here: ``closed_loop``, producing one by one, in batches and as columns, consuming by message and by Arrow batch;
``Row``, the result. The benchmarks at the root of the repository use it.
"""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pocketmq.client import Message, Producer, PullConsumer


@dataclass(slots=True)
class Row:
    """One measured case: ``count`` messages of ``size_bytes`` in ``elapsed_s``; latencies in ms where each was
    timed."""

    case: str
    size_bytes: int
    count: int
    elapsed_s: float
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.count / self.elapsed_s

    def percentile_ms(self, fraction: float) -> float | None:
        """Return the latency that ``fraction`` of the messages did not exceed, or None where none was taken."""
        if not self.latencies_ms:
            return None
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


async def closed_loop(
    send: Callable[[], Awaitable[object]], *, in_flight: int, count: int = 1 << 62, seconds: float = math.inf
) -> Row:
    """Let ``in_flight`` tasks await ``send`` in a loop, ``count`` times together or for ``seconds``.

    A latency is the time from the call to its return. The first error ends the loop and is raised.
    """
    latencies_ms: list[float] = []
    clock, note, per_task = time.perf_counter, latencies_ms.append, count // in_flight
    end = clock() + seconds

    async def one() -> None:
        for _ in range(per_task):
            begin = clock()
            if begin >= end:
                return
            await send()
            note((clock() - begin) * 1000)

    begin = clock()
    await asyncio.gather(*(one() for _ in range(in_flight)))
    return Row("", 0, len(latencies_ms), clock() - begin, latencies_ms)


async def produce_one_by_one(producer: Producer, topic: str, *, size_bytes: int, in_flight: int, count: int) -> Row:
    """Await each receipt, in ``in_flight`` concurrent tasks."""
    body = os.urandom(size_bytes)
    row = await closed_loop(lambda: producer.send(Message(topic, body)), in_flight=in_flight, count=count)
    return replace(row, case=f"produce, {in_flight} in flight", size_bytes=size_bytes)


async def produce_batches(producer: Producer, topic: str, *, size_bytes: int, batch: int, count: int) -> Row:
    """Send batches of ``Message`` objects, two at a time, so that client and broker work concurrently."""
    body = os.urandom(size_bytes)
    row = await closed_loop(
        lambda: producer.send_batch([Message(topic, body) for _ in range(batch)]),
        in_flight=2,
        count=max(2, count // batch),
    )
    return Row(f"produce, batches of {batch}", size_bytes, row.count * batch, row.elapsed_s)


async def produce_arrow(producer: Producer, topic: str, *, size_bytes: int, batch: int, count: int) -> Row:
    """Send columns: no object per message."""
    import pyarrow as pa

    bodies = pa.array([os.urandom(size_bytes)] * batch, pa.binary())
    columns = pa.record_batch([bodies], names=["body"])
    send = partial(producer.send_arrow, columns, topic=topic)
    row = await closed_loop(send, in_flight=2, count=max(2, count // batch))
    return Row(f"produce, Arrow batches of {batch}", size_bytes, row.count * batch, row.elapsed_s)


async def consume_messages(consumer: PullConsumer, topic: str, *, size_bytes: int) -> Row:
    """Read a whole topic as message objects, touching each body."""
    count = touched = 0
    begin = time.perf_counter()
    async for message in consumer.stream(topic, start="earliest", stop_at_end=True):
        count += 1
        touched += len(message.body)
    elapsed = time.perf_counter() - begin
    assert touched == count * size_bytes
    return Row("consume by message", size_bytes, count, elapsed)


async def consume_arrow(consumer: PullConsumer, topic: str, *, size_bytes: int, expected: int) -> Row:
    """Read a whole topic as Arrow batches of its default columns; the import of pyarrow (0.3 s) is not counted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.cast(pa.array(["warm"]), pa.binary())
    count = 0
    begin = time.perf_counter()
    while count < expected:
        batch = await consumer.poll_arrow(topic, max_messages=100_000)
        count += batch.num_rows
    elapsed = time.perf_counter() - begin
    return Row("consume by Arrow batch", size_bytes, count, elapsed)

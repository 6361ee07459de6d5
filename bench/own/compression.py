"""Compressed bodies: what packing and unpacking cost by type and size, and what they do to a producer and a consumer.

Conditions: bodies are JSON of orders, with numbers and names that differ; ``ratio`` is packed over plain. Codecs in
this process, best of several repeats (``hop_us``: a thread and back, for nothing). Then one broker in a process of its
own, ASYNC_FLUSH, bodies of ``BODY_BYTES``, sends awaited by ``IN_FLIGHT`` tasks, read back and unpacked; the types take
turns, medians of ``ROUNDS``.

Run: ``python -m bench compression``; ``COUNT=2000`` for a shorter one.
"""

import asyncio
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from bench.own.records import best_us
from pocketmq.client import CompressionType, Message, Producer, PullConsumer
from pocketmq.common.body_codec import compress_body, decompress_body
from pocketmq.common.record import COMPRESSED_FLAG
from pocketmq.remoting.loop import new_event_loop

SIZES = (4096, 16 << 10, 32 << 10, 64 << 10, 512 << 10, 1 << 20)
COUNT = int(os.environ.get("COUNT", "20000"))
BODY_BYTES = 8192
IN_FLIGHT = 64
ROUNDS = 3
LEVELS = (1, 5)

Row = dict[str, object]


def orders(size_bytes: int, seed: int = 7) -> bytes:
    """Return JSON of about this size, the same for the same seed."""
    rng = random.Random(seed)
    parts: list[bytes] = []
    length = 0
    while length < size_bytes:
        order = {
            "id": rng.getrandbits(40),
            "customer": f"customer {rng.randrange(100_000)}",
            "amount": round(rng.random() * 500, 2),
            "lines": [rng.randrange(10_000) for _ in range(4)],
        }
        parts.append(json.dumps(order).encode())
        length += len(parts[-1])
    return b"".join(parts)[:size_bytes]


def codecs() -> Iterator[Row]:
    """Yield the cost of each type at each size."""
    for kind in CompressionType:
        for level in LEVELS if kind is not CompressionType.LZ4 else LEVELS[:1]:
            for size_bytes in SIZES:
                yield codec_row(kind, level, orders(size_bytes))


def codec_row(kind: CompressionType, level: int, body: bytes) -> Row:
    """Return the cost of one type for one body."""
    packed = compress_body(body, kind, level)
    return {
        "codec": kind.name,
        "level": level,
        "body_bytes": len(body),
        "pack_us": round(best_us(lambda: compress_body(body, kind, level), 1), 1),
        "unpack_us": round(best_us(lambda: decompress_body(packed, COMPRESSED_FLAG | kind.value), 1), 1),
        "ratio": round(len(packed) / len(body), 3),
    }


async def hop_us(count: int = 2000) -> float:
    """Return what a call in a thread costs, there and back."""
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    for _ in range(count):
        await loop.run_in_executor(None, int)
    return (time.perf_counter() - begin) / count * 1e6


async def through(namesrv: str, kind: CompressionType | None, number: int) -> tuple[float, float]:
    """Return sends and reads a second."""
    topic = f"Packed-{kind.name if kind else 'none'}-{number}"
    bodies = [orders(BODY_BYTES, seed) for seed in range(64)]
    async with Producer(group="bench", namesrv=namesrv, compress_type=kind) as producer:
        await producer.send(Message(topic, b"first"))

        async def one(task: int) -> None:
            for at in range(COUNT // IN_FLIGHT):
                await producer.send(Message(topic, bodies[(task + at) % len(bodies)]))

        begin = time.perf_counter()
        await asyncio.gather(*(one(task) for task in range(IN_FLIGHT)))
        sent = COUNT // IN_FLIGHT * IN_FLIGHT
        send_rate = sent / (time.perf_counter() - begin)
    async with PullConsumer(group="bench", namesrv=namesrv) as consumer:
        begin = time.perf_counter()
        read = 0
        async for messages in consumer.stream_batches(topic, start="earliest", stop_at_end=True):
            read += sum(len(message.body) == BODY_BYTES for message in messages)
        assert read == sent
        return send_rate, read / (time.perf_counter() - begin)


def run() -> Iterator[Row]:
    """Yield the rows."""
    yield from codecs()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        yield {"hop": "run_in_executor", "hop_us": round(runner.run(hop_us()), 1)}
        directory = Path(tempfile.mkdtemp(prefix="pocketmq-bench-"))
        try:
            with BrokerProcess(directory / "data") as broker:
                kinds: list[CompressionType | None] = [None, *CompressionType]
                rates: dict[CompressionType | None, list[tuple[float, float]]] = {kind: [] for kind in kinds}
                for number in range(ROUNDS):
                    for kind in kinds:
                        rates[kind].append(runner.run(through(broker.namesrv, kind, number)))
                for kind in kinds:
                    yield {
                        "through": kind.name if kind else "none",
                        "body_bytes": BODY_BYTES,
                        "sends_per_s": round(statistics.median(send for send, _ in rates[kind])),
                        "reads_per_s": round(statistics.median(read for _, read in rates[kind])),
                    }
        finally:
            shutil.rmtree(directory, ignore_errors=True)

"""Compressed bodies: what packing and unpacking cost by type and size, and what they do to a producer and a consumer.

Conditions: bodies are JSON of orders, with numbers and names that differ; ``ratio`` is packed over plain. Codecs in
this process, best of several repeats (``hop_us``: a thread and back, for nothing). Then one broker in a process of its
own, ASYNC_FLUSH, bodies of ``BODY_BYTES``, sends awaited by ``IN_FLIGHT`` tasks, read back and unpacked; the types take
turns, medians of ``ROUNDS``.

Run: ``python -m bench compression``; ``COUNT=2000`` for a shorter one.
"""

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import Iterator

from bench.base.harness import Row, in_loop, in_turns, medians, own_broker, scaled
from bench.own.store.records import best_us
from pocketmq.cli.bench.cases import closed_loop
from pocketmq.client import CompressionType, Message, Producer, PullConsumer
from pocketmq.common.body_codec import compress_body, decompress_body
from pocketmq.common.record import COMPRESSED_FLAG

SIZES = scaled((4096, 16 << 10, 32 << 10, 64 << 10, 512 << 10, 1 << 20), (4096, 64 << 10))
COUNT = int(os.environ.get("COUNT", scaled("20000", "2000")))
BODY_BYTES = 8192
IN_FLIGHT = 64
ROUNDS = scaled(3, 1)
LEVELS = (1, 5)


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


async def through(namesrv: str, kind: CompressionType | None) -> dict[str, float]:
    """Return sends and reads a second."""
    topic = f"Packed-{time.time_ns()}"
    bodies = itertools.cycle([orders(BODY_BYTES, seed) for seed in range(64)])
    async with Producer(group="bench", namesrv=namesrv, compress_type=kind) as producer:
        await producer.send(Message(topic, b"first"))
        sent = await closed_loop(lambda: producer.send(Message(topic, next(bodies))), in_flight=IN_FLIGHT, count=COUNT)
    async with PullConsumer(group="bench", namesrv=namesrv) as consumer:
        begin = time.perf_counter()
        read = 0
        async for messages in consumer.stream_batches(topic, start="earliest", stop_at_end=True):
            read += sum(len(message.body) == BODY_BYTES for message in messages)
        assert read == sent.count
        return {"sends_per_s": sent.rate, "reads_per_s": read / (time.perf_counter() - begin)}


def run() -> Iterator[Row]:
    """Yield the rows."""
    yield from codecs()
    yield {"hop": "run_in_executor", "hop_us": round(in_loop(hop_us()), 1)}
    with own_broker() as broker:
        kinds = (None, *CompressionType)
        rates = in_turns(ROUNDS, kinds, lambda kind: in_loop(through(broker.namesrv, kind)))
        for kind, of_kind in rates.items():
            yield {"through": kind.name if kind else "none", "body_bytes": BODY_BYTES, **medians(of_kind, 0)}

"""Ordered push consumption: 16 queues under the broker's locks, and what a stop costs those that wait.

Conditions of every row: messages of 1 KiB with a sharding key in one topic of 16 queues, read from the page cache, the
consumer in this process and the broker (with the name server) in another; offsets persisted every 5 s. The handlers
check the order of their queue, and nothing else; a row counts only if it holds.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.base.broker_process import BrokerProcess
from pocketmq.client import ClientInstance, ConsumeFromWhere, Message, Producer, PushConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.loop import new_event_loop

SIZE_BYTES = 1024
QUEUES = 16
KEYS = 997
COUNT = 300_000
ROUNDS = 3
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def _fill(namesrv: str, topic: str, count: int) -> None:
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=QUEUES)
    async with Producer(group="bench-fill", namesrv=namesrv) as producer:
        body = bytes(SIZE_BYTES)
        for start in range(0, count, 2000):
            numbers = range(start, min(start + 2000, count))
            await producer.send_batch([Message(topic, body, sharding_key=f"k{number % KEYS}") for number in numbers])


async def _consume(namesrv: str, topic: str, kind: str, count: int, round_number: int) -> dict[str, Any]:
    """Time from the first to the last message of a group of its own."""
    consumer = PushConsumer(f"bench-ordered-{kind}-{round_number}", namesrv, consume_from_where=FIRST)
    next_offset = [0] * QUEUES
    seen, begin, wrong, end = 0, 0.0, 0, asyncio.Event()

    def saw(message: Any) -> None:
        nonlocal seen, begin, wrong
        if not seen:
            begin = time.perf_counter()
        queue_id = message.queue_id
        if message.queue_offset != next_offset[queue_id]:
            wrong += 1
        next_offset[queue_id] = message.queue_offset + 1
        seen += 1
        if seen >= count:
            end.set()

    async def handle(message: Any) -> None:
        saw(message)

    async def handle_batch(messages: list[Any]) -> None:
        for message in messages:
            saw(message)

    if kind == "async":
        consumer.subscribe(topic, ordered=True)(handle)
    else:
        consumer.subscribe_batch(topic, max_messages=1000, ordered=True)(handle_batch)
    cpu_s = time.process_time()
    async with consumer:
        await end.wait()
        elapsed_s = time.perf_counter() - begin
        cpu_s = time.process_time() - cpu_s
    if wrong:
        raise AssertionError(f"{wrong} messages out of order")
    return {
        "case": f"ordered, {kind} handler",
        "messages_per_s": round(count / elapsed_s),
        "client_cpu_us": round(cpu_s / count * 1e6, 2),
        "size_bytes": SIZE_BYTES,
        "queues": QUEUES,
        "count": count,
    }


async def _hand_over(namesrv: str, topic: str, round_number: int) -> dict[str, Any]:
    """Time from the call of ``stop`` until the other member has the locks of all queues and reads them."""

    def make(number: int) -> PushConsumer:
        instance = ClientInstance(namesrv, instance_name=f"ordered-{round_number}-{number}")
        consumer = PushConsumer(f"bench-ordered-hand-{round_number}", instance=instance, consume_from_where=FIRST)
        consumer.subscribe(topic, ordered=True)(_nothing)
        return consumer

    stays, leaves = make(0), make(1)
    await stays.start()
    await leaves.start()
    while len(stays.assigned) != QUEUES // 2 or len(leaves.assigned) != QUEUES // 2:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    begin = time.perf_counter()
    stopping = asyncio.create_task(leaves.stop())
    while len(stays.assigned) != QUEUES:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    handed_ms = (time.perf_counter() - begin) * 1000
    await stopping
    await stays.stop()
    return {"case": "ordered, graceful stop", "handed_over_ms": round(handed_ms, 1), "queues": QUEUES // 2}


async def _nothing(message: Any) -> None:
    pass


async def _cases(namesrv: str, count: int) -> list[dict[str, Any]]:
    await _fill(namesrv, "ordered", count)
    await _fill(namesrv, "ordered-few", QUEUES)
    rows: list[dict[str, Any]] = []
    for kind in ("async", "batch"):
        rounds = [await _consume(namesrv, "ordered", kind, count, number) for number in range(ROUNDS)]
        rows.append(max(rounds, key=lambda row: int(row["messages_per_s"])))
    return rows + [await _hand_over(namesrv, "ordered-few", number) for number in range(ROUNDS)]


def run(count: int = COUNT) -> Iterator[dict[str, Any]]:
    """Yield every case; of the throughputs the best of three rounds."""
    directory = Path(tempfile.mkdtemp(dir="."))
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with BrokerProcess(directory / "data") as broker:
            yield from loop.run_until_complete(_cases(broker.namesrv, count))
    finally:
        loop.close()
        shutil.rmtree(directory, ignore_errors=True)

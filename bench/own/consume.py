"""Push consumption: handlers that do nothing, a hundred consumers that join at once, a stop that hands queues over.

Conditions of every row: messages of 1 KiB in one topic of 8 queues, read from the page cache, the consumer in this
process and the broker (with the name server) in another; offsets persisted every 5 s.
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
QUEUES = 8
COUNT = 400_000
ROUNDS = 3
CONSUMERS = 100
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def _fill(namesrv: str, topic: str, queues: int, count: int) -> None:
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=queues)
    async with Producer(group="bench-fill", namesrv=namesrv) as producer:
        body = bytes(SIZE_BYTES)
        for start in range(0, count, 2000):
            await producer.send_batch([Message(topic, body) for _ in range(min(2000, count - start))])


async def _consume(namesrv: str, topic: str, kind: str, count: int, round_number: int) -> dict[str, object]:
    """Time from the first to the last message of a group of its own."""
    consumer = PushConsumer(f"bench-{kind}-{round_number}", namesrv, consume_from_where=FIRST)
    seen, begin, end = 0, 0.0, asyncio.Event()

    def saw(number: int) -> None:
        nonlocal seen, begin
        if not seen:
            begin = time.perf_counter()
        seen += number
        if seen >= count:
            end.set()

    async def handle(message: Any) -> None:
        saw(1)

    async def handle_batch(messages: list[Any]) -> None:
        saw(len(messages))

    if kind == "async":
        consumer.subscribe(topic)(handle)
    elif kind == "plain":
        loop = asyncio.get_running_loop()
        consumer.subscribe(topic)(lambda message: None if seen < 0 else loop.call_soon_threadsafe(saw, 1) and None)
    else:
        consumer.subscribe_batch(topic, max_messages=1000)(handle_batch)
    cpu_s = time.process_time()
    async with consumer:
        await end.wait()
        elapsed_s = time.perf_counter() - begin
        cpu_s = time.process_time() - cpu_s
    return {
        "case": f"push, {kind} handler",
        "messages_per_s": round(count / elapsed_s),
        "client_cpu_us": round(cpu_s / count * 1e6, 2),
        "size_bytes": SIZE_BYTES,
        "queues": QUEUES,
        "count": count,
    }


async def _settle(namesrv: str, topic: str, queues: int, consumers: int) -> dict[str, object]:
    """Time from the first start until every queue has exactly one reader and every consumer its share."""

    def make(number: int) -> PushConsumer:
        instance = ClientInstance(namesrv, instance_name=f"bench-{number}")
        consumer = PushConsumer("bench-settle", instance=instance, consume_from_where=FIRST)
        consumer.subscribe(topic)(_nothing)
        return consumer

    members = [make(number) for number in range(consumers)]
    share = queues // consumers
    begin = time.perf_counter()
    await asyncio.gather(*(member.start() for member in members))
    while True:
        held = [queue for member in members for queue in member.assigned]
        if len(held) == queues and len(set(held)) == queues and all(len(m.assigned) == share for m in members):
            break
        if time.perf_counter() - begin > 60:
            break
        await asyncio.sleep(0.01)
    settled_s = time.perf_counter() - begin
    await asyncio.gather(*(member.stop() for member in members))
    return {"case": f"{consumers} consumers join at once", "settle_s": round(settled_s, 2), "queues": queues}


async def _hand_over(namesrv: str, topic: str, round_number: int) -> dict[str, object]:
    """Time from the call of ``stop`` until the other consumer of the group has the queues.

    Both share this process's event loop; on topic ``push`` both are busy with a backlog meanwhile.
    """

    def make(number: int) -> PushConsumer:
        instance = ClientInstance(namesrv, instance_name=f"hand-{topic}-{round_number}-{number}")
        consumer = PushConsumer(f"bench-hand-{topic}-{round_number}", instance=instance, consume_from_where=FIRST)
        consumer.subscribe(topic)(_nothing)
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
    return {
        "case": f"graceful stop, queues handed over, {'backlog' if topic == 'push' else 'drained'}",
        "handed_over_ms": round(handed_ms, 1),
        "queues": QUEUES // 2,
    }


async def _nothing(message: Any) -> None:
    pass


def _rate(row: dict[str, object]) -> float:
    return float(str(row["messages_per_s"]))


async def _cases(namesrv: str, count: int) -> list[dict[str, object]]:
    await _fill(namesrv, "push", QUEUES, count)
    rows = []
    for kind in ("async", "batch", "plain"):
        best = [await _consume(namesrv, "push", kind, count, number) for number in range(ROUNDS)]
        rows.append(max(best, key=_rate))
    await _fill(namesrv, "quiet", QUEUES, QUEUES)
    rows += [await _hand_over(namesrv, topic, number) for topic in ("quiet", "push") for number in range(ROUNDS)]
    await _fill(namesrv, "wide", 2 * CONSUMERS, 2 * CONSUMERS)
    rows.append(await _settle(namesrv, "wide", 2 * CONSUMERS, CONSUMERS))
    return rows


def run(count: int = COUNT) -> Iterator[dict[str, object]]:
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

"""A whole broker in its own process, beside the machine's floors, in one run.

Conditions of every row: one topic of 4 queues, key index and group checksums on, asynchronous flush, segments of 1
GiB, the client in this process and the broker (with the name server) in another.
"""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from pocketmq.cli.bench import cases as bench_cases
from pocketmq.cli.bench import floors as bench_floors
from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.remoting.loop import new_event_loop

CONDITIONS = {"topics": 1, "queues": 4, "flush": "ASYNC_FLUSH", "index": True, "checksums": True}


def row_of(row: bench_cases.Row) -> dict[str, object]:
    result: dict[str, object] = {
        "case": row.case,
        "size_bytes": row.size_bytes,
        "messages_per_s": round(row.rate),
        "count": row.count,
    }
    for name, fraction in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        value = row.percentile_ms(fraction)
        if value is not None:
            result[name] = round(value, 3)
    return result | CONDITIONS


async def cases(namesrv: str) -> list[dict[str, object]]:
    """Run every case once against the broker behind ``namesrv``."""
    rows: list[bench_cases.Row] = []
    async with Producer(group="bench", namesrv=namesrv) as producer:
        for topic, size_bytes in (("one", 1024), ("single", 1024), ("kilobyte", 1024), ("small", 100), ("arrow", 100)):
            await producer.send(Message(topic, bytes(size_bytes)))
        rows.append(await bench_cases.produce_one_by_one(producer, "one", size_bytes=1024, in_flight=1, count=5_000))
        rows.append(
            await bench_cases.produce_one_by_one(producer, "single", size_bytes=1024, in_flight=64, count=300_000)
        )
        rows.append(await bench_cases.produce_batches(producer, "kilobyte", size_bytes=1024, batch=500, count=500_000))
        rows.append(await bench_cases.produce_batches(producer, "small", size_bytes=100, batch=1000, count=1_000_000))
        rows.append(await bench_cases.produce_arrow(producer, "arrow", size_bytes=100, batch=5_000, count=1_000_000))
    async with PullConsumer(group="bench", namesrv=namesrv) as consumer:
        rows.append(await bench_cases.consume_messages(consumer, "small", size_bytes=100))
        rows.append(await bench_cases.consume_arrow(consumer, "arrow", size_bytes=100, expected=1_000_000))
        rows.append(await bench_cases.consume_arrow(consumer, "kilobyte", size_bytes=1024, expected=500_000))
    return [row_of(row) for row in rows]


def run() -> Iterator[dict[str, object]]:
    """Yield floors, start-up, idle figures and every case."""
    directory = Path(tempfile.mkdtemp(dir="."))
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        floors = loop.run_until_complete(bench_floors.measure(directory, quick=True))
        for floor in floors:
            yield {
                "floor": floor.name,
                "messages_per_s": round(floor.rate),
                "p50_ms": floor.p50_ms and round(floor.p50_ms, 3),
            }
        ready = []
        for attempt in range(5):
            with BrokerProcess(directory / f"start{attempt}") as broker:
                ready.append(broker.ready_s)
        with BrokerProcess(directory / "data") as broker:
            cpu_s, begin = broker.cpu_s(), time.perf_counter()
            time.sleep(5)
            idle = (broker.cpu_s() - cpu_s) / (time.perf_counter() - begin)
            memory = {f"idle_{name}_mb": round(value, 1) for name, value in broker.memory_mb().items()}
            yield {
                "case": "idle",
                "ready_s": round(statistics.median(ready), 3),
                "cpu_percent": round(idle * 100, 2),
                **memory,
            }
            yield from loop.run_until_complete(cases(broker.namesrv))
            yield {
                "case": "after the load",
                **{f"{name}_mb": round(value, 1) for name, value in broker.memory_mb().items()},
            }
    finally:
        loop.close()
        shutil.rmtree(directory, ignore_errors=True)

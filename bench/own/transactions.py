"""Transactions beside plain sends: half message, an empty local transaction, the decision with its answer.

Conditions: one broker in a process of its own, ASYNC_FLUSH; one producer, messages of 1 KiB, awaited one by one by
``in_flight`` tasks; plain and transactional rounds take turns, medians of ``ROUNDS`` pairs. ``delivered``: until all
committed messages have been read back. Then the same with RocketMQ's requests only (a broker that announces no native
transactions), and what a broker with many open half messages costs plain sends.

Run: ``python -m bench transactions``; ``TRANSACTIONS=2000`` for a shorter one.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.base.broker_process import BrokerProcess
from pocketmq.cli.bench import cases as bench_cases
from pocketmq.client import Message, PullConsumer, TransactionProducer
from pocketmq.client.connection.instance import Link
from pocketmq.common.message import ReceivedMessage
from pocketmq.remoting.loop import new_event_loop

COUNT = int(os.environ.get("TRANSACTIONS", "20000"))
ROUNDS = 5
SIZE_BYTES = 1024
OPEN = 50_000

Row = dict[str, object]


async def unknown(message: ReceivedMessage) -> None:
    """Answer every check with "ask again"."""


async def transactions(producer: TransactionProducer, topic: str, in_flight: int, count: int) -> tuple[float, float]:
    """Return transactions a second and their p99 in ms."""
    body = os.urandom(SIZE_BYTES)
    took_s: list[float] = []

    async def local(message: Message) -> bool:
        return True

    async def one() -> None:
        for _ in range(count // in_flight):
            begin = time.perf_counter()
            result = await producer.send_in_transaction(Message(topic, body), local)
            took_s.append(time.perf_counter() - begin)
            assert result.committed or not native(producer)

    begin = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(in_flight)))
    rate = count // in_flight * in_flight / (time.perf_counter() - begin)
    return rate, sorted(took_s)[int(len(took_s) * 0.99)] * 1000


def native(producer: TransactionProducer) -> bool:
    """Tell whether the producer's broker answers decisions."""
    links: dict[str, Link] = producer.instance._links
    return all(link.announcement is not None and link.announcement.transactions for link in links.values())


def without_native(producer: TransactionProducer) -> None:
    """Let the producer speak to its broker as to one without native transactions."""
    links: dict[str, Link] = producer.instance._links
    for address, link in list(links.items()):
        assert link.announcement is not None
        plain = msgspec.structs.replace(link.announcement, transactions=0, native=0)
        links[address] = Link(link.broker_name, address, link.channel, plain)


async def delivered(namesrv: str, topic: str, count: int) -> int:
    """Read until ``count`` messages have come; return how many different ones."""
    seen: set[str] = set()
    async with PullConsumer(group="bench", namesrv=namesrv) as consumer:
        async for message in consumer.stream(topic, start="earliest"):
            seen.add(message.msg_id)
            if len(seen) == count:
                break
    return len(seen)


async def compare(namesrv: str) -> list[Row]:
    """Let plain sends and transactions take turns."""
    rows: list[Row] = []
    async with TransactionProducer("bench", namesrv, check=unknown) as producer:
        await producer.send(Message("plain", b"open"))
        for in_flight, count in ((1, COUNT // 10), (64, COUNT), (1024, COUNT)):
            figures: dict[str, list[float]] = {"plain": [], "tx": [], "plain_p99": [], "tx_p99": []}
            for number in range(ROUNDS + 1):
                row = await bench_cases.produce_one_by_one(
                    producer, "plain", size_bytes=SIZE_BYTES, in_flight=in_flight, count=count
                )
                rate, p99_ms = await transactions(producer, f"tx{in_flight}", in_flight, count)
                if number:  # the first round warms up
                    for name, value in zip(
                        figures, (row.rate, rate, row.percentile_ms(0.99) or 0.0, p99_ms), strict=True
                    ):
                        figures[name].append(value)
            medians = {name: statistics.median(values) for name, values in figures.items()}
            ratio = statistics.median(b / a for a, b in zip(figures["plain"], figures["tx"], strict=True))
            rows.append(
                {
                    "case": f"{in_flight} in flight",
                    "plain_per_s": round(medians["plain"]),
                    "transactions_per_s": round(medians["tx"]),
                    "ratio": round(ratio, 3),
                    "plain_p99_ms": round(medians["plain_p99"], 2),
                    "transaction_p99_ms": round(medians["tx_p99"], 2),
                }
            )
        wanted = (ROUNDS + 1) * (COUNT // 64 * 64)
        begin = time.perf_counter()
        found = await delivered(namesrv, "tx64", wanted)
        rows.append(
            {"case": "delivered", "committed": wanted, "read": found, "s": round(time.perf_counter() - begin, 1)}
        )
        without_native(producer)
        for number in range(2):
            row = await bench_cases.produce_one_by_one(
                producer, "plain", size_bytes=SIZE_BYTES, in_flight=64, count=COUNT // 2
            )
            rate, p99_ms = await transactions(producer, "typed", 64, COUNT // 2)
            if number:
                rows.append(
                    {
                        "case": "RocketMQ's requests, 64 in flight",
                        "plain_per_s": round(row.rate),
                        "transactions_per_s": round(rate),
                        "ratio": round(rate / row.rate, 3),
                        "transaction_p99_ms": round(p99_ms, 2),
                    }
                )
    return rows


async def beside_open(namesrv: str) -> Row:
    """Measure plain sends without and with ``OPEN`` half messages that wait."""
    async with TransactionProducer("open", namesrv, check=unknown) as producer:
        await producer.send(Message("plain", b"open"))
        rates: list[Any] = []
        for case in range(2):
            each = [
                await bench_cases.produce_one_by_one(
                    producer, "plain", size_bytes=SIZE_BYTES, in_flight=64, count=COUNT
                )
                for _ in range(ROUNDS)
            ]
            rates.append(statistics.median(row.rate for row in each))
            if case == 0:
                message = Message("never", bytes(100))

                async def local(message: Message) -> None:
                    return None

                for _ in range(0, OPEN, 1000):
                    await asyncio.gather(*(producer.send_in_transaction(message, local) for _ in range(1000)))
        return {
            "case": f"plain sends beside {OPEN} open half messages",
            "without": round(rates[0]),
            "with": round(rates[1]),
            "ratio": round(rates[1] / rates[0], 3),
        }


def run() -> Iterator[Row]:
    """Yield a row a figure."""
    directory = Path(tempfile.mkdtemp(dir="."))
    loop = new_event_loop()
    try:
        with BrokerProcess(directory / "store") as broker:
            yield from loop.run_until_complete(compare(broker.namesrv))
            before_mb = broker.memory_mb()["RssAnon"]
            yield loop.run_until_complete(beside_open(broker.namesrv))
            yield {
                "case": "anonymous memory of the broker",
                "before_mb": round(before_mb),
                "with_open_mb": round(broker.memory_mb()["RssAnon"]),
            }
            broker.process.kill()
            broker.process.wait()
            broker.start()
            yield {"case": "restart after kill -9 with open half messages", "ready_s": round(broker.ready_s, 2)}
    finally:
        loop.close()
        shutil.rmtree(directory, ignore_errors=True)

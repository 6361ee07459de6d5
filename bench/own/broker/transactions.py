"""Transactions beside plain sends: half message, an empty local transaction, the decision with its answer.

Conditions: one broker in a process of its own, ASYNC_FLUSH; one producer, messages of 1 KiB, awaited one by one by
``in_flight`` tasks; plain and transactional rounds take turns, medians of ``ROUNDS`` pairs. ``delivered``: until all
committed messages have been read back. Then the same with RocketMQ's requests only (a broker that announces no native
transactions), and what a broker with many open half messages costs plain sends.

``TRANSACTIONS=2000`` in the environment: a shorter one.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from bench.base.harness import Row, in_loop, medians, own_broker, scaled
from pocketmq.cli.bench import cases as bench_cases
from pocketmq.client import Message, PullConsumer, TransactionProducer
from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.common.message import ReceivedMessage

COUNT = int(os.environ.get("TRANSACTIONS", scaled("20000", "2000")))
ROUNDS = scaled(5, 1)
SIZE_BYTES = 1024
OPEN = scaled(50_000, 5_000)


async def unknown(message: ReceivedMessage) -> None:
    """Answer every check with "ask again"."""


async def transactions(producer: TransactionProducer, topic: str, in_flight: int, count: int) -> bench_cases.Row:
    """Send transactions whose local part does nothing."""
    body = os.urandom(SIZE_BYTES)

    async def local(message: Message) -> bool:
        return True

    async def one() -> None:
        result = await producer.send_in_transaction(Message(topic, body), local)
        assert result.committed or not native(producer)

    return await bench_cases.closed_loop(one, in_flight=in_flight, count=count)


async def pair(producer: TransactionProducer, topic: str, in_flight: int, count: int) -> dict[str, float]:
    """Return the figures of one round: plain sends, then transactions."""
    plain = await bench_cases.produce_one_by_one(
        producer, "plain", size_bytes=SIZE_BYTES, in_flight=in_flight, count=count
    )
    row = await transactions(producer, topic, in_flight, count)
    return {
        "plain_per_s": plain.rate,
        "transactions_per_s": row.rate,
        "ratio": row.rate / plain.rate,
        "plain_p99_ms": plain.percentile_ms(0.99) or 0.0,
        "transaction_p99_ms": row.percentile_ms(0.99) or 0.0,
    }


def native(producer: TransactionProducer) -> bool:
    """Tell whether the producer's broker answers decisions."""
    links: dict[str, BrokerConnection] = producer.instance._links
    return all(link.announcement is not None and link.announcement.transactions for link in links.values())


def without_native(producer: TransactionProducer) -> None:
    """Let the producer speak to its broker as to one without native transactions."""
    links: dict[str, BrokerConnection] = producer.instance._links
    for address, link in list(links.items()):
        assert link.announcement is not None
        plain = msgspec.structs.replace(link.announcement, transactions=0, native=0)
        links[address] = BrokerConnection(link.broker_name, address, link.channel, plain)


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
    """Let plain sends and transactions take turns; the first round of each warms up."""
    rows: list[Row] = []
    async with TransactionProducer("bench", namesrv, check=unknown) as producer:
        await producer.send(Message("plain", b"open"))
        for in_flight, count in ((1, COUNT // 10), (64, COUNT), (1024, COUNT)):
            rounds = [await pair(producer, f"tx{in_flight}", in_flight, count) for _ in range(ROUNDS + 1)]
            rows.append({"case": f"{in_flight} in flight", **medians(rounds[1:])})
        wanted = (ROUNDS + 1) * (COUNT // 64 * 64)
        begin = time.perf_counter()
        found = await delivered(namesrv, "tx64", wanted)
        seconds = round(time.perf_counter() - begin, 1)
        rows.append({"case": "delivered", "committed": wanted, "read": found, "s": seconds})
        without_native(producer)
        rounds = [await pair(producer, "typed", 64, COUNT // 2) for _ in range(2)]
        rows.append({"case": "RocketMQ's requests, 64 in flight", **medians(rounds[1:])})
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
    with own_broker() as broker:
        yield from in_loop(compare(broker.namesrv))
        before_mb = broker.anonymous_mb()
        yield in_loop(beside_open(broker.namesrv))
        memory = {"before_mb": round(before_mb), "with_open_mb": round(broker.anonymous_mb())}
        yield {"case": "anonymous memory of the broker", **memory}
        broker.kill()
        broker.start()
        yield {"case": "restart after kill -9 with open half messages", "ready_s": round(broker.ready_s, 2)}

"""Transactions beside plain sends: half message, an empty local transaction, the decision with its answer.

Conditions: one broker in a process of its own, ASYNC_FLUSH; one producer, messages of 1 KiB, awaited one by one by
``in_flight`` tasks; plain and transactional rounds take turns, medians of ``ROUNDS`` pairs. ``delivered``: until all
committed messages have been read back. Then the same with RocketMQ's requests only (a broker that announces no native
transactions), and what many open half messages at a broker cost plain sends.

``TRANSACTIONS=2000`` in the environment: a shorter one.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from functools import partial

import msgspec

from bench.base.harness import Row, in_loop, medians, own_broker, scaled, tails
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
    """Return the measurements of one round: plain sends, then transactions."""
    plain = await bench_cases.produce_one_by_one(
        producer, "plain", size_bytes=SIZE_BYTES, in_flight=in_flight, count=count
    )
    row = await transactions(producer, topic, in_flight, count)
    return {
        "plain_per_s": plain.rate,
        "transactions_per_s": row.rate,
        "ratio": row.rate / plain.rate,
        "plain_p99_ms": tails(plain)["p99_ms"],
        "transaction_p99_ms": tails(row)["p99_ms"],
    }


def native(producer: TransactionProducer) -> bool:
    """Return whether the producer's broker answers decisions."""
    connections: dict[str, BrokerConnection] = producer.instance._connections
    return all(each.announcement is not None and each.announcement.transactions for each in connections.values())


def without_native(producer: TransactionProducer) -> None:
    """Make the producer treat its broker as one without native transactions."""
    connections: dict[str, BrokerConnection] = producer.instance._connections
    for address, each in list(connections.items()):
        assert each.announcement is not None
        plain = msgspec.structs.replace(each.announcement, transactions=0, native=0)
        connections[address] = BrokerConnection(each.broker_name, address, each.channel, plain)


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
    """Alternate plain sends and transactions; the first round of each warms up."""
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
    """Measure plain sends without and with ``OPEN`` open half messages."""
    async with TransactionProducer("open", namesrv, check=unknown) as producer:
        await producer.send(Message("plain", b"open"))
        message = Message("never", bytes(100))

        async def plain_rate() -> float:
            one = partial(bench_cases.produce_one_by_one, size_bytes=SIZE_BYTES, in_flight=64, count=COUNT)
            return statistics.median([(await one(producer, "plain")).rate for _ in range(ROUNDS)])

        async def undecided(message: Message) -> None:
            return None

        without = await plain_rate()
        for _ in range(0, OPEN, 1000):
            await asyncio.gather(*(producer.send_in_transaction(message, undecided) for _ in range(1000)))
        beside = await plain_rate()
        case = f"plain sends beside {OPEN} open half messages"
        return {"case": case, "without": round(without), "with": round(beside), "ratio": round(beside / without, 3)}


def run() -> Iterator[Row]:
    """Yield one row a measurement."""
    with own_broker() as broker:
        yield from in_loop(compare(broker.namesrv))
        before_mb = broker.anonymous_mb()
        yield in_loop(beside_open(broker.namesrv))
        memory = {"before_mb": round(before_mb), "with_open_mb": round(broker.anonymous_mb())}
        yield {"case": "anonymous memory of the broker", **memory}
        broker.kill()
        yield {"case": "restart after kill -9 with open half messages", "ready_s": broker.restarted_s()}

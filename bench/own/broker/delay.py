"""Delayed messages: what a million pending ones cost the others, and how exact the delivery is.

Conditions: two brokers side by side on one machine, ``pending`` timers of 100 bytes with random times within three days
in one of them; plain sends to each in turn, several rounds, medians. Then ``ACCURATE`` timers are due evenly within
``ACCURATE_S`` seconds: how late each was stored in its own topic, in ms, beside the others that wait. Levels the same
way: one second after their sends. Last the restart of the broker with everything that waits.

``PENDING=100000`` in the environment: a smaller one.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator

from bench.base.harness import Row, in_loop, medians, own_broker, scaled, tails
from pocketmq.cli.bench import cases
from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.common.message import ReceivedMessage

PENDING = int(os.environ.get("PENDING", scaled("1000000", "20000")))
ROUNDS = scaled(7, 1)
WINDOW = 2000
ACCURATE = scaled(100_000, 5_000)
ACCURATE_S = scaled(10, 2)
AHEAD_S = scaled(20, 4)
"""Time to send them before the first is due."""


async def send_all(producer: Producer, count: int, make: Callable[[int], Message]) -> float:
    """Send ``count`` messages, ``WINDOW`` at a time; return the seconds."""
    begin = time.perf_counter()
    for start in range(0, count, WINDOW):
        await asyncio.gather(*[producer.send_nowait(make(n)) for n in range(start, min(count, start + WINDOW))])
    return time.perf_counter() - begin


async def lateness_ms(namesrv: str, topic: str, count: int, due_ms: Callable[[ReceivedMessage], int]) -> list[int]:
    """Read ``count`` messages; return by how much each was stored after it was due."""
    late: list[int] = []
    async with PullConsumer(group="bench", namesrv=namesrv) as consumer:
        async for message in consumer.stream(topic, start="earliest"):
            if message.body != b"open":
                late.append(message.store_timestamp - due_ms(message))
            if len(late) == count:
                break
    return sorted(late)


def due_row(case: str, per_s: float, late: list[int]) -> Row:
    """Return a row of messages that were due: how late they were, from a sorted list."""
    row = cases.Row("", 0, len(late), 1, [float(each) for each in late])
    at = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    percentiles = {name: row.percentile_ms(each) for name, each in at.items()}
    counts = {"per_s": round(per_s), "count": len(late)}
    return {"case": case, **counts, "earliest_ms": late[0], **percentiles, "max_ms": late[-1]}


async def slowdown(idle: str, waiting: str) -> list[Row]:
    """Send plainly to both brokers in turn."""
    rows: list[Row] = []
    async with Producer(group="a", namesrv=idle) as one, Producer(group="b", namesrv=waiting) as other:
        for case, in_flight, count in (("sends, 64 in flight", 64, 60_000), ("sends, one by one", 1, 4_000)):
            of: dict[Producer, list[dict[str, float]]] = {one: [], other: []}
            for number in range(ROUNDS + 1):
                for producer in (one, other) if number % 2 else (other, one):
                    row = await cases.produce_one_by_one(
                        producer, "plain", size_bytes=1024, in_flight=in_flight, count=scaled(count, count // 10)
                    )
                    if number:  # the first round warms up
                        of[producer].append({"rate": row.rate, "p99_ms": tails(row)["p99_ms"]})
            ratios = [b["rate"] / a["rate"] for a, b in zip(of[one], of[other], strict=True)]
            sides = ((medians(of[one]), "without"), (medians(of[other]), "with"))
            measured = {f"{name}_{word}": value for side, word in sides for name, value in side.items()}
            rows.append({"case": case, "pending": PENDING, "ratio": round(statistics.median(ratios), 3), **measured})
    return rows


async def fill(namesrv: str) -> Row:
    """Let ``PENDING`` timers wait."""
    rng = random.Random(1)
    body = bytes(100)
    async with Producer(group="fill", namesrv=namesrv) as producer:
        await producer.send(Message("far", b"open"))
        now_ms = time.time_ns() // 1_000_000
        took_s = await send_all(
            producer,
            PENDING,
            lambda n: Message("far", body, deliver_time_ms=now_ms + rng.randrange(3_600_000, 259_000_000)),
        )
    return {"case": "timers sent", "count": PENDING, "messages_per_s": round(PENDING / took_s)}


async def accuracy(namesrv: str) -> list[Row]:
    """Let timers, then messages of level 1, come due at a steady rate."""
    body = bytes(100)
    async with Producer(group="accuracy", namesrv=namesrv) as producer:
        for topic in ("timed", "level"):
            await producer.send(Message(topic, b"open"))
        first_ms = time.time_ns() // 1_000_000 + AHEAD_S * 1000
        await send_all(
            producer,
            ACCURATE,
            lambda n: Message("timed", body, deliver_time_ms=first_ms + n * ACCURATE_S * 1000 // ACCURATE),
        )
        spare_ms = first_ms - time.time_ns() // 1_000_000
        late = await lateness_ms(namesrv, "timed", ACCURATE, lambda message: message.deliver_time_ms or 0)
        timers = due_row("timers due", ACCURATE / ACCURATE_S, late)
        took_s = await send_all(producer, ACCURATE // 2, lambda n: Message("level", body, delay_time_level=1))
        await asyncio.sleep(1.5)
        late = await lateness_ms(namesrv, "level", ACCURATE // 2, lambda message: message.born_timestamp + 1000)
        level = due_row("level 1, from the send, beside the sends", ACCURATE / 2 / took_s, late)
    return [{**timers, "sent_before_s": round(spare_ms / 1000, 1)}, level]


def run() -> Iterator[Row]:
    """Yield one row a measurement."""
    with own_broker() as idle, own_broker() as waiting:
        before = waiting.anonymous_mb()
        yield in_loop(fill(waiting.namesrv))
        yield {"case": "anonymous memory", "before_mb": round(before), "with_mb": round(waiting.anonymous_mb())}
        yield from in_loop(slowdown(idle.namesrv, waiting.namesrv))
        yield from in_loop(accuracy(waiting.namesrv))
        begin = time.perf_counter()
        waiting.stop()
        stop_s = round(time.perf_counter() - begin, 2)
        yield {"case": "restart, clean", "stop_s": stop_s, "ready_s": waiting.restarted_s()}
        waiting.kill()
        yield {"case": "restart after kill -9", "ready_s": waiting.restarted_s()}

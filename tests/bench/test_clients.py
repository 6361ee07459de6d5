"""What all benchmark clients share: reading from a consumer's pushes, pacing, waiting."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench.base.schedule import Schedule, happens, pace
from bench.clients.base import (
    DELIVERIES_FIRST,
    ClosedLoad,
    PushedClient,
    ReadTimer,
    closed_loop,
    delivery_loop,
    open_loop,
)
from bench.comparison.worker import Jobs


class Memory(PushedClient):
    """A client that keeps its topic as a list."""

    def __init__(self, target: dict[str, Any]) -> None:
        super().__init__(target)
        self.bodies: list[bytes] = []
        self.listeners: list[Callable[[bytes], None]] = []
        self.ended = 0

    async def open(self) -> None:
        self.target["opened"] = self.target.get("opened", 0) + 1

    async def close(self) -> None: ...

    async def create(self, topics: Sequence[str], queues: int) -> None: ...

    async def send(self, topic: str, body: bytes) -> None:
        await asyncio.sleep(0)
        self.bodies.append(body)
        for saw in self.listeners:
            saw(body)

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        for _ in range(count):
            await self.send(topic, body)

    async def consume(self, topic: str, saw: Callable[[bytes], None], *, from_start: bool) -> Callable[[], Any]:
        for body in self.bodies if from_start else ():
            saw(body)
        self.listeners.append(saw)

        async def end() -> None:
            self.ended += 1

        return end


def test_a_pushed_read_counts_the_bodies_and_ends_the_consumer() -> None:
    """The read spans the first to the last expected body, then closes its consumer."""

    async def read() -> None:
        client, timer = Memory({}), ReadTimer()
        client.bodies = [b"abc"] * 4
        assert await client.read("t", "message", 4, timer) == 12
        assert client.ended == 1
        assert 0 < timer.began <= timer.ended

    asyncio.run(read())


def test_a_delivery_loop_counts_each_message_once_and_ends_the_consumer() -> None:
    """The first deliveries do not count; every other one has a latency."""

    async def deliver() -> None:
        client = Memory({})
        measured = await delivery_loop(client, client, "t", 20, 0.02)
        assert measured.count == len(client.bodies) - DELIVERIES_FIRST > 0
        assert measured.latencies is not None
        assert measured.latencies.count == measured.count
        assert client.ended == 1

    asyncio.run(deliver())


def test_an_open_loop_sends_at_its_times_and_follows_what_arrives() -> None:
    """Every message is acknowledged and delivered; the follower's consumer ends."""

    async def load() -> None:
        client = Memory({})
        measured = await open_loop([client], "t", 20, Schedule(200, 0.1, seed=3), follow=True)
        line = measured.line()
        assert line["offered"] == line["count"] == line["delivered"] == len(client.bodies) > 0
        assert (line["failed"], line["unanswered"], line["refused_by_client"]) == (0, 0, 0)
        assert "latency_hdr" in line
        assert "delivered_hdr" in line
        assert client.ended == 1
        assert {len(body) for body in client.bodies} == {20}

    asyncio.run(load())


def test_a_closed_loop_ends_with_its_bytes() -> None:
    """Here the byte limit is reached before the time limit; the topics take turns."""

    async def load() -> None:
        client = Memory({})
        measured = await closed_loop(
            [client], ClosedLoad(["a", "b"], 10, in_flight=2, batch=5, seconds=60, bytes_max=200)
        )
        assert measured.count == len(client.bodies) == 20
        assert measured.latencies is not None
        assert measured.latencies.count == 4

    asyncio.run(load())


def test_a_job_of_a_closed_loop_takes_the_fields_of_its_case() -> None:
    """Settings that only the report shows are not passed on; an open client is used again."""

    async def run() -> None:
        target: dict[str, Any] = {}
        jobs = Jobs(Memory)
        job = {"op": "closed", "topics": ["t"], "size_bytes": 10, "in_flight": 1, "seconds": 60, "bytes_max": 50}
        job |= {"target": target, "queues": 1, "connections": 1, "limit_s": 100.0, "keep": True}
        for _ in range(2):
            assert (await jobs.run(job))["count"] == 5
        assert len(jobs._kept) == 1

    asyncio.run(run())


@pytest.mark.parametrize("rate", [50.0, 5_000.0])
def test_pace_sends_every_time_of_the_schedule_and_none_early(rate: float) -> None:
    """Times come in order, and no earlier than they are due."""

    async def paced() -> None:
        sent: list[tuple[float, float]] = []
        begin = time.perf_counter()
        schedule = Schedule(rate, 0.1, seed=7)
        await pace(schedule, lambda at_s: sent.append((at_s, time.perf_counter() - begin)), begin)
        assert [at_s for at_s, _ in sent] == Schedule(rate, 0.1, seed=7).take(1.0, most=10_000)
        assert all(at_s <= now_s for at_s, now_s in sent)

    asyncio.run(paced())


def test_a_wait_ends_with_its_event_or_its_time() -> None:
    """The wait returns True when the event came, and False when the time was up."""

    async def waits() -> None:
        event = asyncio.Event()
        assert not await happens(event, 0)
        event.set()
        assert await happens(event, 60)

    asyncio.run(waits())

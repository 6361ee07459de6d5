"""The interface of a benchmark's client, and the loads that all asyncio clients share.

Lives here: ``Client`` (a connection, or the pool that a peer's library uses as one), closed loops, batches, the open
loop.
"""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.base.histogram import Latencies
from bench.base.schedule import Schedule, happens, pace

STAMP_BYTES = 8
"""A body of the open loop begins with its intended time of sending: ns of ``time.perf_counter_ns``."""
OPEN_IN_FLIGHT_MAX = 20_000
"""More than so many unanswered sends: the rest of the load counts as refused, so that memory stays bounded."""
SETTLE_S = 5.0
DELIVERED_S = 15.0
DELIVERY_PAUSE_S = 0.002
"""Between a handler and the next send, so that the consumer waits again."""
DELIVERIES_FIRST = 10
"""Deliveries that do not count: the first reads join groups and look up routes."""


@dataclass(slots=True)
class Measured:
    """What a load did. ``latencies`` are those of sends, ``delivered`` those from intended send to receipt."""

    count: int = 0
    failed: int = 0
    elapsed_s: float = 0.0
    latencies: Latencies | None = None
    delivered: Latencies | None = None
    more: dict[str, object] = field(default_factory=dict)
    error: str = ""

    def line(self) -> dict[str, object]:
        """Return it as the worker's answer."""
        out: dict[str, object] = {"count": self.count, "failed": self.failed, "elapsed_s": round(self.elapsed_s, 4)}
        out |= self.more
        if self.latencies is not None and self.latencies.count:
            out["latency_hdr"] = self.latencies.encode()
        if self.delivered is not None and self.delivered.count:
            out["delivered_hdr"] = self.delivered.encode()
        if self.error:
            out["first_error"] = self.error[:300]
        return out


@dataclass(slots=True)
class ClosedLoad:
    """Keep ``in_flight`` sends of ``batch`` messages on the way until ``seconds`` or ``bytes_max`` are over."""

    topics: Sequence[str]
    size_bytes: int
    in_flight: int
    batch: int = 1
    seconds: float = 1.5
    bytes_max: int = 128 << 20
    how: str = "messages"

    def body(self) -> bytes:
        """Return a body that does not compress."""
        return os.urandom(self.size_bytes)


@dataclass(slots=True)
class ReadTimer:
    """``begin`` when the consumer is ready to take the first message, ``end`` after the last."""

    began: float = 0.0
    ended: float = 0.0

    def begin(self) -> None:
        """Start the clock; only the first call counts."""
        self.began = self.began or time.perf_counter()

    def end(self) -> None:
        """Stop the clock."""
        self.ended = time.perf_counter()


class Client(ABC):
    """One client of one peer. ``target`` holds the address of the peer's server and what else the client must know."""

    def __init__(self, target: dict[str, Any]) -> None:
        self.target = target

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; must not raise after a failed load."""

    @abstractmethod
    async def create(self, topics: Sequence[str], queues: int) -> None:
        """Make the topics, empty; those that exist are left."""

    async def delete(self, topics: Sequence[str]) -> None:  # noqa: B027  (where a server has no way to do it)
        """Remove the topics."""

    @abstractmethod
    async def send(self, topic: str, body: bytes) -> None:
        """Send one message; return when it is acknowledged."""

    @abstractmethod
    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        """Send so many messages by the fastest means the library has; return when all are acknowledged."""

    def send_soon(self, topic: str, body: bytes, done: Callable[[BaseException | None], None]) -> None:
        """Send one message in the background; ``done`` gets None for an acknowledgement, or the error."""
        task = asyncio.get_running_loop().create_task(self.send(topic, body))
        task.add_done_callback(lambda ended: done(ended.exception()))

    @abstractmethod
    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        """Read ``expected`` messages from the start, touching every body; return the bytes of the bodies.

        ``how``: ``message``, ``batch`` or ``arrow``, as far as the peer's ``reads`` names it.
        """

    @abstractmethod
    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        """Call ``saw`` with each body that arrives from now on, until cancelled; set ``ready`` when listening."""

    async def push(self, topic: str, saw: Callable[[bytes], None]) -> Callable[[], Coroutine[Any, Any, object]]:
        """Call ``saw`` with each body that arrives from now on, by the library's callback where it has one; return the
        coroutine function that ends it.
        """
        ready = asyncio.Event()
        following = asyncio.create_task(self.follow(topic, saw, ready))
        await ready.wait()

        async def end() -> None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        return end

    async def closed(self, load: ClosedLoad) -> Measured:
        """Run a closed loop on this client alone."""
        return await closed_loop([self], load)


class PushedClient(Client):
    """A client whose library pushes single messages to a callback."""

    @abstractmethod
    async def consume(self, topic: str, saw: Callable[[bytes], None], *, from_start: bool) -> Callable[[], Any]:
        """Call ``saw`` with each body, from the first or from now on; return the coroutine function that ends it."""

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        count = touched = 0
        done = asyncio.Event()

        def saw(body: bytes) -> None:
            nonlocal count, touched
            count += 1
            touched += len(body)
            if count == expected:
                timer.end()
                done.set()

        timer.begin()
        end = await self.consume(topic, saw, from_start=True)
        await done.wait()
        await end()
        return touched

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        end = await self.consume(topic, saw, from_start=False)
        ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            await end()


async def closed_loop(clients: Sequence[Client], load: ClosedLoad) -> Measured:
    """Keep ``load.in_flight`` tasks sending, spread over clients and topics; latencies from the call to the answer."""
    body = load.body()
    taken = array("q")
    topics = list(load.topics)
    measured = Measured()
    messages_max = max(load.in_flight * load.batch, load.bytes_max // max(1, load.size_bytes))
    clock = time.perf_counter_ns
    begin = clock()
    end = begin + int(load.seconds * 1e9)
    sent = 0

    async def task(number: int) -> None:
        nonlocal sent
        client, place, note = clients[number % len(clients)], number, taken.append
        step, batch, how, count_topics = load.in_flight, load.batch, load.how, len(topics)
        while (started := clock()) < end and sent < messages_max:
            sent += batch
            topic = topics[place % count_topics]
            place += step
            try:
                if batch == 1:
                    await client.send(topic, body)
                else:
                    await client.send_many(topic, body, batch, how)
            except Exception as error:
                measured.failed += batch
                measured.error = measured.error or f"{type(error).__name__}: {error}"
                await asyncio.sleep(0.01)
                continue
            note(clock() - started)

    await asyncio.gather(*(task(number) for number in range(load.in_flight)))
    measured.elapsed_s = (clock() - begin) / 1e9
    measured.count = len(taken) * load.batch
    measured.latencies = Latencies.of_taken(taken)
    return measured


async def delivery_loop(sender: Client, receiver: Client, topic: str, size_bytes: int, seconds: float) -> Measured:
    """Send one message after the other to a consumer that waits; latencies from the call of ``send`` to the handler."""
    measured = Measured()
    taken = array("q")
    clock = time.perf_counter_ns
    padding = os.urandom(size_bytes - STAMP_BYTES)
    handled = asyncio.Event()
    stamp = 0

    def saw(body: bytes) -> None:
        now = clock()
        if int.from_bytes(body[:STAMP_BYTES], "little") == stamp:
            taken.append(now - stamp)
            handled.set()

    async def one() -> None:
        nonlocal stamp
        handled.clear()
        stamp = clock()
        await sender.send(topic, stamp.to_bytes(STAMP_BYTES, "little") + padding)
        async with asyncio.timeout(DELIVERED_S):
            await handled.wait()
        await asyncio.sleep(DELIVERY_PAUSE_S)

    end = await receiver.push(topic, saw)
    try:
        for _ in range(DELIVERIES_FIRST):
            await one()
        del taken[:]
        begin = clock()
        while not taken or clock() - begin < seconds * 1e9:
            await one()
        measured.elapsed_s = (clock() - begin) / 1e9
    finally:
        await end()
    measured.count = len(taken)
    measured.latencies = Latencies.of_taken(taken)
    return measured


async def open_loop(
    clients: Sequence[Client], topic: str, size_bytes: int, schedule: Schedule, follow: bool
) -> Measured:
    """Send when it is due; latencies count from the intended time. With ``follow`` the last client also reads."""
    measured = Measured()
    acknowledged, delivered = array("q"), array("q")
    clock = time.perf_counter_ns
    padding = os.urandom(max(0, size_bytes - STAMP_BYTES))
    pending = refused = 0
    idle = asyncio.Event()
    arrived = asyncio.Event()
    expected = -1

    started = clock()

    def saw(body: bytes) -> None:
        stamp = int.from_bytes(body[:STAMP_BYTES], "little")
        if stamp < started:
            return  # of an earlier load on this topic
        delivered.append(clock() - stamp)
        if len(delivered) == expected:
            arrived.set()

    reading: asyncio.Task[None] | None = None
    if follow:
        ready = asyncio.Event()
        reading = asyncio.create_task(clients[-1].follow(topic, saw, ready))
        async with asyncio.timeout(30):
            await ready.wait()
    begin = clock()
    offered = 0

    def send(offset_s: float) -> None:
        nonlocal offered, pending, refused
        due = begin + int(offset_s * 1e9)
        client = clients[offered % len(clients)]
        offered += 1
        if pending >= OPEN_IN_FLIGHT_MAX:
            refused += 1
            return

        def done(error: BaseException | None) -> None:
            nonlocal pending
            pending -= 1
            if error is None:
                acknowledged.append(clock() - due)
            else:
                measured.failed += 1
                measured.error = measured.error or f"{type(error).__name__}: {error}"
            if not pending:
                idle.set()

        pending += 1
        idle.clear()
        try:
            client.send_soon(topic, due.to_bytes(STAMP_BYTES, "little") + padding, done)
        except Exception as error:
            done(error)

    await pace(schedule, send, begin / 1e9)
    await happens(idle, SETTLE_S if pending else 0.01)  # the rest counts as "unanswered"
    measured.elapsed_s = (clock() - begin) / 1e9
    if reading is not None:
        expected = len(acknowledged)
        await happens(arrived, SETTLE_S if len(delivered) < expected else 0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    measured.count = len(acknowledged)
    measured.latencies, measured.delivered = Latencies.of_taken(acknowledged), Latencies.of_taken(delivered)
    measured.more = {
        "offered": offered,
        "refused_by_client": refused,
        "unanswered": pending,
        "delivered": len(delivered),
        "lag_ms_max": round(schedule.lag_s_max * 1000, 2),
    }
    return measured

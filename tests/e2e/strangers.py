"""Loads of a stranger on the ports of a name server and of a replicated pair, and what a bystander sees meanwhile.

Lives here: the loads, each bounded and over sockets of its own; ``Bystander``; ``memory_mib``.
"""

import asyncio
import contextlib
import socket
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from msgspec import structs

from pocketmq.client import Message, Producer
from pocketmq.common.clock import SystemClock
from pocketmq.common.epochs import PROMOTION_STEP
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import DataVersion, encode_body
from pocketmq.remoting.protocol.ha import HaEpochRequestHeader, HaStatusBody
from pocketmq.remoting.protocol.namesrv import (
    BrokerIdentityRequestHeader,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
)
from pocketmq.remoting.protocol.topic import TopicConfigBody, TopicConfigSerializeWrapper
from pocketmq.store.ha import wire
from tests.e2e.nodes import BROKER_NAME, SEGMENT_BYTES

EVIL = "127.0.0.1:9"


def memory_mib(pid: int) -> float:
    """Return the most memory that a process has had (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"{pid} has no memory")


@dataclass(slots=True)
class Bystander:
    """Sends one message after the other through the name server, and keeps what it gets."""

    namesrv: str
    statuses: Counter[str] = field(default_factory=Counter)
    times_ms: list[float] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _sent: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        async with Producer("bystander", self.namesrv) as producer:
            while True:
                begin = time.monotonic()
                try:
                    status = (await producer.send(Message("BenchmarkTest", b"x" * 100))).status.name
                except PocketMQError as error:
                    status = type(error).__name__
                self.statuses[status] += 1
                self.times_ms.append((time.monotonic() - begin) * 1000)
                async with self._sent:
                    self._sent.notify_all()
                await asyncio.sleep(0.002)

    async def sends(self, count: int) -> None:
        """Return after so many further sends."""
        target = len(self.times_ms) + count
        async with self._sent:
            await self._sent.wait_for(lambda: len(self.times_ms) >= target)

    def text(self) -> str:
        """Return counts and times as a line."""
        times = self.times_ms or [0.0]
        p99 = statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
        return f"{dict(self.statuses)} p99 {p99:.1f} ms, worst {max(times):.0f} ms"


@contextlib.asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[Any]:
    """Yield an open channel of a stranger."""
    pool = ChannelPool(clock=SystemClock(), log=NullLog())
    try:
        yield await pool.get(address)
    finally:
        await pool.close()


async def code_of(channel: Any, code: int, header: Any, body: bytes = b"") -> int:
    """Return the code of an answer."""
    return int((await channel.request(code, header, body, timeout_ms=10_000)).code)


def registration(
    name: str, address: str, topics: Sequence[str] = (), *, broker_id: int = 0, counter: int = 1
) -> tuple[Any, bytes]:
    """Return header and body."""
    table = {topic: TopicConfigBody(topic_name=topic) for topic in topics}
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, counter)))
    return RegisterBrokerRequestHeader(name, address, "DefaultCluster", EVIL, broker_id), encode_body(body)


async def wants_the_name(namesrv: str, master: HaStatusBody, slave: HaStatusBody) -> list[int]:
    """Register, claim and unregister in the place of the pair, in all ways; return the codes that came back."""
    codes: list[int] = []
    async with channel_to(namesrv) as channel:
        for node in (master, slave):
            for address in (EVIL, node.address):
                header, body = registration(BROKER_NAME, address, ["BenchmarkTest"], broker_id=node.broker_id)
                header = structs.replace(header, epoch=node.epoch, epoch_owner=node.owner)
                codes.append(await code_of(channel, RequestCode.REGISTER_BROKER, header, body))
            identity = BrokerIdentityRequestHeader(BROKER_NAME, node.address, "DefaultCluster", node.broker_id)
            codes.append(await code_of(channel, RequestCode.UNREGISTER_BROKER, identity))
        for epoch in (master.epoch, master.epoch + 1, PROMOTION_STEP, 2 * PROMOTION_STEP, (1 << 53) - 1):
            for owner in (master.owner, f"{master.node_id}.x", f"{slave.node_id}.x", "ee.1"):
                for force in (False, True):
                    for address in (EVIL, slave.address):
                        header = HaEpochRequestHeader(BROKER_NAME, epoch, owner, address, "SYNC_MASTER", force, epoch)
                        answer = await channel.request(RequestCode.HA_EPOCH, header, timeout_ms=10_000)
                        codes.append(int(answer.code) or int(answer.header.granted) * 1000)
        forget = HaEpochRequestHeader(BROKER_NAME, forget=True)
        codes.append(await code_of(channel, RequestCode.HA_EPOCH, forget))
    return codes


async def invents_names(namesrv: str, count: int) -> int:
    """Claim epochs of names that no broker has; return how many were granted."""
    granted = 0
    async with channel_to(namesrv) as channel:
        for number in range(count):
            header = HaEpochRequestHeader(f"invented-{number}", 1, f"n{number}.1", EVIL, "SYNC_MASTER")
            answer = await channel.request(RequestCode.HA_EPOCH, header, timeout_ms=10_000)
            granted += answer.code == 0 and answer.header.granted
    return granted


async def fills_the_routes(namesrv: str, connections: int, topics: int) -> tuple[int, int]:
    """Register brokers with many topics, some with names of 1 MB, until refused; return (taken, refused)."""
    taken = refused = 0
    async with contextlib.AsyncExitStack() as stack:
        for number in range(connections):
            channel = await stack.enter_async_context(channel_to(namesrv))
            for part in range(2):
                names = [f"{number}-{part}-{topic}-{'t' * 40}" for topic in range(topics)]
                for long in ("", *(f"{number}{part}{each}{'L' * 1_000_000}" for each in range(3))):
                    header, body = registration(
                        f"b{number}-{part}", f"10.{number}.{part}.1:1", [long] if long else names, counter=len(long)
                    )
                    code = await code_of(channel, RequestCode.REGISTER_BROKER, header, body)
                    taken, refused = taken + (code == 0), refused + (code != 0)
    return taken, refused


class HaStrangers:
    """Connections to an HA port that are silent, or pretend to be slaves."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()

    def silent(self, count: int) -> None:
        """Connect, and say nothing."""
        for _ in range(count):
            self._sockets.append(socket.create_connection(self._address, 5))

    def pretends(self, node_id: str, epochs: Sequence[tuple[int, str, int]] = (), **fields: Any) -> list[Any]:
        """Say HELLO as an empty slave, acknowledge the start; return the messages that came back first."""
        connected = socket.create_connection(self._address, 5)
        self._sockets.append(connected)
        hello = wire.Hello(
            cluster="DefaultCluster",
            broker_name=BROKER_NAME,
            **{
                "broker_id": 7,
                "node_id": node_id,
                "epochs": list(epochs),
                "end_offset": 0,
                "min_offset": 0,
                "segment_bytes": SEGMENT_BYTES,
                **fields,
            },
        )
        connected.sendall(wire.PREAMBLE + wire.encode_hello(hello))
        decoder = wire.FrameDecoder(frozenset({wire.WELCOME, wire.REFUSED, wire.DATA, wire.HEARTBEAT}))
        got: list[Any] = []
        while not got:
            data = connected.recv(1 << 16)
            if not data:
                break
            got += decoder.feed(data)
        if got and isinstance(got[0], wire.Welcome):
            start = got[0].start_offset
            connected.sendall(wire.encode_ack(wire.Ack(start, start, 0)))
        return got

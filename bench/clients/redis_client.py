"""Redis Streams by redis-py (asyncio, with hiredis): a topic is one stream, a batch is one pipeline of XADD."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import redis.asyncio as redis

from bench.clients.base import Client, ReadTimer

CONNECTIONS_MAX = 128
"""redis-py sends one command at a time on a connection: so many sends side by side need so many connections."""
READ_COUNT = 1_000
FIELD = b"b"


class RedisClient(Client):
    """A pool of connections; one when several clients make the connections."""

    async def open(self) -> None:
        connections = min(CONNECTIONS_MAX, int(self.target.get("in_flight", 1)))
        self.redis: Any = redis.Redis(host=self.target["host"], port=self.target["port"], max_connections=4096)
        self.permits = asyncio.Semaphore(max(1, connections))
        await asyncio.gather(*(self.redis.ping() for _ in range(connections)))  # connect before anything counts
        self.replicas = int(self.target.get("wait_replicas", 0))
        self.reader: Any = redis.Redis(host=self.target["host"], port=self.target["port"])

    async def close(self) -> None:
        await self.redis.aclose()
        await self.reader.aclose()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        await self.redis.ping()

    async def delete(self, topics: Sequence[str]) -> None:
        for start in range(0, len(topics), 1000):
            await self.redis.unlink(*topics[start : start + 1000])

    async def send(self, topic: str, body: bytes) -> None:
        if self.replicas:
            pipeline = self.redis.pipeline(transaction=False)
            pipeline.xadd(topic, {FIELD: body})
            pipeline.execute_command("WAIT", self.replicas, 5000)
            _, copies = await pipeline.execute()
            if copies < self.replicas:
                raise RuntimeError(f"{copies} replicas have it")
        else:
            async with self.permits:
                await self.redis.xadd(topic, {FIELD: body})

    async def send_many(self, topic: str, body: bytes, count: int, how: str) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        fields = {FIELD: body}
        for _ in range(count):
            pipeline.xadd(topic, fields)
        await pipeline.execute()

    async def read(self, topic: str, how: str, expected: int, timer: ReadTimer) -> int:
        count = touched = 0
        last: bytes | str = "0"
        timer.begin()
        while count < expected:
            [(_, entries)] = await self.reader.xread({topic: last}, count=READ_COUNT, block=5000)
            last = entries[-1][0]
            count += len(entries)
            touched += sum(len(fields[FIELD]) for _, fields in entries)
        timer.end()
        return touched

    async def follow(self, topic: str, saw: Callable[[bytes], None], ready: asyncio.Event) -> None:
        last: bytes | str = "$"
        entries = await self.reader.xrevrange(topic, count=1)
        last = entries[0][0] if entries else "0"
        ready.set()
        while True:
            for _, entries in await self.reader.xread({topic: last}, count=READ_COUNT, block=1000) or ():
                last = entries[-1][0]
                for _, fields in entries:
                    saw(fields[FIELD])

"""What a writer of chunks does with those under way when one fails."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.client import ClientInstance, MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.staged.chunk_writer import Chunk, ChunkWriter
from pocketmq.common.errors import PocketMQError


class FailingTarget:
    """Takes three chunks at once; the first fails once the third is under way."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.cancelled: list[int] = []

    async def route(self, topic: str) -> TopicRoute:
        queues = (MessageQueue(topic, "broker-a", 0),)
        return TopicRoute(topic, {}, queues, queues)

    async def connection(self, broker: str, topic: str) -> Any:
        announcement = SimpleNamespace(cluster="DefaultCluster", host_family=4, family=4, message_bytes_max=4 << 20)
        return SimpleNamespace(announcement=announcement)

    async def send(self, chunk: Chunk, index: int) -> None:
        self.sent.append(index)
        try:
            while index or len(self.sent) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(index)
            raise
        raise PocketMQError("not stored", why="the broker is away", hint="wait")


async def test_a_failed_chunk_ends_those_under_way() -> None:
    """The write raises the first error; no task is left that fails later with nobody to see it."""
    target = FailingTarget()
    before = asyncio.all_tasks()
    writer = ChunkWriter(ClientInstance("127.0.0.1:1"), target, topic="rows", chunk_bytes=4096)
    rows = pa.record_batch({"body": pa.array([b"x" * 3000] * 20, pa.binary())})
    with pytest.raises(PocketMQError, match="the broker is away"):
        await writer.write(rows)
    assert target.sent[0] == 0
    assert target.cancelled == target.sent[1:]
    assert len(target.cancelled) >= 2
    assert asyncio.all_tasks() == before
    await writer.close()

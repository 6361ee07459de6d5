"""Rows of Arrow batches become chunks for brokers: frames of about one MiB, several of them in flight.

Lives here: ``ChunkWriter``: assigns rows to queues, closes full chunks, bounds the chunks in flight.

A row with a sharding key goes to that key's queue (as ``Producer.send``), so that rows of one key stay in order. Others
stay on one queue for a chunk, then move on to the next. The writer's ``turn`` gives the first queue, so that many small
writers do not all begin at queue 0.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pocketmq.client.arrow.row_records import Int64s, MessageRows
from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE
from pocketmq.client.producer.selectors import select_by_hash

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES: Final = 1 << 20
IN_FLIGHT_MAX: Final = 4
CHUNK_TOPICS_MAX: Final = 16
"""Topics in one chunk (``broker.staged.staged_checks``)."""
KEYS_MAX: Final = 100_000
"""Sharding keys whose queues are remembered."""
RECORD_EXTRA_BYTES: Final = 4096
"""Reserved of a broker's largest message for the rest of a chunk's record, beside messages, sizes and sections."""
SIZE_BYTES: Final = 4
"""Of a record's size in the chunk."""
SECTION_EXTRA_BYTES: Final = 64
"""Of a section, beside three times its topic."""


@dataclass(slots=True)
class Chunk:
    """Records for one broker: queue → (their sizes, their bytes). ``size_bytes``: with their sizes and sections."""

    broker: str
    sections: dict[MessageQueue, tuple[list[NDArray[Any]], list[bytes | memoryview]]] = field(default_factory=dict)
    size_bytes: int = 0
    rows: int = 0

    def add(self, queue: MessageQueue, sizes: NDArray[Any], data: bytes | memoryview) -> None:
        """Add records of one queue, behind those it has."""
        section = self.sections.get(queue)
        if section is None:
            section = self.sections[queue] = ([], [])
            self.size_bytes += section_bytes(queue)
        section[0].append(sizes)
        section[1].append(data)
        self.size_bytes += len(data) + SIZE_BYTES * len(sizes)
        self.rows += len(sizes)

    def header(self) -> list[tuple[str, int, int]]:
        """Return (topic, queue id, records) of each section."""
        return [(queue.topic, queue.queue_id, sum(map(len, sizes))) for queue, (sizes, _) in self.sections.items()]

    def body(self) -> bytes:
        """Return the body of a native append."""
        parts: list[bytes | memoryview] = [part.tobytes() for sizes, _ in self.sections.values() for part in sizes]
        for _, data in self.sections.values():
            parts += data
        return b"".join(parts)

    def topics(self) -> set[str]:
        """Return the topics of its messages."""
        return {queue.topic for queue in self.sections}


def section_bytes(queue: MessageQueue) -> int:
    """Return the most bytes that a chunk needs for a queue beside its records."""
    return 3 * len(queue.topic) + SECTION_EXTRA_BYTES


class ChunkTarget(Protocol):
    """Takes chunks. Waits for unreachable brokers as long as its user allows."""

    async def route(self, topic: str) -> TopicRoute:
        """Return the queues that a topic's rows may go to; raise ``NoRoute`` where waiting would not help."""
        ...

    async def connection(self, broker: str, topic: str) -> BrokerConnection:
        """Return a connection to a broker; raise an error if it takes no chunks."""
        ...

    async def send(self, chunk: Chunk, index: int) -> None:
        """Deliver the ``index``-th chunk for its broker; return when it is safe."""
        ...


class ChunkWriter:
    """Belongs to one event loop. ``write`` batches, then ``close``. Raises errors of rows and brokers.

    Holds at most ``IN_FLIGHT_MAX`` chunks in flight and one open for each broker. ``in_order`` False: a retried chunk
    may arrive behind later ones of its queue, so only one is in flight at a time where rows have keys.
    """

    def __init__(
        self,
        instance: ClientInstance,
        target: ChunkTarget,
        *,
        topic: str | None = None,
        turn: int = 0,
        chunk_bytes: int = CHUNK_BYTES,
        in_order: bool = True,
    ) -> None:
        self._instance = instance
        self._target = target
        self._topic = topic
        self._turn = turn
        self._chunk_bytes = chunk_bytes
        self._in_order = in_order
        self._open: dict[str, Chunk] = {}
        self._sent: dict[str, int] = {}
        self._in_flight: deque[asyncio.Task[None]] = deque()
        self._queues: dict[tuple[str, str], MessageQueue] = {}
        self._turns: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self.rows = 0

    @property
    def chunks(self) -> dict[str, int]:
        """How many chunks each broker was sent."""
        return dict(self._sent)

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Take the rows of one batch."""
        rows = MessageRows(batch, self._topic, MAX_MESSAGE_SIZE, first_row=self.rows)
        if not len(rows):
            return
        shards = rows.sharding_keys
        for topic, chosen in rows.topics.items():
            route = await self._target.route(topic)
            if shards is None:
                await self._spread(rows, topic, route, chosen)
                continue
            for queue, part in self._by_key(topic, route, shards, chosen):
                if queue is None:
                    await self._spread(rows, topic, route, part)
                else:
                    await self._put(rows, topic, queue, part)
        self.rows += len(rows)

    async def write_to(self, batch: "pa.RecordBatch", queues: Mapping[MessageQueue, Int64s]) -> None:
        """Take rows of one batch into queues that the caller has chosen: queue → its rows, in their order. All of a
        queue are in the topic of that queue.
        """
        rows = MessageRows(batch, self._topic, MAX_MESSAGE_SIZE, first_row=self.rows)
        for queue, chosen in queues.items():
            self._queues[queue.topic, str(queue.queue_id)] = queue  # rows have queues: their order counts
            await self._put(rows, queue.topic, queue, chosen)
            self.rows += len(chosen)

    async def close(self) -> None:
        """Send open chunks and wait for all. The first error cancels the others."""
        for broker in list(self._open):
            await self._flush(broker)
        while self._in_flight:
            await self._settle()

    async def cancel(self) -> None:
        """Cancel chunks in flight."""
        tasks = list(self._in_flight)
        self._in_flight.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- queues

    def _by_key(
        self, topic: str, route: TopicRoute, shards: list[str], chosen: Int64s | None
    ) -> list[tuple[MessageQueue | None, Int64s]]:
        """Sort rows by the queue of their sharding key, None for those without one."""
        numbers = range(len(shards)) if chosen is None else chosen.tolist()
        found: dict[MessageQueue | None, list[int]] = {}
        queues = self._queues
        for row in numbers:
            key = shards[row]
            queue = queues.get((topic, key)) if key else None
            if queue is None and key:
                if len(queues) >= KEYS_MAX:
                    queues.clear()
                queue = queues[topic, key] = select_by_hash(key, route.write_queues)
            found.setdefault(queue, []).append(row)
        return [(queue, np.array(part, np.int64)) for queue, part in found.items()]

    async def _spread(self, rows: MessageRows, topic: str, route: TopicRoute, chosen: Int64s | None) -> None:
        """Put rows that any queue may take."""
        at, count = 0, len(rows) if chosen is None else len(chosen)
        while at < count:
            turn = self._turns.setdefault(topic, self._turn)
            queue = route.write_queues[turn % len(route.write_queues)]
            taken = await self._fill(rows, topic, queue, chosen, at)
            at += taken
            if queue.broker_name not in self._open:  # its chunk is full and gone
                self._turns[topic] = turn + 1

    async def _put(self, rows: MessageRows, topic: str, queue: MessageQueue, chosen: Int64s) -> None:
        at = 0
        while at < len(chosen):
            at += await self._fill(rows, topic, queue, chosen, at)

    async def _fill(self, rows: MessageRows, topic: str, queue: MessageQueue, chosen: Int64s | None, at: int) -> int:
        """Put rows from ``at`` on into the open chunk of a queue's broker until that is full; return how many."""
        connection = await self._target.connection(queue.broker_name, topic)
        announcement = connection.announcement
        assert announcement is not None
        cluster, family = announcement.cluster, announcement.family
        limit = min(self._chunk_bytes, announcement.message_bytes_max - RECORD_EXTRA_BYTES)
        chunk = self._open.get(queue.broker_name)
        if chunk is not None and queue.topic not in chunk.topics() and len(chunk.topics()) >= CHUNK_TOPICS_MAX:
            await self._flush(queue.broker_name)
            chunk = None
        if chunk is None:
            chunk = self._open[queue.broker_name] = Chunk(queue.broker_name)
        sizes = rows.sizes(topic, cluster, family, chosen)[at:]
        filled = np.cumsum(sizes + SIZE_BYTES)
        room = limit - chunk.size_bytes - (0 if queue in chunk.sections else section_bytes(queue))
        taken = int(np.searchsorted(filled, room, "right"))
        if taken == 0 and chunk.rows == 0:
            taken = 1  # larger than a chunk: alone, and the broker decides
        if taken:
            part: slice | Int64s = slice(at, at + taken) if chosen is None else chosen[at : at + taken]
            uniq_keys = self._instance.ids.next_rows(taken)
            born_ms = self._instance.clock.now_ms()
            chunk.add(queue, *rows.records(topic, cluster, family, queue.queue_id, born_ms, part, uniq_keys))
        if taken < len(sizes) or chunk.size_bytes >= limit:
            await self._flush(queue.broker_name)
        return taken

    # ---- chunks out

    async def _flush(self, broker: str) -> None:
        chunk = self._open.pop(broker)
        if not chunk.rows:
            return
        index = self._sent.get(broker, 0)
        self._sent[broker] = index + 1
        in_flight = IN_FLIGHT_MAX if self._in_order or not self._queues else 1
        while len(self._in_flight) >= in_flight:
            await self._settle()
        task = asyncio.get_running_loop().create_task(self._target.send(chunk, index), name="pocketmq-chunk")
        self._in_flight.append(task)
        await asyncio.sleep(0)  # it leaves while the next chunk is built

    async def _settle(self) -> None:
        try:
            await self._in_flight.popleft()
        except BaseException:
            await self.cancel()  # the write has failed, and nobody waits for the other chunks
            raise

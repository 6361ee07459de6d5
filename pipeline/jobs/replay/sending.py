"""Sending of rows as messages, in their order and at their time.

Lives here: ``send_all``, ``messages_of``.

Rows of one lane go to one queue, group by group: each is sent when the broker has acknowledged all of the last one. A
failed group is sent again as a whole: delivery is at least once, and a repeated group keeps its order.
"""

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pocketmq.client import Message, Producer
from pocketmq.client.errors import SelectorFailed
from pocketmq.client.message.validation import is_users_own
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record import KEYS, SHARDING_KEY, TAGS
from pocketmq.pipeline.access import job_access
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.jobs.replay.ordering import LANE, WHEN, KeyValue
from pocketmq.pipeline.jobs.replay.pacing import Pace

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pocketmq.client.connection.rebalance import MessageQueue

GROUP_ROWS: Final = 5_000
GROUP_BYTES: Final = 4 << 20
RETRY_S: Final = 0.5
SLEEP_S_MAX: Final = 1.0

Reached = Callable[[int, list[KeyValue]], None]


@dataclass(slots=True)
class Sent:
    """Rows: ``rows`` acknowledged, ``repeated`` of them in groups that were sent again, ``skipped`` without a body."""

    rows: int = 0
    repeated: int = 0
    skipped: int = 0


def messages_of(batch: "RecordBatch", topic: str, start: int, end: int) -> list[Message | None]:
    """Return rows as messages; None for a row without a body. Properties that brokers and clients set are left out:
    they belong to the message that was."""
    part = batch.slice(start, end - start)
    names = part.schema.names
    bodies = part.column("body").to_pylist()
    blank: list[Any] = [None] * len(bodies)
    tags, keys, shards, properties = (
        part.column(name).to_pylist() if name in names else blank
        for name in ("tags", "keys", "sharding_key", "properties")
    )
    found: list[Message | None] = []
    for body, tag, key, shard, pairs in zip(bodies, tags, keys, shards, properties, strict=True):
        if not body:
            found.append(None)
            continue
        given = dict(pairs or ())
        own = {name: value for name, value in given.items() if is_users_own(name) and value}
        found.append(
            Message(
                topic,
                body,
                tags=given.get(TAGS, "") if tag is None else tag,
                keys=given.get(KEYS, "") if key is None else key,
                properties=own or None,
                sharding_key=(given.get(SHARDING_KEY) if shard is None else shard) or None,
            )
        )
    return found


async def send_all(
    rows: "Iterator[RecordBatch]",
    namesrv: str,
    topic: str,
    pace: Pace,
    key_names: Sequence[str],
    reached: Reached,
    *,
    wait_ms: int,
    skip_empty: bool,
) -> Sent:
    """Send all rows. After each acknowledged group, ``reached`` gets the number of rows sent and the key of the last.

    Raises ``JobFailed`` when a broker is away for longer than ``wait_ms`` or a row has no body, and refusals of the
    producer; the last call of ``reached`` stays valid.
    """
    async with Producer("pocketmq-replay", namesrv, **job_access().arguments()) as producer:
        sender = _Sender(producer, wait_ms, skip_empty)
        loop = asyncio.get_running_loop()
        while True:
            batch = await asyncio.to_thread(next, rows, None)
            if batch is None:
                return sender.sent
            sizes = np.cumsum([0, *(len(body or b"") for body in batch.column("body").to_pylist())])
            due = pace.due_s(np.asarray(batch.column(WHEN)), loop.time())
            lanes: list[Any] = batch.column(LANE).to_pylist()
            at = 0
            while at < len(batch):
                due[at:] = pace.late(due[at:], loop.time())
                now = loop.time()
                end = int(np.searchsorted(due, now, "right"))
                if end <= at:
                    await asyncio.sleep(min(float(due[at]) - now, SLEEP_S_MAX))
                    continue
                room = int(np.searchsorted(sizes, sizes[at] + GROUP_BYTES, "right")) - 1
                end = min(end, at + GROUP_ROWS, max(at + 1, room))
                await sender.send(messages_of(batch, topic, at, end), lanes[at:end])
                reached(sender.sent.rows, [batch.column(name)[end - 1].as_py() for name in key_names])
                at = end


@dataclass(slots=True)
class _Sender:
    _producer: Producer
    _wait_ms: int
    _skip_empty: bool
    _queues: "tuple[MessageQueue, ...]" = ()
    sent: Sent = field(default_factory=Sent)

    def _select(self, lane: int, queues: "Sequence[MessageQueue]", message: Message) -> "MessageQueue":
        """Return a lane's queue, of the queues at the first send: a lane keeps its queue while the broker is away."""
        if not self._queues:
            self._queues = tuple(sorted(queues))
        return self._queues[lane % len(self._queues)]

    async def send(self, group: list[Message | None], lanes: list[int]) -> None:
        """Send one group until all of it is acknowledged."""
        pairs = [(message, lane) for message, lane in zip(group, lanes, strict=True) if message is not None]
        skipped = len(group) - len(pairs)
        if skipped and not self._skip_empty:
            raise JobFailed(
                "a row has no body",
                why=f"{skipped} of the next {len(group)} rows; {self.sent.rows:,} were sent",
                hint="--skip-empty skips them",
            )
        loop = asyncio.get_running_loop()
        deadline = 0.0
        while True:
            futures = []
            try:
                for message, lane in pairs:
                    selector = functools.partial(self._select, lane)
                    futures.append(self._producer.send_nowait(message, selector=selector))
                error: BaseException | None = None
            except PocketMQError as refused:
                error = refused
            results = await asyncio.gather(*futures, return_exceptions=True)
            error = next((each for each in results if isinstance(each, BaseException)), error)
            if error is None:
                break
            if not isinstance(error, PocketMQError) or not (error.retriable or isinstance(error, SelectorFailed)):
                raise error
            deadline = deadline or loop.time() + self._wait_ms / 1000
            if loop.time() >= deadline:
                raise JobFailed(
                    "a broker is away",
                    why=f"{error}; {self.sent.rows:,} rows were sent",
                    hint=f"waited {self._wait_ms} ms (--broker-wait-ms); run it again to continue",
                ) from error
            self.sent.repeated += len(pairs)
            await asyncio.sleep(RETRY_S)
        self.sent.rows += len(group)
        self.sent.skipped += skipped

"""Sending of rows as messages, in their order and at their time.

Lives here: ``send_all``, ``columns_of`` (PocketMQ takes groups in columns), ``messages_of`` (RocketMQ does not).

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
from pocketmq.client.arrow.arrow_properties import own_pairs, values_in
from pocketmq.client.arrow.row_records import Int64s
from pocketmq.client.errors import SelectorFailed
from pocketmq.client.message.validation import is_users_own
from pocketmq.client.staged.chunk_target import (
    AppendTarget,
    BrokersUnreachableError,
    NotSupportedByBrokerError,
    Patience,
)
from pocketmq.client.staged.chunk_writer import ChunkWriter
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


def columns_of(part: "RecordBatch") -> "RecordBatch":
    """Return rows (with bodies) as the columns of messages; properties as in ``messages_of``."""
    import pyarrow
    import pyarrow.compute as compute

    names, count = part.schema.names, len(part)
    found: dict[str, Any] = {"body": part.column("body")}
    text = pyarrow.string()
    table = part.column("properties") if "properties" in names else None
    for name, key in (("tags", TAGS), ("keys", KEYS), ("sharding_key", SHARDING_KEY)):
        own = part.column(name).cast(text) if name in names else pyarrow.nulls(count, text)
        found[name] = own if table is None else compute.coalesce(own, values_in(pyarrow, table, key).cast(text))
    if table is not None:
        found["properties"] = own_pairs(pyarrow, table)
    return pyarrow.record_batch(found)


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
            sizes = np.concatenate([[0], np.cumsum(_body_sizes(batch))])
            due = pace.due_s(np.asarray(batch.column(WHEN)), loop.time())
            lanes = np.asarray(batch.column(LANE), np.int64)
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
                await sender.send(batch.slice(at, end - at), topic, lanes[at:end])
                reached(sender.sent.rows, [batch.column(name)[end - 1].as_py() for name in key_names])
                at = end


@dataclass(slots=True)
class _Sender:
    _producer: Producer
    _wait_ms: int
    _skip_empty: bool
    _queues: "tuple[MessageQueue, ...]" = ()
    _by_message: bool = False
    sent: Sent = field(default_factory=Sent)

    def _select(self, lane: int, queues: "Sequence[MessageQueue]", message: Message) -> "MessageQueue":
        """Return a lane's queue, of the queues at the first send: a lane keeps its queue while the broker is away."""
        if not self._queues:
            self._queues = tuple(sorted(queues))
        return self._queues[lane % len(self._queues)]

    async def send(self, part: "RecordBatch", topic: str, lanes: Int64s) -> None:
        """Send one group until all of it is acknowledged."""
        import pyarrow

        count = len(part)
        has_body = _body_sizes(part) > 0
        skipped = count - int(np.count_nonzero(has_body))
        if skipped:
            if not self._skip_empty:
                raise JobFailed(
                    "a row has no body",
                    why=f"{skipped} of the next {count} rows; {self.sent.rows:,} were sent",
                    hint="--skip-empty skips them",
                )
            part, lanes = part.filter(pyarrow.array(has_body)), lanes[has_body]
        loop = asyncio.get_running_loop()
        deadline = 0.0
        while len(part):
            send = self._send_messages if self._by_message else self._send_columns
            error = await send(part, topic, lanes)
            if error is None:
                break
            if isinstance(error, NotSupportedByBrokerError):
                self._by_message = True
                continue
            away = isinstance(error, SelectorFailed | BrokersUnreachableError)
            if not isinstance(error, PocketMQError) or not (error.retriable or away):
                raise error
            deadline = deadline or loop.time() + self._wait_ms / 1000
            if loop.time() >= deadline:
                raise JobFailed(
                    "a broker is away",
                    why=f"{error}; {self.sent.rows:,} rows were sent",
                    hint=f"waited {self._wait_ms} ms (--broker-wait-ms); run it again to continue",
                ) from error
            self.sent.repeated += len(part)
            await asyncio.sleep(RETRY_S)
        self.sent.rows += count
        self.sent.skipped += skipped

    async def _send_columns(self, part: "RecordBatch", topic: str, lanes: Int64s) -> PocketMQError | None:
        """Send a group in columns, once; return why not."""
        instance = self._producer.instance
        patience = Patience(instance, 0)
        target = AppendTarget(instance, patience, self._producer.group)
        writer = ChunkWriter(instance, target, topic=topic, in_order=False)
        try:
            if not self._queues:
                self._queues = tuple(sorted((await patience.route(topic)).write_queues))
            places = lanes % len(self._queues)
            rows = {self._queues[place]: np.flatnonzero(places == place) for place in np.unique(places).tolist()}
            await writer.write_to(columns_of(part), rows)
            await writer.close()
        except PocketMQError as error:
            return error
        finally:
            await writer.cancel()
        return None

    async def _send_messages(self, part: "RecordBatch", topic: str, lanes: Int64s) -> BaseException | None:
        """Send a group message by message, to a RocketMQ broker; return the first error."""
        futures = []
        refused: PocketMQError | None = None
        try:
            for message, lane in zip(messages_of(part, topic, 0, len(part)), lanes.tolist(), strict=True):
                assert message is not None
                futures.append(self._producer.send_nowait(message, selector=functools.partial(self._select, lane)))
        except PocketMQError as error:
            refused = error
        results = await asyncio.gather(*futures, return_exceptions=True)
        return next((each for each in results if isinstance(each, BaseException)), refused)


def _body_sizes(batch: "RecordBatch") -> Int64s:
    """Return the bytes of each body, 0 for none."""
    import pyarrow.compute as compute

    column: Any = batch.column("body")
    return np.asarray(compute.binary_length(column).fill_null(0), np.int64)

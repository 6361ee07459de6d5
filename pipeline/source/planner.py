"""The driver's requests to brokers: queues, their bounds, and the identities of topics.

Lives here: ``Planner``: one client with its own loop, called from Spark's synchronous methods.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

import numpy as np

from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import NoRoute
from pocketmq.client.pull.pull_wire import PullResult, PullWire
from pocketmq.common.errors import Cause, CorruptRecord, PocketMQError
from pocketmq.common.record_columns import RecordColumns, parse_columns
from pocketmq.common.topics import is_dlq_topic, is_retry_topic, is_system_topic
from pocketmq.pipeline.access import NO_ACCESS, Access
from pocketmq.pipeline.errors import BrokerAway
from pocketmq.pipeline.servers import check_hosts
from pocketmq.pipeline.source.identity import masters, topic_identity
from pocketmq.pipeline.source.notes import Waiting, print_note
from pocketmq.pipeline.source.positions import Positions, QueueKey
from pocketmq.remoting.codes import ResponseCode

RETRY_S: Final = 0.5
SAMPLE_QUEUES: Final = 8
SAMPLE_MESSAGES: Final = 256
SAMPLE_BYTES: Final = 256 << 10

ResultT = TypeVar("ResultT")


class TopicUnknown(PocketMQError):
    """A topic does not exist; waiting would not help."""

    default_cause = Cause.NO_ROUTE


class QueuesAway(PocketMQError):
    """A route lacks queues that a query reads."""

    retriable = True
    default_cause = Cause.NO_ROUTE


class QueuesGone(PocketMQError):
    """Registered brokers no longer have queues that a query reads: their topic was deleted, or has fewer queues."""

    default_cause = Cause.NO_ROUTE

    def __init__(self, keys: Sequence[QueueKey]) -> None:
        super().__init__("queues are gone", why=f"the first of {len(keys)} is {keys[0].text}")
        self.keys = tuple(keys)


class Planner:
    """Answers of brokers for the driver. Retries retriable errors for ``wait_ms``, then raises ``BrokerAway``.

    Not thread-safe. ``close`` closes the connections.
    """

    def __init__(self, namesrv: str, group: str, wait_ms: int, access: Access = NO_ACCESS) -> None:
        self._wait_ms = wait_ms
        self._group = group
        self._namesrv = namesrv
        self._access = access
        self._loop = asyncio.new_event_loop()
        self._instance: ClientInstance | None = None
        self._wire: PullWire
        self._told_absent: set[str] = set()

    def close(self) -> None:
        """Close the connections and the loop."""
        if self._loop.is_closed():
            return
        if self._instance is not None:
            self._loop.run_until_complete(self._instance.stop())
            self._instance = None
        self._loop.close()

    def topics_like(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a regular expression, without system topics."""
        compiled = re.compile(pattern)

        async def ask(instance: ClientInstance) -> list[str]:
            async with Admin(instance=instance) as admin:
                return await admin.topics()

        names = self._run(ask, "list of topics")
        hidden = (is_system_topic, is_retry_topic, is_dlq_topic)
        return sorted(name for name in names if compiled.fullmatch(name) and not any(each(name) for each in hidden))

    def queues(
        self, topics: Iterable[str], expected: Iterable[QueueKey] = (), *, absent_ok: bool = False
    ) -> list[QueueKey]:
        """Return the readable queues of topics. Raises ``TopicUnknown``, unless ``absent_ok``, and ``QueuesGone``.

        ``expected``: queues that a running query reads. When a broker dies, its queues leave the route: the planner
        waits for them as for an answer. Those that a registered broker does not have are gone.
        """
        known, chosen = set(expected), list(topics)

        async def ask(instance: ClientInstance) -> list[QueueKey]:
            found = await self._routes(instance, chosen, known, absent_ok)
            if missing := known - set(found):
                registered = await masters(instance)
                if any(key.broker in registered for key in missing):  # it may have registered between the two
                    found = await self._routes(instance, chosen, known, absent_ok)
                    missing = known - set(found)
                    gone = sorted(key for key in missing if key.broker in registered)
                    if gone:
                        raise QueuesGone(gone)
            if missing:
                key = min(missing)
                raise QueuesAway(
                    f"{len(missing)} queues have no route",
                    why=f"the first is {key.topic} queue {key.queue_id} on {key.broker}",
                    hint="is that broker down?",
                )
            return found

        return self._run(ask, "routes of the topics")

    async def _routes(
        self, instance: ClientInstance, topics: list[str], known: set[QueueKey], absent_ok: bool
    ) -> list[QueueKey]:
        """Return the queues that name servers know now."""
        found: list[QueueKey] = []
        for topic in topics:
            try:
                route = await instance.refresh(topic)
            except NoRoute as error:
                if any(key.topic == topic for key in known):
                    continue
                if not absent_ok:
                    raise TopicUnknown(
                        f"topic {topic} not found",
                        why=str(error),
                        hint="check the name and namesrv; pocketmq topic list shows all topics",
                    ) from error
                if topic not in self._told_absent:
                    self._told_absent.add(topic)
                    print_note(f"topic {topic} not found: no rows of it until it exists")
                continue
            found += [QueueKey(topic, queue.broker_name, queue.queue_id) for queue in route.read_queues]
        return found

    def identities(self, keys: Iterable[QueueKey]) -> dict[tuple[str, str], str]:
        """Return the identity of each topic on each broker; empty if the broker gives none (RocketMQ)."""
        wanted = sorted({(key.topic, key.broker) for key in keys})

        async def ask(instance: ClientInstance) -> dict[tuple[str, str], str]:
            texts = await asyncio.gather(*(topic_identity(instance, *each) for each in wanted))
            return dict(zip(wanted, texts, strict=True))

        return self._run(ask, "identities of the topics")

    def bounds(self, keys: Iterable[QueueKey]) -> dict[QueueKey, tuple[int, int]]:
        """Return the first offset of each queue and the offset behind its last."""
        chosen = list(keys)

        async def ask(instance: ClientInstance) -> dict[QueueKey, tuple[int, int]]:
            wire = self._wire
            lows = await asyncio.gather(*(wire.min_offset(_queue(key)) for key in chosen))
            highs = await asyncio.gather(*(wire.max_offset(_queue(key)) for key in chosen))
            return {key: (max(0, low), max(0, high)) for key, low, high in zip(chosen, lows, highs, strict=True)}

        return self._run(ask, "bounds of the queues")

    def first_at(self, keys: Iterable[QueueKey], timestamp_ms: int) -> dict[QueueKey, int]:
        """Return the first offset stored at or after a time; the end of the queue without one.

        A broker's search returns the nearest message on either side of the time, hence the look at its store time.
        """
        chosen = list(keys)
        bounds = self.bounds(chosen)

        async def ask(instance: ClientInstance) -> dict[QueueKey, int]:
            wire = self._wire
            nearest = await asyncio.gather(*(wire.offset_by_time(_queue(key), timestamp_ms) for key in chosen))
            return dict(zip(chosen, nearest, strict=True))

        nearest = self._run(ask, "offsets by time")
        times = self.store_times({key: nearest[key] for key in chosen if bounds[key][0] < bounds[key][1]})
        found: dict[QueueKey, int] = {}
        for key in chosen:
            low, high = bounds[key]
            offset = min(max(nearest[key], low), high)
            found[key] = offset if times.get(key, timestamp_ms) >= timestamp_ms else min(offset + 1, high)
        return found

    def store_times(self, offsets: dict[QueueKey, int]) -> dict[QueueKey, int]:
        """Return the store times of single messages in ms, without messages that are gone."""

        async def ask(instance: ClientInstance) -> dict[QueueKey, int]:
            async def one(key: QueueKey, offset: int) -> int | None:
                results = await self._wire.pull(key.broker, [(_queue(key), offset)], None, max_messages=1, max_bytes=1)
                for result in results:
                    if len(result.body):
                        with contextlib.suppress(CorruptRecord):  # a damaged message has no time; the tasks report it
                            return int(_columns(result).store_timestamps[0])
                return None

            times = await asyncio.gather(*(one(key, offset) for key, offset in offsets.items()))
            return {key: time for key, time in zip(offsets, times, strict=True) if time is not None}

        return self._run(ask, "store times")

    def mean_bytes(self, start: Positions) -> float:
        """Return an estimate of the bytes of a record, at least 1, from the first records of some queues behind
        ``start``.
        """

        async def ask(instance: ClientInstance) -> float:
            def sample(key: QueueKey, offset: int) -> Awaitable[list[PullResult]]:
                at = [(_queue(key), offset)]
                return self._wire.pull(key.broker, at, None, max_messages=SAMPLE_MESSAGES, max_bytes=SAMPLE_BYTES)

            count = size = 0
            for key, offset in sorted(start.offsets.items())[:SAMPLE_QUEUES]:
                results = await sample(key, offset)
                moved = results[0].queues[0]
                if moved.code == ResponseCode.PULL_OFFSET_MOVED and moved.min_offset > offset:
                    results = await sample(key, moved.min_offset)
                for result in results:
                    if len(result.body):
                        with contextlib.suppress(CorruptRecord):
                            count += len(_columns(result) if result.sizes is None else result.sizes)
                            size += len(result.body)
            return size / count if count else 1.0

        return max(1.0, self._run(ask, "sizes of records"))

    def commit(self, positions: Positions) -> None:
        """Store a group's offsets at the brokers, for displays of its lag. Nothing reads them back, so a failure is
        reported and stops nothing.
        """

        async def store() -> None:
            await self._started()
            await asyncio.gather(
                *(self._wire.store_offset(_queue(key), offset) for key, offset in positions.offsets.items())
            )

        try:
            self._loop.run_until_complete(store())
        except PocketMQError as error:
            print_note(f"offsets of group {self._group} not stored: {error}")

    # ---- inside

    def _run(self, ask: Callable[[ClientInstance], Awaitable[ResultT]], what: str) -> ResultT:
        return self._loop.run_until_complete(self._patiently(ask, what))

    async def _patiently(self, ask: Callable[[ClientInstance], Awaitable[ResultT]], what: str) -> ResultT:
        waiting = Waiting(what, self._wait_ms)
        while True:
            try:
                result = await ask(await self._started())
                waiting.succeeded(self._loop.time())
                return result
            except PocketMQError as error:
                if not error.retriable:
                    raise
                if waiting.failed(self._loop.time(), error):
                    raise BrokerAway(
                        f"no {what}", why=str(error), hint=f"waited {self._wait_ms} ms (option brokerWaitMs)"
                    ) from error
            await asyncio.sleep(RETRY_S)

    async def _started(self) -> ClientInstance:
        if self._instance is None:
            check_hosts(self._namesrv)
            instance = ClientInstance(self._namesrv, **self._access.arguments())
            await instance.start()
            self._instance = instance
            self._wire = PullWire(instance, self._group)
        return self._instance


def _queue(key: QueueKey) -> MessageQueue:
    return MessageQueue(key.topic, key.broker, key.queue_id)


def _columns(result: PullResult) -> RecordColumns:
    return parse_columns(np.frombuffer(result.body, np.uint8), result.sizes)

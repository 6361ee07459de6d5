"""The pull consumer: the caller decides what to read, from where, and when.

Lives here: ``PullConsumer``: positions, ``poll``, ``stream``, ``poll_arrow``, ``seek``, ``commit``.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.own_instance import instance_for
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import NotStarted, OffsetIllegal
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.pull.offsets import (
    ConsumeFromWhere,
    FirstStart,
    StartPosition,
    check_offset,
    group_start,
    start_timestamp_ms,
)
from pocketmq.client.pull.pull_round import QUEUES_PER_PULL_MAX, Round, next_round
from pocketmq.client.pull.pull_wire import NO_OFFSET, PULL_BYTES_DEFAULT, PULL_BYTES_MAX, PullResult, PullWire
from pocketmq.client.pull.subscription import ALL, Subscription, parse_sql, parse_subscription, subscription_data
from pocketmq.client.telemetry.conventions import ACK
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.client.together import together
from pocketmq.common.errors import ConfigError, CorruptRecord, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.topics import check_group_name, check_topic_name
from pocketmq.remoting.protocol.client import ConsumerData
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

if TYPE_CHECKING:
    import pyarrow as pa

POLL_MESSAGES_MAX = 1 << 20
START_BEFORE_MS = 1_800_000
"""DefaultMQPushConsumer.consumeTimestamp: half an hour before the start."""
ARROW_MESSAGES_MAX = 10_000_000
ARROW_BYTES_MAX = 1 << 30
"""One batch ends when it holds this much: Arrow's ``binary`` counts bytes in 31 bits."""
POLL_TIMEOUT_MS_MAX = 3_600_000
STREAM_MESSAGES = 4_096
"""Messages a stream asks for at once."""
STREAM_SUSPEND_MS = 15_000
STREAM_PATIENCE_MS = 60_000
"""How long a stream retries after transient errors before it raises."""
STREAM_RETRY_MS = 1_000
WINDOW_HOLD_MS = 200
"""How long a pull of more queues than fit one request is held, which sees messages of the held ones only."""
AHEAD_RECORDS_MIN = 256
"""From so many records on, the broker prepares the next answer while they become messages. Fewer take less time than
the turns of the loop that the request needs to leave."""


class PullConsumer(Lifecycle):
    """Reads topics at the caller's pace.

    ``poll`` and ``poll_arrow`` continue at the consumer's position: where the last poll ended, where ``seek`` put it,
    else at the group's committed offset, else at ``start``: ``"earliest"`` (default), ``"latest"``, a datetime with a
    time zone or ms since 1970 (``consume_from_where`` says the same in RocketMQ's words). Positions move when messages
    are handed out; ``commit`` stores them at the brokers. ``stream`` is an iterator over a topic with a start of its
    own.

    ``check_crc``: compare each body with the CRC that its record has of it, and raise ``CorruptRecord`` where they
    differ. Without it ``poll_arrow`` does so (0.13 µs a message), ``poll`` and ``stream`` do not, as RocketMQ's
    clients.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        start: FirstStart | None = None,
        consume_from_where: ConsumeFromWhere | None = None,
        pull_bytes_max: int = PULL_BYTES_DEFAULT,
        check_crc: bool | None = None,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        telemetry: TelemetryArgument = None,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        if not 1 <= pull_bytes_max <= PULL_BYTES_MAX:
            raise ConfigError("consumer refused", why=f"pull_bytes_max={pull_bytes_max} is not 1 to {PULL_BYTES_MAX}")
        self.group = group
        self._first = group_start(start, consume_from_where, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        self.consume_from_where = self._first.where
        self.pull_bytes_max = pull_bytes_max
        self.check_crc = bool(check_crc)
        self._checks_arrow = check_crc is not False
        self.instance = instance_for(instance, namesrv, credentials, tls, telemetry)
        self._telemetry = self.instance.telemetry
        self._wire = PullWire(self.instance, group)
        self._positions: dict[MessageQueue, int] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._turn = 0
        self._running = False

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the client; routes and connections are made at the first use of a topic."""
        if self._running:
            return
        import pocketmq.common.record_columns  # noqa: F401 - NumPy: now, not in the first pull

        await self.instance.start()
        self.instance.add_consumer(self.group, self._describe, lambda: None)
        self._running = True

    async def stop(self) -> None:
        """Close. Commits nothing by itself."""
        if not self._running:
            return
        self._running = False
        await self.instance.remove_consumer(self.group)
        await self.instance.stop()

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where=self.consume_from_where.value,
            subscription_data_set=[subscription_data(each) for each in self._subscriptions.values()],
        )

    # -- positions ---------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, in broker and queue order. Raises ``NoRoute``."""
        self._check_running()
        check_topic_name(topic)
        route = await self.instance.route(topic, timeout_ms=self.instance.options.api_timeout_ms)
        return list(route.read_queues)

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that ``poll`` hands out."""
        self._check_running()
        await self._place([queue])
        return self._positions[queue]

    async def seek(self, target: "str | MessageQueue | Iterable[MessageQueue]", to: "StartPosition | int") -> None:
        """Move a topic, a queue or queues to ``"earliest"``, ``"latest"``, ``"committed"``, a datetime or ms.

        A number is an offset when ``target`` is one queue, and a time in ms otherwise; ``seek_offset`` leaves no doubt.
        """
        if isinstance(target, MessageQueue) and type(to) is int:
            await self.seek_offset(target, to)
            return
        queues = await self._queues_of(target)
        self._positions.update(await self._start_offsets(queues, to))

    async def seek_offset(self, queue: MessageQueue, offset: int) -> None:
        """Move one queue to an offset. An offset outside the queue is corrected by the broker at the next poll."""
        self._check_running()
        self._positions[queue] = check_offset(offset)

    async def seek_time(self, target: "str | MessageQueue | Iterable[MessageQueue]", timestamp_ms: int) -> None:
        """Move to the messages stored nearest to a time (ms since 1970)."""
        queues = await self._queues_of(target)
        if type(timestamp_ms) is not int or not 0 <= timestamp_ms < 2**63:
            raise OffsetIllegal("seek refused", why=f"{timestamp_ms!r} is no time in ms since 1970")
        self._positions.update(await self._start_offsets(queues, timestamp_ms))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset as its broker knows it, or None."""
        self._check_running()
        await self.queues(queue.topic)
        offset = await self._wire.stored_offset(queue, zero_if_young=False)
        return None if offset == NO_OFFSET else offset

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets at the brokers: those given, else the position of every queue read so far.

        An offset is the next message to read. Returns when every broker has answered; raises the first error.
        """
        self._check_running()
        chosen = dict(self._positions if offsets is None else offsets)
        if self._telemetry is None:
            await self._commit(chosen)
            return
        with self._telemetry.settling(ACK, self.group, same_topic(chosen)):
            await self._commit(chosen)

    async def _commit(self, chosen: Mapping[MessageQueue, int]) -> None:
        for queue, offset in chosen.items():
            check_offset(offset)
            if self.instance.routes.get(queue.topic) is None:
                await self.queues(queue.topic)
        errors: list[PocketMQError] = []

        async def store(queue: MessageQueue) -> None:
            try:
                await self._wire.store_offset(queue, chosen[queue])
            except PocketMQError as error:
                errors.append(error)

        await together(store, chosen)
        if errors:
            raise errors[0]

    # -- reading -----------------------------------------------------------------------------------------------

    async def poll(
        self,
        target: "str | MessageQueue | Iterable[MessageQueue]",
        *,
        max_messages: int = 32,
        timeout_ms: int = 1000,
        tags: str = ALL,
    ) -> list[ReceivedMessage]:
        """Return up to ``max_messages`` of a topic or of some queues; wait up to ``timeout_ms`` for the first.

        Messages of one queue are in order. Raises ``NoRoute``, the errors of connections, ``BrokerAnswerError``.
        """
        _check_number("max_messages", max_messages, POLL_MESSAGES_MAX)
        _check_number("timeout_ms", timeout_ms, POLL_TIMEOUT_MS_MAX, low=0)
        queues = await self._queues_of(target)
        subscription = await self._subscribed(queues, tags)
        await self._place(queues)
        clock, telemetry = self.instance.clock, self._telemetry
        started_ns = clock.monotonic_ns()
        deadline_ns = started_ns + timeout_ms * 1_000_000
        try:
            while True:
                left_ms = max((deadline_ns - clock.monotonic_ns()) // 1_000_000, 0)
                rounds = await self._round(self._positions, queues, subscription, max_messages, int(left_ms))
                messages: list[ReceivedMessage] = []
                for result in rounds.results:
                    messages += self._messages(result, subscription)
                if len(messages) > max_messages:
                    messages = messages[:max_messages]
                    for message in messages:  # RocketMQ's pull has no common limit for several queues
                        self._positions[_queue_of(message)] = message.queue_offset + 1
                    for queue, offset in rounds.before.items():
                        if all(_queue_of(message) != queue for message in messages):
                            self._positions[queue] = offset
                else:
                    self._positions.update(rounds.after)
                if messages or (not rounds.moved and clock.monotonic_ns() >= deadline_ns):
                    if messages and telemetry is not None:
                        telemetry.received(self.group, messages, started_ns)
                    return messages
        except BaseException as error:
            if telemetry is not None:
                telemetry.not_received(self.group, same_topic(queues), error, started_ns)
            raise

    async def stream(
        self,
        target: "str | MessageQueue | Iterable[MessageQueue]",
        *,
        start: "StartPosition | Mapping[MessageQueue, int]" = "committed",
        stop_at_end: bool = False,
        tags: str = ALL,
        sql: str = "",
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """Iterate over a topic, or some of its queues:
        ``async for message in consumer.stream("T", start="earliest", stop_at_end=True)``.

        ``start`` may also be the offset of each queue. ``sql``: a filter on properties (SQL92), instead of ``tags``.
        ``stop_at_end`` ends where each queue ended when the iteration began. The next pull runs while messages are
        handed out. ``commit()`` inside the loop covers the messages handed out, the current one included. Transient
        errors (a broker restarts) are retried for a minute, then raised.
        """
        positions = self._positions
        async with aclosing(self._stream(target, start, stop_at_end, tags, sql)) as rounds:
            async for messages, after in rounds:
                queue: MessageQueue | None = None
                for message in messages:
                    if queue is None or message.queue_id != queue.queue_id or message.broker_name != queue.broker_name:
                        queue = _queue_of(message)
                    positions[queue] = message.queue_offset + 1
                    yield message
                positions.update(after)

    async def stream_batches(
        self,
        topic: str,
        *,
        start: StartPosition = "committed",
        stop_at_end: bool = False,
        tags: str = ALL,
    ) -> AsyncGenerator[list[ReceivedMessage], None]:
        """Iterate as ``stream`` does, over lists: the messages of one pull. ``commit()`` counts a whole list as
        read."""
        async with aclosing(self._stream(topic, start, stop_at_end, tags)) as rounds:
            async for messages, after in rounds:
                self._positions.update(after)
                if messages:
                    yield messages

    async def _stream(
        self,
        target: "str | MessageQueue | Iterable[MessageQueue]",
        start: "StartPosition | Mapping[MessageQueue, int]",
        stop_at_end: bool,
        tags: str,
        sql: str = "",
    ) -> AsyncGenerator[tuple[list[ReceivedMessage], dict[MessageQueue, int]], None]:
        """Yield (messages, positions after them) for each round of pulls."""
        queues = await self._queues_of(target)
        subscription = await self._subscribed(queues, tags, sql)
        if isinstance(start, Mapping):
            cursors = {queue: check_offset(start.get(queue)) for queue in queues}
        else:
            cursors = await self._start_offsets(queues, start)
        self._positions.update(cursors)
        telemetry = self._telemetry
        ends: dict[MessageQueue, int] = {}
        if stop_at_end:
            offsets = await together(self._wire.max_offset, queues)
            ends = dict(zip(queues, offsets, strict=True))
        pulling: asyncio.Task[Round] | None = None
        try:
            while True:
                if stop_at_end:
                    queues = [queue for queue in queues if cursors[queue] < ends[queue]]
                    if not queues:
                        return
                if pulling is None:
                    pulling = self._prefetch(cursors, queues, subscription)
                asked_ns = 0 if telemetry is None else self.instance.clock.monotonic_ns()
                try:
                    current = await pulling
                except BaseException as error:
                    if telemetry is not None:
                        telemetry.not_received(self.group, same_topic(queues), error, asked_ns)
                    raise
                pulling = None
                cursors.update(current.after)
                remaining = [queue for queue in queues if cursors[queue] < ends[queue]] if stop_at_end else queues
                if remaining and current.moved:
                    pulling = self._prefetch(cursors, remaining, subscription)
                    await _let_leave(current)
                messages: list[ReceivedMessage] = []
                for result in current.results:
                    messages += self._messages(result, subscription)
                after = current.after
                if stop_at_end and any(offset > ends[queue] for queue, offset in after.items()):
                    messages = [message for message in messages if message.queue_offset < ends[_queue_of(message)]]
                    after = {queue: min(offset, ends[queue]) for queue, offset in after.items()}
                if messages and telemetry is not None:
                    telemetry.received(self.group, messages, asked_ns)
                yield messages, after
        finally:
            if pulling is not None:
                pulling.cancel()
                await asyncio.gather(pulling, return_exceptions=True)

    async def poll_arrow(
        self,
        target: "str | MessageQueue | Iterable[MessageQueue]",
        *,
        max_messages: int = 100_000,
        timeout_ms: int = 1000,
        columns: Sequence[str] | None = None,
        tags: str = ALL,
    ) -> "pa.RecordBatch":
        """Return up to ``max_messages`` as one Arrow record batch; wait up to ``timeout_ms`` for the first.

        Columns: ``topic``, ``broker``, ``queue_id``, ``queue_offset``, ``msg_id``, ``keys``, ``tags``, ``body``
        (binary),
        ``born_timestamp``, ``store_timestamp`` (us, UTC), ``born_host``, ``reconsume_times``; ``properties`` (a map)
        if asked for. Reads on until ``max_messages`` are there or the queues are at their end, or 1 GiB is there.
        Raises ``CorruptRecord``, which names queue and offset, for a damaged message; the messages before it are
        returned first.
        """
        from pocketmq.client.arrow.arrow import (
            check_columns,
            concat_batches,
            empty_batch,
            import_pyarrow,
            records_to_arrow,
        )

        wanted = check_columns(columns)
        import_pyarrow()
        _check_number("max_messages", max_messages, ARROW_MESSAGES_MAX)
        _check_number("timeout_ms", timeout_ms, POLL_TIMEOUT_MS_MAX, low=0)
        queues = await self._queues_of(target)
        subscription = await self._subscribed(queues, tags)
        await self._place(queues)
        clock, telemetry = self.instance.clock, self._telemetry
        started_ns = clock.monotonic_ns()
        deadline_ns = started_ns + timeout_ms * 1_000_000
        batches: list[pa.RecordBatch] = []
        count = size_bytes = whole = 0
        moved: dict[MessageQueue, int] = {}  # applied with the returned rows: an error must not skip any
        pulling: asyncio.Task[Round] | None = None
        try:
            while count < max_messages and size_bytes < ARROW_BYTES_MAX:
                left_ms = max((deadline_ns - clock.monotonic_ns()) // 1_000_000, 0)
                if pulling is None:
                    round_ = await self._round(
                        {**self._positions, **moved},
                        queues,
                        subscription,
                        max_messages,
                        0 if count else int(left_ms),
                        PULL_BYTES_MAX,
                    )
                else:
                    round_ = await pulling
                    pulling = None
                records = sum(max(result.count, 0) for result in round_.results)
                if round_.moved and count + records < max_messages:
                    ahead = {**self._positions, **moved, **round_.after}
                    pulling = asyncio.get_running_loop().create_task(
                        self._round(ahead, queues, subscription, max_messages - count - records, 0, PULL_BYTES_MAX)
                    )
                    await _let_leave(round_)
                for result in round_.results:
                    if len(result.body) == 0:
                        continue
                    filtering = subscription is not None and subscription.tags
                    try:
                        batch = records_to_arrow(
                            result.body,
                            result.sizes,
                            result.broker_name,
                            wanted,
                            body_views=not filtering,
                            check_crc=self._checks_arrow,
                        )
                    except CorruptRecord as error:
                        raise self._damage(result, {**self._positions, **moved}, bool(filtering)) or error from error
                    unpacked_bytes = batch.column("body").get_total_buffer_size() if "body" in wanted else 0
                    size_bytes += max(len(result.body), unpacked_bytes)
                    if "body" in wanted and batch.column("body").null_count:
                        self.instance.log.warning(
                            "bodies_unreadable",
                            group=self.group,
                            broker=result.broker_name,
                            count=batch.column("body").null_count,
                        )
                    if subscription is not None and subscription.tags:
                        batch = _filtered(batch, result, subscription, wanted)
                    count += len(batch)
                    batches.append(batch)
                moved.update(round_.after)
                whole = len(batches)
                if not round_.moved and (count or clock.monotonic_ns() >= deadline_ns):
                    break
        except PocketMQError as error:
            if not whole:
                if telemetry is not None:
                    telemetry.not_received(self.group, same_topic(queues), error, started_ns)
                raise
            del batches[whole:]  # return the earlier rows; the next call meets the error again
        finally:
            if pulling is not None:
                pulling.cancel()
                await asyncio.gather(pulling, return_exceptions=True)
        self._positions.update(moved)
        if count and telemetry is not None:
            telemetry.received_rows(self.group, same_topic(queues), count, started_ns)
        return concat_batches(batches, wanted) if batches else empty_batch(wanted)

    # -- inside ------------------------------------------------------------------------------------------------

    def _check_running(self) -> None:
        if not self._running:
            raise NotStarted(
                "consumer is not running", hint='use "async with PullConsumer(...)", or await start() first'
            )
        self.instance.check_process()

    async def _queues_of(self, target: "str | MessageQueue | Iterable[MessageQueue]") -> list[MessageQueue]:
        self._check_running()
        if isinstance(target, str):
            return await self.queues(target)
        queues = [target] if isinstance(target, MessageQueue) else list(target)
        if not queues or not all(isinstance(queue, MessageQueue) for queue in queues):
            raise OffsetIllegal(
                "queues refused", why="no queues, or something else among them", hint="use queues(topic)"
            )
        for topic in {queue.topic for queue in queues}:
            await self.queues(topic)
        return queues

    async def _subscribed(self, queues: Sequence[MessageQueue], tags: str, sql: str = "") -> Subscription | None:
        """Record the subscription, so that heartbeats name it; return the filter, None for everything."""
        changed = False
        subscription: Subscription | None = None
        for topic in {queue.topic for queue in queues}:
            known = self._subscriptions.get(topic)
            now_ms = self.instance.clock.now_ms()
            subscription = parse_sql(topic, sql, now_ms) if sql else parse_subscription(topic, tags, now_ms)
            if known is None or not known.selects_as(subscription):
                self._subscriptions[topic] = subscription
                changed = True
            else:
                subscription = known
        if changed:
            await self.instance.heartbeat()
        return subscription

    async def _place(self, queues: Iterable[MessageQueue]) -> None:
        """Give every queue a position: committed, else the first one."""
        missing = [queue for queue in queues if queue not in self._positions]
        if missing:
            self._positions.update(await self._start_offsets(missing, "committed"))

    async def _start_offsets(self, queues: Sequence[MessageQueue], start: StartPosition) -> dict[MessageQueue, int]:
        timestamp_ms = start_timestamp_ms(start)
        wire, where = self._wire, self.consume_from_where
        if timestamp_ms is not None:
            offsets = await together(lambda queue: wire.offset_by_time(queue, timestamp_ms), queues)
        elif start == "earliest":
            offsets = await together(wire.min_offset, queues)
        elif start == "latest":
            offsets = await together(wire.max_offset, queues)
        else:
            first_ms = self._first.timestamp_ms
            since_ms = self.instance.clock.now_ms() - START_BEFORE_MS if first_ms is None else first_ms
            stored = await together(lambda queue: wire.stored_offset(queue, zero_if_young=False), queues)
            offsets = await together(
                lambda pair: wire.start_offset(pair[0], where, since_ms, stored=pair[1]),
                zip(queues, stored, strict=True),
            )
        return dict(zip(queues, offsets, strict=True))

    async def _round(
        self,
        positions: Mapping[MessageQueue, int],
        queues: Sequence[MessageQueue],
        subscription: Subscription | None,
        max_messages: int,
        suspend_ms: int,
        max_bytes: int = 0,
    ) -> Round:
        windows = 1
        if len(queues) > QUEUES_PER_PULL_MAX:
            windows = -(-max(Counter(queue.broker_name for queue in queues).values()) // QUEUES_PER_PULL_MAX)
        if windows > 1:
            suspend_ms = min(suspend_ms, WINDOW_HOLD_MS)
        for left in reversed(range(windows)):  # all queues are asked once before the last ones hold the pull
            self._turn += 1
            found = await next_round(
                self._wire,
                positions,
                queues,
                subscription,
                max_messages=max_messages,
                max_bytes=max_bytes or self.pull_bytes_max,
                suspend_ms=0 if left else suspend_ms,
                turn=self._turn,
            )
            if found.moved:
                break
        return found

    def _prefetch(
        self, cursors: Mapping[MessageQueue, int], queues: Sequence[MessageQueue], subscription: Subscription | None
    ) -> "asyncio.Task[Round]":
        work = self._patient_round(dict(cursors), list(queues), subscription)
        return asyncio.get_running_loop().create_task(work, name="pocketmq-stream")

    async def _patient_round(
        self, cursors: Mapping[MessageQueue, int], queues: Sequence[MessageQueue], subscription: Subscription | None
    ) -> Round:
        """Do one round of a stream; retry transient errors for a minute."""
        clock = self.instance.clock
        deadline_ns = clock.monotonic_ns() + STREAM_PATIENCE_MS * 1_000_000
        while True:
            try:
                return await self._round(cursors, queues, subscription, STREAM_MESSAGES, STREAM_SUSPEND_MS)
            except PocketMQError as error:
                self._check_running()
                if not error.retriable or clock.monotonic_ns() >= deadline_ns:
                    raise
                self.instance.log.warning("stream_waits", topic=queues[0].topic, error=str(error))
                await asyncio.sleep(STREAM_RETRY_MS / 1000)

    def _damage(
        self, result: PullResult, starts: Mapping[MessageQueue, int], is_filtered: bool
    ) -> CorruptRecord | None:
        """Return the error that says where the first damaged record of an answer is."""
        from pocketmq.client.pull.damaged import damage_error, sort_out  # NumPy: not at import

        found = sort_out(result, starts, is_filtered=is_filtered, check_crc=self._checks_arrow)
        return damage_error(found.damaged[0]) if found.damaged else None

    def _messages(self, result: PullResult, subscription: Subscription | None) -> list[ReceivedMessage]:
        if len(result.body) == 0:
            return []
        from pocketmq.common.record_columns import received_messages  # NumPy: not at import

        messages = received_messages(result.body, result.sizes, result.broker_name, check_crc=self.check_crc)
        if subscription is not None and subscription.tags:
            messages = [message for message in messages if message.tags in subscription.tags]
        return messages


def _queue_of(message: ReceivedMessage) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name, message.queue_id)


def same_topic(queues: Iterable[MessageQueue]) -> str:
    """Return the topic of all queues, or an empty string for several."""
    topics = {queue.topic for queue in queues}
    return topics.pop() if len(topics) == 1 else ""


def _filtered(
    batch: "pa.RecordBatch", result: PullResult, subscription: Subscription, columns: Sequence[str]
) -> "pa.RecordBatch":
    """Return the rows with matching tags: the broker compared hashes, which may collide."""
    import pyarrow.compute as compute

    from pocketmq.client.arrow.arrow import import_pyarrow, records_to_arrow

    pa = import_pyarrow()
    tags = batch.column("tags") if "tags" in columns else None
    if tags is None:
        tags = records_to_arrow(result.body, result.sizes, result.broker_name, ("tags",)).column(0)
    return batch.filter(compute.is_in(tags, value_set=pa.array(sorted(subscription.tags), pa.string())))


async def _let_leave(done: Round) -> None:
    """Let the request of the next pull leave before the records of this one keep the loop busy for long.

    Two turns of the loop: in the first the request is written, at its end uvloop hands it to the socket.
    """
    if sum(result.count for result in done.results) >= AHEAD_RECORDS_MIN:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def _check_number(name: str, value: object, high: int, low: int = 1) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ConfigError("poll refused", why=f"{name}={value!r} is not a whole number from {low} to {high}")

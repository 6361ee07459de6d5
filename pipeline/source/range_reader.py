"""The work of a task: reading ranges of queues through the broker, as Arrow batches.

Lives here: ``read_ranges``.

Memory: one pull is decoded while the next is under way, so a task holds about three pulls whatever the size of the
topic. Pulls grow while they come full: a small range costs no more than it has, and a large one few round trips. While
a broker is away, the task yields empty batches: one that does not yield cannot be cancelled.
"""

import asyncio
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pocketmq.client.arrow.arrow import concat_batches, empty_batch, records_to_arrow
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.pull.damaged import Damaged, sort_out
from pocketmq.client.pull.pull_wire import PULL_MESSAGES_MAX, PullResult, PullWire, QueueResult
from pocketmq.client.pull.subscription import Subscription, parse_subscription
from pocketmq.common.errors import Cause, CorruptRecord, PocketMQError
from pocketmq.pipeline.access import NO_ACCESS, Access
from pocketmq.pipeline.errors import BrokerAway, DataLost
from pocketmq.pipeline.source.identity import is_deleted, topic_identity
from pocketmq.pipeline.source.notes import Waiting, print_note
from pocketmq.pipeline.source.positions import Positions, QueueRange
from pocketmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pyarrow import RecordBatch

RETRY_S: Final = 0.25
PULL_BYTES_FIRST: Final = 1 << 20
"""The first pull of a task; each that comes full lets the next be twice as large, up to the plan's ``pull_bytes``
(measured: pulls of 4 MiB instead of 1 save broker and task a quarter of their time)."""
FULL: Final = 0.75
"""A pull that has this part of what it asked for came full: a broker ends before the record that does not fit."""
MISSING_WAIT_MS: Final = 5_000
"""How long a planned message may be missing before it counts as lost."""


class TopicGone(PocketMQError):
    """A registered broker no longer has a topic."""

    default_cause = Cause.NO_ROUTE


@dataclass(slots=True, frozen=True)
class ReadPlan:
    """How a task reads; plain data, sent with the task."""

    namesrv: str
    group: str
    columns: tuple[str, ...]
    pull_bytes: int
    batch_rows: int
    wait_ms: int
    fail_on_data_loss: bool
    tags: str
    check_crcs: bool = True
    access: Access = NO_ACCESS


def read_ranges(
    plan: ReadPlan, ranges: Sequence[QueueRange], identities: Mapping[tuple[str, str], str]
) -> "Iterator[RecordBatch]":
    """Yield the messages of ``ranges`` in order.

    ``identities``: the identity of each planned topic, by (topic, broker); empty if unknown. Raises ``DataLost``,
    ``BrokerAway`` and refusals of brokers.
    """
    loop = asyncio.new_event_loop()
    instance = ClientInstance(plan.namesrv, **plan.access.arguments())
    reader = _Reader(plan, instance, identities, PullWire(instance, plan.group))
    try:
        loop.run_until_complete(instance.start())
        for each in ranges:
            yield from reader.read(loop, each)
    finally:
        loop.run_until_complete(reader.stop())
        loop.close()


@dataclass(slots=True)
class _Reader:
    _plan: ReadPlan
    _instance: ClientInstance
    _identities: Mapping[tuple[str, str], str]
    _wire: PullWire
    _ahead: asyncio.Task[PullResult | PocketMQError] | None = None
    _routed: set[str] = field(default_factory=set)
    _pull_bytes: int = PULL_BYTES_FIRST

    async def stop(self) -> None:
        await self._drop_ahead()
        await self._instance.stop()

    async def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def read(self, loop: asyncio.AbstractEventLoop, wanted: QueueRange) -> "Iterator[RecordBatch]":
        """Yield one range. Checks that the topic is the planned one before the first row and after the last."""
        plan = self._plan
        queue = MessageQueue(wanted.topic, wanted.broker, wanted.queue_id)
        subscription = parse_subscription(wanted.topic, plan.tags, 0) if plan.tags else None
        position = wanted.start
        waiting = Waiting(_where(wanted), plan.wait_ms)
        missing_since_s = 0.0
        checks_left = 2
        asked = subscription
        """What the broker selects by; None while the task looks for the damaged message at which a pull with a filter
        has ended."""
        while position < wanted.end or checks_left:
            if self._ahead is None and (checks_left == 2 or position >= wanted.end):
                error = loop.run_until_complete(self._check_identity(wanted))
                if error is None:
                    checks_left -= 1
                elif isinstance(error, TopicGone):
                    self._report_gone(wanted, position)
                    return
                else:
                    yield from self._wait(loop, waiting, wanted, error)
                continue
            if self._ahead is None:
                self._ahead = loop.create_task(self._pull(queue, position, wanted.end, asked))
            answer = loop.run_until_complete(self._ahead)
            self._ahead = None
            if isinstance(answer, PocketMQError):
                if isinstance(answer, TopicGone):
                    self._report_gone(wanted, position)
                    return
                if not _is_damage(answer):
                    yield from self._wait(loop, waiting, wanted, answer)
                elif asked is not None:
                    asked = None
                else:
                    damaged = Damaged(queue, position, True, str(answer))
                    self._report_damaged(loop, wanted, [damaged])
                    asked, position = subscription, position + 1
                continue
            waiting.succeeded(loop.time())
            result = answer.queues[0]
            start, position = position, result.next_offset
            if not len(answer.body):
                position = max(position, result.min_offset)
                if result.code == ResponseCode.PULL_NOT_FOUND or result.next_offset <= start:
                    # This may pass: another broker of the name answered, which lags behind or refers to its master.
                    missing_since_s = missing_since_s or loop.time()
                    if (loop.time() - missing_since_s) * 1000 < min(MISSING_WAIT_MS, plan.wait_ms):
                        position = start
                        yield empty_batch(plan.columns)
                        loop.run_until_complete(asyncio.sleep(RETRY_S))
                        continue
                    position = lost_end = position if position > start else wanted.end
                else:
                    lost_end = position if subscription is None else result.min_offset
                self._report_lost(loop, wanted, range(start, min(lost_end, wanted.end)), result)
            missing_since_s = 0.0
            if position < wanted.end:
                self._ahead = loop.create_task(self._pull(queue, position, wanted.end, asked))
                loop.run_until_complete(asyncio.sleep(0))  # the request leaves: the broker reads while rows are built
            if len(answer.body):
                resume_at = yield from self._batches(loop, answer, start, wanted, subscription)
                if resume_at is not None:
                    loop.run_until_complete(self._drop_ahead())
                    position = resume_at

    def _wait(
        self, loop: asyncio.AbstractEventLoop, waiting: Waiting, wanted: QueueRange, error: PocketMQError
    ) -> "Iterator[RecordBatch]":
        """Wait a moment for a broker that is away; raise ``BrokerAway`` after ``brokerWaitMs``."""
        if waiting.failed(loop.time(), error):
            raise BrokerAway(
                f"{wanted.broker} is away",
                why=str(error),
                hint=f"waited {self._plan.wait_ms} ms (option brokerWaitMs)",
            ) from error
        yield empty_batch(self._plan.columns)
        loop.run_until_complete(asyncio.sleep(RETRY_S))

    def _report_gone(self, wanted: QueueRange, position: int) -> None:
        """Raise ``DataLost`` for the rest of a range whose topic was deleted; without ``failOnDataLoss`` print it."""
        count = wanted.end - position
        if self._plan.fail_on_data_loss:
            raise DataLost(
                "the topic is gone",
                why=f"{_where(wanted)}: the broker is there, and has it no longer; {count} messages were to be read",
                hint="was it deleted? failOnDataLoss=false goes on without it",
            )
        if count:
            offsets = f"offsets {position} to {wanted.end - 1}"
            print_note(f"{_where(wanted)}: {count} messages lost: {offsets}, the topic is gone")

    def _report_lost(
        self, loop: asyncio.AbstractEventLoop, wanted: QueueRange, lost: Sequence[int], result: QueueResult
    ) -> None:
        """Raise ``DataLost`` for offsets (ascending, of one range) that a pull passed without their messages; without
        ``failOnDataLoss`` print how many.
        """
        if not len(lost):
            return
        loop.run_until_complete(self._check_identity(wanted))  # the better error, if the topic is another one now
        offsets = f"offsets {lost[0]} to {lost[-1]}"
        were_removed = lost[-1] < result.min_offset
        now = f"(the queue now begins at {result.min_offset} and ends before {result.max_offset})"
        if not self._plan.fail_on_data_loss:
            what = "were removed" if were_removed else f"are not there {now}"
            print_note(f"{_where(wanted)}: {len(lost)} messages lost: {offsets} {what}")
        elif were_removed:
            raise DataLost(
                "messages are gone",
                why=f"{_where(wanted)}: {offsets} were removed by retention before they were read",
                hint="keep messages longer than queries need, or set failOnDataLoss=false to continue behind the gap",
            )
        else:
            raise DataLost(
                "messages are missing",
                why=f"{_where(wanted)}: {len(lost)} messages at {offsets} are not there {now}",
                hint="was the broker's store replaced by an older one, or damaged? Or set failOnDataLoss=false",
            )

    async def _check_identity(self, wanted: QueueRange) -> PocketMQError | None:
        """Raise ``DataLost`` unless the topic is the planned one; return a retriable error, or ``TopicGone``."""
        planned = self._identities.get((wanted.topic, wanted.broker), "")
        if not planned:
            return None
        try:
            await self._route(wanted.topic)
            now = await topic_identity(self._instance, wanted.topic, wanted.broker)
        except PocketMQError as error:
            self._routed.discard(wanted.topic)
            if await is_deleted(self._instance, wanted.topic, wanted.broker, error):
                return TopicGone(wanted.topic)
            if not error.retriable:
                raise
            return error
        Positions(identities={(wanted.topic, wanted.broker): planned}).check_identities(
            {(wanted.topic, wanted.broker): now}
        )
        return None

    async def _route(self, topic: str) -> None:
        if topic not in self._routed:
            await self._instance.refresh(topic)
            self._routed.add(topic)

    async def _pull(
        self, queue: MessageQueue, position: int, end: int, subscription: Subscription | None
    ) -> PullResult | PocketMQError:
        """Return the answer to one pull, a retriable error, or one of a damaged message; others are raised."""
        try:
            await self._route(queue.topic)
            results = await self._wire.pull(
                queue.broker_name,
                [(queue, position)],
                subscription,
                max_messages=min(end - position, PULL_MESSAGES_MAX),
                max_bytes=min(self._pull_bytes, self._plan.pull_bytes),
            )
            if len(results[0].body) >= FULL * self._pull_bytes:
                self._pull_bytes = min(2 * self._pull_bytes, self._plan.pull_bytes)
            return results[0]
        except PocketMQError as error:
            if _is_damage(error):
                return error
            self._routed.discard(queue.topic)
            if await is_deleted(self._instance, queue.topic, queue.broker_name, error):
                return TopicGone(queue.topic)
            if not error.retriable:
                raise
            return error

    def _batches(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: PullResult,
        start: int,
        wanted: QueueRange,
        subscription: Subscription | None,
    ) -> "Generator[RecordBatch, None, int | None]":
        """Yield the rows of one answer to a pull from ``start``, at most ``batch_rows`` at a time, none behind the
        range; report the messages that it lacks, and those that are damaged. Return the offset to go on from if that is
        not the answer's.
        """
        import pyarrow
        from pyarrow import compute

        columns, checks = self._plan.columns, self._plan.check_crcs
        result = answer.queues[0]
        passed = range(start, min(result.next_offset, wanted.end))
        # a limit counts messages that match, and RocketMQ's pull has none: both may bring messages behind the range
        is_unbounded = subscription is not None or answer.sizes is None
        needs_offsets = is_unbounded or answer.count != len(passed)
        helpers = tuple(
            name
            for name, is_needed in (("tags", subscription is not None), ("queue_offset", needs_offsets))
            if is_needed and name not in columns
        )
        body, sizes, damaged, resume_at = answer.body, answer.sizes, set[int](), None
        try:
            batch = records_to_arrow(body, sizes, answer.broker_name, columns + helpers, check_crc=checks)
        except CorruptRecord:
            filtered = subscription is not None
            sorted_out = sort_out(answer, {result.queue: start}, is_filtered=filtered, check_crc=checks)
            damaged = self._report_damaged(loop, wanted, sorted_out.damaged)
            resume_at = sorted_out.resume_at
            if resume_at is not None:
                passed = range(start, min(resume_at, wanted.end))
            if not needs_offsets and "queue_offset" not in columns:
                helpers += ("queue_offset",)
            needs_offsets = True
            batch = records_to_arrow(sorted_out.body, sorted_out.sizes, answer.broker_name, columns + helpers)
        if subscription is not None:
            self._report_lost(loop, wanted, range(start, min(result.min_offset, wanted.end)), result)
            batch = batch.filter(  # the broker compared hashes, which may collide
                compute.is_in(
                    batch.column("tags"), value_set=pyarrow.array(sorted(subscription.tags), pyarrow.string())
                )
            )
        elif needs_offsets:
            lost = np.setdiff1d(np.arange(start, passed.stop), batch.column("queue_offset").to_numpy())
            if damaged:
                lost = np.setdiff1d(lost, list(damaged))
            self._report_lost(loop, wanted, lost.tolist(), result)
        if is_unbounded:
            batch = batch.filter(
                compute.less(batch.column("queue_offset"), pyarrow.scalar(wanted.end, pyarrow.int64()))
            )
        if helpers:
            batch = batch.select(list(columns))
        batch = concat_batches([batch], columns)
        for at in range(0, len(batch), self._plan.batch_rows):
            yield batch.slice(at, self._plan.batch_rows)
        return resume_at

    def _report_damaged(
        self, loop: asyncio.AbstractEventLoop, wanted: QueueRange, damaged: Sequence[Damaged]
    ) -> set[int]:
        """Raise ``DataLost`` for the first damaged message of the range; without ``failOnDataLoss`` print how many.
        Return their offsets.
        """
        of_range = [each for each in damaged if each.offset < wanted.end]
        if not of_range:
            return set()
        loop.run_until_complete(self._check_identity(wanted))
        first, last = of_range[0], of_range[-1]
        if self._plan.fail_on_data_loss:
            raise DataLost(
                "a message is damaged",
                why=f"{first}: {first.why}",
                hint="pocketmq log verify on the broker's store shows all damage; failOnDataLoss=false skips and "
                "counts damaged messages, checkCrcs=false reads bodies that differ from their CRC",
            )
        offsets = f"offsets {first.offset} to {last.offset}"
        print_note(f"{_where(wanted)}: {len(of_range)} messages lost: {offsets}, damaged; the first: {first.why}")
        return {each.offset for each in of_range}


def _is_damage(error: PocketMQError) -> bool:
    """Return whether a broker says that the message at which the pull begins is damaged."""
    return isinstance(error, BrokerAnswerError) and error.cause is Cause.CORRUPT


def _where(wanted: QueueRange) -> str:
    return f"{wanted.topic} queue {wanted.queue_id} of {wanted.broker}"

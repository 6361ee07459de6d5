"""Pulls and offsets as requests to brokers, native or as RocketMQ's clients send them.

Lives here: ``PullWire``: pull of several queues of one broker, bounds of a queue, offset by time, a group's stored
offsets.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, check_answer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.refusal_facts import refusal_facts
from pocketmq.client.connection.route import MASTER_ID
from pocketmq.client.errors import ClientError, answer_error
from pocketmq.client.pull.broker_connections import ReadConnections
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.client.pull.short_pull import Following, PullFrame, ShortPull, Taken
from pocketmq.client.pull.subscription import ALL, Subscription
from pocketmq.common.errors import Cause
from pocketmq.common.sql_filter import TAG_TYPE
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.protocol.offset import (
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.protocol.pull import NativePullRequestHeader, PullMessageRequestHeader

if TYPE_CHECKING:
    from numpy.typing import NDArray

PULL_BYTES_DEFAULT = 1 << 20
PULL_BYTES_MAX = 4 << 20
PULL_MESSAGES_MAX = 1 << 20
PULL_BATCH_SIZE = 32
"""Messages asked of a RocketMQ broker at once; it gives no more (docs/rocketmq.md, "Reading a queue")."""
ANSWER_EXTRA_MS = 5_000
"""How much longer than the broker may hold a pull the client waits."""
NO_OFFSET = -1
HOLD_LATE_MS = 5_000
"""How much later than requested a RocketMQ broker may end an empty hold: it checks every 5 s
(PullRequestHoldService.java)."""

_PULL_SUSPEND = 0x2  # PullSysFlag.java
_PULL_SUBSCRIPTION = 0x4
_PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class PullAnswerIllegal(ClientError):
    """A pull answer whose parts disagree."""

    default_cause = Cause.CORRUPT


@dataclass(slots=True, frozen=True)
class QueueResult:
    """The result of one queue: a response code and the next offset. Offsets count messages."""

    queue: MessageQueue
    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    count: int


@dataclass(slots=True, frozen=True)
class PullResult:
    """One answer: the queues' results, and the records of all in that order. ``sizes`` None: follow the total sizes.
    ``suggested_id``: which of the name's brokers to pull from next."""

    broker_name: str
    queues: list[QueueResult]
    body: memoryview
    sizes: "NDArray[Any] | None"
    suggested_id: int = MASTER_ID

    @property
    def count(self) -> int:
        """How many records, as far as known: -1 for RocketMQ's pull before the records are read."""
        return -1 if self.sizes is None and len(self.body) else 0 if self.sizes is None else len(self.sizes)


class PullWire:
    """The requests of one consumer group."""

    def __init__(self, instance: ClientInstance, consumer_group: str) -> None:
        self._instance = instance
        self._group = consumer_group
        self.connections = ReadConnections(instance)
        self._suggested: dict[MessageQueue, int] = {}  # queues that are read from another broker than the master
        self._first_commits: dict[tuple[str, str], asyncio.Lock | None] = {}  # (topic, broker); None: it is done

    @property
    def _timeout_ms(self) -> int:
        return self._instance.options.api_timeout_ms

    async def pull(
        self,
        broker_name: str,
        positions: Sequence[tuple[MessageQueue, int]],
        subscription: Subscription | None,
        *,
        max_messages: int,
        max_bytes: int = PULL_BYTES_DEFAULT,
        suspend_ms: int = 0,
    ) -> list[PullResult]:
        """Pull from (queue, offset) pairs of one broker; the broker may hold an empty answer for ``suspend_ms``.

        Each queue is pulled from the broker that its last answer suggested, usually the master, or from another one of
        the name while that does not answer. Raises the errors of the connection, or ``BrokerAnswerError`` for any code
        that is no result of a pull.
        """
        by_id: dict[int, list[tuple[MessageQueue, int]]] = {}
        for position in positions:
            by_id.setdefault(self._suggested.get(position[0], MASTER_ID), []).append(position)
        if len(by_id) > 1:
            suspend_ms = 0  # a hold at one broker would delay the messages of the others

        async def pull_from(wanted_id: int) -> list[PullResult]:
            async def ask(broker_id: int, connection: BrokerConnection) -> list[PullResult]:
                results = await self._pull_at(
                    connection, by_id[wanted_id], subscription, max_messages, max_bytes, suspend_ms
                )
                return results if broker_id == MASTER_ID else [_not_back(result, positions) for result in results]

            results = await self.connections.ask(broker_name, ask, broker_id=wanted_id)
            self._note_suggestions(results)
            return results

        if len(by_id) == 1:
            return await pull_from(next(iter(by_id)))
        parts = await asyncio.gather(*map(pull_from, by_id))
        return [result for part in parts for result in part]

    async def pull_short(self, queue: MessageQueue, frame: PullFrame, following: Following, take: Taken) -> None:
        """Pull one queue from its master again and again, as ``ShortPull`` does, until ``pull`` has to. Returns at once
        where that is not possible. Raises the errors of the connection, and ``CorruptRecord``.
        """
        connection = self._instance.open_connection(queue.broker_name)
        if connection is None or not connection.is_native or connection.channel.serialize_type != MSGPACK:
            return
        if self._suggested and queue in self._suggested:
            return
        timeout_ms = self._timeout_ms + frame.suspend_ms + ANSWER_EXTRA_MS

        async def ask(broker_id: int, connection: BrokerConnection) -> None:
            if broker_id == MASTER_ID and connection.is_native and connection.channel.serialize_type == MSGPACK:
                await ShortPull(connection, frame, self._instance.clock.monotonic_ns, timeout_ms, following, take).run()

        await self.connections.ask(queue.broker_name, ask)

    def frame(self, queue: MessageQueue, subscription: Subscription | None, suspend_ms: int) -> PullFrame:
        """Return the frame of the pulls of one queue, for ``pull_short``."""
        expression, kind = (ALL, TAG_TYPE) if subscription is None else _filter_of(subscription)
        return PullFrame(self._group, queue, expression, kind, PULL_BYTES_DEFAULT, suspend_ms)

    def _note_suggestions(self, results: Sequence[PullResult]) -> None:
        for result in results:
            for queue in result.queues:
                if result.suggested_id != MASTER_ID:
                    self._suggested[queue.queue] = result.suggested_id
                elif self._suggested:
                    self._suggested.pop(queue.queue, None)

    async def _pull_at(
        self,
        connection: BrokerConnection,
        positions: Sequence[tuple[MessageQueue, int]],
        subscription: Subscription | None,
        max_messages: int,
        max_bytes: int,
        suspend_ms: int,
    ) -> list[PullResult]:
        if connection.announcement is not None and connection.announcement.native:
            return [await self._pull_native(connection, positions, subscription, max_messages, max_bytes, suspend_ms)]
        suspend_ms = max(suspend_ms - HOLD_LATE_MS, 0) if len(positions) == 1 else 0
        pulls = [
            self._pull_rocketmq(connection, queue, offset, subscription, min(max_messages, PULL_BATCH_SIZE), suspend_ms)
            for queue, offset in positions
        ]
        return list(await asyncio.gather(*pulls))

    async def _pull_native(
        self,
        connection: BrokerConnection,
        positions: Sequence[tuple[MessageQueue, int]],
        subscription: Subscription | None,
        max_messages: int,
        max_bytes: int,
        suspend_ms: int,
    ) -> PullResult:
        expression, kind = (ALL, TAG_TYPE) if subscription is None else _filter_of(subscription)
        header = NativePullRequestHeader(
            consumer_group=self._group,
            queues=[(queue.topic, queue.queue_id, offset) for queue, offset in positions],
            max_bytes=min(max_bytes, PULL_BYTES_MAX),
            max_messages=min(max_messages, PULL_MESSAGES_MAX),
            suspend_timeout_millis=suspend_ms,
            expression=expression,
            expression_type=kind,
        )
        response = await connection.channel.request(
            RequestCode.NATIVE_PULL, header, timeout_ms=self._timeout_ms + suspend_ms + ANSWER_EXTRA_MS
        )
        answer: Any = _checked(response, "pull refused", connection).header
        if answer is None or len(answer.results) != len(positions):
            raise _illegal(connection, f"no result for each of {len(positions)} queues")
        results: list[QueueResult] = []
        for (queue, _), (code, next_offset, min_offset, max_offset, count) in zip(
            positions, answer.results, strict=True
        ):
            if code not in _PULL_CODES:
                raise answer_error(
                    f"pull of {queue} refused", answer_code=code, remark=response.remark, address=connection.address
                )
            results.append(QueueResult(queue, code, next_offset, min_offset, max_offset, count))
        total = sum(result.count for result in results)
        body = memoryview(response.body)
        if total < 0 or 4 * total > len(body):
            raise _illegal(connection, f"{total} records announced in {len(body)} bytes")
        import numpy as np

        sizes = np.frombuffer(body[: 4 * total], ">u4").astype(np.int64)
        if int(sizes.sum()) != len(body) - 4 * total:
            raise _illegal(connection, f"sizes add up to {int(sizes.sum())}, {len(body) - 4 * total} bytes follow")
        return PullResult(connection.broker_name, results, body[4 * total :], sizes, answer.suggest_which_broker_id)

    async def _pull_rocketmq(
        self,
        connection: BrokerConnection,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription | None,
        max_messages: int,
        suspend_ms: int,
    ) -> PullResult:
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=_PULL_SUBSCRIPTION | (_PULL_SUSPEND if suspend_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=suspend_ms,
            sub_version=subscription.version if subscription is not None else 0,
            subscription=subscription.expression if subscription is not None else ALL,
            expression_type=subscription.expression_type if subscription is not None else TAG_TYPE,
            bname=queue.broker_name,
        )
        response = await connection.channel.request(
            RequestCode.PULL_MESSAGE, header, timeout_ms=self._timeout_ms + suspend_ms + ANSWER_EXTRA_MS
        )
        answer: Any = _checked(response, f"pull of {queue} refused", connection).header
        if answer is None:
            raise _illegal(connection, "no header")
        found = response.code == ResponseCode.SUCCESS
        result = QueueResult(
            queue, response.code, answer.next_begin_offset, answer.min_offset, answer.max_offset, -1 if found else 0
        )
        body = memoryview(response.body if found else b"")
        return PullResult(connection.broker_name, [result], body, None, answer.suggest_which_broker_id)

    # -- bounds and times --------------------------------------------------------------------------------------

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that the queue still has."""
        return await self._bound(RequestCode.GET_MIN_OFFSET, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get."""
        return await self._bound(RequestCode.GET_MAX_OFFSET, queue)

    async def _bound(self, code: int, queue: MessageQueue) -> int:
        header = TopicQueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(code, header, queue)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored nearest to a time (ms since 1970)."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
        )
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, queue)

    async def _offset(self, code: int, header: Any, queue: MessageQueue) -> int:
        async def ask(broker_id: int, connection: BrokerConnection) -> int:
            response = await connection.channel.request(code, header, timeout_ms=self._timeout_ms)
            answer: Any = check_answer(response, f"offset of {queue} refused", connection.address).header
            return int(answer.offset)

        return await self.connections.ask(queue.broker_name, ask)

    # -- stored offsets ----------------------------------------------------------------------------------------

    async def stored_offset(self, queue: MessageQueue, *, zero_if_young: bool = True) -> int:
        """Return the group's offset as its broker knows it, or ``NO_OFFSET``.

        ``zero_if_young``: RocketMQ's rule (ConsumerManageProcessor), by which a new group gets 0 while the queue still
        has its first message in memory. RocketMQ 4.9 always follows it.
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            bname=queue.broker_name,
            set_zero_if_not_found=None if zero_if_young else False,
        )

        async def ask(broker_id: int, connection: BrokerConnection) -> int:
            code = RequestCode.QUERY_CONSUMER_OFFSET
            response = await connection.channel.request(code, header, timeout_ms=self._timeout_ms)
            check_answer(response, f"offset of {self._group} refused", connection.address, ResponseCode.QUERY_NOT_FOUND)
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                return NO_OFFSET
            answer: Any = response.header
            return int(answer.offset)

        return await self.connections.ask(queue.broker_name, ask)

    async def store_offset(self, queue: MessageQueue, offset: int, *, fencing_token: int = 0) -> int:
        """Store the group's offset at the queue's broker, wait for the answer, and return the id of the broker that has
        it: the master, or a slave while the master is unreachable, which passes it on when the master returns.

        ``fencing_token``: of the lock under which an ordered queue was consumed; 0: none.

        The first commit for a topic at a broker goes alone; the others wait for its answer. RocketMQ acknowledges
        several concurrent first commits but keeps one: each finds no offsets of the group, and stores a map of its own
        (ConsumerOffsetManager.commitOffset, 4.9 and 5.3).
        """
        place = queue.topic, queue.broker_name
        first = self._first_commits.setdefault(place, asyncio.Lock())
        if first is not None:
            async with first:
                if self._first_commits[place] is first:
                    try:
                        broker_id = await self._store_offset(queue, offset, fencing_token)
                    except BaseException:  # let waiting commits go on together: they need not fail one after another
                        self._first_commits[place] = asyncio.Lock()
                        raise
                    self._first_commits[place] = None
                    return broker_id
        return await self._store_offset(queue, offset, fencing_token)

    async def _store_offset(self, queue: MessageQueue, offset: int, fencing_token: int) -> int:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
            fencing_token=fencing_token or None,
        )

        async def ask(broker_id: int, connection: BrokerConnection) -> int:
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            response = await connection.channel.request(code, header, timeout_ms=self._timeout_ms)
            check_answer(response, f"commit of {queue} refused", connection.address)
            return broker_id

        return await self.connections.ask(queue.broker_name, ask)

    async def start_offset(
        self, queue: MessageQueue, where: ConsumeFromWhere, timestamp_ms: int, *, stored: int | None = None
    ) -> int:
        """Return the group's start in a queue: its stored offset, else by ``where`` (RocketMQ RebalancePushImpl)."""
        known = await self.stored_offset(queue) if stored is None else stored
        if known >= 0:
            return known
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return await self.min_offset(queue)
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return await self.offset_by_time(queue, timestamp_ms)
        return await self.max_offset(queue)


def _not_back(result: PullResult, positions: Sequence[tuple[MessageQueue, int]]) -> PullResult:
    """Return a slave's answer without moves to lower offsets: it only lags behind the master."""
    asked = dict(positions)
    queues = [
        QueueResult(each.queue, ResponseCode.PULL_NOT_FOUND, asked[each.queue], each.min_offset, each.max_offset, 0)
        if each.code == ResponseCode.PULL_OFFSET_MOVED and each.next_offset < asked[each.queue]
        else each
        for each in result.queues
    ]
    return PullResult(result.broker_name, queues, result.body, result.sizes, result.suggested_id)


def _filter_of(subscription: Subscription) -> tuple[str, str]:
    return subscription.expression, subscription.expression_type


def _checked(response: Response, what: str, connection: BrokerConnection) -> Response:
    """Return a pull's response; raise an error unless its code is a result of a pull."""
    if response.code not in _PULL_CODES:
        facts = refusal_facts(response.extra)
        raise answer_error(
            what,
            answer_code=response.code,
            remark=response.remark,
            address=connection.address,
            cause=facts.cause,
            retry_after_ms=facts.retry_after_ms,
        )
    return response


def _illegal(connection: BrokerConnection, why: str) -> PullAnswerIllegal:
    return PullAnswerIllegal(
        "pull answer refused", why=f"{connection.address}: {why}", hint="check the broker's version"
    )

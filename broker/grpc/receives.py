"""ReceiveMessage: messages for a while, each to be acknowledged by itself.

A call is one pop of RocketMQ's, with its long polling. The answer is a stream: the status, the messages, when they were
handed out. What cannot be sent any more becomes visible again in a second.

Source: RocketMQ 5.3.3 ``ReceiveMessageActivity`` and the defaults of its ``ProxyConfig``.

Lives here: ``Receives``.
"""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.grpc.callers import Caller, Callers
from pocketmq.broker.grpc.messages import message_of
from pocketmq.broker.grpc.names import group_of, topic_of
from pocketmq.broker.grpc.renewal import GONE_MS, Renewal
from pocketmq.broker.grpc.settlement import Settlement
from pocketmq.broker.grpc.statuses import OK, CallRefused, status_of_answer, status_of_error
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.receipt_handle import NORMAL, ReceiptHandle, parse_order_counts, parse_start_offsets
from pocketmq.common.record import POP_CK
from pocketmq.common.record_codec import received_message, record_size_at
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection_owner import ConnectionOwner
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.codes import Code, FilterType
from pocketmq.remoting.grpc.inner_connection import InnerConnection
from pocketmq.remoting.grpc.messages import (
    FilterExpression,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    Status,
    Timestamp,
)
from pocketmq.remoting.protocol.pop import PopMessageRequestHeader

BATCH_MAX: Final = 32
POLLING_MS_MIN: Final = 5_000
POLLING_MS_MAX: Final = 20_000
ANSWER_MS: Final = 300
"""Kept of the deadline for the answer itself."""
INVISIBLE_MS_MIN: Final = 10_000
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
RENEWED_MS: Final = 60_000
"""Time of a message with automatic renewal, until it is renewed."""
REQUEST_TIMEOUT_MS: Final = 3_000
POLLING_TIME_SINCE: Final = (5, 0, 3)
"""Clients before this version do not know ILLEGAL_POLLING_TIME."""
EMPTY: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.NO_MESSAGE)
ANY_QUEUE: Final = -1
"""As RocketMQ's proxy, which takes a broker from the queue that a client names, and any queue of it: Node's simple
consumer (1.0.8) names queue 0 alone. Only in order the queue counts."""
LAST_OFFSET: Final = 1


@dataclass(slots=True, eq=False)
class Receives:
    """Serves one method."""

    config: BrokerConfig
    owner: ConnectionOwner
    callers: Callers
    settlement: Settlement
    renewal: Renewal
    clock: Clock

    async def receive(self, call: Call, request: ReceiveMessageRequest) -> None:
        """Hand out messages."""
        try:
            caller = self.callers.of(call, RequestCode.POP_MESSAGE)
            header, named = self._header(caller, request)
            answer = await self._pop(caller, header)
        except CallRefused as refused:
            await call.send(ReceiveMessageResponse(status=refused.status))
            return
        except PocketMQError as error:
            await call.send(ReceiveMessageResponse(status=status_of_error(error)))
            return
        if answer.code != ResponseCode.SUCCESS:
            await call.send(ReceiveMessageResponse(status=_status(answer)))
            return
        await self._hand_out(caller, header, named, answer, request.auto_renew)

    # ---- asking ----------------------------------------------------------------------------------------------------

    def _header(
        self, caller: Caller, request: ReceiveMessageRequest
    ) -> tuple[PopMessageRequestHeader, Resource | None]:
        queue = request.message_queue
        named = None if queue is None else queue.topic
        topic, group = topic_of(named), group_of(request.group)
        polling_ms = self._polling_ms(caller, request)
        invisible_ms = RENEWED_MS
        if not request.auto_renew:
            invisible_ms = 0 if request.invisible_duration is None else request.invisible_duration.ms
            if not INVISIBLE_MS_MIN <= invisible_ms <= INVISIBLE_MS_MAX:
                raise CallRefused(
                    Code.ILLEGAL_INVISIBLE_TIME,
                    f"an invisible duration of {invisible_ms} ms: from {INVISIBLE_MS_MIN} to {INVISIBLE_MS_MAX}",
                )
        kind, expression = _filter(request.filter_expression)
        return (
            PopMessageRequestHeader(
                consumer_group=group,
                topic=topic,
                queue_id=queue.id if queue is not None and caller.client.is_fifo else ANY_QUEUE,
                max_msg_nums=max(1, min(request.batch_size or BATCH_MAX, BATCH_MAX)),
                invisible_time=invisible_ms,
                poll_time=polling_ms,
                born_time=0,
                init_mode=LAST_OFFSET,
                exp_type=kind,
                exp=expression,
                order=caller.client.is_fifo,
                attempt_id=request.attempt_id or "",
            ),
            named,
        )

    def _polling_ms(self, caller: Caller, request: ReceiveMessageRequest) -> int:
        """Return how long to wait for a message. Raise ``CallRefused`` where the deadline leaves no time for it."""
        call = caller.call
        left_ms = POLLING_MS_MAX + ANSWER_MS
        if call.deadline_ns:
            left_ms = (call.deadline_ns - self.clock.monotonic_ns()) // 1_000_000
        if request.long_polling_timeout is not None:
            polling_ms = request.long_polling_timeout.ms
        else:
            settings = caller.client.settings
            timeout = None if settings is None else settings.request_timeout
            polling_ms = left_ms - (REQUEST_TIMEOUT_MS if timeout is None else timeout.ms) // 2
        polling_ms = max(POLLING_MS_MIN, min(polling_ms, POLLING_MS_MAX))
        if polling_ms > left_ms - ANSWER_MS:
            if left_ms < POLLING_MS_MIN:
                knows = _version(caller.version) >= POLLING_TIME_SINCE
                raise CallRefused(
                    Code.ILLEGAL_POLLING_TIME if knows else Code.BAD_REQUEST,
                    "The deadline time remaining is not enough for polling, please check network condition",
                )
            polling_ms = left_ms - ANSWER_MS
        return polling_ms

    async def _pop(self, caller: Caller, header: PopMessageRequestHeader) -> Response:
        """Ask, on a connection of this call alone: its end ends the wait."""
        connection = InnerConnection(self.owner)
        client = caller.client.connection
        connection.stands_for(client)
        connection.version, connection.language = client.version, client.language
        connection.quota = client.quota
        try:
            return await connection.ask(RequestCode.POP_MESSAGE, header, session=caller.session)
        finally:
            connection.close("its call is over")

    # ---- answering -------------------------------------------------------------------------------------------------

    async def _hand_out(
        self,
        caller: Caller,
        header: PopMessageRequestHeader,
        named: Resource | None,
        answer: Response,
        auto_renew: bool,
    ) -> None:
        """Send the messages of an answer."""
        call, group, topic = caller.call, header.consumer_group, header.topic
        popped = self._popped(header, answer)
        if auto_renew:
            for message, handle, _ in popped:
                self.renewal.add(caller, group, topic, _id_of(message), handle)
        sent = 0
        try:
            await call.send(ReceiveMessageResponse(status=OK))
            for message, handle, attempt in popped:
                handed = message_of(
                    message,
                    named,
                    topic=topic,
                    handle=str(handle),
                    attempt=attempt,
                    invisible_ms=0 if auto_renew else header.invisible_time,
                )
                await call.send(ReceiveMessageResponse(message=handed))
                sent += 1
            pop: Any = answer.header
            await call.send(ReceiveMessageResponse(delivery_timestamp=Timestamp.of_ms(pop.pop_time)))
        finally:
            if sent < len(popped):  # the client has gone in the middle
                self._take_back(caller, group, topic, popped[sent:])

    def _take_back(
        self, caller: Caller, group: str, topic: str, popped: "list[tuple[ReceivedMessage, ReceiptHandle, int]]"
    ) -> None:
        for message, handle, _ in popped:
            self.renewal.done(caller.client, group, _id_of(message), str(handle))
            self.settlement.change_soon(caller, group, topic, handle, GONE_MS)

    def _popped(
        self, header: PopMessageRequestHeader, answer: Response
    ) -> "list[tuple[ReceivedMessage, ReceiptHandle, int]]":
        """Return the messages of an answer, each with its handle and the number of its delivery."""
        pop: Any = answer.header
        messages: list[ReceivedMessage] = []
        at, body = 0, bytes(answer.body)
        while at < len(body):
            size = record_size_at(body, at)
            messages.append(received_message(body[at : at + size], self.config.broker_name))
            at += size
        starts, counts = parse_start_offsets(pop.start_offset_info), parse_order_counts(pop.order_count_info)
        popped = []
        for message in messages:
            queue_id, offset = message.queue_id, message.queue_offset
            given = message.properties.get(POP_CK)  # of a retried message, whose record is in another topic
            if given is not None:
                handle = ReceiptHandle.parse(given)
            else:
                start = starts.get((NORMAL, queue_id), offset)
                times = pop.pop_time, pop.invisible_time, pop.revive_qid
                handle = ReceiptHandle(start, *times, NORMAL, self.config.broker_name, queue_id, offset)
            handle = handle._replace(commit_log_offset=message.physical_offset)
            tries = counts.get((queue_id, offset), message.reconsume_times)
            popped.append((message, handle, tries + 1))
        return popped


def _id_of(message: ReceivedMessage) -> str:
    """Return the id by which clients know a message."""
    return message.msg_id or message.offset_msg_id


def _filter(expression: FilterExpression | None) -> tuple[str, str]:
    if expression is None or (not expression.expression and expression.type != FilterType.SQL):
        return "TAG", "*"
    return ("SQL92" if expression.type == FilterType.SQL else "TAG"), expression.expression


def _status(answer: Response) -> Status:
    """Return the status of a pop without messages."""
    if answer.code in EMPTY:
        return Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")
    if answer.code == ResponseCode.POLLING_FULL:
        return Status(code=Code.TOO_MANY_REQUESTS, message="polling full")
    if answer.code in (ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SUBSCRIPTION_NOT_EXIST):
        return Status(code=Code.ILLEGAL_FILTER_EXPRESSION, message=answer.remark)
    return status_of_answer(answer)


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version; what is no number counts as 0."""
    parts = text.split("-", 1)[0].split(".")[:3]
    return tuple(int(part) if part.isascii() and part.isdecimal() and len(part) < 6 else 0 for part in parts)

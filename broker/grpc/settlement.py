"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of a message that was received.

Source: RocketMQ 5.3.3 ``AckMessageActivity``, ``ChangeInvisibleDurationActivity``, ``ForwardMessageToDLQActivity``.

Lives here: ``Settlement``.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.auth.session import Session
from pocketmq.broker.grpc.callers import Caller, Callers
from pocketmq.broker.grpc.clients import GrpcClient
from pocketmq.broker.grpc.names import group_of, topic_of
from pocketmq.broker.grpc.renewal import Held, Renewal
from pocketmq.broker.grpc.sends import together
from pocketmq.broker.grpc.statuses import OK, CallRefused, status_of_answer, status_of_error
from pocketmq.common.errors import PocketMQError
from pocketmq.common.receipt_handle import HandleIllegal, ReceiptHandle
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.codes import Code
from pocketmq.remoting.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    Status,
)
from pocketmq.remoting.protocol.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from pocketmq.remoting.protocol.send import ConsumerSendMsgBackRequestHeader

ENTRIES_MAX: Final = 1_000
"""Acknowledgements in one call."""
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
DEAD: Final = -1
"""The delay level that stands for the dead-letter queue."""
EXPIRED: Final = Status(code=Code.INVALID_RECEIPT_HANDLE, message="receipt handle is expired")
_INVALID: Final = frozenset({ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL})


@dataclass(slots=True, eq=False)
class Settlement:
    """Serves three methods."""

    callers: Callers
    renewal: Renewal = field(init=False)
    _soon: set[asyncio.Task[Response]] = field(default_factory=set)

    # ---- acknowledgements ------------------------------------------------------------------------------------------

    async def acknowledge(self, call: Call, request: AckMessageRequest) -> AckMessageResponse:
        """Finish messages."""
        try:
            caller = self.callers.of(call, RequestCode.ACK_MESSAGE)
            topic, group = topic_of(request.topic), group_of(request.group)
            if len(request.entries) > ENTRIES_MAX:
                raise CallRefused(Code.BAD_REQUEST, f"{len(request.entries)} entries: the limit is {ENTRIES_MAX}")
        except CallRefused as refused:
            return AckMessageResponse(status=refused.status)
        except PocketMQError as error:
            return AckMessageResponse(status=status_of_error(error))
        statuses = await asyncio.gather(*(self._ack(caller, group, topic, entry) for entry in request.entries))
        entries = [
            AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            for entry, status in zip(request.entries, statuses, strict=True)
        ]
        return AckMessageResponse(status=together(list(statuses)), entries=entries)

    async def _ack(self, caller: Caller, group: str, topic: str, entry: AckMessageEntry) -> Status:
        client, given = caller.client, entry.receipt_handle
        try:
            handle = self.renewal.newest(client, group, entry.message_id, given)
            answer = await caller.ask(RequestCode.ACK_MESSAGE, _ack_header(group, topic, handle))
        except PocketMQError as error:
            return _status_of_error(error)
        if answer.code == ResponseCode.SUCCESS:
            self.renewal.done(client, group, entry.message_id, given)
        return _status_of(answer)

    # ---- another time ----------------------------------------------------------------------------------------------

    async def change(self, call: Call, request: ChangeInvisibleDurationRequest) -> ChangeInvisibleDurationResponse:
        """Give a message more time, or less; return the handle that counts from now on."""
        try:
            caller = self.callers.of(call, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
            topic, group = topic_of(request.topic), group_of(request.group)
            invisible_ms = 0 if request.invisible_duration is None else request.invisible_duration.ms
            if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
                raise CallRefused(
                    Code.ILLEGAL_INVISIBLE_TIME,
                    f"an invisible duration of {invisible_ms} ms: from 0 to {INVISIBLE_MS_MAX}",
                )
            handle = self.renewal.newest(caller.client, group, request.message_id, request.receipt_handle)
            answer = await self._change(caller.client, caller.session, group, topic, handle, invisible_ms)
        except CallRefused as refused:
            return ChangeInvisibleDurationResponse(status=refused.status)
        except PocketMQError as error:
            return ChangeInvisibleDurationResponse(status=_status_of_error(error))
        renewed = _renewed(handle, answer)
        if renewed is None:
            return ChangeInvisibleDurationResponse(status=_status_of(answer))
        self.renewal.done(caller.client, group, request.message_id, request.receipt_handle)
        return ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(renewed))

    async def renew(self, held: Held, invisible_ms: int) -> ReceiptHandle | None:
        """See ``renewal.Change``."""
        try:
            answer = await self._change(held.client, held.session, held.group, held.topic, held.handle, invisible_ms)
        except PocketMQError:
            return None
        return _renewed(held.handle, answer)

    def change_soon(self, caller: Caller, group: str, topic: str, handle: ReceiptHandle, invisible_ms: int) -> None:
        """Change the time of a message in a task of its own: its call is over."""
        change = self._change(caller.client, caller.session, group, topic, handle, invisible_ms)
        task = asyncio.get_running_loop().create_task(change)
        self._soon.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Response]) -> None:
        self._soon.discard(task)
        if not task.cancelled():
            task.exception()  # it is looked at: the message becomes visible in its time anyway

    @staticmethod
    async def _change(
        client: GrpcClient, session: Session | None, group: str, topic: str, handle: ReceiptHandle, invisible_ms: int
    ) -> Response:
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=handle.real_topic(topic, group),
            queue_id=handle.queue_id,
            extra_info=str(handle),
            offset=handle.queue_offset,
            invisible_time=invisible_ms,
        )
        return await client.connection.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, session=session)

    # ---- dead letters ----------------------------------------------------------------------------------------------

    async def give_up(
        self, call: Call, request: ForwardMessageToDeadLetterQueueRequest
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter: a client of an ordered group has tried it often enough."""
        try:
            caller = self.callers.of(call, RequestCode.CONSUMER_SEND_MSG_BACK)
            topic, group = topic_of(request.topic), group_of(request.group)
            handle = self.renewal.newest(caller.client, group, request.message_id, request.receipt_handle)
            if handle.commit_log_offset < 0:
                raise HandleIllegal("receipt handle refused", why="it does not say where its message is")
            header = ConsumerSendMsgBackRequestHeader(
                offset=handle.commit_log_offset,
                group=group,
                delay_level=DEAD,
                origin_msg_id=request.message_id,
                origin_topic=topic,
                max_reconsume_times=0,
            )
            answer = await caller.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            if answer.code == ResponseCode.SUCCESS:
                answer = await caller.ask(RequestCode.ACK_MESSAGE, _ack_header(group, topic, handle))
                self.renewal.done(caller.client, group, request.message_id, request.receipt_handle)
        except CallRefused as refused:
            return ForwardMessageToDeadLetterQueueResponse(status=refused.status)
        except PocketMQError as error:
            return ForwardMessageToDeadLetterQueueResponse(status=_status_of_error(error))
        return ForwardMessageToDeadLetterQueueResponse(status=_status_of(answer))


def _ack_header(group: str, topic: str, handle: ReceiptHandle) -> AckMessageRequestHeader:
    return AckMessageRequestHeader(
        consumer_group=group,
        topic=handle.real_topic(topic, group),
        queue_id=handle.queue_id,
        extra_info=str(handle),
        offset=handle.queue_offset,
    )


def _renewed(handle: ReceiptHandle, answer: Response) -> ReceiptHandle | None:
    changed: Any = answer.header
    if answer.code != ResponseCode.SUCCESS or changed is None:
        return None
    return handle.renewed(changed.pop_time, changed.invisible_time, changed.revive_qid)


def _status_of(answer: Response) -> Status:
    if answer.code == ResponseCode.NO_MESSAGE:
        return EXPIRED
    if answer.code in _INVALID:
        return Status(code=Code.INVALID_RECEIPT_HANDLE, message=answer.remark)
    return status_of_answer(answer)


def _status_of_error(error: PocketMQError) -> Status:
    if isinstance(error, HandleIllegal):
        return Status(code=Code.INVALID_RECEIPT_HANDLE, message=str(error))
    return status_of_error(error)

"""SendMessage and RecallMessage.

Each message is one send of RocketMQ's, so it meets the same queue, limits, refusals and figures as any other; those of
one call are queued in one turn of the loop, in order, and stored together.

Lives here: ``Sends``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.grpc.callers import Caller, Callers
from pocketmq.broker.grpc.names import topic_of
from pocketmq.broker.grpc.open_transactions import OpenTransactions
from pocketmq.broker.grpc.properties import Sent, queue_of, sent_of
from pocketmq.broker.grpc.statuses import OK, CallRefused, status_of_answer, status_of_error
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.topics import AUTO_CREATE_TOPIC, TopicConfig
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.codes import Code
from pocketmq.remoting.grpc.messages import (
    MessageOf,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
    Status,
)
from pocketmq.remoting.protocol.send import RecallMessageRequestHeader, SendMessageV2RequestHeader
from pocketmq.store.config import StoreConfig

MESSAGES_MAX: Final = 1_000
"""Messages of one call."""
QUEUES: Final = 4
"""Queues of a topic that a send creates, as RocketMQ's clients ask for."""
STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
"""Answers to a send with the place of the message."""
MIXED: Final = "MIXED"


@dataclass(slots=True, eq=False)
class Sends:
    """Serves two methods."""

    config: BrokerConfig
    store_config: StoreConfig
    callers: Callers
    topics: TopicTable
    transactions: OpenTransactions
    clock: Clock
    type_of: Callable[[TopicConfig], str]
    """Returns the type of messages that a topic takes."""

    async def send(self, call: Call, request: SendMessageRequest) -> SendMessageResponse:
        """Store messages."""
        try:
            caller = self.callers.of(call, RequestCode.SEND_MESSAGE_V2)
            topic, sent = self._check(request.messages)
        except CallRefused as refused:
            return SendMessageResponse(status=refused.status)
        except PocketMQError as error:
            return SendMessageResponse(status=status_of_error(error))
        if len(sent) == 1:
            entries = [await self._store(caller, topic, sent[0])]
        else:
            entries = list(await asyncio.gather(*(self._store(caller, topic, each) for each in sent)))
        return SendMessageResponse(status=together([entry.status for entry in entries]), entries=entries)

    def _check(self, messages: list[MessageOf]) -> tuple[str, list[Sent]]:
        if not messages:
            raise CallRefused(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > MESSAGES_MAX:
            raise CallRefused(Code.BAD_REQUEST, f"{len(messages)} messages in one call: the limit is {MESSAGES_MAX}")
        topic = topic_of(messages[0].topic)
        config = self.topics.get(topic)
        kind = MIXED if config is None else self.type_of(config)
        sizes = self.store_config.max_message_size
        delay_ms_max = self.store_config.timer_max_delay_sec * 1000
        now_ms = self.clock.now_ms()
        sent: list[Sent] = []
        for message in messages:
            if message.topic != messages[0].topic:
                raise CallRefused(Code.MESSAGE_CORRUPTED, "the messages of one call are of different topics")
            sent.append(sent_of(message, topic, kind, sizes, delay_ms_max, now_ms))
        if len(sent) > 1 and any(each.is_half for each in sent):
            raise CallRefused(Code.BAD_REQUEST, "a message of a transaction is sent by itself")
        return topic, sent

    async def _store(self, caller: Caller, topic: str, sent: Sent) -> SendResultEntry:
        header = SendMessageV2RequestHeader(
            producer_group=topic,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=QUEUES,
            queue_id=self._queue(topic, sent.group),
            sys_flag=sent.sys_flag,
            born_timestamp=sent.born_timestamp,
            flag=0,
            properties=sent.properties,
        )
        try:
            answer = await caller.ask(RequestCode.SEND_MESSAGE_V2, header, sent.body)
        except PocketMQError as error:
            return SendResultEntry(status=status_of_error(error))
        status = status_of_answer(answer)
        if answer.code not in STORED or answer.header is None:
            return SendResultEntry(status=status)
        stored: Any = answer.header
        entry = SendResultEntry(status=status, message_id=sent.message_id, offset=stored.queue_offset)
        entry.recall_handle = stored.recall_handle
        if sent.is_half:
            entry.transaction_id = sent.message_id
            self.transactions.begun(topic, sent.message_id, stored.queue_offset, _physical_offset(answer))
        return entry

    def _queue(self, topic: str, group: str) -> int:
        """Return the queue of a message group; -1: any. Clients choose by hashes of their own, each language by another
        one: only the server's choice keeps a group together."""
        if not group:
            return -1
        config = self.topics.get(topic)
        return queue_of(group, max(1, QUEUES if config is None else config.write_queue_nums))

    async def recall(self, call: Call, request: RecallMessageRequest) -> RecallMessageResponse:
        """Take a delayed message back before its time."""
        try:
            caller = self.callers.of(call, RequestCode.RECALL_MESSAGE)
            topic = topic_of(request.topic)
            header = RecallMessageRequestHeader(topic=topic, recall_handle=request.recall_handle, producer_group=topic)
            answer = await caller.ask(RequestCode.RECALL_MESSAGE, header)
        except CallRefused as refused:
            return RecallMessageResponse(status=refused.status)
        except PocketMQError as error:
            return RecallMessageResponse(status=status_of_error(error))
        found: Any = answer.header
        message_id = found.msg_id if answer.code == ResponseCode.SUCCESS and found is not None else ""
        return RecallMessageResponse(status=status_of_answer(answer), message_id=message_id)


def _physical_offset(answer: Response) -> int:
    header: Any = answer.header
    return parse_offset_msg_id(header.msg_id)[1]


def together(statuses: list[Status | None]) -> Status:
    """Return the status of a call with several results: theirs if it is the same for all of them."""
    codes = {Code.OK if status is None else status.code for status in statuses}
    if len(codes) > 1:
        return Status(code=Code.MULTIPLE_RESULTS, message="mixed results: see each entry")
    return (statuses[0] if statuses else None) or OK

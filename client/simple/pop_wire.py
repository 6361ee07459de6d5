"""Pops and acknowledgements as requests to brokers, native or as RocketMQ's clients send them.

Lives here: ``PopWire``.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, check_answer
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.pull.subscription import Subscription
from pocketmq.client.simple.popped_message import PoppedMessage
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.receipt_handle import (
    NORMAL,
    ReceiptHandle,
    parse_msg_offsets,
    parse_start_offsets,
    retry_mark,
)
from pocketmq.common.record import POP_CK
from pocketmq.common.record_columns import received_messages
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NativePopRequestHeader,
    NativeSettleRequestHeader,
    PopMessageRequestHeader,
)

ANSWER_EXTRA_MS: Final = 5_000
POP_BYTES: Final = 1 << 20
NATIVE_MESSAGES_MAX: Final = 1024
ROCKETMQ_MESSAGES_MAX: Final = 32
ANY_QUEUE: Final = -1
ACKNOWLEDGE: Final = -1
"""In the place of a new invisible time."""
_NOTHING: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND)
_DONE: Final = (0, 1)


class Settling(NamedTuple):
    """One acknowledgement, or one change of an invisible time."""

    message: PoppedMessage
    invisible_ms: int
    done: "asyncio.Future[bool]"
    """Gets False when the handle is dead."""


class PopWire:
    """The requests of one consumer group for one topic."""

    def __init__(self, instance: ClientInstance, group: str, topic: str, subscription: Subscription) -> None:
        self._instance = instance
        self._group = group
        self._topic = topic
        self.subscription = subscription
        self.from_newest = False

    async def pop(
        self, connection: BrokerConnection, max_messages: int, invisible_ms: int, wait_ms: int
    ) -> list[PoppedMessage]:
        """Return up to ``max_messages`` of one broker; none when nothing came in ``wait_ms``. Raises the errors of the
        connection, and ``BrokerAnswerError``."""
        asked_ns = self._instance.clock.monotonic_ns()
        timeout_ms = self._instance.options.api_timeout_ms + wait_ms + ANSWER_EXTRA_MS
        if connection.is_native:
            return await self._pop_native(connection, max_messages, invisible_ms, wait_ms, timeout_ms, asked_ns)
        header = PopMessageRequestHeader(
            self._group,
            self._topic,
            ANY_QUEUE,
            min(max_messages, ROCKETMQ_MESSAGES_MAX),
            invisible_ms,
            wait_ms,
            self._instance.clock.now_ms(),
            int(self.from_newest),
            self.subscription.expression_type,
            self.subscription.expression,
        )
        response = await connection.channel.request(RequestCode.POP_MESSAGE, header, timeout_ms=timeout_ms)
        check_answer(response, f"pop of {self._topic} refused", connection.address, *_NOTHING)
        if response.code != ResponseCode.SUCCESS:
            return []
        answer: Any = response.header
        found = received_messages(response.body, None, connection.broker_name)
        _check_count(len(found), max_messages, connection.address)
        starts, offsets = parse_start_offsets(answer.start_offset_info), parse_msg_offsets(answer.msg_offset_info)
        messages: list[PoppedMessage] = []
        for message in found:
            text = message.properties.get(POP_CK)
            if text is not None:
                receipt = ReceiptHandle.parse(text)
            else:
                mark = retry_mark(message.topic)
                key = (mark, message.queue_id)
                if message.queue_offset not in offsets.get(key, ()):
                    self._instance.log.warning("pop_without_handle", topic=message.topic, offset=message.queue_offset)
                    continue
                receipt = ReceiptHandle(
                    starts[key],
                    answer.pop_time,
                    answer.invisible_time,
                    answer.revive_qid,
                    mark,
                    connection.broker_name,
                    message.queue_id,
                    message.queue_offset,
                )
            messages.append(self._popped(message, receipt, asked_ns))
        return messages

    async def _pop_native(
        self,
        connection: BrokerConnection,
        max_messages: int,
        invisible_ms: int,
        wait_ms: int,
        timeout_ms: int,
        asked_ns: int,
    ) -> list[PoppedMessage]:
        header = NativePopRequestHeader(
            self._group,
            self._topic,
            ANY_QUEUE,
            min(max_messages, NATIVE_MESSAGES_MAX),
            POP_BYTES,
            invisible_ms,
            wait_ms,
            self.subscription.expression,
            self.subscription.expression_type,
            init_mode=int(self.from_newest),
        )
        response = await connection.channel.request(RequestCode.NATIVE_POP, header, timeout_ms=timeout_ms)
        check_answer(response, f"pop of {self._topic} refused", connection.address, *_NOTHING)
        if response.code != ResponseCode.SUCCESS:
            return []
        answer: Any = response.header
        _check_count(answer.messages, max_messages, connection.address)
        body = memoryview(response.body)
        sizes = _sizes(body, answer.messages, connection.address)
        broker, pop_time, invisible = connection.broker_name, answer.pop_time, answer.invisible_ms
        messages = []
        for message in received_messages(body[4 * len(sizes) :], sizes, broker):
            mark = NORMAL if message.topic == self._topic else retry_mark(message.topic)
            offset = message.queue_offset
            receipt = ReceiptHandle(offset, pop_time, invisible, 0, mark, broker, message.queue_id, offset)
            messages.append(self._popped(message, receipt, asked_ns))
        return messages

    def _popped(self, message: ReceivedMessage, receipt: ReceiptHandle, asked_ns: int) -> PoppedMessage:
        return PoppedMessage(message, self._topic, receipt, message.reconsume_times + 1, asked_ns)

    # ---- settling

    async def settle(self, broker_name: str, settlings: Sequence[Settling]) -> None:
        """Carry out acknowledgements and changes at one broker; each gets its result or the error."""
        try:
            instance = self._instance
            connection = await instance.connection(broker_name, timeout_ms=instance.options.api_timeout_ms)
            if connection.is_native:
                await self._settle_natively(connection, settlings)
            else:
                await asyncio.gather(*(self._settle_one(connection, each) for each in settlings))
        except PocketMQError as error:
            for each in settlings:
                if not each.done.done():
                    each.done.set_exception(error)
                    each.done.exception()  # its caller may have gone
        finally:
            for each in settlings:
                if not each.done.done():
                    each.done.cancel()

    async def _settle_natively(self, connection: BrokerConnection, settlings: Sequence[Settling]) -> None:
        groups: dict[tuple[Any, ...], list[Settling]] = {}
        for each in settlings:
            receipt = each.message.receipt
            key = (receipt.retry, receipt.queue_id, receipt.pop_time, receipt.invisible_time, each.invisible_ms)
            groups.setdefault((*key, receipt.is_ordered), []).append(each)
        header = NativeSettleRequestHeader(
            self._group,
            self._topic,
            [(*key[:5], [each.message.receipt.queue_offset for each in part], key[5]) for key, part in groups.items()],
        )
        asked_ns = self._instance.clock.monotonic_ns()
        timeout_ms = self._instance.options.api_timeout_ms
        response = await connection.channel.request(RequestCode.NATIVE_SETTLE, header, timeout_ms=timeout_ms)
        answer: Any = check_answer(response, "acknowledgement refused", connection.address).header
        flat = [each for part in groups.values() for each in part]
        if len(answer.results) != len(flat):
            raise BrokerAnswerError(
                "acknowledgement not understood",
                answer_code=response.code,
                remark=f"{len(answer.results)} results for {len(flat)} messages",
                address=connection.address,
            )
        for each, result in zip(flat, answer.results, strict=True):
            if result in _DONE and each.invisible_ms != ACKNOWLEDGE:
                each.message.renewed(answer.pop_time, each.invisible_ms, each.message.receipt.revive_qid, asked_ns)
            if not each.done.done():
                each.done.set_result(result in _DONE)

    async def _settle_one(self, connection: BrokerConnection, each: Settling) -> None:
        receipt = each.message.receipt
        topic = receipt.real_topic(self._topic, self._group)
        timeout_ms = self._instance.options.api_timeout_ms
        asked_ns = self._instance.clock.monotonic_ns()
        if each.invisible_ms == ACKNOWLEDGE:
            ack = AckMessageRequestHeader(self._group, topic, receipt.queue_id, str(receipt), receipt.queue_offset)
            response = await connection.channel.request(RequestCode.ACK_MESSAGE, ack, timeout_ms=timeout_ms)
        else:
            change = ChangeInvisibleTimeRequestHeader(
                self._group, topic, receipt.queue_id, str(receipt), receipt.queue_offset, each.invisible_ms
            )
            code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
            response = await connection.channel.request(code, change, timeout_ms=timeout_ms)
        check_answer(response, "acknowledgement refused", connection.address, ResponseCode.NO_MESSAGE)
        is_done = response.code == ResponseCode.SUCCESS
        if is_done and each.invisible_ms != ACKNOWLEDGE:
            answer: Any = response.header
            each.message.renewed(answer.pop_time, answer.invisible_time, answer.revive_qid, asked_ns)
        if not each.done.done():
            each.done.set_result(is_done)


def _check_count(count: int, max_messages: int, address: str) -> None:
    """Raise where a broker gives more than was asked for: they would have to be kept."""
    if count > max_messages:
        raise BrokerAnswerError(
            "pop answer refused", answer_code=0, remark=f"{count} messages, {max_messages} asked for", address=address
        )


def _sizes(body: memoryview, count: int, address: str) -> Any:
    """Return the sizes at the head of a native answer."""
    sizes = np.frombuffer(body[: 4 * count], ">u4").astype(np.int64) if 0 <= 4 * count <= len(body) else None
    if sizes is None or int(sizes.sum()) != len(body) - 4 * count:
        raise BrokerAnswerError(
            "pop answer not understood",
            answer_code=0,
            remark=f"{count} messages in {len(body)} bytes",
            address=address,
        )
    return sizes

"""Failed messages go back to the broker for a later try.

Lives here: ``SendBack``, the failure policy of cluster consumption (docs/rocketmq.md, "Concurrent consumption"):
CONSUMER_SEND_MSG_BACK to the broker that has the message, a copy to the retry topic at another one when that fails;
``show_origin``, which gives a message from the retry topic its own topic back.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from pocketmq.client.connection.instance import ClientInstance, check_answer
from pocketmq.client.errors import BrokerNotExist
from pocketmq.client.sender.copy_sender import CopySender
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import (
    DELAY,
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
)
from pocketmq.common.redelivery import (
    DEAD_LETTERS,
    FIRST_RETRY_LEVEL,
    LAST_ERROR,
    LEVELS_MAX,
    MAX_RECONSUME_TIMES_DEFAULT,
    error_line,
    prepare_copy,
)
from pocketmq.common.topics import RETRY_PREFIX, TOPIC_LENGTH_MAX, is_retry_topic, retry_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import ConsumerSendMsgBackRequestHeader

SEND_BACK_TIMEOUT_MS: Final = 5_000
"""DefaultMQPushConsumerImpl.sendMessageBack."""
TOGETHER_MAX: Final = 64
"""Concurrent send-backs of one policy; further ones wait."""
COUNT_MAX: Final = (1 << 31) - 1
DECIDED_BY_GROUP: Final = -1
PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The group in which RocketMQ's clients send their own messages (MixAll)."""


class SendBack:
    """``FailurePolicy`` of one consumer group in cluster mode. Belongs to one event loop.

    ``max_reconsume_times``: tries after the first one, then the message is a dead letter; -1: the group's settings at
    the broker (16; RocketMQ's brokers get 16).
    """

    def __init__(self, instance: ClientInstance, group: str, max_reconsume_times: int = DECIDED_BY_GROUP) -> None:
        if type(max_reconsume_times) is not int or not DECIDED_BY_GROUP <= max_reconsume_times <= COUNT_MAX:
            raise ConfigError("consumer refused", why=f"max_reconsume_times={max_reconsume_times!r}")
        if len(retry_topic(group)) > TOPIC_LENGTH_MAX:
            raise ConfigError(
                "consumer refused",
                why=f"group of {len(group)} characters: its retry topic would be longer than {TOPIC_LENGTH_MAX}",
                hint=f"at most {TOPIC_LENGTH_MAX - len(RETRY_PREFIX)} characters",
            )
        self.sent_back = 0
        self.sent_as_copy = 0
        """Of these, messages that their own broker did not take back."""
        self.not_taken = 0
        """Messages left with the consumer, which tries them again itself."""
        self._instance = instance
        self._group = group
        self._max = max_reconsume_times
        self._copies = CopySender(instance, PRODUCER_GROUP)
        self._places = asyncio.Semaphore(TOGETHER_MAX)
        self._failing: dict[str, str] = {}

    @property
    def retry_topic(self) -> str:
        """The topic from which failed messages come back."""
        return retry_topic(self._group)

    async def failed(
        self, messages: Sequence[ReceivedMessage], reason: str, delay_level: int
    ) -> Sequence[ReceivedMessage]:
        """Send ``messages`` back; return those that no broker took. Raises nothing but cancellation.

        ``delay_level``: 0 by attempt (level 3 and upwards), above 0 that level, below 0 the dead letters.
        """
        if len(messages) == 1:
            return () if await self._one(messages[0], reason, delay_level) else messages
        taken = await asyncio.gather(*(self._one(message, reason, delay_level) for message in messages))
        return [message for message, is_taken in zip(messages, taken, strict=True) if not is_taken]

    async def _one(self, message: ReceivedMessage, reason: str, delay_level: int) -> bool:
        line = error_line(reason)
        async with self._places:
            try:
                await self._send_back(message, line, delay_level)
            except PocketMQError as error:
                self._log_failure(message, error)
            else:
                self._failing.pop(message.broker_name, None)
                self.sent_back += 1
                return True
            try:
                await self._send_copy(message, line, delay_level)
            except PocketMQError as error:
                self.not_taken += 1
                self._instance.log.error(
                    "message_not_sent_back",
                    group=self._group,
                    message=message,
                    error=str(error),
                    meaning="it is consumed here again after a pause",
                )
                return False
            self.sent_back += 1
            self.sent_as_copy += 1
            return True

    def _log_failure(self, message: ReceivedMessage, error: PocketMQError) -> None:
        text = str(error)
        if self._failing.get(message.broker_name) != text:  # once for each kind of failure, not for each message
            self._failing[message.broker_name] = text
            self._instance.log.warning(
                "send_back_failed",
                group=self._group,
                broker=message.broker_name,
                message=message,
                error=text,
                meaning="a copy goes to the retry topic, at another broker if there is one",
            )

    async def _send_back(self, message: ReceivedMessage, reason: str, delay_level: int) -> None:
        if not message.broker_name:
            raise BrokerNotExist("not sent back", why="the message does not say which broker has it")
        connection = await self._instance.connection(message.broker_name, timeout_ms=SEND_BACK_TIMEOUT_MS)
        ours = connection.announcement is not None
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.topic,
            max_reconsume_times=self._max_times(ours),
            bname=message.broker_name,
            last_error=reason if ours else "",
        )
        response = await connection.channel.request(
            RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=SEND_BACK_TIMEOUT_MS
        )
        check_answer(response, f"{message.broker_name} did not take a message back", connection.address)

    def _max_times(self, ours: bool) -> int | None:
        if self._max != DECIDED_BY_GROUP:
            return self._max
        return None if ours else MAX_RECONSUME_TIMES_DEFAULT

    async def _send_copy(self, message: ReceivedMessage, reason: str, delay_level: int) -> None:
        """Do what the broker would have done (DefaultMQPushConsumerImpl.sendMessageBack after an exception)."""
        properties = dict(message.properties)
        prepare_copy(properties, message.topic, message.offset_msg_id)
        for name in (WAIT, TRAN_MSG, RECONSUME_TIME, MAX_RECONSUME_TIMES):
            properties.pop(name, None)
        if reason:
            properties[LAST_ERROR] = reason
        max_times = self._max if self._max != DECIDED_BY_GROUP else None
        if delay_level == DEAD_LETTERS:
            max_times = 0  # the count below is above it: a dead letter
        else:
            level = delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
            properties[DELAY] = str(min(level, LEVELS_MAX))
        await self._copies.send(
            self.retry_topic,
            message,
            properties,
            reconsume_times=min(message.reconsume_times + 1, COUNT_MAX),
            max_reconsume_times=max_times,
            avoid=message.broker_name,
        )


def show_origin(messages: Iterable[ReceivedMessage]) -> None:
    """Restore the original topic of messages from a retry topic
    (DefaultMQPushConsumerImpl.resetRetryAndNamespace)."""
    for message in messages:
        if is_retry_topic(message.topic):
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)

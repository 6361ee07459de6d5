"""Dead letters: messages that groups gave up, with their errors, and their resend.

Lives here: ``DeadLetters``: the groups that have some, reading and resending them, and the count of earlier resends.

Only retention removes messages from a dead-letter topic. A resent copy keeps its unique id and names its dead letter in
POCKETMQ_RESENT_FROM, so that the index of the target topic finds every resend.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.query import TOOLS_GROUP, MessageFinder
from pocketmq.client.errors import NoRoute
from pocketmq.client.pull.pull_consumer import PullConsumer
from pocketmq.client.push.send_back import PRODUCER_GROUP
from pocketmq.client.sender.copy_sender import CopySender, StoredCopy
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import (
    CLUSTER,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
)
from pocketmq.common.redelivery import LAST_ERROR, RESENT_FROM, forget_delay
from pocketmq.common.topics import DLQ_PREFIX, check_group_name, dlq_topic, is_dlq_topic, retry_topic

TO_RETRY: Final = "retry"
"""To the retry topic: only the group that gave the message up gets it."""
TO_ORIGIN: Final = "origin"
"""To the topic it was first sent to: every group that consumes that gets it again."""
UNIQUE_MAX: Final = 32
"""RocketMQ's brokers return at most so many messages of one unique id."""


@dataclass(slots=True, frozen=True)
class DeadLetterGroup:
    """A group with dead letters. Times are store times, ms since 1970; 0 where there is none."""

    group: str
    count: int
    oldest_ms: int
    newest_ms: int


@dataclass(slots=True, frozen=True)
class Resends:
    """How often a dead letter was sent again. ``error``: why the count is incomplete."""

    count: int = 0
    last_ms: int = 0
    error: str = ""


def origin_topic(message: ReceivedMessage) -> str:
    """Return the topic a dead letter was first sent to, or an empty string."""
    return message.properties.get(RETRY_TOPIC, "")


def last_error(message: ReceivedMessage) -> str:
    """Return why the last try failed, if the consumer recorded it, as PocketMQ's do."""
    return message.properties.get(LAST_ERROR, "")


def target_topic(message: ReceivedMessage, group: str, to: str) -> str:
    """Return the topic that a resend goes to; raises ``MessageIllegal`` for an unknown origin."""
    if to == TO_RETRY:
        return retry_topic(group)
    topic = origin_topic(message)
    if not topic or is_dlq_topic(topic):
        raise MessageIllegal(
            "not sent again", why=f"{message} does not say where it comes from", hint="send it to the retry topic"
        )
    return topic


class DeadLetters:
    """Uses the connections of ``admin``, which is started by its owner."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._finder = MessageFinder(admin)
        self._copies = CopySender(admin.instance, PRODUCER_GROUP)

    async def groups(self) -> list[DeadLetterGroup]:
        """Return every group that has a dead-letter topic, in the order of names."""
        topics = sorted(topic for topic in await self._admin.topics() if is_dlq_topic(topic))
        return list(await asyncio.gather(*(self._group(topic) for topic in topics)))

    async def _group(self, topic: str) -> DeadLetterGroup:
        description = await self._admin.describe_topic(topic)
        filled = [queue for queue in description.queues if queue.count]
        first = await asyncio.gather(
            *(
                self._finder.by_queue_offset(topic, each.queue.queue_id, each.min_offset, broker=each.queue.broker_name)
                for each in filled
            )
        )
        oldest = [message.store_timestamp for found in first for message in found.messages]
        return DeadLetterGroup(
            topic.removeprefix(DLQ_PREFIX),
            description.count,
            min(oldest, default=0),
            max((queue.last_update_ms for queue in filled), default=0),
        )

    async def read(self, group: str, ids: Collection[str] = ()) -> AsyncGenerator[ReceivedMessage, None]:
        """Iterate over the dead letters of a group, oldest first in each queue; ``ids``: only these (message ids or
        offset message ids). Raises ``NoRoute`` for a group without any."""
        check_group_name(group)
        wanted = set(ids)
        async with PullConsumer(TOOLS_GROUP, instance=self._admin.instance) as consumer:
            stream = consumer.stream(dlq_topic(group), start="earliest", stop_at_end=True)
            async with aclosing(stream) as messages:
                async for message in messages:
                    if not wanted or message.msg_id in wanted or message.offset_msg_id in wanted:
                        yield message

    async def resends(self, message: ReceivedMessage, group: str, to: Sequence[str] = (TO_RETRY, TO_ORIGIN)) -> Resends:
        """Count the resends of a dead letter in the index of the target topics.

        Only messages that the brokers still hold count, and only where their index is on.
        """
        count = last_ms = 0
        errors: list[str] = []
        topics: set[str] = set()
        for each in to:
            try:
                topics.add(target_topic(message, group, each))
            except MessageIllegal:
                continue
        for topic in sorted(topics):
            try:
                found = await self._finder.by_key(topic, message.msg_id, unique=True, max_messages=UNIQUE_MAX)
            except NoRoute:
                continue  # no message was ever sent there
            except PocketMQError as error:
                errors.append(str(error))
                continue
            errors += [f"{asked.broker_name}: {asked.remark}" for asked in found.asked if asked.failed]
            for copy in found.messages:
                if copy.properties.get(RESENT_FROM) == message.offset_msg_id and not copy.reconsume_times:
                    count += 1
                    last_ms = max(last_ms, copy.store_timestamp)
        return Resends(count, last_ms, "; ".join(errors))

    async def resend(self, message: ReceivedMessage, group: str, to: str) -> StoredCopy:
        """Send a copy to the retry or the origin topic; it starts with no failed try. Raises ``PocketMQError``."""
        topic = target_topic(message, group, to)
        properties = dict(message.properties)
        forget_delay(properties)
        for name in (WAIT, CLUSTER, TRAN_MSG, RECONSUME_TIME, MAX_RECONSUME_TIMES, LAST_ERROR):
            properties.pop(name, None)
        if to == TO_ORIGIN:
            properties.pop(RETRY_TOPIC, None)
            properties.pop(ORIGIN_MESSAGE_ID, None)
        properties[RESENT_FROM] = message.offset_msg_id
        return await self._copies.send(topic, message, properties)

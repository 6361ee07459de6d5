"""The questions of a watch and of the pages, each one request or a bounded number of them.

Lives here: ``ClusterReader``.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import check_answer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.pull.pull_wire import PullWire
from pocketmq.common.message import ReceivedMessage
from pocketmq.dashboard.watch.consume_stats import GroupProgress, decode_consume_stats
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.group import (
    ConsumerConnection,
    ConsumeTimeSpanRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
)
from pocketmq.remoting.protocol.spec import Header

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of RocketMQ's own tools (MixAll.TOOLS_CONSUMER_GROUP)."""
PAGE_BYTES_MAX: Final = 2 << 20
"""Bytes that one pull for a page may bring."""
_IN_LOOP_BYTES: Final = 64 << 10
"""A larger answer is decoded in a thread: it would hold up all viewers."""


class ClusterReader:
    """Uses a started ``Admin``. Raises connection errors and ``BrokerAnswerError``."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self._wire = PullWire(admin.instance, TOOLS_GROUP)

    async def consume_stats(self, address: str) -> list[GroupProgress]:
        """Return the progress of all groups of a master."""
        header = GetBrokerConsumeStatsRequestHeader(is_order=False)
        body = bytes((await self.ask(address, RequestCode.GET_BROKER_CONSUME_STATS, header, "groups refused")).body)
        if len(body) <= _IN_LOOP_BYTES:
            return decode_consume_stats(body)
        return await asyncio.to_thread(decode_consume_stats, body)

    async def producers(self, address: str) -> ProducerTableInfo:
        """Return the producers of a master, by group."""
        answer = await self.ask(address, RequestCode.GET_ALL_PRODUCER_INFO, None, "producers refused")
        return decode_body(answer.body, ProducerTableInfo)

    async def consumers(self, address: str, group: str) -> ConsumerConnection | None:
        """Return the members of a group at one broker; None: none is connected."""
        header = ConsumerGroupRequestHeader(group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answer = await self.ask(address, code, header, "members refused", ResponseCode.CONSUMER_NOT_ONLINE)
        return decode_body(answer.body, ConsumerConnection) if answer.code == ResponseCode.SUCCESS else None

    async def behind_ms(self, address: str, group: str, topic: str) -> int:
        """Return the age of the oldest message of a topic on a broker that a group has not committed; 0: none."""
        header = ConsumeTimeSpanRequestHeader(topic, group)
        answer = await self.ask(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header, "time span refused")
        spans = decode_body(answer.body, QueryConsumeTimeSpanBody).consume_time_span_set
        return max((each.delay_time for each in spans), default=0)

    async def messages(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        """Return up to ``count`` messages of a queue from ``offset`` on; joins no group."""
        from pocketmq.common.record_columns import received_messages  # NumPy: not at import

        await self._know(queue)
        found: list[ReceivedMessage] = []
        while len(found) < count:
            wanted = count - len(found)
            (result,) = await self._wire.pull(
                queue.broker_name, [(queue, offset)], None, max_messages=wanted, max_bytes=PAGE_BYTES_MAX
            )
            part = received_messages(bytes(result.body), result.sizes, queue.broker_name, check_crc=True)
            part = [each for each in part if each.queue_offset >= offset]
            found += part
            if not part or result.sizes is not None:
                break  # a RocketMQ broker gives 32 at once
            offset = part[-1].queue_offset + 1
        return found[:count]

    async def offset_by_time(self, queue: MessageQueue, at_ms: int) -> int:
        """Return the first offset of a queue stored at ``at_ms`` or later."""
        await self._know(queue)
        return await self._wire.offset_by_time(queue, at_ms)

    async def _know(self, queue: MessageQueue) -> None:
        """Let the instance know the brokers of a topic: pulls take their addresses from its routes."""
        instance = self.admin.instance
        await instance.route(queue.topic, timeout_ms=instance.options.api_timeout_ms)

    async def ask(self, address: str, code: int, header: Header | None, what: str, *accepted: int) -> Any:
        """Send one request to a broker; raise ``BrokerAnswerError`` for a code other than success and ``accepted``."""
        instance = self.admin.instance
        timeout_ms = instance.options.api_timeout_ms
        connection = await instance.connection_to(address, address, timeout_ms=timeout_ms)
        response = await connection.channel.request(code, header, timeout_ms=timeout_ms)
        return check_answer(response, what, address, *accepted)

    async def is_pocketmq(self, address: str) -> bool:
        """Return whether a broker is PocketMQ's."""
        instance = self.admin.instance
        connection = await instance.connection_to(address, address, timeout_ms=instance.options.api_timeout_ms)
        return connection.announcement is not None


async def newest(
    reader: ClusterReader, queues: Iterable[tuple[MessageQueue, int, int]], count: int
) -> list[ReceivedMessage]:
    """Return the newest messages of (queue, begin, end), newest first: the last ``count`` of each queue are read."""
    parts = await asyncio.gather(
        *(reader.messages(queue, max(begin, end - count), count) for queue, begin, end in queues if end > begin)
    )
    found = [message for part in parts for message in part]
    found.sort(key=lambda each: (each.store_timestamp, each.queue_offset), reverse=True)
    return found[:count]

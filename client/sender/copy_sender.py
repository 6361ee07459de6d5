"""Copies of received messages, sent to a topic chosen by the consumer or an administrator.

Lives here: ``CopySender``: one SEND_MESSAGE_V2 with the stored body and flags, to one broker after another until one
takes it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pocketmq.client.connection.instance import ClientInstance, check_answer
from pocketmq.client.connection.route import DEFAULT_TOPIC_QUEUE_NUMS
from pocketmq.client.errors import NoRoute
from pocketmq.client.message.receipts import STATUS_OF_CODE
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, encode_properties
from pocketmq.common.redelivery import MAX_RECONSUME_TIMES_DEFAULT
from pocketmq.common.topics import AUTO_CREATE_TOPIC, is_retry_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader

ATTEMPTS_MAX: Final = 3
"""Brokers to try (RocketMQ retryTimesWhenSendFailed + 1)."""
ATTEMPT_TIMEOUT_MS: Final = 3_000
"""Time limit of each try (RocketMQ sendMsgTimeout)."""
ANY_QUEUE: Final = -1
"""The broker chooses (RocketMQ SendMessageProcessor: queueId below 0)."""
MULTI_TAGS_FLAG: Final = 0x2


class StoredCopy(NamedTuple):
    """Where a copy is stored. ``offset_msg_id``: as the broker returned it."""

    broker_name: str
    offset_msg_id: str


class CopySender:
    """Belongs to one event loop; its owner starts the instance."""

    def __init__(self, instance: ClientInstance, producer_group: str) -> None:
        self._instance = instance
        self._group = producer_group

    async def send(
        self,
        topic: str,
        message: ReceivedMessage,
        properties: Mapping[str, str],
        *,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
        avoid: str = "",
    ) -> StoredCopy:
        """Store a copy of ``message`` in any queue of ``topic``; a broker named ``avoid`` is tried last.

        At least once: a broker that did not answer in time may have stored it as well. ``max_reconsume_times`` None:
        the group's own. Raises ``PocketMQError``: the failure of the last broker.
        """
        encoded = encode_properties(properties).decode()
        failure: PocketMQError = NoRoute(f"no copy to {topic}", why="no broker takes it", hint="create the topic")
        for name in await self._brokers(topic, message, avoid):
            try:
                connection = await self._instance.connection(name, timeout_ms=ATTEMPT_TIMEOUT_MS)
                max_times = max_reconsume_times
                if max_times is None and connection.announcement is None and is_retry_topic(topic):
                    max_times = MAX_RECONSUME_TIMES_DEFAULT  # older RocketMQ brokers rely on it
                header = SendMessageV2RequestHeader(
                    producer_group=self._group,
                    topic=topic,
                    default_topic=AUTO_CREATE_TOPIC,
                    default_topic_queue_nums=DEFAULT_TOPIC_QUEUE_NUMS,
                    queue_id=ANY_QUEUE,
                    sys_flag=message.sys_flag & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK | MULTI_TAGS_FLAG),
                    born_timestamp=message.born_timestamp,
                    flag=message.flag,
                    properties=encoded,
                    reconsume_times=reconsume_times,
                    max_reconsume_times=max_times,
                    bname=name,
                )
                response = await connection.channel.request(
                    RequestCode.SEND_MESSAGE_V2, header, message.raw_body, timeout_ms=ATTEMPT_TIMEOUT_MS
                )
                check_answer(response, f"copy to {topic} refused", connection.address, *STATUS_OF_CODE)
            except PocketMQError as error:
                failure = error
                continue
            answered: Any = response.header
            return StoredCopy(name, "" if answered is None else answered.msg_id)
        raise failure

    async def _brokers(self, topic: str, message: ReceivedMessage, avoid: str) -> list[str]:
        """Return the names to try. A retry topic without a route is made by any broker that has the message's topic."""
        names: set[str] = set()
        failure: PocketMQError | None = None
        for asked in (topic, message.topic) if is_retry_topic(topic) else (topic,):
            try:
                route = await self._instance.route(asked, timeout_ms=ATTEMPT_TIMEOUT_MS, for_send=True)
                names |= route.write_brokers()
            except PocketMQError as error:
                failure = error
            if names - {avoid}:
                break
        if not names and failure is not None:
            raise failure
        others = sorted(names - {avoid})
        self._instance.random.shuffle(others)
        return (others + ([avoid] if avoid in names else []))[:ATTEMPTS_MAX]

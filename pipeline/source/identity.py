"""The identity that a broker gives a topic when it is created.

Lives here: ``topic_identity``, which asks a broker for it.
"""

import msgspec

from pocketmq.client.connection.instance import ClientInstance, check_answer
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.topics import TOPIC_ID_ATTRIBUTE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.topic import TopicRequestHeader


class _TopicIdentity(msgspec.Struct):
    attributes: dict[str, str] = {}


async def topic_identity(instance: ClientInstance, topic: str, broker: str) -> str:
    """Return the identity of a topic on a broker; empty if the broker gives none (RocketMQ).

    Raises errors of the connection, and ``BrokerAnswerError`` for a topic that does not exist.
    """
    connection = await instance.connection(broker, timeout_ms=instance.options.api_timeout_ms)
    response = await connection.channel.request(
        RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic), timeout_ms=instance.options.api_timeout_ms
    )
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ 4.9
        return ""
    check_answer(response, f"identity of {topic} refused", connection.address)
    try:
        return msgspec.json.decode(response.body, type=_TopicIdentity).attributes.get(TOPIC_ID_ATTRIBUTE, "")
    except DECODE_ERRORS:
        return ""

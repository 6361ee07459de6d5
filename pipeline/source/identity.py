"""Whether a topic is still the one that a query has read.

Lives here: ``topic_identity``, which a broker gives a topic when it is created; ``masters``, the brokers that name
servers know: what one of them does not have although it is registered, is gone.
"""

import msgspec

from pocketmq.client.connection.instance import ClientInstance, check_answer
from pocketmq.client.connection.route import MASTER_ID
from pocketmq.client.errors import BrokerAnswerError, NoRoute
from pocketmq.common.errors import DECODE_ERRORS, PocketMQError
from pocketmq.common.topics import TOPIC_ID_ATTRIBUTE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.namesrv import ClusterInfo
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


async def masters(instance: ClientInstance) -> frozenset[str]:
    """Return the names of the brokers whose masters are registered. A broker registers with all of its topics."""
    servers, timeout_ms = instance.name_servers, instance.options.api_timeout_ms
    response = await servers.request(RequestCode.GET_BROKER_CLUSTER_INFO, None, timeout_ms=timeout_ms)
    check_answer(response, "cluster information refused", servers.current)
    table = decode_body(response.body, ClusterInfo).broker_addr_table
    return frozenset(name for name, broker in table.items() if str(MASTER_ID) in broker.broker_addrs)


async def is_deleted(instance: ClientInstance, topic: str, broker: str, error: PocketMQError) -> bool:
    """Return whether an error of a request about a topic means that the broker has it no longer."""
    if isinstance(error, BrokerAnswerError) and error.answer_code == ResponseCode.TOPIC_NOT_EXIST:
        return True
    if not isinstance(error, NoRoute) or broker not in await masters(instance):
        return False
    try:  # it may have registered between the two
        route = await instance.refresh(topic)
    except NoRoute:
        return True
    return all(queue.broker_name != broker for queue in route.read_queues)

"""The making of a topic that does not exist yet, before messages whose queue a key or a selector chooses.

Lives here: ``make_topic``. A borrowed route only guesses the queues of its topic: another client may make the topic
with fewer at the same moment. A message that may go anywhere then goes to a queue that exists
(``sender.attempt_plan``). One whose queue is chosen must not: later messages of its key would go elsewhere, and could
overtake it.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from pocketmq.client.connection.route import DEFAULT_TOPIC_QUEUE_NUMS, TopicRoute
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import AUTO_CREATE_TOPIC
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.topic import MakeTopicRequestHeader

if TYPE_CHECKING:
    from pocketmq.client.connection.instance import ClientInstance

BROKER_MS_MAX: Final = 1_000
"""The longest wait for one broker: the others make the topic without it."""


async def make_topic(instance: "ClientInstance", route: TopicRoute, timeout_ms: float) -> TopicRoute:
    """Have all brokers of a borrowed route make its topic; return the topic's own route.

    Returns a borrowed route where no broker made it: RocketMQ's brokers and older ones of PocketMQ do not know the
    request. Never raises because of a broker or a name server: the sends that follow report what is wrong.
    """
    until_ms = min(timeout_ms, BROKER_MS_MAX)
    brokers = sorted(route.write_brokers())
    made = await asyncio.gather(*(_make_at(instance, broker, route.topic, until_ms) for broker in brokers))
    if not any(made):
        return route
    try:  # each broker has registered the topic before its answer
        return await instance.refresh(route.topic, for_send=True)
    except PocketMQError:
        return route


async def _make_at(instance: "ClientInstance", broker: str, topic: str, timeout_ms: float) -> bool:
    """Have one broker make a topic; return whether it has it now."""
    header = MakeTopicRequestHeader(topic, AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUE_NUMS)
    try:
        connection = await instance.connection(broker, timeout_ms=timeout_ms)
        if not connection.is_native:
            return False
        answer = await connection.channel.request(RequestCode.MAKE_TOPIC, header, timeout_ms=max(int(timeout_ms), 1))
    except PocketMQError:
        return False
    return answer.code == ResponseCode.SUCCESS

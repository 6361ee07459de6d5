"""RocketMQ's Java consumers of 5.3 in POP mode: the broker tells them to pop, they acknowledge message by message."""

import asyncio
from typing import Any

import pytest

from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import Body, encode_body
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.pull import SetMessageRequestMode
from tests.interop.java_clients import JAVA_CLIENTS, JavaClients
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import new_name
from tests.interop.test_java_consumers import send
from tests.interop.toolchain import wait_until

pytestmark = pytest.mark.parametrize(
    "java", [client for client in JAVA_CLIENTS if client.startswith("5.3")], indirect=True, scope="session"
)
"""4.9 has no POP."""


def set_pop(pocketmq: PocketMQServer, topic: str, group: str, **settings: bool) -> None:
    """Create a group and set the mode POP, as ``mqadmin updateSubGroup`` and ``setConsumeMode`` do."""

    async def ask() -> None:
        pool = ChannelPool(clock=SystemClock(), log=NullLog())
        channel = await pool.get(pocketmq.broker)
        config: Body = SubscriptionGroupConfigBody(group_name=group, **settings)  # type: ignore[arg-type]
        for code, body in (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config),
            (RequestCode.SET_MESSAGE_REQUEST_MODE, SetMessageRequestMode(topic, group, "POP", 8)),
        ):
            response = await channel.request(code, None, encode_body(body), timeout_ms=5_000)
            assert response.code == 0, response
        await pool.close()

    asyncio.run(ask())


def committed(pocketmq: PocketMQServer, topic: str, group: str) -> int:
    """Return the sum of the committed offsets."""

    async def ask() -> int:
        pool = ChannelPool(clock=SystemClock(), log=NullLog())
        channel = await pool.get(pocketmq.broker)
        total = 0
        for queue_id in range(4):
            header = QueryConsumerOffsetRequestHeader(group, topic, queue_id, set_zero_if_not_found=False)
            response = await channel.request(RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=5_000)
            offset: Any = response.header
            total += offset.offset if response.code == 0 and offset is not None else 0
        await pool.close()
        return total

    return asyncio.run(ask())


def test_a_consumer_in_pop_mode_gets_every_message_and_acknowledges_it(
    java: JavaClients, pocketmq: PocketMQServer
) -> None:
    """The committed offsets say so: they follow the lowest message in flight."""
    topic, group = new_name("Pop"), new_name("pop")
    bodies = send(pocketmq, topic, 60)
    set_pop(pocketmq, topic, group)
    with java.started("push", group=group, topic=topic, pop=True) as consumer:
        rows = java.received(consumer, 60, 60)
        assert sorted(row["body"] for row in rows) == sorted(bodies)
        assert all(row["properties"].get("POP_CK") for row in rows)
        wait_until(lambda: committed(pocketmq, topic, group) == 60, 20, "acknowledgements")


def test_a_message_that_fails_comes_again_from_the_retry_topic(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """RECONSUME_LATER changes its invisible time; then it comes with one attempt more, under its own topic."""
    topic, group = new_name("PopRetry"), new_name("popretry")
    bodies = send(pocketmq, topic, 3)
    set_pop(pocketmq, topic, group)
    with java.started("push", group=group, topic=topic, pop=True, laterTimes=1) as consumer:
        rows = java.received(consumer, 6, 90)
        assert sorted(row["body"] for row in rows) == sorted(bodies * 2)
        again = [row for row in rows if row["reconsumeTimes"] == 1]
        assert sorted(row["body"] for row in again) == sorted(bodies)
        assert {row["topic"] for row in again} == {topic}
        wait_until(lambda: committed(pocketmq, topic, group) == 3, 20, "acknowledgements")


def test_two_consumers_share_a_topic_message_by_message(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Each message once, whoever gets it."""
    topic, group = new_name("PopShare"), new_name("popshare")
    send(pocketmq, topic, 1)
    set_pop(pocketmq, topic, group)
    with (
        java.started("push", group=group, topic=topic, pop=True) as first,
        java.started("push", group=group, topic=topic, pop=True) as second,
    ):
        bodies = send(pocketmq, topic, 100)

        def seen() -> list[str]:
            rows = [*java.received(first, 0, 1), *java.received(second, 0, 1)]
            return [row["body"] for row in rows]

        wait_until(lambda: len(seen()) >= 101, 60, "all messages")
        assert sorted(seen()) == sorted([*bodies, bodies[0]])

"""Helpers shared by the tests of PocketMQ's SDK on RocketMQ's servers.

Lives here: names of topics and groups that no other test uses, waiting for what arrives, reading a topic whole.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from pocketmq.client import PullConsumer, ReceivedMessage
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.errors import ConnectFailed, RequestTimeout
from tests.interop.rocketmq_servers import RocketMQServers

_numbers = iter(range(1, 1 << 30))


def new_name(what: str) -> str:
    """Return a topic's or group's name that no other test uses."""
    return f"{what}-{next(_numbers)}"


async def new_topic(servers: RocketMQServers, queues: int = 4) -> str:
    """Create a topic on the broker and return its name."""
    topic = new_name("topic")
    async with Admin(servers.namesrv) as admin:
        await admin.create_topic(topic, queues=queues)
    return topic


async def until(is_so: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return when ``is_so()`` is true; fail with ``what`` after the timeout."""
    end_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end_s, f"{what} within {timeout_s:g} s"
        await asyncio.sleep(0.02)


async def read_all(servers: RocketMQServers, topic: str, count: int, *, timeout_s: float = 60) -> list[ReceivedMessage]:
    """Return a topic's messages from its start once there are ``count``, and those of the next 0.3 s."""
    found: list[ReceivedMessage] = []
    end_s = time.monotonic() + timeout_s
    async with PullConsumer(new_name("reader"), servers.namesrv) as consumer:
        while len(found) < count:
            assert time.monotonic() < end_s, f"{len(found)} of {count} messages of {topic} within {timeout_s:g} s"
            with contextlib.suppress(ConnectFailed, RequestTimeout):  # RocketMQ may pause
                found += await consumer.poll(topic, max_messages=4096, timeout_ms=500)
        found += await consumer.poll(topic, max_messages=4096, timeout_ms=300)
    return found

"""Our own SDK beside the Java programs: it reads topics and sends.

Lives here: reading a whole topic, push consumers that keep their messages.
"""

import asyncio
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pocketmq.client import ConsumeFromWhere
from pocketmq.client.admin.admin import Admin
from pocketmq.client.blocking import PullConsumer, PushConsumer
from pocketmq.common.message import ReceivedMessage
from tests.interop.toolchain import wait_until

_numbers = itertools.count(1)


def new_name(prefix: str) -> str:
    """Return an unused name of a topic or group."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def create_topic(namesrv: str, topic: str, queues: int) -> None:
    """Create a topic with our admin client."""

    async def create() -> None:
        async with Admin(namesrv=namesrv) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(create())


def read_topic(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """Return every message of a topic, by queue and queue offset."""
    with PullConsumer(group=new_name("reader"), namesrv=namesrv) as consumer:
        found = list(consumer.stream(topic, start="earliest", stop_at_end=True))
    return sorted(found, key=lambda message: (message.broker_name, message.queue_id, message.queue_offset))


def read_when_there(namesrv: str, topic: str, count: int, timeout_s: float = 20) -> list[ReceivedMessage]:
    """Return every message of a topic once there are ``count``."""
    found: list[ReceivedMessage] = []

    def are_there() -> bool:
        try:
            found[:] = read_topic(namesrv, topic)
        except Exception as error:  # a topic that its first oneway send has not created yet
            if type(error).__name__ != "NoRoute":
                raise
        return len(found) >= count

    wait_until(are_there, timeout_s, f"{count} messages in {topic}", pause_s=0.2)
    return found


class Collected:
    """The messages of one of our push consumers, in the order of the calls."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self._lock = threading.Lock()

    def add(self, message: ReceivedMessage) -> None:
        """Remember one message."""
        with self._lock:
            self.messages.append(message)

    def bodies(self) -> list[str]:
        """Return the bodies as text."""
        with self._lock:
            return [message.body.decode() for message in self.messages]

    def wait_for(self, count: int, timeout_s: float = 20) -> None:
        """Wait until ``count`` messages have arrived."""
        wait_until(lambda: len(self.messages) >= count, timeout_s, f"{count} messages, not {len(self.messages)}")


@contextmanager
def push_consumer(
    namesrv: str,
    group: str,
    topic: str,
    *,
    tags: str = "*",
    sql: str | None = None,
    ordered: bool = False,
    **options: Any,
) -> Iterator[tuple[PushConsumer, Collected]]:
    """Run one of our push consumers, which keeps its messages, until the block ends."""
    collected = Collected()
    consumer = PushConsumer(
        group=group, namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **options
    )
    consumer.subscribe(topic, tags, sql=sql, ordered=ordered)(collected.add)
    with consumer:
        yield consumer, collected

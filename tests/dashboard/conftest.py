"""One broker with messages for the tests of a module, and a dashboard on it."""

import asyncio
from collections.abc import Iterator

import pytest

from pocketmq.client import Message, ReceivedMessage
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.testing import PocketBroker
from tests.dashboard.serving import Served, serving

HTML = b'<img src=x onerror=alert(1)></td><script>alert("body")</script>'
BINARY = bytes(range(256)) * 8
ANSI = b"\x1b[31mred\x1b[0m \xe2\x80\xaereversed"
HUGE = b"x" * 300_000
HOSTILE_TAG = "<b>tag</b>"
HOSTILE_KEY = '"><script>alert(1)</script>'


def _seen(message: ReceivedMessage) -> None:
    """Take a message."""


async def fill(broker: PocketBroker) -> None:
    """Store messages of every kind, and let a group read a part of them."""
    async with broker.producer() as producer:
        for at in range(40):
            await producer.send(Message("orders", b'{"order": %d}' % at, tags="paid", keys=[f"order-{at}"]))
        for body in (HTML, BINARY, ANSI, HUGE):
            properties = {"<i>name": "</td><script>alert(2)</script>\x1b[2J"}
            await producer.send(Message("odd", body, tags=HOSTILE_TAG, keys=[HOSTILE_KEY], properties=properties))
    consumer = broker.consumer("billing")
    consumer.subscribe("orders")(_seen)
    async with consumer:
        await broker.until_idle("billing")
    async with broker.producer() as producer:
        for at in range(7):
            await producer.send(Message("orders", b"after", tags="late", keys=[f"late-{at}"]))


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        asyncio.run(fill(running))
        yield running


@pytest.fixture(scope="module")
def served(broker: PocketBroker) -> Iterator[Served]:
    """A read-only dashboard."""
    with serving(DashboardOptions(namesrv=broker.namesrv, interval_s=0.1)) as running:
        yield running


@pytest.fixture(scope="module")
def writing(broker: PocketBroker) -> Iterator[Served]:
    """A dashboard that may change the cluster."""
    with serving(DashboardOptions(namesrv=broker.namesrv, interval_s=0.1, allow_writes=True)) as running:
        yield running

"""50 tests with the real broker; ``pytest -n 4`` shares them among processes.

``pocketmq_broker`` is a fresh broker for each test; ``pocketmq_broker_session`` one for each process of the run, with
topic names that the test chooses.
"""

import asyncio

import pytest

from pocketmq.client import Message, Producer, PushConsumer, ReceivedMessage
from pocketmq.testing import PocketBroker


async def charged(broker: PocketBroker, topic: str, orders: int) -> list[int]:
    """Send orders, and return those that a handler has seen, in its order."""
    seen: list[int] = []
    done = asyncio.Event()
    consumer = PushConsumer("charges", broker.namesrv, start="earliest", rebalance_interval_ms=100)

    @consumer.subscribe(topic, ordered=True)
    async def charge(order: dict[str, int], message: ReceivedMessage) -> None:
        seen.append(order["number"])
        if len(seen) == orders:
            done.set()

    async with Producer("shop", broker.namesrv) as producer:
        for number in range(orders):
            await producer.send(Message.of(topic, {"number": number}, sharding_key="one-customer"))
    async with consumer, asyncio.timeout(60):
        await done.wait()
    return seen


@pytest.mark.parametrize("orders", range(1, 26))
async def test_with_a_broker_of_its_own(pocketmq_broker: PocketBroker, orders: int) -> None:
    """The topic is empty in each test."""
    assert await charged(pocketmq_broker, "Orders", orders) == list(range(orders))


@pytest.mark.parametrize("orders", range(1, 26))
async def test_with_the_broker_of_the_run(pocketmq_broker_session: PocketBroker, orders: int) -> None:
    """Each test has a topic of its own."""
    assert await charged(pocketmq_broker_session, f"Orders-{orders}", orders) == list(range(orders))

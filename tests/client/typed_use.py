"""A use of the SDK whose types mypy checks: see ``test_typing.py``. Nothing imports it."""

import datetime
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from pocketmq.client import Message, PullConsumer, PushConsumer, ReceivedMessage, blocking

consumer = PushConsumer("billing", start="earliest", concurrency=3, message_model="BROADCASTING")
since = PushConsumer("billing", start=datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC))
threads = blocking.PushConsumer("billing", start="latest", concurrency=3)
pulling = PullConsumer("billing", start=1_700_000_000_000)


@consumer.subscribe("Orders")
async def charge(message: ReceivedMessage) -> int:
    return len(message.body)


@consumer.subscribe_batch("Clicks", max_messages=10)
async def count(messages: list[ReceivedMessage]) -> None: ...


@threads.subscribe("Orders")
def plain(message: ReceivedMessage) -> bool:
    return True


@dataclass
class Order:
    number: int


@consumer.subscribe("Typed")
async def ship(order: Order, message: ReceivedMessage) -> str:
    return f"{order.number} {message.msg_id}"


@threads.subscribe_batch("TypedBatch")
def ship_all(orders: list[Order]) -> None: ...


async def call(message: ReceivedMessage) -> None:
    """A unit test calls a handler as the function that it is."""
    assert_type(await charge(message), int)
    await assert_type(count([message]), Coroutine[Any, Any, None])
    assert_type(plain(message=message), bool)
    assert_type(message.decode(Order), Order)
    assert_type(await ship(Order(1), message), str)
    ship_all([Order(1)])
    assert_type(Message.of("Typed", Order(1), sharding_key="1"), Message)

"""A use of the SDK whose types mypy checks: see ``test_typing.py``. Nothing imports it."""

import datetime
from collections.abc import Coroutine
from typing import Any, assert_type

from pocketmq.client import PullConsumer, PushConsumer, ReceivedMessage, blocking

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


async def call(message: ReceivedMessage) -> None:
    """A unit test calls a handler as the function that it is."""
    assert_type(await charge(message), int)
    await assert_type(count([message]), Coroutine[Any, Any, None])
    assert_type(plain(message=message), bool)

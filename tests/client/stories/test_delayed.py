"""Delayed messages from the SDK to the SDK."""

import time
from typing import Any

import pytest

from pocketmq.client import Message, Producer, PullConsumer, SendFailed
from pocketmq.common.errors import MessageIllegal


async def received(namesrv: str, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with PullConsumer(group="delayed", namesrv=namesrv) as consumer:
        async for message in consumer.stream(topic, start="earliest"):
            found.append(message)
            if len(found) == count:
                break
    return found


async def test_each_way_to_ask_for_a_delay_keeps_its_word(broker: Any) -> None:
    """No message is early; each is the one sent, with the id of its receipt; plain messages do not wait."""
    due_ms = time.time_ns() // 1_000_000 + 60
    async with Producer(group="g", namesrv=broker.namesrv) as producer:
        sent_ms = time.time_ns() // 1_000_000
        futures = [
            producer.send_nowait(message)
            for message in (
                Message("Delayed", b"at", deliver_time_ms=due_ms, keys=["k"], tags="A"),
                Message("Delayed", b"after", delay_time_ms=40, properties={"mine": "x"}),
                Message("Delayed", b"past", deliver_time_ms=1),
                Message("Delayed", b"plain"),
            )
        ]
        receipts = [await future for future in futures]
    ids = {receipt.msg_id for receipt in receipts}
    messages = {message.body: message for message in await received(broker.namesrv, "Delayed", 4)}
    assert {message.msg_id for message in messages.values()} == ids
    at, after = messages[b"at"], messages[b"after"]
    assert (at.deliver_time_ms, at.keys, at.tags) == (due_ms, ["k"], "A")
    assert at.store_timestamp >= due_ms
    assert after.store_timestamp >= after.deliver_time_ms >= sent_ms + 40
    assert after.properties["mine"] == "x"
    assert messages[b"plain"].deliver_time_ms is None


async def test_what_the_broker_refuses_names_the_limit(broker: Any) -> None:
    """Four days are too far; the refusal says that no message was stored. Batches contain no delayed message."""
    async with Producer(group="g", namesrv=broker.namesrv) as producer:
        with pytest.raises(SendFailed, match="max delay 259200000ms"):
            await producer.send(Message("Delayed", b"far", delay_time_sec=4 * 86_400))
        with pytest.raises(MessageIllegal, match="by themselves"):
            await producer.send_batch([Message("Delayed", b"x"), Message("Delayed", b"y", delay_time_ms=5)])

"""An application's own id travels with its message, however it is sent."""

from typing import Any

import pytest

from pocketmq.client import IdentifiedMessage, Message, Producer, PullConsumer
from pocketmq.client.durable import DurableRetry
from pocketmq.client.durable.memory_store import MemoryStore
from pocketmq.common.errors import MessageIllegal


def msg_id(number: int) -> str:
    return f"{number:032X}"


@pytest.mark.parametrize("ordered", [False, True])
async def test_the_id_is_the_callers(broker: Any, topic: str, group: str, ordered: bool) -> None:
    """send, send_nowait and send_batch, with and without a key and an order; other messages keep generated ids."""
    retry = DurableRetry(MemoryStore(), order_by_key=True) if ordered else None
    async with Producer(group, namesrv=broker.namesrv, durable_retry=retry) as producer:
        receipts = [await producer.send(IdentifiedMessage(topic, b"1", msg_id=msg_id(1), keys="k"))]
        receipts.append(await producer.send_nowait(IdentifiedMessage(topic, b"2", msg_id=msg_id(2), sharding_key="s")))
        receipts += await producer.send_batch(
            [IdentifiedMessage(topic, b"3", msg_id=msg_id(3), sharding_key="s"), Message(topic, b"4")]
        )
    assert [receipt.msg_id for receipt in receipts[:3]] == [msg_id(1), msg_id(2), msg_id(3)]
    async with PullConsumer(group, namesrv=broker.namesrv) as consumer:
        got = {m.body: m.msg_id async for m in consumer.stream(topic, start="earliest", stop_at_end=True)}
    assert got == {b"%d" % number: receipt.msg_id for number, receipt in enumerate(receipts, 1)}


@pytest.mark.parametrize("text", ["", "x" * 32, "a" * 32, "0" * 31, "0" * 33, 7])
def test_a_bad_id_is_refused(text: Any) -> None:
    """Only the form of generated ids is accepted."""
    with pytest.raises(MessageIllegal, match="msg_id"):
        IdentifiedMessage("T", b"x", msg_id=text)

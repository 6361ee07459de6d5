"""Stages of a producer: their calls, and a producer without them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client import Message, Producer, SendFailed, SendTimeout
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.stages import SendStage
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import Cause


class Seeing(SendStage):
    """Records its calls, as a stage that writes spans would; ``faulty``: raises at the end of each section."""

    body_bytes_max = 0

    def __init__(self, *, faulty: bool = False) -> None:
        self.faulty = faulty
        self.seen: list[tuple[str, Any]] = []
        self.futures: list[asyncio.Future[Any]] = []

    async def start(self) -> None:
        self.seen.append(("start", None))

    async def stop(self, timeout_s: float) -> None:
        self.seen.append(("stop", None))

    def enter(self, send: PendingSend) -> None:
        self.seen.append(("enter", send.message.body))

    def enter_batch(self, messages: Sequence[Message], future: "asyncio.Future[Sequence[Receipt]]") -> None:
        self.seen.append(("enter_batch", len(messages)))
        self.futures.append(future)

    def cut(self, section: Section) -> None:
        self.seen.append(("cut", section.count))

    def settled(self, section: Section, result: Sequence[Receipt] | Exception) -> None:
        if self.faulty:
            raise RuntimeError("a fault of the stage")
        self.seen.append(("settled", type(result).__name__ if isinstance(result, Exception) else len(result)))


class Stamping(SendStage):
    """Puts a property into each message and delays it by a turn, as a stage that signs elsewhere would."""

    body_bytes_max = 0

    def enter(self, send: PendingSend) -> "asyncio.Future[None]":
        async def stamp() -> None:
            send.message.properties = {"stamp": "yes"}

        return asyncio.ensure_future(stamp())


async def test_a_stage_sees_each_send_enter_leave_and_end(broker: Any, topic: str) -> None:
    """It sees its start, the message, its section, the receipts, a batch as one call, and its stop."""
    stage = Seeing()
    async with Producer("seen", broker.namesrv, stages=[stage]) as producer:
        await producer.send(Message(topic, b"one"))
        batch = await producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        producer.send_oneway(Message(topic, b"4"))
    assert [name for name, _ in stage.seen] == [
        "start", "enter", "cut", "settled", "enter_batch", "cut", "settled", "enter", "cut", "stop",
    ]  # fmt: skip
    assert [value for name, value in stage.seen if name == "settled"] == [1, 2]
    assert [receipt.msg_id for receipt in stage.futures[0].result()] == [receipt.msg_id for receipt in batch]


async def test_a_stage_sees_a_failed_section_with_its_error(broker: Any, topic: str) -> None:
    """The batch's future ends with the caller's error."""
    stage = Seeing()
    async with Producer("failed", broker.namesrv, stages=[stage], retry_times_when_send_failed=0) as producer:
        await producer.send(Message(topic, b"route"))

        async def no_connection(*_: Any, **__: Any) -> Any:
            raise SendFailed("no connection")

        producer.instance.connection = no_connection  # type: ignore[method-assign]
        with pytest.raises(SendTimeout):
            await producer.send_batch([Message(topic, b"2")], timeout_ms=100)
    assert ("settled", "SendTimeout") in stage.seen
    assert isinstance(stage.futures[0].exception(), SendTimeout)


async def test_the_fault_of_a_stage_is_no_fault_of_the_send(broker: Any, topic: str) -> None:
    """Its error is logged; receipts arrive, and no send stays counted."""
    async with Producer("faulty", broker.namesrv, stages=[Seeing(faulty=True)]) as producer:
        await producer.send(Message(topic, b"one"))
        assert producer.in_flight_bytes == 0


async def test_stages_that_need_time_keep_the_order_of_their_topic(broker: Any, topic: str) -> None:
    """There are two: a message leaves when both are ready, later ones wait, and it carries both additions."""
    async with Producer("stamped", broker.namesrv, stages=[Stamping(), Stamping()]) as producer:
        messages = [Message(topic, b"%d" % number, sharding_key="k") for number in range(5)]
        receipts = await asyncio.gather(*[producer.send_nowait(message) for message in messages])
    offsets = [receipt.queue_offset for receipt in receipts]
    assert offsets == sorted(offsets)
    assert all(message.properties == {"stamp": "yes"} for message in messages)


def test_the_stage_of_the_documents_counts_failed_messages() -> None:
    """The block in docs/architecture.md runs unchanged and counts."""
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    block = text.partition("### Stages of a producer")[2].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(block, names)
    stage, section = names["refusals"], SimpleNamespace(count=3)
    stage.settled(section, SendFailed("send failed", cause=Cause.QUEUE_FULL))
    stage.settled(section, [])
    assert stage.count == {"queue_full": 3}
    assert stage in names["producer"]._chain.stages

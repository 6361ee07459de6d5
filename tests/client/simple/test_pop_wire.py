"""What a broker answers to pops, where it lies."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.pull.subscription import parse_subscription
from pocketmq.client.simple.pop_wire import ACKNOWLEDGE, PopWire, Settling
from pocketmq.client.simple.popped_message import PoppedMessage
from pocketmq.common.message import Message
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.protocol.pop import NativePopResponseHeader, NativeSettleResponseHeader, PopMessageResponseHeader


def records(count: int) -> list[bytes]:
    builder = PlainRecordBuilder("DefaultCluster")
    return [builder.build(Message("T", b"x"), 0, b"0" * 32, 1_700_000_000_000) for _ in range(count)]


class Broker:
    """A connection whose broker gives one answer to everything."""

    broker_name, address = "b", "127.0.0.1:1"

    def __init__(self, header: Any, body: bytes = b"", *, is_native: bool = True) -> None:
        self.is_native = is_native
        self.answer = SimpleNamespace(code=0, header=header, body=body, remark="", extra={})
        self.channel = self

    async def request(self, *asked: Any, **more: Any) -> Any:
        return self.answer


def wire() -> PopWire:
    return PopWire(ClientInstance("127.0.0.1:1"), "g", "T", parse_subscription("T", "*", 0))


def native(count: int, said: int) -> Broker:
    parts = records(count)
    body = b"".join(len(each).to_bytes(4, "big") for each in parts) + b"".join(parts)
    return Broker(NativePopResponseHeader(1, 1000, said), body)


async def test_answers_that_lie_are_errors() -> None:
    """More than was asked for, and sizes that do not fill the body; the honest answer is none."""
    good: Any = native(2, 2)
    assert len(await wire().pop(good, 2, 1000, 0)) == 2
    for broker, asked in ((native(2, 2), 1), (native(2, 1), 2), (native(2, 3), 3), (native(2, -1), 2)):
        lying: Any = broker
        with pytest.raises(BrokerAnswerError):
            await wire().pop(lying, asked, 1000, 0)
    many: Any = Broker(PopMessageResponseHeader(1, 1000, 0, 0), b"".join(records(3)), is_native=False)
    with pytest.raises(BrokerAnswerError):
        await wire().pop(many, 2, 1000, 0)
    assert await wire().pop(many, 3, 1000, 0) == []  # without offsets nobody could acknowledge them


async def test_an_acknowledgement_without_its_result_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the error."""
    good: Any = native(2, 2)
    pops = wire()
    messages: list[PoppedMessage] = await pops.pop(good, 2, 1000, 0)
    broker = Broker(NativeSettleResponseHeader([0], 1))

    async def connection(*asked: Any, **more: Any) -> Any:
        return broker

    monkeypatch.setattr(pops._instance, "connection", connection)
    loop = asyncio.get_running_loop()
    settlings = [Settling(each, ACKNOWLEDGE, loop.create_future()) for each in messages]
    await pops.settle("b", settlings)
    for each in settlings:
        with pytest.raises(BrokerAnswerError):
            await each.done

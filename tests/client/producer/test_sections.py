"""The one place that makes sections."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import NotStarted
from pocketmq.client.producer.parking import not_running
from pocketmq.client.producer.sections import Sections
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.section import Section
from pocketmq.common.message import Message

QUEUE = MessageQueue("T", "b", 0)


class World:
    """Sections whose sender only records them."""

    def __init__(self) -> None:
        self.sent: list[Section] = []
        self.running = True
        self.in_flight = InFlight(1 << 20)
        sender: Any = SimpleNamespace(send_section=self.sent.append)
        self.sections = Sections(ClientInstance("127.0.0.1:1"), sender, self.in_flight, self.check)

    def check(self) -> None:
        if not self.running:
            raise not_running()

    def section(self, **options: Any) -> Section:
        made = self.sections.new(
            None,
            QUEUE,
            **{
                "started_ns": 1,
                "deadline_ns": 2,
                "attempts_max": 3,
                "plain": True,
                "wait": True,
                "may_move": True,
                **options,
            },
        )
        made.messages, made.uniq_keys = [Message("T", b"x")], [b"U" * 32]
        return made


async def test_a_whole_section_is_one_send_in_flight_and_a_resend_is_none() -> None:
    """Messages that the durable retry resends count against its own limits."""
    world = World()
    first = world.sections.send(world.section())
    assert world.in_flight.sends == 1
    held = world.in_flight.bytes_held
    assert held > 0
    second = world.sections.send(world.section(is_resend=True))
    assert (world.in_flight.sends, world.in_flight.bytes_held) == (1, held)
    assert [section.batch_future for section in world.sent] == [first, second]
    assert not first.done()


async def test_a_oneway_section_has_one_attempt() -> None:
    """No caller learns of a failure, so there is no retry."""
    assert World().section(oneway=True).attempts_max == 1
    assert World().section().attempts_max == 3


async def test_a_producer_that_was_stopped_sends_no_section() -> None:
    """It raises an error, and counts no send."""
    world = World()
    world.running = False
    with pytest.raises(NotStarted):
        world.sections.send(world.section())
    assert not world.sent
    assert world.in_flight.sends == 0

"""The inner interface of a producer."""

import random
from typing import Any

import pytest

from pocketmq.client.errors import NotStarted
from pocketmq.client.producer.pending_send import SendHooks
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.producer.submission import Submission
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from tests.client.producer.producer_fakes import QUEUES, FakeInstance, FakeSender, pending, route_of

MS = 1_000_000


class World:
    """A port whose producer sends no bytes."""

    def __init__(self) -> None:
        self.instance = FakeInstance()
        self.sender = FakeSender()
        self.in_flight = InFlight(1 << 20)
        sender: Any = self.sender
        chooser = QueueChooser(self.instance.clock, random.Random(1), None)
        options = ProducerOptions(send_msg_timeout_ms=500, retry_times_when_send_failed=4)
        self.way = Submission(self.instance, options, self.in_flight, chooser, sender, SendHooks(100))
        self.port = SendPort(self.way, chooser, {10})
        self.way.begin()


async def test_messages_travel_as_one_section_past_the_stages() -> None:
    """They have the producer's time and attempts; they are not in flight, because a stage has its own limits."""
    world = World()
    messages = [Message("T", b"1", wait_store_msg_ok=False), Message("T", b"2", wait_store_msg_ok=False)]
    receipts = await world.port.send(messages, QUEUES[1], plain=True, may_move=False)
    (section,) = world.sender.sections
    assert (section.is_resend, section.may_move, section.wait, section.queue) == (True, False, False, QUEUES[1])
    assert (section.attempts_max, section.deadline_ns - section.started_ns) == (5, 500 * MS)
    assert (section.messages, len(set(section.uniq_keys))) == (messages, 2)
    assert world.in_flight.sends == 0
    assert len(receipts) == 2


async def test_a_section_may_have_ids_times_and_attempts_of_its_own() -> None:
    """A resend needs them, because it must not look like a new message."""
    world = World()
    world.port.send(
        [Message("T", b"1")],
        QUEUES[0],
        plain=True,
        may_move=True,
        uniq_keys=[b"U" * 32],
        started_ns=7,
        deadline_ns=9,
        attempts_max=1,
    )
    (section,) = world.sender.sections
    assert (section.uniq_keys, section.started_ns, section.deadline_ns, section.attempts_max) == ([b"U" * 32], 7, 9, 1)


@pytest.mark.parametrize(("wait", "expected"), [(None, True), (True, True), (False, False)])
async def test_rows_say_by_an_argument_whether_they_wait_for_the_disk(wait: bool | None, expected: bool) -> None:
    """Rows have no messages with such a setting."""

    class Rows:
        size_bytes = 1

        def __len__(self) -> int:
            return 1

    rows: Any = Rows()
    world = World()
    world.port.send(rows, QUEUES[0], plain=True, wait=wait, may_move=True, uniq_keys=[b"U" * 32])
    (section,) = world.sender.sections
    assert (section.rows, section.wait, section.messages) == (rows, expected, [])


async def test_a_send_that_a_stage_has_taken_counts_until_it_is_settled() -> None:
    """Its caller gets the result, once."""
    world = World()
    send = pending(b"x")
    world.port.hold(send)
    assert (world.in_flight.sends, world.in_flight.bytes_held) == (1, send.size_bytes)
    error = PocketMQError("given up")
    world.port.settle(send, error)
    assert (world.in_flight.sends, world.in_flight.bytes_held) == (0, 0)
    assert send.future is not None
    assert send.future.exception() is error


async def test_the_port_finds_a_route_and_a_queue() -> None:
    """They are those of a send without a key."""
    world = World()
    world.instance.know(route_of(QUEUES[2]))
    route = await world.port.route("T")
    assert world.port.any_queue(route) == QUEUES[2]


async def test_a_single_message_goes_the_way_of_all() -> None:
    """``send_nowait`` checks it and puts it into the section of its turn; after the stop it raises."""
    world = World()
    world.instance.know(route_of())
    future = world.port.send_nowait(Message("T", b"x"))
    world.way.flush()
    (frame,) = world.sender.frames
    assert frame.sections[0].futures == [future]
    assert world.port.running
    world.way.running = False
    assert not world.port.running
    with pytest.raises(NotStarted):
        world.port.send_nowait(Message("T", b"x"))
    with pytest.raises(NotStarted):
        world.port.send([Message("T", b"x")], QUEUES[0], plain=True, may_move=True)

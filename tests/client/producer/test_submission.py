"""The way of single sends into sections."""

import asyncio
import random
from typing import Any

import pytest

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import NotStarted
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.producer.pending_send import PendingSend, SendHooks
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.selectors import select_by_hash
from pocketmq.client.producer.submission import Submission
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, Section
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import Message
from pocketmq.remoting.errors import RemotingTooMuchRequestError
from tests.client.producer.producer_fakes import QUEUES, FakeInstance, FakeSender, route_of


class World:
    """The submission of a producer whose sender only keeps the frames; ``asked`` has the hooks' calls."""

    def __init__(self, *, known: bool = True, takes: str = "", **options: Any) -> None:
        self.instance = instance = FakeInstance()
        if known:
            instance.know(route_of())
        self.sender = FakeSender()
        self.in_flight = InFlight(1 << 30)
        self.takes = takes
        self.asked: list[str] = []
        hooks = SendHooks(100, lambda send: self.asked.append("enter"), self.take, self.place)
        sender: Any = self.sender
        chooser = QueueChooser(instance.clock, random.Random(1), None)
        self.way = Submission(instance, ProducerOptions(**options), self.in_flight, chooser, sender, hooks)
        self.way.begin()

    def take(self, send: PendingSend) -> bool:
        self.asked.append("take")
        return self.takes == "take"

    def place(self, send: PendingSend, queue: MessageQueue) -> bool:
        self.asked.append(f"place {queue.broker_name}{queue.queue_id}")
        return self.takes == "place"

    def send(self, body: bytes = b"x", *, oneway: bool = False, timeout_ms: int | None = None, **fields: Any) -> None:
        future: asyncio.Future[Receipt] | None = None if oneway else self.way.new_future()
        self.way.submit(Message("T", body, **fields), None, timeout_ms, oneway, future, 3)

    @property
    def sections(self) -> list[Section]:
        return [section for frame in self.sender.frames for section in frame.sections]


async def test_sends_of_a_turn_share_a_section_and_leave_at_its_end() -> None:
    """They leave then, not before, and count as in flight."""
    world = World()
    world.send(b"1")
    world.send(b"2")
    assert (world.sections, world.in_flight.sends) == ([], 0)
    await asyncio.sleep(0)
    (section,) = world.sections
    assert [message.body for message in section.messages] == [b"1", b"2"]
    assert (section.permits, world.in_flight.sends, len(section.futures)) == (2, 2, 2)


async def test_a_full_frame_leaves_at_once() -> None:
    """The next send opens another."""
    world = World()
    world.send(bytes(FRAME_BYTES_TARGET))
    assert len(world.sections) == 1
    world.send(b"2")
    await asyncio.sleep(0)
    assert [section.count for section in world.sections] == [1, 1]


async def test_what_differs_travels_apart() -> None:
    """Oneway sends, keys, different timeouts, and messages that do not wait for the disk."""
    world = World()
    world.send()
    world.send(oneway=True)
    world.send(sharding_key="k")
    world.send(timeout_ms=100)
    world.send(timeout_ms=101)  # it ends with the previous one
    world.send(wait_store_msg_ok=False)
    await asyncio.sleep(0)
    by_kind = sorted((s.oneway, s.may_move, s.wait, s.deadline_ns - s.started_ns, s.count) for s in world.sections)
    ms = 1_000_000
    assert by_kind == [
        (False, False, True, 3000 * ms, 1),
        (False, True, False, 3000 * ms, 1),
        (False, True, True, 100 * ms, 2),
        (False, True, True, 3000 * ms, 1),
        (True, True, True, 3000 * ms, 1),
    ]
    assert world.in_flight.oneways == 1


async def test_stages_are_asked_in_the_order_of_the_way() -> None:
    """``enter`` for all, ``take`` before the route, ``place`` with a queue; never for oneway sends."""
    world = World()
    queue = select_by_hash("k", QUEUES)
    world.send()
    world.send(sharding_key="k")
    world.send(sharding_key="k", oneway=True)
    assert world.asked == ["enter", "take", "enter", "take", f"place {queue.broker_name}{queue.queue_id}", "enter"]


@pytest.mark.parametrize("takes", ["take", "place"])
async def test_what_a_stage_has_taken_is_not_sent(takes: str) -> None:
    """It opens no section and does not count."""
    world = World(takes=takes)
    world.send(sharding_key="k")
    await asyncio.sleep(0)
    assert (world.sections, world.in_flight.sends) == ([], 0)


async def test_a_send_without_a_route_is_parked_and_no_later_one_overtakes_it() -> None:
    """Both leave when the route is known."""
    world = World(known=False)
    world.send(b"1")
    world.instance.routes.put(route_of(), world.instance.clock.monotonic_ns())
    world.send(b"2")
    assert len(world.way.parking.waiting["T"]) == 2
    world.instance.found.set_result(route_of())
    await world.way.parking.tasks.wait(60)
    world.way.flush()
    (section,) = world.sections
    assert [message.body for message in section.messages] == [b"1", b"2"]


async def test_no_room_is_said_at_once_or_waited_for() -> None:
    """``submit`` refuses; ``wait_for_room`` waits, and refuses after the timeout."""
    world = World()
    world.in_flight.add(1 << 30, 1, False)
    with pytest.raises(RemotingTooMuchRequestError):
        world.send()
    with pytest.raises(RemotingTooMuchRequestError):
        await world.way.wait_for_room(1)
    waiting = asyncio.ensure_future(world.way.wait_for_room(None))
    await asyncio.sleep(0)
    world.in_flight.remove(1 << 30, 1, False)
    await waiting


async def test_half_messages_share_sections_of_their_own() -> None:
    """The second one takes the short path; one with its own immunity travels alone."""
    world = World()
    for immunity in (None, None, 30):
        world.way.send_half(HalfMessage(Message("T", b"x"), "g", immunity), None, None)
    world.send()
    await asyncio.sleep(0)
    assert sorted((s.half, s.plain, s.count) for s in world.sections) == [
        (False, True, 1),
        (True, False, 1),
        (True, True, 2),
    ]
    assert world.asked.count("enter") == 3


async def test_nothing_is_sent_before_the_start_or_with_an_impossible_timeout() -> None:
    """Each raises an error."""
    world = World()
    with pytest.raises(ConfigError, match="timeout_ms"):
        world.send(timeout_ms=0)
    world.way.running = False
    with pytest.raises(NotStarted):
        world.send()
    with pytest.raises(NotStarted):
        world.way.send_half(HalfMessage(Message("T", b"x"), "g"), None, None)

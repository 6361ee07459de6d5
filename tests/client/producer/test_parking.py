"""Sends that wait for a route, or for a stage."""

import asyncio
from typing import Any

import pytest

from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import NoRoute, NotStarted
from pocketmq.client.producer.parking import Parking
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.errors import RemotingTooMuchRequestError
from tests.client.producer.producer_fakes import FakeInstance, pending, route_of

LONG_S = 60


class World:
    """Parked sends, which end in ``placed``; with ``keeps`` a stage keeps those without a route."""

    def __init__(self, *, keeps: bool = False) -> None:
        self.instance = FakeInstance()
        self.in_flight = InFlight(1 << 20)
        self.placed: list[bytes] = []
        self.refusal: PocketMQError | None = None
        self.keeps = keeps
        self.offered: list[tuple[bytes, bool]] = []
        self.parking = Parking(self.instance, self.in_flight, 3000, self.place, self.unrouted)

    def place(self, send: PendingSend, route: TopicRoute) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.placed.append(send.message.body)

    def unrouted(self, send: PendingSend, error: PocketMQError, *, early: bool) -> bool:
        self.offered.append((send.message.body, early))
        return self.keeps

    def park(self, *bodies: bytes, **options: Any) -> list[PendingSend]:
        sends = [pending(body, **options) for body in bodies]
        for send in sends:
            self.parking.park(send)
        return sends

    async def all_left(self) -> None:
        await self.parking.tasks.wait(LONG_S)
        assert not self.parking.waiting


async def test_sends_enter_in_order_when_their_route_is_there() -> None:
    """They count as in flight while they wait, one look-up serves all sends of a topic, and none stays behind."""
    world = World()
    world.park(b"1", b"2")
    world.park(b"3", oneway=True)
    assert (world.in_flight.sends, world.in_flight.oneways) == (2, 1)
    world.instance.found.set_result(route_of())
    await world.all_left()
    assert world.placed == [b"1", b"2", b"3"]
    assert (world.in_flight.sends, world.in_flight.oneways, world.in_flight.bytes_held) == (0, 0, 0)
    assert world.instance.asked == 1


async def test_sends_without_a_route_fail() -> None:
    """Each fails with the error of the look-up, after the stages were asked; stages do not see oneway sends."""
    world = World()
    first, second = world.park(b"1", b"2")
    world.park(b"3", oneway=True)
    error = NoRoute("no route")
    world.instance.found.set_exception(error)
    await world.all_left()
    for send in (first, second):
        assert send.future is not None
        assert send.future.exception() is error
    assert world.offered == [(b"1", False), (b"2", False)]
    assert (world.in_flight.sends, world.in_flight.oneways, world.in_flight.bytes_held) == (0, 0, 0)


async def test_a_stage_may_keep_what_has_no_route() -> None:
    """It counts as in flight until the stage settles it."""
    world = World(keeps=True)
    (send,) = world.park(b"1")
    world.instance.found.set_exception(NoRoute("no route"))
    await world.all_left()
    assert send.future is not None
    assert not send.future.done()
    assert world.in_flight.sends == 1
    error = PocketMQError("not safe")
    world.parking.settle(send, error)
    assert send.future.exception() is error
    assert (world.in_flight.sends, world.in_flight.bytes_held) == (0, 0)


async def test_a_send_with_a_time_of_its_own_does_not_wait_longer() -> None:
    """It ends, or a stage keeps it, while the sends around it still wait: the stage learns that it is early."""
    world = World()
    now_ns = world.instance.time.monotonic_ns()
    world.park(b"1")
    (short,) = world.park(b"2", deadline_ns=now_ns)
    world.park(b"3")
    assert short.future is not None
    with pytest.raises(RemotingTooMuchRequestError, match="no route of T"):
        await short.future
    assert world.offered == [(b"2", True)]
    world.instance.found.set_result(route_of())
    await world.all_left()
    assert world.placed == [b"1", b"3"]


async def test_a_send_that_a_stage_works_on_holds_those_behind_it() -> None:
    """Sends before it go on; later ones queue behind it; then all follow in order."""
    world = World()
    world.instance.found.set_result(route_of())
    world.park(b"1")
    slow = pending(b"2")
    slow.ready = ready = asyncio.get_running_loop().create_future()
    has_passed = asyncio.Event()
    real = world.place

    def place(send: PendingSend, route: TopicRoute) -> None:
        real(send, route)
        has_passed.set()

    world.parking._place = place
    world.parking.park(slow)
    world.park(b"3")
    await has_passed.wait()
    assert world.placed == [b"1"]
    world.park(b"4")
    ready.set_result(None)
    await world.all_left()
    assert world.placed == [b"1", b"2", b"3", b"4"]


async def test_a_stage_whose_work_failed_does_not_stop_the_message() -> None:
    """It is sent unchanged, and the log has the error."""
    world = World()
    world.instance.found.set_result(route_of())
    send = pending(b"1")
    send.ready = asyncio.get_running_loop().create_future()
    send.ready.set_exception(RuntimeError("a fault"))
    world.parking.park(send)
    await world.all_left()
    assert world.placed == [b"1"]
    assert world.instance.faults.errors == ["compression_failed"]


async def test_a_send_that_cannot_be_placed_ends_with_the_reason() -> None:
    """For instance, a selector chose no queue; the sends behind it are not affected."""
    world = World()
    world.refusal = PocketMQError("no such queue")
    (send,) = world.park(b"1")
    world.instance.found.set_result(route_of())
    await world.all_left()
    assert send.future is not None
    assert send.future.exception() is world.refusal
    assert world.in_flight.sends == 0


async def test_a_stop_ends_what_still_waits() -> None:
    """With ``NotStarted``, or a stage keeps it."""
    world = World()
    (send,) = world.park(b"1")
    await asyncio.sleep(0)  # the look-up has begun
    await world.parking.tasks.cancel()
    assert send.future is not None
    assert isinstance(send.future.exception(), NotStarted)
    assert world.offered == [(b"1", False)]

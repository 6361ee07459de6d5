"""Automatic renewal: the steps, the end of it, and what happens to the messages of a client that has gone."""

from typing import Any, cast

import pytest

pytest.importorskip("h2", reason="gRPC needs h2: pip install 'pocketmq[grpc]'")

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.grpc.callers import Caller
from pocketmq.broker.grpc.renewal import AHEAD_MS, GONE_MS, RENEW_MS_MAX, STEPS_MS, Held, Renewal
from pocketmq.common.clock import ManualClock
from pocketmq.common.receipt_handle import HandleIllegal, ReceiptHandle
from tests.broker.conftest import Harness, eventually
from tests.broker.grpc.grpc_rig import Rig, handle_of, id_of

NOW_MS = 1_700_000_000_000


class Client:
    user = ""
    client_id = "c1"


class World:
    """A clock, one client, and a broker that renews, or does not."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.client = cast(Any, Client())
        self.is_here = True
        self.renews = True
        self.asked: list[int] = []
        self.renewal = Renewal(cast(Any, self), self._change, self.clock)
        self.caller = cast(Caller, type("C", (), {"client": self.client, "session": None})())

    def is_here_(self, client: Any) -> bool:
        return self.is_here

    async def _change(self, held: Held, invisible_ms: int) -> ReceiptHandle | None:
        self.asked.append(invisible_ms)
        return held.handle.renewed(self.clock.now_ms(), invisible_ms) if self.renews else None

    def hand_out(self, message_id: str = "m1") -> ReceiptHandle:
        handle = ReceiptHandle(0, self.clock.now_ms(), 60_000, 0, "0", "b", 0, 0)
        self.renewal.add(self.caller, "g", "T", message_id, handle)
        return handle


@pytest.fixture
def world() -> World:
    found = World()
    found.renewal._clients = cast(Any, type("Clients", (), {"is_here": lambda _, client: found.is_here})())
    return found


async def test_what_ends_soon_is_renewed_by_longer_and_longer_steps(world: World) -> None:
    world.hand_out()
    for step_ms in (60_000, *STEPS_MS[:-1]):
        world.clock.advance_ms(step_ms - AHEAD_MS - 1)
        before = len(world.asked)
        await world.renewal.step()
        assert len(world.asked) == before
        world.clock.advance_ms(1)
        await world.renewal.step()
    assert world.asked == list(STEPS_MS)


async def test_an_old_handle_counts_as_the_newest_one(world: World) -> None:
    given = world.hand_out()
    world.clock.advance_ms(55_000)
    await world.renewal.step()
    newest = world.renewal.newest(world.client, "g", "m1", str(given))
    assert (newest.pop_time, newest.invisible_time) == (NOW_MS + 55_000, 60_000)
    assert world.renewal.newest(world.client, "g", "another", str(given)) == given
    world.renewal.done(world.client, "g", "m1", str(given))
    assert not world.renewal.held
    with pytest.raises(HandleIllegal):
        world.renewal.newest(world.client, "g", "m1", "forged")


async def test_renewal_ends_after_three_hours(world: World) -> None:
    world.hand_out()
    while world.renewal.held:
        world.clock.advance_ms(55_000)
        await world.renewal.step()
    assert RENEW_MS_MAX < world.clock.now_ms() - NOW_MS <= RENEW_MS_MAX + STEPS_MS[-1]
    assert GONE_MS not in world.asked


async def test_what_a_client_that_has_gone_held_is_for_others_in_a_second(world: World) -> None:
    world.hand_out("m1")
    world.hand_out("m2")
    world.is_here = False
    world.clock.advance_ms(55_000)
    await world.renewal.step()
    assert (world.asked, len(world.renewal.held)) == ([GONE_MS, GONE_MS], 0)
    world.hand_out("m3")
    await world.renewal.gone(world.client)
    assert world.asked[2:] == [GONE_MS]


async def test_what_can_be_renewed_no_more_is_forgotten(world: World) -> None:
    world.hand_out()
    world.renews = False
    world.clock.advance_ms(55_000)
    await world.renewal.step()
    assert not world.renewal.held


@pytest.mark.usefixtures("brokers_in_memory")
async def test_a_broker_renews_and_takes_an_ack_by_the_first_handle(harness: Harness) -> None:
    app: BrokerApp = await harness.broker(grpc_port=-1)
    app.topics.create("T", 1)
    rig = await Rig.connect(app)
    await rig.sent(b"slow")
    await rig.consumes()
    _, [found] = await rig.receive(auto_renew=True)
    assert app._grpc is not None
    renewal = app._grpc._renewal
    assert renewal is not None
    [held] = renewal.held.values()
    held.handle = ReceiptHandle.parse(handle_of(found))
    changed = await renewal._change(held, 60_000)
    assert changed is not None
    held.handle = changed
    assert str(changed) != handle_of(found)
    answer = await rig.ack(found)
    assert answer.status is not None
    assert answer.status.code == 20000
    assert id_of(found)
    await eventually(lambda: not renewal.held)
    await rig.client.close()

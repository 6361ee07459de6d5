"""The table of gRPC clients: limits, memory, those that go silent; the upkeep that looks after them."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("h2", reason="gRPC needs h2: pip install 'pocketmq[grpc]'")

from pocketmq.broker.grpc import clients as module
from pocketmq.broker.grpc.clients import GrpcClient, GrpcClients, HeldBytes, TooManyClients
from pocketmq.remoting.grpc import messages as m
from tests.broker.conftest import Harness, eventually
from tests.broker.grpc.grpc_rig import Rig, topic

pytestmark = pytest.mark.usefixtures("brokers_in_memory")


class Stream:
    closed = False


def client_of(memory: HeldBytes) -> GrpcClient:
    made: Any = GrpcClient("c", "", None, memory)  # type: ignore[arg-type]
    made.stream = Stream()
    found: GrpcClient = made
    return found


async def test_clients_have_a_limit_and_those_without_settings_give_way(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 3)
    app = await harness.broker(grpc_port=-1)
    app.topics.create("T", 1)
    rigs = []
    for number in range(2):
        rig = await Rig.connect(app, f"settled-{number}")
        await rig.produces("T")
        rigs.append(rig)
    for number in range(3):  # each takes the place of the one before
        rig = await Rig.connect(app, f"fleeting-{number}")
        answer = await rig.client.call("QueryRoute", m.QueryRouteRequest(topic=topic()), m.QueryRouteResponse)
        assert answer.status is not None
        assert answer.status.code == 20000
        rigs.append(rig)
    await rigs[-1].produces("T")
    refused = await Rig.connect(app, "one-too-many")
    answer = await refused.client.call("QueryRoute", m.QueryRouteRequest(topic=topic()), m.QueryRouteResponse)
    assert answer.status is not None
    assert (answer.status.code, "3 gRPC clients are known" in answer.status.message) == (42900, True)
    for rig in (*rigs, refused):
        await rig.client.close()


def test_settings_and_commands_share_a_memory() -> None:
    memory = HeldBytes()
    one, two = client_of(memory), client_of(memory)
    one.keep(m.Settings(subscription=m.Subscription(group=topic("g" * 1000))))
    before = memory.used_bytes
    assert before > 8_000
    one.keep(m.Settings())
    assert memory.used_bytes < before
    while two.tell(m.TelemetryCommand(), body_bytes=4 << 20):
        pass
    assert len(two.commands) < module.COMMANDS_MAX
    with pytest.raises(TooManyClients):
        one.keep(m.Settings(subscription=m.Subscription(group=topic("g" * (4 << 20)))))
    two.drop()
    while two.tell(m.TelemetryCommand()):
        pass
    assert len(two.commands) == module.COMMANDS_MAX
    one.drop()
    two.drop()
    assert memory.used_bytes == 0


async def test_a_client_that_is_silent_is_forgotten(harness: Harness) -> None:
    app = await harness.broker(grpc_port=-1)
    app.topics.create("T", 1)
    rig = await Rig.connect(app)
    await rig.produces("T")
    assert app._grpc is not None
    clients = app._grpc.clients
    assert isinstance(clients, GrpcClients)
    [client] = clients
    assert clients.is_here(client)
    await rig.client.close()
    await eventually(lambda: client.stream is None)
    assert clients.is_here(client)  # it has made a call a moment ago
    client.seen_ns -= module.IDLE_NS
    assert not clients.is_here(client)
    clients.sweep()
    assert len(clients) == 0
    await eventually(lambda: not app.clients.has_producer("T"))


async def test_a_round_that_fails_is_logged_and_the_next_one_comes(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pocketmq.broker.grpc import entrance

    monkeypatch.setattr(entrance, "STEP_S", 0.001)
    app = await harness.broker(grpc_port=-1)
    grpc = app._grpc
    assert grpc is not None
    assert grpc._renewal is not None
    rounds = 0

    async def step() -> None:
        nonlocal rounds
        rounds += 1
        raise KeyError("a bug")

    monkeypatch.setattr(grpc._renewal, "step", step)
    await eventually(lambda: rounds >= 2)
    assert any(event == "grpc_call_failed" for event, _ in events_of(harness.log))
    await asyncio.sleep(0)


def events_of(log: Any) -> list[tuple[str, Any]]:
    return [(each["event"], each) if isinstance(each, dict) else (each[0], each) for each in log.events]

"""A topic is known to the name servers before its first receipt; one that is silent or away delays no send."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.topic import CreateTopicListBody, CreateTopicRequestHeader, TopicConfigBody
from pocketmq.remoting.server import Connection
from tests.broker.conftest import Client, Harness, eventually


class SlowNamesrv(NamesrvApp):
    """A name server that keeps registrations to itself while ``holds``."""

    def __init__(self) -> None:
        super().__init__(NamesrvConfig(listen_port=0))
        self.holds = False
        self.held: list[tuple[Connection, Request]] = []

    def on_request(self, connection: Connection, request: Request) -> None:
        if self.holds and request.code == RequestCode.REGISTER_BROKER:
            self.held.append((connection, request))
        else:
            super().on_request(connection, request)

    def release(self) -> None:
        self.holds = False
        for connection, request in self.held:
            super().on_request(connection, request)
        self.held.clear()


@pytest.fixture
async def namesrv() -> Any:
    app = SlowNamesrv()
    await app.start()
    yield app
    await app.stop()


@pytest.fixture
async def broker(harness: Harness, namesrv: SlowNamesrv) -> BrokerApp:
    app = await harness.broker(namesrv_addr=namesrv.address)
    await eventually(lambda: namesrv.routes.route("TBW102"))
    return app


async def first_send(client: Client) -> None:
    response = await client.append(("New", 0, [client.record("New", b"x")]))
    assert response.header.results[0][0] == 0


async def first_rocketmq_send(client: Client) -> None:
    assert (await client.send(topic="New")).code == 0


async def create(client: Client) -> None:
    header = CreateTopicRequestHeader("New", "TBW102", 1, 1, 6, "SINGLE_TAG")
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0


async def create_list(client: Client) -> None:
    made = [TopicConfigBody(topic_name="New", read_queue_nums=1, write_queue_nums=1)]
    body = encode_body(CreateTopicListBody(topic_config_list=made))
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)).code == 0


@pytest.mark.parametrize("ask", [first_send, first_rocketmq_send, create, create_list])
async def test_the_answer_comes_after_the_registration(
    harness: Harness, namesrv: SlowNamesrv, broker: BrokerApp, monkeypatch: pytest.MonkeyPatch, ask: Any
) -> None:
    """Of a first send, and of an administrator's request; both wait while the name server has not registered it."""
    monkeypatch.setattr(RegisteredTopics, "wait_ms", 60_000)
    client = await harness.client(broker)
    other = await harness.client(broker)
    namesrv.holds = True
    asked = asyncio.ensure_future(ask(client))
    await eventually(lambda: namesrv.held)
    for _ in range(20):
        await other.pull(topic="TBW102")
    assert not asked.done()
    assert namesrv.routes.route("New") is None
    namesrv.release()
    await asked
    route = namesrv.routes.route("New")
    assert route is not None
    assert [each.broker_name for each in route.queue_datas] == ["broker-a"]


async def test_a_silent_name_server_delays_no_second_send(
    harness: Harness, namesrv: SlowNamesrv, broker: BrokerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one waits its time, the next ones none at all; all are stored."""
    monkeypatch.setattr(RegisteredTopics, "wait_ms", 1)
    client = await harness.client(broker)
    namesrv.holds = True
    await first_send(client)
    monkeypatch.setattr(RegisteredTopics, "wait_ms", 600_000)
    response = await client.append(("Newer", 0, [client.record("Newer", b"x")]))
    assert response.header.results[0][0] == 0
    assert [event["event"] for event in harness.log.events].count("namesrv_silent") == 1
    namesrv.release()
    await eventually(lambda: namesrv.routes.route("Newer"))


async def test_a_name_server_that_is_away_delays_no_send(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never there, or gone since: the send succeeds as without one."""
    monkeypatch.setattr(RegisteredTopics, "wait_ms", 600_000)
    namesrv = SlowNamesrv()
    await namesrv.start()
    address = namesrv.address
    broker = await harness.broker(namesrv_addr=address)
    client = await harness.client(broker)
    await first_send(client)
    await namesrv.stop()
    response = await client.append(("Newer", 0, [client.record("Newer", b"x")]))
    assert response.header.results[0][0] == 0
    alone = await harness.broker(name="other", namesrv_addr=address)
    await first_send(await harness.client(alone))

"""A real broker for the tests of this folder, and a scripted one for answers that a real one seldom gives."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pocketmq.client import ClientInstance, ClientOptions, NoRoute
from pocketmq.client.connection.route import TopicRoute
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.codec import encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.namesrv import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.server import RemotingServer, ServerConfig
from pocketmq.testing.broker import PocketBroker
from tests.client.scripted import NATIVE, store
from tests.memory import brokers_in_memory, path_in_memory  # noqa: F401, for all tests here


@pytest.fixture(scope="package")
def broker() -> Iterator[Any]:
    """Start one broker for all tests here; each test uses its own topic and groups."""
    with PocketBroker() as running:
        yield running


@pytest.fixture(scope="package")
def numbers() -> Any:
    return itertools.count()


@pytest.fixture
def topic(numbers: Iterator[int]) -> Any:
    """Return a topic that no other test uses."""
    return f"Topic-{next(numbers)}"


@pytest.fixture
def group(numbers: Iterator[int]) -> Any:
    """Return a group that no other test uses."""
    return f"group-{next(numbers)}"


@pytest.fixture
def fast() -> Any:
    """Return options of a client that does not wait long."""
    return ClientOptions(poll_name_server_interval_ms=100, heartbeat_broker_interval_ms=200)


async def until_known(instance: ClientInstance, topic: str) -> TopicRoute:
    """Return a topic's route once the name server knows it: a broker registers it a moment after the answer to its
    first send, and a client with an open connection to the name server may ask for it before that."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await instance.refresh(topic)
            except NoRoute:
                await asyncio.sleep(0.001)


class ScriptedServer:
    """A remoting server whose answers a test decides: ``answers[code]`` is a function of (connection, request). It
    returns (response code, remark, header, body[, extra fields]), or None for no answer. ``requests`` keeps the
    requests.
    """

    def __init__(self, announcement: Any = None) -> None:
        self.answers: dict[int, Any] = {}
        self.requests: list[Any] = []
        self._announcement = announcement
        self._server: RemotingServer

    @property
    def address(self) -> Any:
        return f"127.0.0.1:{self._server.port}"

    async def start(self) -> None:
        self._server = RemotingServer(
            ServerConfig(),
            self,
            announce=lambda connection: self._announcement or Announcement(native=0),
            log=NullLog(),
            clock=SystemClock(),
        )
        await self._server.start("127.0.0.1", 0)

    async def stop(self) -> None:
        await self._server.stop(grace_ms=100)

    def on_open(self, connection: Any) -> None:
        pass

    def on_close(self, connection: Any, reason: Any) -> None:
        pass

    def on_request(self, connection: Any, request: Any) -> None:
        self.requests.append(request)
        answer = self.answers.get(request.code)
        result = answer(connection, request) if answer else (ResponseCode.SUCCESS, "", None, b"")
        if result is None or request.oneway:
            return
        code, remark, header, body, extra = (*result, None)[:5]
        connection.respond(
            encode_response(
                code,
                request.opaque,
                request.code,
                header=header,
                remark=remark,
                body=body,
                serialize_type=request.serialize_type,
                extra=extra,
            )
        )

    def codes(self) -> Any:
        return [request.code for request in self.requests]


class ScriptedCluster:
    """A name server and brokers, all of them scripted."""

    def __init__(self) -> None:
        self.namesrv = ScriptedServer()
        self.brokers: dict[str, ScriptedServer] = {}
        self.topics: dict[str, list[str]] = {}
        self.namesrv.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route

    async def add(self, name: Any, *, native: Any = 1) -> Any:
        server = ScriptedServer(Announcement(native=native, cluster="c", broker=name))
        await server.start()
        self.brokers[name] = server
        return server

    def _route(self, connection: Any, request: Any) -> Any:
        known = self.topics.get(request.header.topic)
        if known is None:
            return (
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {request.header.topic}",
                None,
                b"",
            )
        data = TopicRouteData(
            queue_datas=[QueueData(name, 2, 2, 6) for name in known],
            broker_datas=[BrokerData("c", name, {"0": self.brokers[name].address}) for name in known],
        )
        return ResponseCode.SUCCESS, "", None, encode_body(data)

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in (self.namesrv, *self.brokers.values())))


@pytest.fixture
async def cluster() -> AsyncIterator[Any]:
    """An empty scripted cluster, to which tests add brokers and topics."""
    running = ScriptedCluster()
    await running.namesrv.start()
    yield running
    await running.stop()


@pytest.fixture
def instance_of() -> Any:
    """Make client instances with options."""

    def make(namesrv: Any, **options: Any) -> Any:
        return ClientInstance(namesrv, options=ClientOptions(**options))

    return make


@pytest.fixture
async def one(cluster: ScriptedCluster) -> ScriptedCluster:
    """Broker a with topic T."""
    (await cluster.add("a")).answers[NATIVE] = store
    cluster.topics["T"] = ["a"]
    return cluster


@pytest.fixture
async def two(cluster: ScriptedCluster) -> ScriptedCluster:
    """Brokers a and b, topic T on both."""
    for name in ("a", "b"):
        (await cluster.add(name)).answers[NATIVE] = store
    cluster.topics["T"] = ["a", "b"]
    return cluster

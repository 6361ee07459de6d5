"""Which events a writer of chunks waits for, and which it does not."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import ClientInstance, ClientOptions, NoRoute
from pocketmq.client.staged import chunk_target
from pocketmq.client.staged.chunk_target import BrokersUnreachableError, Patience
from pocketmq.client.staged.staged_transaction import StagedTransactions
from pocketmq.common.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.namesrv import BrokerData, ClusterInfo, QueueData, TopicRouteData
from tests.client.real_cluster import RealCluster
from tests.client.stories.test_staged_transactions import batch, bodies, stage


class Door:
    """A port in front of a server. While it is shut it hangs up at once, and sets ``knocked``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._open = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.knocked = asyncio.Event()

    async def __aenter__(self) -> "Door":
        self._server = await asyncio.start_server(self._visit, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self) -> None:
        self._open = True

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.close()
            self.knocked.set()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        other_reader, other_writer = await asyncio.open_connection(self._host, self._port)
        try:
            await asyncio.gather(self._copy(reader, other_writer), self._copy(other_reader, writer))
        finally:
            writer.close()
            other_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealCluster]:
    running = RealCluster(tmp_path)
    await running.start("a")
    await running.create_topic("T", 2)
    yield running
    await running.stop_all()


async def test_a_write_waits_for_a_name_server_that_does_not_answer(real: RealCluster) -> None:
    """A write and another client's commit begin while no server answers; both succeed."""
    async with Door(real.namesrv) as door, StagedTransactions("etl", door.address) as transactions:
        writing = asyncio.create_task(stage(transactions, 0, batch(0, 10)))
        await asyncio.wait([writing, asyncio.create_task(door.knocked.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not writing.done(), writing.exception()
        door.open()
        part = await writing
    async with Door(real.namesrv) as door, StagedTransactions("etl", door.address) as transactions:
        commit = asyncio.create_task(transactions.commit("job", 0, [part]))
        await asyncio.wait([commit, asyncio.create_task(door.knocked.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not commit.done(), commit.exception()
        door.open()
        assert await commit
    assert await bodies(real) == list(range(10))


async def test_when_patience_ends_the_error_names_the_server_and_the_wait() -> None:
    """A write, a commit, a question: each is tried at least once."""
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody_listens.getsockname()[1]}"
        async with StagedTransactions("etl", address, wait_ms=0) as transactions:
            with pytest.raises(
                BrokersUnreachableError, match=rf"no route of T from name server {address}: .*\(waited \d+ ms;"
            ):
                await stage(transactions, 0, batch(0, 10))
            with pytest.raises(BrokersUnreachableError, match=rf"{address}.*\(waited \d+ ms;"):
                await transactions.commit("job", 0, [])
            with pytest.raises(BrokersUnreachableError, match=rf"{address}.*\(waited \d+ ms;"):
                await transactions.is_committed("job", 0)


class NameServer:
    """The data of a scripted name server: ``topics`` and all brokers, each with the ids of its present nodes."""

    def __init__(self, cluster: Any) -> None:
        self.topics: dict[str, dict[str, list[int]]] = {}
        self.brokers: dict[str, list[int]] = {}
        self.perm = 6
        self.on_question: Any = lambda: None
        self.address = cluster.namesrv.address
        cluster.namesrv.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route
        cluster.namesrv.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = self._cluster

    @staticmethod
    def _data(name: str, ids: list[int]) -> BrokerData:
        return BrokerData("c", name, {str(number): f"127.0.0.1:{number + 1}" for number in ids})

    def _route(self, connection: Any, request: Any) -> Any:
        self.on_question()
        known = self.topics.get(request.header.topic)
        if known is None:
            return ResponseCode.TOPIC_NOT_EXIST, "No topic route info", None, b""
        data = TopicRouteData(
            queue_datas=[QueueData(name, 1, 1, self.perm) for name in known],
            broker_datas=[self._data(name, ids) for name, ids in known.items()],
        )
        return ResponseCode.SUCCESS, "", None, encode_body(data)

    def _cluster(self, connection: Any, request: Any) -> Any:
        info = ClusterInfo({name: self._data(name, ids) for name, ids in self.brokers.items()}, {})
        return ResponseCode.SUCCESS, "", None, encode_body(info)


@pytest.mark.parametrize("count", range(2, 10))
@pytest.mark.parametrize("topics", [{}, {"T": {"a": [1]}}], ids=["no broker is registered", "a slave is"])
async def test_brokers_that_are_not_registered_yet_are_waited_for(
    cluster: Any, topics: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are awaited at whichever request they first answer."""
    monkeypatch.setattr(chunk_target, "PAUSE_MS", 1)
    servers = NameServer(cluster)
    servers.topics, servers.brokers = topics, {name: ids for each in topics.values() for name, ids in each.items()}
    asked: list[int] = []

    def come_back() -> None:
        asked.append(1)
        if len(asked) == count:
            servers.topics, servers.brokers = {"T": {"a": [0, 1]}}, {"a": [0, 1]}

    servers.on_question = come_back
    instance = ClientInstance(servers.address)
    await instance.start()
    try:
        assert (await Patience(instance, 60_000).route("T")).write_brokers() == {"a"}
    finally:
        await instance.stop()


@pytest.mark.parametrize("topics", [{}, {"T": {"a": [0]}}], ids=["unknown", "not to be written"])
async def test_a_topic_that_takes_no_messages_is_an_error_at_once(cluster: Any, topics: Any) -> None:
    """Brokers exist: the topic's name is wrong, or its permission. No wait can help."""
    servers = NameServer(cluster)
    servers.topics, servers.brokers, servers.perm = topics, {"a": [0]}, 4
    instance = ClientInstance(servers.address)
    await instance.start()
    try:
        with pytest.raises(NoRoute, match="No route info of this topic: T"):
            await asyncio.wait_for(Patience(instance, 86_400_000).route("T"), 60)
    finally:
        await instance.stop()


async def test_the_wait_that_is_reported_is_the_one_that_was(cluster: Any) -> None:
    """The client's clock measures it: attempts that outlast the limit count as well."""
    servers, clock = NameServer(cluster), ManualClock()
    servers.on_question = lambda: clock.advance_ms(2000)
    instance = ClientInstance(servers.address, options=ClientOptions(api_timeout_ms=600_000), clock=clock)
    await instance.start()
    try:
        with pytest.raises(
            BrokersUnreachableError, match=rf"name server {servers.address}: .* is registered \(waited 12000 ms"
        ):
            await Patience(instance, 7000).route("T")  # two attempts of three requests
    finally:
        await instance.stop()

"""The name server over the wire, with a real broker and without."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import AddressInUse
from pocketmq.remoting.protocol.body import DataVersion, KVTable, decode_body, encode_body
from pocketmq.remoting.protocol.namesrv import (
    BrokerIdentityRequestHeader,
    BrokerNameRequestHeader,
    ClusterInfo,
    ClusterRequestHeader,
    GetRouteInfoRequestHeader,
    KVConfigRequestHeader,
    NamespaceRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
    TopicRouteData,
)
from pocketmq.remoting.protocol.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    TopicConfigBody,
    TopicConfigSerializeWrapper,
    TopicList,
)
from tests.broker.conftest import eventually, store_config


class World:
    """A name server and its clients."""

    def __init__(self, stack: Any, tmp_path: Path) -> None:
        self.stack = stack
        self.tmp_path = tmp_path
        self.log = CapturedLog()
        self.pool = ChannelPool(clock=SystemClock(), log=NullLog())
        self.namesrv: Any = None

    async def start_namesrv(self, *, port: Any = 0, clock: Any = None) -> Any:
        self.namesrv = NamesrvApp(NamesrvConfig(listen_port=port), log=self.log, clock=clock)
        await self.namesrv.start()
        self.stack.push_async_callback(self.namesrv.stop)
        return self.namesrv

    async def broker(self, name: str = "broker-a", **settings: Any) -> Any:
        config = BrokerConfig(listen_port=0, broker_name=name, **{"namesrv_addr": self.namesrv.address, **settings})
        app = BrokerApp(config, store_config(self.tmp_path / name), log=self.log)
        await app.start()
        self.stack.push_async_callback(app.stop)
        return app

    async def ask(self, code: int, header: Any = None, body: bytes = b"", address: Any = None) -> Any:
        channel = await self.pool.get(address or self.namesrv.address)
        return await channel.request(code, header, body, timeout_ms=10_000)

    async def route(self, topic: str) -> Any:
        response = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
        return decode_body(response.body, TopicRouteData) if response.code == 0 else None

    async def gone(self, topic: str) -> Any:
        return await self.route(topic) is None

    async def route_comes(self, topic: str) -> Any:
        return await eventually(lambda: self.route(topic))

    async def register(self, pool: Any, topic: str = "T", *, counter: Any = 1, crc: Any = 0) -> Any:
        body = RegisterBrokerBody(
            TopicConfigSerializeWrapper({topic: TopicConfigBody(topic_name=topic)}, DataVersion(1, counter))
        )
        header = RegisterBrokerRequestHeader("broker-x", "10.0.0.1:10911", "C", "", 0, body_crc32=crc)
        channel = await pool.get(self.namesrv.address)
        return await channel.request(RequestCode.REGISTER_BROKER, header, encode_body(body), timeout_ms=10_000)


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    """Start everything a test needs; stop it in reverse order."""
    async with contextlib.AsyncExitStack() as stack:
        world = World(stack, tmp_path)
        stack.push_async_callback(world.pool.close)
        await world.start_namesrv()
        yield world


async def test_a_broker_is_found_as_soon_as_it_has_started_and_gone_as_soon_as_it_stopped(world: World) -> None:
    """A broker registers at its start and unregisters at its stop."""
    broker = await world.broker()
    route = await world.route("TBW102")
    assert route.broker_datas[0].broker_addrs == {"0": broker.address}
    assert route.queue_datas[0].perm == 7
    await broker.stop()
    assert await world.route("TBW102") is None


async def test_a_new_topic_is_registered_at_once(world: World) -> None:
    """The broker does not wait for the next period, and sends only the change."""
    broker = await world.broker()
    header = CreateTopicRequestHeader("orders", "TBW102", 3, 3, 6, "SINGLE_TAG")
    assert (await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header, address=broker.address)).code == 0
    route = await world.route_comes("orders")
    assert route.queue_datas[0].write_queue_nums == 3
    assert (await world.route("TBW102")) is not None


async def test_a_broker_starts_without_its_name_server_and_registers_when_it_comes(world: World) -> None:
    """A missing name server is logged and not fatal; a restarted one gets the whole table."""
    port = world.namesrv.port
    await world.namesrv.stop()
    broker = await world.broker(namesrv_addr=f"127.0.0.1:{port}")
    assert world.log.of("register_failed")
    await world.start_namesrv(port=port)
    assert (await world.route_comes("TBW102")).broker_datas[0].broker_addrs == {"0": broker.address}
    assert await world.route(broker.config.broker_name) is not None


async def test_several_brokers_and_name_servers_share_one_loop(world: World) -> None:
    """Two brokers at two name servers, all in one process."""
    first = world.namesrv
    second = await world.start_namesrv()
    both = f"{first.address};{second.address}"
    one = await world.broker("broker-a", namesrv_addr=both)
    two = await world.broker("broker-b", namesrv_addr=both)
    for namesrv in (first, second):
        info = decode_body(
            (await world.ask(RequestCode.GET_BROKER_CLUSTER_INFO, address=namesrv.address)).body, ClusterInfo
        )
        assert info.cluster_addr_table == {"DefaultCluster": ["broker-a", "broker-b"]}
        assert {name: data.broker_addrs["0"] for name, data in info.broker_addr_table.items()} == {
            "broker-a": one.address,
            "broker-b": two.address,
        }


async def test_a_topic_without_a_broker_is_code_17_with_rocketmqs_text(world: World) -> None:
    """Clients search for this text."""
    response = await world.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("nothing"))
    assert response.code == ResponseCode.TOPIC_NOT_EXIST
    assert response.remark.startswith("No topic route info in name server for the topic: nothing")


async def test_a_broker_goes_with_its_connection(world: World) -> None:
    """A crashed broker is removed at once, not after two minutes."""
    pool = ChannelPool(clock=SystemClock(), log=NullLog())
    assert (await world.register(pool)).code == 0
    assert await world.route("T") is not None
    await pool.close()
    await eventually(lambda: world.gone("T"))
    assert world.log.of("broker_gone")


async def test_a_silent_broker_expires(world: World) -> None:
    """After 120 s without a sign of life the routes go and the connection is closed."""
    clock = ManualClock()
    await world.start_namesrv(clock=clock)
    channel = await world.pool.get(world.namesrv.address)
    assert (await world.register(world.pool)).code == 0
    clock.advance_ms(119_000)
    world.namesrv.scan()
    assert await world.route("T") is not None
    clock.advance_ms(2_000)
    world.namesrv.scan()
    await channel.wait_closed()
    assert await world.route("T") is None


async def test_damaged_registrations_are_refused(world: World) -> None:
    """A wrong CRC, garbage, and a body that is no object change nothing."""
    assert (await world.register(world.pool, crc=1)).remark == "crc32 not match"
    header = RegisterBrokerRequestHeader("broker-x", "10.0.0.1:10911", "C", "", 0)
    for body in (b"garbage", b"[1]", b'{"topicConfigSerializeWrapper":7}', b"\xff"):
        response = await world.ask(RequestCode.REGISTER_BROKER, header, body)
        assert response.code != 0
    assert await world.route("T") is None


async def test_a_registration_with_long_names_is_refused_with_a_text(world: World) -> None:
    """Topic names of 1 MB are refused; the connection stays open and accepts legal registrations."""
    table = {f"{number}{'T' * 1_000_000}": TopicConfigBody() for number in range(3)}
    body = encode_body(RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, 1))))
    header = RegisterBrokerRequestHeader("broker-x", "10.0.0.1:10911", "C", "", 0)
    refused = await world.ask(RequestCode.REGISTER_BROKER, header, body)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "broker not registered: topic" in refused.remark
    assert "has 1000001 characters, limit 390" in refused.remark
    body = encode_body(RegisterBrokerBody(TopicConfigSerializeWrapper({"T": TopicConfigBody()}, DataVersion(1, 1))))
    assert (await world.ask(RequestCode.REGISTER_BROKER, header, body)).code == ResponseCode.SUCCESS
    assert await world.route("T") is not None


async def test_lists_permissions_and_deletion(world: World) -> None:
    """206, 224, 304, 205, 327 and 216."""
    broker = await world.broker()
    await world.register(world.pool)
    topics = decode_body((await world.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body, TopicList).topic_list
    assert {"T", "TBW102"} <= set(topics)
    of_cluster = await world.ask(RequestCode.GET_TOPICS_BY_CLUSTER, ClusterRequestHeader("C"))
    assert decode_body(of_cluster.body, TopicList).topic_list == ["T"]
    system = decode_body((await world.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body, TopicList)
    assert {"DefaultCluster", "broker-a", "C", "broker-x"} == set(system.topic_list)
    assert system.broker_addr in (broker.address, "10.0.0.1:10911")
    wiped = await world.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader("broker-x"))
    assert wiped.header.wipe_topic_count == 1
    assert (await world.route("T")).queue_datas[0].perm == 4
    added = await world.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader("broker-x"))
    assert added.header.add_topic_count == 1
    assert (await world.route("T")).queue_datas[0].perm == 6
    assert (await world.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader("T"))).code == 0
    assert await world.route("T") is None
    assert decode_body((await world.ask(RequestCode.GET_UNIT_TOPIC_LIST)).body, TopicList).topic_list == []


async def test_version_queries_answer_changed_or_not(world: World) -> None:
    """QUERY_DATA_VERSION: an unknown broker, the same version, another one."""
    identity = BrokerIdentityRequestHeader("broker-x", "10.0.0.1:10911", "C", 0)

    async def changed(counter: Any) -> Any:
        body = encode_body(DataVersion(1, counter))
        return (await world.ask(RequestCode.QUERY_DATA_VERSION, identity, body)).header.changed

    assert await changed(1)
    await world.register(world.pool, counter=1)
    assert not await changed(1)
    assert await changed(2)
    assert (await world.ask(RequestCode.UNREGISTER_BROKER, identity)).code == 0
    assert await world.route("T") is None


async def test_settings_by_namespace(world: World) -> None:
    """PUT, GET, DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE, and the order settings in routes."""
    await world.register(world.pool)
    put = PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-x:4")
    assert (await world.ask(RequestCode.PUT_KV_CONFIG, put)).code == 0
    key = KVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T")
    assert (await world.ask(RequestCode.GET_KV_CONFIG, key)).header.value == "broker-x:4"
    assert (await world.route("T")).order_topic_conf == "broker-x:4"
    listed = await world.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceRequestHeader("ORDER_TOPIC_CONFIG"))
    assert decode_body(listed.body, KVTable).table == {"T": "broker-x:4"}
    assert (await world.ask(RequestCode.DELETE_KV_CONFIG, key)).code == 0
    gone = await world.ask(RequestCode.GET_KV_CONFIG, key)
    assert gone.code == ResponseCode.QUERY_NOT_FOUND
    assert gone.remark == "No config item, Namespace: ORDER_TOPIC_CONFIG Key: T"


async def test_unknown_codes_and_a_port_in_use(world: World) -> None:
    """Code 3 with RocketMQ's text; a typed error that names the port."""
    response = await world.ask(RequestCode.PULL_MESSAGE + 4700)
    assert (response.code, response.remark) == (3, " request type 4711 not supported")
    second = NamesrvApp(NamesrvConfig(listen_port=world.namesrv.port))
    with pytest.raises(AddressInUse, match=str(world.namesrv.port)):
        await second.start()


async def test_settings_are_shown_and_not_changed(world: World) -> None:
    """GET_NAMESRV_CONFIG answers in RocketMQ's spelling with the configured port; a change is refused with a reason."""
    lines = bytes((await world.ask(RequestCode.GET_NAMESRV_CONFIG)).body).decode().splitlines()
    assert f"listenPort={world.namesrv.port}" in lines
    assert "scanNotActiveBrokerInterval=10000" in lines
    response = await world.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"brokersMax=9")
    assert response.code == 3
    assert response.remark.startswith(" request type 318 not supported: settings are read at the start")


def test_impossible_settings_are_refused() -> None:
    """The error names the key."""
    with pytest.raises(ConfigError, match=r"namesrv\.listen_port"):
        NamesrvConfig(listen_port=70_000)
    with pytest.raises(ConfigError, match=r"namesrv\.brokers_max"):
        NamesrvConfig(brokers_max=0)

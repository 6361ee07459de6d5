"""The name server over the wire, with a real broker and without."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.holders import GONE, HOLDER_WAITING_MAX
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codec import Request, encode_response
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

    async def start_namesrv(self, *, port: Any = 0, clock: Any = None, **settings: Any) -> Any:
        self.namesrv = NamesrvApp(NamesrvConfig(listen_port=port, **settings), log=self.log, clock=clock)
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


async def test_a_broker_says_whether_a_name_server_has_accepted_it(world: World) -> None:
    """Not when none listens, nor while another broker has its place; as soon as one has."""
    address = world.namesrv.address
    first = await world.broker("broker-x")
    assert first.not_registered == {}
    config = BrokerConfig(listen_port=0, namesrv_addr=f"{address};127.0.0.1:1", broker_name="broker-x")
    second = BrokerApp(config, store_config(world.tmp_path / "second"), log=world.log)
    await second.start()
    world.stack.push_async_callback(second.stop)
    assert second.not_registered.keys() == {address, "127.0.0.1:1"}
    assert f"broker-x id 0 is {first.address}, which lives" in second.not_registered[address]
    (event,) = [each for each in world.log.events if each["event"] == "not_registered_yet"]
    assert event["name_servers"] == second.not_registered
    await first.stop()
    await eventually(lambda: not second.not_registered)


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


async def test_illegal_topics_of_a_registration_are_left_out_and_logged_once(world: World) -> None:
    """Names of 1 MB, blank ones and control characters; the others are served, and the list is printable."""
    illegal = [f"{number}{'T' * 1_000_000}" for number in range(3)] + ["", " ", "a\x1b[2J", "b\nc"]
    table = {topic: TopicConfigBody() for topic in [*illegal, "T"]}
    header = RegisterBrokerRequestHeader("broker-x", "10.0.0.1:10911", "C", "", 0)
    for counter in (1, 2):
        body = encode_body(RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, counter))))
        assert (await world.ask(RequestCode.REGISTER_BROKER, header, body)).code == ResponseCode.SUCCESS
    assert await world.route("T") is not None
    listed = await world.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert decode_body(listed.body, TopicList).topic_list == ["T"]
    events = [each for each in world.log.events if each["event"] == "topic_not_registered"]
    assert len(events) == len(illegal)
    assert all(str(each["topic"]).isprintable() and len(str(each["topic"])) < 200 for each in events)
    assert world.namesrv.routes.size_bytes < 10_000


class Rivals:
    """Two connections that want the same place; the first one answers questions if it shall."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers = True
        self.closed: list[str] = []
        self.first = ChannelPool(
            clock=SystemClock(),
            log=NullLog(),
            on_request=self.answer,
            on_close=lambda channel, why: self.closed.append(why),
        )
        self.second = ChannelPool(clock=SystemClock(), log=NullLog())
        for pool in (self.first, self.second):
            world.stack.push_async_callback(pool.close)

    def answer(self, channel: ClientChannel, request: Request) -> None:
        if self.answers:  # as RocketMQ's broker
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            channel.respond(encode_response(code, request.opaque, request.code, serialize_type=request.serialize_type))

    async def ask(self, pool: ChannelPool, code: int, address: str, name: str = "broker-x") -> Any:
        channel = await pool.get(self.world.namesrv.address)
        identity = BrokerIdentityRequestHeader(name, address, "C", 0)
        header = (
            identity if code != RequestCode.REGISTER_BROKER else RegisterBrokerRequestHeader(name, address, "C", "", 0)
        )
        return await channel.request(code, header, timeout_ms=10_000)

    async def register(self, pool: ChannelPool, address: str, name: str = "broker-x") -> Any:
        return await self.ask(pool, RequestCode.REGISTER_BROKER, address, name)

    def master(self) -> str:
        brokers = self.world.namesrv.routes.cluster_info().broker_addr_table
        return str(brokers["broker-x"].broker_addrs["0"]) if "broker-x" in brokers else ""


async def test_a_broker_that_lives_keeps_its_place(world: World) -> None:
    """Against another address, its own address, and an unregistration, over another connection; RocketMQ's as well."""
    rivals = Rivals(world)
    assert (await rivals.register(rivals.first, "1:1")).code == ResponseCode.SUCCESS
    for address, name in (("2:2", "broker-x"), ("1:1", "broker-x"), ("1:1", "broker-y")):
        refused = await rivals.register(rivals.second, address, name)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "lives (stop that one first" in refused.remark
    assert (await rivals.ask(rivals.second, RequestCode.UNREGISTER_BROKER, "1:1")).code == ResponseCode.NO_PERMISSION
    assert rivals.master() == "1:1"
    assert not rivals.closed
    assert (await rivals.register(rivals.first, "3:3")).code == ResponseCode.SUCCESS, "its own connection may move it"


async def test_a_broker_that_does_not_answer_gives_way(world: World) -> None:
    """Its connection is closed, so that it notices when it works again; many that wait get their turn, in order."""
    await world.namesrv.stop()
    await world.start_namesrv(broker_answer_timeout=50)
    rivals = Rivals(world)
    rivals.answers = False
    assert (await rivals.register(rivals.first, "1:1")).code == ResponseCode.SUCCESS
    answers = await asyncio.gather(*(rivals.register(rivals.second, "2:2") for _ in range(HOLDER_WAITING_MAX + 9)))
    assert [answer.code for answer in answers].count(ResponseCode.SUCCESS) == HOLDER_WAITING_MAX
    assert rivals.master() == "2:2"
    await eventually(lambda: rivals.closed)
    rivals.answers = True


async def test_a_broker_that_went_while_it_waited_is_not_registered(world: World) -> None:
    """It waited for the answer of the present holder, and nobody would take its address out of the routes."""
    rivals = Rivals(world)
    rivals.answers = False
    assert (await rivals.register(rivals.first, "1:1")).code == ResponseCode.SUCCESS
    holders = world.namesrv._holders
    waiting = asyncio.ensure_future(rivals.register(rivals.second, "2:2"))
    await eventually(lambda: holders._waiting == 1)
    (second,) = [each for each in world.namesrv._server.connections if not world.namesrv.routes.channel_closed(each)]
    assert (await rivals.register(rivals.first, "1:1")).code == ResponseCode.SUCCESS
    await rivals.second.close()
    await eventually(lambda: second.closed)
    ((holder, question),) = holders._questions.items()
    holders._answered(holder, question, GONE)
    assert rivals.master() == "1:1"
    with pytest.raises(PocketMQError):
        await waiting
    rivals.answers = True


async def test_a_takeover_replaces_at_once_where_the_setting_says_so(world: World) -> None:
    """As RocketMQ's name server does; the one that was replaced loses its connection and registers again."""
    await world.namesrv.stop()
    await world.start_namesrv(broker_takeover_enable=True)
    rivals = Rivals(world)
    await rivals.register(rivals.first, "1:1")
    assert (await rivals.register(rivals.second, "2:2")).code == ResponseCode.SUCCESS
    assert rivals.master() == "2:2"
    await eventually(lambda: rivals.closed)


async def test_a_real_broker_keeps_its_place_and_returns_at_once_after_it_was_dropped(world: World) -> None:
    """It answers the question by itself. When its connection is closed it does not wait for its next turn."""
    broker = await world.broker("broker-x", register_name_server_period=60_000)
    rivals = Rivals(world)
    assert (await rivals.register(rivals.second, "2:2")).code == ResponseCode.NO_PERMISSION
    assert rivals.master() == broker.address
    world.namesrv._claims.drop(world.namesrv.routes.channel_of(broker.address), "for the test")
    assert rivals.master() == ""
    await eventually(lambda: rivals.master() == broker.address)


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


async def test_a_listener_whose_port_is_in_use_stops_the_start(world: World) -> None:
    """No port stays open."""
    second = NamesrvApp(NamesrvConfig(listen_port=0, listeners=f"outside={world.namesrv.address}"))
    with pytest.raises(AddressInUse):
        await second.start()
    assert second.port == 0


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
    for listeners in ("0.0.0.0:1", "x=0.0.0.0", "x=a:1;y=b:1", "x=a:9876"):
        with pytest.raises(ConfigError, match=r"namesrv\.listeners"):
            NamesrvConfig(listeners=listeners)

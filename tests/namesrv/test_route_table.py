"""The route table keeps RocketMQ's rules and frees every entry."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.namesrv.route_table import CHANNEL_ADDRESSES_MAX, RegistrationIllegal, RouteTable, RouteTableFull
from pocketmq.remoting.protocol.body import DataVersion
from pocketmq.remoting.protocol.namesrv import TopicRouteData
from pocketmq.remoting.protocol.topic import TopicConfigBody


def topics(*names: Any, queues: Any = 4, perm: Any = 6) -> Any:
    return {
        name: TopicConfigBody(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name in names
    }


def register(
    table: Any,
    name: str = "a",
    address: Any = "1.1.1.1:1",
    broker_id: Any = 0,
    *,
    names: Any = ("T",),
    counter: Any = 1,
    channel: Any = "ch",
    now: Any = 0,
    **more: Any,
) -> Any:
    return table.register(
        name,
        address,
        more.get("cluster", "C"),
        broker_id,
        ha_address=more.get("ha", f"ha-{address}"),
        listener_addresses=more.get("listeners", ""),
        topics=topics(*names, **{key: more[key] for key in ("queues", "perm") if key in more}),
        version=DataVersion(1, counter),
        channel=channel,
        now_ns=now,
    )


def table() -> RouteTable:
    return RouteTable(100, 1000)


def route_of(routes: RouteTable, topic: str) -> TopicRouteData:
    route = routes.route(topic)
    assert route is not None
    return route


def test_a_registered_topic_has_a_route() -> None:
    """The route lists queues and addresses of every broker that has the topic."""
    routes = table()
    register(routes)
    register(routes, "b", "2.2.2.2:2", channel="ch2", queues=8)
    route = route_of(routes, "T")
    assert {(each.broker_name, each.read_queue_nums, each.perm) for each in route.queue_datas} == {
        ("a", 4, 6),
        ("b", 8, 6),
    }
    assert {each.broker_name: each.broker_addrs for each in route.broker_datas} == {
        "a": {"0": "1.1.1.1:1"},
        "b": {"0": "2.2.2.2:2"},
    }
    assert routes.route("U") is None


def test_topics_change_only_with_the_version() -> None:
    """An unchanged version is only a sign of life; a changed one adds and updates, and removes nothing."""
    routes = table()
    register(routes, queues=4, counter=1)
    register(routes, queues=9, counter=1)
    assert route_of(routes, "T").queue_datas[0].read_queue_nums == 4
    register(routes, names=("U",), queues=9, counter=2)
    assert route_of(routes, "T").queue_datas[0].read_queue_nums == 4
    assert route_of(routes, "U").queue_datas[0].read_queue_nums == 9


def test_topics_come_from_masters_only_and_slaves_learn_their_master() -> None:
    """A slave adds an address, not topics; the answer names its master."""
    routes = table()
    assert register(routes, "a", "9.9.9.9:9", 1, names=("S",), channel="slave") == ("", "")
    assert routes.route("S") is None
    assert register(routes) == ("", "")
    assert register(routes, "a", "9.9.9.9:9", 1, names=("S",), channel="slave") == ("ha-1.1.1.1:1", "1.1.1.1:1")
    assert route_of(routes, "T").broker_datas[0].broker_addrs == {"0": "1.1.1.1:1", "1": "9.9.9.9:9"}


def test_a_broker_goes_with_its_last_address() -> None:
    """While a slave remains, the route remains; then name, queues and cluster are removed together."""
    routes = table()
    register(routes)
    register(routes, "a", "9.9.9.9:9", 1, channel="slave")
    routes.unregister("a", "1.1.1.1:1", 0)
    assert route_of(routes, "T").broker_datas[0].broker_addrs == {"1": "9.9.9.9:9"}
    assert routes.channel_closed("slave") == ["9.9.9.9:9"]
    assert routes.route("T") is None
    assert routes.cluster_info().cluster_addr_table == {}
    assert routes.counts() == (0, 0, 0)


def test_silent_brokers_expire_and_signs_of_life_count() -> None:
    """A registration or an unchanged version query is a sign of life."""
    routes = table()
    register(routes, now=10)
    register(routes, "b", "2.2.2.2:2", channel="ch2", now=10)
    assert not routes.has_changed("1.1.1.1:1", DataVersion(1, 1), 50)
    assert routes.has_changed("2.2.2.2:2", DataVersion(1, 2), 50)
    assert routes.has_changed("3.3.3.3:3", DataVersion(1, 1), 50)
    assert routes.expire(30) == [("2.2.2.2:2", "ch2")]
    assert [each.broker_name for each in route_of(routes, "T").broker_datas] == ["a"]


def test_an_address_that_comes_back_under_another_id_is_moved() -> None:
    """The old id does not keep the address."""
    routes = table()
    register(routes, "a", "9.9.9.9:9", 1, channel="one")
    register(routes, "a", "9.9.9.9:9", 0, channel="two")
    assert route_of(routes, "T").broker_datas[0].broker_addrs == {"0": "9.9.9.9:9"}
    assert routes.channel_closed("one") == []


def test_write_permission_is_wiped_until_a_changed_registration() -> None:
    """WIPE takes W, ADD gives RW, a changed version brings the broker's own back."""
    routes = table()
    register(routes, names=("T", "U"), perm=7)
    assert routes.wipe_write_perm("a") == 2
    assert route_of(routes, "T").queue_datas[0].perm == 5
    register(routes, names=("T", "U"), perm=7, counter=1)
    assert route_of(routes, "T").queue_datas[0].perm == 5
    assert routes.add_write_perm("a") == 2
    assert route_of(routes, "T").queue_datas[0].perm == 6
    register(routes, names=("T", "U"), perm=7, counter=2)
    assert route_of(routes, "T").queue_datas[0].perm == 7
    assert routes.wipe_write_perm("nobody") == 0


def test_topics_are_deleted_everywhere_or_in_one_cluster() -> None:
    """DELETE_TOPIC_IN_NAMESRV with and without a cluster."""
    routes = table()
    register(routes, cluster="C")
    register(routes, "b", "2.2.2.2:2", channel="ch2", cluster="D")
    routes.delete_topic("T", "D")
    assert [each.broker_name for each in route_of(routes, "T").queue_datas] == ["a"]
    routes.delete_topic("T")
    assert routes.route("T") is None
    assert routes.topics_of_cluster("C") == []
    assert routes.system_topics()[0] == ["C", "a", "D", "b"]


def test_a_topic_that_a_broker_still_has_comes_back_after_its_deletion() -> None:
    """A producer recreated it on the broker before the deletion arrived here; increments do not name it again."""
    routes = table()
    register(routes, names=("T", "U"), counter=5)
    routes.delete_topic("T")
    register(routes, names=("U",), counter=6)  # an increment
    version = routes.version_of("1.1.1.1:1")
    assert version is not None
    assert routes.has_changed("1.1.1.1:1", version, 0)
    register(routes, names=("T", "U"), counter=6)
    assert route_of(routes, "T").queue_datas[0].broker_name == "a"
    assert not routes.has_changed("1.1.1.1:1", version, 0)


def test_the_table_is_bounded() -> None:
    """A registration over a limit is refused before anything changes."""
    routes = RouteTable(1, 3)
    with pytest.raises(RouteTableFull):
        register(routes, names=("A", "B", "C", "D"))
    assert routes.counts() == (0, 0, 0)
    register(routes, names=("A", "B", "C"))
    with pytest.raises(RouteTableFull):
        register(routes, "b", "2.2.2.2:2", names=())
    register(routes, names=("A", "B", "C"), counter=2)
    assert routes.counts() == (1, 3, 3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "b" * 256}, "brokerName has 256 characters, limit 255"),
        ({"cluster": "c" * 256}, "clusterName has 256 characters, limit 255"),
        ({"address": "a" * 300}, "brokerAddr has 300 characters, limit 261"),
        ({"ha": "a" * 300}, "haServerAddr has 300 characters, limit 261"),
        ({"name": "b\x1b[2J"}, "control characters"),
        ({"cluster": "c\n"}, "control characters"),
        ({"queues": 65_537}, "readQueueNums of topic T is 65537, limit 65536"),
        ({"queues": -1}, "readQueueNums of topic T is -1, limit 65536"),
    ],
)
def test_texts_and_numbers_are_bounded(arguments: Any, text: str) -> None:
    """The error text names the field and both numbers and is short itself; nothing has changed."""
    routes = RouteTable(10, 100)
    with pytest.raises(RegistrationIllegal, match=text) as refused:
        register(routes, **arguments)
    assert len(str(refused.value)) < 300
    assert routes.counts() == (0, 0, 0)
    assert routes.size_bytes == 0


def test_the_longest_legal_names_are_taken() -> None:
    """Retry topics of groups with 255 characters, also of pop consumers; the most queues; long host names."""
    routes = RouteTable(10, 100)
    names = ["T" * 127, "%RETRY%" + "g" * 255, "%DLQ%" + "g" * 255, "%RETRY%" + "g" * 255 + "_" + "T" * 127]
    register(routes, "b" * 255, "h" * 255 + ":65535", names=names, queues=65_536, cluster="c" * 255, ha="h" * 261)
    assert routes.counts() == (1, 4, 4)


def test_clients_of_a_listener_get_the_addresses_of_that_listener() -> None:
    """Of each broker that names one; all others, and all other listeners, get the usual address."""
    routes = table()
    register(routes, listeners="outside=b.example:1;far=[::1]:2")
    register(routes, "a", "2.2.2.2:2", 1)

    def addresses(listener: str) -> dict[str, str]:
        route = routes.route("T", listener)
        assert route is not None
        assert routes.cluster_info(listener).broker_addr_table["a"].broker_addrs == route.broker_datas[0].broker_addrs
        return route.broker_datas[0].broker_addrs

    assert addresses("outside") == {"0": "b.example:1", "1": "2.2.2.2:2"}
    assert addresses("far") == {"0": "[::1]:2", "1": "2.2.2.2:2"}
    assert addresses("") == addresses("unknown") == {"0": "1.1.1.1:1", "1": "2.2.2.2:2"}
    register(routes, listeners="outside=c.example:1", counter=2)
    assert addresses("outside")["0"] == "c.example:1"
    routes.channel_closed("ch")
    assert routes.size_bytes == 0


@pytest.mark.parametrize("text", ["x", "a=b", "=a:1", "a=b:1;a=b:2", "A=b:1", "a=b\x00:1", "x" * 10_000])
def test_listener_addresses_that_no_broker_registers_are_refused(text: str) -> None:
    routes = table()
    with pytest.raises(RegistrationIllegal, match="listenerAddrs"):
        register(routes, listeners=text)
    assert routes.counts() == (0, 0, 0)


def test_one_connection_takes_a_share_only() -> None:
    """It registers a few brokers, and their topics take at most half of the bytes; others find room."""
    routes = RouteTable(10_000, 1_000_000, size_bytes_max=1 << 20)
    for number in range(CHANNEL_ADDRESSES_MAX):
        register(routes, f"b{number}", f"{number}:1", names=())
    with pytest.raises(RouteTableFull, match="64 brokers use this connection"):
        register(routes, "b", "9:9", names=())
    register(routes, "b0", "0:1", names=(), counter=2)
    names = [f"{number}-{'T' * 100}" for number in range(550)]
    with pytest.raises(RouteTableFull, match="the topics of one connection would take 5"):
        register(routes, "b0", "0:1", names=names, counter=3)
    for part, name in enumerate(("b0", "b1", "b2", "b3")):
        register(routes, name, f"{part}:1", names=[f"{part}{each}" for each in names[:120]], counter=4)
    with pytest.raises(RouteTableFull, match="the topics of one connection"):
        register(routes, "b4", "4:1", names=names[:120], counter=4)
    register(routes, "x", "x:1", names=names[:120], channel="other")


def test_a_place_is_held_by_the_channel_that_took_it() -> None:
    """Of the name and id, or of the address; a question about the version over another channel asks for all."""
    routes = table()
    register(routes)
    assert routes.holders("a", "1.1.1.1:1", 0, "ch") == []
    assert routes.holders("a", "9.9.9.9:9", 0, "other") == ["ch"]
    assert routes.holders("b", "1.1.1.1:1", 3, "other") == ["ch"]
    assert routes.holders("a", "9.9.9.9:9", 1, "other") == []
    assert not routes.has_changed("1.1.1.1:1", DataVersion(1, 1), 5, "ch")
    assert routes.has_changed("1.1.1.1:1", DataVersion(1, 1), 9, "other")
    assert routes.expire(6) == [("1.1.1.1:1", "ch")]


def test_bytes_are_bounded() -> None:
    """The byte limit holds for any limit of entries; known entries stay, and deleted ones release their bytes."""
    routes = RouteTable(10_000, 1_000_000, size_bytes_max=1 << 20)
    register(routes, names=("A",))
    with pytest.raises(RouteTableFull, match="limit 1048576"):
        register(routes, "b", "2.2.2.2:2", names=[f"{number}-{'T' * 300}" for number in range(1000)])
    before = routes.size_bytes
    register(routes, names=("A",), counter=2)
    assert routes.size_bytes == before
    routes.channel_closed("ch")
    assert routes.size_bytes == 0


EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("register"),
            st.sampled_from("ab"),
            st.sampled_from(["1:1", "2:2", "3:3"]),
            st.integers(0, 2),
            st.sets(st.sampled_from("TUV")),
            st.integers(0, 3),
            st.sampled_from("xyz"),
            st.sampled_from("CD"),
        ),
        st.tuples(
            st.just("unregister"), st.sampled_from("ab"), st.sampled_from(["1:1", "2:2", "3:3"]), st.integers(0, 2)
        ),
        st.tuples(st.just("close"), st.sampled_from("xyz")),
        st.tuples(st.just("delete"), st.sampled_from("TUV")),
        st.tuples(st.just("expire"), st.integers(0, 40)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_any_order_of_events_leaves_a_consistent_table(events: Any) -> None:
    """Every route names known brokers with addresses; when all channels have closed nothing is left."""
    routes = table()
    for now, event in enumerate(events):
        if event[0] == "register":
            _, name, address, broker_id, names, counter, channel, cluster = event
            register(
                routes,
                name,
                address,
                broker_id,
                names=names,
                counter=counter,
                channel=channel,
                now=now,
                cluster=cluster,
            )
        elif event[0] == "unregister":
            routes.unregister(event[1], event[2], event[3])
        elif event[0] == "close":
            routes.channel_closed(event[1])
        elif event[0] == "delete":
            routes.delete_topic(event[1])
        else:
            routes.expire(event[1])
        info = routes.cluster_info()
        addresses = [each for broker in info.broker_addr_table.values() for each in broker.broker_addrs.values()]
        assert sorted(addresses) == sorted(routes.addresses())
        assert sorted({name for names in info.cluster_addr_table.values() for name in names}) == sorted(
            info.broker_addr_table
        )
        for topic in routes.topics():
            route = routes.route(topic)
            assert route is not None
            assert {each.broker_name for each in route.queue_datas} == {each.broker_name for each in route.broker_datas}
            assert all(each.broker_addrs for each in route.broker_datas)
    for channel in "xyz":
        routes.channel_closed(channel)
    assert routes.counts() == (0, 0, 0)
    assert routes.size_bytes == 0
    assert routes.cluster_info().cluster_addr_table == {}

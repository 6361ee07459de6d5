"""Where a client looks for a broker, by what the broker advertises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client import ClientOptions
from pocketmq.client.connection.broker_addresses import ENTRIES_MAX, VARIABLE, BrokerAddressMap, broker_address_map
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.protocol.namesrv import BrokerData, ClusterInfo, TopicRouteData

NAMESRV = "mq.example.org:9876"


@pytest.mark.parametrize(
    ("given_map", "advertised", "reached"),
    [
        ("", "127.0.0.1:10911", "127.0.0.1:10911"),
        ("namesrv-host", "127.0.0.1:10911", "mq.example.org:10911"),
        ("namesrv-host", "localhost:10911", "mq.example.org:10911"),
        ("namesrv-host", "0.0.0.0:10911", "mq.example.org:10911"),
        ("namesrv-host", "[::1]:10911", "mq.example.org:10911"),
        ("namesrv-host", "10.0.0.5:10911", "10.0.0.5:10911"),
        ("*=namesrv-host", "10.0.0.5:10911", "mq.example.org:10911"),
        ("10.0.0.5=outside.example;*=namesrv-host", "10.0.0.5:10911", "outside.example:10911"),
        ("10.0.0.5:10911=a:1;10.0.0.5=b", "10.0.0.5:10911", "a:1"),
        ("10.0.0.5:10911=a:1;10.0.0.5=b", "10.0.0.5:10912", "b:10912"),
        ("loopback=a;*=b:5", "127.0.0.1:1", "a:1"),
        ("loopback=a;*=b:5", "10.0.0.5:1", "b:5"),
        ({"[::1]:10911": "[2001:db8::1]:20911"}, "[::1]:10911", "[2001:db8::1]:20911"),
        ({"broker-a": "127.0.0.1"}, "broker-a:10911", "127.0.0.1:10911"),
    ],
)
def test_the_closest_entry_counts(given_map: str | dict[str, str], advertised: str, reached: str) -> None:
    assert broker_address_map(given_map).reachable(advertised, NAMESRV) == reached


def test_the_host_of_a_name_server_with_ipv6_keeps_its_form() -> None:
    assert broker_address_map("*=namesrv-host").reachable("10.0.0.5:1", "[2001:db8::1]:9876") == "[2001:db8::1]:1"


@pytest.mark.parametrize(
    "given_map", ["nonsense", "a:1=", "=a:1", "a:1=b:0", "a:99999=b", {"a b": "c"}, {"*": "x:y"}, {"a": "1:2:3"}]
)
def test_what_is_no_address_is_refused_with_an_example(given_map: str | dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"172\.17\.0\.2:10911=localhost:10911"):
        broker_address_map(given_map)


def test_entries_are_bounded() -> None:
    with pytest.raises(ConfigError, match="limit"):
        broker_address_map({f"h{number}": "a" for number in range(ENTRIES_MAX + 1)})


def test_the_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "*=from-environment")
    assert broker_address_map("").reachable("h:1", NAMESRV) == "from-environment:1"
    options = ClientOptions(broker_addresses="*=from-option")
    assert broker_address_map(options.broker_addresses).reachable("h:1", NAMESRV) == "from-option:1"


@given(st.text(max_size=40))
def test_no_text_of_a_name_server_raises(address: str) -> None:
    """What is no address stays as it is, and fails when it is connected to."""
    found = broker_address_map("*=namesrv-host;loopback=a:1").reachable(address, NAMESRV)
    assert found == address or found == "a:1" or found.startswith("mq.example.org:")


def test_routes_and_clusters_are_mapped_for_each_broker() -> None:
    def broker() -> BrokerData:
        return BrokerData(cluster="C", broker_name="a", broker_addrs={"0": "127.0.0.1:1", "1": "10.0.0.5:2"})

    found = broker_address_map("namesrv-host")
    expected = {"0": "mq.example.org:1", "1": "10.0.0.5:2"}
    route = found.of_route(TopicRouteData(queue_datas=[], broker_datas=[broker()]), NAMESRV)
    assert route.broker_datas[0].broker_addrs == expected
    info = found.of_cluster(ClusterInfo(broker_addr_table={"a": broker()}, cluster_addr_table={}), NAMESRV)
    assert info.broker_addr_table["a"].broker_addrs == expected
    unmapped = BrokerAddressMap().of_route(TopicRouteData(queue_datas=[], broker_datas=[broker()]), NAMESRV)
    assert unmapped.broker_datas[0] == broker()

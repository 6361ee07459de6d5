"""Which addresses follow from the settings, before anything listens."""

from typing import Any

import pytest

from pocketmq.broker.assembly.advertised import advertised_addresses, resolve, warn_of_loopback
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import encode_host


@pytest.mark.parametrize(
    ("settings", "address", "ha_host", "store_host"),
    [
        ({}, "127.0.0.1:1", "127.0.0.1", ("127.0.0.1", 1)),
        ({"bind_address": "localhost"}, "127.0.0.1:1", "127.0.0.1", ("127.0.0.1", 1)),
        ({"bind_address": "::1"}, "[::1]:1", "::1", ("::1", 1)),
        ({"bind_address": "0.0.0.0", "broker_ip1": "10.0.0.5"}, "10.0.0.5:1", "10.0.0.5", ("10.0.0.5", 1)),
        # clients come by another way than slaves: ids of messages lead clients to the broker
        ({"bind_address": "10.0.0.5", "advertise": "192.0.2.9:20"}, "192.0.2.9:20", "10.0.0.5", ("192.0.2.9", 20)),
        ({"bind_address": "10.0.0.5", "advertise": "b.example:20"}, "b.example:20", "10.0.0.5", ("10.0.0.5", 1)),
        ({"bind_address": "0.0.0.0", "advertise": "192.0.2.9"}, "192.0.2.9:1", "192.0.2.9", ("192.0.2.9", 1)),
        (
            {"bind_address": "0.0.0.0", "broker_ip1": "10.0.0.5", "advertise": "b.example:20"},
            "b.example:20",
            "10.0.0.5",
            ("10.0.0.5", 1),
        ),
    ],
)
def test_clients_slaves_and_records_have_their_address(
    settings: dict[str, Any], address: str, ha_host: str, store_host: tuple[str, int]
) -> None:
    found = advertised_addresses(BrokerConfig(**settings))
    assert found.address(1) == address
    assert found.ha_host == ha_host
    assert found.store_host(found.record_host, 1) == encode_host(*store_host)


def test_a_name_on_an_open_bind_has_to_be_resolved() -> None:
    found = advertised_addresses(BrokerConfig(bind_address="0.0.0.0", advertise="localhost:20"))
    assert (found.record_host, found.ha_host) == ("", "localhost")
    assert resolve("localhost") == "127.0.0.1"
    assert found.store_host(resolve(found.host), 1) == encode_host("127.0.0.1", 20)


def test_a_name_that_nobody_knows_is_refused_with_the_setting_that_helps() -> None:
    with pytest.raises(ConfigError, match=r"broker\.broker_ip1"):
        resolve("nowhere.invalid")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"bind_address": "0.0.0.0"}, "--advertise host:10911"),
        ({"bind_address": "::"}, "--advertise host:10911"),
        ({"bind_address": "0.0.0.0", "advertise": "0.0.0.0:1"}, "no address that clients can reach"),
        ({"bind_address": "0.0.0.0", "advertise": "outside=a:1"}, "no address that clients can reach"),
        ({"broker_ip1": "example.org"}, "--advertise example.org:10911 for a name"),
        ({"bind_address": "example.org"}, "--advertise example.org:10911 if clients use the name"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        advertised_addresses(BrokerConfig(**settings))
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "settings", [{"advertise": "a b"}, {"advertise": "a:1;b:2"}, {"listeners": "10911"}, {"listeners": "x=a:1"}]
)
def test_what_is_no_address_is_refused_with_its_key(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"broker\.{next(iter(settings))}"):
        BrokerConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"bind_address": "0.0.0.0", "advertise": "localhost:10911"}, True),
        ({"bind_address": "0.0.0.0", "broker_ip1": "127.0.0.1"}, True),
        ({"bind_address": "0.0.0.0", "advertise": "10.0.0.5"}, False),
        ({"bind_address": "127.0.0.1"}, False),
    ],
)
def test_loopback_on_an_open_bind_is_warned_of(settings: dict[str, Any], warned: bool) -> None:
    config, log = BrokerConfig(**settings), CapturedLog()
    warn_of_loopback(config, advertised_addresses(config), log)
    assert [each["event"] for each in log.events] == ["loopback_advertised"] * warned

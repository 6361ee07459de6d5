"""Name-server addresses."""

import asyncio
from typing import Any, cast

import pytest

from pocketmq.client.connection.name_servers import NameServers, parse_addresses
from pocketmq.client.errors import NoNameServer
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.errors import ConnectFailed


def test_lists_and_strings() -> None:
    """Semicolons or a list; blanks and repetitions are ignored."""
    assert parse_addresses("a:1; b:2;a:1;") == ["a:1", "b:2"]
    assert parse_addresses(["a:1", "[::1]:9876"]) == ["a:1", "[::1]:9876"]


@pytest.mark.parametrize(
    "bad", ["a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1;b", "a:-1", ";".join(f"a:{n + 1}" for n in range(65))]
)
def test_what_is_no_address_is_refused(bad: Any) -> None:
    """The error has the wrong part."""
    with pytest.raises(ConfigError):
        parse_addresses(bad)


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        ("a:1,b:2", "separate addresses by ;"),
        ("http://a:1", "leave out what is not host:port"),
        ("a b:1", "leave out"),
        ("user@a:1", "leave out"),
    ],
)
def test_what_others_write_is_refused_with_what_to_write(bad: str, hint: str) -> None:
    """Commas as for Kafka, an address of the web: as a host they would fail at the first send only."""
    with pytest.raises(ConfigError, match=f"is no host .*{hint}"):
        parse_addresses(bad)


@pytest.mark.parametrize("none", ["", " ; ", []])
def test_none_at_all(none: Any) -> None:
    """RocketMQ's text."""
    with pytest.raises(NoNameServer, match="please set it"):
        parse_addresses(none)


@pytest.mark.parametrize("bad", [5, None, [5], {"a:1"}])
def test_other_types_are_refused(bad: Any) -> None:
    """The error has the value."""
    with pytest.raises(ConfigError, match="neither str nor a list"):
        parse_addresses(bad)


class SilentPool:
    """Connections to a server that takes them and never says anything."""

    async def get(self, _address: str) -> Any:
        await asyncio.get_running_loop().create_future()


async def test_a_server_that_hangs_is_one_that_cannot_be_reached() -> None:
    """The error is ours and names the server, so that commands and the dashboard can tell it."""
    servers = NameServers(["a:1"], cast("Any", SilentPool()), SystemClock())
    with pytest.raises(ConnectFailed, match="cannot use b:2: no connection within 1 ms"):
        await servers.request_at("b:2", 26, None, timeout_ms=1)
    with pytest.raises(ConnectFailed, match="cannot use b:2"):
        await servers.is_pocketmq("b:2", timeout_ms=1)

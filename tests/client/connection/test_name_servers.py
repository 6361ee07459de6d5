"""Name-server addresses."""

from typing import Any

import pytest

from pocketmq.client.connection.name_servers import parse_addresses
from pocketmq.client.errors import NoNameServer
from pocketmq.common.errors import ConfigError


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

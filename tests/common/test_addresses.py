"""Addresses as text, and back."""

import pytest

from pocketmq.common.addresses import (
    LISTENERS_MAX,
    address_text,
    is_loopback_host,
    is_wildcard_host,
    parse_address,
    parse_listeners,
)


@pytest.mark.parametrize("address", ["10.0.0.1:1", "[2001:db8::1]:10911", "broker-a.example.org:65535", "broker_1:80"])
def test_an_address_is_parsed_back_into_what_made_it(address: str) -> None:
    assert address_text(*parse_address(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "host", ":1", "host:", "host:0", "host:65536", "host:1:2", "::1:80", "[::g]:80", "a b:1", "a\nb:1", "-a:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


def test_a_host_alone_takes_the_default_port() -> None:
    assert parse_address("example.org", 9876) == ("example.org", 9876)
    assert parse_address("[::1]", 0) == ("::1", 0)


@pytest.mark.parametrize(
    "text", ["a:1;b:2", "x=a:1;x=b:2", "X=a:1", "=a:1", ";".join(f"n{n}=a:1" for n in range(LISTENERS_MAX + 1))]
)
def test_listeners_have_names_of_their_own_and_a_limit(text: str) -> None:
    with pytest.raises(ValueError):
        parse_listeners(text)


def test_blank_parts_of_listeners_count_for_nothing() -> None:
    assert parse_listeners(" a:1 ; ;x=b:2;") == {"": ("a", 1), "x": ("b", 2)}
    assert parse_listeners("") == {}


def test_loopback_and_wildcard_hosts_are_told_from_names() -> None:
    assert all(map(is_loopback_host, ("127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost")))
    assert not any(map(is_loopback_host, ("", "0.0.0.0", "10.0.0.1", "localhost.example.org")))
    assert all(map(is_wildcard_host, ("", "0.0.0.0", "::")))
    assert not any(map(is_wildcard_host, ("127.0.0.1", "example.org")))

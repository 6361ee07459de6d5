"""Addresses as text.

Lives here: ``address_text``: host and port in one; ``parse_address``, the way back; ``parse_listeners``: addresses with
names; ``is_loopback_host``, ``is_wildcard_host``.
"""

import re
from ipaddress import ip_address
from typing import Final

LISTENERS_MAX: Final = 8
"""Named listeners of one server, and named addresses of one broker."""

_HOST: Final = r"\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?"
_ADDRESS: Final = re.compile(rf"({_HOST})(?::(\d{{1,5}}))?")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
PORT_MAX: Final = 65_535


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address.

    >>> address_text("10.0.0.1", 9876), address_text("::1", 9876)
    ('10.0.0.1:9876', '[::1]:9876')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Return (host, port) of ``host:port``; raise ``ValueError``, whose text says what is wrong. ``default_port``: that
    of a host alone; None: a port is needed.

    >>> parse_address("broker.example.org:10911"), parse_address("[::1]", 9876)
    (('broker.example.org', 10911), ('::1', 9876))
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or (match[2] is None and default_port is None):
        raise ValueError(f"{text[:300]!r} is not host:port")
    port = int(match[2]) if match[2] is not None else default_port or 0
    if port > PORT_MAX or (match[2] is not None and not port):
        raise ValueError(f"{text[:300]!r} has no port from 1 to {PORT_MAX}")
    host = match[1].strip("[]")
    if ":" in host:
        ip_address(host)  # raises ValueError with a text of its own
    return host, port


def parse_listeners(text: str, default_port: int | None = None) -> dict[str, tuple[str, int]]:
    """Return name → (host, port) of ``host:port;name=host:port;…``; the name of an address without one is "". Raise
    ``ValueError`` as ``parse_address``.

    >>> parse_listeners("10.0.0.5:10911;outside=broker.example.org:20911")
    {'': ('10.0.0.5', 10911), 'outside': ('broker.example.org', 20911)}
    """
    found: dict[str, tuple[str, int]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, equals, address = part.rpartition("=")
        if equals and _NAME.fullmatch(name) is None:
            raise ValueError(f"{name[:64]!r} is no name of a listener: a-z, 0-9, - and _, at most 32")
        if name in found:
            raise ValueError(f"two addresses for listener {name}" if name else "two addresses without a name")
        found[name] = parse_address(address, default_port)
    if len(found) > LISTENERS_MAX:
        raise ValueError(f"{len(found)} addresses, at most {LISTENERS_MAX}")
    return found


def is_loopback_host(host: str) -> bool:
    """Return whether a host means the machine that asks: a loopback address or ``localhost``."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_wildcard_host(host: str) -> bool:
    """Return whether a host to listen on means all addresses of the machine."""
    try:
        return not host or ip_address(host.partition("%")[0]).is_unspecified
    except ValueError:
        return False

"""Where clients find a broker: the addresses that it registers, and the numeric one in its records.

Lives here: ``AdvertisedAddresses``, ``advertised_addresses``, ``warn_of_loopback``.

An address that clients cannot reach is the classic trouble with RocketMQ behind a container or NAT: the broker
registers what its own machine calls itself. So a bind to all addresses needs an answer in the settings.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from pocketmq.broker.config import BrokerConfig
from pocketmq.common.addresses import address_text, is_loopback_host, is_wildcard_host
from pocketmq.common.errors import ConfigError, MessageIllegal
from pocketmq.common.events import EventLog
from pocketmq.common.record import encode_host


@dataclass(frozen=True, slots=True)
class AdvertisedAddresses:
    """Where clients find a broker. A port of 0 stands for the one that it listens on."""

    host: str
    """For clients: a name or a numeric address."""
    port: int
    by_listener: Mapping[str, tuple[str, int]]
    """Listener of a name server → (host, port) for the clients that ask there."""
    ha_host: str
    """For slaves."""
    record_host: str
    """In records and ids of messages, numeric; empty: ``host`` has to be resolved first."""

    def address(self, listen_port: int) -> str:
        """Return ``host:port`` for name servers."""
        return address_text(self.host, self.port or listen_port)

    def listener_addresses(self, listen_port: int) -> str:
        """Return ``name=host:port;…`` for name servers with several listeners."""
        return ";".join(
            f"{name}={address_text(host, port or listen_port)}" for name, (host, port) in self.by_listener.items()
        )

    def store_host(self, numeric: str, listen_port: int) -> bytes:
        """Return the host of records: ``record_host``, or what ``host`` was resolved to."""
        is_advertised = self.record_host in ("", self.host)
        return encode_host(numeric, (self.port if is_advertised else 0) or listen_port)


def advertised_addresses(config: BrokerConfig) -> AdvertisedAddresses:
    """Return what the settings say; raise ``ConfigError`` where clients would be told no address."""
    by_listener = config.advertised()
    host, port = by_listener.pop("", ("", 0))
    if config.broker_ip1 and not is_numeric(config.broker_ip1):
        raise ConfigError(
            "bad setting",
            why=f"broker.broker_ip1={config.broker_ip1!r} is no numeric address",
            hint=f"write an IP address, or --advertise {config.broker_ip1}:{config.listen_port} for a name",
        )
    bound = "127.0.0.1" if config.bind_address == "localhost" else config.bind_address
    own = config.broker_ip1 or ("" if is_wildcard_host(bound) else bound)
    host = host or own
    if not host or is_wildcard_host(host):
        raise ConfigError(
            "bad setting",
            why=f"broker.bind_address={config.bind_address} is no address that clients can reach",
            hint=f"say which one they use: --advertise host:{config.listen_port}, or broker.broker_ip1",
        )
    if host == bound and not is_numeric(host):
        raise ConfigError(
            "bad setting",
            why=f"broker.bind_address={host!r} is no numeric address",
            hint=f"write an IP address, and --advertise {host}:{config.listen_port} if clients use the name",
        )
    numeric = next((each for each in (config.broker_ip1, host, own) if each and is_numeric(each)), "")
    return AdvertisedAddresses(host, port, by_listener, own or host, numeric)


def is_numeric(host: str) -> bool:
    """Return whether a record can hold a host."""
    try:
        encode_host(host, 0)
    except MessageIllegal:
        return False
    return True


def resolve(host: str) -> str:
    """Return the numeric address of a name; raise ``ConfigError`` if it has none. Blocks; worker thread."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # a UnicodeError is one
        raise ConfigError(
            "the advertised address has no number",
            why=f"{host} cannot be resolved: {getattr(error, 'strerror', None) or error}",
            hint="set broker.broker_ip1 to the numeric address of this machine, which ids of messages hold",
        ) from error
    *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return str(address[0]).partition("%")[0]


def warn_of_loopback(config: BrokerConfig, advertised: AdvertisedAddresses, log: EventLog) -> None:
    """Warn of a broker that other machines can connect to, while it tells them to connect to themselves."""
    if is_loopback_host(config.bind_address) or not is_loopback_host(advertised.host):
        return
    log.warning(
        "loopback_advertised",
        advertised=advertised.host,
        bind_address=config.bind_address,
        why="name servers give clients this address: only those on this machine find the broker there, and others "
        "connect to themselves",
        hint=f"--advertise host:port with the address that clients use, or --host {advertised.host}",
    )

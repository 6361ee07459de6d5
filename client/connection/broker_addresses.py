"""Where a client looks for brokers whose advertised address it cannot reach: behind a container or NAT.

Lives here: ``BrokerAddressMap`` and its text form.

    ClientOptions(broker_addresses="namesrv-host")
    ClientOptions(broker_addresses={"172.17.0.2:10911": "localhost:10911", "*": "namesrv-host"})
    POCKETMQ_BROKER_ADDRESSES="172.17.0.2:10911=localhost:10911;*=namesrv-host"
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.addresses import address_text, is_loopback_host, is_wildcard_host, parse_address
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.protocol.namesrv import BrokerData, ClusterInfo, TopicRouteData

NAMESRV_HOST: Final = "namesrv-host"
"""The host of the name server that named the broker."""
LOOPBACK: Final = "loopback"
"""Every broker that advertises a loopback or wildcard address: its own machine, not the client's."""
ANY: Final = "*"
ENTRIES_MAX: Final = 4_096
VARIABLE: Final = "POCKETMQ_BROKER_ADDRESSES"
"""The environment variable that stands in where the option is not given."""


@dataclass(frozen=True, slots=True)
class BrokerAddressMap:
    """Advertised address → the one to connect to. The first of these entries counts: that of ``host:port``, that of the
    host, ``loopback`` for such a host, ``*``. A target without a port keeps the advertised one.
    """

    entries: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def reachable(self, address: str, namesrv: str) -> str:
        """Return where to connect for a broker that advertises ``address``. ``namesrv``: who named it."""
        if not self.entries:
            return address
        try:
            host, port = parse_address(address)
        except ValueError:  # what a peer says is no address: the connection will fail with that text
            return address
        target = self.entries.get(address_text(host, port)) or self.entries.get(host)
        if target is None and (is_loopback_host(host) or is_wildcard_host(host)):
            target = self.entries.get(LOOPBACK)
        target = target or self.entries.get(ANY)
        if target is None:
            return address
        to_host, to_port = target
        if to_host == NAMESRV_HOST:
            to_host = namesrv.rpartition(":")[0].strip("[]")
        return address_text(to_host, to_port or port)

    def of_route(self, route: TopicRouteData, namesrv: str) -> TopicRouteData:
        """Return a route with the addresses to connect to."""
        for broker in route.broker_datas if self.entries else ():
            self._replace(broker, namesrv)
        return route

    def of_cluster(self, info: ClusterInfo, namesrv: str) -> ClusterInfo:
        """Return a cluster with the addresses to connect to."""
        for broker in info.broker_addr_table.values() if self.entries else ():
            self._replace(broker, namesrv)
        return info

    def _replace(self, broker: BrokerData, namesrv: str) -> None:
        broker.broker_addrs = {
            broker_id: self.reachable(address, namesrv) for broker_id, address in broker.broker_addrs.items()
        }


def broker_address_map(given: str | Mapping[str, str]) -> BrokerAddressMap:
    """Return the map of ``ClientOptions.broker_addresses``, or where that is empty of the environment; raise
    ``ConfigError`` for an entry that is no address.
    """
    given = given or os.environ.get(VARIABLE, "")
    entries = given if isinstance(given, Mapping) else _from_text(given)
    if len(entries) > ENTRIES_MAX:
        raise ConfigError("client refused", why=f"broker_addresses has {len(entries)} entries, limit {ENTRIES_MAX}")
    return BrokerAddressMap(dict(_entry(source, target) for source, target in entries.items()))


def _from_text(text: str) -> dict[str, str]:
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if parts == [NAMESRV_HOST]:
        return {LOOPBACK: NAMESRV_HOST}
    pairs = [part.partition("=") for part in parts]
    return {source.strip(): target.strip() for source, _, target in pairs}


def _entry(source: str, target: str) -> tuple[str, tuple[str, int]]:
    try:
        if source not in (LOOPBACK, ANY):
            host, port = parse_address(source, default_port=0)
            source = address_text(host, port) if port else host
        return source, parse_address(target, default_port=0)
    except ValueError as error:
        raise ConfigError(
            "client refused",
            why=f"broker_addresses: {error}",
            hint=f'"{NAMESRV_HOST}", or advertised=reachable, such as "172.17.0.2:10911=localhost:10911"',
        ) from None

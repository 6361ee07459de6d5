"""The name servers of a client: several, one in use, the next when it fails.

Lives here: parsing of the address list, fail-over, the route query with its texts.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pocketmq.client.connection.broker_addresses import BrokerAddressMap
from pocketmq.client.errors import BrokerAnswerError, NoNameServer, NoRoute
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import AuthenticationFailed, ConnectFailed
from pocketmq.remoting.frame import SPEAKS_HTTP, Buffer
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.namesrv import ClusterInfo, GetRouteInfoRequestHeader, TopicRouteData
from pocketmq.remoting.protocol.spec import Header

ADDRESSES_MAX = 64
_NO_HOST: Final = frozenset("/,@?# \t")
ONE_SERVER_MS_MIN = 500
"""Each further name server gets at least this share of the time, so that one dead address does not use up all of it."""


def parse_addresses(namesrv: str | Sequence[str]) -> list[str]:
    """Return the addresses in ``"host:port;host:port"`` or in a list; raise ``ConfigError`` or ``NoNameServer``."""
    parts = namesrv.split(";") if isinstance(namesrv, str) else namesrv
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise ConfigError("namesrv refused", why=f"{namesrv!r} is neither str nor a list of str")
    addresses = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not addresses:
        raise NoNameServer("No name server address, please set it.", hint='pass namesrv="127.0.0.1:9876"')
    if len(addresses) > ADDRESSES_MAX:
        raise ConfigError("namesrv refused", why=f"{len(addresses)} addresses, over {ADDRESSES_MAX}")
    for address in addresses:
        host, separator, port = address.rpartition(":")
        if not host or not separator or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(
                "namesrv refused", why=f"{address!r} is no host:port", hint='write "127.0.0.1:9876;10.0.0.2:9876"'
            )
        if not _NO_HOST.isdisjoint(host):
            hint = "separate addresses by ;" if "," in host else "leave out what is not host:port"
            raise ConfigError("namesrv refused", why=f"{host!r} is no host", hint=hint)
    return addresses


A_BROKER: Final = "a broker, not a name server"
AN_HTTP_PORT: Final = "a port that speaks HTTP, not a name server"
_NEVER: Final = frozenset({A_BROKER, AN_HTTP_PORT})
"""Reasons that no time changes."""
_BY_NAME_SERVERS_ONLY: Final = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO})
"""What every name server answers and no broker does, of RocketMQ's as well."""


class NameServers:
    """Asks the name server in use; when that does not answer, the others in turn, and stays with the one that did."""

    def __init__(
        self,
        addresses: Sequence[str],
        pool: ChannelPool,
        clock: Clock,
        broker_addresses: BrokerAddressMap | None = None,
    ) -> None:
        """``broker_addresses``: applied to what ``route`` and ``cluster_info`` return."""
        self.addresses = tuple(addresses)
        self._broker_addresses = broker_addresses or BrokerAddressMap()
        self._pool = pool
        self._clock = clock
        self._current = 0

    @property
    def current(self) -> str:
        """The address asked first."""
        return self.addresses[self._current]

    def reachable(self, address: str) -> str:
        """Return where to connect for a broker that advertises ``address``."""
        return self._broker_addresses.reachable(address, self.current)

    async def request(self, code: int, header: Header | None, body: bytes = b"", *, timeout_ms: float) -> Response:
        """Return the first answer, whatever its code. Raise ``NoNameServer`` if no server gave one in time,
        ``AuthenticationFailed`` if one of them refused the credentials.
        """
        deadline_ns = self._clock.monotonic_ns() + int(timeout_ms * 1e6)
        failures: list[tuple[str, str]] = []
        refused: AuthenticationFailed | None = None
        count = len(self.addresses)
        for step in range(count):
            index = (self._current + step) % count
            left_ms = (deadline_ns - self._clock.monotonic_ns()) / 1e6
            if left_ms <= 0:
                break
            share_ms = left_ms if step == count - 1 else min(left_ms, max(ONE_SERVER_MS_MIN, left_ms / (count - step)))
            address = self.addresses[index]
            try:
                async with asyncio.timeout(share_ms / 1000):
                    channel = await self._pool.get(address)
                response = await channel.request(code, header, body, timeout_ms=int(share_ms))
            except TimeoutError:
                failures.append((address, f"no connection within {share_ms:.0f} ms"))
                continue
            except AuthenticationFailed as error:
                refused = error
                continue
            except PocketMQError as error:
                reason = error.reason if isinstance(error, ConnectFailed) else ""
                http = SPEAKS_HTTP in error.why
                failures.append((address, AN_HTTP_PORT if http else reason[:1].lower() + reason[1:] or str(error)))
                continue
            if code in _BY_NAME_SERVERS_ONLY and response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                failures.append((address, A_BROKER))
                continue
            self._current = index
            return response
        raise refused or self._none_answers(failures)

    def _none_answers(self, failures: Sequence[tuple[str, str]]) -> NoNameServer:
        """Return the error that has the reason of each address, once."""
        if failures and all(why in _NEVER for _, why in failures):
            what = " and ".join(f"{address} is {why}" for address, why in failures)
            hint = "give the address of a name server; it listens on port 9876 by default"
            error = NoNameServer(what, hint=hint)
            error.final = True
            return error
        why = failures[0][1] if len(self.addresses) == 1 and failures else "; ".join(map(": ".join, failures))
        hint = "start one: pocketmq standalone; or give its address: --namesrv, POCKETMQ_NAMESRV, namesrv="
        return NoNameServer(f"no name server at {';'.join(self.addresses)}", why=why, hint=hint)

    async def request_at(
        self, address: str, code: int, header: Header | None, body: bytes = b"", *, timeout_ms: float
    ) -> Response:
        """Send a request to one name server, whether in use or not, or to a broker."""
        channel = await self._channel(address, timeout_ms)
        return await channel.request(code, header, body, timeout_ms=int(timeout_ms))

    async def is_pocketmq(self, address: str, *, timeout_ms: float) -> bool:
        """Return whether a name server is PocketMQ's: RocketMQ's do not know our codes, and 4.9 does not refuse
        them."""
        channel = await self._channel(address, timeout_ms)
        return channel.announcement is not None

    async def _channel(self, address: str, timeout_ms: float) -> ClientChannel:
        """Return a connection. Raises ``ConnectFailed`` where a server takes it and says nothing in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._pool.get(address)
        except TimeoutError as error:
            raise ConnectFailed(
                f"cannot use {address}",
                why=f"no connection within {timeout_ms:.0f} ms",
                hint="does the process there hang, or a firewall drop what comes?",
            ) from error

    async def has_brokers(self, *, timeout_ms: float) -> bool:
        """Return whether any broker is registered; also where the name server does not say."""
        response = await self.request(RequestCode.GET_BROKER_CLUSTER_INFO, None, timeout_ms=timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            return True
        return bool(decode_body(response.body, ClusterInfo).broker_addr_table)

    async def route(self, topic: str, *, timeout_ms: float) -> TopicRouteData:
        """Return the topic's route; raise ``NoRoute`` when the name server has none."""
        response = await self.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic), timeout_ms=timeout_ms
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(
                f"No route info of this topic: {topic}",
                why="the name server does not know it",  # its remark repeats the sentence, with a link to a page
                hint="create the topic, or start its broker",
            )
        if response.code != ResponseCode.SUCCESS:
            raise BrokerAnswerError(
                f"route of {topic} refused", answer_code=response.code, remark=response.remark, address=self.current
            )
        return self._broker_addresses.of_route(decode_body(response.body, TopicRouteData), self.current)

    def cluster_info(self, body: Buffer) -> ClusterInfo:
        """Return the answer to GET_BROKER_CLUSTER_INFO of the name server in use."""
        return self._broker_addresses.of_cluster(decode_body(body, ClusterInfo), self.current)

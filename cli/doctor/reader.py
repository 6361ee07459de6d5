"""Reads a broker's own data, also from one that refuses sends at this moment.

Lives here: ``BrokerReader``: the list of brokers, and of one the runtime table (code 28) with its telemetry, settings
(26), replication and queue locks, of a RocketMQ replication (907) and lag (317), all asked for at once. Flow control
of sends does not affect these codes.
"""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from pocketmq.cli.connection import given
from pocketmq.cli.doctor.broker_metrics import BrokerSettings, Snapshot
from pocketmq.cli.doctor.rocketmq import RocketMQState, decode_state
from pocketmq.client.connection.broker_addresses import broker_address_map
from pocketmq.client.connection.name_servers import NameServers, parse_addresses
from pocketmq.client.errors import UNAVAILABLE_CODES, NoNameServer
from pocketmq.client.log import StandardLog
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import AuthenticationFailed, ConnectFailed, RequestTimeout
from pocketmq.remoting.protocol.body import Body, KVTable, decode_body
from pocketmq.remoting.protocol.group import GetBrokerConsumeStatsRequestHeader
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.lock import LockListRequestHeader, LockTableBody
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.security.client_security import ClientSecurity, client_security
from pocketmq.remoting.telemetry import TELEMETRY_KEY, TelemetrySnapshot, decode_telemetry

_T = TypeVar("_T", bound=Body)
BROKERS_MAX: Final = 256
"""Check a larger cluster in parts, by address."""


class NotAnswered(PocketMQError):
    """A broker accepts connections but does not send its runtime information."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Target:
    """A broker to check."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The data of one broker; ``error`` instead of a snapshot if it could not be read."""

    target: Target
    at_ms: int
    snapshot: Snapshot | None = None
    settings: BrokerSettings | None = None
    error: PocketMQError | None = None


class BrokerReader:
    """Asks brokers and name servers over its own channels. ``async with BrokerReader(timeout_ms=3000) as reader``

    It sends no heartbeat and joins no group, so it leaves no trace in the broker's client table.
    """

    def __init__(self, *, timeout_ms: int, clock: Clock | None = None, security: ClientSecurity | None = None) -> None:
        """``security``: of its connections, instead of that of the command."""
        self._security = security
        self._clock: Clock = clock or SystemClock()
        self._timeout_ms = timeout_ms
        self._config = ChannelConfig(connect_timeout_ms=timeout_ms, hello_timeout_ms=timeout_ms)
        self._pool: ChannelPool

    async def __aenter__(self) -> Self:
        self._pool = ChannelPool(
            clock=self._clock,
            log=StandardLog(),
            config=self._config,
            security=self._security or client_security(**given()),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close()

    async def targets(self, namesrv: str) -> list[Target]:
        """Return every broker that the name servers know, also slaves. Raises ``NoNameServer``."""
        servers = NameServers(parse_addresses(namesrv), self._pool, self._clock, broker_address_map(""))
        try:
            response = await servers.request(
                RequestCode.GET_BROKER_CLUSTER_INFO, None, timeout_ms=self._timeout_ms * len(servers.addresses)
            )
        except NoNameServer as error:
            if error.final:  # a broker's address
                error.hint = "check that broker: --broker HOST:PORT"
            raise
        if response.code != ResponseCode.SUCCESS:
            raise NoNameServer(
                "the name server did not list its brokers",
                why=f"{servers.current} answered {response.code} {response.remark}",
                hint="name a broker: --broker HOST:PORT",
            )
        info = servers.cluster_info(response.body)
        found = [
            Target(name if str(broker_id) == "0" else f"{name}#{broker_id}", address)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items(), key=lambda each: str(each[0]))
        ]
        return found[:BROKERS_MAX]

    async def members(self, namesrv: str, names: Set[str]) -> list[Target]:
        """Return the brokers of some names, none if these name servers do not answer."""
        try:
            found = await self.targets(namesrv) if namesrv else []
        except PocketMQError:
            return []
        return [target for target in found if target.name.partition("#")[0] in names]

    async def read_all(self, targets: Sequence[Target]) -> list[Reading]:
        """Read all targets concurrently."""
        return list(await asyncio.gather(*map(self.read, targets)))

    async def read(self, target: Target) -> Reading:
        """Read one target; an error becomes part of the reading."""
        try:
            channel = await self._pool.get(target.address)
            rest = asyncio.gather(
                self._settings(channel), self._ha(channel), self._locks(channel), self._rocketmq(channel)
            )
            try:
                runtime = await self._runtime(channel)
            except PocketMQError:
                rest.cancel()
                await asyncio.gather(rest, return_exceptions=True)  # else asyncio logs that nobody asked how it ended
                raise
        except PocketMQError as error:
            return Reading(target, self._clock.now_ms(), error=error)
        at_ms = self._clock.now_ms()
        settings, ha, locks, rocketmq = await rest
        name = target.name or settings.text("broker_name") or target.address
        has_telemetry = TELEMETRY_KEY in runtime
        telemetry = _telemetry(runtime)
        pocketmq = channel.announcement is not None or has_telemetry
        snapshot = Snapshot(
            broker=name,
            address=target.address,
            at_ms=at_ms,
            runtime=runtime,
            telemetry=telemetry,
            pocketmq=pocketmq,
            telemetry_unreadable=has_telemetry and telemetry is None,
            ha=ha,
            locks=locks,
            rocketmq=None if pocketmq else rocketmq,
        )
        return Reading(target, at_ms, snapshot, settings)

    async def _runtime(self, channel: ClientChannel) -> dict[str, str]:
        try:
            response = await channel.request(RequestCode.GET_BROKER_RUNTIME_INFO, None, timeout_ms=self._timeout_ms)
        except RequestTimeout as error:
            raise NotAnswered(
                f"{channel.address} accepts connections but does not answer",
                why=f"no runtime information within {self._timeout_ms} ms",
                hint="its admin thread is stuck, perhaps on the disk: see its log and the kernel log",
            ) from error
        if response.code != ResponseCode.SUCCESS:
            raise NotAnswered(
                f"{channel.address} did not send its runtime information",
                why=f"it answered {response.code} {response.remark}",
                hint="is it a broker, and not a name server?"
                if response.code not in UNAVAILABLE_CODES
                else "it is starting, stopping or busy with other requests: try again in a moment, and see its log",
            )
        return decode_body(response.body, KVTable).table

    async def _settings(self, channel: ClientChannel) -> BrokerSettings:
        """Return the settings; empty if the broker does not send them."""
        body = await self._body(channel, RequestCode.GET_BROKER_CONFIG)
        return BrokerSettings.parse((body or b"").decode("utf-8", "replace"))

    async def _ha(self, channel: ClientChannel) -> HaStatusBody | None:
        """Return the state of replication; None from RocketMQ, and where there is none."""
        body = await self._body(channel, RequestCode.HA_STATUS) if channel.announcement is not None else None
        return _decoded(body, HaStatusBody)

    async def _locks(self, channel: ClientChannel) -> LockTableBody | None:
        """Return the locks of ordered queues; None from RocketMQ, which lists none."""
        if channel.announcement is None:
            return None
        return _decoded(await self._body(channel, RequestCode.LOCK_LIST, LockListRequestHeader()), LockTableBody)

    async def _rocketmq(self, channel: ClientChannel) -> RocketMQState | None:
        """Return what a RocketMQ says beside its runtime table; None from PocketMQ."""
        if channel.announcement is not None:
            return None
        header = GetBrokerConsumeStatsRequestHeader(is_order=False)
        ha, stats = await asyncio.gather(
            self._body(channel, RequestCode.GET_BROKER_HA_STATUS),
            self._body(channel, RequestCode.GET_BROKER_CONSUME_STATS, header),
        )
        return decode_state(ha, stats)

    async def _body(self, channel: ClientChannel, code: int, header: Header | None = None) -> bytes | None:
        """Return the body of an answer, None without one: the doctor says less then."""
        try:
            response = await channel.request(code, header, timeout_ms=self._timeout_ms)
        except PocketMQError:
            return None
        return bytes(response.body) if response.code == ResponseCode.SUCCESS else None


def _decoded(body: bytes | None, kind: type[_T]) -> _T | None:
    try:
        return None if body is None else decode_body(body, kind)
    except PocketMQError:
        return None


def _telemetry(runtime: dict[str, str]) -> TelemetrySnapshot | None:
    text = runtime.pop(TELEMETRY_KEY, None)
    if text is None:
        return None
    try:
        return decode_telemetry(text)
    except PocketMQError:
        return None


def what_to_check(error: PocketMQError) -> tuple[str, ...]:
    """Return what an operator should check when a broker could not be read."""
    if isinstance(error, NotAnswered | AuthenticationFailed) or "TLS" in error.hint:
        return (error.hint,)
    why = error.why.lower()
    if "no valid frame" in why:
        return ("the port: the server there is neither RocketMQ nor PocketMQ",)
    refused = isinstance(error.__cause__, ConnectionRefusedError) or "refused" in why or "connect call failed" in why
    if isinstance(error, ConnectFailed) and refused:
        return (
            "nothing listens there: is the broker running? (its ready line, its log)",
            "the port: brokers listen on 10911 by default, name servers on 9876",
            "the address: a broker that listens on 127.0.0.1 can be reached only from its own machine",
        )
    if isinstance(error, ConnectFailed) and "no answer within" in why and "request" not in why:
        return (
            "the address: does that machine answer at all (ping)?",
            "the network: does a firewall or security group drop the connection?",
            "the process: does it stand still (stopped, swapping)? check its processor time",
        )
    if isinstance(error, ConnectFailed) and "not known" in why:
        return ("the name: it cannot be resolved to an address here",)
    return (
        "the process: does it accept connections without answering (stopped, event loop busy)?",
        "the port: does a RocketMQ or PocketMQ server listen there?",
        "the limit of connections: remoting.connections_max",
    )

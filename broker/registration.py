"""Registers the broker at its name servers.

Lives here: ``Registration``: one task per name server that registers, refreshes, sends increments when topics change,
claims the epoch of a replicated master, and unregisters at the stop; ``ReplicationView``, its view of replication.

A name server asks back over the same connection (HA_STATUS) when another broker wants this one's place: the answer
shows that this one lives, and what it has promised.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import msgspec

from pocketmq.broker.config import MASTER_ID, BrokerConfig
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.hashes import crc32
from pocketmq.common.record import CRC_MASK
from pocketmq.common.runner import LoopMailbox, Supervisor
from pocketmq.common.topics import Perm, TopicConfig
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import DataVersion, decode_body, encode_body
from pocketmq.remoting.protocol.ha import HaEpochRequestHeader, HaEpochResponseHeader, HaStatusBody
from pocketmq.remoting.protocol.namesrv import (
    BrokerIdentityRequestHeader,
    ClusterInfo,
    GetRouteInfoRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    TopicRouteData,
)
from pocketmq.remoting.security.client_security import NO_SECURITY, ClientSecurity

TOPICS_PER_REQUEST: Final = 10_000
"""A larger table is registered in several requests, each well below the frame limit."""
WITHDRAWN: Final = -2
"""``generation`` of a name server at which a replaced master has unregistered."""
RETRY_S: Final = 0.25
"""Wait after a registration that failed."""
LOST_S: Final = 0.05
"""Wait after a lost connection: two brokers that replace each other must not do so without a pause."""
FIRST_TIMEOUT_S: Final = 1.0
"""How long the start of a broker waits for its first registration; without one it serves, and says so."""
IS_MEMBER_MS: Final = 1500
"""Each of the two requests about a slave."""
STOP_TIMEOUT_S: Final = 1.0
CLAIM_MEMBERS_MS: Final = 2500
"""A slave waits for the answer to its HELLO meanwhile, for at most 5 s."""
ROUTE_TIMEOUT_MS: Final = 1000
"""A consumer gives up its question after 3 s."""
WANTS_MASTER_S: Final = 0.5
"""Interval at which a slave without a master asks for its address."""


class RegistrationRefused(PocketMQError):
    """A name server answered a registration with an error."""


class ReplicationView(Protocol):
    """Replication as name servers see it. Loop thread; no call blocks."""

    @property
    def ha_address(self) -> str:
        """Where slaves connect; empty: nowhere."""
        ...

    @property
    def role_name(self) -> str:
        """SYNC_MASTER, ASYNC_MASTER or SLAVE."""
        ...

    @property
    def may_register(self) -> bool:
        """False once another master has replaced this one."""
        ...

    @property
    def wants_master(self) -> bool:
        """Whether this is a slave without a master."""
        ...

    def claim(self) -> tuple[int, str]:
        """Return (epoch, owner) that a master with replicas claims; (0, "") for all others."""
        ...

    def status(self) -> HaStatusBody:
        """Return what this broker is and has promised."""
        ...

    def learn_master(self, ha_address: str, broker_address: str) -> None:
        """Learn the address of this slave's master."""
        ...

    def learn_epoch(self, epoch: int, owner: str, address: str) -> None:
        """Learn that another master has this name."""
        ...

    def learn_known_epoch(self, epoch: int) -> None:
        """Learn the newest epoch of this name that a name server knows."""
        ...


class _Wrapper(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig]
    data_version: DataVersion


class _RegisterBody(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _Wrapper
    filter_server_list: list[str] = []


@dataclass(slots=True)
class _NameServer:
    """What one name server has of this broker: the ``generation`` of topics sent over ``channel``, which is None when
    that is uncertain."""

    address: str
    wake: asyncio.Event
    tried: asyncio.Event
    channel: ClientChannel | None = None
    generation: int = -1
    failures: int = 0
    is_lost: bool = False
    error: str = "it has not answered yet"
    """Why it has not accepted this broker; empty once it has."""


@dataclass(slots=True, eq=False)
class Registration:
    """Keeps the broker registered. Loop thread, except ``topic_changed``.

    A registration adds and updates topics and removes none, so an increment is a registration with a part of the table.
    It is sent only over the channel of the last full one: a restarted name server gets all topics. Between changes
    QUERY_DATA_VERSION refreshes the registration (RocketMQ does so with ``forceRegister`` off).
    """

    config: BrokerConfig
    """With the broker id of this run."""
    address: str
    listener_addresses: str
    """``name=host:port;…``: other addresses, for clients that ask at these listeners of name servers."""
    topics: TopicTable
    registered_topics: RegisteredTopics
    mailbox: LoopMailbox
    clock: Clock
    log: EventLog
    replication: ReplicationView
    supervisor: Supervisor
    security: ClientSecurity = NO_SECURITY
    """How it connects to name servers and other brokers."""
    _pool: ChannelPool = field(init=False)
    _servers: list[_NameServer] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _accepted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a name server has accepted this broker."""

    def __post_init__(self) -> None:
        self._pool = ChannelPool(
            clock=self.clock,
            log=self.log,
            on_close=self._channel_closed,
            on_request=self._asked,
            security=self.security,
        )

    @property
    def refusals(self) -> dict[str, str]:
        """Return why each name server has not accepted this broker yet, by address; empty as soon as one has."""
        if any(not server.error for server in self._servers):
            return {}
        return {server.address: server.error for server in self._servers}

    def _asked(self, channel: ClientChannel, request: Request) -> None:
        """Answer a name server that asks whether this broker lives."""
        body, code = b"", int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        if request.code == RequestCode.HA_STATUS:
            body, code = encode_body(self.replication.status()), int(ResponseCode.SUCCESS)
        if not request.oneway:
            channel.respond(
                encode_response(code, request.opaque, request.code, body=body, serialize_type=request.serialize_type)
            )

    async def start(self) -> None:
        """Begin to register everywhere; return after one attempt at each name server once one has accepted this broker,
        or after a second."""
        for address in self.config.name_servers():
            server = _NameServer(address, asyncio.Event(), asyncio.Event())
            self._servers.append(server)
            self.registered_topics.follow(address)
            self._tasks.append(self.supervisor.keep(partial(self._keep_registered, server), f"register-{address}"))
        if self._servers:
            try:
                async with asyncio.timeout(FIRST_TIMEOUT_S):
                    for server in self._servers:
                        await server.tried.wait()
                    while self.refusals:
                        self._accepted.clear()
                        await self._accepted.wait()
            except TimeoutError:
                pass
            if self.refusals:
                self.log.warning("not_registered_yet", name_servers=self.refusals)

    def role_changed(self) -> None:
        """Register again: the claim has changed, or this master was replaced. Any thread."""
        self.mailbox.post(self._role_changed)

    def _role_changed(self) -> None:
        for server in self._servers:
            server.generation = -1
            server.wake.set()

    def topic_changed(self) -> None:
        """Register soon; simultaneous changes share one request. Any thread."""
        self.mailbox.post(self._wake_all)

    def _wake_all(self) -> None:
        for server in self._servers:
            server.wake.set()

    def _channel_closed(self, channel: ClientChannel, reason: str) -> None:
        """Register again at once: a name server forgets a broker whose connection closes."""
        for server in self._servers:
            if server.channel is channel:
                server.channel = None
                server.is_lost = True
                server.wake.set()

    async def stop(self) -> None:
        """Unregister everywhere, within a second."""
        self.registered_topics.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        known = [server for server in self._servers if server.channel is not None]
        if known:
            await asyncio.gather(*(self._unregister(server) for server in known))
        self._servers.clear()
        await self._pool.close()

    async def _keep_registered(self, server: _NameServer) -> None:
        while True:
            if server.is_lost:
                server.is_lost = False
                await asyncio.sleep(LOST_S)
            server.wake.clear()
            try:
                await self._register(server)
            except PocketMQError as error:
                server.channel = None
                server.error = str(error)
                self.registered_topics.missed(server.address)
                server.failures += 1
                if server.failures & (server.failures - 1) == 0:  # 1st, 2nd, 4th, 8th …
                    self.log.warning(
                        "register_failed", namesrv=server.address, error=str(error), failures=server.failures
                    )
                wait_s = RETRY_S
            else:
                if server.generation >= 0:
                    self.registered_topics.reached(server.address, server.generation)
                else:  # a slave, or a master that was replaced
                    self.registered_topics.missed(server.address)
                if server.failures:
                    self.log.info("register_recovered", namesrv=server.address, failures=server.failures)
                server.failures = 0
                if self.replication.may_register and server.channel is not None:
                    server.error = ""
                    self._accepted.set()
                else:
                    server.error = "another master has this name"
                wait_s = self.config.register_name_server_period / 1000
                if self.replication.wants_master:
                    wait_s = min(wait_s, WANTS_MASTER_S)
            server.tried.set()
            try:
                async with asyncio.timeout(wait_s):  # wait_for of Python 3.11 can swallow the cancellation of the stop
                    await server.wake.wait()
            except TimeoutError:
                pass

    async def _register(self, server: _NameServer) -> None:
        channel = await self._pool.get(server.address)
        if not self.replication.may_register:
            if server.channel is channel and server.generation != WITHDRAWN:
                await self._unregister(server)
                server.generation = WITHDRAWN
            server.channel = channel
            return
        if self.config.broker_id != MASTER_ID:
            await self._register_slave(server, channel)
            return
        if not await self._claim(channel):
            return
        generation = self.topics.generation
        if server.channel is channel:
            changed = self.topics.changed_since(server.generation)
            if generation == server.generation and not await self._query(channel):
                return
            if generation != server.generation and changed is not None:
                await self._send(channel, [(changed, self.topics.snapshot()[1])])
                server.generation = generation
                return
        topics, version = self.topics.snapshot()
        await self._send(channel, _chunks(topics, version))
        if server.channel is not channel:
            self.log.info("registered", namesrv=server.address, address=self.address, topics=len(topics))
        server.channel = channel
        server.generation = generation

    async def _register_slave(self, server: _NameServer, channel: ClientChannel) -> None:
        """Register without topics, which only the master registers, and learn the address of the master."""
        answer = await self._send(channel, [({}, self.topics.snapshot()[1])])
        if server.channel is not channel:
            self.log.info("registered", namesrv=server.address, address=self.address, master=answer.master_addr)
        server.channel = channel
        self.replication.learn_known_epoch(answer.epoch)
        if answer.master_addr or len(self._servers) == 1:
            self.replication.learn_master(answer.ha_server_addr, answer.master_addr)

    async def _claim(self, channel: ClientChannel) -> bool:
        """Claim this master's epoch, if it has one; return whether it may register."""
        epoch, owner = self.replication.claim()
        if not epoch:
            return True
        config = self.config
        header = self._claim_header(epoch, owner)
        response = await channel.request(RequestCode.HA_EPOCH, header, timeout_ms=config.register_broker_timeout_mills)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return True  # RocketMQ's name server keeps no epochs
        answer = response.header
        if response.code != ResponseCode.SUCCESS or not isinstance(answer, HaEpochResponseHeader):
            raise RegistrationRefused("epoch not claimed", why=f"code {response.code}: {response.remark}")
        if not answer.granted:
            self.replication.learn_epoch(answer.epoch, answer.owner, answer.address)
        return answer.granted

    def _claim_header(self, epoch: int, owner: str) -> HaEpochRequestHeader:
        """Return the claim of a master that has ``epoch`` in its log since its promotion."""
        name, role = self.config.broker_name, self.replication.role_name
        return HaEpochRequestHeader(name, epoch, owner, self.address, role, last_epoch=epoch)

    async def claim_members(self, epoch: int, owner: str) -> str:
        """Claim an epoch in which a master counts another slave; return "" when a majority of the name servers has it,
        else the reason for the failure. Name servers that keep no epochs do not count.
        """
        answers = await asyncio.gather(*(self._claim_at(server.address, epoch, owner) for server in self._servers))
        asked = [answer for answer in answers if answer is not None]
        granted = sum(answer is True for answer in asked)
        if 2 * granted > len(asked) or not asked:
            return ""
        why = "; ".join(str(answer) for answer in asked if answer is not True)
        return f"{granted} of {len(asked)} name servers know it: {why}"

    async def _claim_at(self, address: str, epoch: int, owner: str) -> bool | str | None:
        """Return True, or the reason for the refusal; None for a name server that keeps no epochs."""
        header = self._claim_header(epoch, owner)
        try:
            channel = await self._pool.get(address)
            response = await channel.request(RequestCode.HA_EPOCH, header, timeout_ms=CLAIM_MEMBERS_MS)
        except PocketMQError as error:
            return f"{address}: {error}"
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        answer = response.header
        if response.code != ResponseCode.SUCCESS or not isinstance(answer, HaEpochResponseHeader):
            return f"{address}: code {response.code}: {response.remark}"
        if not answer.granted:
            self.replication.learn_epoch(answer.epoch, answer.owner, answer.address)
            return f"{address}: {answer.address} has epoch {answer.epoch}"
        return True

    async def is_member(self, node_id: str, broker_id: int) -> str:
        """Return "" if the broker that is registered under this name with ``broker_id`` is the node ``node_id``, else
        the reason why it is not a member. Asks the name servers for its address, and the node there for its id."""
        name = self.config.broker_name
        pool = ChannelPool(clock=self.clock, log=self.log, security=self.security)
        try:
            address = ""
            why = "no name server has answered"
            for server in self._servers:
                try:
                    channel = await self._pool.get(server.address)
                    answer = await channel.request(
                        RequestCode.GET_BROKER_CLUSTER_INFO, None, timeout_ms=IS_MEMBER_MS // len(self._servers)
                    )
                    known = decode_body(answer.body, ClusterInfo).broker_addr_table.get(name)
                except PocketMQError as error:
                    why = f"{server.address}: {error}"
                    continue
                address = "" if known is None else known.broker_addrs.get(str(broker_id), "")
                if address:
                    break
                why = f"no broker {broker_id} of {name} is registered at {server.address}"
            if not address:
                return why
            channel = await pool.get(address)
            answer = await channel.request(RequestCode.HA_STATUS, None, timeout_ms=IS_MEMBER_MS)
            status = decode_body(answer.body, HaStatusBody) if answer.code == ResponseCode.SUCCESS else HaStatusBody()
            if (status.broker_name, status.node_id) != (name, node_id):
                return (
                    f"broker {broker_id} of {name} at {address} is node {status.node_id[:64]!a}, not {node_id[:64]!a}"
                )
            return ""
        except PocketMQError as error:
            return str(error)
        finally:
            await pool.close()

    async def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic as the first name server that answers has it; None: it has none, or there is no
        name server. Raise the last one's error if none answers.
        """
        failed: PocketMQError | None = None
        for server in self._servers:
            try:
                channel = await self._pool.get(server.address)
                answer = await channel.request(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic), timeout_ms=ROUTE_TIMEOUT_MS
                )
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                if answer.code != ResponseCode.SUCCESS:
                    raise RegistrationRefused("no route", why=f"code {answer.code}: {answer.remark}")
                return decode_body(answer.body, TopicRouteData)
            except PocketMQError as error:
                failed = error
        if failed is not None:
            raise failed
        return None

    async def _send(
        self, channel: ClientChannel, chunks: list[tuple[Mapping[str, TopicConfig], DataVersion]]
    ) -> RegisterBrokerResponseHeader:
        config = self.config
        epoch, owner = self.replication.claim()
        answer = RegisterBrokerResponseHeader()
        for topics, version in chunks:
            shown = _permitted(topics, config.broker_permission)
            body = msgspec.json.encode(_RegisterBody(_Wrapper(shown, version)))
            header = RegisterBrokerRequestHeader(
                broker_name=config.broker_name,
                broker_addr=self.address,
                cluster_name=config.broker_cluster_name,
                ha_server_addr=self.replication.ha_address,
                broker_id=config.broker_id,
                body_crc32=crc32(body) & CRC_MASK,
                epoch=epoch,
                epoch_owner=owner,
                listener_addrs=self.listener_addresses,
            )
            response = await channel.request(
                RequestCode.REGISTER_BROKER, header, body, timeout_ms=config.register_broker_timeout_mills
            )
            if response.code != ResponseCode.SUCCESS:
                raise RegistrationRefused("not registered", why=f"code {response.code}: {response.remark}")
            if isinstance(response.header, RegisterBrokerResponseHeader):
                answer = response.header
        return answer

    async def _query(self, channel: ClientChannel) -> bool:
        """Ask whether the name server needs the whole table; the request also keeps this broker registered."""
        response = await channel.request(
            RequestCode.QUERY_DATA_VERSION,
            self._identity(),
            encode_body(self.topics.snapshot()[1]),
            timeout_ms=self.config.register_broker_timeout_mills,
        )
        answer = response.header
        if response.code != ResponseCode.SUCCESS or not isinstance(answer, QueryDataVersionResponseHeader):
            return True
        return answer.changed

    def _identity(self) -> BrokerIdentityRequestHeader:
        config = self.config
        return BrokerIdentityRequestHeader(
            config.broker_name, self.address, config.broker_cluster_name, config.broker_id
        )

    async def _unregister(self, server: _NameServer) -> None:
        channel = server.channel
        assert channel is not None
        if channel.closed:
            return
        try:
            await channel.request(
                RequestCode.UNREGISTER_BROKER, self._identity(), timeout_ms=int(STOP_TIMEOUT_S * 1000)
            )
        except PocketMQError as error:
            self.log.warning("unregister_failed", namesrv=server.address, error=str(error))


def _permitted(topics: Mapping[str, TopicConfig], permission: int) -> dict[str, TopicConfig]:
    """Return topics as clients may use them on a broker with this permission (RocketMQ
    BrokerController.registerBrokerAll)."""
    if permission & Perm.READ and permission & Perm.WRITE:
        return dict(topics)
    return {name: msgspec.structs.replace(topic, perm=topic.perm & permission) for name, topic in topics.items()}


def _chunks(
    topics: Mapping[str, TopicConfig], version: DataVersion
) -> list[tuple[Mapping[str, TopicConfig], DataVersion]]:
    """Cut a table into requests; all except the last have versions of their own, or the name server would skip the
    others."""
    names = sorted(topics)
    chunks: list[tuple[Mapping[str, TopicConfig], DataVersion]] = []
    for number, at in enumerate(range(0, max(1, len(names)), TOPICS_PER_REQUEST)):
        part = {name: topics[name] for name in names[at : at + TOPICS_PER_REQUEST]}
        chunks.append((part, DataVersion(version.timestamp, -1 - number)))
    chunks[-1] = (chunks[-1][0], version)
    return chunks

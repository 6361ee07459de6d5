"""The shared part of producers and consumers of one process: connections, routes, heartbeats, ids.

Lives here: ``ClientInstance``: the channels to brokers (opened with a heartbeat, so that a broker's announcement is
known before the first message), the route cache and its refresh, the registration of groups.
"""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from pocketmq.client.connection.broker_addresses import broker_address_map
from pocketmq.client.connection.name_servers import NameServers, parse_addresses
from pocketmq.client.connection.refusal_facts import refusal_facts
from pocketmq.client.connection.rocketmq_limits import RocketMQLimits
from pocketmq.client.connection.route import BrokerAddresses, RouteTable, TopicRoute, route_from_data
from pocketmq.client.connection.route_wait import no_route, wait_for_route
from pocketmq.client.errors import BrokerNotExist, ForkedClient, NoRoute, NotStarted, answer_error
from pocketmq.client.log import StandardLog
from pocketmq.client.telemetry.switch import TelemetryArgument, spans_for
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.runner import Supervisor
from pocketmq.common.topics import AUTO_CREATE_TOPIC, Perm
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codec import Request, Response, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import (
    ConsumerData,
    ConsumerGroupRequestHeader,
    HeartbeatData,
    ProducerData,
    UnregisterClientRequestHeader,
)
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.security.client_security import TLSArgument, client_security
from pocketmq.remoting.security.credentials import Credentials

_T = TypeVar("_T")

SERIALIZE_TYPES: Final = {"JSON": JSON, "ROCKETMQ": BINARY, "MSGPACK": MSGPACK}
"""RocketMQ's names (SerializeType.java) and one of our own."""
INVALIDATE_GAP_MS = 200
"""A younger route is not fetched again: every lost frame of a dead broker invalidates it."""


_CONSUMER_REQUESTS = frozenset(
    {
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    }
)


def retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieve the error of a future whose callers may all have given up, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientOptions:
    """Times of a client, in ms (ClientConfig.java)."""

    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    api_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    serialize_type: str = ""
    """``rocketmq.serialize.type``: ``JSON``, ``ROCKETMQ`` (binary) or ``MSGPACK`` (PocketMQ's servers only) for the
    headers of all requests but the first to each server. Empty: msgpack where the server takes it, else JSON."""
    broker_addresses: str | Mapping[str, str] = ""
    """Advertised address → the one to connect to, for a client in or before a container: ``"namesrv-host"`` seeks
    brokers that advertise a loopback address at the name server's host; entries are ``host:port``, a host or ``*``
    (docs/deployment.md). Empty: what POCKETMQ_BROKER_ADDRESSES says, else as advertised."""

    def __post_init__(self) -> None:
        if self.serialize_type not in ("", *SERIALIZE_TYPES):
            raise ConfigError(
                "client refused", why=f"serialize_type={self.serialize_type!r}", hint=" or ".join(SERIALIZE_TYPES)
            )


RequestHandler = Callable[[ClientChannel, Request], None]
"""Takes one request of a broker, on the event loop; must not wait. Its errors are logged."""


@dataclass(slots=True, frozen=True)
class BrokerConnection:
    """An open connection to a broker. ``announcement`` is None for a real RocketMQ broker: it takes only RocketMQ's own
    requests.

    ``version``: its version as RocketMQ counts them (MQVersion.java), 0 if unknown.
    """

    broker_name: str
    address: str
    channel: ClientChannel
    announcement: Announcement | None
    version: int = 0

    @property
    def is_native(self) -> bool:
        """Whether it takes native requests, and carries out those of one connection in order."""
        return self.announcement is not None and bool(self.announcement.native)


class TaskSet:
    """The background tasks of one owner; ``cancel`` ends them all and waits for that."""

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        """``supervisor`` reports tasks that end with an unexpected error."""
        self._supervisor = supervisor or Supervisor(StandardLog())
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task that is kept until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> "asyncio.Task[None]":
        """Start a loop, and restart it whenever it fails."""
        task = self._supervisor.keep(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._supervisor.ended(task)

    async def wait(self, timeout_s: float) -> None:
        """Wait until all have ended, at most ``timeout_s``."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    async def cancel(self) -> None:
        """Cancel running tasks and wait for their end."""
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ClientInstance:
    """Shared by the producers and consumers it is passed to; each start is matched by a stop, and the last stop closes
    it.

    Belongs to one event loop and one process. After a fork every call raises ``ForkedClient``.

    ``credentials`` and ``tls`` hold for every connection; the files of ``tls`` are read once. ``telemetry``:
    OpenTelemetry for every producer and consumer; None: what ``telemetry.instrument`` has chosen for the process.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        options: ClientOptions | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        instance_name: str = "",
        log: EventLog | None = None,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        telemetry: TelemetryArgument = None,
    ) -> None:
        self.options = options or ClientOptions()
        self.security = client_security(credentials, tls)
        self.clock: Clock = clock or SystemClock()
        self.random = rng or random.Random()
        self.log: EventLog = log if log is not None else StandardLog()
        self._addresses = parse_addresses(namesrv)
        self._broker_addresses = broker_address_map(self.options.broker_addresses)
        self._pid = os.getpid()
        name = instance_name or f"{self._pid}#{self.random.getrandbits(48):012x}"
        self.client_id = f"{socket.gethostname() or 'localhost'}@{name}"
        self.telemetry = spans_for(telemetry, self.client_id, self.clock, self.log)
        """OpenTelemetry's spans of its users; None: there is no telemetry."""
        self.ids = UniqueIdGenerator(self.clock)
        self.routes = RouteTable(refresh_after_ms=self.options.poll_name_server_interval_ms)
        self.name_servers: NameServers
        self._pool: ChannelPool
        self._users = 0
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, Callable[[], ConsumerData]] = {}
        self._consumer_changes: dict[str, Callable[[], None]] = {}
        self._consumer_asked: dict[str, Callable[[ClientChannel, Request], None]] = {}
        self._fetching: dict[str, asyncio.Task[TopicRoute]] = {}
        self._opening: dict[str, asyncio.Task[BrokerConnection]] = {}
        self._connections: dict[str, BrokerConnection] = {}
        self.connections_opened = 0
        """Grows with every new connection to a broker."""
        self.supervisor = Supervisor(self.log, self.clock)
        self._tasks = TaskSet(self.supervisor)
        self.limits = RocketMQLimits(self.log)
        self.on_route_changed: list[Callable[[str], None]] = []
        self._request_handlers: dict[int, list[RequestHandler]] = {}
        self._shared: dict[type[Any], object] = {}

    @property
    def addresses(self) -> list[str]:
        """The name servers, as ``host:port``."""
        return list(self._addresses)

    @property
    def running(self) -> bool:
        """Whether at least one user has started it."""
        return self._users > 0

    def shared(self, kind: type[_T], make: Callable[[], _T]) -> _T:
        """Return the one object of ``kind`` that the users of this instance share; ``make`` it if there is none yet."""
        found = self._shared.get(kind)
        if found is None:
            found = self._shared[kind] = make()
        return cast(_T, found)

    def check_process(self) -> None:
        """Raise ``ForkedClient`` in a child process, ``NotStarted`` if the instance was not started."""
        if os.getpid() != self._pid:
            raise ForkedClient(
                "client used after a fork",
                why=f"it was made in process {self._pid}, this is {os.getpid()}",
                hint="make a new Producer or consumer in the child",
            )
        if not self._users:
            raise NotStarted("client is not running", hint='use "async with", or await start() first')

    async def start(self) -> None:
        """Count one more user; the first one opens the name-server channels and starts the background tasks."""
        if os.getpid() != self._pid:
            self.check_process()
        self._users += 1
        if self._users > 1:
            return
        config = ChannelConfig(
            connect_timeout_ms=self.options.connect_timeout_ms,
            serialize_type=SERIALIZE_TYPES.get(self.options.serialize_type),
        )
        self._pool = ChannelPool(
            clock=self.clock,
            log=self.log,
            config=config,
            security=self.security,
            on_request=self._on_request,
            rng=self.random,
        )
        self.name_servers = NameServers(self._addresses, self._pool, self.clock, self._broker_addresses)
        self._tasks.keep(self._refresh_loop, "pocketmq-routes")
        self._tasks.keep(self._heartbeat_loop, "pocketmq-heartbeat")

    async def stop(self) -> None:
        """Count one user less; the last one closes everything."""
        if not self._users:
            return
        self._users -= 1
        if self._users:
            return
        tasks, pool = self._tasks, self._pool  # a start that comes while these end makes its own
        self._tasks = TaskSet(self.supervisor)
        self._connections, self._fetching, self._opening = {}, {}, {}
        await tasks.cancel()
        await pool.close()

    # -- routes ------------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, timeout_ms: float, for_send: bool = False) -> TopicRoute:
        """Return the topic's route, from the cache or from a name server.

        ``for_send``: for a topic without a route return that of TBW102, so that the broker creates the topic
        (DefaultMQProducerImpl.tryToFindTopicPublishInfo). Raises ``NoRoute``, ``NoNameServer``.
        """
        self.check_process()
        cached = self.routes.get(topic)
        if cached is not None and (cached.write_queues if for_send else not cached.borrowed):
            return cached
        route: TopicRoute = await self._wait(self._fetch(topic, for_send), timeout_ms, f"route of {topic}", NoRoute)
        return route

    async def route_for_send(self, topic: str, *, timeout_ms: float, waited_ms: float = 0) -> TopicRoute:
        """Return the topic's route for a send, as ``route``; wait for name server and broker within ``timeout_ms``.

        ``waited_ms``: what the caller has waited before, for the error's text.
        """
        self.check_process()
        cached = self.routes.get(topic)
        if cached is not None and cached.write_queues:
            return cached
        return await wait_for_route(
            topic,
            lambda after_ms: self._fetch(topic, True, after_ms),
            timeout_ms,
            waited_ms,
            name_servers=self.name_servers.addresses,
        )

    def invalidate_route(self, topic: str) -> None:
        """Fetch a topic's route again, in the background: one of its brokers did not answer.

        The old one stays in use meanwhile, and if no name server answers. At most every 200 ms.
        """
        if self.routes.is_older(topic, INVALIDATE_GAP_MS, self.clock.monotonic_ns()):
            self._fetch(topic, True)

    def invalidate_routes_of(self, broker_name: str) -> None:
        """Fetch the routes that name a broker again, in the background: it did not answer a read."""
        for topic in self.routes.topics():
            route = self.routes.get(topic)
            named = route is not None and broker_name in route.brokers
            if named and self.routes.is_older(topic, INVALIDATE_GAP_MS, self.clock.monotonic_ns()):
                self._fetch(topic, False)

    def _fetch(self, topic: str, for_send: bool, after_ms: int = 0) -> "asyncio.Task[TopicRoute]":
        """Return the task that fetches a route, after a pause; callers that come meanwhile share it."""
        key = f"{topic}\x00{for_send}{bool(after_ms)}"
        task = self._fetching.get(key)
        if task is None:
            task = self._tasks.spawn(self._fetch_route(topic, for_send, after_ms), f"pocketmq-route-{topic}")
            self._fetching[key] = task
            task.add_done_callback(retrieve_exception)
            fetching = self._fetching
            task.add_done_callback(lambda _: fetching.pop(key, None))
        return task

    async def _fetch_route(self, topic: str, for_send: bool, after_ms: int) -> TopicRoute:
        if after_ms:
            await asyncio.sleep(after_ms / 1000)
        timeout_ms = self.options.api_timeout_ms
        try:
            data = await self.name_servers.route(topic, timeout_ms=timeout_ms)
            route = route_from_data(topic, data)
        except NoRoute:
            if not for_send:
                raise
            try:
                data = await self.name_servers.route(AUTO_CREATE_TOPIC, timeout_ms=timeout_ms)
            except NoRoute as error:
                registered = await self.name_servers.has_brokers(timeout_ms=timeout_ms)
                raise no_route(topic, registered, self._addresses) from error
            route = route_from_data(topic, data, borrowed=True)
        if for_send and not route.write_queues:
            refusal = NoRoute(
                f"No route info of this topic: {topic}",
                why="no broker with a master takes writes for it",
                hint="check its permission, and that its master is running",
            )
            refusal.final = not any(queue.perm & Perm.WRITE for queue in data.queue_datas)
            raise refusal
        if self.routes.put(route, self.clock.monotonic_ns()):
            if route.left_out:
                self.log.warning("route_cut", topic=topic, why=route.left_out)
            for changed in list(self.on_route_changed):
                changed(topic)
        return route

    async def refresh(self, topic: str, *, for_send: bool = False) -> TopicRoute:
        """Fetch a topic's route from the name server, past the cache."""
        self.check_process()
        timeout_ms = self.options.api_timeout_ms
        route: TopicRoute = await self._wait(self._fetch(topic, for_send), timeout_ms, f"route of {topic}", NoRoute)
        return route

    async def _refresh_loop(self) -> None:
        while True:
            await asyncio.sleep(self.options.poll_name_server_interval_ms / 4000)
            for topic in self.routes.due(self.clock.monotonic_ns()):
                route = self.routes.get(topic)
                try:
                    await self._fetch(topic, route is not None and route.borrowed)
                except NoRoute:
                    self.routes.forget(topic)
                except PocketMQError as error:
                    self.log.warning("route_not_refreshed", topic=topic, error=str(error))

    # -- brokers -----------------------------------------------------------------------------------------------

    def broker(self, broker_name: str) -> BrokerAddresses:
        """Return a broker's addresses from the known routes; raise ``BrokerNotExist``."""
        found = self.routes.broker(broker_name)
        if found is None:
            raise BrokerNotExist(
                f"The broker[{broker_name}] not exist", why="no known route names it", hint="refresh the route"
            )
        return found

    def open_connection(self, broker_name: str) -> BrokerConnection | None:
        """Return the connection to a broker's master if it is open now."""
        found = self.routes.broker(broker_name)
        connection = self._connections.get(found.master) if found is not None else None
        return connection if connection is not None and not connection.channel.closed else None

    async def connection(self, broker_name: str, *, timeout_ms: float, broker_id: int = 0) -> BrokerConnection:
        """Return an open connection to a broker; connect and send a heartbeat if there is none yet."""
        self.check_process()
        found = self.broker(broker_name)
        address = found.master if broker_id == 0 else found.readable(broker_id)
        if not address:
            raise BrokerNotExist(
                f"The broker[{broker_name}] not exist", why="it has no master", hint="start its master"
            )
        return await self.connection_to(address, broker_name, timeout_ms=timeout_ms)

    async def connection_to(self, address: str, broker_name: str, *, timeout_ms: float) -> BrokerConnection:
        """Return an open connection to ``address``."""
        connection = self._connections.get(address)
        if connection is not None and not connection.channel.closed:
            return connection
        task = self._opening.get(address)
        if task is None:
            task = self._tasks.spawn(self._open(address, broker_name), f"pocketmq-connect-{address}")
            self._opening[address] = task
            task.add_done_callback(retrieve_exception)
            opening = self._opening
            task.add_done_callback(lambda _: opening.pop(address, None))
        opened: BrokerConnection = await self._wait(task, timeout_ms, f"connection to {address}", ConnectFailed)
        return opened

    async def _open(self, address: str, broker_name: str) -> BrokerConnection:
        channel = await self._pool.get(address)
        response = await channel.request(
            RequestCode.HEART_BEAT, None, self._heartbeat_body(), timeout_ms=self.options.connect_timeout_ms
        )
        check_answer(response, f"heartbeat to {broker_name} refused", address)
        connection = BrokerConnection(broker_name, address, channel, channel.announcement, response.version)
        if connection.announcement is None:
            self.limits.opened(broker_name, address, response.version)
        self._connections[address] = connection
        self.connections_opened += 1
        return connection

    async def _wait(
        self, task: "asyncio.Task[Any]", timeout_ms: float, what: str, error_type: type[PocketMQError]
    ) -> Any:
        """Wait for a shared task without cancelling it for the others."""
        done, _ = await asyncio.wait([task], timeout=max(timeout_ms, 0) / 1000)
        if not done:
            raise error_type(
                f"{what} timed out", why=f"nothing after {timeout_ms:.0f} ms", hint="check name server and broker"
            )
        if task.cancelled():
            raise NotStarted(f"{what} given up", why="the client was stopped")
        return task.result()

    # -- groups and heartbeats ---------------------------------------------------------------------------------

    def add_producer(self, group: str) -> None:
        """Name a producer group in the heartbeats."""
        self._producers[group] = self._producers.get(group, 0) + 1

    def add_consumer(
        self,
        group: str,
        describe: Callable[[], ConsumerData],
        changed: Callable[[], None],
        asked: Callable[[ClientChannel, Request], None] | None = None,
    ) -> None:
        """Name a consumer group in the heartbeats; ``changed`` is called when a broker reports new members.

        ``asked``: answers an administrator's requests to this group's consumer, sent through a broker.
        """
        if group in self._consumers:
            raise ConfigError(
                "consumer refused",
                why=f"this client has a consumer of group {group}",
                hint="give each consumer of a group an instance of its own",
            )
        self._consumers[group] = describe
        self._consumer_changes[group] = changed
        if asked is not None:
            self._consumer_asked[group] = asked

    async def remove_producer(self, group: str) -> None:
        """Tell the brokers that a producer group has left; answers are awaited, failures only logged."""
        count = self._producers.pop(group, 0) - 1
        if count > 0:
            self._producers[group] = count
        else:
            await self._unregister(UnregisterClientRequestHeader(client_id=self.client_id, producer_group=group))

    async def remove_consumer(self, group: str) -> None:
        """Tell the brokers that a consumer group has left."""
        if self._consumers.pop(group, None) is not None:
            self._consumer_changes.pop(group, None)
            self._consumer_asked.pop(group, None)
            await self._unregister(UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=group))

    async def _unregister(self, header: UnregisterClientRequestHeader) -> None:
        async def unregister(connection: BrokerConnection) -> None:
            try:
                await connection.channel.request(
                    RequestCode.UNREGISTER_CLIENT, header, timeout_ms=self.options.api_timeout_ms
                )
            except PocketMQError as error:
                self.log.info("unregister_failed", address=connection.address, error=str(error))

        await asyncio.gather(
            *(unregister(connection) for connection in self._connections.values() if not connection.channel.closed)
        )

    async def heartbeat(self) -> None:
        """Send a heartbeat to every broker of every known route: masters, and slaves too when there are consumers."""
        wanted: dict[str, str] = {}
        for broker in self.routes.brokers().values():
            for broker_id, address in broker.addresses.items():
                if broker_id == 0 or self._consumers:
                    wanted[address] = broker.broker_name

        async def beat(address: str, broker_name: str) -> None:
            connection = self._connections.get(address)
            try:
                if connection is None or connection.channel.closed:
                    await self.connection_to(address, broker_name, timeout_ms=self.options.api_timeout_ms)
                else:
                    await connection.channel.request(
                        RequestCode.HEART_BEAT, None, self._heartbeat_body(), timeout_ms=self.options.api_timeout_ms
                    )
            except PocketMQError as error:
                self.log.warning("heartbeat_failed", address=address, error=str(error))

        await asyncio.gather(*(beat(address, name) for address, name in wanted.items()))

    async def beat(self, connection: BrokerConnection, *, timeout_ms: int) -> None:
        """Send one heartbeat, so that a broker knows this client's groups now. Raises its refusal."""
        response = await connection.channel.request(
            RequestCode.HEART_BEAT, None, self._heartbeat_body(), timeout_ms=timeout_ms
        )
        check_answer(response, f"heartbeat to {connection.broker_name} refused", connection.address)

    def _heartbeat_body(self) -> bytes:
        return encode_body(
            HeartbeatData(
                client_id=self.client_id,
                producer_data_set=[ProducerData(group_name=group) for group in self._producers],
                consumer_data_set=[describe() for describe in self._consumers.values()],
            )
        )

    async def _heartbeat_loop(self) -> None:
        while True:
            await asyncio.sleep(self.options.heartbeat_broker_interval_ms / 1000)
            await self.heartbeat()

    def connection_of(self, channel: ClientChannel) -> BrokerConnection | None:
        """Return the open connection that uses ``channel``."""
        connection = self._connections.get(channel.address)
        return connection if connection is not None and connection.channel is channel and not channel.closed else None

    def add_request_handler(self, code: int, handler: RequestHandler) -> None:
        """Let ``handler`` see every request of this code that a broker sends; several may."""
        self._request_handlers.setdefault(int(code), []).append(handler)

    def remove_request_handler(self, code: int, handler: RequestHandler) -> None:
        """Remove a request handler."""
        handlers = self._request_handlers.get(int(code), [])
        if handler in handlers:
            handlers.remove(handler)

    def _on_request(self, channel: ClientChannel, request: Request) -> None:
        """Dispatch a request from a broker."""
        for handler in list(self._request_handlers.get(request.code, ())):
            try:
                handler(channel, request)
            except Exception as error:  # one user's fault is no reason to lose the connection of all
                self.log.error("request_handler_failed", code=request.code, error=repr(error), exc_info=error)
        header = request.header
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and isinstance(header, ConsumerGroupRequestHeader):
            changed = self._consumer_changes.get(header.consumer_group)
            if changed is not None:
                changed()
        elif request.code in _CONSUMER_REQUESTS:
            group = getattr(header, "consumer_group", "") or getattr(header, "group", "")
            asked = self._consumer_asked.get(group)
            if asked is not None:
                asked(channel, request)
            elif not request.oneway:
                text = f"The Consumer Group <{group}> not exist in this consumer"
                channel.respond(
                    encode_response(
                        ResponseCode.SYSTEM_ERROR,
                        request.opaque,
                        request.code,
                        remark=text,
                        serialize_type=request.serialize_type,
                    )
                )


def check_answer(response: Response, what: str, address: str, *accepted: int) -> Response:
    """Return ``response`` if its code is SUCCESS or in ``accepted``; raise ``BrokerAnswerError`` otherwise."""
    if response.code != ResponseCode.SUCCESS and response.code not in accepted:
        facts = refusal_facts(response.extra)
        raise answer_error(
            what,
            answer_code=response.code,
            remark=response.remark,
            address=address,
            cause=facts.cause,
            retry_after_ms=facts.retry_after_ms,
        )
    return response

"""The name server: requests to the route table and back.

    app = NamesrvApp(NamesrvConfig(listen_port=0));  await app.start();  print(app.address);  await app.stop()

Lives here: ``NamesrvApp``, one handler for each request code.
Everything is in memory, so requests are served in the loop as they come, without queues.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from zlib import crc32

from pocketmq.auth.auth_admin import AuthAdmin
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.common.addresses import address_text
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.limits import table_topic_error
from pocketmq.common.record import CRC_MASK
from pocketmq.common.runner import LoopMailbox, Runner, Supervisor, ThreadRunner, Worker
from pocketmq.namesrv.claims import Claims
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.epoch_store import EpochStore
from pocketmq.namesrv.holders import Holders, Life
from pocketmq.namesrv.http_pages import HttpPages
from pocketmq.namesrv.kv_table import ORDER_TOPIC_CONFIG, KVTable
from pocketmq.namesrv.refused import RequestRefused
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.remoting.codec import Body, Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.http_server import MetricsConfig
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.server_limits import ServerLimits
from pocketmq.remoting.protocol.body import DataVersion, decode_body, encode_body
from pocketmq.remoting.protocol.body import KVTable as KVTableBody
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.namesrv import (
    AddWritePermResponseHeader,
    GetKVConfigResponseHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerBody,
    RegisterBrokerResponseHeader,
    WipeWritePermResponseHeader,
)
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.protocol.topic import TopicConfigBody, TopicList
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig

NO_ROUTE_TEXT: Final = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
UNIT_FLAG: Final = 0x1
UNIT_SUB_FLAG: Final = 0x2
"""Topic sysFlag bits (RocketMQ TopicSysFlag)."""
AUTH_REQUESTS_MAX: Final = 256
"""Requests about users and policies that wait for the disk; more are refused."""
STOP_GRACE_MS: Final = 500
TOPICS_LOGGED_MAX: Final = 100
"""Illegal topics of registrations that are logged one by one."""


Answer = tuple[Header | None, Body]
"""What a handler returns: typed header and body."""


class NamesrvApp:
    """A name server in the event loop that ``start`` is awaited in; several can live in one process and loop."""

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        server_config: ServerConfig | None = None,
        clock: Clock | None = None,
        log: EventLog | None = None,
        runner: Runner | None = None,
        auth_config: AuthConfig | None = None,
        tls_config: TlsConfig | None = None,
        limits_config: LimitsConfig | None = None,
        metrics_config: MetricsConfig | None = None,
    ) -> None:
        """``metrics_config``: the HTTP port, if one is served."""
        self.config = config
        self._metrics_config = metrics_config or MetricsConfig()
        self._pages: HttpPages | None = None
        self._server_config = server_config or ServerConfig()
        self._clock = clock or SystemClock()
        self._log = log or NullLog()
        self._refused = RefusedRequests(self._clock, self._log)
        self.auth = ServerAuth(
            auth_config or AuthConfig(), "", cluster="*", clock=self._clock, log=self._log, refused=self._refused
        )
        """Users, policies and who was refused."""
        self.limits = ServerLimits(limits_config or LimitsConfig(), self._clock)
        """What clients, addresses and users may ask for; of these, connections and frames come here."""
        if self.auth.guard is not None:
            self.auth.guard.limits = self.limits
        self.tls = TlsFiles(tls_config or TlsConfig(), self._clock, self._log)
        """Certificates of the listener."""
        self.routes = RouteTable(
            config.brokers_max, config.topics_max, config.topic_queue_nums_max, config.routes_size_bytes_max
        )
        self._auth_admin = AuthAdmin(self.auth, self._log)
        self._auth_asked: deque[tuple[Connection, Request]] = deque()
        self._auth_worker: Worker | None = None
        self.kv = KVTable(config.kv_entries_max, config.kv_size_bytes_max)
        self.epochs = EpochStore(config.epochs_max, config.epoch_store_dir, self._log)
        self.supervisor = Supervisor(self._log, self._clock)
        self._holders = Holders(config.broker_answer_timeout)
        self._claims = Claims(self.routes, self.epochs, self._holders, self, config.epochs_max, self._log)
        self._left_out: set[tuple[str, str]] = set()  # (broker name, illegal topic) that were logged
        self._runner: Runner = runner or ThreadRunner(self.supervisor.crashed)
        self._server: RemotingServer | None = None
        self._listener_of_port = config.listener_of_port()
        """Port of a further listener → its name."""
        self._scan_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: Mapping[int, Callable[[Connection, Request], Answer]] = {
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_ununit_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.GET_NAMESRV_CONFIG: self._settings,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_settings,
        }
        self._held: Mapping[int, Callable[[Connection, Request], None]] = {
            RequestCode.REGISTER_BROKER: self._register_when_free,
            RequestCode.HA_EPOCH: self._claims.serve,
            **dict.fromkeys(self._auth_admin.handlers, self._auth_later),
        }
        """Requests that may wait: for the disk, or for the answer of a broker whose place they want."""

    @property
    def port(self) -> int:
        """Where it listens; 0 when it does not run."""
        return 0 if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """The address for clients and brokers: ``host:port``; on a wildcard address, this machine's loopback."""
        host = self.config.bind_address
        loopback = {"0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
        return address_text(loopback.get(host, host), self.port)

    @property
    def metrics_address(self) -> str:
        """``host:port`` of the HTTP port; empty where it is not served."""
        return "" if self._pages is None else address_text(self._metrics_config.bind_address, self._pages.port)

    async def start(self) -> None:
        """Listen and serve; raises ``AddressInUse``, ``BindFailed`` or ``EpochsUnreadable``."""
        assert self._server is None
        self._loop = asyncio.get_running_loop()
        self.auth.load()
        self.tls.load()
        self.epochs.load()  # before the port is open: no request waits for this read
        server = RemotingServer(
            self._server_config,
            self,
            announce=lambda connection: Announcement(native=0, frame_bytes_max=self._server_config.frame_bytes_max),
            log=self._log,
            clock=self._clock,
            serves=lambda code: code in self._handlers or code in self._held,
            refused=self._refused,
            tls=self.tls,
        )
        server.guard, server.limits = self.auth.guard, self.limits
        await server.start(self.config.bind_address, self.config.listen_port)
        try:
            for host, port in self.config.named_listeners().values():
                await server.listen_also(host, port)
        except BaseException:
            await server.stop(0)
            raise
        self._server = server
        if self._metrics_config.listen_port:
            pages = HttpPages(
                self._metrics_config,
                server,
                self.routes,
                self.auth,
                self.tls,
                self._refused,
                self.supervisor,
                self._clock,
                self._log,
            )
            try:
                pages.start(self._runner, self._loop)
            except PocketMQError:
                self._server = None
                await server.stop(0)
                raise
            self._pages = pages
        self._mailbox = LoopMailbox(self._loop)
        self.epochs.start(self._runner, self._mailbox)
        self._auth_worker = self._runner.start("NamesrvAuth", self._auth_step, first_after_ms=None)
        self.tls.start(self._runner)
        self._arm()
        self._log.info("namesrv_started", address=self.address)

    async def stop(self) -> None:
        """Close the port and every connection. Does nothing if it does not run."""
        server = self._server
        if server is None:
            return
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        self.epochs.stop()
        if self._auth_worker is not None:
            self._auth_worker.stop()
            self._auth_worker = None
        self._auth_asked.clear()
        self.tls.stop()
        self._holders.close()
        self._refused.log_left_out(all_of_them=True)
        await server.stop(STOP_GRACE_MS)
        self._server = None
        pages, self._pages = self._pages, None
        if pages is not None:
            pages.stop()
        self._log.info("namesrv_stopped")

    # ---- the server's side -------------------------------------------------------------------------------------------

    def on_request(self, connection: Connection, request: Request) -> None:
        """Serve one request."""
        held = self._held.get(request.code)
        if held is None:
            self._serve(connection, request, self._handlers.get(request.code, self._unknown))
            return
        try:
            held(connection, request)
        except PocketMQError as error:
            self.refuse(connection, request, error)

    def _serve(
        self, connection: Connection, request: Request, handler: Callable[[Connection, Request], Answer]
    ) -> None:
        try:
            header, body = handler(connection, request)
        except PocketMQError as error:
            self.refuse(connection, request, error)
        else:
            self._answer(connection, request, int(ResponseCode.SUCCESS), header, body=body)

    def answer(self, connection: Connection, request: Request, header: Header) -> None:
        """See ``Replies``."""
        self._answer(connection, request, int(ResponseCode.SUCCESS), header)

    def refuse(self, connection: Connection, request: Request, error: PocketMQError) -> None:
        """See ``Replies``."""
        code, cause, remark = error.code, error.cause, str(error)
        if isinstance(error, RequestRefused):
            code, cause, remark = error.response_code, Cause.BAD_REQUEST, error.what
        self._refused.note_request(request, connection.remote, code, cause, remark)
        self._answer(connection, request, code, None, remark)

    def _unknown(self, connection: Connection, request: Request) -> Answer:
        raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")

    @staticmethod
    def _answer(
        connection: Connection, request: Request, code: int, header: Header | None, remark: str = "", body: Body = b""
    ) -> None:
        if not request.oneway and not connection.closed:
            connection.respond(
                encode_response(
                    code,
                    request.opaque,
                    request.code,
                    header=header,
                    remark=remark,
                    body=body,
                    serialize_type=request.serialize_type,
                )
            )

    def on_open(self, connection: Connection) -> None:
        """Do nothing: a connection counts from its first request."""

    def on_close(self, connection: Connection, reason: str) -> None:
        """Forget the broker that registered through this connection, at once."""
        for address in self.routes.channel_closed(connection):
            self._log.warning("broker_gone", address=address, why=reason)

    def _arm(self) -> None:
        assert self._loop is not None
        interval_s = self.config.scan_not_active_broker_interval / 1000
        self._scan_timer = self._loop.call_later(interval_s, self._scan)

    def _scan(self) -> None:
        self._arm()
        self._refused.log_left_out()
        self.scan()

    def scan(self) -> None:
        """Forget the brokers that were silent for too long and close their connections. Runs by itself."""
        oldest_ns = self._clock.monotonic_ns() - self.config.broker_expired_timeout * 1_000_000
        for address, channel in self.routes.expire(oldest_ns):
            self._log.warning("broker_expired", address=address, silent_ms=self.config.broker_expired_timeout)
            if isinstance(channel, Connection):
                channel.close("the broker was silent for too long")

    # ---- users and policies ------------------------------------------------------------------------------------------

    def _auth_later(self, connection: Connection, request: Request) -> None:
        """Let the worker serve a request about users or policies: a change waits for the disk."""
        if self._auth_worker is None or len(self._auth_asked) >= AUTH_REQUESTS_MAX:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "requests about users and policies wait for the disk")
        self._auth_asked.append((connection, request))
        self._auth_worker.wake()

    def _auth_step(self) -> None:
        """Serve the requests that wait. Worker thread."""
        while self._auth_asked:
            connection, request = self._auth_asked.popleft()
            try:
                body = self._auth_admin.handlers[request.code](request, connection.remote)
            except PocketMQError as error:
                self._mailbox.post(self.refuse, connection, request, error)
            else:
                success = int(ResponseCode.SUCCESS)
                self._mailbox.post(partial(self._answer, connection, request, success, None, body=body))

    # ---- brokers -----------------------------------------------------------------------------------------------------

    def _register_when_free(self, connection: Connection, request: Request) -> None:
        """Register a broker; while another one has its place, ask that one first whether it lives."""
        header: Any = request.header
        place = header.broker_name, header.broker_addr, header.broker_id
        self.routes.check_texts(header.broker_name, header.broker_addr, header.cluster_name, header.ha_server_addr)
        holders = [each for each in self.routes.holders(*place, connection) if isinstance(each, Connection)]
        if not holders:
            self._serve(connection, request, self._register)
            return
        holder = holders[0]

        def done(life: Life) -> None:
            if connection.closed:  # nothing would take its registration out again at once
                return
            try:
                if holder in self.routes.holders(*place, connection):
                    if life.lives and not self.config.broker_takeover_enable:
                        raise self._claims.lives(header.broker_name, header.broker_id, "registered")
                    why = "another broker has registered in its place" + ("" if life.lives else ": it did not answer")
                    self._claims.drop(holder, why)
                self._register_when_free(connection, request)
            except PocketMQError as error:
                self.refuse(connection, request, error)

        self._holders.ask(holder, len(request.body), done)

    def _legal_topics(
        self, broker_name: str, topics: Mapping[str, TopicConfigBody] | None
    ) -> Mapping[str, TopicConfigBody] | None:
        """Leave out the topics that have no legal name; log each once, and at most ``TOPICS_LOGGED_MAX``."""
        illegal = {topic: why for topic in topics or () if (why := table_topic_error(topic))}
        if topics is None or not illegal:
            return topics
        for topic, why in illegal.items():
            key = broker_name, topic[:128]
            if key not in self._left_out and len(self._left_out) < TOPICS_LOGGED_MAX:
                self._left_out.add(key)
                self._log.warning("topic_not_registered", broker=broker_name, topic=ascii(topic[:128]), why=why)
        return {topic: config for topic, config in topics.items() if topic not in illegal}

    def _register(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        body = bytes(request.body)
        if header.body_crc32 and crc32(body) & CRC_MASK != header.body_crc32:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if header.compressed:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "a compressed registration is not supported")
        self._claims.check(header)
        wrapper = decode_body(body, RegisterBrokerBody).topic_config_serialize_wrapper if body else None
        is_new = header.broker_addr not in self.routes.addresses()
        ha_address, master_address = self.routes.register(
            header.broker_name,
            header.broker_addr,
            header.cluster_name,
            header.broker_id,
            ha_address=header.ha_server_addr,
            topics=None if wrapper is None else self._legal_topics(header.broker_name, wrapper.topic_config_table),
            version=DataVersion() if wrapper is None else wrapper.data_version,
            channel=connection,
            now_ns=self._clock.monotonic_ns(),
            epoch=header.epoch,
            listener_addresses=header.listener_addrs,
        )
        if is_new:
            self._log.info(
                "broker_registered",
                broker=header.broker_name,
                address=header.broker_addr,
                cluster=header.cluster_name,
                broker_id=header.broker_id,
            )
        order = self.kv.namespace(ORDER_TOPIC_CONFIG)
        answer = encode_body(KVTableBody(table=dict(order))) if order else b""
        known = self.epochs.table.get(header.broker_name)
        epoch = 0 if known is None else known.epoch
        return RegisterBrokerResponseHeader(ha_address, master_address, epoch), answer

    def _unregister(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        channel = self.routes.channel_of(header.broker_addr)
        if channel is not None and channel is not connection:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"not unregistered: {header.broker_addr[:64]} has another connection"
            )
        self.routes.unregister(header.broker_name, header.broker_addr, header.broker_id)
        self._log.info("broker_unregistered", broker=header.broker_name, address=header.broker_addr)
        return None, b""

    def _query_data_version(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        version = decode_body(request.body, DataVersion)
        changed = self.routes.has_changed(header.broker_addr, version, self._clock.monotonic_ns(), connection)
        known = self.routes.version_of(header.broker_addr)
        return QueryDataVersionResponseHeader(changed), b"" if known is None else encode_body(known)

    def _wipe_write_perm(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        count = self.routes.wipe_write_perm(header.broker_name)
        self._log.info("write_perm_wiped", broker=header.broker_name, topics=count, remote=connection.remote)
        return WipeWritePermResponseHeader(count), b""

    def _add_write_perm(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        count = self.routes.add_write_perm(header.broker_name)
        self._log.info("write_perm_added", broker=header.broker_name, topics=count, remote=connection.remote)
        return AddWritePermResponseHeader(count), b""

    def _listener(self, connection: Connection) -> str:
        """Return the name of the listener that a client asks at; empty for the first one."""
        return self._listener_of_port.get(connection.local.rpartition(":")[2], "") if self._listener_of_port else ""

    # ---- routes ------------------------------------------------------------------------------------------------------

    def _route(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        route = self.routes.route(header.topic, self._listener(connection))
        if route is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE_TEXT.format(header.topic[:128]))
        route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, header.topic)
        return None, encode_body(route)

    def _cluster_info(self, connection: Connection, request: Request) -> Answer:
        return None, encode_body(self.routes.cluster_info(self._listener(connection)))

    def _all_topics(self, connection: Connection, request: Request) -> Answer:
        return None, _topic_list(self.routes.topics())

    def _topics_of_cluster(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        return None, _topic_list(self.routes.topics_of_cluster(header.cluster))

    def _system_topics(self, connection: Connection, request: Request) -> Answer:
        topics, address = self.routes.system_topics()
        return None, encode_body(TopicList(topic_list=topics, broker_addr=address or None))

    def _unit_topics(self, connection: Connection, request: Request) -> Answer:
        return None, _topic_list(self.routes.topics_by_flag(lambda flag: bool(flag & UNIT_FLAG)))

    def _unit_sub_topics(self, connection: Connection, request: Request) -> Answer:
        return None, _topic_list(self.routes.topics_by_flag(lambda flag: bool(flag & UNIT_SUB_FLAG)))

    def _unit_sub_ununit_topics(self, connection: Connection, request: Request) -> Answer:
        return None, _topic_list(
            self.routes.topics_by_flag(lambda flag: bool(flag & UNIT_SUB_FLAG) and not flag & UNIT_FLAG)
        )

    def _delete_topic(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        self.routes.delete_topic(header.topic, header.cluster_name)
        self._log.info("topic_deleted", topic=header.topic, remote=connection.remote)
        return None, b""

    # ---- key/value settings ------------------------------------------------------------------------------------------

    def _put_kv(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        self.kv.put(header.namespace, header.key, header.value)
        return None, b""

    def _get_kv(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        value = self.kv.get(header.namespace, header.key)
        if value is None:
            text = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)
        return GetKVConfigResponseHeader(value), b""

    def _delete_kv(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        self.kv.delete(header.namespace, header.key)
        return None, b""

    def _kv_list(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        values = self.kv.namespace(header.namespace)
        if values is None:
            text = f"No config item, Namespace: {header.namespace}"
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, text)
        return None, encode_body(KVTableBody(table=dict(values)))

    # ---- settings ----------------------------------------------------------------------------------------------------

    def _settings(self, connection: Connection, request: Request) -> Answer:
        return None, self.config.properties(listen_port=self.port)

    def _update_settings(self, connection: Connection, request: Request) -> Answer:
        raise RequestRefused(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported: settings are read at the start of a name server;"
            " change its configuration and start it again",
        )


def _topic_list(topics: list[str]) -> bytes:
    return encode_body(TopicList(topic_list=sorted(topics)))

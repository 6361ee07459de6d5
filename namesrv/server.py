"""The name server: requests to the route table and back.

    app = NamesrvApp(NamesrvConfig(listen_port=0));  await app.start();  print(app.address);  await app.stop()

Lives here: ``NamesrvApp``, one handler for each request code.
Everything is in memory, so requests are served in the loop as they come, without queues.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from zlib import crc32

from msgspec import structs

from pocketmq.common.addresses import address_text
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.record import CRC_MASK
from pocketmq.common.runner import LoopMailbox, Runner, Supervisor, ThreadRunner
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.epoch_store import EpochStore
from pocketmq.namesrv.epochs import TEXT_CHARS_MAX, EpochRecord
from pocketmq.namesrv.kv_table import ORDER_TOPIC_CONFIG, KVTable
from pocketmq.namesrv.route_table import MASTER_ID, RouteTable
from pocketmq.remoting.codec import Body, Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import DataVersion, decode_body, encode_body
from pocketmq.remoting.protocol.body import KVTable as KVTableBody
from pocketmq.remoting.protocol.ha import HaEpochResponseHeader
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
from pocketmq.remoting.protocol.topic import TopicList
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig

NO_ROUTE_TEXT: Final = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
UNIT_FLAG: Final = 0x1
UNIT_SUB_FLAG: Final = 0x2
"""Topic sysFlag bits (RocketMQ TopicSysFlag)."""
STOP_GRACE_MS: Final = 500
FENCED_MAX: Final = 16
"""Refused masters that are remembered of one broker name."""


class RequestRefused(PocketMQError):
    """A request that RocketMQ's name server refuses; carries code and text."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.response_code = int(code)


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
    ) -> None:
        self.config = config
        self._server_config = server_config or ServerConfig()
        self._clock = clock or SystemClock()
        self._log = log or NullLog()
        self._refused = RefusedRequests(self._clock, self._log)
        self.routes = RouteTable(
            config.brokers_max, config.topics_max, config.topic_queue_nums_max, config.routes_size_bytes_max
        )
        self.kv = KVTable(config.kv_entries_max, config.kv_size_bytes_max)
        self.epochs = EpochStore(config.epochs_max, config.epoch_store_dir, self._log)
        self.supervisor = Supervisor(self._log, self._clock)
        self._runner: Runner = runner or ThreadRunner(self.supervisor.crashed)
        self._fenced: dict[str, set[str]] = {}  # broker name -> masters that were refused, bounded as the epochs are
        self._server: RemotingServer | None = None
        self._scan_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handlers: Mapping[int, Callable[[Connection, Request], Answer]] = {
            RequestCode.REGISTER_BROKER: self._register,
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

    async def start(self) -> None:
        """Listen and serve; raises ``AddressInUse``, ``BindFailed`` or ``EpochsUnreadable``."""
        assert self._server is None
        self._loop = asyncio.get_running_loop()
        self.epochs.load()  # before the port is open: no request waits for this read
        server = RemotingServer(
            self._server_config,
            self,
            announce=lambda connection: Announcement(native=0, frame_bytes_max=self._server_config.frame_bytes_max),
            log=self._log,
            clock=self._clock,
            serves=lambda code: code in self._handlers or code == RequestCode.HA_EPOCH,
            refused=self._refused,
        )
        await server.start(self.config.bind_address, self.config.listen_port)
        self._server = server
        self.epochs.start(self._runner, LoopMailbox(self._loop))
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
        self._refused.log_left_out(all_of_them=True)
        await server.stop(STOP_GRACE_MS)
        self._server = None
        self._log.info("namesrv_stopped")

    # ---- the server's side -------------------------------------------------------------------------------------------

    def on_request(self, connection: Connection, request: Request) -> None:
        """Serve one request."""
        if request.code == RequestCode.HA_EPOCH:
            self._epoch(connection, request)
            return
        handler = self._handlers.get(request.code)
        code, remark = int(ResponseCode.SUCCESS), ""
        header: Header | None = None
        body: Body = b""
        try:
            if handler is None:
                raise RequestRefused(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
                )
            header, body = handler(connection, request)
        except RequestRefused as error:
            code, remark = error.response_code, error.what
            self._refused.note_request(request, connection.remote, code, Cause.BAD_REQUEST, remark)
        except PocketMQError as error:
            code, remark = error.code, str(error)
            self._refused.note_request(request, connection.remote, code, error.cause, remark)
        self._answer(connection, request, code, header, remark, body)

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

    # ---- epochs ------------------------------------------------------------------------------------------------------

    def _epoch(self, connection: Connection, request: Request) -> None:
        """Answer HA_EPOCH: at once when it reads, once the claim is durable when it claims."""
        header: Any = request.header
        name = header.broker_name
        if not header.epoch:
            self._answer(connection, request, int(ResponseCode.SUCCESS), self._epoch_header(name, granted=False))
            return
        plain = self.routes.plain_master(name, header.address, connection)
        if plain:
            remark = (
                f"claim refused: {name[:TEXT_CHARS_MAX]} is registered by {plain}, which runs without replicas and"
                " has no epoch (stop that broker first, or give it a slave)"
            )
            self._log.warning("epoch_claim_failed", broker=name[:128], remote=connection.remote, error=remark)
            self._answer(connection, request, int(ResponseCode.NO_PERMISSION), None, remark)
            return
        registered = self.routes.has_name(name)
        claim = EpochRecord(header.epoch, header.owner, header.address, header.role, registered)

        def done(granted: bool, error: PocketMQError | None) -> None:
            if error is not None:
                self._log.warning("epoch_claim_failed", broker=name[:128], remote=connection.remote, error=str(error))
                self._answer(connection, request, error.code, None, str(error))
                return
            if granted:
                self._lead(name, claim.address)
            else:
                self._note_fenced(name, claim.address)
            self._answer(connection, request, int(ResponseCode.SUCCESS), self._epoch_header(name, granted=granted))

        self.epochs.claim(name, claim, done, force=header.force, last_epoch=header.last_epoch)

    def _epoch_header(self, broker_name: str, *, granted: bool) -> HaEpochResponseHeader:
        known = self.epochs.table.get(broker_name)
        is_kept = self.epochs.is_kept
        if known is None:
            return HaEpochResponseHeader(granted, is_kept=is_kept)
        fenced = ",".join(sorted(self._fenced.get(broker_name, ())))
        return HaEpochResponseHeader(granted, known.epoch, known.owner, known.address, known.role, fenced, is_kept)

    def _lead(self, broker_name: str, address: str) -> None:
        """Take the master that was replaced out of the routes; closing its connection lets it learn at once."""
        self._fenced.get(broker_name, set()).discard(address)
        replaced = self.routes.remove_other_master(broker_name, address)
        if replaced is not None:
            old_address, channel = replaced
            self._note_fenced(broker_name, old_address)
            self._log.warning("master_replaced", broker=broker_name, old=old_address, new=address)
            if isinstance(channel, Connection):
                channel.close("another master has a newer epoch")

    def _note_fenced(self, broker_name: str, address: str) -> None:
        if self.epochs.table.get(broker_name) is not None:
            if len(self._fenced) > self.config.epochs_max:  # names whose claims have made room for others
                self._fenced = {name: fenced for name, fenced in self._fenced.items() if self.epochs.table.get(name)}
            addresses = self._fenced.setdefault(broker_name, set())
            if len(addresses) < FENCED_MAX:
                addresses.add(address)

    def _check_epoch(self, header: Any) -> None:
        """Refuse a master that was replaced; raises ``RequestRefused``."""
        self._fenced.get(header.broker_name, set()).discard(header.broker_addr)
        known = self.epochs.table.get(header.broker_name)
        if known is None or header.broker_id != MASTER_ID:
            return
        if (header.epoch, header.epoch_owner) == (known.epoch, known.owner):
            if not known.registered:  # from now on it stays, whatever other names are claimed
                self.epochs.claim(header.broker_name, structs.replace(known, registered=True), self._noted)
            return
        if not header.epoch and not known.registered:  # another broker's claim while this plain broker was away
            self.epochs.forget_unregistered(header.broker_name, self._noted)
            return
        self._note_fenced(header.broker_name, header.broker_addr)
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"epoch {known.epoch} of {header.broker_name} belongs to {known.address}; this master has epoch"
            f" {header.epoch} (make it a slave: pocketmq ha demote {header.broker_name})",
        )

    def _noted(self, granted: bool, error: PocketMQError | None) -> None:
        """A registration does not wait for this; the next one tries again what failed."""
        if error is not None:
            self._log.warning("epoch_not_noted", error=str(error))

    # ---- brokers -----------------------------------------------------------------------------------------------------

    def _register(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        body = bytes(request.body)
        if header.body_crc32 and crc32(body) & CRC_MASK != header.body_crc32:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if header.compressed:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "a compressed registration is not supported")
        self._check_epoch(header)
        wrapper = decode_body(body, RegisterBrokerBody).topic_config_serialize_wrapper if body else None
        is_new = header.broker_addr not in self.routes.addresses()
        ha_address, master_address = self.routes.register(
            header.broker_name,
            header.broker_addr,
            header.cluster_name,
            header.broker_id,
            ha_address=header.ha_server_addr,
            topics=None if wrapper is None else wrapper.topic_config_table,
            version=DataVersion() if wrapper is None else wrapper.data_version,
            channel=connection,
            now_ns=self._clock.monotonic_ns(),
            epoch=header.epoch,
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
        self.routes.unregister(header.broker_name, header.broker_addr, header.broker_id)
        self._log.info("broker_unregistered", broker=header.broker_name, address=header.broker_addr)
        return None, b""

    def _query_data_version(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        version = decode_body(request.body, DataVersion)
        changed = self.routes.has_changed(header.broker_addr, version, self._clock.monotonic_ns())
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

    # ---- routes ------------------------------------------------------------------------------------------------------

    def _route(self, connection: Connection, request: Request) -> Answer:
        header: Any = request.header
        route = self.routes.route(header.topic)
        if route is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE_TEXT.format(header.topic[:128]))
        route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, header.topic)
        return None, encode_body(route)

    def _cluster_info(self, connection: Connection, request: Request) -> Answer:
        return None, encode_body(self.routes.cluster_info())

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

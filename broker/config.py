"""Settings of a broker, under RocketMQ's names in snake_case.

Lives here: ``BrokerConfig`` and its validation.
"""

import re
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from pocketmq.common.addresses import is_loopback_host, parse_address, parse_listeners
from pocketmq.common.errors import ConfigError
from pocketmq.common.limits import NAME_LENGTH_MAX
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX

MASTER_ID: Final = 0
"""Broker id of a master (RocketMQ MixAll)."""
INT_MAX: Final = (1 << 31) - 1
"""Largest count or time: RocketMQ's are Java ints."""
VIP_PORT_STEP: Final = 2
"""The VIP channel listens that far below the listen port (RocketMQ ``MixAll.brokerVIPChannel``)."""
VIP_CHANNEL: Final = ("OFF", "LOOPBACK", "ON")
PERMISSION_MAX: Final = 7
"""All bits of RocketMQ's PermName: read 4, write 2, inherit 1."""
RELEASE_LOCKS: Final = ("OFF", "OWN", "ALL")

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:;,]+):(\d{1,5})")


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one broker presents itself, what it allows, and how much it queues.

    Times in ms, sizes in bytes. Defaults are those of RocketMQ 4.9's BrokerConfig unless a comment says
    ours. ``…_thread_pool_nums`` are 1 or 2: because of the drains more threads are useless in one Python process. With
    two send threads a second drain can be read while the first waits for the disk, but concurrent sends of one queue
    may be stored in either order, and one stall can block both threads.
    """

    former_names: ClassVar[Mapping[str, str]] = {
        "named_transaction_time_out": "staged_transaction_time_out",
        "named_transaction_size_bytes_max": "staged_transaction_size_bytes_max",
    }
    """Former name → name: settings that files, environment and flags may still give under their former names."""
    rocketmq_names: ClassVar[Mapping[str, str]] = {"broker_ip1": "brokerIP1"}
    """Settings whose names in RocketMQ are not plain camel case."""

    broker_cluster_name: str = "DefaultCluster"
    """Name of the cluster, which routes and admin tools show."""
    broker_name: str = "broker-a"
    """Name of this master, shared by its slaves; two masters of a cluster need two names."""
    broker_id: int = MASTER_ID
    """0: a master; above 0: a slave of the master of the same name."""
    broker_permission: int = 6
    """Permission of the whole broker: 6 read and write, 4 read only, 2 write only."""
    short_path_enable: bool = True
    """Whether small sends take the short path (see docs/architecture.md). False: every send takes the wide one, which
    gives the same answers and costs more."""
    bind_address: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 listens on all of them (then set ``advertise`` or ``broker_ip1``)."""
    listen_port: int = 10911
    """Port for clients; 0 lets the system choose one."""
    vip_channel: str = "LOOPBACK"
    """Ours: a second listener at ``listen_port`` - 2, RocketMQ's VIP channel, where Java clients up to 4.4 send by
    default. ``LOOPBACK``: where ``bind_address`` is a loopback address, ``listen_port`` is not 0 and the port is free;
    ``ON``: always, and a port in use stops the start; ``OFF``: never. Two
    brokers on one machine need ports that are not two apart, or OFF."""
    grpc_port: int = 0
    """Ours: port for RocketMQ's gRPC clients, at ``bind_address``, plain and TLS; 0: gRPC is not served, -1: the system
    chooses a port. A daemon's default is that of RocketMQ's proxy. Needs ``pocketmq[grpc]``."""
    listeners: str = ""
    """Ours: further addresses to listen on, ``host:port;host:port``."""
    advertise: str = ""
    """Ours: where clients find this broker, ``host:port`` or ``host``; empty: ``broker_ip1``. ``;name=host:port`` adds
    another address for clients that ask at that listener of a name server (docs/deployment.md)."""
    broker_ip1: str = ""
    """The advertised address, a numeric one, also for slaves and in ids of messages; empty: ``bind_address``."""
    namesrv_addr: str = ""
    """``host:port;host:port``; empty: the broker registers nowhere."""
    region_id: str = "DefaultRegion"
    """Region that answers to sends name; message ids of traces carry it."""
    trace_on: bool = True
    """Ask producers that can trace to do so, in the answers to sends."""
    trace_topic_enable: bool = False
    """Create ``msg_trace_topic_name`` with one queue at the start."""
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    """Topic of message traces."""
    store_reply_message_enable: bool = True
    """Store replies beside pushing them to their requesters."""
    reply_pushes_max: int = 10_000
    """Ours: replies that wait for their requesters; more are refused."""

    auto_create_topic_enable: bool = True
    """Whether a send to an unknown topic creates it."""
    auto_create_subscription_group: bool = True
    """Whether a consumer of an unknown group creates it."""
    default_topic_queue_nums: int = 8
    """Maximum number of queues of a topic that a send creates (clients ask for 4)."""
    cluster_topic_enable: bool = True
    """Keep a topic with the name of the cluster, as RocketMQ does."""
    broker_topic_enable: bool = True
    """Keep a topic with the name of the broker, as RocketMQ does."""
    topics_max: int = 100_000
    """Ours: maximum number of topics."""
    queues_max: int = 1_000_000
    """Ours: maximum number of queues of all topics together."""
    topic_queue_nums_max: int = 65_536
    """Ours: maximum number of queues of one topic."""
    subscription_groups_max: int = 100_000
    """Ours: maximum number of consumer groups."""
    consumer_offsets_max: int = 1_000_000
    """Ours: maximum number of (topic, group, queue) entries of the offset table."""
    clients_max: int = 100_000
    """Ours: maximum number of (group, connection) entries of the client table."""
    clients_size_bytes_max: int = 256 << 20
    """Ours: memory of the client table, subscriptions included."""

    send_message_thread_pool_nums: int = 1
    """Send threads, 1 or 2. With 2, sends under way together are stored in either order."""
    send_thread_pool_queue_capacity: int = 10_000
    """Sends that may wait for the log; a full queue answers SYSTEM_BUSY at once."""
    send_queue_size_bytes_max: int = 256 << 20
    """Ours: bytes of the sends that may wait for the log."""
    send_drain_max: int = 4096
    """Ours: maximum number of requests taken from the queue at once; 1 is RocketMQ's pace."""
    send_drain_size_bytes_max: int = 4 << 20
    """Ours: maximum bytes of the requests taken from the queue at once."""
    pull_message_thread_pool_nums: int = 2
    """Pull threads, 1 or 2."""
    pull_thread_pool_queue_capacity: int = 100_000
    """Pulls that may wait for a thread."""
    reply_thread_pool_queue_capacity: int = 10_000
    """Replies that may wait for a thread."""
    query_thread_pool_queue_capacity: int = 20_000
    """Queries of messages that may wait for a thread."""
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    """Requests about clients that may wait for a thread."""
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    """Requests about groups and offsets that may wait for a thread."""
    heartbeat_thread_pool_queue_capacity: int = 50_000
    """Heartbeats that may wait for a thread."""
    end_transaction_pool_queue_capacity: int = 100_000
    """Commits and rollbacks that may wait for a thread."""
    admin_broker_thread_pool_queue_capacity: int = 10_000
    """Admin requests that may wait for a thread."""
    queue_size_bytes_max: int = 64 << 20
    """Bytes of each queue other than the send queue."""
    wait_time_mills_in_send_queue: int = 200
    """Longest wait of a send before fast failure answers it. A wait above a client's timeout (3,000 ms) protects no
    client; it is allowed, as with RocketMQ."""
    wait_time_mills_in_pull_queue: int = 5000
    """Longest wait of a pull before fast failure answers it."""
    wait_time_mills_in_heartbeat_queue: int = 31_000
    """Longest wait of a heartbeat."""
    wait_time_mills_in_transaction_queue: int = 3000
    """Longest wait of a commit or rollback."""
    wait_time_mills_in_admin_broker_queue: int = 5000
    """Longest wait of an admin request: RocketMQ 5.3's; 4.9 lets administrators wait for ever."""
    broker_fast_failure_enable: bool = True
    """Answer SYSTEM_BUSY to requests that waited too long; read at the start only. Without it requests wait without
    limit, and the page cache is still checked when they arrive."""

    reject_transaction_message: bool = False
    """Refuse half messages with NO_PERMISSION."""
    transaction_time_out: int = 6000
    """Age of a half message at its first check; a message can set another."""
    transaction_check_max: int = 15
    """Checks that reach a producer; after that many without a decision a half message is given up."""
    transaction_check_interval: int = 30_000
    """How often half messages without a decision are looked for: RocketMQ 5.3's; 4.9 has 60,000."""
    transaction_pending_max: int = 100_000
    """Ours: half messages without a decision that are kept, about 0.5 KB each; more are refused."""

    staged_transaction_time_out: int = 86_400_000
    """Ours: time after its last chunk when a staged transaction without a commit is dropped."""
    staged_transaction_size_bytes_max: int = 64 << 30
    """Ours: bytes that staged transactions may stage before their commits; retention keeps them."""

    slow_request_mills: int = 500
    """Ours: a request that took longer, from its queue to the socket, is logged as ``slow_request_<slowest stage>``,
    at most ten a second of each (RocketMQ logs puts above 500 ms)."""

    long_polling_enable: bool = True
    """Hold a pull that finds nothing until a message arrives, or its time is over."""
    short_polling_time_mills: int = 1000
    """How long a pull that finds nothing is held with ``long_polling_enable=false``."""
    pull_holds_max: int = 100_000
    """Ours: maximum number of held pulls; more are answered at once."""
    pull_holds_size_bytes_max: int = 64 << 20
    """Ours: maximum bytes of the held pulls."""
    suspend_timeout_mills_max: int = 60_000
    """Ours: longest time that a client may have its pull held."""
    native_pull_bytes_max: int = 4 << 20
    """Ours: maximum bytes of the answer to one native pull."""
    native_pull_queues_max: int = 1024
    """Ours: maximum number of queues in one native pull."""

    pop_inflight_message_threshold: int = 10_000
    """Messages of one queue that a group may have popped and not acknowledged; a pop gets no more of that queue. In
    RocketMQ the limit is off by default."""
    pop_unacked_max: int = 1_000_000
    """Ours: messages of all groups that are popped and not acknowledged, about 170 bytes each."""
    pop_queues_max: int = 100_000
    """Ours: (group, topic, queue) entries that are popped."""
    pop_ordered_batches_max: int = 10_000
    """Ours: queues that groups pop in order, each with a batch."""
    pop_polling_size: int = 1024
    """Pops that may wait for the same queue of a topic, or for any of it, for one group."""
    max_pop_polling_size: int = 100_000
    """Pops that may wait in all."""
    ack_thread_pool_queue_capacity: int = 100_000
    """Acknowledgements that may wait for a thread."""
    wait_time_mills_in_ack_queue: int = 3000
    """Longest wait of an acknowledgement before fast failure answers it."""

    enable_property_filter: bool = True
    """SQL92 filters on properties. RocketMQ's default is off; a filter costs only those who use it."""
    slave_read_enable: bool = False
    """A master sends consumers that are far behind to a slave, and back when they have caught up (RocketMQ)."""
    slave_sync_interval: int = 1000
    """Ours: interval at which a slave asks its master whether topics, groups or offsets have changed (RocketMQ: whole
    tables, every 10 s in 4.9, every 3 s in 5.3)."""

    flush_consumer_offset_interval: int = 5000
    """How often consumer offsets are written to config/consumerOffset.json."""
    notify_consumer_ids_changed_enable: bool = True
    """Notify the members of a group when one joins or leaves; otherwise they notice at their next rebalance."""
    lock_max_live_time: int = 60_000
    """How long a queue lock lives without renewal (RocketMQ: ``rocketmq.broker.rebalance.lockMaxLiveTime``)."""
    release_locks_on_disconnect: str = "OWN"
    """Ours: locks that end with their connection: ``OFF`` (none, as RocketMQ), ``OWN`` (those of clients that stop
    consuming when their connection breaks: PocketMQ's), ``ALL``."""
    lock_release_grace_mills: int = 1000
    """Ours: delay of that release; a client that reconnects by then keeps its locks."""
    queue_locks_max: int = 1_000_000
    """Ours: maximum number of queues locked by ordered consumers."""
    channel_expired_timeout: int = 120_000
    """A client that sends no heartbeat for so long is removed."""
    client_scan_interval: int = 10_000
    """How often the broker looks for clients that sent no heartbeat."""
    register_name_server_period: int = 30_000
    """How often the broker registers at the name servers."""
    register_broker_timeout_mills: int = 6000
    """Timeout of one registration."""
    shutdown_timeout_mills: int = 10_000
    """Ours: how long a stop waits for requests under way."""

    def __post_init__(self) -> None:
        for name in ("broker_cluster_name", "broker_name"):
            if not getattr(self, name):
                raise ConfigError("bad setting", why=f"broker.{name} is empty", hint="give it a name")
            if len(getattr(self, name)) > NAME_LENGTH_MAX:  # a name server would refuse the registration
                raise ConfigError("bad setting", why=f"broker.{name} has more than {NAME_LENGTH_MAX} characters")
        if not 0 <= self.listen_port <= 65_535:
            raise ConfigError("bad setting", why=f"broker.listen_port={self.listen_port} is no port")
        if not -1 <= self.grpc_port <= 65_535:
            raise ConfigError("bad setting", why=f"broker.grpc_port={self.grpc_port} is no port")
        if self.vip_channel not in VIP_CHANNEL:
            raise ConfigError(
                "bad setting", why=f"broker.vip_channel={self.vip_channel!r}", hint=", ".join(VIP_CHANNEL)
            )
        if self.vip_channel == "ON" and 0 < self.listen_port <= VIP_PORT_STEP:
            raise ConfigError(
                "bad setting",
                why=f"broker.listen_port={self.listen_port} has no port {VIP_PORT_STEP} below it for the VIP channel",
                hint="choose another port, or broker.vip_channel=OFF",
            )
        if not 0 <= self.broker_permission <= PERMISSION_MAX:
            raise ConfigError(
                "bad setting",
                why=f"broker.broker_permission={self.broker_permission}",
                hint="6 is read and write, 4 read only, 2 write only, 0 neither",
            )
        if self.broker_id < 0:
            raise ConfigError("bad setting", why=f"broker.broker_id={self.broker_id} is negative", hint="0 is a master")
        for name in ("send_message_thread_pool_nums", "pull_message_thread_pool_nums"):
            if not 1 <= getattr(self, name) <= 2:
                raise ConfigError("bad setting", why=f"broker.{name}={getattr(self, name)}", hint="1 or 2")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            limit = name.endswith(
                ("_capacity", "_max", "_nums", "_mills", "_timeout", "_out", "_interval", "_period", "_queue")
            )
            if limit and isinstance(value, int) and value > INT_MAX and not name.endswith("_bytes_max"):
                raise ConfigError("bad setting", why=f"broker.{name}={value}", hint=f"at most {INT_MAX}")
            if limit and isinstance(value, int) and value < 1:
                hint = "at least 1"
                if name.startswith("wait_time_mills_in_"):
                    hint += "; broker_fast_failure_enable=false switches all of them off"
                raise ConfigError("bad setting", why=f"broker.{name}={value}", hint=hint)
        if self.topic_queue_nums_max > QUEUE_ID_MAX + 1:
            raise ConfigError(
                "bad setting",
                why=f"broker.topic_queue_nums_max={self.topic_queue_nums_max}",
                hint=f"at most {QUEUE_ID_MAX + 1}",
            )
        for name in ("pop_inflight_message_threshold", "pop_polling_size", "max_pop_polling_size"):
            if not 1 <= getattr(self, name) <= INT_MAX:
                raise ConfigError("bad setting", why=f"broker.{name}={getattr(self, name)}", hint="at least 1")
        if not 1 <= self.lock_max_live_time <= INT_MAX:
            raise ConfigError("bad setting", why=f"broker.lock_max_live_time={self.lock_max_live_time}")
        if self.release_locks_on_disconnect not in RELEASE_LOCKS:
            raise ConfigError(
                "bad setting",
                why=f"broker.release_locks_on_disconnect={self.release_locks_on_disconnect!r}",
                hint=", ".join(RELEASE_LOCKS),
            )
        self.name_servers()
        self.advertised()
        self.more_listeners()

    @property
    def vip_channel_wanted(self) -> bool:
        """Whether this broker listens at its VIP port, if that is free."""
        if self.vip_channel != "LOOPBACK":
            return self.vip_channel == "ON"
        return self.listen_port > VIP_PORT_STEP and is_loopback_host(self.bind_address)

    def name_servers(self) -> list[str]:
        """Return the addresses in ``namesrv_addr``; raise ``ConfigError`` for an invalid one."""
        addresses = [each.strip() for each in re.split("[;,]", self.namesrv_addr) if each.strip()]
        for address in addresses:
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[2]) <= 65_535:
                raise ConfigError(
                    "bad setting",
                    why=f"broker.namesrv_addr: {address!r} is not host:port",
                    hint="write host:port;host:port",
                )
        return addresses

    def advertised(self) -> dict[str, tuple[str, int]]:
        """Return the addresses in ``advertise`` by the name of their listener, "" for the one of all other clients;
        port 0 stands for the one this broker listens on. Raise ``ConfigError`` for an invalid one.
        """
        try:
            return parse_listeners(self.advertise, default_port=0)
        except ValueError as error:
            raise ConfigError(
                "bad setting", why=f"broker.advertise: {error}", hint="write host:port, or host:port;name=host:port"
            ) from error

    def more_listeners(self) -> list[tuple[str, int]]:
        """Return the addresses in ``listeners``; raise ``ConfigError`` for an invalid one."""
        try:
            return [parse_address(each.strip()) for each in self.listeners.split(";") if each.strip()]
        except ValueError as error:
            raise ConfigError("bad setting", why=f"broker.listeners: {error}", hint="write host:port") from error

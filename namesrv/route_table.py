"""Which broker serves which topic.

Lives here: ``RouteTable``: registration, look-up, expiry, write permissions, lists. It does no I/O and has no clock.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from pocketmq.common.addresses import LISTENERS_MAX, address_text, parse_listeners
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.limits import ADDRESS_LENGTH_MAX, NAME_LENGTH_MAX, text_bytes, too_long
from pocketmq.common.topics import Perm
from pocketmq.remoting.protocol.body import DataVersion
from pocketmq.remoting.protocol.namesrv import BrokerData, ClusterInfo, QueueData, TopicRouteData
from pocketmq.remoting.protocol.topic import TopicConfigBody

MASTER_ID: Final = 0
"""Broker id of a master (RocketMQ MixAll)."""


LISTENER_ADDRESSES_LENGTH_MAX: Final = LISTENERS_MAX * (ADDRESS_LENGTH_MAX + 34)
"""Characters of ``name=host:port;…``; a name has 32 at most."""
BROKER_BYTES: Final = 4096
"""One broker address without its texts: objects, and places in dicts and sets (CPython 3.11, 64 bit)."""
ENTRY_BYTES: Final = 768
"""One topic of one broker without its name."""
CHANNEL_ADDRESSES_MAX: Final = 64
"""Brokers that one connection registers. One is usual; RocketMQ 5's container registers all of a process."""
CHANNEL_SHARE: Final = 2
"""The brokers of one connection take at most one in so many bytes of the table."""


class RegistrationIllegal(PocketMQError):
    """An implausible registration; it changed nothing."""

    default_cause = Cause.BAD_REQUEST


class RouteTableFull(PocketMQError):
    """The name server knows as many brokers or topics as it may; the registration changed nothing."""

    default_cause = Cause.MEMORY_LIMIT


@dataclass(slots=True)
class BrokerLive:
    """What is known of one broker address; ``last_update_ns`` is monotonic. ``wants_all``: a topic of it was deleted
    here, so its next question about its version is answered with a demand for the whole table. ``epoch`` 0: a slave,
    or a master that runs without replicas.
    """

    broker_name: str
    cluster: str
    broker_id: int
    last_update_ns: int
    version: DataVersion
    channel: Hashable
    ha_address: str
    listener_addresses: Mapping[str, str]
    """Listener → address for the clients that ask there."""
    wants_all: bool = False
    epoch: int = 0


class RouteTable:
    """Topics, brokers and clusters, in memory only.

    Rules of RocketMQ's RouteInfoManager: topics come from masters only, when the data version changed or the
    address is new; a registration adds and updates topics and removes none, so an increment is one too; a broker name,
    with its queues, goes with its last address. One thread only.
    """

    def __init__(
        self, brokers_max: int, topics_max: int, queue_nums_max: int = 65_536, size_bytes_max: int = 1 << 30
    ) -> None:
        """``queue_nums_max``: of one topic on one broker."""
        self._brokers_max = brokers_max
        self._topics_max = topics_max
        self._queue_nums_max = queue_nums_max
        self._size_bytes_max = size_bytes_max
        self._entries = 0
        self._size_bytes = 0
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._topics_of: dict[str, set[str]] = {}  # broker name -> its topics
        self._topic_bytes_of: dict[str, int] = {}  # broker name -> what its topics take
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, BrokerLive] = {}
        self._addresses_of: dict[Hashable, set[str]] = {}

    def register(
        self,
        broker_name: str,
        address: str,
        cluster: str,
        broker_id: int,
        *,
        ha_address: str,
        topics: Mapping[str, TopicConfigBody] | None,
        version: DataVersion,
        channel: Hashable,
        now_ns: int,
        epoch: int = 0,
        listener_addresses: str = "",
    ) -> tuple[str, str]:
        """Note a broker and its topics; return (HA address, address) of its master, empty for a master itself.

        Raises ``RegistrationIllegal`` and ``RouteTableFull`` before anything has changed.
        """
        self.check_texts(broker_name, address, cluster, ha_address)
        by_listener = _by_listener(listener_addresses)
        known = self._brokers.get(broker_name)
        live = self._live.get(address)
        is_first = known is None or known.broker_addrs.get(str(broker_id)) != address
        update = topics if broker_id == MASTER_ID and (is_first or live is None or live.version != version) else None
        self._check_limits(broker_name, address, cluster, ha_address, by_listener, update, channel)
        if live is not None and (live.broker_name, live.broker_id) != (broker_name, broker_id):
            self._remove_address(address)  # the same address under another name or id: the old entry is stale
            known = self._brokers.get(broker_name)
        if known is not None and known.cluster != cluster:
            self._leave_cluster(broker_name, known.cluster)
            known.cluster = cluster
        self._clusters.setdefault(cluster, set()).add(broker_name)
        if known is None:
            known = self._brokers[broker_name] = BrokerData(cluster=cluster, broker_name=broker_name, broker_addrs={})
        replaced = known.broker_addrs.get(str(broker_id))
        known.broker_addrs[str(broker_id)] = address
        if replaced is not None and replaced != address:
            self._forget_live(replaced)
        for topic, config in (update or {}).items():
            self._put_queue_data(topic, broker_name, config)
        self._forget_live(address)
        self._size_bytes += _broker_bytes(broker_name, address, cluster, ha_address, by_listener)
        wants_all = live is not None and live.wants_all and not is_first
        self._live[address] = BrokerLive(
            broker_name, cluster, broker_id, now_ns, version, channel, ha_address, by_listener, wants_all, epoch
        )
        self._addresses_of.setdefault(channel, set()).add(address)
        if broker_id == MASTER_ID:
            return "", ""
        master = known.broker_addrs.get(str(MASTER_ID), "")
        master_live = self._live.get(master)
        return ("" if master_live is None else master_live.ha_address), master

    @staticmethod
    def check_texts(broker_name: str, address: str, cluster: str, ha_address: str = "") -> None:
        """Raise ``RegistrationIllegal`` for texts that no broker registers."""
        why = too_long(
            [
                ("brokerName", broker_name, NAME_LENGTH_MAX),
                ("clusterName", cluster, NAME_LENGTH_MAX),
                ("brokerAddr", address, ADDRESS_LENGTH_MAX),
                ("haServerAddr", ha_address, ADDRESS_LENGTH_MAX),
            ]
        )
        if not why and not f"{broker_name}{cluster}{address}{ha_address}".isprintable():
            why = "a name or an address has control characters"
        if why:
            raise RegistrationIllegal("broker not registered", why=why)

    def _check_limits(
        self,
        broker_name: str,
        address: str,
        cluster: str,
        ha_address: str,
        by_listener: Mapping[str, str],
        update: Mapping[str, TopicConfigBody] | None,
        channel: Hashable,
    ) -> None:
        if address not in self._live and len(self._live) >= self._brokers_max:
            raise RouteTableFull("broker not registered", why=f"{len(self._live)} brokers are known")
        of_channel = self._addresses_of.get(channel, set())
        if address not in of_channel and len(of_channel) >= CHANNEL_ADDRESSES_MAX:
            raise RouteTableFull("broker not registered", why=f"{len(of_channel)} brokers use this connection")
        known = self._topics_of.get(broker_name, set())
        entries, size_bytes = self._entries, self._size_bytes
        live = self._live.get(address)
        if live is None:
            size_bytes += _broker_bytes(broker_name, address, cluster, ha_address, by_listener)
        for topic, config in (update or {}).items():
            if topic not in known:
                entries += 1
                size_bytes += _entry_bytes(topic)
            for field, count in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
                if not 0 <= count <= self._queue_nums_max:
                    raise RegistrationIllegal(
                        "broker not registered",
                        why=f"{field}QueueNums of topic {topic} is {count}, limit {self._queue_nums_max}",
                        hint="raise namesrv.topic_queue_nums_max if that is meant",
                    )
        if entries > self._topics_max:
            raise RouteTableFull("broker not registered", why=f"{entries} entries of topics, limit {self._topics_max}")
        if size_bytes > max(self._size_bytes, self._size_bytes_max):
            raise RouteTableFull(
                "broker not registered",
                why=f"the routes would take {size_bytes} bytes, limit {self._size_bytes_max}",
                hint="raise namesrv.routes_size_bytes_max",
            )
        names = {self._live[each].broker_name for each in of_channel} | {broker_name}
        of_channel_bytes = sum(self._topic_bytes_of.get(name, 0) for name in names) + size_bytes - self._size_bytes
        if size_bytes > self._size_bytes and of_channel_bytes > self._size_bytes_max // CHANNEL_SHARE:
            raise RouteTableFull(
                "broker not registered",
                why=f"the topics of one connection would take {of_channel_bytes} bytes, limit"
                f" {self._size_bytes_max // CHANNEL_SHARE}",
                hint="raise namesrv.routes_size_bytes_max",
            )

    def _put_queue_data(self, topic: str, broker_name: str, config: TopicConfigBody) -> None:
        queues = self._topics.setdefault(topic, {})
        if broker_name not in queues:
            self._entries += 1
            self._add_topic_bytes(broker_name, _entry_bytes(topic))
            self._topics_of.setdefault(broker_name, set()).add(topic)
        queues[broker_name] = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def _add_topic_bytes(self, broker_name: str, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        left = self._topic_bytes_of.get(broker_name, 0) + size_bytes
        if left:
            self._topic_bytes_of[broker_name] = left
        else:
            del self._topic_bytes_of[broker_name]

    def holders(self, broker_name: str, address: str, broker_id: int, channel: Hashable) -> list[Hashable]:
        """Return the other channels through which the place that a registration wants was taken: the name and id, or
        the address."""
        known = self._brokers.get(broker_name)
        present = "" if known is None else known.broker_addrs.get(str(broker_id), "")
        taken = [live.channel for each in {present, address} if (live := self._live.get(each)) is not None]
        return [each for each in dict.fromkeys(taken) if each != channel]

    def channel_of(self, address: str) -> Hashable | None:
        """Return the channel that registered an address."""
        live = self._live.get(address)
        return None if live is None else live.channel

    def has_changed(self, address: str, version: DataVersion, now_ns: int, channel: Hashable | None = None) -> bool:
        """Return whether a broker should register again (QUERY_DATA_VERSION); if not, it counts as a sign of life.
        Over another ``channel`` than the one it registered through, if one is given, it should."""
        live = self._live.get(address)
        if live is not None and channel is not None and live.channel != channel:
            return True
        if live is not None and live.wants_all:
            live.wants_all = False
            live.version = DataVersion(-1, -1)  # else the broker would take its table as known
        if live is None or live.version != version:
            return True
        live.last_update_ns = now_ns
        return False

    def has_name(self, broker_name: str) -> bool:
        """Return whether a broker of this name is registered."""
        return broker_name in self._brokers

    def plain_master(self, broker_name: str, address: str, channel: Hashable) -> str:
        """Return the address of the name's master if that runs without replicas and neither registered through
        ``channel`` nor has a slave at ``address``; else an empty text.
        """
        known = self._brokers.get(broker_name)
        addresses = {} if known is None else known.broker_addrs
        master = addresses.get(str(MASTER_ID), "")
        live = self._live.get(master)
        if live is None or live.epoch or live.channel == channel:
            return ""
        slaves = (each for broker_id, each in addresses.items() if broker_id != str(MASTER_ID))
        return "" if address in slaves else master

    def master_channel(self, broker_name: str) -> Hashable | None:
        """Return the channel that the present master of a name registered through; None without a master."""
        return self.channel_of(self.address_of(broker_name, MASTER_ID))

    def address_of(self, broker_name: str, broker_id: int) -> str:
        """Return the address that a name has under this id; empty if it has none."""
        known = self._brokers.get(broker_name)
        return "" if known is None else known.broker_addrs.get(str(broker_id), "")

    def unregister(self, broker_name: str, address: str, broker_id: int) -> None:
        """Forget a broker that stops."""
        known = self._brokers.get(broker_name)
        if known is not None and known.broker_addrs.get(str(broker_id)) == address:
            self._remove_address(address)

    def remove_other_master(self, broker_name: str, address: str) -> tuple[str, Hashable] | None:
        """Forget the master of a name unless it is the one at ``address``; return (address, channel) of each one
        removed."""
        known = self._brokers.get(broker_name)
        master = "" if known is None else known.broker_addrs.get(str(MASTER_ID), "")
        live = self._live.get(master)
        if live is None or master == address:
            return None
        self._remove_address(master)
        return master, live.channel

    def channel_closed(self, channel: Hashable) -> list[str]:
        """Forget the brokers that registered through ``channel``; return their addresses."""
        addresses = sorted(self._addresses_of.get(channel, ()))
        for address in addresses:
            self._remove_address(address)
        return addresses

    def expire(self, oldest_ns: int) -> list[tuple[str, Hashable]]:
        """Forget the brokers last heard of before ``oldest_ns``; return (address, channel) of each."""
        silent = [(address, live.channel) for address, live in self._live.items() if live.last_update_ns < oldest_ns]
        for address, _ in silent:
            self._remove_address(address)
        return silent

    def _forget_live(self, address: str) -> BrokerLive | None:
        live = self._live.pop(address, None)
        if live is not None:
            self._size_bytes -= _broker_bytes(
                live.broker_name, address, live.cluster, live.ha_address, live.listener_addresses
            )
            addresses = self._addresses_of[live.channel]
            addresses.discard(address)
            if not addresses:
                del self._addresses_of[live.channel]
        return live

    def _remove_address(self, address: str) -> None:
        live = self._forget_live(address)
        if live is None:
            return
        name = live.broker_name
        known = self._brokers.get(name)
        if known is None or known.broker_addrs.get(str(live.broker_id)) != address:
            return
        del known.broker_addrs[str(live.broker_id)]
        if known.broker_addrs:
            return
        del self._brokers[name]
        self._leave_cluster(name, known.cluster)
        for topic in self._topics_of.pop(name, set()):
            self._remove_queue_data(topic, name)

    def _leave_cluster(self, broker_name: str, cluster: str | None) -> None:
        names = self._clusters.get(cluster or "", set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster or "", None)

    def _remove_queue_data(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        del queues[broker_name]
        self._entries -= 1
        self._add_topic_bytes(broker_name, -_entry_bytes(topic))
        if not queues:
            del self._topics[topic]

    def route(self, topic: str, listener: str = "") -> TopicRouteData | None:
        """Return where ``topic`` is for clients of a listener, or None when no broker that is known has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        return TopicRouteData(
            queue_datas=list(queues.values()),
            broker_datas=[self._shown(each, listener) for each in brokers],
        )

    def _shown(self, broker: BrokerData, listener: str) -> BrokerData:
        """Return a copy of a broker's addresses, as the clients of a listener reach them."""
        addresses = dict(broker.broker_addrs)
        if listener:
            for broker_id, address in addresses.items():
                addresses[broker_id] = self._live[address].listener_addresses.get(listener, address)
        return BrokerData(cluster=broker.cluster, broker_name=broker.broker_name, broker_addrs=addresses)

    def delete_topic(self, topic: str, cluster: str = "") -> None:
        """Forget ``topic``, on the brokers of ``cluster`` only if one is named.

        Their next QUERY_DATA_VERSION asks for the whole table: a broker that created the topic again before this
        request takes it as known here, and would never name it again.
        """
        for name in list(self._topics.get(topic, ())):
            if not cluster or name in self._clusters.get(cluster, ()):
                self._topics_of[name].discard(topic)
                self._remove_queue_data(topic, name)
                for address in self._brokers[name].broker_addrs.values():
                    self._live[address].wants_all = True

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take WRITE from all topics of a broker until it registers with a changed version; return how many."""
        return self._set_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Give READ and WRITE to all topics of a broker; return how many."""
        return self._set_perm(broker_name, lambda perm: Perm.READ | Perm.WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of.get(broker_name, set())
        for topic in topics:
            queue_data = self._topics[topic][broker_name]
            queue_data.perm = int(change(queue_data.perm))
        return len(topics)

    def addresses(self) -> Collection[str]:
        """Return the addresses of all brokers that are known."""
        return self._live.keys()

    def version_of(self, address: str) -> DataVersion | None:
        """Return the version of a broker's topics as it was last registered."""
        live = self._live.get(address)
        return None if live is None else live.version

    def topics(self) -> list[str]:
        """Return all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics of a cluster's brokers."""
        names = self._clusters.get(cluster, set())
        return sorted({topic for name in names for topic in self._topics_of.get(name, ())})

    def system_topics(self) -> tuple[list[str], str]:
        """Return (cluster and broker names, one broker's address): RocketMQ's idea of system topics."""
        names = [name for cluster, brokers in self._clusters.items() for name in (cluster, *sorted(brokers))]
        addresses = [address for broker in self._brokers.values() for address in broker.broker_addrs.values()]
        return list(dict.fromkeys(names)), addresses[0] if addresses else ""

    def topics_by_flag(self, chosen: Callable[[int], bool]) -> list[str]:
        """Return the topics whose sysFlag ``chosen`` accepts on their first broker (unit topics)."""
        return [topic for topic, queues in self._topics.items() if chosen(next(iter(queues.values())).topic_sys_flag)]

    def cluster_info(self, listener: str = "") -> ClusterInfo:
        """Return all brokers and clusters, for clients of a listener."""
        return ClusterInfo(
            broker_addr_table={name: self._shown(each, listener) for name, each in self._brokers.items()},
            cluster_addr_table={cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    @property
    def size_bytes(self) -> int:
        """An upper estimate of the table's memory."""
        return self._size_bytes

    def counts(self) -> tuple[int, int, int]:
        """Return (broker addresses, topics, entries of topics by broker)."""
        return len(self._live), len(self._topics), self._entries


def _broker_bytes(broker_name: str, address: str, cluster: str, ha_address: str, by_listener: Mapping[str, str]) -> int:
    texts = (broker_name, address, cluster, ha_address, *by_listener, *by_listener.values())
    return BROKER_BYTES + 2 * sum(map(text_bytes, texts))


def _by_listener(text: str) -> Mapping[str, str]:
    """Return listener → address; raise ``RegistrationIllegal`` for what no broker registers."""
    why = too_long([("listenerAddrs", text, LISTENER_ADDRESSES_LENGTH_MAX)])
    try:
        found = {} if why else parse_listeners(text)
    except ValueError as error:
        why = f"listenerAddrs: {error}"
    if why:
        raise RegistrationIllegal("broker not registered", why=why)
    return {name: address_text(host, port) for name, (host, port) in found.items()}


def _entry_bytes(topic: str) -> int:
    return ENTRY_BYTES + 2 * text_bytes(topic)

"""Routes of topics: the brokers, their addresses, the queues; and the cache of routes.

Lives here: ``TopicRoute`` (made from RocketMQ's TopicRouteData) and ``RouteTable``, which knows the routes due for a
refresh.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.common.topics import Perm
from pocketmq.remoting.protocol.namesrv import TopicRouteData

MASTER_ID = 0
DEFAULT_TOPIC_QUEUE_NUMS = 4
"""Queues per broker that a producer asks for when the broker is to create the topic (DefaultMQProducer.java)."""
QUEUE_NUMS_MAX = 65_536
"""Queues of one broker in a route that are believed at most: more can only be a faulty answer."""
ROUTE_QUEUES_MAX = 100_000
"""Queues of all brokers in a route that are used; a client needs 0.3 KB and some requests for each."""
ROUTE_BROKERS_MAX = 1_000
"""Brokers of a route that are used."""


@dataclass(slots=True, frozen=True)
class BrokerAddresses:
    """The addresses of one broker name: id 0 is the master, others are slaves."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str:
        """The master's ``ip:port``, or an empty string."""
        return self.addresses.get(MASTER_ID, "")

    def readable(self, broker_id: int = MASTER_ID) -> str:
        """Return the address of ``broker_id``, else the master's, else that of any slave."""
        return next(iter(self.readers(broker_id)), (MASTER_ID, ""))[1]

    def readers(self, broker_id: int = MASTER_ID) -> list[tuple[int, str]]:
        """Return (broker id, address) of all readable brokers in the order in which to try them: ``broker_id``, master,
        slaves."""
        order = sorted(self.addresses.items(), key=lambda item: (item[0] != broker_id, item[0]))
        return [(number, address) for number, address in order if address]


@dataclass(slots=True, frozen=True)
class TopicRoute:
    """One topic's queues. ``write_queues`` lie on brokers that have a master and take writes, in name and queue order.

    ``borrowed``: the topic does not exist yet; this is the route of TBW102, and the broker creates the topic at the
    first send.
    """

    topic: str
    brokers: Mapping[str, BrokerAddresses]
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    order_topic_conf: str = ""
    borrowed: bool = False
    left_out: str = ""
    """What the name server's answer has beyond ``ROUTE_QUEUES_MAX`` and ``ROUTE_BROKERS_MAX``; "" if nothing."""

    def write_brokers(self) -> set[str]:
        """Return the names of the brokers that take sends."""
        return {queue.broker_name for queue in self.write_queues}


def route_from_data(topic: str, data: TopicRouteData, *, borrowed: bool = False) -> TopicRoute:
    """Turn a name server's answer into queues (MQClientInstance.topicRouteData2TopicPublishInfo).

    ``borrowed``: ``data`` is the route of TBW102; it stands for the queues that its brokers give a new topic, at most 4
    each, and no queue can be read yet.
    """
    brokers: dict[str, BrokerAddresses] = {}
    for broker in data.broker_datas[:ROUTE_BROKERS_MAX]:
        addresses = {int(number): address for number, address in broker.broker_addrs.items() if number.isdecimal()}
        brokers[broker.broker_name] = BrokerAddresses(broker.cluster or "", broker.broker_name, addresses)
    write_queues: list[MessageQueue] = []
    read_queues: list[MessageQueue] = []
    wanted = 0
    for queue_data in sorted(data.queue_datas, key=lambda each: each.broker_name):
        name = queue_data.broker_name
        known = brokers.get(name)
        if known is None or not known.addresses:
            continue
        write_nums, read_nums = queue_data.write_queue_nums, queue_data.read_queue_nums
        if borrowed:
            write_nums, read_nums = min(DEFAULT_TOPIC_QUEUE_NUMS, read_nums, write_nums), 0
        if not (queue_data.perm & Perm.WRITE and known.master):
            write_nums = 0
        if not queue_data.perm & Perm.READ:
            read_nums = 0
        wanted += max(write_nums, read_nums)
        write_nums = max(0, min(write_nums, QUEUE_NUMS_MAX, ROUTE_QUEUES_MAX - len(write_queues)))
        read_nums = max(0, min(read_nums, QUEUE_NUMS_MAX, ROUTE_QUEUES_MAX - len(read_queues)))
        queues = [MessageQueue(topic, name, number) for number in range(max(write_nums, read_nums))]
        write_queues += queues[:write_nums]
        read_queues += queues[:read_nums]
    conf = data.order_topic_conf or ""
    left_out = ""
    if len(data.broker_datas) > ROUTE_BROKERS_MAX or wanted > max(len(write_queues), len(read_queues)):
        left_out = f"{len(data.broker_datas)} brokers and {wanted} queues, of which {len(brokers)} and "
        left_out += f"{max(len(write_queues), len(read_queues))} are used"
    return TopicRoute(topic, brokers, tuple(write_queues), tuple(read_queues), conf, borrowed, left_out)


@dataclass(slots=True)
class _Entry:
    route: TopicRoute
    fetched_ns: int


@dataclass(slots=True)
class RouteTable:
    """The routes a client knows. Times are monotonic ns, handed in.

    Bounded: at most ``topics_max`` topics; the one refreshed longest ago is dropped first.
    """

    refresh_after_ms: int = 30_000
    topics_max: int = 10_000
    changes: int = 0
    """Grows whenever a route changes or goes; a refresh that finds the same route keeps the old object."""
    _entries: dict[str, _Entry] = field(default_factory=dict)

    def get(self, topic: str) -> TopicRoute | None:
        """Return the cached route, however old: a refresh replaces it in the background."""
        entry = self._entries.get(topic)
        return None if entry is None else entry.route

    def put(self, route: TopicRoute, now_ns: int) -> bool:
        """Store a fresh route; return True if it differs from the known one."""
        old = self._entries.pop(route.topic, None)
        if old is None and len(self._entries) >= self.topics_max:
            self._entries.pop(next(iter(self._entries)))
        changed = old is None or old.route != route
        self.changes += changed
        self._entries[route.topic] = _Entry(route if old is None or changed else old.route, now_ns)
        return changed

    def forget(self, topic: str) -> None:
        """Drop a route that proved wrong, so that the next use asks again."""
        self._entries.pop(topic, None)
        self.changes += 1

    def forget_queue(self, queue: MessageQueue) -> None:
        """Drop the route of a topic if it still has ``queue``, which the broker does not know."""
        entry = self._entries.get(queue.topic)
        if entry is not None and queue in entry.route.write_queues:
            self.forget(queue.topic)

    def is_older(self, topic: str, age_ms: int, now_ns: int) -> bool:
        """Return whether a route is known and older than ``age_ms``."""
        entry = self._entries.get(topic)
        return entry is not None and now_ns - entry.fetched_ns > age_ms * 1_000_000

    def due(self, now_ns: int) -> list[str]:
        """Return the topics whose route is older than ``refresh_after_ms``, and those with a borrowed one: by now they
        may exist."""
        limit = now_ns - self.refresh_after_ms * 1_000_000
        entries = self._entries.items()
        return [topic for topic, entry in entries if entry.fetched_ns <= limit or entry.route.borrowed]

    def topics(self) -> list[str]:
        """Return the topics with a known route."""
        return list(self._entries)

    def broker(self, broker_name: str) -> BrokerAddresses | None:
        """Return a broker's addresses from the newest route that names it."""
        for entry in reversed(self._entries.values()):
            found = entry.route.brokers.get(broker_name)
            if found is not None:
                return found
        return None

    def brokers(self) -> dict[str, BrokerAddresses]:
        """Return every broker of every known route."""
        known: dict[str, BrokerAddresses] = {}
        for entry in self._entries.values():
            known.update(entry.route.brokers)
        return known


def masters(brokers: Iterable[BrokerAddresses]) -> dict[str, str]:
    """Return broker name → master address, for those that have one."""
    return {broker.broker_name: broker.master for broker in brokers if broker.master}

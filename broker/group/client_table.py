"""The producers and consumers that send heartbeats.

Lives here: ``ClientTable``: groups, their connections, their subscriptions; expiry. It does no I/O.
"""

import threading
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from pocketmq.broker.group.subscription_conflicts import Wish, difference, differing, wish_of
from pocketmq.broker.topic.topic_table import TableFull
from pocketmq.common.bounds import bounded
from pocketmq.common.limits import text_bytes
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerIdList, SubscriptionData

ConnectionT = TypeVar("ConnectionT", bound=Hashable)

ENTRY_BYTES: Final = 1536
"""One client of a group without its texts: objects, and entries of dicts and sets (CPython 3.11, 64 bit)."""
GROUP_BYTES: Final = 4096
"""One consumer group: its dicts and the texts of its heartbeats."""
SUBSCRIPTION_BYTES: Final = 512
ITEM_BYTES: Final = 64
"""One element of a list or tuple, with its share of the list."""


@dataclass(slots=True)
class ClientInfo(Generic[ConnectionT]):
    """One client on one connection; ``last_update_ns`` is monotonic."""

    connection: ConnectionT
    client_id: str
    language: int
    version: int
    last_update_ns: int


@dataclass(slots=True)
class ConsumerGroup(Generic[ConnectionT]):
    """The members and subscriptions of an online consumer group."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    clients: dict[ConnectionT, ClientInfo[ConnectionT]] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    wishes: dict[ConnectionT, Wish] = field(default_factory=dict)
    """Each member's own subscriptions."""
    conflict: str = ""
    """How the members' subscriptions differ; empty when they agree."""
    shared: dict[bytes, tuple[Wish, int]] = field(default_factory=dict)
    """Digest of a wish → the object that its members share, and their number."""
    differing: tuple[tuple[ConnectionT, Wish], ...] = ()
    """The two members that ``conflict`` names."""
    id_list: bytes = b""
    """The list of members as it is answered; empty when it must be made again."""

    def look_for_conflict(self) -> None:
        """Compare the members' subscriptions, unless those two that differed still do: members are many."""
        if len(self.shared) <= 1:
            self.conflict, self.differing = "", ()
        elif not self.differing or any(self.wishes.get(each) is not wish for each, wish in self.differing):
            members = {self.clients[connection].client_id: connection for connection in self.wishes}
            found = differing({client_id: self.wishes[each] for client_id, each in members.items()})
            self.conflict = "" if found is None else difference(*found)
            self.differing = () if found is None else tuple((members[client_id], wish) for client_id, wish in found)

    def client_ids(self) -> list[str]:
        """Return the ids of all members."""
        return [client.client_id for client in self.clients.values()]


@bounded(
    "clients and subscriptions",
    limit="size_bytes_max",
    size="size_bytes",
    unit="bytes",
    setting="broker.clients_size_bytes_max",
)
@bounded("clients", limit="entries_max", size="__len__", entry_bytes=ENTRY_BYTES, setting="broker.clients_max")
class ClientTable(Generic[ConnectionT]):
    """Producers and consumers by group. Thread-safe; the lock is held for dict calls, and for the encoding
    of one group's ids.

    At most ``entries_max`` (group, connection) entries of ``size_bytes_max`` bytes in total: beyond, ``TableFull`` is
    raised and nothing changes. A group exists while it has a member.
    """

    def __init__(self, entries_max: int, size_bytes_max: int = 512 << 20) -> None:
        self.entries_max = entries_max
        self.size_bytes_max = size_bytes_max
        self._entries = 0
        self._size_bytes = 0
        self._lock = threading.Lock()
        self._producers: dict[str, dict[ConnectionT, ClientInfo[ConnectionT]]] = {}
        self._consumers: dict[str, ConsumerGroup[ConnectionT]] = {}
        self._producer_ids: dict[str, ConnectionT] = {}
        self._groups_of: dict[ConnectionT, tuple[set[str], set[str]]] = {}  # producer groups, consumer groups

    def __len__(self) -> int:
        return self._entries

    @property
    def size_bytes(self) -> int:
        """The table's memory, estimated from above."""
        return self._size_bytes

    def register_producer(self, group: str, client: ClientInfo[ConnectionT]) -> bool:
        """Note a heartbeat of a producer; True when it is new."""
        with self._lock:
            clients = self._producers.get(group)
            known = None if clients is None else clients.get(client.connection)
            self._check_room(known is None, _entry_bytes(group, client) - _entry_bytes(group, known))
            if known is None:
                self._count_in(client.connection)[0].add(group)
                if clients is None:
                    clients = self._producers[group] = {}
            elif known.client_id != client.client_id:
                self._forget_producer_id(known)
            assert clients is not None
            clients[client.connection] = client
            self._producer_ids[client.client_id] = client.connection
            return known is None

    def register_consumer(
        self,
        group: str,
        client: ClientInfo[ConnectionT],
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[SubscriptionData],
    ) -> bool:
        """Note a heartbeat of a consumer; True when members or subscribed topics changed (RocketMQ
        ConsumerGroupInfo)."""
        subscriptions = list(subscriptions)
        wish = wish_of(message_model, subscriptions)
        with self._lock:
            known = self._consumers.get(group)
            changed = known is None or client.connection not in known.clients
            self._check_room(changed, _growth(known, group, client, wish, subscriptions))
            if changed:
                self._count_in(client.connection)[1].add(group)
            if known is None:
                known = self._consumers[group] = ConsumerGroup(group, consume_type, message_model, consume_from_where)
            known.consume_type = consume_type
            known.message_model = message_model
            known.consume_from_where = consume_from_where
            if changed or known.clients[client.connection].client_id != client.client_id:
                known.id_list = b""
            known.clients[client.connection] = client
            if known.wishes.get(client.connection) != wish:
                _release_wish(known, client.connection)
                wish, members = known.shared.get(wish.digest, (wish, 0))
                known.wishes[client.connection] = wish
                known.shared[wish.digest] = wish, members + 1
                known.look_for_conflict()
            return self._subscribe(known, subscriptions) or changed

    @staticmethod
    def _subscribe(group: ConsumerGroup[ConnectionT], subscriptions: Iterable[SubscriptionData]) -> bool:
        changed = False
        wanted = {each.topic: each for each in subscriptions}
        for topic, subscription in wanted.items():
            known = group.subscriptions.get(topic)
            if known is None:
                changed = True
            if known is None or subscription.sub_version > known.sub_version:
                group.subscriptions[topic] = subscription
        for topic in [topic for topic in group.subscriptions if topic not in wanted]:
            del group.subscriptions[topic]
            changed = True
        return changed

    def unregister_producer(self, group: str, connection: ConnectionT) -> None:
        """Forget one producer."""
        with self._lock:
            if connection in self._producers.get(group, {}):
                self._groups_of[connection][0].discard(group)
                self._remove_producer(group, connection)
                self._forget_if_empty(connection)

    def unregister_consumer(self, group: str, connection: ConnectionT) -> bool:
        """Forget one consumer; True when it was a member."""
        with self._lock:
            known = self._consumers.get(group)
            if known is None or connection not in known.clients:
                return False
            self._groups_of[connection][1].discard(group)
            self._remove_consumer(group, connection)
            self._forget_if_empty(connection)
            return True

    def close(self, connection: ConnectionT) -> list[str]:
        """Forget everything about a connection; return the consumer groups that lost a member."""
        with self._lock:
            return self._close(connection)

    def expire(self, oldest_ns: int) -> tuple[list[ConnectionT], list[str]]:
        """Forget connections whose client sent its last heartbeat before ``oldest_ns``.

        Returns them, for the caller to close, and the consumer groups that lost a member.
        """
        with self._lock:
            silent: set[ConnectionT] = set()
            tables = [*self._producers.values(), *(group.clients for group in self._consumers.values())]
            for clients in tables:
                silent.update(each.connection for each in clients.values() if each.last_update_ns < oldest_ns)
            groups: set[str] = set()
            for connection in silent:
                groups.update(self._close(connection))
            return list(silent), sorted(groups)

    def _close(self, connection: ConnectionT) -> list[str]:
        producer_groups, consumer_groups = self._groups_of.pop(connection, (set(), set()))
        for group in producer_groups:
            self._remove_producer(group, connection)
        for group in consumer_groups:
            self._remove_consumer(group, connection)
        return sorted(consumer_groups)

    def _check_room(self, is_new: bool, growth_bytes: int) -> None:
        """Raise ``TableFull`` if a new entry, or ``growth_bytes``, would exceed a limit; else count the bytes."""
        if is_new and self._entries >= self.entries_max:
            raise TableFull(
                "heartbeat refused", why=f"{self._entries} clients are known", hint="raise broker.clients_max"
            )
        size_bytes = self._size_bytes + growth_bytes
        if growth_bytes > 0 and size_bytes > self.size_bytes_max:
            raise TableFull(
                "heartbeat refused",
                why=f"clients and subscriptions take {self._size_bytes} bytes, limit {self.size_bytes_max}",
                hint="raise broker.clients_size_bytes_max",
            )
        self._size_bytes = size_bytes

    def _count_in(self, connection: ConnectionT) -> tuple[set[str], set[str]]:
        self._entries += 1
        return self._groups_of.setdefault(connection, (set(), set()))

    def _remove_producer(self, group: str, connection: ConnectionT) -> None:
        clients = self._producers[group]
        client = clients.pop(connection)
        if not clients:
            del self._producers[group]
        self._size_bytes -= _entry_bytes(group, client)
        self._entries -= 1
        self._forget_producer_id(client)

    def _forget_producer_id(self, gone: ClientInfo[ConnectionT]) -> None:
        """Forget a client id, unless another producer group of its connection has it too."""
        groups = self._groups_of.get(gone.connection, (set(), set()))[0]
        others = (self._producers.get(group, {}).get(gone.connection) for group in groups)
        if any(each is not None and each is not gone and each.client_id == gone.client_id for each in others):
            return
        if self._producer_ids.get(gone.client_id) == gone.connection:
            del self._producer_ids[gone.client_id]

    def _remove_consumer(self, group: str, connection: ConnectionT) -> None:
        known = self._consumers[group]
        known.id_list = b""
        self._size_bytes -= _entry_bytes(group, known.clients.pop(connection)) + _release_wish(known, connection)
        if known.conflict:
            known.look_for_conflict()
        self._entries -= 1
        if not known.clients:
            del self._consumers[group]
            self._size_bytes -= GROUP_BYTES + sum(map(_subscription_bytes, known.subscriptions.values()))

    def _forget_if_empty(self, connection: ConnectionT) -> None:
        producer_groups, consumer_groups = self._groups_of[connection]
        if not producer_groups and not consumer_groups:
            del self._groups_of[connection]

    def consumer_group(self, group: str) -> ConsumerGroup[ConnectionT] | None:
        """Return a copy of an online consumer group, or None."""
        with self._lock:
            known = self._consumers.get(group)
            if known is None:
                return None
            return replace(
                known,
                clients=dict(known.clients),
                subscriptions=dict(known.subscriptions),
                wishes=dict(known.wishes),
                shared={},
            )

    def id_list(self, group: str) -> bytes:
        """Return the encoded ``ConsumerIdList`` of a group, made once for each change of its members; empty if it has
        none. Each member of a large group asks for it after each change."""
        with self._lock:
            known = self._consumers.get(group)
            if known is None:
                return b""
            if not known.id_list:
                known.id_list = encode_body(ConsumerIdList(consumer_id_list=known.client_ids()))
            return known.id_list

    def subscription(self, group: str, topic: str) -> tuple[str | None, SubscriptionData | None]:
        """Return (message model, subscription of ``topic``); (None, None) when the group is not online. Takes no
        lock."""
        known = self._consumers.get(group)
        return (None, None) if known is None else (known.message_model, known.subscriptions.get(topic))

    def conflict(self, group: str) -> str:
        """Return how the subscriptions of a group's members differ; empty when they agree. Takes no lock."""
        known = self._consumers.get(group)
        return "" if known is None else known.conflict

    def client_id(self, group: str, connection: ConnectionT) -> str:
        """Return the client id of ``connection`` in a consumer group, empty if it is no member. Takes no lock."""
        known = self._consumers.get(group)
        client = None if known is None else known.clients.get(connection)
        return "" if client is None else client.client_id

    def of_connection(
        self, connection: ConnectionT
    ) -> tuple[dict[str, ClientInfo[ConnectionT]], dict[str, ClientInfo[ConnectionT]]]:
        """Return the producers and the consumers of a connection, each by group."""
        with self._lock:
            producer_groups, consumer_groups = self._groups_of.get(connection, (set(), set()))
            return (
                {group: self._producers[group][connection] for group in producer_groups},
                {group: self._consumers[group].clients[connection] for group in consumer_groups},
            )

    def has_producer(self, group: str) -> bool:
        """Return whether a producer of this group is connected. Takes no lock."""
        return group in self._producers

    def producers(self, group: str) -> list[ClientInfo[ConnectionT]]:
        """Return the producers of a group."""
        with self._lock:
            return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> dict[str, list[ClientInfo[ConnectionT]]]:
        """Return the producers of every group."""
        with self._lock:
            return {group: list(clients.values()) for group, clients in self._producers.items()}

    def producer_connection(self, client_id: str) -> ConnectionT | None:
        """Return the connection on which a client with this id last named a producer group. Takes no lock."""
        return self._producer_ids.get(client_id)

    def consumer_groups(self) -> list[str]:
        """Return the online consumer groups."""
        with self._lock:
            return list(self._consumers)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Return the online consumer groups that subscribe to ``topic``."""
        with self._lock:
            return [name for name, group in self._consumers.items() if topic in group.subscriptions]


# ---- memory estimates, from above


def _entry_bytes(group: str, client: ClientInfo[ConnectionT] | None) -> int:
    if client is None:
        return 0
    listed_bytes = 6 * len(client.client_id)  # in ``id_list``: JSON may write a character in six bytes
    return ENTRY_BYTES + text_bytes(group) + text_bytes(client.client_id) + listed_bytes


def _subscription_bytes(subscription: SubscriptionData) -> int:
    tags, codes = subscription.tags_set or (), subscription.code_set or ()
    texts = (subscription.topic, subscription.sub_string, subscription.expression_type, *tags)
    return SUBSCRIPTION_BYTES + ITEM_BYTES * (len(tags) + len(codes)) + sum(map(text_bytes, texts))


def _wish_bytes(wish: Wish) -> int:
    texts = (text for each in wish.topics for text in each)
    return SUBSCRIPTION_BYTES + ITEM_BYTES * 2 * len(wish.topics) + sum(map(text_bytes, texts))


def _growth(
    known: ConsumerGroup[ConnectionT] | None,
    group: str,
    client: ClientInfo[ConnectionT],
    wish: Wish,
    subscriptions: Iterable[SubscriptionData],
) -> int:
    """Return by how many bytes a consumer's heartbeat grows the table; negative if it shrinks it."""
    growth = _entry_bytes(group, client)
    wanted = {each.topic: each for each in subscriptions}
    if known is None:
        return growth + GROUP_BYTES + _wish_bytes(wish) + sum(map(_subscription_bytes, wanted.values()))
    growth -= _entry_bytes(group, known.clients.get(client.connection))
    before = known.wishes.get(client.connection)
    if before is None or before.digest != wish.digest:
        growth += 0 if wish.digest in known.shared else _wish_bytes(wish)
        growth -= _wish_bytes(before) if before is not None and known.shared[before.digest][1] == 1 else 0
    for topic, subscription in wanted.items():
        old = known.subscriptions.get(topic)
        if old is None:
            growth += _subscription_bytes(subscription)
        elif subscription.sub_version > old.sub_version:
            growth += _subscription_bytes(subscription) - _subscription_bytes(old)
    gone = (each for topic, each in known.subscriptions.items() if topic not in wanted)
    return growth - sum(map(_subscription_bytes, gone))


def _release_wish(group: ConsumerGroup[ConnectionT], connection: ConnectionT) -> int:
    """Forget a member's wish; return the number of bytes freed."""
    wish = group.wishes.pop(connection, None)
    if wish is None:
        return 0
    _, members = group.shared[wish.digest]
    if members > 1:
        group.shared[wish.digest] = wish, members - 1
        return 0
    del group.shared[wish.digest]
    return _wish_bytes(wish)

"""Who produces and who consumes, as heartbeats tell.

Lives here: ``ClientTable``: groups, their connections, their subscriptions; expiry. It does no I/O.
Not here: telling clients that their group changed (``client_processor``), settings of groups (``subscription_groups``).
"""

import threading
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pocketmq.broker.subscription_conflicts import Wish, difference, wish_of
from pocketmq.broker.topic_table import TableFull
from pocketmq.remoting.bodies import SubscriptionData

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


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
    """The members of a consumer group that is online, and what it subscribes to."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    clients: dict[ConnectionT, ClientInfo[ConnectionT]] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    wishes: dict[ConnectionT, Wish] = field(default_factory=dict)
    """What each member itself subscribes to."""
    conflict: str = ""
    """How the members' subscriptions differ; empty when they agree."""

    def look_for_conflict(self) -> None:
        """Compare the members' subscriptions."""
        if len({wish.digest for wish in self.wishes.values()}) <= 1:
            self.conflict = ""
        else:
            self.conflict = difference(
                {self.clients[connection].client_id: wish for connection, wish in self.wishes.items()}
            )

    def client_ids(self) -> list[str]:
        """Return the ids of all members."""
        return [client.client_id for client in self.clients.values()]


class ClientTable(Generic[ConnectionT]):
    """Producers and consumers by group. Thread-safe; the lock is held for dict calls only.

    At most ``entries_max`` (group, connection) entries: ``TableFull`` beyond. A group exists while it has a member.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries = 0
        self._lock = threading.Lock()
        self._producers: dict[str, dict[ConnectionT, ClientInfo[ConnectionT]]] = {}
        self._consumers: dict[str, ConsumerGroup[ConnectionT]] = {}
        self._producer_ids: dict[str, ConnectionT] = {}
        self._groups_of: dict[ConnectionT, tuple[set[str], set[str]]] = {}  # producer groups, consumer groups

    def __len__(self) -> int:
        return self._entries

    def register_producer(self, group: str, client: ClientInfo[ConnectionT]) -> bool:
        """Note a heartbeat of a producer; True when it is new."""
        with self._lock:
            clients = self._producers.get(group)
            known = None if clients is None else clients.get(client.connection)
            if known is None:
                self._count_in(client.connection)[0].add(group)
                if clients is None:
                    clients = self._producers[group] = {}
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
        with self._lock:
            known = self._consumers.get(group)
            changed = known is None or client.connection not in known.clients
            if changed:
                self._count_in(client.connection)[1].add(group)
            if known is None:
                known = self._consumers[group] = ConsumerGroup(group, consume_type, message_model, consume_from_where)
            known.consume_type = consume_type
            known.message_model = message_model
            known.consume_from_where = consume_from_where
            known.clients[client.connection] = client
            subscriptions = list(subscriptions)
            wish = wish_of(message_model, subscriptions)
            if known.wishes.get(client.connection) != wish:
                same = next((each for each in known.wishes.values() if each == wish), wish)
                known.wishes[client.connection] = same  # one object for all who want the same
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
        """Forget the connections with a client last heard of before ``oldest_ns``.

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

    def _count_in(self, connection: ConnectionT) -> tuple[set[str], set[str]]:
        if self._entries >= self._entries_max:
            raise TableFull(
                "heartbeat refused", why=f"{self._entries} clients are known", hint="raise broker.clients_max"
            )
        self._entries += 1
        return self._groups_of.setdefault(connection, (set(), set()))

    def _remove_producer(self, group: str, connection: ConnectionT) -> None:
        clients = self._producers[group]
        client_id = clients.pop(connection).client_id
        known = self._groups_of.get(connection)
        if (known is None or not known[0]) and self._producer_ids.get(client_id) == connection:
            del self._producer_ids[client_id]
        self._entries -= 1
        if not clients:
            del self._producers[group]

    def _remove_consumer(self, group: str, connection: ConnectionT) -> None:
        known = self._consumers[group]
        del known.clients[connection]
        known.wishes.pop(connection, None)
        if known.conflict:
            known.look_for_conflict()
        self._entries -= 1
        if not known.clients:
            del self._consumers[group]

    def _forget_if_empty(self, connection: ConnectionT) -> None:
        producer_groups, consumer_groups = self._groups_of[connection]
        if not producer_groups and not consumer_groups:
            del self._groups_of[connection]

    def consumer_group(self, group: str) -> ConsumerGroup[ConnectionT] | None:
        """Return a copy of a consumer group that is online."""
        with self._lock:
            known = self._consumers.get(group)
            if known is None:
                return None
            return ConsumerGroup(
                known.name,
                known.consume_type,
                known.message_model,
                known.consume_from_where,
                dict(known.clients),
                dict(known.subscriptions),
                dict(known.wishes),
                known.conflict,
            )

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
        """Return the id under which ``connection`` is a member of a consumer group, or nothing. Takes no lock."""
        known = self._consumers.get(group)
        client = None if known is None else known.clients.get(connection)
        return "" if client is None else client.client_id

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
        """Return the consumer groups that are online."""
        with self._lock:
            return list(self._consumers)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Return the consumer groups online that subscribe to ``topic``."""
        with self._lock:
            return [name for name, group in self._consumers.items() if topic in group.subscriptions]

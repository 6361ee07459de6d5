"""The assignment of queues to the consumers of a group: RocketMQ's allocation strategies as pure functions.

Every member of a group computes the same answer from the same sorted lists, so no coordinator is needed.
Lives here: the strategies, and the difference between a consumer's held and assigned queues.
"""

import bisect
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.common.allocation import allocate_averagely, allocate_by_circle, position


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker; ordered as RocketMQ orders them: topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


AllocateStrategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(consumer_group, own client id, sorted queues, sorted client ids) -> the queues of this client."""


def allocate_by_config(fixed: Iterable[MessageQueue]) -> AllocateStrategy:
    """Return a strategy that always assigns these queues, whatever the other members
    (AllocateMessageQueueByConfig.java)."""
    chosen = sorted(set(fixed))

    def allocate(
        consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        present = set(queues)
        return [queue for queue in chosen if queue in present]

    return allocate


def allocate_by_consistent_hash(virtual_nodes: int = 10) -> AllocateStrategy:
    """Return a strategy that moves few queues when a client joins or leaves (AllocateMessageQueueConsistentHash.java).

    ``virtual_nodes`` points a client on the ring; MD5, first four bytes, little endian, as RocketMQ's default hash.
    """
    if virtual_nodes < 1:
        raise SubscriptionIllegal("consistent hash refused", why=f"virtual_nodes={virtual_nodes}", hint="use 1 or more")

    def allocate(
        consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if position(client_id, client_ids) < 0:
            return []
        ring = sorted(
            (_ring_point(f"{member}-{node}"), member) for member in client_ids for node in range(virtual_nodes)
        )
        points = [point for point, _ in ring]

        def owner(queue: MessageQueue) -> str:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[bisect.bisect_left(points, _ring_point(text)) % len(ring)][1]

        return [queue for queue in queues if owner(queue) == client_id]

    return allocate


def allocate_by_machine_room(rooms: Iterable[str]) -> AllocateStrategy:
    """Return a strategy that shares only the queues of brokers named ``room@name``, for these rooms
    (AllocateMessageQueueByMachineRoom.java)."""
    chosen = frozenset(rooms)

    def allocate(
        consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        index = position(client_id, client_ids)
        if index < 0:
            return []
        ours = [queue for queue in queues if _room_of_broker(queue.broker_name) in chosen]
        share, rest = divmod(len(ours), len(client_ids))
        result = ours[share * index : share * (index + 1)]
        if index < rest:
            result.append(ours[index + share * len(client_ids)])
        return result

    return allocate


def allocate_machine_room_nearby(
    strategy: AllocateStrategy,
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
) -> AllocateStrategy:
    """Return a strategy by which clients read the queues of their own room (AllocateMachineRoomNearby.java).

    ``strategy`` shares the queues of a room among its clients, and those of a room without clients among all. Both
    functions return the name of a room; an empty name is an error, because members that disagree would share wrongly.
    """

    def allocate(
        consumer_group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if position(client_id, client_ids) < 0:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room(room_of_queue(queue), f"queue {queue}"), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for member in client_ids:
            clients_of.setdefault(_room(room_of_client(member), f"client {member}"), []).append(member)
        own = _room(room_of_client(client_id), f"client {client_id}")
        result = []
        if own in queues_of:
            result += strategy(consumer_group, client_id, queues_of[own], clients_of[own])
        for room in sorted(queues_of):
            if room != own and room not in clients_of:
                result += strategy(consumer_group, client_id, queues_of[room], client_ids)
        return result

    return allocate


STRATEGIES: Mapping[str, AllocateStrategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": allocate_by_consistent_hash(),
}
"""The strategies that need no settings, under the names that RocketMQ prints."""


_WITH_SETTINGS: Mapping[str, str] = {
    "CONFIG": "allocate_by_config(queues)",
    "MACHINE_ROOM": "allocate_by_machine_room(rooms)",
    "MACHINE_ROOM_NEARBY": "allocate_machine_room_nearby(strategy, room_of_queue, room_of_client)",
}


def strategy_of(chosen: str | AllocateStrategy) -> AllocateStrategy:
    """Return the strategy of that name, or the function itself; raise ``SubscriptionIllegal`` for an unknown name."""
    if not isinstance(chosen, str):
        if not callable(chosen):
            raise SubscriptionIllegal("unknown allocation strategy", why=repr(chosen), hint="a name, or a function")
        return chosen
    if chosen.upper() in _WITH_SETTINGS:
        raise SubscriptionIllegal(
            f"allocation strategy {chosen.upper()} needs settings", hint=f"pass {_WITH_SETTINGS[chosen.upper()]}"
        )
    strategy = STRATEGIES.get(chosen.upper())
    if strategy is None:
        raise SubscriptionIllegal(
            "unknown allocation strategy", why=repr(chosen), hint="use one of " + ", ".join(STRATEGIES)
        )
    return strategy


class Change(NamedTuple):
    """The queues that a rebalance takes away and assigns."""

    revoked: list[MessageQueue]
    assigned: list[MessageQueue]


def rebalance(
    strategy: AllocateStrategy,
    consumer_group: str,
    client_id: str,
    queues: Iterable[MessageQueue],
    client_ids: Iterable[str],
    held: Collection[MessageQueue],
) -> Change:
    """Compare the queues that ``client_id`` holds with those it should hold.

    Sorts both lists first, as every member does. If ``client_ids`` lacks its own id nothing changes: the group's broker
    does not know us yet (RebalanceImpl.java).
    """
    members = sorted(set(client_ids))
    if client_id not in members:
        return Change([], [])
    queues = sorted(set(queues))
    wanted = strategy(consumer_group, client_id, queues, members)
    wanted_set, held_set = set(wanted), set(held)
    foreign = wanted_set.difference(queues)
    if foreign:
        raise SubscriptionIllegal(
            "allocation refused", why=f"the strategy gave {min(foreign)}, which is no queue of the topic"
        )
    return Change(sorted(held_set - wanted_set), [queue for queue in wanted if queue not in held_set])


def _room_of_broker(broker_name: str) -> str | None:
    parts = broker_name.split("@")
    return parts[0] if len(parts) == 2 else None


def _room(name: str, what: str) -> str:
    if not name or not isinstance(name, str):
        raise SubscriptionIllegal("allocation refused", why=f"no machine room for {what}", hint="name a room for each")
    return name


def _ring_point(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "little")

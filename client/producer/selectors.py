"""Which queue takes a message: round robin, by sharding key, or the user's own function.

Lives here: the choices, as plain objects.
"""

import random
from collections.abc import Callable, Collection, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import SelectorFailed
from pocketmq.client.producer.fault_items import FaultItems
from pocketmq.common.clock import Clock
from pocketmq.common.java_hash import java_string_hash
from pocketmq.common.message import Message

QueueSelector = Callable[[Sequence[MessageQueue], Message], "MessageQueue | int"]
"""A user's choice: (queues of the topic, message) -> one of them, or its index."""


class RoundRobin:
    """Takes turns over the queues of one topic, from a random start (TopicPublishInfo.java).

    ``index`` grows for ever; the queue is ``index`` modulo the number of queues at that moment.
    """

    __slots__ = ("index",)

    def __init__(self, start: int) -> None:
        self.index = start

    def next(self, queues: Sequence[MessageQueue], avoid_brokers: Collection[str] = ()) -> MessageQueue:
        """Return the next of ``queues`` (not empty); skip those of ``avoid_brokers`` unless there are no others."""
        if avoid_brokers:
            queue = self.find(queues, avoid_brokers)
            if queue is not None:
                return queue
        self.index += 1
        return queues[self.index % len(queues)]

    def find(self, queues: Sequence[MessageQueue], avoid_brokers: Collection[str]) -> MessageQueue | None:
        """Return the next of ``queues`` that is not of ``avoid_brokers``, or None."""
        count = len(queues)
        for _ in range(count):
            self.index += 1
            queue = queues[self.index % count]
            if queue.broker_name not in avoid_brokers:
                return queue
        return None


class QueueChooser:
    """Queues for the sends of one producer: round robin for each topic, past brokers that are avoided.

    ``faults`` is None where ``send_latency_fault_enable`` is off.
    """

    def __init__(self, clock: Clock, rng: random.Random, faults: FaultItems | None) -> None:
        self.faults = faults
        self._clock = clock
        self._random = rng
        self._turns: dict[str, RoundRobin] = {}

    def first(self, route: TopicRoute) -> MessageQueue:
        """Return the queue of a first attempt."""
        turns = self._turns.get(route.topic)
        if turns is None:
            turns = self._new_turns(route.topic)
        faults = self.faults
        if faults is not None and faults.avoided:
            return self._find(turns, route, set(), set()) or turns.next(route.write_queues)
        return turns.next(route.write_queues)

    def again(
        self, route: TopicRoute, tried: Collection[str], last: str, barred: Collection[str]
    ) -> MessageQueue | None:
        """Return the queue of a further attempt: of a broker not ``tried`` yet, else not the ``last`` one, else any,
        but never of one that is ``barred``. None: all are."""
        turns = self._turns.get(route.topic) or self._new_turns(route.topic)
        barred = set(barred)
        for avoid in (set(tried), {last}):
            queue = self._find(turns, route, avoid, barred)
            if queue is not None:
                return queue
        return turns.find(route.write_queues, barred)

    def _find(self, turns: RoundRobin, route: TopicRoute, avoid: set[str], barred: set[str]) -> MessageQueue | None:
        """Look for a broker that is available, else reachable, else any (TopicPublishInfo filters of 5.3)."""
        avoid = avoid | barred
        faults = self.faults
        if faults is not None and faults.avoided:
            queue = turns.find(route.write_queues, avoid | faults.unavailable(self._clock.monotonic_ns()))
            if queue is None:
                queue = turns.find(route.write_queues, avoid | faults.unreachable())
            if queue is not None:
                return queue
        return turns.find(route.write_queues, avoid)

    def _new_turns(self, topic: str) -> RoundRobin:
        turns = self._turns[topic] = RoundRobin(self._random.getrandbits(30))
        return turns


def select_by_hash(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue of a sharding key: ``|hashCode % size|`` (SelectMessageQueueByHash.java).

    Java's remainder has the sign of the dividend, so the absolute value of the remainder is that of ``|hashCode| %
    size``.
    """
    return queues[abs(java_string_hash(key)) % len(queues)]


def select_by_user(selector: QueueSelector, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Ask the user's function; raise ``SelectorFailed`` if it raises or answers with no queue of this topic."""
    try:
        chosen = selector(queues, message)
    except Exception as error:
        raise SelectorFailed(
            "queue selector raised", why=f"{type(error).__name__}: {error}", hint="the message was not sent"
        ) from error
    if isinstance(chosen, int) and not isinstance(chosen, bool):
        if 0 <= chosen < len(queues):
            return queues[chosen]
    elif isinstance(chosen, tuple) and chosen in queues:
        return chosen
    raise SelectorFailed(
        "queue selector returned no queue",
        why=f"{chosen!r} for {len(queues)} queues of {message.topic}",
        hint="return one of the queues, or an index from 0 to len(queues) - 1",
    )


def select_for_reply(broker_name: str, queues: Sequence[MessageQueue]) -> MessageQueue | None:
    """Return a queue of the broker that had the request: the requester is connected there. None: any queue will do."""
    return next((queue for queue in queues if queue.broker_name == broker_name), None)

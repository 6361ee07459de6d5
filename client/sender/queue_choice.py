"""The queue of a message without an order: round robin, past avoided brokers.

Lives here: ``RoundRobin``, ``QueueChooser``, for first and further attempts.
"""

import random
from collections.abc import Collection, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.sender.fault_items import FaultItems
from pocketmq.common.clock import Clock


class RoundRobin:
    """Takes turns over the queues of one topic, from a random start (TopicPublishInfo.java).

    ``index`` always grows; the queue is ``index`` modulo the number of queues at that moment.
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
    """Queues for the sends of one producer: round robin for each topic, past avoided brokers.

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
            turns = self.turns(route.topic)
        faults = self.faults
        if faults is not None and faults.avoided:
            return self._find(turns, route, set(), set()) or turns.next(route.write_queues)
        return turns.next(route.write_queues)

    def again(
        self, route: TopicRoute, tried: Collection[str], last: str, barred: Collection[str]
    ) -> MessageQueue | None:
        """Return the queue of a further attempt: of a broker not ``tried`` yet, else not the ``last`` one, else any,
        but never of a ``barred`` one. None: all are barred."""
        turns = self.turns(route.topic)
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

    def turns(self, topic: str) -> RoundRobin:
        """Return the turns of a topic, which all ways of sending share."""
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns[topic] = RoundRobin(self._random.getrandbits(30))
        return turns

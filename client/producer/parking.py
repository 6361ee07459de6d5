"""Sends that cannot enter a section yet: their topic's route is being fetched, or their topic made, or a stage still
works on their body.

Lives here: ``Parking``. Behind a waiting send all later ones of its topic wait too: they keep their order.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from pocketmq.client.connection.instance import ClientInstance, TaskSet
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.connection.topic_making import make_topic
from pocketmq.client.errors import NoNameServer, NoRoute, NotStarted
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend, Unrouted
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.errors import RemotingTooMuchRequestError

TOGETHER_NS: Final = 20_000_000
"""Parked sends whose timeouts end this close together fail together."""


class Parking:
    """The parked sends of one producer, by topic. Belongs to its event loop.

    ``place(send, route)`` puts a send into a section. ``unrouted`` may take over a send that found no route. Parked
    sends count as in flight.
    """

    def __init__(
        self,
        instance: ClientInstance,
        in_flight: InFlight,
        timeout_ms: int,
        place: Callable[[PendingSend, TopicRoute], None],
        unrouted: Unrouted | None = None,
    ) -> None:
        self._instance = instance
        self._clock = instance.clock
        self._in_flight = in_flight
        self._timeout_ms = timeout_ms
        self._place = place
        self._unrouted = unrouted
        self.waiting: dict[str, list[PendingSend]] = {}
        """By topic; a topic without an entry has none."""
        self.tasks = TaskSet(instance.supervisor)

    def park(self, send: PendingSend) -> None:
        """Hold a send until the route of its topic is known and earlier ones have left."""
        topic = send.message.topic
        waiting = self.waiting.get(topic)
        if waiting is None:
            waiting = self.waiting[topic] = []
            self.tasks.spawn(self._unpark(topic), f"pocketmq-unpark-{topic}")
        waiting.append(send)
        self.hold(send)
        if send.own_time and send.future is not None:
            left_s = (send.deadline_ns - self._clock.monotonic_ns()) / 1e9
            timer = asyncio.get_running_loop().call_later(max(left_s, 0), self._expire, send)
            send.future.add_done_callback(lambda _: timer.cancel())

    def hold(self, send: PendingSend) -> None:
        """Count a send as in flight until it is settled."""
        self._in_flight.add(send.size_bytes, 1, send.oneway)

    def settle(self, send: PendingSend, result: Receipt | PocketMQError) -> None:
        """End a send that was held in memory by itself."""
        self._in_flight.remove(send.size_bytes, 1, send.oneway)
        if send.future is not None and not send.future.done():
            if isinstance(result, Receipt):
                send.future.set_result(result)
            else:
                send.future.set_exception(result)

    def _expire(self, send: PendingSend) -> None:
        """End a send whose own time is over while it is parked."""
        waiting = self.waiting.get(send.message.topic)
        if waiting is None or send not in waiting:
            return
        waiting.remove(send)
        elapsed_ms = (self._clock.monotonic_ns() - send.started_ns) / 1e6
        error = RemotingTooMuchRequestError(
            "sendDefaultImpl call timeout",
            why=f"no route of {send.message.topic} after {elapsed_ms:.0f} ms",
            hint="it was not sent; check the name server",
        )
        self._fail(send, error, early=True)

    def _fail(self, send: PendingSend, error: PocketMQError, *, early: bool = False) -> None:
        """End a send that found no route, or let a stage keep it. ``early``: those before it still wait."""
        if self._unrouted is None or send.oneway or not self._unrouted(send, error, early=early):
            self.settle(send, error)

    async def _unpark(self, topic: str) -> None:
        """Wait for a topic's route, then let its messages in."""
        try:
            route = await self._wait_ready(topic, await self._route(topic))
        except (PocketMQError, asyncio.CancelledError) as error:
            refusal = error if isinstance(error, PocketMQError) else not_running()
            for send in self.waiting.pop(topic, []):
                self._fail(send, refusal)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for send in self.waiting.pop(topic, []):
            self._enter(send, route)

    async def _route(self, topic: str) -> TopicRoute:
        """Return the topic's route; each send waits for it within its own timeout, unless a stage may keep it."""
        if self._unrouted is not None:
            return await self._instance.route(topic, timeout_ms=self._timeout_ms, for_send=True)
        waiting = self.waiting[topic]
        while True:
            now_ns = self._clock.monotonic_ns()
            first = min(waiting, key=_deadline, default=None)
            timeout_ms = self._timeout_ms if first is None else (first.deadline_ns - now_ns) / 1e6
            waited_ms = 0.0 if first is None else (now_ns - first.started_ns) / 1e6
            try:
                return await self._instance.route_for_send(topic, timeout_ms=timeout_ms, waited_ms=waited_ms)
            except (NoRoute, NoNameServer) as error:
                until_ns = 0 if first is None else first.deadline_ns + TOGETHER_NS
                late = [send for send in waiting if send.deadline_ns <= until_ns]
                if error.final or len(late) == len(waiting):
                    raise
                waiting[:] = [send for send in waiting if send.deadline_ns > until_ns]
                for send in late:
                    self._fail(send, error, early=True)

    async def _wait_ready(self, topic: str, route: TopicRoute) -> TopicRoute:
        """Let waiting sends in, in order, until all the rest are ready; return the route for these."""
        waiting = self.waiting.get(topic, [])
        asked = False
        while True:
            needs_topic = route.borrowed and not asked
            index = next((i for i, each in enumerate(waiting) if _must_wait(each, needs_topic)), None)
            if index is None:
                return route
            for send in waiting[:index]:
                self._enter(send, route)
            del waiting[:index]
            first = waiting[0].ready
            if first is not None and not first.done():
                await asyncio.wait((first,))
            else:
                asked = True
                route = await make_topic(self._instance, route, self._timeout_ms)

    def _enter(self, send: PendingSend, route: TopicRoute) -> None:
        """Let in a send that was held in memory by itself."""
        self._in_flight.remove(send.size_bytes, 1, send.oneway)
        error = send.ready.exception() if send.ready is not None else None
        if error is not None:  # only compression uses ``ready`` so far: send the body uncompressed
            self._instance.log.error("compression_failed", topic=send.message.topic, error=repr(error))
        try:
            self._place(send, route)
        except PocketMQError as refused:
            if send.future is not None and not send.future.done():
                send.future.set_exception(refused)


def _must_wait(send: PendingSend, needs_topic: bool) -> bool:
    """Return whether a stage still works on its body, or its queue is chosen while the topic is not made yet."""
    return (needs_topic and send.is_queue_chosen) or (send.ready is not None and not send.ready.done())


def _deadline(send: PendingSend) -> int:
    return send.deadline_ns


def not_running() -> NotStarted:
    """Return the error of a call to a producer that was not started, or was stopped."""
    return NotStarted("producer is not running", hint='use "async with Producer(...)", or await start() first')

"""Many receives as one request a broker, and the acknowledgements of one turn of the loop as another.

Tasks that wait for a message share the pops: each broker has at most one under way, for as many messages as tasks wait
for, as long as the most patient of them. A pop that brings more than is still wanted keeps the rest for the next
receives; what nobody has asked for at half of its time is given back.

Lives here: ``PopLanes``.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, TaskSet
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.simple.pop_wire import NATIVE_MESSAGES_MAX, PopWire, Settling
from pocketmq.client.simple.popped_message import PoppedMessage
from pocketmq.common.errors import PocketMQError

RETRY_MS: Final = 1_000
"""Pause of a broker whose pop has failed."""
SETTLED_AT_ONCE: Final = 1_024
FRESH_SHARE: Final = 0.5
"""A kept message is handed out while it has at least so much of its time."""
ANSWER_MS: Final = 250
"""How long beyond its time a receive waits for the answer of its broker, which counts that time itself."""


@dataclass(eq=False, slots=True)
class Receiver:
    """A receive that waits. Gets a list of at least one message."""

    count_max: int
    invisible_ms: int
    deadline_ns: int
    future: "asyncio.Future[list[PoppedMessage]]"


@dataclass(eq=False, slots=True)
class PopLanes:
    """The pops and acknowledgements of one consumer. Loop thread."""

    instance: ClientInstance
    wire: PopWire
    topic: str
    _waiting: "deque[Receiver]" = field(default_factory=deque)
    _kept: "deque[PoppedMessage]" = field(default_factory=deque)
    _popping: dict[str, int] = field(default_factory=dict)
    """Broker → messages that its pop under way asks for."""
    _errors: dict[str, PocketMQError] = field(default_factory=dict)
    """Broker → the error of its last pop."""
    _is_pop_due: bool = False
    _giving_back: asyncio.TimerHandle | None = None
    _settlings: dict[str, list[Settling]] = field(default_factory=dict)
    _tasks: TaskSet = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = TaskSet(self.instance.supervisor)

    async def receive(self, count_max: int, invisible_ms: int, wait_ms: int) -> list[PoppedMessage]:
        """Return 1 to ``count_max`` messages, none when none came in ``wait_ms``. Raises ``NoRoute``, and the error of
        a broker when no broker could be asked."""
        kept = self._take_kept(count_max)
        if kept:
            return kept
        instance = self.instance
        route = await instance.route(self.topic, timeout_ms=instance.options.api_timeout_ms)
        deadline_ns = instance.clock.monotonic_ns() + wait_ms * 1_000_000
        loop = asyncio.get_running_loop()
        receiver = Receiver(count_max, invisible_ms, deadline_ns, loop.create_future())
        self._waiting.append(receiver)
        if not self._is_pop_due:  # once a turn: all that begin to wait in it share the pop
            self._is_pop_due = True
            loop.call_soon(self._pop, route)
        impatient = loop.call_later((wait_ms + ANSWER_MS) / 1000, self._end_those_in_time)
        try:
            return await receiver.future
        except asyncio.CancelledError:
            if receiver.future.done() and not receiver.future.cancelled() and receiver.future.exception() is None:
                self._keep(receiver.future.result())  # it came just then: the next one gets it
            raise
        finally:
            impatient.cancel()
            if receiver in self._waiting:
                self._waiting.remove(receiver)

    def _give_back(self) -> None:
        """Give back what nobody has asked for in half of its time."""
        self._giving_back = None
        now_ns = self.instance.clock.monotonic_ns()
        fresh: deque[PoppedMessage] = deque()
        for message in self._kept:
            if message.left_ms(now_ns) >= FRESH_SHARE * message.invisible_ms:
                fresh.append(message)
            else:
                self.settle(message, 0)  # somebody else gets it now
        self._kept = fresh
        self._keep(())

    def _keep(self, messages: Sequence[PoppedMessage]) -> None:
        self._kept.extend(messages)
        if self._kept and self._giving_back is None:
            now_ns = self.instance.clock.monotonic_ns()
            left_ms = min(each.left_ms(now_ns) - FRESH_SHARE * each.invisible_ms for each in self._kept)
            loop = asyncio.get_running_loop()
            self._giving_back = loop.call_later(max(1.0, left_ms) / 1000, self._give_back)

    def _take_kept(self, count_max: int) -> list[PoppedMessage]:
        now_ns = self.instance.clock.monotonic_ns()
        found: list[PoppedMessage] = []
        while self._kept and len(found) < count_max:
            message = self._kept.popleft()
            if message.left_ms(now_ns) >= FRESH_SHARE * message.invisible_ms:
                found.append(message)
            else:
                self.settle(message, 0)  # somebody else gets it now
        return found

    def _pop(self, route: TopicRoute) -> None:
        """Ask each broker that is not asked already, for what nobody has asked for yet."""
        self._is_pop_due = False
        names = {queue.broker_name for queue in route.read_queues}
        for name in names:
            if name in self._popping or not self._waiting:
                continue
            wanted = sum(each.count_max for each in self._waiting) - sum(self._popping.values())
            if wanted <= 0 and len(names) == 1:
                continue
            self._popping[name] = count = min(max(1, wanted), NATIVE_MESSAGES_MAX)
            self._tasks.spawn(self._pop_at(name, count), f"pocketmq-pop-{name}")

    async def _pop_at(self, name: str, count: int) -> None:
        instance = self.instance
        try:
            now_ns = instance.clock.monotonic_ns()
            wait_ms = max(0, (max(each.deadline_ns for each in self._waiting) - now_ns) // 1_000_000)
            invisible_ms = min(each.invisible_ms for each in self._waiting)
            connection: BrokerConnection = await instance.connection(name, timeout_ms=instance.options.api_timeout_ms)
            messages = await self.wire.pop(connection, count, invisible_ms, wait_ms)
        except PocketMQError as error:
            self._errors[name] = error
            instance.invalidate_routes_of(name)
            instance.log.warning("pop_failed", topic=self.topic, broker=name, error=str(error))
            self._failed()
            if self._waiting:
                await asyncio.sleep(RETRY_MS / 1000)
            messages = []
        else:
            self._errors.pop(name, None)
        finally:
            del self._popping[name]
        self._hand_out(messages)
        self._end_those_in_time()
        route = instance.routes.get(self.topic)
        if self._waiting and route is not None:
            self._pop(route)

    def _hand_out(self, messages: list[PoppedMessage]) -> None:
        at = 0
        while at < len(messages) and self._waiting:
            receiver = self._waiting.popleft()
            if not receiver.future.done():
                receiver.future.set_result(messages[at : at + receiver.count_max])
                at += receiver.count_max
        self._keep(messages[at:])

    def _end_those_in_time(self) -> None:
        now_ns = self.instance.clock.monotonic_ns()
        for receiver in [each for each in self._waiting if each.deadline_ns <= now_ns]:
            self._waiting.remove(receiver)
            if not receiver.future.done():
                receiver.future.set_result([])

    def _failed(self) -> None:
        """Let those that wait know when no broker can be asked any more."""
        route = self.instance.routes.get(self.topic)
        names = set() if route is None else {queue.broker_name for queue in route.read_queues if queue}
        if names <= set(self._errors):
            error = next(iter(self._errors.values()))
            self._errors.clear()
            while self._waiting:
                receiver = self._waiting.popleft()
                if not receiver.future.done():
                    receiver.future.set_exception(error)

    # ---- settling

    def settle(self, message: PoppedMessage, invisible_ms: int) -> "asyncio.Future[bool]":
        """Acknowledge a message (-1), or change its time, with those of the same turn of the loop. The future gets
        whether the handle was good."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()
        waiting = self._settlings.get(message.broker_name)
        if waiting is None:
            self._settlings[message.broker_name] = waiting = []
            loop.call_soon(self._flush, message.broker_name)
        waiting.append(Settling(message, invisible_ms, done))
        return done

    def _flush(self, broker_name: str) -> None:
        settlings = self._settlings.pop(broker_name, [])
        for first in range(0, len(settlings), SETTLED_AT_ONCE):
            part = settlings[first : first + SETTLED_AT_ONCE]
            self._tasks.spawn(self.wire.settle(broker_name, part), f"pocketmq-settle-{broker_name}")

    async def stop(self) -> None:
        """Give back what was received and not handed out, and end."""
        for receiver in self._waiting:
            if not receiver.future.done():
                receiver.future.set_result([])
        self._waiting.clear()
        if self._giving_back is not None:
            self._giving_back.cancel()
            self._giving_back = None
        back = [self.settle(message, 0) for message in self._kept]
        self._kept.clear()
        if back:
            await asyncio.wait(back, timeout=self.instance.options.api_timeout_ms / 1000)
        await self._tasks.cancel()

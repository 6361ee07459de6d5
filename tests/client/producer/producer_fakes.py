"""Parts shared by the tests of a producer: an instance, a sender, sends and routes, all without a broker."""

import asyncio
from types import SimpleNamespace
from typing import Any

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.sender.section import Frame, Section
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.common.message import Message

QUEUES = tuple(MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2))


class Faults(NullLog):
    """An event log that keeps the names of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def error(self, event: str, **fields: Any) -> None:
        self.errors.append(event)


class FakeInstance(ClientInstance):
    """An instance without connections, on a clock that stands still; a test adds a route with ``found``."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.time = ManualClock()
        super().__init__("127.0.0.1:1", clock=self.time, log=self.faults)
        self.found: asyncio.Future[TopicRoute] = asyncio.get_running_loop().create_future()
        self.asked = 0

    def check_process(self) -> None:
        """It counts as started."""

    def open_link(self, broker_name: str) -> None:
        """Do nothing: no broker is connected."""

    async def route(self, topic: str, *, timeout_ms: float, for_send: bool = False) -> TopicRoute:
        self.asked += 1
        return await asyncio.shield(self.found)

    def know(self, route: TopicRoute) -> None:
        """Set a route as if it had been fetched before."""
        self.found.set_result(route)
        self.routes.put(route, self.clock.monotonic_ns())


class FakeSender:
    """Keeps the sections it gets. ``answer``: the result of a whole section at once; None: no result yet."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.sections: list[Section] = []
        self.answer: PocketMQError | None = None
        self.native = SimpleNamespace(builder=lambda link, half: None)

    def send_frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    def send_section(self, section: Section) -> None:
        self.sections.append(section)
        assert section.batch_future is not None
        if self.answer is not None:
            section.batch_future.set_exception(self.answer)
        else:
            receipts: list[Any] = [f"{section.queue.broker_name}{section.queue_id}"] * section.count
            section.batch_future.set_result(receipts)


def route_of(*queues: MessageQueue) -> TopicRoute:
    """Return a route with these queues, or all of ``QUEUES``; each can be written."""
    return TopicRoute("T", {}, queues or QUEUES, queues or QUEUES)


def pending(body: bytes = b"x", *, oneway: bool = False, deadline_ns: int = 0, **options: Any) -> PendingSend:
    """Return a send of topic T; one with a deadline has its own timeout."""
    future: asyncio.Future[Receipt] | None = None if oneway else asyncio.get_running_loop().create_future()
    message = Message("T", body, **options)
    return PendingSend(message, True, None, oneway, future, 0, deadline_ns, bool(deadline_ns), 1)

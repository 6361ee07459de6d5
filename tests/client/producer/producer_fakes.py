"""What the tests of the producer's parts share: sends, routes and a log, without a broker."""

import asyncio
from typing import Any

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.common.message import Message

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]


class Faults:
    """An event log that keeps the errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, event: str, **fields: Any) -> None:
        self.errors.append(event)


def route_of(*queues: MessageQueue) -> TopicRoute:
    """Return a route with these queues, or all of ``QUEUES``; each can be written."""
    return TopicRoute("T", {}, queues or tuple(QUEUES), queues or tuple(QUEUES))


def pending(body: bytes = b"x", *, oneway: bool = False, deadline_ns: int = 0, **options: Any) -> PendingSend:
    """Return a send of topic T; one with a deadline has a timeout of its own."""
    future: asyncio.Future[Receipt] | None = None if oneway else asyncio.get_running_loop().create_future()
    message = Message("T", body, **options)
    return PendingSend(message, True, None, oneway, future, 0, deadline_ns, bool(deadline_ns), 1)

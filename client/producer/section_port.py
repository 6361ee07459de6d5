"""What the durable retry needs from its producer: sections of messages, sent as they are.

Lives here: ``SendPort``.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.accumulator import Rows, Section
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message

if TYPE_CHECKING:
    from pocketmq.client.producer.producer import Producer


class SendPort:
    """One producer, seen from its retry component. Sections sent here are not handed to the retry store again."""

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer
        self.instance = producer.instance
        self.clock = producer.instance.clock
        self.log = producer.instance.log
        self.supervisor = producer.instance.supervisor
        self.random = producer.instance.random
        self.settle: Callable[[Any, Receipt | PocketMQError], None] = producer.settle_parked
        """Ends a send that is in memory: called once with it and its receipt or error."""
        self._own: set[Section] = set()

    def hold(self, send: Any) -> None:
        """Count a send as in flight until it is settled."""
        self._producer.in_flight.add(send.size_bytes, 1, False)

    @property
    def timeout_ms(self) -> int:
        """The producer's send timeout."""
        return self._producer.send_msg_timeout_ms

    @property
    def retry_response_codes(self) -> set[int]:
        """Answers that are worth another attempt."""
        return self._producer.retry.retry_response_codes

    def owns(self, section: Section) -> bool:
        """Tell whether a section was sent here."""
        return section in self._own

    async def route(self, topic: str) -> TopicRoute:
        """Return a route with write queues, asked for where it is not known."""
        return await self.instance.route(topic, timeout_ms=self.timeout_ms, for_send=True)

    def any_queue(self, route: TopicRoute) -> MessageQueue:
        """Choose a queue as for a send without a key."""
        return self._producer._chooser.first(route)

    def send(
        self,
        messages: Sequence[Message] | Rows,
        queue: MessageQueue,
        *,
        plain: bool,
        wait: bool | None = None,
        may_move: bool,
        uniq_keys: list[bytes] | None = None,
        started_ns: int | None = None,
        deadline_ns: int | None = None,
        attempts_max: int | None = None,
    ) -> "asyncio.Future[Sequence[Receipt]]":
        """Send messages of one topic to one queue, all or none. Raises ``NotStarted``.

        Rows need ``wait`` (whether the answer waits for disk and slaves) and ``uniq_keys``; messages say it themselves.
        """
        producer = self._producer
        producer._check_running()
        if started_ns is None:
            started_ns = self.clock.monotonic_ns()
        section = producer._new_section(
            None,
            queue,
            started_ns,
            None,
            producer._sync_attempts if attempts_max is None else attempts_max,
            plain,
            bool(messages[0].wait_store_msg_ok) if isinstance(messages, Sequence) else wait is not False,
            False,
            may_move,
        )
        if deadline_ns is not None:
            section.deadline_ns = deadline_ns
        if isinstance(messages, Sequence):
            section.messages = list(messages)
        else:
            section.rows = messages
        section.uniq_keys = uniq_keys if uniq_keys is not None else self.instance.ids.next_bytes(len(messages))
        section.batch_future = future = asyncio.get_running_loop().create_future()
        self._own.add(section)
        future.add_done_callback(lambda _: self._own.discard(section))
        producer._sender.send_section(section)
        return future

"""What the durable retry needs from its producer: sections of messages, sent as they are.

Lives here: ``SendPort``.
"""

import asyncio
from collections.abc import Callable, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.sections import Sections
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.section import Rows
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message


class SendPort:
    """One producer, seen from its retry component. Sections sent here are not handed to the retry store again.

    ``settle(send, result)`` ends a send that is in memory, once. ``retry_response_codes``: answers that are worth
    another attempt.
    """

    def __init__(
        self,
        sections: Sections,
        chooser: QueueChooser,
        in_flight: InFlight,
        options: ProducerOptions,
        retry_response_codes: set[int],
        settle: Callable[[PendingSend, Receipt | PocketMQError], None],
    ) -> None:
        self.instance = instance = sections.instance
        self.clock = instance.clock
        self.log = instance.log
        self.supervisor = instance.supervisor
        self.random = instance.random
        self.retry_response_codes = retry_response_codes
        self.settle = settle
        self._sections = sections
        self._chooser = chooser
        self._in_flight = in_flight
        self._timeout_ms = options.send_msg_timeout_ms
        self._attempts_max = 1 + options.retry_times_when_send_failed

    def hold(self, send: PendingSend) -> None:
        """Count a send as in flight until it is settled."""
        self._in_flight.add(send.size_bytes, 1, False)

    async def route(self, topic: str) -> TopicRoute:
        """Return a route with write queues, asked for where it is not known."""
        return await self.instance.route(topic, timeout_ms=self._timeout_ms, for_send=True)

    def any_queue(self, route: TopicRoute) -> MessageQueue:
        """Choose a queue as for a send without a key."""
        return self._chooser.first(route)

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
        if started_ns is None:
            started_ns = self.clock.monotonic_ns()
        section = self._sections.new(
            None,
            queue,
            started_ns=started_ns,
            deadline_ns=started_ns + self._timeout_ms * 1_000_000 if deadline_ns is None else deadline_ns,
            attempts_max=self._attempts_max if attempts_max is None else attempts_max,
            plain=plain,
            wait=bool(messages[0].wait_store_msg_ok) if isinstance(messages, Sequence) else wait is not False,
            may_move=may_move,
            is_resend=True,
        )
        if isinstance(messages, Sequence):
            section.messages = list(messages)
        else:
            section.rows = messages
        section.uniq_keys = uniq_keys if uniq_keys is not None else self.instance.ids.next_bytes(len(messages))
        return self._sections.send(section)

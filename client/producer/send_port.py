"""The inner face of a producer, for the parts of the SDK that send in ways of their own.

Lives here: ``SendPort``: transactions, requests, and stages that send (the durable retry). Applications use
``Producer``.
"""

import asyncio
from collections.abc import Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.connection.topic_making import make_topic
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.submission import Submission
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.section import Rows
from pocketmq.common.message import Message


class SendPort:
    """One producer, seen from inside the SDK. Belongs to its event loop.

    ``send_half`` and ``send_nowait`` send one message, ``send`` a whole section. ``check_running``, ``limit_ms`` and
    ``wait_for_room`` are what a send begins with; ``Submission`` explains them. For a send that a stage has taken over,
    ``hold(send)`` counts it as in flight, and ``settle(send, result)`` ends it, once. ``wait_parked(timeout_s)`` waits
    until no send is parked. ``retry_response_codes``: answers that are worth another attempt.
    """

    def __init__(self, submission: Submission, chooser: QueueChooser, retry_response_codes: set[int]) -> None:
        self.instance = instance = submission.instance
        self.options = submission.options
        self.clock = instance.clock
        self.log = instance.log
        self.supervisor = instance.supervisor
        self.random = instance.random
        self.retry_response_codes = retry_response_codes
        self.check_running = submission.check_running
        self.limit_ms = submission.limit_ms
        self.wait_for_room = submission.wait_for_room
        self.send_half = submission.send_half
        self.send_nowait = submission.send_nowait
        self.hold = submission.parking.hold
        self.settle = submission.parking.settle
        self.wait_parked = submission.parking.tasks.wait
        self._submission = submission
        self._sections = submission.sections
        self._chooser = chooser

    @property
    def running(self) -> bool:
        """Whether the producer takes messages."""
        return self._submission.running

    async def route(self, topic: str) -> TopicRoute:
        """Return a route with write queues, fetched if it is not known; the topic is made if it does not exist."""
        timeout_ms = self.options.send_msg_timeout_ms
        route = await self.instance.route(topic, timeout_ms=timeout_ms, for_send=True)
        return await make_topic(self.instance, route, timeout_ms) if route.borrowed else route

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

        No stage is offered this section if it fails (``failed``): its sender knows what to do with it. Rows need
        ``wait`` (whether the answer waits for disk and slaves) and ``uniq_keys``; messages have both.
        """
        options = self.options
        if started_ns is None:
            started_ns = self.clock.monotonic_ns()
        if deadline_ns is None:
            deadline_ns = started_ns + options.send_msg_timeout_ms * 1_000_000
        section = self._sections.new(
            None,
            queue,
            started_ns=started_ns,
            deadline_ns=deadline_ns,
            attempts_max=1 + options.retry_times_when_send_failed if attempts_max is None else attempts_max,
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

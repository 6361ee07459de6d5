"""``async for`` over the messages of a push consumer.

Lives here: ``MessageStream``: the iterator, acknowledgement, giving messages back.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from pocketmq.client.errors import NotStarted, SubscriptionIllegal
from pocketmq.client.handlers.consume_result import ConsumeResult, Later
from pocketmq.client.handlers.process_telemetry import Processing, ProcessTelemetry
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from pocketmq.client.push.push_consumer import PushConsumer

PREFETCH_MAX = 10_000

_Answer = ConsumeResult | Later


class MessageStream:
    """The messages of one topic, one by one.

    A message is done when it is acknowledged; one that is not by the end of the consumer is delivered again. With
    ``auto_ack`` asking for the next message acknowledges the one before. Leaving the loop acknowledges nothing: the
    last message is delivered again, unless ``ack`` was called for it. One task iterates at a time.
    """

    def __init__(
        self,
        consumer: "PushConsumer",
        topic: str,
        *,
        auto_ack: bool,
        prefetch: int,
        telemetry: ProcessTelemetry | None = None,
    ) -> None:
        if type(prefetch) is not int or not 1 <= prefetch <= PREFETCH_MAX:
            raise SubscriptionIllegal("stream refused", why=f"prefetch={prefetch!r}", hint=f"1 to {PREFETCH_MAX}")
        self.topic = topic
        self._consumer = consumer
        self._auto_ack = auto_ack
        self._prefetch = prefetch
        self._places = asyncio.Semaphore(prefetch)
        self._waiting: deque[tuple[ReceivedMessage, asyncio.Future[_Answer]]] = deque()
        self._open: dict[int, asyncio.Future[_Answer]] = {}  # by id() of the message, which ``deliver`` keeps alive
        self._reader: asyncio.Task[object] | None = None
        self._last: ReceivedMessage | None = None
        self._news: asyncio.Future[None] | None = None
        self._iterating = False
        self._closed = False
        self._telemetry = telemetry
        self._spans: dict[int, Processing] = {}  # as ``_open``, until ``deliver`` has the decision
        self.begun: Processing | None = None
        """The span of the message that was handed out last; None: there is no telemetry."""

    async def deliver(self, message: ReceivedMessage) -> _Answer:
        """Take a message as the consumer's handler; return when the user has decided about it."""
        async with self._places:
            if self._closed:
                return Later()
            answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
            entry = (message, answer)
            self._waiting.append(entry)
            if self._news is not None and not self._news.done():
                self._news.set_result(None)
            try:
                return await answer
            finally:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self._open.pop(id(message), None)
                if self._spans:
                    self._end_span(message, answer)

    def _end_span(self, message: ReceivedMessage, answer: "asyncio.Future[_Answer]") -> None:
        processing = self._spans.pop(id(message), None)
        if processing is not None:
            processing.returned(answer.result() if answer.done() and not answer.cancelled() else Later())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message; end when the consumer is stopped."""
        if self._iterating:
            raise NotStarted(
                "stream is in use", why="another task waits for its next message", hint="one task a stream"
            )
        if not self._consumer.ever_started:
            await self._consumer.start()
        if self._auto_ack and self._last is not None:
            self.ack(self._last)
        if self.begun is not None:
            self.begun.leave()
            self.begun = None
        self._reader = asyncio.current_task()
        self._iterating = True
        try:
            while not self._waiting:
                if not self._consumer.running:
                    raise StopAsyncIteration
                self._news = asyncio.get_running_loop().create_future()
                stopped = asyncio.ensure_future(self._consumer.wait_stopped())
                try:
                    await asyncio.wait([self._news, stopped], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    stopped.cancel()
                    self._news = None
        finally:
            self._iterating = False
        message, answer = self._waiting.popleft()
        self._open[id(message)] = answer
        self._last = message
        if self._telemetry is not None:  # the body of the caller's loop runs inside the span
            self.begun = self._spans[id(message)] = self._telemetry.begin((message,))
            self.begun.enter()
        return message

    def give_back(self) -> None:
        """Give messages back when the consumer stops: unread ones at once, and those its own reader holds. A message
        that another task works on may still be acknowledged until the stop's timeout is over.
        """
        self._closed = True
        answers = [answer for _, answer in self._waiting]
        if self._reader is asyncio.current_task() or not self._iterating_task_lives():
            answers += self._open.values()
        for answer in answers:
            if not answer.done():
                answer.set_result(Later())
        self._waiting.clear()

    def _iterating_task_lives(self) -> bool:
        return self._reader is not None and not self._reader.done()

    def reopen(self) -> None:
        """Take messages again: the consumer starts once more."""
        self._places = asyncio.Semaphore(self._prefetch)
        self._open.clear()
        self._spans.clear()
        self._last = None
        self._closed = False

    def ack(self, message: ReceivedMessage) -> bool:
        """Count a message as done; return False if it was already decided or given back."""
        return self._decide(message, ConsumeResult.SUCCESS)

    def later(self, message: ReceivedMessage, *, delay_level: int = 0) -> bool:
        """Ask for a later try of a message; ``delay_level`` as in ``Later``."""
        return self._decide(message, Later(delay_level=delay_level))

    def _decide(self, message: ReceivedMessage, answer: _Answer) -> bool:
        if self._last is message:
            self._last = None
        waiting = self._open.pop(id(message), None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

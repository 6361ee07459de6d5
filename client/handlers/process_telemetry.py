"""OpenTelemetry's spans around handlers, and of what becomes of the messages that they did not finish.

Lives here: ``ProcessTelemetry``, which wraps handlers and the failure policy of one consumer; ``Processing``, one call.
"""

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Token
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.handlers.consume_result import DEAD_LETTER, DropFailed, FailurePolicy, KeepHere, outcome_of
from pocketmq.client.handlers.handler_call import is_async_handler
from pocketmq.client.telemetry.conventions import DEAD_LETTER as TO_DEAD_LETTERS
from pocketmq.client.telemetry.conventions import LATER_COUNT, NACK, OTHER_ERROR
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext

    from pocketmq.client.telemetry.spans import Operation, Spans

FAILED_MAX: Final = 1_024
"""Failed messages whose span is remembered until they are handed on; most are within the same turn."""

LATER: Final = "RECONSUME_LATER"
"""``error.type`` of a handler that asks for another try (RocketMQ ConsumeConcurrentlyStatus)."""
GIVEN_UP: Final = "DEAD_LETTER"


def _place(message: ReceivedMessage) -> tuple[str, str, int, int]:
    return message.topic, message.broker_name, message.queue_id, message.queue_offset


class Processing:
    """One call of a handler under way: its span, and whether it is the current one of a task or thread."""

    __slots__ = ("_owner", "_token", "context", "is_ended", "messages", "operation", "telemetry")

    def __init__(
        self,
        telemetry: "ProcessTelemetry",
        messages: Sequence[ReceivedMessage],
        operation: "Operation",
        context: "Context",
    ) -> None:
        self.telemetry = telemetry
        self.messages = messages
        self.operation = operation
        self.context = context
        self.is_ended = False
        self._token: Token[Context] | None = None
        self._owner: asyncio.Task[Any] | None = None

    def enter(self) -> None:
        """Make the span the current one of the caller's task or thread."""
        self._owner = _current_task()
        self._token = self.telemetry.spans.attach(self.context)

    def leave(self) -> None:
        """Make the span before it the current one again; nothing in another task than that of ``enter``."""
        if self._token is not None and self._owner is _current_task():
            self.telemetry.spans.detach(self._token)
        self._token = None

    def failed(self, error: BaseException) -> None:
        """End with an exception: all messages are tried again."""
        if not self.is_ended:
            self.is_ended = True
            self.telemetry.remember(self.messages, self.operation)
            self.telemetry.spans.end(self.operation, error)

    def returned(self, answer: object) -> None:
        """End with a handler's answer."""
        if self.is_ended:
            return
        self.is_ended = True
        outcome = outcome_of(answer, self.messages)
        if not outcome.later:
            self.telemetry.spans.end(self.operation)
            return
        if len(self.messages) > 1:
            self.telemetry.spans.tell(self.operation, {LATER_COUNT: len(outcome.later)})
        self.telemetry.remember(outcome.later, self.operation)
        failure = GIVEN_UP if outcome.delay_level == DEAD_LETTER else LATER
        self.telemetry.spans.end(self.operation, failure=failure, why=outcome.reason)


class ProcessTelemetry:
    """The spans of one consumer's handlers. Handlers run in threads, too: every method may be called there."""

    def __init__(self, spans: "Spans", group: str, message_model: str) -> None:
        self.spans = spans
        self.group = group
        self._model = message_model
        self._failed: OrderedDict[tuple[str, str, int, int], SpanContext] = OrderedDict()

    # -- handlers ----------------------------------------------------------------------------------------------

    def begin(self, messages: Sequence[ReceivedMessage], *, is_batch: bool = False) -> Processing:
        """Begin the span of a call with ``messages``."""
        operation, context = self.spans.process(self.group, messages, is_batch=is_batch, model=self._model)
        return Processing(self, messages, operation, context)

    def observed(self, handler: Callable[..., Any], *, is_batch: bool) -> Callable[[Any], Any]:
        """Return a handler of the same kind whose calls run inside a span."""
        if not callable(handler):
            return handler  # refused by who registers it
        if is_async_handler(handler):
            return self._observed_async(handler, is_batch)

        def call(argument: Any) -> Any:
            processing = self.begin(argument if is_batch else (argument,), is_batch=is_batch)
            processing.enter()
            try:
                returned = handler(argument)
            except BaseException as error:
                processing.failed(error)
                raise
            finally:
                processing.leave()
            if inspect.isawaitable(returned):  # a lambda around a coroutine function: the loop awaits it
                return _finished(processing, returned)
            processing.returned(returned)
            return returned

        return _named(call, handler)

    def _observed_async(self, handler: Callable[..., Any], is_batch: bool) -> Callable[[Any], Awaitable[Any]]:
        async def call(argument: Any) -> Any:
            processing = self.begin(argument if is_batch else (argument,), is_batch=is_batch)
            return await _finished(processing, handler(argument))

        return _named(call, handler)

    # -- failures ----------------------------------------------------------------------------------------------

    def remember(self, messages: Sequence[ReceivedMessage], operation: "Operation") -> None:
        """Keep the span in which messages failed, until they are handed on."""
        span_context = operation.span.get_span_context()
        for message in messages[-FAILED_MAX:]:
            self._failed[_place(message)] = span_context
        while len(self._failed) > FAILED_MAX:
            try:
                self._failed.popitem(last=False)
            except KeyError:  # another thread was faster
                break

    def failed_in(self, messages: Sequence[ReceivedMessage]) -> "SpanContext | None":
        """Return the span in which messages failed, and forget it."""
        found = [self._failed.pop(_place(message), None) for message in messages]
        return found[0] if found else None

    def settling(self, policy: FailurePolicy) -> FailurePolicy:
        """Return ``policy`` with a span around what it tells a broker."""
        return policy if isinstance(policy, DropFailed | KeepHere) else _Settling(self, policy)


class _Settling:
    """A failure policy whose work has a span."""

    def __init__(self, telemetry: ProcessTelemetry, policy: FailurePolicy) -> None:
        self._telemetry = telemetry
        self._policy = policy

    @property
    def retry_topic(self) -> str:
        return self._policy.retry_topic

    async def failed(
        self, messages: Sequence[ReceivedMessage], reason: str, delay_level: int
    ) -> Sequence[ReceivedMessage]:
        from opentelemetry.trace import INVALID_SPAN_CONTEXT

        telemetry, spans = self._telemetry, self._telemetry.spans
        kind = TO_DEAD_LETTERS if delay_level == DEAD_LETTER else NACK
        parent = telemetry.failed_in(messages) or INVALID_SPAN_CONTEXT
        operation = spans.settle(kind, telemetry.group, messages, parent=parent)
        try:
            rest = await self._policy.failed(messages, reason, delay_level)
        except BaseException as error:
            spans.end(operation, error)
            raise
        spans.end(operation, failure=OTHER_ERROR if rest else "")
        return rest


async def _finished(processing: Processing, work: Awaitable[Any]) -> Any:
    """Await a handler's coroutine inside its span."""
    processing.enter()
    try:
        returned = await work
    except BaseException as error:
        processing.failed(error)
        raise
    finally:
        processing.leave()
    processing.returned(returned)
    return returned


def _named(call: Callable[[Any], Any], handler: Any) -> Callable[[Any], Any]:
    """Give ``call`` the name of the handler in logs, also that of a partial or of an object that can be called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    functools.update_wrapper(call, handler, updated=())
    if not getattr(handler, "__qualname__", ""):
        call.__qualname__ = type(handler).__qualname__
    return call


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a plain thread
        return None

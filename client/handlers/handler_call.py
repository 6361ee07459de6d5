"""One handler of the user: calls it and interprets its answer.

Lives here: ``HandlerCall``: ``async def`` or plain (in a thread), one message or a batch; turns answers, exceptions and
unknown values into an ``Outcome``.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.handlers.consume_result import Outcome, is_answer, outcome_of
from pocketmq.common.events import EventLog
from pocketmq.common.message import ReceivedMessage

Handler = Callable[[ReceivedMessage], Any]
"""``async def`` or a plain function. ``consume_result.outcome_of`` lists the possible answers."""
BatchHandler = Callable[[list[ReceivedMessage]], Any]
"""The same for several messages of one queue."""
AnyHandler = TypeVar("AnyHandler", bound=Callable[[Any], Any] | Callable[[Any, Any], Any])
"""A decorated function, whose own type a decorator returns."""

REASON_LENGTH_MAX = 500


class HandlerCall:
    """A handler and its properties.

    ``batch_max`` 0: called with one message, else with a list of at most so many, all of one queue. ``is_async``: the
    call itself returns a coroutine; other handlers run in ``threads()``, and an awaitable result is awaited.
    """

    __slots__ = ("_log", "_unknown_logged", "batch_max", "handler", "is_async", "name", "threads")

    def __init__(
        self,
        handler: Callable[[Any], Any],
        *,
        batch_max: int = 0,
        log: EventLog,
        threads: Callable[[], Executor],
    ) -> None:
        if not callable(handler):
            raise SubscriptionIllegal("handler refused", why=f"{handler!r} cannot be called")
        self.handler = handler
        self.batch_max = batch_max
        self.is_async = is_async_handler(handler)
        self.name = handler_name(handler)
        self._log = log
        self.threads = threads
        self._unknown_logged = False

    async def invoke(self, messages: list[ReceivedMessage]) -> Any:
        """Call the handler, whatever its kind; return what it returns, raise what it raises."""
        argument: Any = messages if self.batch_max else messages[0]
        if self.is_async:
            return await self.handler(argument)
        returned = await asyncio.get_running_loop().run_in_executor(self.threads(), call_plain, self.handler, argument)
        if inspect.isawaitable(returned):  # a lambda around a coroutine function
            returned = await returned
        return returned

    async def run(self, messages: list[ReceivedMessage]) -> Outcome:
        """Call the handler; return the outcome. Raises only the cancellation of the caller's own task."""
        own = asyncio.current_task()
        try:
            returned = await self.invoke(messages)
        except BaseException as error:
            if ends_the_caller(error, own):
                raise
            return self.failed(messages, error)
        return self.returned(messages, returned)

    def failed(self, messages: Sequence[ReceivedMessage], error: BaseException) -> Outcome:
        """Return the outcome of an exception: all messages later."""
        return Outcome(messages, reason=shown(error), error=error)

    def returned(self, messages: Sequence[ReceivedMessage], returned: Any) -> Outcome:
        """Return the outcome of an answer; warn about the first unknown value of this handler."""
        if not self._unknown_logged and not is_answer(returned):
            self._unknown_logged = True
            self._log.warning(
                "handler_answer_unknown",
                handler=self.name,
                returned=shown(returned),
                meaning="done, because it did not raise",
                hint="return None, True, ConsumeResult.SUCCESS, ConsumeResult.LATER or Later(...)",
            )
        return outcome_of(returned, messages)


def call_plain(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain handler in a thread. A ``StopIteration`` (``next`` of an empty iterator) cannot pass through a
    future, which would never end: it becomes a ``RuntimeError``, as in a coroutine."""
    try:
        return handler(*arguments)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


def ends_the_caller(error: BaseException, own: "asyncio.Task[Any] | None") -> bool:
    """Return whether an exception of a handler's call ends the calling task, or the process.

    Anything else is a failure of the handler: also the cancellation of a task it awaited, and library exceptions that
    do not derive from ``Exception``.
    """
    if isinstance(error, asyncio.CancelledError):
        return own is not None and own.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


def shown(value: object) -> str:
    """Return the ``repr`` of a handler's result or exception; ``repr`` may itself fail."""
    try:
        return repr(value)[:REASON_LENGTH_MAX]
    except Exception as error:
        return f"<{type(value).__qualname__}; its repr raises {type(error).__qualname__}>"


def handler_name(handler: object) -> str:
    """Return a handler's name in events: module and name, through partials and wrappers."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    name = getattr(handler, "__qualname__", "") or type(handler).__qualname__
    module = getattr(handler, "__module__", "") or type(handler).__module__
    return f"{module}.{name}"


def is_async_handler(handler: object) -> bool:
    """Return whether a call of it returns a coroutine, as far as its definition says."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(type(handler), "__call__", None))  # noqa: B004

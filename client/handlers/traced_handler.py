"""A handler whose calls are recorded by the message trace.

Lives here: ``traced``.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from pocketmq.client.handlers.consume_result import outcome_of
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.trace.trace import TraceHook


def traced(call: HandlerCall, hook: TraceHook) -> Callable[[Any], Awaitable[Any]]:
    """Return an ``async def`` handler that runs ``call`` with ``hook`` before and after it.

    A call succeeded if none of its messages needs another try.
    """

    @functools.wraps(call.handler, updated=())
    async def run(argument: Any) -> Any:
        messages = argument if call.batch_max else [argument]
        traced_before = hook.before(messages)
        is_done = False
        try:
            returned = await call.invoke(messages)
            is_done = not outcome_of(returned, messages).later
            return returned
        finally:
            hook.after(traced_before, is_done)

    return run

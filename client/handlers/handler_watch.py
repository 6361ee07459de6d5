"""The running handler calls, their messages and start times.

Lives here: ``HandlerWatch``, the table of running calls.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.common.clock import Clock
from pocketmq.common.message import ReceivedMessage


class RunningCall:
    """One call at a time of one worker, which keeps this object for all its calls. Idle while ``process_queue`` is
    None.

    ``message``: the message of the call; ``batch``: the list, for a batch handler. ``since_ns``: monotonic.
    ``may_time_out``: a call that outlasts the consume timeout gives its messages back (never in ordered consumption).
    """

    __slots__ = (
        "batch",
        "handler_name",
        "may_time_out",
        "message",
        "process_queue",
        "since_ns",
        "slow_logged",
        "task",
        "timed_out",
    )

    def __init__(self, handler_name: str, may_time_out: bool) -> None:
        self.handler_name = handler_name
        self.may_time_out = may_time_out
        self.process_queue: ProcessQueue | None = None
        self.message: ReceivedMessage | None = None
        self.batch: Sequence[ReceivedMessage] | None = None
        self.since_ns = 0
        self.task: asyncio.Task[Any] | None = None
        self.slow_logged: ReceivedMessage | None = None
        self.timed_out: ReceivedMessage | None = None

    @property
    def messages(self) -> Sequence[ReceivedMessage]:
        """The messages of the call."""
        if self.batch is not None:
            return self.batch
        return () if self.message is None else (self.message,)

    def idle(self) -> None:
        """Mark as idle: no call runs."""
        self.process_queue = None
        self.message = None
        self.batch = None


class HandlerWatch:
    """The running calls of all modes of a consumer; bounded by their concurrency."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[RunningCall, None] = {}

    def new_call(self, handler_name: str, *, may_time_out: bool = True) -> RunningCall:
        """Return the record of a new worker's calls; pass it to ``remove`` when the worker ends."""
        call = RunningCall(handler_name, may_time_out)
        self._calls[call] = None
        return call

    def remove(self, call: RunningCall) -> None:
        """Forget a worker."""
        self._calls.pop(call, None)

    def began(self, handler_name: str, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> RunningCall:
        """Register one running call that cannot time out; pass the result to ``remove`` when it has ended."""
        call = self.new_call(handler_name, may_time_out=False)
        call.process_queue = process_queue
        call.message = messages[0]
        call.batch = messages
        call.since_ns = self._clock.monotonic_ns()
        call.task = asyncio.current_task()
        return call

    def running(self) -> list[RunningCall]:
        """Return the workers that are running a call."""
        return [call for call in self._calls if call.process_queue is not None]

    def call_of(self, task: "asyncio.Task[Any] | None") -> RunningCall | None:
        """Return the record of a task's calls. Callable from any thread."""
        return next((call for call in list(self._calls) if call.task is task), None)

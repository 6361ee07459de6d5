"""A thread of its own for pulls that filter by properties.

A SQL92 filter is evaluated in Python for each message, so such a pull may take its whole budget. In the pull threads a
few of them would keep everybody's pulls waiting. Here they wait only for each other, and each connection has its turn.

Lives here: ``FilterLane``, which takes pulls from the pull threads.
"""

from dataclasses import dataclass, field

from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import OVERLOAD, Task, encode_refusal
from pocketmq.common.runner import LoopMailbox


@dataclass(slots=True, eq=False)
class FilterLane:
    """Hands pulls over to the pair that filters. ``take`` may be called from any thread."""

    mailbox: LoopMailbox
    refusals: RefusalStats
    _executor: DrainExecutor | None = field(init=False, default=None)

    def use_executor(self, executor: DrainExecutor) -> None:
        """Set the executor that serves the pulls."""
        self._executor = executor

    def take(self, task: Task) -> None:
        """Own a pull that its drain has released, and let it be served or refused."""
        self.mailbox.post(self._offer, task)

    def _offer(self, old: Task) -> None:
        connection = old.connection
        if connection.closed:
            return
        assert self._executor is not None
        task = Task(connection, old.request, old.created_ns, old.size_bytes, old.context)
        if not self._executor.offer(task):
            self.refusals.note(OVERLOAD.cause.value, OVERLOAD.code, OVERLOAD.remark)
            connection.respond(encode_refusal(task.request, OVERLOAD))

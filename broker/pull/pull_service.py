"""Long polling: keeps pulls until there is news or their time is over, and runs them again.

Lives here: ``PullService``, the shell around ``PullHolds``: news from the dispatch thread, the timer, the re-run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.pull.long_polling import Hold, PullHolds
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import OVERLOAD, SHUTTING_DOWN, Buffers, Task, encode_refusal
from pocketmq.common.clock import Clock
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.server import Connection

TICK_S: Final = 0.1
HOLD_BYTES: Final = 1024
"""What a held pull takes besides its request: objects and table entries, roughly."""

Queues = list[tuple[str, int, int]]
"""(topic, queue id, offset)"""


@dataclass(slots=True)
class Resumed:
    """The context of a pull that was held.

    ``offsets``: where each queue goes on. ``is_due``: its time is over, it must be answered now. Else it was woken by
    news; it is answered too, except when its filter let nothing of the news pass: then it waits on until
    ``deadline_ns``.
    """

    offsets: list[int]
    deadline_ns: int
    is_due: bool = False


class PullService:
    """Owns the held pulls. Methods without a note belong to the loop's thread."""

    def __init__(
        self,
        holds: PullHolds,
        max_offset: Callable[[str, int], int],
        mailbox: LoopMailbox,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        refusals: RefusalStats | None = None,
    ) -> None:
        """``refusals``: where a full queue is written down."""
        self._refusals = refusals
        self._holds = holds
        self._max_offset = max_offset
        self._mailbox = mailbox
        self._loop = loop
        self._clock = clock
        self._executor: DrainExecutor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deferred: dict[Hold, None] = {}
        self._closed = False

    def use_executor(self, executor: DrainExecutor) -> None:
        """Set where held pulls run again."""
        self._executor = executor

    @property
    def count(self) -> int:
        """Pulls that wait now."""
        return self._holds.count + len(self._deferred)

    def hold(self, task: Task, queues: Queues, deadline_ns: int, nothing: Buffers) -> None:
        """Keep ``task`` until one of ``queues`` has news. Any thread. ``nothing`` is its answer if it cannot be
        kept."""
        self._mailbox.post(self._hold, task, queues, deadline_ns, nothing)

    def news(self, queues: Queues) -> None:
        """Learn that queues now end at (topic, queue id, max offset). Any thread, once per dispatch pass."""
        if self._holds.count:  # read without a lock: a hold that is being made looks at the queue's end itself
            self._mailbox.post(self._wake, queues)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the pulls of a connection."""
        self._holds.drop_owner(connection)
        for hold in [hold for hold in self._deferred if hold.owner is connection]:
            del self._deferred[hold]

    def close(self) -> None:
        """Answer every held pull and keep none any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rest = [*self._holds.clear(), *self._deferred]
        self._deferred.clear()
        for hold in rest:
            task, nothing = hold.context
            _respond(task, nothing)

    def _hold(self, task: Task, queues: Queues, deadline_ns: int, nothing: Buffers) -> None:
        connection = task.connection
        if connection.closed:
            return
        if self._closed:
            _respond(task, encode_refusal(task.request, SHUTTING_DOWN))
            return
        hold = Hold(connection, queues, deadline_ns, task.size_bytes + HOLD_BYTES, (task, nothing))
        if not self._holds.hold(hold):
            _respond(task, nothing)
            return
        # Held first, then looked: news of a message that came between the pull and here is either posted or seen now.
        if any(self._max_offset(topic, queue_id) > offset for topic, queue_id, offset in queues):
            self._holds.remove(hold)
            self._run_again(hold, is_due=False)
            return
        self._arm()

    def _wake(self, queues: Queues) -> None:
        for topic, queue_id, max_offset in queues:
            for hold in self._holds.wake(topic, queue_id, max_offset):
                self._run_again(hold, is_due=False)

    def _arm(self) -> None:
        if self._timer is None and not self._closed and (self._holds.count or self._deferred):
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        try:
            for hold in self._holds.expire(now_ns):
                self._run_again(hold, is_due=True)
            deferred, self._deferred = self._deferred, {}
            for hold in deferred:
                self._run_again(hold, is_due=now_ns >= hold.deadline_ns)
        finally:
            self._arm()

    def _run_again(self, hold: Hold, *, is_due: bool) -> None:
        old, _ = hold.context
        connection = old.connection
        if connection.closed:
            return
        if connection.over_high_water:  # it does not read what it has: serving it would only grow the buffers
            self._deferred[hold] = None
            self._arm()
            return
        assert self._executor is not None
        offsets = [offset for _, _, offset in hold.queues]
        context = Resumed(offsets, hold.deadline_ns, is_due)
        task = Task(connection, old.request, self._clock.monotonic_ns(), old.size_bytes, context)
        if not self._executor.offer(task):
            if self._refusals is not None:
                self._refusals.note(OVERLOAD.cause.value, OVERLOAD.code, OVERLOAD.remark)
            _respond(task, encode_refusal(task.request, OVERLOAD))


def _respond(task: Task, buffers: Buffers) -> None:
    if not task.connection.closed and not task.request.oneway:
        task.connection.respond(buffers)

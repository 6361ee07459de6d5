"""Long polling: holds pulls until messages arrive or their time is over, and runs them again.

Lives here: ``PullService``, the shell around ``PullHolds``: news from the dispatch thread, the timer, the re-run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from pocketmq.auth.guard import AuthGuard
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.pull.long_polling import Hold, PullHolds
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import OVERLOAD, SHUTTING_DOWN, Buffers, Task, encode_refusal, refusal_of
from pocketmq.common.clock import Clock
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.server import Connection

TICK_S: Final = 0.1
RECHECKED_AT_ONCE: Final = 500
"""Held pulls whose users are looked at in one turn of the loop: a few ms."""
HOLD_BYTES: Final = 1024
"""Approximate memory of a held pull without its request: objects and table entries."""

FRESH_BYTES_MAX: Final = 64 << 10
"""A larger record is read by the pull thread: the append copies this one for the loop."""

Queues = list[tuple[str, int, int]]
"""(topic, queue id, offset)"""
Nothing = Buffers | Callable[[], Buffers]
"""The answer of a pull that cannot be held, or what makes it."""


class Quick(Protocol):
    """Answers held pulls on the loop, see ``QuickPull``."""

    def answer(self, task: Task, offset: int, tags_code: int, record: bytes) -> Buffers | None:
        """Return the answer with the record just stored at ``offset``; None: the pull must run again."""
        ...


@dataclass(slots=True)
class Resumed:
    """The context of a pull that was held.

    ``offsets``: where each queue continues. ``is_due``: its time is over, it must be answered now. Else new messages
    woke it; it is answered too, unless its filter rejects them all: then it waits until ``deadline_ns``.
    """

    offsets: list[int]
    deadline_ns: int
    is_due: bool = False


@dataclass(slots=True, eq=False)
class PullService:
    """Owns the held pulls. Methods belong to the loop's thread unless they say otherwise."""

    holds: PullHolds
    max_offset: Callable[[str, int], int]
    mailbox: LoopMailbox
    loop: asyncio.AbstractEventLoop
    clock: Clock
    refusals: RefusalStats | None = None
    """Counts refusals by a full queue."""
    guard: AuthGuard | None = None
    """Knows who may pull; None where nothing is checked."""
    on_held: Callable[[], None] | None = field(init=False, default=None)
    """Called when a pull has begun to wait. Loop thread."""
    quick: Quick | None = field(init=False, default=None)
    """Answers a held pull with a record just stored. None: each runs again."""
    _executor: DrainExecutor | None = field(init=False, default=None)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _deferred: dict[Hold, None] = field(init=False, default_factory=dict)
    _closed: bool = field(init=False, default=False)

    def use_executor(self, executor: DrainExecutor) -> None:
        """Set the executor that runs held pulls again."""
        self._executor = executor

    @property
    def count(self) -> int:
        """Number of waiting pulls."""
        return self.holds.count + len(self._deferred)

    def hold(self, task: Task, queues: Queues, deadline_ns: int, nothing: Nothing) -> None:
        """Hold ``task`` until one of ``queues`` has new messages. Any thread. ``nothing`` is its answer if it cannot be
        held."""
        self.mailbox.post(self.hold_here, task, queues, deadline_ns, nothing)

    def news(self, queues: Queues, tags_code: int = 0, record: Buffer | None = None) -> None:
        """Wake the pulls of queues that now end at (topic, queue id, max offset). Any thread, once per dispatch pass.

        ``record``: the only new message, where the caller has it at hand, and its tags code.
        """
        if self.holds.count:  # read without a lock: a new hold checks the queue's end itself
            if record is None or len(record) > FRESH_BYTES_MAX:
                self.mailbox.post(self._wake, queues)
            else:  # a copy: the caller may use its memory again before the loop's turn
                self.mailbox.post(self._wake, queues, tags_code, bytes(record))

    def connection_closed(self, connection: Connection) -> None:
        """Forget the pulls of a connection."""
        self.holds.drop_owner(connection)
        for hold in [hold for hold in self._deferred if hold.owner is connection]:
            del self._deferred[hold]

    def close(self) -> None:
        """Answer every held pull, and hold no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rest = [*self.holds.clear(), *self._deferred]
        self._deferred.clear()
        for hold in rest:
            task, nothing = hold.context
            _respond(task, nothing)

    def delay(self, task: Task, until_ns: int, nothing: Nothing) -> None:
        """Run ``task``, whose context is ``Resumed``, again at ``until_ns``; until then no message wakes it. Any
        thread. ``nothing`` is its answer if it cannot be kept so long."""
        self.mailbox.post(self.hold_here, task, [], until_ns, nothing)

    def hold_here(self, task: Task, queues: Queues, deadline_ns: int, nothing: Nothing) -> None:
        """Do what ``hold`` does, in the loop's thread."""
        connection = task.connection
        if connection.closed:
            return
        if self._closed:
            _respond(task, encode_refusal(task.request, SHUTTING_DOWN))
            return
        session = task.request.session
        if session is not None and self.guard is not None and session.generation != self.guard.table.generation:
            error = self.guard.refusal_again(connection, task.request)  # users changed since it was let in
            if error is not None:
                _respond(task, encode_refusal(task.request, refusal_of(error)))
                return
        hold = Hold(connection, queues, deadline_ns, task.size_bytes + HOLD_BYTES, (task, nothing))
        if not self.holds.hold(hold):
            _respond(task, nothing)
            return
        # Hold first, then check: the news of a message that arrived since the pull is either posted or seen now.
        if any(self.max_offset(topic, queue_id) > offset for topic, queue_id, offset in queues):
            self.holds.remove(hold)
            self._run_again(hold, is_due=False)
            return
        if self.on_held is not None:
            self.on_held()
        self._arm()

    def recheck(self) -> None:
        """Refuse the held pulls of those who may not pull any more: users or policies have changed. Loop thread."""
        if self.guard is not None:
            self._recheck([*self.holds.all(), *self._deferred])

    def _recheck(self, rest: list[Hold]) -> None:
        """Look at some of them, and at the rest with the loop's next turn."""
        assert self.guard is not None
        for hold in rest[:RECHECKED_AT_ONCE]:
            task, _ = hold.context
            if hold.held or hold in self._deferred:
                error = self.guard.refusal_again(task.connection, task.request)
                if error is not None:
                    if hold.held:
                        self.holds.remove(hold)
                    self._deferred.pop(hold, None)
                    _respond(task, encode_refusal(task.request, refusal_of(error)))
        if len(rest) > RECHECKED_AT_ONCE:
            self.loop.call_soon(self._recheck, rest[RECHECKED_AT_ONCE:])

    def _wake(self, queues: Queues, tags_code: int = 0, record: bytes = b"") -> None:
        for topic, queue_id, max_offset in queues:
            for hold in self.holds.wake(topic, queue_id, max_offset):
                if not record or not self._answer(hold, tags_code, record):
                    self._run_again(hold, is_due=False)

    def _answer(self, hold: Hold, tags_code: int, record: bytes) -> bool:
        """Answer a pull with the record just stored; False: it must run again."""
        task, _ = hold.context
        connection = task.connection
        if self.quick is None or connection.closed or connection.over_high_water:
            return False
        buffers = self.quick.answer(task, hold.queues[0][2], tags_code, record)
        if buffers is None:
            return False
        connection.respond_all((buffers,))
        return True

    def _arm(self) -> None:
        if self._timer is None and not self._closed and (self.holds.count or self._deferred):
            self._timer = self.loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ns = self.clock.monotonic_ns()
        try:
            for hold in self.holds.expire(now_ns):
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
        if connection.over_high_water:  # it does not read its answers: serving it would only grow the buffers
            self._deferred[hold] = None
            self._arm()
            return
        assert self._executor is not None
        if hold.queues:
            context = Resumed([offset for _, _, offset in hold.queues], hold.deadline_ns, is_due)
        else:  # delayed
            context = old.context
            context.is_due = self.clock.monotonic_ns() >= context.deadline_ns
        task = Task(connection, old.request, self.clock.monotonic_ns(), old.size_bytes, context)
        if not self._executor.offer(task):
            if self.refusals is not None:
                self.refusals.note(OVERLOAD.cause.value, OVERLOAD.code, OVERLOAD.remark)
            _respond(task, encode_refusal(task.request, OVERLOAD))


def _respond(task: Task, answer: Nothing) -> None:
    if not task.connection.closed and not task.request.oneway:
        task.connection.respond(answer() if callable(answer) else answer)

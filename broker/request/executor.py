"""Executors: worker threads that drain a bounded queue into a processor.

Lives here: ``DrainExecutor``, the size of a drain (``AdaptiveDrain``), the ``Processor`` protocol and ``OneByOne``, the
base of processors that serve one request at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final, Protocol

from pocketmq.broker.request.request_task import (
    SHUTTING_DOWN,
    AnswerPort,
    Drain,
    Refusal,
    Task,
    encode_refusal,
    refusal_of,
)
from pocketmq.broker.request.sweepable_queue import SweepableQueue
from pocketmq.broker.stats.stage_times import STAGE_COUNT, PairStages, Stage
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker

FOLLOW_UP_AFTER_MS: Final = 0.1
FOLLOW_UP_WAIT_NS_MAX: Final = 1_000_000
SETTLE_AFTER_MS: Final = 50.0
"""How long a short server's rest may wait: statistics and the key index (whose readers ask for it) are as old."""
SLOW_DRAIN_NS: Final = 20_000_000
"""A drain above this is slow, for a pair without a maximum wait: its second worker should get a share."""
_LOCK_WAIT: Final = int(Stage.LOCK_WAIT)
_APPEND: Final = int(Stage.APPEND)
_PROCESS: Final = int(Stage.PROCESS)


class Processor(Protocol):
    """Serves the requests of one pair."""

    def reject_request(self) -> Refusal | None:
        """Return the refusal a request would get now, or None; called on the loop before queueing: must not block."""
        ...

    def process(self, drain: Drain) -> None:
        """Serve every task of ``drain`` and settle it. Worker thread; may block on the store."""
        ...


class ShortServer(Protocol):
    """Serves tasks that were checked before they were queued, with fewer steps than a processor."""

    unsettled: bool
    """Whether ``settle`` has something to do."""

    def serve(self, tasks: list[Task]) -> list[Task]:
        """Serve and settle the tasks at the head that are its own; return the others, in order, for the processor."""
        ...

    def settle(self) -> None:
        """Do what ``serve`` has left for later."""
        ...


class AdaptiveDrain:
    """How many tasks a worker takes at once. Pure: its input is durations.

    Large drains make the log fast; small ones leave waiting tasks in the queue, where fast failure can still answer
    them. After a drain longer than ``slow_ns`` the limit falls by a factor of 4, to no less than 1; below half of that
    it doubles up to the maximum; in between it stays. For sends ``slow_ns`` is the maximum wait in the queue: while a
    drain takes less, every request is served or answered in time, and the larger drain serves more (ADR 0007).
    ``count_max`` = 1 is RocketMQ's pace.
    """

    __slots__ = ("count", "count_max", "size_bytes_max", "slow_ns")

    def __init__(self, count_max: int, size_bytes_max: int, slow_ns: int = SLOW_DRAIN_NS) -> None:
        assert count_max >= 1
        assert slow_ns > 0
        self.count_max = count_max
        self.size_bytes_max = size_bytes_max
        self.slow_ns = slow_ns
        self.count = count_max

    def record(self, took_ns: int, count: int) -> None:
        """Adapt the limit after a drain of ``count`` tasks that took ``took_ns``."""
        if took_ns > self.slow_ns:
            self.count = max(1, min(self.count, count) // 4)
        elif self.count < self.count_max and took_ns <= self.slow_ns // 2:
            self.count = min(self.count_max, self.count * 2)


class OneByOne(ABC):
    """Base of processors that serve each request separately: an error fails only its own request."""

    def reject_request(self) -> Refusal | None:
        """Refuse nothing."""
        return None

    def process(self, drain: Drain) -> None:
        """Serve the tasks in order."""
        for task in drain.tasks:
            try:
                self.serve(task, drain)
            except Exception as error:
                if task.settled:
                    raise
                drain.refuse(task, refusal_of(error))

    @abstractmethod
    def serve(self, task: Task, drain: Drain) -> None:
        """Serve and settle one task."""


@dataclass(eq=False)
class DrainExecutor:
    """A named queue, one or two worker threads, and a processor.

    ``offer`` belongs to the loop. Workers start with ``start``, or else with the first task. An error in the processor
    answers each unsettled task and is logged once; it never ends a worker.
    """

    name: str
    processor: Processor
    _: KW_ONLY
    count_max: InitVar[int]
    size_bytes_max: InitVar[int]
    threads: int
    drain: InitVar[AdaptiveDrain]
    max_wait_ms: int
    """Maximum wait in the queue before fast failure answers; 0 = no limit."""
    runner: Runner
    answers: AnswerPort
    clock: Clock
    log: EventLog
    follow_up: Callable[[], None] | None = None
    """Work that drains leave behind; only with one thread. Called 0.1 ms after the last drain, or after a drain once
    1 ms has passed since the first one that left work. The answers are posted before it, and the loop needs the
    interpreter to write them: work that starts at once would take it from the loop (measured: answers 40 µs later)."""
    on_refused: Callable[[Task, Refusal], None] | None = None
    """Called, in a worker, with each request that ``processor`` refuses."""
    short: ShortServer | None = field(init=False, default=None)
    """Gets each drain before the processor; set before the first offer."""
    queue_type: InitVar[type[SweepableQueue[Task]]] = SweepableQueue
    """The order of the queue."""
    here: Callable[[Task], bool] | None = field(init=False, default=None)
    """Serves a task in the loop's thread without queueing it, or returns False; set before the first offer."""
    _follow_up_since_ns: int = field(init=False, default=0)
    adaptive: AdaptiveDrain = field(init=False)
    queue: SweepableQueue[Task] = field(init=False)
    stages: PairStages | None = field(init=False, default=None)
    """Histograms of the stage times; set before the first offer. None: not counted."""
    drains: int = field(init=False, default=0)
    served: int = field(init=False, default=0)
    refused: int = field(init=False, default=0)
    """Tasks refused because the queue was full; counted on the loop."""
    _workers: list[Worker] = field(init=False, default_factory=list)
    busy: list[bool] = field(init=False)

    def __post_init__(
        self, count_max: int, size_bytes_max: int, drain: AdaptiveDrain, queue_type: type[SweepableQueue[Task]]
    ) -> None:
        assert 1 <= self.threads <= 2
        assert self.follow_up is None or self.threads == 1
        self.adaptive = drain
        self.queue = queue_type(count_max, size_bytes_max, self._wake)
        self.busy = [False] * self.threads

    def offer(self, task: Task) -> bool:
        """Queue ``task``, or serve it ``here``; False when the queue is full. Loop thread."""
        if self.here is not None and self.here(task):
            return True
        if not self._workers:
            self.start()
        if self.queue.offer(task):
            return True
        self.refused += 1
        return False

    def start(self) -> None:
        """Start the workers, before ``offer``; raise ``ThreadNotStarted``."""
        for index in range(len(self._workers), self.threads):
            name = f"{self.name}-{index}" if self.threads > 1 else self.name
            self._workers.append(self.runner.start(name, self._step_of(index), first_after_ms=None))
        if self.threads == 1:
            self.queue.wake = self._workers[0].wake  # a call less for each task

    def _wake(self) -> None:
        """Wake the first idle worker, or all when all are busy.

        A worker is marked idle only after it found the queue empty, and then checks once more; waking an awake worker
        makes it run again. So no task is left behind.
        """
        for index, worker in enumerate(self._workers):
            if not self.busy[index]:
                worker.wake()
                return
        for worker in self._workers:
            worker.wake()

    def _step_of(self, index: int) -> Callable[[], float | None]:
        busy, waiting = self.busy, self.queue.tasks

        def step() -> float | None:
            busy[index] = True
            try:
                if not waiting:
                    self._run_what_is_due()
                while waiting and self._drain_once():
                    pass
            finally:
                busy[index] = False
            if not waiting:
                if self._follow_up_since_ns:
                    return FOLLOW_UP_AFTER_MS
                if self.short is not None and self.short.unsettled:
                    return SETTLE_AFTER_MS
            return 0 if waiting else None  # a task offered after the last check found this worker marked busy

        return step

    def _drain_once(self) -> bool:
        """Take waiting tasks, serve them, post the answers; return False when the queue was empty."""
        adaptive = self.adaptive
        tasks = self.queue.drain(adaptive.count, adaptive.size_bytes_max)
        if not tasks:
            return False
        if self.short is not None:
            try:
                tasks = self.short.serve(tasks)
            except Exception as error:
                self._answer_short_error(tasks, error)
                return True
            if not tasks:
                self.drains += 1
                return True
        started_ns = self.clock.monotonic_ns()
        drain = Drain(tasks, self.on_refused)
        try:
            self.processor.process(drain)
        except Exception as error:
            self._answer_error(drain, error)
        else:
            if not all(task.settled for task in tasks):
                self._answer_error(drain, AssertionError(f"{self.name} left a request without an answer"))
        took_ns = self.clock.monotonic_ns() - started_ns
        adaptive.record(took_ns, len(tasks))
        self.drains += 1
        self.served += len(tasks)
        stages = self.stages
        if stages is None:
            self.answers.post(drain.answers)
        else:
            stages_ns = drain.stages_ns
            stages_ns[_PROCESS] = took_ns - stages_ns[_LOCK_WAIT] - stages_ns[_APPEND]
            if drain.answers:
                own = drain.answered()
                self.answers.post(drain.answers, (self.name, own, own[0].created_ns, stages_ns, started_ns))
            stages.drained(tasks, started_ns, stages_ns, took_ns)
        if self.follow_up is not None:
            if not self._follow_up_since_ns:
                self._follow_up_since_ns = started_ns
            elif started_ns + took_ns - self._follow_up_since_ns > FOLLOW_UP_WAIT_NS_MAX:
                self._run_follow_up()
        return True

    def _answer_short_error(self, tasks: list[Task], error: Exception) -> None:
        drain = Drain([task for task in tasks if not task.settled], self.on_refused)
        self._answer_error(drain, error)
        self.answers.post(drain.answers)

    def _run_what_is_due(self) -> None:
        """Run the work that drains have left. Errors are logged."""
        if self._follow_up_since_ns:
            self._run_follow_up()
        if self.short is not None and self.short.unsettled:
            try:
                self.short.settle()
            except Exception as error:
                self.log.error("settle_failed", pair=self.name, error=refusal_of(error).remark)

    def _run_follow_up(self) -> None:
        assert self.follow_up is not None
        self._follow_up_since_ns = 0
        try:
            self.follow_up()
        except Exception as error:
            self.log.error("follow_up_failed", pair=self.name, error=refusal_of(error).remark)

    def _answer_error(self, drain: Drain, error: Exception) -> None:
        refusal = refusal_of(error)
        unsettled = [task for task in drain.tasks if not task.settled]
        for task in unsettled:
            drain.refuse(task, refusal)
        self.log.error("processor_failed", pair=self.name, requests=len(unsettled), error=refusal.remark)

    def settle_soon(self) -> None:
        """Let a worker do what the short server has left for later. Loop thread."""
        if self.short is not None:
            self.short.unsettled = True
            self._wake()

    def count_served(self, requests: int) -> None:
        """Count requests that were served outside of a drain. Any thread: nothing here switches threads between the
        reading and the writing of the sum but a signal's handler."""
        self.served += requests

    def count_here(self, took_ns: int) -> None:
        """Count a request that was served ``here`` in ``took_ns``. Loop thread."""
        self.served += 1
        if self.stages is not None:
            stages_ns = [0] * STAGE_COUNT
            stages_ns[_PROCESS] = took_ns
            self.stages.add_quick(1, 0, stages_ns)

    def refuse(self, tasks: list[Task], refusal_for: Callable[[Task], Refusal]) -> None:
        """Answer tasks that were removed from the queue. Loop or stopping thread."""
        if self.stages is not None:
            self.stages.swept(tasks, self.clock.monotonic_ns())
        self.answers.post(
            [
                (task.connection, encode_refusal(task.request, refusal_for(task)))
                for task in tasks
                if not task.request.oneway
            ]
        )

    def finish(self, deadline_ns: int, serve_until_ns: int | None = None) -> bool:
        """Stop the workers, serve waiting tasks until ``serve_until_ns``, answer the rest with SHUTTING_DOWN.

        Workers have until ``deadline_ns``; without ``serve_until_ns`` so have the tasks. Blocks: call it off the loop,
        once no more tasks are offered. Returns False when a worker hangs in the processor; that worker answers its own
        tasks if the processor ever returns.
        """
        serve_until_ns = deadline_ns if serve_until_ns is None else min(serve_until_ns, deadline_ns)
        ended = self._end_workers(serve_until_ns)
        while ended and self.clock.monotonic_ns() < serve_until_ns and self._drain_once():
            pass
        self.refuse(self.queue.close(), lambda task: SHUTTING_DOWN)
        ended = ended or self._end_workers(deadline_ns)  # what they serve now is their last drain
        if ended:
            self._run_what_is_due()
        if not ended:
            self.log.error("worker_hangs", pair=self.name)
        return ended

    def _end_workers(self, deadline_ns: int) -> bool:
        ended = True
        for worker in self._workers:
            ended = worker.stop(max(0.0, (deadline_ns - self.clock.monotonic_ns()) / 1e9)) and ended
        return ended

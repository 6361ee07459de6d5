"""One handler: its queues, and the workers that take turns with them.

Lives here: ``Workers`` (also under ``OrderedMode``), ``WorkerPool`` (one handler, its workers) and ``PoolQueue`` (the
messages of one queue that wait for it).

A worker takes one message, or one batch, at a time, so that a slow call blocks one worker only. Queues take turns. A
queue whose calls hang cannot take all workers while the handler has other queues: it may hold at most four workers for
each free one.
"""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from pocketmq.client.handlers.consume_result import Outcome
from pocketmq.client.handlers.consumer_statistics import TopicCounts
from pocketmq.client.handlers.handler_call import HandlerCall, ends_the_caller
from pocketmq.client.handlers.handler_failures import FailedMessages
from pocketmq.client.handlers.handler_watch import HandlerWatch, RunningCall
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.common.clock import Clock
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.runner import LoopMailbox, Supervisor

TURN_CALLS: Final = 32
"""Calls after which a worker goes on to the next queue, and lets the event loop turn."""
WORKERS_PER_FREE_WORKER: Final = 4
CANCEL_WAIT_S: Final = 1.0
"""For a handler that does not end when it is canceled."""
RESTART_S: Final = 1.0
"""Before a new worker takes the place of one that failed."""


class Workers(ABC):
    """Tasks that take turns with queues: they sleep when idle, and failed ones are replaced."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._idle: deque[asyncio.Future[None]] = deque()
        self._workers: dict[asyncio.Task[None], Any] = {}
        """Each worker with the queue it is busy with, or None."""
        self._stopping = False

    @abstractmethod
    def _wanted(self) -> int:
        """Return the number of workers there should be."""

    @abstractmethod
    def add_worker(self) -> None:
        """Start one more worker."""

    def _start_worker(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._workers[task] = None
        self._supervisor.tasks.add(task)
        task.add_done_callback(self._worker_ended)
        return task

    def _worker_ended(self, task: "asyncio.Task[None]") -> None:
        """Replace a worker that failed; its messages return with the next start."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._supervisor.crashed(task.get_name(), error, restart_after_ms=round(RESTART_S * 1000))
            asyncio.get_running_loop().call_later(RESTART_S, self._fill_up)

    def _fill_up(self) -> None:
        while not self._stopping and len(self._workers) < self._wanted():
            self.add_worker()

    def _wake_one(self) -> None:
        while self._idle:
            sleeper = self._idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return

    def _wake_all(self) -> "list[asyncio.Task[None]]":
        """Wake the idle workers; return all but the caller: a handler may stop its consumer."""
        while self._idle:
            self._wake_one()
        own = asyncio.current_task()
        return [worker for worker in self._workers if worker is not own]


class PoolQueue:
    """Messages of one process queue that wait for one handler. ``workers``: the number busy with it now."""

    __slots__ = ("exempt", "is_ready", "messages", "process_queue", "quiet", "timers", "workers")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.messages: deque[ReceivedMessage] = deque()
        self.workers = 0
        self.exempt = 0
        self.is_ready = False
        self.quiet: asyncio.Event | None = None
        self.timers: set[asyncio.TimerHandle] = set()

    @property
    def closing(self) -> bool:
        """Whether no further call may start."""
        return self.quiet is not None

    def close(self) -> asyncio.Event:
        """Start no further call; the event is set when no worker is busy with it."""
        self.messages.clear()
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        if self.quiet is None:
            self.quiet = asyncio.Event()
        self.check_quiet()
        return self.quiet

    def check_quiet(self) -> None:
        """Set the event when only the call that closed the queue, if any, is busy."""
        if self.quiet is not None and self.workers <= self.exempt:
            self.quiet.set()


class WorkerPool(Workers):
    """A handler with up to ``concurrency`` calls at once. Belongs to the event loop's thread."""

    def __init__(
        self,
        call: HandlerCall,
        concurrency: int,
        *,
        clock: Clock,
        watch: HandlerWatch,
        failures: FailedMessages,
        counts: TopicCounts,
        drained: Callable[[ProcessQueue], None],
        mailbox: LoopMailbox,
        supervisor: Supervisor,
    ) -> None:
        super().__init__(supervisor)
        self.call = call
        self._concurrency = concurrency
        self._now_ns = clock.monotonic_ns
        self._watch = watch
        self._failures = failures
        self._counts = counts
        self.drained = drained
        self._mailbox = mailbox
        self._queues: set[PoolQueue] = set()
        self._ready: deque[PoolQueue] = deque()
        self._hung: set[asyncio.Task[None]] = set()
        self._free = 0
        if call.batch_max:
            self._turn = self._turn_batches
        elif call.is_async:
            self._turn = self._turn_async
        else:
            self._turn = self._turn_threads

    # -- queues ------------------------------------------------------------------------------------------------

    def open(self, process_queue: ProcessQueue) -> PoolQueue:
        """Return the pool's queue for the messages of a process queue."""
        queue = PoolQueue(process_queue)
        self._queues.add(queue)
        self._fill_up()
        return queue

    def put(self, queue: PoolQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Take messages; bounded by the limits of the process queue."""
        if queue.quiet is not None or self._stopping:  # it closes
            return
        queue.messages.extend(messages)
        if not queue.is_ready:
            queue.is_ready = True
            self._ready.append(queue)
        self._wake_one()

    def close(self, queue: PoolQueue) -> asyncio.Event:
        """Start no further call of a queue; the event is set when its calls have ended.

        A call that asks for this itself is not waited for.
        """
        self._queues.discard(queue)
        own = asyncio.current_task()
        if own is not None and self._workers.get(own) is queue:
            queue.exempt = 1
        return queue.close()

    def runs(self, task: "asyncio.Task[Any] | None") -> bool:
        """Return whether a task is a worker of this pool."""
        return task in self._workers

    # -- workers -----------------------------------------------------------------------------------------------

    @property
    def worker_count(self) -> int:
        """The number of workers, busy or not."""
        return len(self._workers)

    def add_worker(self) -> None:
        """Start one more worker."""
        running = self._watch.new_call(self.call.name)
        running.task = self._start_worker(self._work(running), f"pocketmq-handler-{self.call.name}")
        self._free += 1

    def _wanted(self) -> int:
        return self._concurrency

    def replace_hung_worker(self, task: "asyncio.Task[Any] | None") -> bool:
        """Start a worker in place of one whose call hangs; at most ``concurrency`` extra ones."""
        worker = next((worker for worker in self._workers if worker is task), None)
        if worker is None or self._stopping or len(self._hung) >= self._concurrency:
            return False
        self._hung.add(worker)
        self.add_worker()
        return True

    async def stop(self, timeout_s: float) -> int:
        """Start no further call, wait for running ones (at most ``timeout_s``), cancel the rest; return their
        number."""
        self._stopping = True
        for queue in list(self._queues):
            self.close(queue)
        workers = self._wake_all()
        if not workers:
            return 0
        _, running = await asyncio.wait(workers, timeout=timeout_s)
        for task in running:
            task.cancel()
        await asyncio.wait(workers, timeout=CANCEL_WAIT_S)
        return len(running)

    def _next(self) -> PoolQueue | None:
        ready = self._ready
        for _ in range(len(ready)):
            queue = ready.popleft()
            if not queue.messages:
                queue.is_ready = False
                continue
            ready.append(queue)  # it stays ready: other workers may help
            if len(self._queues) == 1 or queue.workers < WORKERS_PER_FREE_WORKER * self._free:
                return queue
        return None

    async def _work(self, running: RunningCall) -> None:
        loop = asyncio.get_running_loop()
        own = asyncio.current_task()
        assert own is not None
        try:
            while not self._stopping:
                queue = self._next()
                if queue is None:
                    if len(self._workers) - len(self._hung) > self._concurrency:  # a hung call has returned
                        return
                    sleeper = loop.create_future()
                    self._idle.append(sleeper)
                    await sleeper
                    continue
                queue.workers += 1
                self._free -= 1
                self._workers[own] = queue
                if self._idle and (len(queue.messages) > 1 or len(self._ready) > 1):
                    self._wake_one()  # it runs when this one first waits, or has had its turn
                running.process_queue = queue.process_queue
                running.since_ns = self._now_ns()
                try:
                    await self._turn(running, queue, own)
                finally:
                    running.idle()
                    if self._hung:
                        self._hung.discard(own)
                    self._workers[own] = None
                    self._free += 1
                    queue.workers -= 1
                    if queue.quiet is not None:
                        queue.check_quiet()
                if queue.messages or len(self._ready) > 1:  # else the wait for the next message lets the loop turn
                    await asyncio.sleep(0)
        finally:
            self._free -= 1
            self._workers.pop(own, None)
            self._watch.remove(running)

    async def _turn_async(self, running: RunningCall, queue: PoolQueue, own: "asyncio.Task[Any]") -> None:
        """Call an ``async def`` handler: the hot path."""
        messages, process_queue = queue.messages, queue.process_queue
        handler, finished, now_ns = self.call.handler, process_queue.finished, self._now_ns
        started_ns = running.since_ns
        done = 0
        try:
            for _ in range(TURN_CALLS):
                if not messages:
                    return
                running.message = message = messages.popleft()
                try:
                    returned = await handler(message)
                except BaseException as error:
                    if ends_the_caller(error, own):
                        raise
                    await self._failures.take(self, queue, self.call.failed((message,), error))
                else:
                    if returned is None or await self._is_done(queue, (message,), returned):
                        finished(message)
                        done += 1
                        if process_queue.wants_room and process_queue.has_room_again():
                            self.drained(process_queue)
                running.since_ns = now_ns()
        finally:
            self._counts.ok += done
            self._counts.handler_ns += running.since_ns - started_ns

    async def _is_done(self, queue: PoolQueue, messages: Sequence[ReceivedMessage], returned: Any) -> bool:
        outcome = self.call.returned(messages, returned)
        if outcome.later:
            await self._failures.take(self, queue, outcome)
            return False
        return True

    async def _turn_batches(self, running: RunningCall, queue: PoolQueue, own: "asyncio.Task[Any]") -> None:
        messages, batch_max = queue.messages, self.call.batch_max
        for _ in range(TURN_CALLS):
            if not messages:
                return
            batch = (
                [messages.popleft() for _ in range(batch_max)] if len(messages) > batch_max else self._all_of(messages)
            )
            running.batch = batch
            running.message = batch[0]
            outcome = await self.call.run(batch)
            now_ns = self._now_ns()
            self._counts.handler_ns += now_ns - running.since_ns
            self._ended(queue, batch, outcome)
            if outcome.later:
                await self._failures.take(self, queue, outcome)
                now_ns = self._now_ns()
            running.since_ns = now_ns
            if len(batch) > TURN_CALLS:
                return

    @staticmethod
    def _all_of(messages: deque[ReceivedMessage]) -> list[ReceivedMessage]:
        batch = list(messages)
        messages.clear()
        return batch

    def _ended(self, queue: PoolQueue, batch: list[ReceivedMessage], outcome: Outcome) -> None:
        done: Sequence[ReceivedMessage] = batch
        if outcome.later:
            failed = {id(message) for message in outcome.later}
            done = [message for message in batch if id(message) not in failed]
        queue.process_queue.finished_all(done)
        self._counts.ok += len(done)
        if queue.process_queue.has_room_again():
            self.drained(queue.process_queue)

    # -- plain functions ---------------------------------------------------------------------------------------

    async def _turn_threads(self, running: RunningCall, queue: PoolQueue, own: "asyncio.Task[Any]") -> None:
        """Let a thread call a plain handler up to 32 times; any result but None returns to the loop at once."""
        loop = asyncio.get_running_loop()
        started_ns = running.since_ns
        try:
            while queue.messages:
                job = loop.run_in_executor(self.call.threads(), self._calls_in_thread, running, queue)
                left = await job
                if left is None:
                    return
                message, returned, error = left
                if error is None and inspect.isawaitable(returned):  # a lambda around a coroutine function
                    try:
                        returned = await returned
                    except BaseException as failure:
                        if ends_the_caller(failure, own):
                            raise
                        error = failure
                if error is not None:
                    await self._failures.take(self, queue, self.call.failed((message,), error))
                elif await self._is_done(queue, (message,), returned):
                    self._done_in_thread(queue, message)
        finally:
            self._counts.handler_ns += self._now_ns() - started_ns

    def _calls_in_thread(
        self, running: RunningCall, queue: PoolQueue
    ) -> tuple[ReceivedMessage, Any, BaseException | None] | None:
        """Run in a thread. Return the first message that the loop must settle, with its answer or exception."""
        messages, process_queue, handler = queue.messages, queue.process_queue, self.call.handler
        for _ in range(TURN_CALLS):
            if self._stopping or process_queue.dropped:
                return None
            try:
                message = messages.popleft()
            except IndexError:  # another worker took the last one, or the queue was closed
                return None
            running.message = message
            running.since_ns = self._now_ns()
            try:
                returned = handler(message)
            except BaseException as error:
                if ends_the_caller(error, None):
                    raise
                return message, None, error
            if returned is not None:
                return message, returned, None
            self._mailbox.post(self._done_in_thread, queue, message)
        return None

    def _done_in_thread(self, queue: PoolQueue, message: ReceivedMessage) -> None:
        queue.process_queue.finished(message)
        self._counts.ok += 1
        if queue.process_queue.has_room_again():
            self.drained(queue.process_queue)

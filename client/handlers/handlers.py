"""Concurrent consumption: every message by itself, many at once, in no order.

Lives here: ``ConcurrentMode`` and ``ConcurrentRunner``: assigns queues to pools, and closes queues and pools.
"""

import asyncio
from collections.abc import Mapping, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.handler_failures import FailedMessages
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.client.handlers.queue_mode import ConsumeContext, QueueRunner
from pocketmq.client.handlers.worker_pool import PoolQueue, WorkerPool
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.runner import LoopMailbox


class ConcurrentRunner:
    """The messages of one queue on their way to the pools: one pool, or for a retry topic one for each topic."""

    fencing_token = 0

    def __init__(
        self, process_queue: ProcessQueue, pool: WorkerPool, by_topic: Mapping[str, WorkerPool] | None
    ) -> None:
        self.process_queue = process_queue
        self._by_topic = by_topic
        self._queues: dict[WorkerPool, PoolQueue] = {}
        self._pool = pool
        self._queue = self._open(pool)

    def _open(self, pool: WorkerPool) -> PoolQueue:
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = pool.open(self.process_queue)
        return queue

    def pull_pause_ms(self) -> int:
        """Return 0: only the limits of the queue delay a pull."""
        return 0

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages to the pool of their topic."""
        if self._by_topic is None:
            self._pool.put(self._queue, messages)
            return
        topics: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        for topic, part in topics.items():
            pool = self._by_topic.get(topic, self._pool)
            pool.put(self._open(pool), part)

    def close(self) -> list[asyncio.Event]:
        """Start no further call; the events are set when the running calls have ended."""
        return [pool.close(queue) for pool, queue in self._queues.items()]


class ConcurrentMode:
    """``QueueMode`` for concurrent consumption: one pool a handler, each with ``concurrency`` workers."""

    def __init__(self, context: ConsumeContext) -> None:
        self._context = context
        self._pools: dict[HandlerCall, WorkerPool] = {}
        self._by_topic: dict[str, WorkerPool] = {}
        self._runners: set[ConcurrentRunner] = set()
        self._mailbox: LoopMailbox

    def start(self) -> None:
        """Prepare; workers start with the first queue of their handler."""
        self._mailbox = LoopMailbox(asyncio.get_running_loop())

    def add_topic(self, topic: str, call: HandlerCall) -> WorkerPool:
        """Return the pool of a handler, which gets the messages of ``topic``, retries included."""
        pool = self._pools.get(call)
        if pool is None:
            context = self._context
            clock, log = context.instance.clock, context.instance.log
            counts = context.statistics.counts(topic)
            failures = FailedMessages(context.policy, context.consume_retry_ms, counts, clock, log)
            pool = self._pools[call] = WorkerPool(
                call,
                context.concurrency,
                clock=clock,
                watch=context.watch,
                failures=failures,
                counts=counts,
                drained=context.drained,
                mailbox=self._mailbox,
                supervisor=context.instance.supervisor,
            )
        self._by_topic[topic] = pool
        return pool

    async def acquire(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return all: no locks are needed."""
        return queues

    def runner(self, process_queue: ProcessQueue, call: HandlerCall) -> ConcurrentRunner:
        """Return a runner for a queue."""
        topic = process_queue.queue.topic
        is_retry = topic == self._context.policy.retry_topic
        runner = ConcurrentRunner(process_queue, self.add_topic(topic, call), self._by_topic if is_retry else None)
        self._runners.add(runner)
        return runner

    async def finish(self, runners: Sequence[QueueRunner], timeout_s: float) -> Sequence[QueueRunner]:
        """Start no further call for these queues, wait for running ones; a busy queue is given up, too."""
        events = []
        for runner in [runner for runner in self._runners if runner in runners]:
            events += runner.close()
            self._runners.discard(runner)
        waiting = [asyncio.ensure_future(event.wait()) for event in events if not event.is_set()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout_s)
            for each in late:
                each.cancel()
        return ()

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        """Do nothing: there are no locks."""

    def fenced(self, runner: QueueRunner) -> None:
        """Do nothing: another consumer of the group has the queue in order, and the broker has said so."""

    def restart(self, runner: QueueRunner) -> None:
        """Drop the pulled messages of a queue; the next round starts again at the committed offset."""
        if isinstance(runner, ConcurrentRunner):
            runner.close()
        runner.process_queue.drop()
        self._context.rebalance_soon()

    def runs_here(self) -> bool:
        """Return whether the caller is a handler."""
        own = asyncio.current_task()
        return any(pool.runs(own) for pool in self._pools.values())

    def start_no_more(self) -> None:
        """Start no further call; running ones go on. Messages they leave undone from now on are given back."""
        for runner in self._runners:
            runner.close()

    def room_made(self, process_queue: ProcessQueue) -> None:
        """Let a queue be pulled again if it was full and has room now."""
        if process_queue.has_room_again():
            self._context.drained(process_queue)

    def replace_worker(self, task: "asyncio.Task[object] | None") -> bool:
        """Give the pool of a hung call another worker."""
        return any(pool.replace_hung_worker(task) for pool in self._pools.values())

    async def stop(self, timeout_s: float) -> None:
        """Start no further handler, wait for those that run (at most ``timeout_s``), then cancel them."""
        cancelled = 0
        for pool in self._pools.values():  # in the caller's task: a handler that stops its consumer is not waited for
            cancelled += await pool.stop(timeout_s)
        if cancelled:
            self._context.instance.log.warning(
                "handlers_cancelled", handlers=cancelled, waited_ms=int(timeout_s * 1000)
            )

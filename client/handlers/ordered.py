"""Ordered consumption: one call at a time in a queue, in the queue's order, only while the broker's lock is held.

Lives here: ``OrderedMode`` (``QueueMode``): the workers that take turns with the queues, the handling of failures
(RocketMQ ConsumeMessageOrderlyService).

A failed message stays at the head of its queue: the queue rests (``suspend_current_queue_time_millis``) and calls the
handler with it again, until it is done or was retried ``max_reconsume_times`` times; then it becomes a dead letter, and
the queue goes on. A queue without a valid lock calls no handler; its messages wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.consume_result import DEAD_LETTER, DONE, SUSPEND_MS_MAX, Outcome
from pocketmq.client.handlers.consumer_statistics import TopicCounts
from pocketmq.client.handlers.handler_call import HandlerCall, ends_the_caller
from pocketmq.client.handlers.handler_watch import RunningCall
from pocketmq.client.handlers.ordered_queue import OrderedRunner
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.client.handlers.queue_locks import LOCK_INTERVAL_MS, LOCK_MAX_LIVE_MS, Lease, QueueLocks
from pocketmq.client.handlers.queue_mode import ConsumeContext, QueueRunner
from pocketmq.client.handlers.worker_pool import CANCEL_WAIT_S, TURN_CALLS, Workers
from pocketmq.common.message import ReceivedMessage

SUSPEND_MS_MIN: Final = 10
NOT_LOCKED_PAUSE_MS: Final = 1_000
"""Before a queue that is not locked is pulled (DefaultMQPushConsumerImpl.pullTimeDelayMillsWhenException)."""
BROADCASTING: Final = "BROADCASTING"


class OrderedMode(Workers):
    """``QueueMode`` for ordered consumption; at most ``concurrency`` queues call their handlers at once.

    Broadcasting needs no locks: each consumer reads every queue for itself. Belongs to the event loop's thread.
    """

    def __init__(
        self,
        context: ConsumeContext,
        *,
        lock_interval_ms: int = LOCK_INTERVAL_MS,
        lock_max_live_ms: int = LOCK_MAX_LIVE_MS,
    ) -> None:
        super().__init__(context.instance.supervisor)
        self._context = context
        self._clock = context.instance.clock
        self._log = context.instance.log
        self.locks: QueueLocks | None = None
        """None in broadcasting."""
        if context.message_model != BROADCASTING:
            self.locks = QueueLocks(
                context.instance,
                context.group,
                lock_interval_ms=lock_interval_ms,
                lock_max_live_ms=lock_max_live_ms,
                regained=self._regained,
            )
        self._by_topic: dict[str, HandlerCall] = {}
        self._warned_of_keys: set[str] = set()
        self._runners: dict[MessageQueue, OrderedRunner] = {}
        self._ready: deque[OrderedRunner] = deque()

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to renew locks; workers start with the first queues."""
        if self.locks is not None:
            self.locks.start()

    async def stop(self, timeout_s: float) -> None:
        """Start no further call, wait for those that run (at most ``timeout_s``), cancel them, give the locks back."""
        self._stopping = True
        await self.finish(list(self._runners.values()), timeout_s)
        workers = self._wake_all()
        running = [worker for worker in workers if self._workers[worker] is not None]
        if running:
            self._log.warning("handlers_cancelled", handlers=len(running), waited_ms=int(timeout_s * 1000))
        for worker in running:
            worker.cancel()
        if workers:
            await asyncio.wait(workers, timeout=CANCEL_WAIT_S)
        if self.locks is not None:
            await self.locks.stop()

    # -- queues ------------------------------------------------------------------------------------------------

    async def acquire(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return those of these queues whose lock we hold now."""
        return queues if self.locks is None else await self.locks.acquire(queues)

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        """Unlock queues; the broker notifies waiting clients.

        A call that still runs is canceled first: the consumer gives up a busy queue only when it stops.
        """
        given = set(queues)
        own = asyncio.current_task()
        busy = [
            worker
            for worker, runner in self._workers.items()
            if runner is not None and runner.process_queue.queue in given and worker is not own
        ]
        if busy:
            self._log.warning("handlers_cancelled", handlers=len(busy))
            for worker in busy:
                worker.cancel()
            await asyncio.wait(busy, timeout=CANCEL_WAIT_S)
        if self.locks is not None:
            await self.locks.release(queues)

    def add_topic(self, topic: str, call: HandlerCall) -> None:
        """Give ``call`` the messages of ``topic``, also those from the retry topic."""
        self._by_topic[topic] = call

    def check_keys(self, message: ReceivedMessage) -> None:
        """Warn once for a topic of several queues whose messages have keys but no sharding key.

        In Kafka a record's key selects its partition; here ``keys`` are only indexed. A producer that selects queues
        itself, as Java's do with a selector, keeps the order without a sharding key.
        """
        topic = message.topic
        route = self._context.instance.routes.get(topic)
        several = route is not None and len(route.read_queues) > 1
        if several and topic not in self._warned_of_keys and message.keys and message.sharding_key is None:
            self._warned_of_keys.add(topic)
            self._context.instance.log.warning(
                "keys_without_sharding_key",
                topic=topic,
                keys=message.keys[0],
                meaning="keys are indexed and select no queue: messages with one key may be in several queues",
                hint="send with sharding_key=KEY; no matter if the producer selects the queue itself",
            )

    def runner(self, process_queue: ProcessQueue, call: HandlerCall) -> OrderedRunner:
        """Return a runner for a queue that was acquired."""
        queue = process_queue.queue
        self._by_topic.setdefault(queue.topic, call)
        is_retry = queue.topic == self._context.policy.retry_topic
        runner = OrderedRunner(self, process_queue, call, self._by_topic if is_retry else None)
        self._runners[queue] = runner
        self._fill_up()
        return runner

    async def finish(self, runners: Sequence[QueueRunner], timeout_s: float) -> Sequence[QueueRunner]:
        """Start no further call for these, wait for running ones; return the queues still busy after ``timeout_s``.

        A busy queue keeps its lock: its call is not over, and the next owner must not start before it is.
        """
        ours = [runner for runner in runners if isinstance(runner, OrderedRunner)]
        own = asyncio.current_task()
        mine = self._workers.get(own) if own is not None else None
        events = [runner.close() for runner in ours if runner is not mine]
        if mine is not None and mine in ours:
            mine.close()  # the call that asks for this is not waited for
        waiting = [asyncio.ensure_future(event.wait()) for event in events if not event.is_set()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout_s)
            for each in late:
                each.cancel()
        busy = [runner for runner in ours if runner.is_busy and runner is not mine]
        for runner in ours:
            if runner not in busy and self._runners.get(runner.process_queue.queue) is runner:
                del self._runners[runner.process_queue.queue]
        return busy

    def runs_here(self) -> bool:
        """Return whether the caller is a handler of this mode."""
        return asyncio.current_task() in self._workers

    def fenced(self, runner: QueueRunner) -> None:
        """Start no call for this queue until it is locked again."""
        if self.locks is not None:
            self.locks.fenced(runner.process_queue.queue, runner.fencing_token)

    def restart(self, runner: QueueRunner) -> None:
        """Drop the pulled messages of a queue; the next round starts again at the committed offset."""
        if isinstance(runner, OrderedRunner):
            runner.close()
        runner.process_queue.drop()
        self._context.rebalance_soon()

    def lock_waits(self) -> list[dict[str, Any]]:
        """Return the queues that wait for their lock, and its holders."""
        return [] if self.locks is None else self.locks.all_waits()

    # -- requests of runners ------------------------------------------------------------------------------------

    def pull_pause_ms(self, queue: MessageQueue) -> int:
        """Return how long a pull has to wait for the lock."""
        return 0 if self.locks is None or self.locks.is_valid(queue) else NOT_LOCKED_PAUSE_MS

    def fencing_token(self, queue: MessageQueue) -> int:
        """Return the token of a queue's lock, or 0."""
        return 0 if self.locks is None else self.locks.token(queue)

    def make_ready(self, runner: OrderedRunner) -> None:
        """Offer a queue with messages to the workers."""
        if not runner.is_ready and not runner.is_busy and not runner.is_resting and not self._stopping:
            runner.is_ready = True
            self._ready.append(runner)
            self._wake_one()

    def _regained(self, queue: MessageQueue, same: bool) -> None:
        """Go on with a queue whose lock was lost and is back; start again at the committed offset if another client may
        have had it."""
        runner = self._runners.get(queue)
        if runner is None or runner.is_closing:
            return
        if not same:
            self._log.info("ordered_queue_restarts", queue=str(queue), token=self.fencing_token(queue))
            self.restart(runner)
            return
        if runner.messages:
            self.make_ready(runner)
        self._context.drained(runner.process_queue)

    # -- workers -----------------------------------------------------------------------------------------------

    def add_worker(self) -> None:
        """Start one more worker."""
        self._start_worker(self._work(), f"pocketmq-ordered-{self._context.group}")

    def _wanted(self) -> int:
        return min(self._context.concurrency, len(self._runners))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        own = asyncio.current_task()
        assert own is not None
        running = self._context.watch.new_call("", may_time_out=False)
        running.task = own
        try:
            while not self._stopping:
                if not self._ready:
                    sleeper = loop.create_future()
                    self._idle.append(sleeper)
                    await sleeper
                    continue
                runner = self._ready.popleft()
                runner.is_ready = False
                if runner.is_closing or not runner.messages:
                    continue
                if self._ready and self._idle:
                    self._wake_one()
                self._workers[own] = runner
                runner.is_busy = True
                running.process_queue = runner.process_queue
                running.since_ns = self._clock.monotonic_ns()
                try:
                    await self._turn(running, runner)
                except Exception:  # a fault of ours: its messages are pulled again, in order
                    self.restart(runner)
                    raise
                finally:
                    running.idle()
                    self._workers[own] = None
                    if runner.idle():  # a revocation waits for the end of its call
                        self._context.rebalance_soon()
                if runner.messages and self.pull_pause_ms(runner.process_queue.queue) == 0:
                    self.make_ready(runner)
                await asyncio.sleep(0)
        finally:
            self._workers.pop(own, None)
            self._context.watch.remove(running)

    async def _turn(self, running: RunningCall, runner: OrderedRunner) -> None:
        """Call the handler until the queue is empty, rests, loses its lock, or has had its turn."""
        queue = runner.process_queue.queue
        lease = None if self.locks is None else self.locks.lease(queue)
        if self.locks is not None and lease is None:
            return
        started_ns, counts = running.since_ns, self._context.statistics.counts(queue.topic)
        call = runner.only_call
        try:
            if call is not None and call.is_async and not call.batch_max:
                await self._turn_async(running, runner, call, lease, counts)
            else:
                await self._turn_calls(running, runner, lease, counts)
        finally:
            counts.handler_ns += running.since_ns - started_ns

    async def _turn_async(
        self, running: RunningCall, runner: OrderedRunner, call: HandlerCall, lease: Lease | None, counts: TopicCounts
    ) -> None:
        """Call an ``async def`` handler, message by message: the hot path."""
        process_queue, messages, attempts = runner.process_queue, runner.messages, runner.attempts
        handler, finished, now_ns = call.handler, process_queue.finished, self._clock.monotonic_ns
        own: Any = asyncio.current_task()
        running.handler_name = call.name
        done = 0
        try:
            for _ in range(TURN_CALLS):
                if not messages or runner.is_closing or process_queue.dropped:
                    return
                if lease is not None and not lease.is_valid(running.since_ns):
                    return
                running.message = message = messages[0]
                try:
                    returned = await handler(message)
                except BaseException as error:
                    if ends_the_caller(error, own):
                        raise
                    outcome = call.failed((message,), error)
                else:
                    outcome = DONE if returned is None else call.returned((message,), returned)
                running.since_ns = now_ns()
                if outcome.later:
                    counts.failed += 1
                    if await self._failed(runner, (message,), call, outcome):
                        return
                    running.since_ns = now_ns()
                    continue
                messages.popleft()
                if attempts:
                    attempts.pop(message.queue_offset, None)
                finished(message)
                done += 1
                if process_queue.wants_room and process_queue.has_room_again():
                    self._context.drained(process_queue)
        finally:
            counts.ok += done

    async def _turn_calls(
        self, running: RunningCall, runner: OrderedRunner, lease: Lease | None, counts: TopicCounts
    ) -> None:
        """Call plain functions and batch handlers."""
        process_queue, messages, now_ns = runner.process_queue, runner.messages, self._clock.monotonic_ns
        for _ in range(TURN_CALLS):
            if not messages or runner.is_closing or process_queue.dropped:
                return
            if lease is not None and not lease.is_valid(running.since_ns):
                return
            batch = runner.head()
            call = runner.call_of(batch[0])
            running.handler_name, running.message, running.batch = call.name, batch[0], batch
            outcome = await call.run(batch)
            running.since_ns = now_ns()
            counts.ok += len(batch) - len(outcome.later)
            if not outcome.later:
                runner.done(len(batch))
            else:
                counts.failed += len(outcome.later)
                if await self._failed(runner, batch, call, outcome):
                    return
                running.since_ns = now_ns()
            if process_queue.wants_room and process_queue.has_room_again():
                self._context.drained(process_queue)
            if len(batch) > TURN_CALLS:
                return  # a large batch is a turn of its own

    # -- failures ----------------------------------------------------------------------------------------------

    async def _failed(
        self, runner: OrderedRunner, batch: Sequence[ReceivedMessage], call: HandlerCall, outcome: Outcome
    ) -> bool:
        """Keep failed messages at the head of the queue, in order; return whether the queue rests now.

        Those tried often enough become dead letters; the queue then goes on with the next message.
        """
        if runner.process_queue.dropped:
            return True
        failed = runner.failed(batch, outcome.later)
        retries_max = self._context.max_reconsume_times
        given_up = [
            message
            for message in failed
            if outcome.delay_level == DEAD_LETTER or 0 <= retries_max < message.reconsume_times
        ]
        if given_up:
            reason = outcome.reason or "the handler asked for a later try"
            rest = await self._hand_on(given_up, reason)
            left = {id(message) for message in rest}
            runner.given_up([message for message in given_up if id(message) not in left])
            failed = [message for message in failed if message.queue_offset in runner.attempts]
        if runner.is_closing:
            return True
        if not failed:
            return False
        suspend_ms = outcome.suspend_ms or self._context.suspend_current_queue_time_millis
        suspend_ms = max(SUSPEND_MS_MIN, min(suspend_ms, SUSPEND_MS_MAX))
        if runner.logs(self._clock.monotonic_ns()):
            log = self._log.error if outcome.error is not None else self._log.info
            log(
                "ordered_queue_suspended",
                queue=str(runner.process_queue.queue),
                handler=call.name,
                message=failed[0],
                attempts=runner.attempts_of(failed[0]),
                reason=outcome.reason,
                behind_it=len(runner.messages) - 1,
                again_in_ms=suspend_ms,
                exc_info=outcome.error,
            )
        runner.rest(suspend_ms)
        return True

    async def _hand_on(self, messages: Sequence[ReceivedMessage], reason: str) -> Sequence[ReceivedMessage]:
        try:
            return await self._context.policy.failed(messages, reason, DEAD_LETTER)
        except Exception as error:
            self._log.error("failure_policy_failed", messages=len(messages), error=repr(error), exc_info=error)
            return messages

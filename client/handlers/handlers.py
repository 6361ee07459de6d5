"""Concurrent consumption: every message by itself, many at once, in no order.

Lives here: ``ConcurrentMode`` and ``ConcurrentRunner``: which lane gets the messages of a queue, threads for plain
functions, the end of queues and of the mode.
"""

import asyncio
from collections.abc import Mapping, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.handler_failures import FailedMessages
from pocketmq.client.handlers.handler_lane import Lane, LaneQueue
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.client.handlers.queue_mode import ConsumeContext, QueueRunner
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.runner import LoopMailbox


class ConcurrentRunner:
    """The messages of one queue on their way to the lanes: one lane, or for a retry topic one for each topic."""

    fencing_token = 0

    def __init__(self, process_queue: ProcessQueue, lane: Lane, by_topic: Mapping[str, Lane] | None) -> None:
        self.process_queue = process_queue
        self._by_topic = by_topic
        self._places: dict[Lane, LaneQueue] = {}
        self._lane = lane
        self._place = self._open(lane)

    def _open(self, lane: Lane) -> LaneQueue:
        place = self._places.get(lane)
        if place is None:
            place = self._places[lane] = lane.open(self.process_queue)
        return place

    def pull_pause_ms(self) -> int:
        """Return 0: nothing but the limits of the queue holds a pull."""
        return 0

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages to the lane of their topic."""
        if self._by_topic is None:
            self._lane.put(self._place, messages)
            return
        topics: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            topics.setdefault(message.topic, []).append(message)
        for topic, part in topics.items():
            lane = self._by_topic.get(topic, self._lane)
            lane.put(self._open(lane), part)

    def close(self) -> list[asyncio.Event]:
        """Start nothing further; the events say when the calls that run have ended."""
        return [lane.close(place) for lane, place in self._places.items()]


class ConcurrentMode:
    """``QueueMode`` for concurrent consumption: one lane a handler, each with ``concurrency`` workers."""

    def __init__(self, context: ConsumeContext) -> None:
        self._context = context
        self._lanes: dict[HandlerCall, Lane] = {}
        self._by_topic: dict[str, Lane] = {}
        self._runners: set[ConcurrentRunner] = set()
        self._mailbox: LoopMailbox

    def start(self) -> None:
        """Make ready; workers start with the first queue of their handler."""
        self._mailbox = LoopMailbox(asyncio.get_running_loop())

    def add_topic(self, topic: str, call: HandlerCall) -> Lane:
        """Return the lane of a handler, which gets the messages of ``topic``, also those that come back for a retry."""
        lane = self._lanes.get(call)
        if lane is None:
            context = self._context
            clock, log = context.instance.clock, context.instance.log
            counts = context.statistics.counts(topic)
            failures = FailedMessages(context.policy, context.consume_retry_ms, counts, clock, log)
            lane = self._lanes[call] = Lane(
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
        self._by_topic[topic] = lane
        return lane

    async def acquire(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return all: nothing has to be asked for."""
        return queues

    def runner(self, process_queue: ProcessQueue, call: HandlerCall) -> ConcurrentRunner:
        """Return what works off a queue."""
        topic = process_queue.queue.topic
        is_retry = topic == self._context.policy.retry_topic
        runner = ConcurrentRunner(process_queue, self.add_topic(topic, call), self._by_topic if is_retry else None)
        self._runners.add(runner)
        return runner

    async def finish(self, runners: Sequence[QueueRunner], timeout_s: float) -> Sequence[QueueRunner]:
        """Start nothing further of these queues, wait for what runs; nobody keeps a queue because it is busy."""
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
        """Do nothing: nothing was asked for."""

    def fenced(self, runner: QueueRunner) -> None:
        """Do nothing: somebody else commits in order, which the broker has told."""

    def restart(self, runner: QueueRunner) -> None:
        """Give up what is in hand of a queue; the next round begins anew at the committed offset."""
        if isinstance(runner, ConcurrentRunner):
            runner.close()
        runner.process_queue.drop()
        self._context.rebalance_soon()

    def runs_here(self) -> bool:
        """Tell whether the caller is a handler."""
        own = asyncio.current_task()
        return any(lane.runs(own) for lane in self._lanes.values())

    def start_no_more(self) -> None:
        """Begin no further call; those that run go on. What a call leaves undone from now on is given back."""
        for runner in self._runners:
            runner.close()

    def room_made(self, process_queue: ProcessQueue) -> None:
        """Let a queue be pulled again if it was full and is so no longer."""
        if process_queue.has_room_again():
            self._context.drained(process_queue)

    def replace_worker(self, task: "asyncio.Task[object] | None") -> bool:
        """Give the lane of a hung call another worker."""
        return any(lane.replace_hung_worker(task) for lane in self._lanes.values())

    async def stop(self, timeout_s: float) -> None:
        """Start no further handler, wait for those that run (at most ``timeout_s``), then cancel them."""
        cancelled = 0
        for lane in self._lanes.values():  # in the caller's task: a handler that stops its consumer is not waited for
            cancelled += await lane.stop(timeout_s)
        if cancelled:
            self._context.instance.log.warning(
                "handlers_cancelled", handlers=cancelled, waited_ms=int(timeout_s * 1000)
            )

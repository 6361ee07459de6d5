"""The pull of one queue for a push consumer: ask, hand over, ask again.

Lives here: ``QueuePull``, the loop of one queue with RocketMQ's pauses (docs/rocketmq.md, "Pull loop").
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.handlers.consumer_statistics import TopicCounts
from pocketmq.client.handlers.process_queue import ProcessQueue
from pocketmq.client.handlers.queue_mode import QueueMode, QueueRunner
from pocketmq.client.pull.pull_wire import PullWire
from pocketmq.client.pull.subscription import Subscription
from pocketmq.client.push.pull_failures import PullFailures
from pocketmq.client.push.send_back import show_origin
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import is_retry_topic
from pocketmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pocketmq.common.message import ReceivedMessage

SUSPEND_MS = 15_000
"""How long the broker may hold a pull (DefaultMQPushConsumerImpl.java BROKER_SUSPEND_MAX_TIME_MILLIS)."""
PULL_MESSAGES_MIN = 32
"""Requested even with little room, so that a full queue is not pulled message by message."""
FULL_PAUSE_MS = 50
FLOW_CONTROL_PAUSE_MS = 20
ERROR_PAUSE_MS = 1_000
PAUSED_PAUSE_MS = 1_000
FULL_LOGGED_EVERY = 1_000
"""A full queue is logged every so many times (DefaultMQPushConsumerImpl.queueFlowControlTimes)."""


@dataclass(slots=True, frozen=True)
class PullSettings:
    """What all pulls of a consumer share. ``paused`` returns whether the user has paused them."""

    batch_size: int
    interval_ms: int
    paused: Callable[[], bool]
    failures: PullFailures


class QueuePull:
    """Pulls one queue until stopped. ``leaving``: the queue is being given up."""

    def __init__(
        self,
        wire: PullWire,
        mode: QueueMode,
        runner: QueueRunner,
        subscription: Subscription,
        instance: ClientInstance,
        settings: PullSettings,
        counts: TopicCounts,
    ) -> None:
        self.process_queue: ProcessQueue = runner.process_queue
        self.mode = mode
        self.runner = runner
        self.leaving = False
        self._last_pull_ns = 0
        self._wire = wire
        self._subscription = None if subscription.is_all else subscription
        self._filter = subscription
        self._is_retry = is_retry_topic(subscription.topic)
        self._instance = instance
        self._settings = settings
        self._counts = counts
        self._full_times = 0
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._frame = wire.frame(self.process_queue.queue, self._subscription, SUSPEND_MS)

    @property
    def last_pull_ms(self) -> int:
        """When the queue was last pulled, in ms since 1970; 0: never."""
        clock = self._instance.clock
        if not self._last_pull_ns:
            return 0
        return clock.now_ms() - (clock.monotonic_ns() - self._last_pull_ns) // 1_000_000

    def start(self) -> None:
        """Begin."""
        self._task = self._instance.supervisor.keep(self._run, f"pocketmq-pull-{self.process_queue.queue}")

    def wake(self) -> None:
        """Pull again at once: there is room, or the pause is over."""
        self._room.set()

    async def stop(self) -> None:
        """End the loop; a running pull is cancelled, its messages do not count."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._room.clear()
            try:
                if not self._settings.interval_ms and self._following() is not None:
                    await self._wire.pull_short(self.process_queue.queue, self._frame, self._following, self._take)
                pause_ms = await self._pull_once()
            except PocketMQError as error:
                pause_ms = self._failed(error)
            except Exception as error:  # a fault of ours must not silently end the pull of a queue
                self._instance.log.error("pull_failed", queue=str(self.process_queue.queue), exc_info=error)
                pause_ms = ERROR_PAUSE_MS
            if pause_ms:
                try:
                    async with asyncio.timeout(pause_ms / 1000):  # not wait_for, which can swallow a cancellation
                        await self._room.wait()
                except TimeoutError:
                    pass

    def _failed(self, error: PocketMQError) -> int:
        if isinstance(error, BrokerAnswerError) and error.answer_code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_PAUSE_MS
        queue = self.process_queue.queue
        self._settings.failures.note(queue.broker_name, str(queue), error)
        return ERROR_PAUSE_MS

    def _wait_ms(self) -> int:
        """Return how long to wait before the next pull."""
        if self._settings.paused():
            return PAUSED_PAUSE_MS
        process_queue = self.process_queue
        full = process_queue.full()
        if full:
            process_queue.wants_room = True
            if self._full_times % FULL_LOGGED_EVERY == 0:
                self._instance.log.info(
                    "pull_flow_control",
                    queue=str(process_queue.queue),
                    limit=full,
                    messages=len(process_queue),
                    size_bytes=process_queue.size_bytes,
                    oldest_offset=process_queue.oldest_offset,
                    times=self._full_times + 1,
                )
            self._full_times += 1
            return FULL_PAUSE_MS
        return self.runner.pull_pause_ms()

    def _following(self) -> tuple[int, int] | None:
        """Return offset and largest number of messages of the next pull, if it may leave now."""
        process_queue = self.process_queue
        if self._settings.paused() or process_queue.full() or self.runner.pull_pause_ms():
            return None
        return process_queue.next_pull_offset, self._messages_max()

    def _messages_max(self) -> int:
        most = self._settings.batch_size
        return most if most <= PULL_MESSAGES_MIN else min(most, max(PULL_MESSAGES_MIN, self.process_queue.room))

    async def _pull_once(self) -> int:
        """Pull once; return the ms to pause."""
        wait_ms = self._wait_ms()
        if wait_ms:
            return wait_ms
        process_queue, clock = self.process_queue, self._instance.clock
        queue, offset = process_queue.queue, process_queue.next_pull_offset
        self._last_pull_ns = started_ns = clock.monotonic_ns()
        results = await self._wire.pull(
            queue.broker_name,
            [(queue, offset)],
            self._subscription,
            max_messages=self._messages_max(),
            suspend_ms=SUSPEND_MS,
        )
        from pocketmq.common.record_columns import received_messages  # NumPy: not at import

        result = results[0]
        messages = received_messages(result.body, result.sizes, result.broker_name) if len(result.body) else []
        answer = result.queues[0]
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._instance.log.warning("offset_moved", queue=str(queue), asked=offset, next=answer.next_offset)
            if answer.next_offset < offset and len(process_queue):
                # the broker lost these messages and reuses their offsets: the two must not mix
                self.mode.restart(self.runner)
                return ERROR_PAUSE_MS
            process_queue.moved(answer.next_offset)
            return 0
        handed_over = self._take(messages, max(answer.next_offset, offset), started_ns)
        return self._settings.interval_ms if handed_over else 0

    def _take(self, messages: "list[ReceivedMessage]", next_offset: int, started_ns: int) -> bool:
        """Hand over the messages of a pull that the filter wants; return whether there are any.

        ``next_offset``: where the next pull begins; ``started_ns``: when this one was sent.
        """
        self._last_pull_ns = now_ns = self._instance.clock.monotonic_ns()  # the next pull follows at once
        tags = self._filter.tags
        wanted = [message for message in messages if message.tags in tags] if tags else messages
        if self._is_retry:
            show_origin(wanted)
        self.process_queue.pulled(wanted, next_offset)
        if wanted:
            counts = self._counts
            counts.pulls += 1
            counts.pulled += len(wanted)
            counts.pull_ns += now_ns - started_ns
            self.runner.put(wanted)
        return bool(wanted)

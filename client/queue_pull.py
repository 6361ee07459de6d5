"""The pull of one queue for a push consumer: ask, hand over, ask again.

Lives here: ``QueuePull``, the loop of one queue with RocketMQ's pauses (facts §6.4).
Not here: what is in hand (``process_queue``), who runs handlers (``handlers``).
"""

import asyncio

from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.handlers import Handler, HandlerPool
from pocketmq.client.instance import ClientInstance
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.pull_wire import PullWire
from pocketmq.client.subscription import Subscription
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record_columns import received_messages
from pocketmq.remoting.codes import ResponseCode

PULL_MESSAGES = 256
SUSPEND_MS = 15_000
"""How long the broker may hold a pull (DefaultMQPushConsumerImpl.java BROKER_SUSPEND_MAX_TIME_MILLIS)."""
FULL_PAUSE_MS = 50
FLOW_CONTROL_PAUSE_MS = 20
ERROR_PAUSE_MS = 1_000


class QueuePull:
    """Pulls one queue until stopped."""

    def __init__(
        self,
        wire: PullWire,
        process_queue: ProcessQueue,
        subscription: Subscription,
        pool: HandlerPool,
        handler: Handler,
        instance: ClientInstance,
    ) -> None:
        self.process_queue = process_queue
        self._wire = wire
        self._subscription = subscription if subscription.tags else None
        self._filter = subscription
        self._pool = pool
        self._handler = handler
        self._instance = instance
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def offset_known(self) -> bool:
        """Whether there is an offset to commit."""
        return not self.process_queue.dropped

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"pocketmq-pull-{self.process_queue.queue}"
        )

    def wake(self) -> None:
        """Look again at once: there is room."""
        self._room.set()

    async def stop(self) -> None:
        """End the loop; a pull under way is given up, nothing it brings counts."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            pause_ms = await self._pull_once()
            if pause_ms:
                self._room.clear()
                try:
                    async with asyncio.timeout(pause_ms / 1000):  # not wait_for, which can swallow a cancellation
                        await self._room.wait()
                except TimeoutError:
                    pass

    async def _pull_once(self) -> int:
        """Pull once; return the ms to pause."""
        process_queue = self.process_queue
        if process_queue.full():
            return FULL_PAUSE_MS
        queue, offset = process_queue.queue, process_queue.next_pull_offset
        try:
            results = await self._wire.pull(
                queue.broker_name,
                [(queue, offset)],
                self._subscription,
                max_messages=PULL_MESSAGES,
                suspend_ms=SUSPEND_MS,
            )
            result = results[0]
            messages = received_messages(result.body, result.sizes, result.broker_name) if len(result.body) else []
        except BrokerAnswerError as error:
            if error.answer_code == ResponseCode.FLOW_CONTROL:
                return FLOW_CONTROL_PAUSE_MS
            self._instance.log.warning("pull_failed", queue=str(queue), error=str(error))
            return ERROR_PAUSE_MS
        except PocketMQError as error:
            self._instance.log.warning("pull_failed", queue=str(queue), error=str(error))
            return ERROR_PAUSE_MS
        answer = result.queues[0]
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._instance.log.warning("offset_moved", queue=str(queue), asked=offset, next=answer.next_offset)
            process_queue.moved(answer.next_offset)
            return 0
        wanted = (
            [message for message in messages if self._filter.matches(message.tags)] if self._filter.tags else messages
        )
        next_offset = max(answer.next_offset, offset)
        process_queue.pulled(wanted, next_offset)
        if wanted:
            self._pool.put(process_queue, self._handler, wanted)
        return 0

"""Messages, a log and a policy that tests of handlers use in place of a broker."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.handler_watch import HandlerWatch
from pocketmq.client.handlers.handlers import ConcurrentMode
from pocketmq.client.handlers.process_queue import ProcessLimits, ProcessQueue
from pocketmq.client.handlers.queue_mode import ConsumeContext
from pocketmq.common.clock import Clock


class FakeMessage:
    """The fields of a message that handlers and process queues read."""

    broker_name = "b"

    def __init__(self, offset: int, topic: str = "T", queue_id: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = offset
        self.size_bytes = 10

    def __repr__(self) -> str:
        return f"FakeMessage({self.queue_offset})"


class Events:
    """An ``EventLog`` that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.events.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.events.append(("error", event, fields))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [fields for _, event, fields in self.events if event == name]


class Policy:
    """Accepts every failed message, or none while ``takes`` is False."""

    retry_topic = "%RETRY%g"

    def __init__(self) -> None:
        self.takes = True
        self.raises = False
        self.calls: list[tuple[list[Any], str, int]] = []

    async def failed(self, messages: Sequence[Any], reason: str, delay_level: int) -> Sequence[Any]:
        await asyncio.sleep(0)
        if self.raises:
            raise RuntimeError("a bug of the policy")
        if not self.takes:
            return messages
        self.calls.append((list(messages), reason, delay_level))
        return ()


class Bench:
    """A concurrent mode with its surroundings; ``stop`` ends it."""

    def __init__(self, *, concurrency: int = 20, retry_ms: int = 20, clock: Clock | None = None) -> None:
        self.log = Events()
        self.instance = ClientInstance("127.0.0.1:1", log=self.log, clock=clock)
        self.policy = Policy()
        self.watch = HandlerWatch(self.instance.clock)
        self.statistics = ConsumerStatistics(self.instance.clock)
        self.drained: list[ProcessQueue] = []
        self.context = ConsumeContext(
            group="g",
            message_model="CLUSTERING",
            instance=self.instance,
            policy=self.policy,
            watch=self.watch,
            drained=self.drained.append,
            rebalance_soon=lambda: None,
            concurrency=concurrency,
            consume_retry_ms=retry_ms,
            max_reconsume_times=-1,
            suspend_current_queue_time_millis=1000,
            statistics=self.statistics,
        )
        self.mode = ConcurrentMode(self.context)
        self.mode.start()

    def call(self, handler: Any, batch_max: int = 0) -> HandlerCall:
        from concurrent.futures import ThreadPoolExecutor

        self.threads = ThreadPoolExecutor(8)
        return HandlerCall(handler, batch_max=batch_max, log=self.log, threads=lambda: self.threads)

    def queue(
        self, call: HandlerCall, count: int = 0, *, topic: str = "T", queue_id: int = 0, count_max: int = 1000
    ) -> Any:
        """Return a runner with ``count`` messages."""
        process_queue = ProcessQueue(MessageQueue(topic, "b", queue_id), 0, ProcessLimits(count_max=count_max))
        runner = self.mode.runner(process_queue, call)
        self.put(runner, [FakeMessage(offset, topic, queue_id) for offset in range(count)])
        return runner

    @staticmethod
    def put(runner: Any, messages: Sequence[Any]) -> None:
        if messages:
            runner.process_queue.pulled(messages, messages[-1].queue_offset + 1)
            runner.put(messages)

    async def stop(self) -> None:
        self.mode.start_no_more()
        await self.mode.stop(0.1)
        threads = getattr(self, "threads", None)
        if threads is not None:
            threads.shutdown()


async def until(condition: Any, timeout_s: float = 100) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

"""RocketMQ's watermark lines: the length of each queue and the age of its head.

Lives here: ``Watermarks``, which writes them to the ``watermark`` logger.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.common.events import EventLog

FIRST_AFTER_NS: Final = 10_000_000_000
"""RocketMQ BrokerController.printWaterMark: every second, first after 10 s."""
NAMES: Final[Mapping[str, str]] = {
    "SendMessageThread": "Send",
    "PullMessageThread": "Pull",
    "QueryMessageThread": "Query",
    "EndTransactionThread": "Transaction",
}
"""Pairs with a line, and RocketMQ's words for them."""


class Watermarks:
    """Writes one line a pair, each second while requests wait and once more when none does. Nothing while nothing
    changes: four lines a second, as RocketMQ writes them, would bury the rest of the log.

    One thread calls ``write`` once a second.
    """

    def __init__(self, executors: Sequence[DrainExecutor], started_ns: int, log: EventLog) -> None:
        self._executors = [(NAMES[executor.name], executor) for executor in executors if executor.name in NAMES]
        self._log = log
        self._first_ns = started_ns + FIRST_AFTER_NS
        self._idle = True

    def write(self, now_ns: int) -> None:
        """Write the lines if they are due."""
        if now_ns < self._first_ns:
            return
        rows = [(name, len(executor.queue), executor.queue.head_wait_ms(now_ns)) for name, executor in self._executors]
        was_idle, self._idle = self._idle, not any(size for _, size, _ in rows)
        if was_idle and self._idle:
            return
        for name, size, slow_ms in rows:
            self._log.info(
                f"[WATERMARK] {name} Queue Size: {size} SlowTimeMills: {slow_ms}",
                queue=name.lower(),
                queue_size=size,
                slow_time_mills=slow_ms,
            )

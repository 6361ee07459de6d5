"""Fast failure: requests that waited too long are answered "busy" while their client still has time to go elsewhere.

Lives here: ``FastFailure``, which sweeps the queues that have a longest wait, and its timer on the loop (RocketMQ
BrokerFastFailure).
Not here: the queues (``sweepable_queue``), the refusals at the door (``admission``). The sweep while the page cache is
busy belongs to the issue on flow control.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from pocketmq.broker.executor import DrainExecutor
from pocketmq.broker.task import Refusal, Task
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause
from pocketmq.remoting.codes import ResponseCode

FIRST_AFTER_S: Final = 1.0
PERIOD_S: Final = 0.01
"""RocketMQ's initial delay and period of its scanner (facts §2.5)."""


class FastFailure:
    """Sweeps the send, pull, heartbeat and end-transaction queues every 10 ms. Loop thread only.

    A request that is swept was never handed to its processor: nothing of it is stored.
    """

    def __init__(self, executors: Iterable[DrainExecutor], clock: Clock) -> None:
        self._executors = [executor for executor in executors if executor.max_wait_ms > 0]
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.swept: dict[str, int] = {}
        """Requests answered, by pair."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sweep from one second on, until ``stop``."""
        self._timer = loop.call_later(FIRST_AFTER_S, self._tick, loop)

    def stop(self) -> None:
        """End the sweeps."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(PERIOD_S, self._tick, loop)
        self.sweep()

    def sweep(self) -> None:
        """Answer every head that has waited for the longest wait of its pair, or longer."""
        now_ns = self._clock.monotonic_ns()
        for executor in self._executors:
            queue = executor.queue
            if not len(queue):
                continue
            expired = queue.expire(now_ns, executor.max_wait_ms)
            if expired:
                self.swept[executor.name] = self.swept.get(executor.name, 0) + len(expired)
                left = len(queue) + len(expired)
                refusals = {
                    task: _refusal(task, now_ns, left - at, executor.max_wait_ms) for at, task in enumerate(expired, 1)
                }
                executor.sweep(expired, refusals.__getitem__)


def _refusal(task: Task, now_ns: int, queue_size: int, max_wait_ms: int) -> Refusal:
    """``queue_size``: requests that wait after this one was taken out, as RocketMQ prints it."""
    waited_ms = (now_ns - task.created_ns) // 1_000_000
    return Refusal(
        ResponseCode.SYSTEM_BUSY,
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {waited_ms}ms, size of queue: {queue_size}",
        Cause.QUEUE_TIMEOUT,
        retry_after_ms=max_wait_ms,
    )

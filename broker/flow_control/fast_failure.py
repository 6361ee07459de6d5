"""Fast failure: requests that waited too long are answered "busy" while their client still has time to try elsewhere.

Lives here: ``FastFailure``, which empties the send queue while the page cache is busy and expires requests of the
queues with a maximum wait, and its timer on the loop (RocketMQ BrokerFastFailure).
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from pocketmq.broker.flow_control.busy_answers import expired_page_cache_busy, expired_timeout
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_task import Refusal, Task
from pocketmq.common.clock import Clock

FIRST_AFTER_S: Final = 1.0
PERIOD_S: Final = 0.01
"""RocketMQ's initial delay and period of its scanner (BrokerFastFailure, 5.3)."""
IDLE_PERIOD_S_MAX: Final = 0.1
"""While nothing waits: a check of empty queues every 10 ms was 1 % of a core, nearly all that an idle broker used."""
CHUNK_TASKS: Final = 64
"""Requests answered between two checks of the clock and the page cache: about 0.3 ms (measured: 3 to 4 µs each, in any
of the three codecs)."""
SLICE_NS: Final = 2_000_000
"""Maximum time in one turn of the loop, plus a chunk; the rest follows in the next turns, so that sockets are read and
answers written between slices. 10,000 requests take about 40 ms in 20 slices."""


class PageCache(Protocol):
    """The store, as fast failure uses it on the loop: both methods return at once, without a lock."""

    def is_os_page_cache_busy(self) -> bool:
        """Return whether the append lock has been held for too long."""
        ...

    def lock_time_mills(self) -> int:
        """Return how long the current holder has had the append lock, in ms."""
        ...


class FastFailure:
    """Expires requests of the send, pull, heartbeat and end-transaction queues every 10 ms. Loop thread only.

    While no request waits and nobody holds the append lock, the period is half of the shortest limit, at most 100 ms: a
    request that arrives meanwhile is seen in the first half of its longest wait, and from then on every 10 ms.
    An expired request never reached its processor: nothing of it is stored. A oneway request is dropped and counted.
    Requests stay in their queue, where a worker can still take them, until their slice.
    """

    def __init__(
        self,
        executors: Iterable[DrainExecutor],
        send: DrainExecutor,
        page_cache: PageCache,
        clock: Clock,
        refusals: RefusalStats,
        *,
        page_cache_busy_ms: int = 1000,
    ) -> None:
        """``executors``: in the order of expiry; those without a maximum wait are skipped. ``send`` is emptied while
        the page cache is busy, which begins ``page_cache_busy_ms`` after the append lock was taken."""
        self._all_executors = list(executors)
        self._send = send
        self._page_cache = page_cache
        self._clock = clock
        self._refusals = refusals
        self.limits_changed(page_cache_busy_ms)
        self._timer: asyncio.Handle | None = None
        self.swept: dict[str, int] = {}
        """Requests answered, by pair."""

    def limits_changed(self, page_cache_busy_ms: int) -> None:
        """Take the maximum waits that the executors have now."""
        self._executors = [executor for executor in self._all_executors if executor.max_wait_ms > 0]
        limits_ms = [page_cache_busy_ms, *(executor.max_wait_ms for executor in self._executors)]
        self._idle_period_s = max(PERIOD_S, min(IDLE_PERIOD_S_MAX, min(limits_ms) / 2000))

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Expire requests, after one second, until ``stop``."""
        self._timer = loop.call_later(FIRST_AFTER_S, self._tick, loop)

    def stop(self) -> None:
        """Stop expiring requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        more, period_s = False, PERIOD_S
        try:
            more = self.expire()
            period_s = self.period_s()
        finally:
            self._timer = loop.call_soon(self._tick, loop) if more else loop.call_later(period_s, self._tick, loop)

    def period_s(self) -> float:
        """Return the time to the next check: 10 ms, or longer while nothing can become overdue by then."""
        if self._page_cache.lock_time_mills() or len(self._send.queue):
            return PERIOD_S
        for executor in self._executors:
            if len(executor.queue):
                return PERIOD_S
        return self._idle_period_s

    def expire(self) -> bool:
        """Answer overdue requests for about ``SLICE_NS``; return True when more are overdue."""
        until_ns = self._clock.monotonic_ns() + SLICE_NS
        while self._page_cache.is_os_page_cache_busy():
            now_ns = self._clock.monotonic_ns()
            tasks = self._send.queue.drain(CHUNK_TASKS, self._send.queue.size_bytes_max)
            if not tasks:
                break
            held_ms = self._page_cache.lock_time_mills()
            self._answer(self._send, tasks, now_ns, partial(expired_page_cache_busy, held_ms))
            if now_ns >= until_ns:
                return True
        for executor in self._executors:
            while len(executor.queue):
                now_ns = self._clock.monotonic_ns()
                tasks = executor.queue.expire(now_ns, executor.max_wait_ms, CHUNK_TASKS)
                if not tasks:
                    break
                self._answer(executor, tasks, now_ns, partial(expired_timeout, executor.max_wait_ms))
                if now_ns >= until_ns:
                    return True
        self._refusals.log_left_out()
        return False

    def _answer(
        self, executor: DrainExecutor, tasks: list[Task], now_ns: int, refusal_for: Callable[[int, int], Refusal]
    ) -> None:
        """Answer ``tasks``, the heads of a queue; ``refusal_for`` takes a task's wait in ns and the queue size behind
        it."""
        self.swept[executor.name] = self.swept.get(executor.name, 0) + len(tasks)
        behind = len(executor.queue) + len(tasks)
        refusals = {task: refusal_for(now_ns - task.created_ns, behind - at) for at, task in enumerate(tasks, 1)}
        executor.refuse(tasks, refusals.__getitem__)
        last = refusals[tasks[-1]]
        self._refusals.note(last.cause.value, last.code, last.remark, len(tasks))

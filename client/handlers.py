"""Running the user's handlers: a bounded number at once, failures tried again.

Lives here: ``HandlerPool``: the workers of one push consumer, the thread pool for plain functions, the retry after a
failure.
Not here: what a finished message means for its queue (``process_queue``). Sending a failed message back to the broker
(the retry topic) and handing over batches come with the issue on consumption, in place of ``_again``.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pocketmq.client.process_queue import ProcessQueue
from pocketmq.common.events import EventLog
from pocketmq.common.message import ReceivedMessage

Handler = Callable[[ReceivedMessage], Any]
"""``async def`` or a plain function. Its return value is ignored; an exception means: not done."""

TURN_MESSAGES = 32
"""Messages after which a worker lets the event loop turn, even if its handlers never wait."""

_Work = tuple[ProcessQueue, Handler, bool, ReceivedMessage]
"""(queue, handler, whether it is ``async def``, message)"""


class HandlerPool:
    """Up to ``concurrency`` handlers at once. ``drained(process_queue)`` is called when a full queue has room again."""

    def __init__(
        self, log: EventLog, concurrency: int, retry_delay_ms: int, drained: Callable[[ProcessQueue], None]
    ) -> None:
        self._log = log
        self._concurrency = concurrency
        self._retry_delay_s = retry_delay_ms / 1000
        self._drained = drained
        self._work: deque[_Work] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._later: dict[asyncio.TimerHandle, None] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = False

    def start(self) -> None:
        """Start the workers."""
        loop = asyncio.get_running_loop()
        self._workers = [
            loop.create_task(self._run(), name=f"pocketmq-handler-{number}") for number in range(self._concurrency)
        ]

    def put(self, process_queue: ProcessQueue, handler: Handler, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages over; bounded by the limits of their process queues."""
        is_async = inspect.iscoroutinefunction(handler)
        self._work.extend((process_queue, handler, is_async, message) for message in messages)
        for _ in range(min(len(messages), len(self._idle))):
            self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            sleeper = self._idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return

    def runs_here(self) -> bool:
        """Tell whether the caller is a handler of this pool."""
        return asyncio.current_task() in self._workers

    def start_no_more(self) -> None:
        """Let the handlers that run end, and start no other."""
        self._stopping = True
        self._work.clear()

    async def stop(self, timeout_s: float) -> None:
        """Start no further handler, wait for those that run (at most ``timeout_s``), then cancel them."""
        self.start_no_more()
        for handle in self._later:
            handle.cancel()
        self._later.clear()
        while self._idle:
            self._wake_one()
        workers = [worker for worker in self._workers if worker is not asyncio.current_task()]  # a handler may stop us
        if workers:
            _, running = await asyncio.wait(workers, timeout=timeout_s)
            if running:
                self._log.warning("handlers_cancelled", handlers=len(running), waited_ms=int(timeout_s * 1000))
            for task in running:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        work = self._work
        loop = asyncio.get_running_loop()
        own = asyncio.current_task()
        assert own is not None
        is_cancelled = own.cancelling
        turn = 0
        while not self._stopping:
            if not work:
                sleeper = loop.create_future()
                self._idle.append(sleeper)
                await sleeper
                continue
            process_queue, handler, is_async, message = work.popleft()
            if process_queue.dropped:
                continue
            try:
                if is_async:
                    await handler(message)
                else:
                    result = await loop.run_in_executor(self._thread_pool(), handler, message)
                    if inspect.isawaitable(
                        result
                    ):  # an object whose __call__ is async, a partial of a coroutine function
                        await result
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise  # else the handler awaited something that was cancelled: that is its failure, not our end
                self._log.error(
                    "handler_failed",
                    message=message,
                    error=repr(error),
                    retry_after_ms=int(self._retry_delay_s * 1000),
                    exc_info=error,
                )
                self._again(process_queue, handler, message)
            else:
                was_full = process_queue.full()
                process_queue.finished(message)
                if was_full and not process_queue.full():
                    self._drained(process_queue)
            turn += 1
            if turn == TURN_MESSAGES:
                turn = 0
                await asyncio.sleep(0)

    def _again(self, process_queue: ProcessQueue, handler: Handler, message: ReceivedMessage) -> None:
        """Try a message once more after the delay; until then it is unfinished, and its queue's commit waits for it."""
        if self._stopping:
            return

        def put_back() -> None:
            self._later.pop(handle, None)
            if not process_queue.dropped:
                self.put(process_queue, handler, (message,))

        handle = asyncio.get_running_loop().call_later(self._retry_delay_s, put_back)
        self._later[handle] = None

    def _thread_pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="pocketmq-handler")
        return self._threads

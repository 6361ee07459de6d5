"""A handler that blocks the event loop: nothing else runs, no heartbeat leaves, and the broker will think us dead.

Lives here: ``LoopWatch``: a worker of its own that notices a blocked loop, and names the handler.
"""

import asyncio
import threading

from pocketmq.client.handlers.handler_watch import HandlerWatch
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, ThreadRunner, Worker
from pocketmq.common.stacks import thread_places

BEATS = 4
"""Beats of the loop within ``block_ms``."""
FRAMES = 3


class LoopWatch:
    """Watches the loop that started it. ``block_ms`` 0: does nothing."""

    def __init__(
        self, watch: HandlerWatch, block_ms: int, clock: Clock, log: EventLog, runner: Runner | None = None
    ) -> None:
        self._watch = watch
        self._block_ms = block_ms
        self._clock = clock
        self._log = log
        self._runner = runner or ThreadRunner()
        self._worker: Worker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._beat_ns = 0
        self._logged_beat_ns = -1

    def start(self) -> None:
        """Begin, in the loop's thread."""
        if not self._block_ms:
            return
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._beat()
        self._worker = self._runner.start("pocketmq-loop-watch", self.check, first_after_ms=self._block_ms / BEATS)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(0)

    def _beat(self) -> None:
        assert self._loop is not None
        self._beat_ns = self._clock.monotonic_ns()
        self._timer = self._loop.call_later(self._block_ms / BEATS / 1000, self._beat)

    def check(self) -> float:
        """Log a blocked loop once; return the ms until the next check. Runs in a worker's thread."""
        beat_ns = self._beat_ns
        blocked_ms = (self._clock.monotonic_ns() - beat_ns) // 1_000_000
        if blocked_ms >= self._block_ms + self._block_ms / BEATS and self._logged_beat_ns != beat_ns:
            self._logged_beat_ns = beat_ns
            self._log_blocked(blocked_ms)
        return self._block_ms / BEATS

    def _log_blocked(self, blocked_ms: int) -> None:
        assert self._loop is not None
        call = self._watch.call_of(asyncio.current_task(self._loop))
        where = thread_places().get(self._thread_id, [])[:FRAMES]
        self._log.error(
            "event_loop_blocked",
            handler=call.handler_name if call is not None else "",
            message=call.message if call is not None else None,
            blocked_ms=blocked_ms,
            where=" < ".join(f"{path}:{line} {function}" for path, line, function in where),
            hint="no heartbeat leaves meanwhile; make the handler a plain function, which runs in a thread, or use "
            "asyncio.to_thread for blocking calls",
        )

"""Time that a test moves, so that a broker's delays and retries are over at once.

Lives here: ``MovableClock``.
"""

import threading
import time

from pocketmq.common.clock import SystemClock


class MovableClock(SystemClock):
    """The machine's clocks, ahead by what a test has moved them.

    ``advance_ms`` moves wall time and elapsed time, as a sleep of the machine does, and not the monotonic time of
    limits and heartbeats: no connection is old afterwards. Any thread. Time never goes back.
    """

    __slots__ = ("_ahead_ms", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead_ms = 0

    @property
    def ahead_ms(self) -> int:
        """How far it is ahead of the machine."""
        return self._ahead_ms

    def advance_ms(self, delay_ms: int) -> None:
        """Move it forward."""
        assert delay_ms >= 0
        with self._lock:
            self._ahead_ms += delay_ms

    def now_ms(self) -> int:
        """Return the wall time in ms since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def elapsed_ns(self) -> int:  # type: ignore[override]  # the machine's clock has no state
        """Return monotonic ns that have passed, with those that were skipped."""
        return SystemClock.elapsed_ns() + self._ahead_ms * 1_000_000

"""The one lock around every append.

Lives here: ``AppendLock``, which knows how long its present holder has had it.
Not here: what "busy" means to a broker (page-cache-busy, RocketMQ DefaultMessageStore.isOSPageCacheBusy): it asks
``held_ns``.
"""

import threading
from types import TracebackType

from pocketmq.common.clock import Clock


class AppendLock:
    """A mutex used by ``with`` only, so that its marker is set and reset in one place, whatever is raised inside.

    ``held_since_ns``: monotonic time at which the present holder entered, 0 when free. Totals count finished holds.
    """

    __slots__ = ("_lock", "_monotonic_ns", "held_ns_total", "held_since_ns", "holds")

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._monotonic_ns = clock.monotonic_ns
        self.held_since_ns = 0
        self.held_ns_total = 0
        self.holds = 0

    def __enter__(self) -> "AppendLock":
        self._lock.acquire()
        try:
            self.held_since_ns = self._monotonic_ns()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        since_ns = self.held_since_ns
        self.held_since_ns = 0
        try:
            self.held_ns_total += self._monotonic_ns() - since_ns
            self.holds += 1
        finally:
            self._lock.release()

    def held_ns(self) -> int:
        """Return how long the present holder has had the lock, 0 when it is free. Never waits."""
        since_ns = self.held_since_ns
        return self._monotonic_ns() - since_ns if since_ns else 0

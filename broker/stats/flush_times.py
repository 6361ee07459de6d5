"""How long the syncs of the commit log take.

Lives here: ``FlushTimes``, which reads the log's counters on demand.
"""

import threading

from pocketmq.common.histogram import Histogram, WindowedHistogram
from pocketmq.store.message_store import MessageStore


class FlushTimes:
    """Durations of syncs since the start and in the window. Thread-safe; touches no disk.

    ``look`` is called once a second, and under SYNC_FLUSH also by the sends that waited for a sync, so that each sync
    counts with its own duration. Under ASYNC_FLUSH there are about two syncs a second: the latest counts with its own
    duration, the others since the last ``look`` with their mean.
    """

    def __init__(self, store: MessageStore) -> None:
        self._log = store.log
        self._lock = threading.Lock()
        self._times = WindowedHistogram()
        self._count = self._log.flush_count
        self._sum_ns = self._log.flush_ns_total

    def look(self) -> None:
        """Count the syncs since the last call."""
        log = self._log
        if log.flush_count == self._count:
            return
        with self._lock:
            count, sum_ns, last_ns = log.flush_count, log.flush_ns_total, log.last_flush_ns
            new, spent_ns = count - self._count, sum_ns - self._sum_ns
            if new <= 0:
                return
            self._count, self._sum_ns = count, sum_ns
            self._times.record_ns(last_ns)
            if new > 1:
                self._times.record_ns(max(0, spent_ns - last_ns) // (new - 1), new - 1)

    def rotate(self) -> None:
        """Begin a slot of the window."""
        with self._lock:
            self._times.rotate()

    def window(self) -> Histogram:
        """Return the durations in the window."""
        self.look()
        with self._lock:
            return self._times.window()

    def totals(self) -> Histogram:
        """Return the durations since the start."""
        self.look()
        with self._lock:
            return self._times.snapshot()

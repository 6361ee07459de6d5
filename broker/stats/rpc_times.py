"""How long requests took, by request code: from the queue until their answers are written.

Lives here: ``RpcTimes``.
"""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

from pocketmq.broker.stats.stage_times import RequestTiming, strides
from pocketmq.remoting.codes import RequestCode

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
"""Upper ends of the buckets (RocketMQ RemotingMetricsManager)."""
_BOUNDS_NS: Final = tuple(bound * 1_000_000 for bound in BOUNDS_MS)
_KNOWN: Final = frozenset(map(int, RequestCode))
OTHER: Final = -1
"""Stands for all codes that no request of ours or RocketMQ's has: a peer makes no entry by a number."""


class RpcTimes:
    """Thread-safe: the lock is held for two list additions. One call a drain, one a sum of short sends.

    In a drain of more than four requests each chosen one stands for those behind it, as for their queue waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, list[int]] = {}
        self._sums_ns: dict[int, int] = {}

    def finished(self, timing: RequestTiming, now_ns: int) -> None:
        """Count requests whose answers were written at ``now_ns``."""
        entries: Sequence[Any] = timing[1]
        for at, alike in strides(len(entries)):
            task = getattr(entries[at], "task", entries[at])
            if not task.request.oneway:
                self.add(task.request.code, now_ns - task.created_ns, alike)

    def add(self, code: int, took_ns: int, count: int) -> None:
        """Count ``count`` requests that took ``took_ns`` each."""
        bucket = bisect_left(_BOUNDS_NS, took_ns)
        with self._lock:
            counts = self._counts.get(code)
            if counts is None:
                code = code if code in _KNOWN else OTHER
                counts = self._counts.setdefault(code, [0] * (len(BOUNDS_MS) + 1))
                self._sums_ns.setdefault(code, 0)
            counts[bucket] += count
            self._sums_ns[code] += took_ns * count

    def rows(self) -> list[tuple[int, list[int], int]]:
        """Return (code, requests in each bucket, sum in ns) of every code that was seen."""
        with self._lock:
            return [(code, counts[:], self._sums_ns[code]) for code, counts in self._counts.items()]

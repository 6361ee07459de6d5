"""How long puts took, in RocketMQ's buckets.

Lives here: ``PutStatistics``: RocketMQ's 13 printed buckets, its finer ones for percentiles, the last full minute.
"""

import threading
from bisect import bisect_right
from collections import deque
from itertools import accumulate, chain, pairwise, repeat
from typing import Final

from pocketmq.common.histogram import SLOTS

LABELS: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
"""As RocketMQ's StoreStatsService prints them."""
_LABEL_ENDS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
"""Exclusive ends: RocketMQ measures whole ms, so ``<=0ms`` means below 1 ms."""
_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
"""(width in ms, count) of the finer buckets; one without an end follows (StoreStatsService)."""
EDGES_MS: Final = tuple(accumulate(chain.from_iterable(repeat(width, count) for width, count in _STEPS)))
_LABEL_CUTS: Final = (0, *(bisect_right(EDGES_MS, end - 1) + 1 for end in _LABEL_ENDS_MS), len(EDGES_MS) + 1)
"""Each label covers a run of finer buckets: every end of a label is an edge."""


class PutStatistics:
    """Durations of whole puts: from the wait for the append lock until the answer is ready.

    As in RocketMQ, a put is one request, however many messages it holds. Thread-safe; call ``end_minute`` and
    ``rotate`` from one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(EDGES_MS) + 1)
        self._slots: deque[list[int]] = deque([self._counts[:]], maxlen=SLOTS)
        self._minute_began = self._counts[:]
        self._last_minute = self._counts[:]
        self.sum_ns = 0
        self.max_ms = 0
        """Longest put since the start (RocketMQ putMessageEntireTimeMax)."""

    def record(self, took_ns: int, puts: int) -> None:
        """Count ``puts`` requests that one append stored in ``took_ns``."""
        took_ms = took_ns // 1_000_000
        with self._lock:
            self._counts[bisect_right(EDGES_MS, took_ms) if took_ms > 0 else 0] += puts
            self.sum_ns += took_ns * puts
            if took_ms > self.max_ms:
                self.max_ms = took_ms

    @property
    def total(self) -> int:
        """Number of puts since the start."""
        return sum(self._counts)

    def counts(self) -> list[int]:
        """Return the number of puts since the start in each finer bucket."""
        with self._lock:
            return self._counts[:]

    def rotate(self) -> None:
        """Begin a slot of the window."""
        with self._lock:
            self._slots.append(self._counts[:])

    def end_minute(self) -> list[tuple[str, int]]:
        """Close the current minute; return its puts by label."""
        with self._lock:
            now = self._counts[:]
        self._last_minute = _minus(now, self._minute_began)
        self._minute_began = now
        return _by_label(self._last_minute)

    def window(self) -> list[tuple[str, int]]:
        """Return the puts of about the last minute by label."""
        with self._lock:
            return _by_label(_minus(self._counts, self._slots[0]))

    def totals(self) -> list[tuple[str, int]]:
        """Return the puts since the start by label."""
        with self._lock:
            return _by_label(self._counts)

    def latency_ms(self, q: float) -> float:
        """Return the ``q`` quantile of the last full minute, interpolated within its bucket; 0 without puts.

        The bucket without an end ends at the longest put.
        """
        return _percentile_ms(self._last_minute, q, self.max_ms)


def between(now: list[int], before: list[int], max_ms: int) -> tuple[int, float, float]:
    """Return count, p50 and p99 in ms of the puts between two calls of ``PutStatistics.counts``."""
    new = _minus(now, before) if before else now
    return sum(new), _percentile_ms(new, 0.5, max_ms), _percentile_ms(new, 0.99, max_ms)


def text(by_label: list[tuple[str, int]]) -> str:
    """Return the buckets as RocketMQ prints them."""
    return " ".join(f"{label}:{count}" for label, count in by_label)


def _minus(now: list[int], before: list[int]) -> list[int]:
    return [new - old for new, old in zip(now, before, strict=True)]


def _by_label(counts: list[int]) -> list[tuple[str, int]]:
    cuts = pairwise(_LABEL_CUTS)
    return [(label, sum(counts[begin:end])) for label, (begin, end) in zip(LABELS, cuts, strict=True)]


def _percentile_ms(counts: list[int], q: float, max_ms: int) -> float:
    wanted = q * sum(counts)
    if not wanted:
        return 0.0
    seen = 0
    for index, count in enumerate(counts):
        if count and seen + count >= wanted:
            begin = EDGES_MS[index - 1] if index else 0
            end = EDGES_MS[index] if index < len(EDGES_MS) else max(max_ms, begin)
            return begin + (end - begin) * (wanted - seen) / count
        seen += count
    return float(max_ms)

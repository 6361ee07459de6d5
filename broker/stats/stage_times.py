"""How long requests spend in each stage.

    times = StageTimes();  executor.stages = times.pair(executor.name);  times.rows()

Lives here: ``Stage`` (the names), ``PairStages`` (histograms of one pair), ``StageTimes`` (all pairs),
``RequestTiming`` (the stage times of requests that are answered together), ``strides``.
"""

import enum
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from pocketmq.common.histogram import (
    QUICK_NS,
    SAMPLE_INTERVAL_NS,
    Histogram,
    SampledHistogram,
    WindowedHistogram,
)
from pocketmq.remoting.telemetry import ALL_PAIRS, StageTelemetry

SEND_PAIR: Final = "SendMessageThread"
"""The pair whose requests write to the log (RocketMQ BrokerController)."""


class Stage(enum.IntEnum):
    """The stages of a request, in order; the value is an index into ``stages_ns``.

    - ``READ``: first byte of the frame → decoded request.
    - ``QUEUE_WAIT``: queued → drained by a worker, or expired by fast failure.
    - ``LOCK_WAIT``: the wait for the append lock.
    - ``APPEND``: under the append lock.
    - ``FLUSH_WAIT``: end of the append → durable. Counted under SYNC_FLUSH, for sends that wait for it.
    - ``REPLICA_WAIT``: durable here → confirmed by a slave.
    - ``PROCESS``: in the processor, outside the stages above: checks, reads, other batches of the same drain.
    - ``WRITE``: answer posted by its thread → passed to the transport by the loop.
    """

    READ = 0
    QUEUE_WAIT = 1
    LOCK_WAIT = 2
    APPEND = 3
    FLUSH_WAIT = 4
    REPLICA_WAIT = 5
    PROCESS = 6
    WRITE = 7

    @property
    def label(self) -> str:
        """Return the name as it appears on the wire, in logs and in metrics."""
        return self.name.lower()


STAGE_COUNT: Final = len(Stage)
_QUEUE_WAIT: Final = int(Stage.QUEUE_WAIT)
_WRITE: Final = int(Stage.WRITE)
_DRAIN_STAGES: Final = (int(Stage.LOCK_WAIT), int(Stage.APPEND), int(Stage.PROCESS))
SAMPLE_STRIDE: Final = 4
SAMPLES_MAX: Final = 16
"""In a drain of up to 4 requests each wait is counted; in a larger one every fourth, or at most 16 evenly spread ones,
each also for the requests behind it. A drain's requests arrived in order, so a percentile is overestimated by at most a
quarter of one drain."""


class Waiting(Protocol):
    """A request, as far as its stages need it."""

    created_ns: int


class HasTask(Protocol):
    """An object that stands for a request."""

    @property
    def task(self) -> Any:
        """The request itself."""
        ...


RequestTiming = tuple[str, Sequence[Waiting] | Sequence[HasTask], int, list[int], int]
"""Requests that are answered together: the pair; the requests, or objects that stand for them, oldest first; when the
oldest was queued; their time in each ``Stage``; when their drain began, which ends each one's queue wait. One is made
for each drain: a tuple, because an object would cost ten times as much."""


def strides(count: int) -> Iterator[tuple[int, int]]:
    """Yield (position, requests that it stands for) of those of a drain of ``count`` requests that are looked at."""
    stride = 1 if count <= SAMPLE_STRIDE else max(SAMPLE_STRIDE, -(-count // SAMPLES_MAX))
    for at in range(0, count, stride):
        yield at, min(stride, count - at)


class PairStages:
    """Histograms of one pair. Thread-safe: its lock is held for a few list additions only.

    Drains in which nothing took a millisecond are sampled: at most one per ``SAMPLE_INTERVAL_NS`` is recorded, and
    stands for the drains since the last one. All other drains are recorded. Every request counts.
    """

    __slots__ = ("_histograms", "_lock", "_next_ns", "_skipped", "_skipped_times", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        stages = tuple(Stage)[_QUEUE_WAIT:_WRITE] if name == SEND_PAIR else (Stage.QUEUE_WAIT, Stage.PROCESS)
        self._histograms = {int(stage): WindowedHistogram() for stage in stages}
        self._lock = threading.Lock()
        self._next_ns = 0
        self._skipped = 0
        self._skipped_times = (0, [0] * STAGE_COUNT)

    def drained(self, tasks: Sequence[Waiting], started_ns: int, stages_ns: list[int], took_ns: int) -> None:
        """Count the queue waits of ``tasks``, and for each task the stages of its drain, which took ``took_ns``."""
        count = len(tasks)
        longest_ns = started_ns - tasks[0].created_ns
        with self._lock:
            if longest_ns < QUICK_NS and took_ns < QUICK_NS:
                if started_ns < self._next_ns:
                    self._skipped += count
                    self._skipped_times = (longest_ns, stages_ns)
                    return
                self._next_ns = started_ns + SAMPLE_INTERVAL_NS
                self._settle()
            self._count_waits(tasks, count, started_ns)
            self._count_stages(stages_ns, count)

    def add_quick(self, count: int, wait_ns: int, stages_ns: list[int]) -> None:
        """Count requests that were served in drains in which nothing took a millisecond, all with these times."""
        with self._lock:
            self._skipped += count
            self._skipped_times = (wait_ns, stages_ns)

    def _settle(self) -> None:
        """Count the skipped requests with the times of the latest of them. Under the lock."""
        skipped, self._skipped = self._skipped, 0
        if skipped:
            wait_ns, stages_ns = self._skipped_times
            self._histograms[_QUEUE_WAIT].record_ns(wait_ns, skipped)
            self._count_stages(stages_ns, skipped)

    def _count_stages(self, stages_ns: list[int], count: int) -> None:
        histograms = self._histograms
        for stage in _DRAIN_STAGES:
            took_ns = stages_ns[stage]
            if took_ns:
                histogram = histograms.get(stage)
                if histogram is not None:
                    histogram.record_ns(took_ns, count)

    def swept(self, tasks: Sequence[Waiting], now_ns: int) -> None:
        """Count the queue waits of tasks that flow control removed from the queue."""
        if tasks:
            with self._lock:
                self._count_waits(tasks, len(tasks), now_ns)

    def _count_waits(self, tasks: Sequence[Waiting], count: int, now_ns: int) -> None:
        record_ns = self._histograms[_QUEUE_WAIT].record_ns
        for at, alike in strides(count):
            record_ns(now_ns - tasks[at].created_ns, alike)

    def record_ns(self, stage: int, took_ns: int, count: int) -> None:
        """Count ``count`` requests that each spent ``took_ns`` in ``stage``."""
        with self._lock:
            self._histograms[stage].record_ns(took_ns, count)

    def rotate(self) -> None:
        """Begin a slot of the window."""
        with self._lock:
            self._settle()
            for histogram in self._histograms.values():
                histogram.rotate()

    def totals(self) -> list[tuple[Stage, Histogram]]:
        """Return a copy of each histogram since the start."""
        with self._lock:
            self._settle()
            return [(Stage(stage), histogram.snapshot()) for stage, histogram in self._histograms.items()]

    def window(self, stage: Stage) -> Histogram:
        """Return the histogram of one stage in the window."""
        with self._lock:
            self._settle()
            return self._histograms[int(stage)].window()

    def rows(self) -> list[StageTelemetry]:
        """Return the statistics of the window."""
        return [stage_row(self.name, Stage(stage), self.window(Stage(stage))) for stage in self._histograms]


class StageTimes:
    """All pairs, and the two stages outside of them: ``read`` and ``write`` are counted on the loop."""

    def __init__(self) -> None:
        self.read = SampledHistogram()
        self.write = SampledHistogram()
        self._pairs: dict[str, PairStages] = {}

    def pair(self, name: str) -> PairStages:
        """Return the histograms of a pair; the first call creates them. Call it before the threads start."""
        return self._pairs.setdefault(name, PairStages(name))

    @property
    def pairs(self) -> Iterable[PairStages]:
        """All pairs created so far."""
        return self._pairs.values()

    def rotate(self) -> None:
        """Begin a slot of the window in every histogram."""
        for histogram in (self.read, self.write):
            histogram.rotate()
        for pair in self._pairs.values():
            pair.rotate()

    def totals(self) -> list[tuple[str, Stage, Histogram]]:
        """Return (pair, stage, histogram since the start) of every stage."""
        rows = [(pair.name, stage, histogram) for pair in self._pairs.values() for stage, histogram in pair.totals()]
        read, write = self.read.snapshot(), self.write.snapshot()
        return [(ALL_PAIRS, Stage.READ, read), *rows, (ALL_PAIRS, Stage.WRITE, write)]

    def rows(self) -> list[StageTelemetry]:
        """Return the statistics of the window."""
        rows = [row for pair in self._pairs.values() for row in pair.rows()]
        read, write = self.read.window(), self.write.window()
        return [stage_row(ALL_PAIRS, Stage.READ, read), *rows, stage_row(ALL_PAIRS, Stage.WRITE, write)]


def stage_row(pair: str, stage: Stage, histogram: Histogram) -> StageTelemetry:
    """Return the statistics of one histogram."""
    return StageTelemetry(
        pair=pair,
        stage=stage.label,
        count=histogram.count,
        p50_us=histogram.percentile_ns(0.5) / 1000,
        p99_us=histogram.percentile_ns(0.99) / 1000,
        p999_us=histogram.percentile_ns(0.999) / 1000,
        max_us=histogram.max_ns / 1000,
        sum_us=histogram.sum_ns / 1000,
    )

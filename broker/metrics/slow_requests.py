"""Requests that took too long, each with its longest stage.

Lives here: ``SlowRequests``: the slow requests, their sampled events, the slowest of the last minute.
"""

import heapq
import itertools
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pocketmq.broker.request.request_task import Task
from pocketmq.broker.stats.stage_times import STAGE_COUNT, RequestTiming, Stage
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.telemetry import ALL_PAIRS, SlowRequest

EVENTS_PER_SECOND_MAX: Final = 10
"""Of one cause, which is the slowest stage; events beyond the limit are counted in the next event."""
SLOWEST_MAX: Final = 16
"""Requests kept for ``slowest``."""
KEPT_NS: Final = 60_000_000_000
_SECOND_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Window:
    """Requests of one cause that were logged in the present second, and those left out."""

    begin_ns: int
    logged: int = 0
    left_out: int = 0


class SlowRequests:
    """Logs requests that took ``threshold_ms`` or longer. Thread-safe; quick requests cost nothing.

    An event is called ``slow_request_<slowest stage>``, so that a flood of one cause leaves room for another. Its time
    runs from the queue to the transport; the time a client takes to send a request is logged apart
    (``slow_request_read``), because the client or the network causes it.
    """

    def __init__(self, threshold_ms: int, clock: Clock, log: EventLog) -> None:
        self.threshold_ns = threshold_ms * 1_000_000
        self.count = 0
        """Slow requests since the start, logged or not."""
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._windows: dict[Stage, _Window] = {}
        self._slowest: list[tuple[float, int, int, SlowRequest]] = []
        """A heap, quickest first: (total ms, number, monotonic time of the answer, request)."""
        self._numbers = itertools.count()

    def finished(self, timing: RequestTiming, write_ns: int, now_ns: int) -> None:
        """Check requests that were answered at ``now_ns``, their answers posted ``write_ns`` before."""
        pair, entries, oldest_ns, stages_ns, started_ns = timing
        if now_ns - oldest_ns < self.threshold_ns:
            return
        tasks: list[Task] = [cast(Task, getattr(entry, "task", entry)) for entry in entries]
        slow = bisect_right(tasks, now_ns - self.threshold_ns, key=lambda task: task.created_ns)
        stages_ns = stages_ns[:]
        stages_ns[Stage.WRITE] = write_ns
        self._note(pair, stages_ns, started_ns, tasks[:slow], now_ns)

    def read_slowly(self, remote: str, request: Request, took_ns: int) -> None:
        """Note a request whose frame took ``took_ns`` to arrive."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            left_out = self._admit(Stage.READ, 1, now_ns)
        if left_out >= 0:
            spent = {Stage.READ: took_ns}
            slow = _slow_request(self._clock.now_ms(), request, ALL_PAIRS, remote, took_ns / 1e6, Stage.READ, spent)
            self._write(Stage.READ, slow, request, left_out)

    def _note(self, pair: str, stages_ns: list[int], started_ns: int, tasks: Sequence[Task], now_ns: int) -> None:
        """Log the oldest of ``tasks`` up to the limit; count the others under the same cause."""
        own = max(range(STAGE_COUNT), key=lambda stage: 0 if stage == Stage.QUEUE_WAIT else stages_ns[stage])
        # The wait shrinks from task to task: those whose longest stage it was come first.
        split = bisect_right(tasks, started_ns - stages_ns[own], key=lambda task: task.created_ns)
        for cause, alike in ((Stage.QUEUE_WAIT, tasks[:split]), (Stage(own), tasks[split:])):
            if alike:
                self._note_alike(pair, stages_ns, started_ns, alike, cause, now_ns)

    def _note_alike(
        self, pair: str, stages_ns: list[int], started_ns: int, tasks: Sequence[Task], cause: Stage, now_ns: int
    ) -> None:
        at_ms = self._clock.now_ms()
        for at, task in enumerate(tasks):
            with self._lock:
                left_out = self._admit(cause, 1, now_ns)
                if left_out < 0 and at:  # the first one is kept all the same: it is the slowest of them
                    self._count(cause, len(tasks) - at - 1)
                    return
            spent = {Stage(stage): took_ns for stage, took_ns in enumerate(stages_ns) if took_ns}
            spent[Stage.QUEUE_WAIT] = started_ns - task.created_ns
            total_ms = (now_ns - task.created_ns) / 1e6
            slow = _slow_request(at_ms, task.request, pair, task.connection.remote, total_ms, cause, spent)
            self._keep(slow, now_ns)
            if left_out >= 0:
                self._write(cause, slow, task.request, left_out)

    def _admit(self, cause: Stage, count: int, now_ns: int) -> int:
        """Return -1 when this request is not to be logged, else how many of its cause were left out before it."""
        self.count += count
        window = self._windows.get(cause)
        if window is None:
            window = self._windows[cause] = _Window(now_ns)
        elif now_ns - window.begin_ns >= _SECOND_NS:
            window.begin_ns = now_ns
            window.logged = 0
        if window.logged < EVENTS_PER_SECOND_MAX:
            window.logged += 1
            left_out, window.left_out = window.left_out, 0
            return left_out
        window.left_out += count
        return -1

    def _count(self, cause: Stage, count: int) -> None:
        self.count += count
        self._windows[cause].left_out += count

    def _write(self, cause: Stage, slow: SlowRequest, request: Request, left_out: int) -> None:
        self._log.warning(
            f"slow_request_{cause.label}",
            code=slow.code,
            pair=slow.pair,
            remote=slow.remote,
            topic=topic_of(request),
            total_ms=slow.total_ms,
            slowest_stage=slow.slowest_stage,
            **{f"{name}_ms": took_ms for name, took_ms in slow.stages.items()},
            left_out=left_out,
        )

    def log_left_out(self) -> None:
        """Log the number of requests left out in a past second. Called about once a second."""
        now_ns = self._clock.monotonic_ns()
        due: list[tuple[Stage, int]] = []
        with self._lock:
            for cause, window in self._windows.items():
                if window.left_out and now_ns - window.begin_ns >= _SECOND_NS:
                    due.append((cause, window.left_out))
                    window.left_out = 0
        for cause, left_out in due:
            self._log.warning(f"slow_request_{cause.label}", slowest_stage=cause.label, left_out=left_out)

    def _keep(self, slow: SlowRequest, now_ns: int) -> None:
        with self._lock:
            self._forget(now_ns)
            item = (slow.total_ms, next(self._numbers), now_ns, slow)
            if len(self._slowest) < SLOWEST_MAX:
                heapq.heappush(self._slowest, item)
            elif slow.total_ms > self._slowest[0][0]:
                heapq.heapreplace(self._slowest, item)

    def _forget(self, now_ns: int) -> None:
        kept = [item for item in self._slowest if now_ns - item[2] < KEPT_NS]
        if len(kept) < len(self._slowest):
            self._slowest = kept
            heapq.heapify(kept)

    def slowest(self) -> list[SlowRequest]:
        """Return the slowest requests of the last minute, slowest first."""
        with self._lock:
            self._forget(self._clock.monotonic_ns())
            items = sorted(self._slowest, key=lambda item: -item[0])
        return [slow for *_, slow in items]


def topic_of(request: Request) -> str:
    """Return the topic of a request, "" when it names none."""
    header: Any = request.header
    topic = getattr(header, "topic", "")
    if topic:
        return str(topic)
    for field in ("sections", "queues"):
        rows = getattr(header, field, None)
        if rows:
            return str(rows[0][0])
    return ""


def _slow_request(
    at_ms: int, request: Request, pair: str, remote: str, total_ms: float, cause: Stage, spent_ns: dict[Stage, int]
) -> SlowRequest:
    return SlowRequest(
        at_ms=at_ms,
        code=request.code,
        pair=pair,
        remote=remote,
        total_ms=round(total_ms, 2),
        slowest_stage=cause.label,
        stages={stage.label: round(spent_ns[stage] / 1e6, 2) for stage in sorted(spent_ns)},
    )

"""The stacks of all threads while the broker refuses: the first thing that an operator needs.

Lives here: ``ThreadDumper``, which writes a ``thread_dump`` event on request, at most every 15 s (RocketMQ 5.3
BrokerFastFailure logs a jstack in this way).
"""

import threading
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.common.stacks import Place, thread_places

INTERVAL_NS: Final = 15_000_000_000
FRAMES_MAX: Final = 24
"""Frames of one thread, the innermost ones."""
THREADS_MAX: Final = 56
"""Threads of one event: a log event has at most 64 values."""
STACK_CHARACTERS_MAX: Final = 2048
IDLE: Final = "wait (common/runner.py:"
"""Begins the stack of a worker that sleeps: such stacks are left out first."""

STALLS: Final = frozenset((Cause.PAGE_CACHE_BUSY.value, Cause.QUEUE_TIMEOUT.value))
"""Causes that mean that a part of this process has stood still for too long."""


class ThreadDumper:
    """Writes stacks to the log, in a thread of its own.

    ``on_refused`` is cheap and may be called from any thread, under load. The stacks are a sample: threads run on while
    they are read, and a running thread shows its place at that moment. Bounded: ``THREADS_MAX`` stacks of
    ``STACK_CHARACTERS_MAX`` characters, those of busy threads before those of sleeping workers.
    """

    def __init__(self, clock: Clock, log: EventLog) -> None:
        self._clock = clock
        self._log = log
        self._worker: Worker | None = None
        self._next_ns = 0
        self._cause = ""
        self.dumps = 0

    def start(self, runner: Runner) -> None:
        """Start the thread; it sleeps until a dump is requested."""
        self._worker = runner.start("ThreadDump", self.step, first_after_ms=None)

    def stop(self) -> None:
        """Stop the thread."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def on_refused(self, cause: str) -> None:
        """Request a dump if this cause is one of ``STALLS`` and the last dump is 15 s ago."""
        if cause in STALLS:
            now_ns = self._clock.monotonic_ns()
            worker = self._worker
            if now_ns >= self._next_ns and worker is not None:
                self._next_ns = now_ns + INTERVAL_NS
                self._cause = cause
                worker.wake()

    def step(self) -> float | None:
        """Write the requested dump."""
        cause, self._cause = self._cause, ""
        if cause:
            own = threading.get_ident()
            stacks = thread_stacks(own)
            busy_first = sorted(stacks.items(), key=lambda each: each[1].startswith(IDLE))
            shown = dict(busy_first[:THREADS_MAX])
            self.dumps += 1
            self._log.warning("thread_dump", cause=cause, threads=len(stacks), **shown)
        return None


def thread_stacks(without: int = 0) -> dict[str, str]:
    """Return ``thread_<name>`` → stack of every Python thread but ``without``, innermost frame first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: dict[str, str] = {}
    for ident, places in thread_places().items():
        if ident != without:
            key = f"thread_{names.get(ident, ident)}"
            stacks[key if key not in stacks else f"{key}_{ident}"] = stack_text(places)
    return stacks


def stack_text(places: list[Place]) -> str:
    """Return ``function (file:line) < caller (file:line) < ...``, of at most ``FRAMES_MAX`` calls."""
    parts = [
        f"{function} ({'/'.join(path.rsplit('/', 2)[-2:])}:{line})" for path, line, function in places[:FRAMES_MAX]
    ]
    text = " < ".join(parts)
    return text if len(text) <= STACK_CHARACTERS_MAX else f"{text[:STACK_CHARACTERS_MAX]}…"

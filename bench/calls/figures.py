"""Calls per message, made of the counts of several windows.

Lives here: the threads of a figure, ``Figures`` (of one process), ``Measured`` (of a case).
"""

import statistics
from dataclasses import dataclass, field
from typing import Final

from bench.calls.counter import Counts

LOOP, SEND_THREAD, PULL_THREAD, OTHER, BACKGROUND = "loop", "send thread", "pull thread", "other", "background"
THREADS: Final = (LOOP, SEND_THREAD, PULL_THREAD, OTHER, BACKGROUND)
THREAD_NAMES: Final = {"MainThread": LOOP, "SendMessageThread": SEND_THREAD, "PullMessageThread": PULL_THREAD}
"""How the names of threads begin that a message passes. Threads that are named nowhere here are ``OTHER``."""
BACKGROUND_NAMES: Final = ("consume-queue-writer", "dispatch", "flush-commit-log", "key-index", "log-writer")
"""Threads that follow the messages at their own pace: how many they take at a time depends on the machine."""
TIMERS: Final = (
    "BrokerHousekeeping",
    "BrokerTelemetry",
    "DelayDelivery",
    "DelayProgress",
    "HttpServer",
    "QueueLocks",
    "StagedTransactions",
    "TransactionCheck",
    "checkpoint",
    "ha-service",
    "pocketmq-loop-watch",
    "retention",
)
"""Threads that run by the clock. A tick more or less in a window of a second would be a percent, so their calls are
left out as a whole instead of subtracted.
"""

Calls = dict[str, dict[str, float]]
"""Thread → function → calls per message."""


@dataclass(slots=True)
class Figures:
    """Calls per message of one process, from windows of the same load. Every figure is the median of the windows, so
    that what happens once in a while, on the loop as well, counts in none.
    """

    windows: list[Calls]

    def of(self, *threads: str) -> float:
        """Calls of some of ``THREADS``."""
        return statistics.median(
            sum(sum(window.get(thread, {}).values()) for thread in threads) for window in self.windows
        )

    @property
    def path(self) -> float:
        """Calls of the threads that a message passes on its way."""
        return self.of(*(thread for thread in THREADS if thread != BACKGROUND))

    @property
    def total(self) -> float:
        """Calls of all threads."""
        return self.of(*THREADS)

    def top(self, count: int) -> list[tuple[str, str, float]]:
        """Return (thread, function, calls) of the functions with the most calls."""
        names = {(thread, name) for window in self.windows for thread, found in window.items() for name in found}
        rows = [
            (thread, name, statistics.median(window.get(thread, {}).get(name, 0.0) for window in self.windows))
            for thread, name in names
        ]
        return sorted(rows, key=lambda row: (-row[2], row))[:count]


@dataclass(slots=True)
class Measured:
    """One case: the figures of each counted process, and the frames that the broker's send thread served."""

    case: str
    count: int
    frames: int
    sides: dict[str, Figures] = field(default_factory=dict)


def thread_of(name: str) -> str:
    """Return which of ``THREADS`` a thread's name belongs to."""
    if name in BACKGROUND_NAMES:
        return BACKGROUND
    return next((shown for start, shown in THREAD_NAMES.items() if name.startswith(start)), OTHER)


def per_message(busy: Counts, idle: Counts, count: int, longer: float = 1.0) -> Calls:
    """Return busy minus idle per message.

    ``longer``: the length of the busy window, in idle ones. A busy loop misses ticks of a timer: the idle calls of a
    thread count as often as the function that it called most when idle was called in the busy window, ``longer`` times
    at most.
    """
    calls: Calls = {}
    for name in busy.keys() | idle.keys():
        if name in TIMERS:
            continue
        found = calls.setdefault(thread_of(name), {})
        functions, of_idle = busy.get(name, {}), idle.get(name, {})
        most = max(of_idle, key=lambda function: of_idle[function], default="")
        ticks = min(longer, functions.get(most, 0) / of_idle[most]) if most else 0.0
        for sign, counts in ((1.0, functions), (-ticks, of_idle)):
            for function, number in counts.items():
                found[function] = found.get(function, 0.0) + sign * number / count
    return calls

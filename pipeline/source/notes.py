"""Lines for the user: waits for brokers, lost messages.

Lives here: ``print_note``, ``Waiting``.

They go to standard error: of the driver's shell during planning and on ``local`` masters, else of the executor, where
Spark's UI shows it.
"""

import sys
from dataclasses import dataclass, field
from typing import Final

REPEAT_S: Final = 30.0
"""How often a long wait is reported."""


def print_note(text: str) -> None:
    """Print one line."""
    print(f"pocketmq: {text}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Waiting:
    """One wait for brokers, reported when it begins, every ``REPEAT_S``, and when it ends. Times are seconds of any one
    clock.
    """

    _what: str
    _limit_ms: int
    _since_s: float | None = field(default=None, init=False)
    _reported_s: float = field(default=0.0, init=False)

    def failed(self, now_s: float, error: Exception) -> bool:
        """Note a failure; return whether the limit has passed."""
        if self._since_s is None:
            self._since_s = self._reported_s = now_s
            print_note(f"{self._what}: {error}; waiting up to {self._limit_ms} ms (option brokerWaitMs)")
        elif now_s - self._reported_s >= REPEAT_S:
            self._reported_s = now_s
            print_note(f"{self._what}: still waiting after {now_s - self._since_s:.0f} s: {error}")
        return (now_s - self._since_s) * 1000 >= self._limit_ms

    def succeeded(self, now_s: float) -> None:
        """Report that the wait is over."""
        if self._since_s is not None:
            print_note(f"{self._what}: goes on after {now_s - self._since_s:.1f} s")
            self._since_s = None

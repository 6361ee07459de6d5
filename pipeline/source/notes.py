"""Lines for the user: what a query waits for, what it left out.

Lives here: ``tell``, ``Waiting``.

They go to standard error: of the driver's shell for what is planned and on ``local`` masters, else of the executor,
where Spark's UI shows it.
"""

import sys
from typing import Final

REPEAT_S: Final = 30.0
"""How often a wait that goes on is told again."""


def tell(text: str) -> None:
    """Write one line."""
    print(f"pocketmq: {text}", file=sys.stderr, flush=True)


class Waiting:
    """One wait for brokers: told when it begins, every ``REPEAT_S``, and when it ends. Times in seconds, from any one
    clock."""

    def __init__(self, what: str, limit_ms: int) -> None:
        self._what = what
        self._limit_ms = limit_ms
        self._since_s: float | None = None
        self._told_s = 0.0

    def failed(self, now_s: float, error: Exception) -> bool:
        """Note a failure; return whether the limit has passed."""
        if self._since_s is None:
            self._since_s = self._told_s = now_s
            tell(f"{self._what}: {error}; waiting up to {self._limit_ms} ms (option brokerWaitMs)")
        elif now_s - self._told_s >= REPEAT_S:
            self._told_s = now_s
            tell(f"{self._what}: still waiting after {now_s - self._since_s:.0f} s: {error}")
        return (now_s - self._since_s) * 1000 >= self._limit_ms

    def succeeded(self, now_s: float) -> None:
        """Note that it goes on."""
        if self._since_s is not None:
            tell(f"{self._what}: goes on after {now_s - self._since_s:.1f} s")
            self._since_s = None

"""How often a password may be guessed.

Lives here: ``Throttle``.
"""

import time
from collections import deque
from typing import Final

FAILURES_MAX: Final = 5
"""Wrong passwords of one address in a minute."""
ALL_FAILURES_MAX: Final = 60
ADDRESSES_MAX: Final = 1_000
WINDOW_NS: Final = 60_000_000_000


class Throttle:
    """Counts the failures of the last minute, by address and in all."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[int]] = {}
        self._all: deque[int] = deque(maxlen=ALL_FAILURES_MAX)

    def allows(self, address: str) -> bool:
        """Return whether one more try may be made."""
        now_ns = time.monotonic_ns()
        own = self._failures.get(address, ())
        recent = sum(now_ns - each < WINDOW_NS for each in own)
        in_all = sum(now_ns - each < WINDOW_NS for each in self._all)
        return recent < FAILURES_MAX and in_all < ALL_FAILURES_MAX

    def failed(self, address: str) -> None:
        """Count a failure."""
        if address not in self._failures and len(self._failures) >= ADDRESSES_MAX:
            del self._failures[min(self._failures, key=lambda each: self._failures[each][-1])]
        now_ns = time.monotonic_ns()
        self._failures.setdefault(address, deque(maxlen=FAILURES_MAX)).append(now_ns)
        self._all.append(now_ns)

    def succeeded(self, address: str) -> None:
        """Take the last failure back: the try was counted before its answer."""
        own = self._failures.get(address)
        if own:
            own.pop()
            if not own:
                del self._failures[address]
        if self._all:
            self._all.pop()

"""Time as an argument.

Lives here: the ``Clock`` protocol, the system's clock, and a clock that moves only on request.
Nothing else in PocketMQ calls ``time``; a simulation passes ``ManualClock`` and drives a whole cluster.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from. Wall time is for records and people; the monotonic one is for waits and limits."""

    def now_ms(self) -> int:
        """Return the wall time in ms since 1970-01-01 UTC; it may jump."""
        ...

    def monotonic_ns(self) -> int:
        """Return ns since an arbitrary start; it never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return the wall time in ms since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)


class ManualClock:
    """A clock that stands still until ``advance_ms`` moves it; wall and monotonic time move together."""

    __slots__ = ("_now_ns",)

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ns = now_ms * 1_000_000

    def now_ms(self) -> int:
        """Return the wall time in ms."""
        return self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the same instant in ns."""
        return self._now_ns

    def advance_ms(self, delay_ms: float) -> None:
        """Move both times forward by ``delay_ms``."""
        assert delay_ms >= 0
        self._now_ns += int(delay_ms * 1_000_000)

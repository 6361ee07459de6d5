"""Time as an argument.

Lives here: the ``Clock`` protocol, the system's clock, a clock that moves only on request, and ``SteadyTime``, which
does not jump when the wall clock is set.
Nothing else in PocketMQ calls ``time``; a simulation passes ``ManualClock`` and drives a whole cluster.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol


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

    @staticmethod
    def elapsed_ns() -> int:
        """Return monotonic ns that also pass while the machine is suspended, where the system has such a clock."""
        return time.clock_gettime_ns(_ELAPSED)


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's clock_gettime(2); its CLOCK_MONOTONIC stands still while the machine is suspended."""


class ManualClock:
    """A clock that stands still until ``advance_ms`` moves it; wall and monotonic time move together, but for
    ``step_ms``."""

    __slots__ = ("_now_ns", "_step_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ns = now_ms * 1_000_000
        self._step_ms = 0

    def now_ms(self) -> int:
        """Return the wall time in ms."""
        return self._now_ns // 1_000_000 + self._step_ms

    def monotonic_ns(self) -> int:
        """Return the same instant in ns."""
        return self._now_ns

    def advance_ms(self, delay_ms: float) -> None:
        """Move both times forward by ``delay_ms``."""
        assert delay_ms >= 0
        self._now_ns += int(delay_ms * 1_000_000)

    def step_ms(self, step_ms: int) -> None:
        """Set the wall time, as an administrator or NTP does; monotonic time goes on."""
        self._step_ms += step_ms


STEP_MS_MIN: Final = 1_000
"""A wall clock that is further away from where it was has been set."""


class SteadyTime:
    """ms since 1970 that only pass: the wall time of the start and the time that has passed since, also while the
    machine was suspended.

    ``skew_ms``: what the wall clock has more, as far as it was set by a second or more. Belongs to one thread, but for
    ``now_ms``.
    """

    __slots__ = ("_begin_ms", "_begin_ns", "_elapsed_ns", "_wall_ms", "skew_ms")

    def __init__(self, clock: Clock) -> None:
        self._wall_ms = clock.now_ms
        self._elapsed_ns: Callable[[], int] = getattr(clock, "elapsed_ns", clock.monotonic_ns)
        self._begin_ms = clock.now_ms()
        self._begin_ns = self._elapsed_ns()
        self.skew_ms = 0

    def now_ms(self) -> int:
        """Return the time."""
        return self._begin_ms + (self._elapsed_ns() - self._begin_ns) // 1_000_000

    def take_step(self) -> int:
        """Return by how many ms the wall clock has been set since the last call; 0: less than ``STEP_MS_MIN``."""
        step_ms = self._wall_ms() - self.now_ms() - self.skew_ms
        if abs(step_ms) < STEP_MS_MIN:
            return 0
        self.skew_ms += step_ms
        return step_ms

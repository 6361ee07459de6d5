"""When an open-loop load sends: at times fixed beforehand, independent of earlier answers.

Lives here: ``Schedule``, the intended times of sending, and ``pace``, which sends at them. A latency counted from an
intended time includes the delay that a stalled server or client causes for later sends: no coordinated omission.
"""

import asyncio
import random
import time
from collections.abc import Callable


class Schedule:
    """Intended times in seconds from 0 to ``seconds``, ``rate`` a second on average, with exponential gaps by ``seed``.

    The times are the same for every peer. ``take(now)`` hands out, in order, what is due.
    """

    def __init__(self, rate: float, seconds: float, seed: int = 1) -> None:
        if rate <= 0 or seconds <= 0:
            raise ValueError(f"a schedule needs a rate and a time above 0, not {rate} and {seconds}")
        self.rate = rate
        self.seconds = seconds
        self._random = random.Random(seed)
        self._next = self._random.expovariate(rate)
        self.lag_s_max = 0.0
        """The longest delay of the generator itself: time that the server did not cause."""

    @property
    def over(self) -> bool:
        """Whether every time has been handed out."""
        return self._next >= self.seconds

    @property
    def next_at(self) -> float:
        """The next intended time."""
        return self._next

    def take(self, now: float, most: int = 256) -> list[float]:
        """Return the intended times up to ``now``, at most so many at once."""
        if self._next <= now and not self.over:
            self.lag_s_max = max(self.lag_s_max, now - self._next)
        due: list[float] = []
        while self._next <= now and not self.over and len(due) < most:
            due.append(self._next)
            self._next += self._random.expovariate(self.rate)
        return due


async def pace(schedule: Schedule, send: Callable[[float], None], begin: float, tick_s: float = 0.0) -> None:
    """Call ``send`` with each intended time, in seconds since ``begin`` (``time.perf_counter``), when it has come.

    ``tick_s``: sleep at least so long where nothing is due.
    """
    while not schedule.over:
        wait_s = schedule.next_at - (time.perf_counter() - begin)
        await asyncio.sleep(max(wait_s, tick_s) if wait_s > 0 else 0)
        for at_s in schedule.take(time.perf_counter() - begin):
            send(at_s)


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Wait for ``event``, but no longer than ``within_s``; return whether it came."""
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False

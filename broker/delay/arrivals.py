"""When the messages of a level are due, whatever happens to the wall clock.

Lives here: ``Arrivals``, by the moments at which the entries of a level's queue came.

A level is a span of time: it must not matter that somebody sets the clock meanwhile. So levels are timed by
``SteadyTime``. Queue entries, however, hold due
times by the wall clock of their append, and by one that never goes back: after a step forth and back all are too late.
"""

import threading
from bisect import bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLES: Final = 16_384
"""Moments that one level remembers: no message is later by more than this part of its delay."""

SAMPLES_MAX: Final = 4 * SAMPLES
UNKNOWN: Final = -(1 << 62)
"""A skew by which no due time comes before any arrival."""

Int64s = NDArray[np.int64]


class Arrivals:
    """The due times of one level's entries, by steady time.

    Any thread. An entry is due when its own due time has come, less the skew under which it was appended, but no later
    than the delay after its arrival; one that is from before the start, no later than the delay after the start. Of
    entries that came around a step of the clock nobody knows the skew: the delay after their arrival counts alone.
    """

    __slots__ = (
        "_caps",
        "_delay_ms",
        "_ends",
        "_grain_ms",
        "_lock",
        "_next_skew_ms",
        "_skew_from",
        "_skews",
        "_start_ms",
    )

    def __init__(self, delay_ms: int, start_ms: int) -> None:
        self._delay_ms = delay_ms
        self._start_ms = start_ms
        self._grain_ms = delay_ms // SAMPLES
        self._lock = threading.Lock()
        self._ends: list[int] = [0]  # entries below each end came no later than ...
        self._caps: list[int] = [start_ms]  # ... this
        self._skew_from: list[int] = [0]
        self._skews: list[int] = [0]
        self._next_skew_ms: int | None = None  # of what comes after the entries around a step

    def open(self, end: int) -> None:
        """Note that entries below ``end`` are from before the start."""
        with self._lock:
            self._ends, self._caps = [end], [self._start_ms]

    def arrived(self, end: int, now_ms: int) -> None:
        """Note that the queue has entries up to ``end`` now."""
        with self._lock:
            ends, caps = self._ends, self._caps
            if end <= ends[-1]:
                return
            if self._next_skew_ms is not None:
                self._skew_from += [ends[-1], end]
                self._skews += [UNKNOWN, self._next_skew_ms]
                self._next_skew_ms = None
            if len(ends) > 1 and now_ms <= caps[-1]:
                ends[-1] = end
            else:
                ends.append(end)
                caps.append(now_ms + self._grain_ms)
                if len(ends) > SAMPLES_MAX:  # each entry takes the later of two moments
                    del ends[:-1:2], caps[:-1:2]

    def stepped(self, skew_ms: int) -> None:
        """Note that the wall clock has been set since the last call of ``arrived``."""
        with self._lock:
            self._next_skew_ms = skew_ms

    def due(self, first: int, tags_codes: Int64s, now_ms: int) -> Int64s:
        """Return when the entries from offset ``first`` on are due, and forget what came before them."""
        offsets = np.arange(first, first + len(tags_codes))
        with self._lock:
            skews = np.array(self._skews)[np.searchsorted(self._skew_from, offsets, "right") - 1]
            if self._next_skew_ms is not None:
                skews[offsets >= self._ends[-1]] = UNKNOWN
            known = bisect_right(self._ends, first)
            keep = max(0, min(known, len(self._ends) - 1))
            del self._ends[:keep], self._caps[:keep]
            at = np.searchsorted(self._ends, offsets, "right")
            caps = np.append(self._caps, now_ms)[at]
            while len(self._skew_from) > 1 and self._skew_from[1] <= first:
                del self._skew_from[0], self._skews[0]
        due: Int64s = np.minimum(tags_codes - skews, caps + self._delay_ms)
        return due

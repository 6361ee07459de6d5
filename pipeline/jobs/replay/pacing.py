"""Due times of rows.

Lives here: ``Pace``: as fast as possible, at a rate, or in their own time. Pure: the caller passes the time.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LAG_S_MAX = 1.0
"""A rate is an upper bound: a delay longer than this is not made up for."""


@dataclass(slots=True)
class Pace:
    """``rate``: rows per second, 0 for none. ``speed``: 1 follows the rows' times, 2 doubles it, 0 ignores them."""

    rate: float = 0.0
    speed: float = 0.0
    _begin_s: float | None = field(default=None, init=False)
    _first_us: int = field(default=0, init=False)
    _row: int = field(default=0, init=False)

    def due_s(self, when_us: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        """Return when the next rows are due, on the clock of ``now_s``; neither times nor results decrease."""
        count = len(when_us)
        if self._begin_s is None:
            self._begin_s = now_s
            self._first_us = int(when_us[0]) if count else 0
        if self.rate:
            due = self._begin_s + np.arange(self._row, self._row + count) / self.rate
        elif self.speed:
            due = self._begin_s + (when_us - self._first_us) / 1e6 / self.speed
        else:
            due = np.full(count, now_s)
        self._row += count
        return due

    def late(self, due_s: NDArray[np.float64], now_s: float) -> NDArray[np.float64]:
        """Return when waiting rows are due, at ``now_s``: a rate that has fallen far behind starts again."""
        if not self.rate or self._begin_s is None or not len(due_s) or now_s - float(due_s[0]) <= LAG_S_MAX:
            return due_s
        behind_s = now_s - float(due_s[0])
        self._begin_s += behind_s
        return due_s + behind_s

"""Two frames a turn where that is faster: the broker appends the first while the client builds the second.

Lives here: ``Overlap``. Pure: it gets counts and times, and says at how many records a turn is cut.

It depends on the machine: with a core for each side two halves are up to a third faster, on one core a tenth slower,
and a program cannot ask which it has. So a producer that sends much compares both: six windows of ``WINDOW_RECORDS``,
in turns without and with a cut, once in ``PERIOD`` windows. It cuts if the median time with a cut is below ``GAIN`` of
that without, and goes on until a later comparison shows no gain.
"""

from typing import Final

RECORDS_MIN: Final = 16
"""Smaller parts are never cut off: a frame costs both sides as much as ten records. Smaller turns are not counted."""
WINDOW_RECORDS: Final = 4096
PERIOD: Final = 64
TRIAL: Final = 6
"""Windows of a comparison: an odd number of each kind, which has a median."""
GAIN: Final = 0.9
"""Time with a cut, as a part of the time without, from which on a cut pays."""
PAUSE_NS: Final = 20_000_000
"""A longer gap between turns is the application's, and no measure of the way."""
NEVER: Final = 1 << 62


class Overlap:
    """Decides for one producer. Times are monotonic ns. ``cut_at``: how many records of a turn leave before its end."""

    __slots__ = ("_cutting", "_last_ns", "_most", "_records", "_start_ns", "_times", "_window", "cut_at")

    def __init__(self) -> None:
        self.cut_at = NEVER
        self._cutting = False
        self._window = 0  # of the period; the first windows are the comparison
        self._times: list[float] = []  # ns a record, of the windows compared so far
        self._records = 0
        self._most = 0  # records in flight after a turn
        self._start_ns = self._last_ns = 0

    def turn(self, count: int, in_flight: int, now_ns: int) -> None:
        """Take note of a turn that has just left: ``count`` records, ``in_flight`` of them and of earlier turns."""
        if now_ns - self._last_ns > PAUSE_NS:
            self._begin(now_ns)
        else:
            self._records += count
            self._most = max(self._most, in_flight)
            if self._records >= WINDOW_RECORDS:
                self._end(now_ns)
        self._last_ns = now_ns

    def _begin(self, now_ns: int) -> None:
        self._start_ns, self._records = now_ns, 0

    def _end(self, now_ns: int) -> None:
        """Close a window, and choose for the next one."""
        if self._window < TRIAL:
            self._times.append((now_ns - self._start_ns) / self._records)
        self._window += 1
        if self._window == TRIAL:
            with_cut, without = sorted(self._times[1::2])[TRIAL // 4], sorted(self._times[::2])[TRIAL // 4]
            self._cutting = with_cut < without * (1.0 if self._cutting else GAIN)
            self._times.clear()
        elif self._window == PERIOD:
            self._window = 0
        cuts = self._window % 2 == 1 if self._window < TRIAL else self._cutting
        half = self._most // 2
        self.cut_at = half if cuts and half >= RECORDS_MIN else NEVER
        self._most = 0
        self._begin(now_ns)

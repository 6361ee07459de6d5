"""When a process that has ended starts again.

Lives here: ``RestartPolicy``. It is fed with times and starts nothing.
"""

from dataclasses import dataclass
from typing import Final

PAUSE_MS_MIN: Final = 500
PAUSE_MS_MAX: Final = 30_000
STEADY_MS: Final = 60_000
"""A process that served for so long begins again with the shortest pause."""
FAILED_STARTS_MAX: Final = 5
"""Restarts in a row that do not reach the ready line; then the process cannot start at all."""


@dataclass(slots=True)
class RestartPolicy:
    """Pauses of one process: 0.5 s, then twice as long each time, at most 30 s.

    A process that serves and dies is restarted for ever; one that does not reach its ready line five times in a row is
    given up. Times in ms of one monotonic clock.
    """

    restarts: int = 0
    """Since the start of the cluster."""
    failed_starts: int = 0
    _in_a_row: int = 0
    _ready_ms: int | None = None

    def ready(self, now_ms: int) -> None:
        """The process serves."""
        self._ready_ms = now_ms
        self.failed_starts = 0

    def ended(self, now_ms: int) -> int | None:
        """Return the pause before the next start in ms, or None: give up."""
        if self._ready_ms is None:
            self.failed_starts += 1
            if self.failed_starts >= FAILED_STARTS_MAX:
                return None
        elif now_ms - self._ready_ms >= STEADY_MS:
            self._in_a_row = 0
        self._ready_ms = None
        pause_ms = min(PAUSE_MS_MAX, PAUSE_MS_MIN << min(self._in_a_row, 16))
        self._in_a_row += 1
        self.restarts += 1
        return pause_ms

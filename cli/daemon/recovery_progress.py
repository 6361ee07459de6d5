"""Shows the progress of a long recovery before the ready line.

Lives here: ``RecoveryProgress``: a bar on a terminal, else one line a second. Shows nothing for the first second.
"""

import threading
from typing import TYPE_CHECKING, Final, TextIO

from pocketmq.common.clock import Clock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_MS: Final = 1000
LINE_MS: Final = 1000
VERIFYING: Final = "recovery: verifying the log"
REBUILDING: Final = "recovery: rebuilding queues"


class RecoveryProgress:
    """Call it with (offset reached, end); ``close`` it when the store is open. Any thread, one at a time."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._started_ns = clock.monotonic_ns()
        self._shown_ns = 0
        self._first = self._last = 0
        self._what = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._closed = False

    def __call__(self, offset: int, end: int) -> None:
        """Show that bytes up to ``offset`` of ``end`` are done; a smaller offset than the last begins the next part."""
        with self._lock:
            if not self._what or offset < self._last:
                self._what = REBUILDING if self._what else VERIFYING
                self._first = offset
                self._drop_task()
            self._last = offset
            now_ns = self._clock.monotonic_ns()
            if self._closed or now_ns - self._started_ns < QUIET_MS * 1_000_000:
                return
            done_bytes, total_bytes = offset - self._first, max(1, end - self._first)
            if self._stream.isatty():
                self._draw(done_bytes, total_bytes)
            elif now_ns - self._shown_ns >= LINE_MS * 1_000_000:
                self._shown_ns = now_ns
                percent = min(100, 100 * done_bytes // total_bytes)
                text = f"{self._what}: {percent} % ({done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB)"
                print(text, file=self._stream, flush=True)

    def _draw(self, done_bytes: int, total_bytes: int) -> None:
        if self._bar is None:
            from rich.console import Console  # 30 ms, in the thread that recovers: most starts show no bar
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(file=self._stream), transient=True)
            self._bar.start()
        if self._task is None:
            self._task = self._bar.add_task(self._what, total=total_bytes)
        self._bar.update(self._task, completed=done_bytes, total=total_bytes)

    def _drop_task(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
        self._task = None

    def close(self) -> None:
        """Remove the bar; later calls show nothing."""
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

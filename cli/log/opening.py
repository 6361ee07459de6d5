"""Shared by all ``pocketmq log`` commands: the directory, the progress bar in bytes, the check for a running broker.

Lives here: options, ``open_store``, ``BytesBar``, ``locked_by_broker``.
"""

import fcntl
import os
import struct
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.cli.output import PROGRESS_AFTER_S, REDRAW_S
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from pocketmq.store.offline.reader import StoreReader

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The store: the directory that holds commitlog/.")]
IndexNumbers = Annotated[
    str,
    typer.Option(
        "--index-numbers",
        metavar="SLOTS:ENTRIES",
        help="max_hash_slot_num and max_index_num of the index files, if their size is ambiguous.",
    ),
]
RECHECK_S: Final = 0.05
_LINE_S: Final = 5.0
_FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


def index_numbers(text: str) -> tuple[int, int] | None:
    """Return the two numbers of ``--index-numbers``. Raises ``ConfigError``."""
    if not text:
        return None
    slots, _, entries = text.partition(":")
    if not (slots.isdecimal() and entries.isdecimal() and int(slots) > 0 and int(entries) > 0):
        raise ConfigError("bad --index-numbers", why=text, hint="write SLOTS:ENTRIES, e.g. 5000000:20000000")
    return int(slots), int(entries)


def open_store(directory: str, numbers: str = "", *, warns: bool = True) -> "StoreReader":
    """Open a store for reading only. ``warns``: say on standard error that write buffers hold more than its log."""
    from pocketmq.store.offline.buffers import buffers_left
    from pocketmq.store.offline.reader import StoreReader

    reader = StoreReader.open(directory, pause=_pause, index_numbers=index_numbers(numbers))
    buffers = buffers_left(reader.file_system, reader.paths) if warns else None
    if buffers is not None:
        print(f"warning: {buffers.text}", file=sys.stderr)
    return reader


def _pause() -> None:
    time.sleep(RECHECK_S)


def locked_by_broker(path: str) -> bool | None:
    """Return whether another process holds the store's lock file, without taking it; None if that is not known.

    Our broker and RocketMQ's (Java FileLock) both lock it by ``fcntl``.
    """
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK
    except OSError:
        return None
    finally:
        os.close(descriptor)


class BytesBar:
    """A bar of bytes on standard error: bytes, rate, time left. In a pipe one line every five seconds."""

    def __init__(self, title: str, total_bytes: int, *, wanted: bool = True) -> None:
        self._title = title
        self._total = total_bytes
        self._done = 0
        self._begin = time.monotonic()
        self._shown_at = self._begin
        self._wanted = wanted
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def start(self, title: str, total_bytes: int) -> None:
        """Restart with another title."""
        if title != self._title:
            self.close()
            self._title, self._total, self._done = title, total_bytes, 0
            self._begin = self._shown_at = time.monotonic()

    def advance(self, count: int) -> None:
        """Add processed bytes."""
        self._done = min(self._total, self._done + count)
        if not self._wanted:
            return
        now = time.monotonic()
        if sys.stderr.isatty():
            if now - self._begin >= PROGRESS_AFTER_S and now - self._shown_at >= REDRAW_S:
                self._shown_at = now
                self._draw()
        elif now - self._shown_at >= _LINE_S:
            self._shown_at = now
            rate = self._done / (now - self._begin) / 1e6
            print(
                f"{self._title}: {self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB, {rate:,.0f} MB/s",
                file=sys.stderr,
            )

    def _draw(self) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns: list[Any] = [
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            ]
            self._progress = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
            self._task = self._progress.add_task(self._title, total=self._total)
            self._progress.start()
        assert self._task is not None
        self._progress.update(self._task, completed=self._done, refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

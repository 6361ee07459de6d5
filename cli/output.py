"""The output of the command: results on standard output, everything else on standard error.

Lives here: tables (``drawn_table`` on a terminal, tab-separated in a pipe), JSON, times, errors, progress bars.
"""

import contextlib
import datetime
import os
import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from pocketmq.cli.drawn_table import TimeText, draw_table
from pocketmq.common.errors import PocketMQError
from pocketmq.common.printable import printable as escaped

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PROGRESS_AFTER_S: Final = 1.0
"""Work of less than a second needs no bar."""
REDRAW_S: Final = 0.1
_KEPT: Final = "\n\t"
"""Control characters that an error may have: RocketMQ's texts have several lines."""


def open_standard_files() -> None:
    """Open ``/dev/null`` as descriptor 0, 1 or 2 where it was closed (``>&-``).

    Otherwise the next file or socket gets its number: uvloop then aborts the process, and a log file would receive the
    output.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # pragma: no cover: the lowest free number is the one that was closed
                os.dup2(opened, descriptor)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Print rows: a drawn table on a terminal; in a pipe tab-separated lines with a header."""
    if sys.stdout.isatty():
        draw_table(columns, [[_clean(value) for value in row] for row in rows], title)
        return
    print("\t".join(columns))
    for row in rows:
        print("\t".join(_plain(value) for value in row))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool, *, title: str = "") -> None:
    """Print rows as a table, or as a JSON list of objects."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows, title=title)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    print(msgspec.json.encode(value, enc_hook=str).decode())  # a TimeText is a str, but not to msgspec


def print_done(text: str, as_json: bool, **facts: object) -> None:
    """Print what a command has changed: a sentence, or one line of JSON."""
    if as_json:
        print_json(facts)
    else:
        print(text)


def print_note(text: str) -> None:
    """Print a note, which is not a result: on standard error, only if that is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def print_progress(progress: object) -> None:
    """Print the progress of a wait: a line on standard error, also in a pipe, since a log must show the reason."""
    print(progress, file=sys.stderr, flush=True)


def print_error(error: PocketMQError) -> None:
    """Print what happened, why and what to do, on standard error."""
    if not sys.stderr.isatty():
        lines = [line.strip() for line in str(error).splitlines()]  # each attempt of a send has one
        print("error: " + "; ".join(filter(None, lines)).replace("; (", " ("), file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    text = Text.assemble(("error: ", "bold red"), (escaped(error.what, keep=_KEPT), "bold"))
    if error.why:
        text.append(f"\n  why   {escaped(error.why, keep=_KEPT)}")
    if error.hint:
        text.append(f"\n  hint  {escaped(error.hint, keep=_KEPT)}", "cyan")
    Console(stderr=True, highlight=False).print(text, soft_wrap=True)


def printable(text: str, keep: str = "") -> str:
    """Return text with a mark in the place of each control character, so that a table keeps its columns."""
    return "".join(char if char.isprintable() or char in keep else "\N{REPLACEMENT CHARACTER}" for char in text)


def _clean(value: object) -> object:
    if value is None or isinstance(value, int | float | TimeText):
        return value
    return printable(str(value))


def _plain(value: object) -> str:
    text = "" if value is None else str(value)
    return printable(text.replace("\t", " ").replace("\n", " "))


class ProgressBar:
    """A bar on standard error after the first second; silent in a pipe. ``total`` None: count and rate."""

    def __init__(self, title: str, total: int | None, *, unit: str = "messages", wanted: bool = True) -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._count = 0
        self._begin = time.monotonic()
        self._shown_at = 0.0
        self._wanted = wanted and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def advance(self, count: int = 1) -> None:
        """Add to the count; draw at most ten times a second."""
        self._count += count
        if not self._wanted:
            return
        now = time.monotonic()
        if now - self._begin < PROGRESS_AFTER_S or now - self._shown_at < REDRAW_S:
            return
        self._shown_at = now
        if self._progress is None:
            self._progress = self._open()
            self._task = self._progress.add_task(self._title, total=self._total, rate="")
            self._progress.start()
        assert self._task is not None
        rate = f"{self._count / (now - self._begin):,.0f} {self._unit}/s"
        self._progress.update(self._task, completed=self._count, rate=rate, refresh=True)

    def _open(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns: list[Any] = [
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
        ]
        if self._total is not None:
            columns.append(TimeRemainingColumn())
        return Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._wanted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def quiet_broken_pipe() -> Iterator[None]:
    """End quietly when the reader of standard output has gone (``| head``): it has all it wanted."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter's last flush must not fail too


def time_or_none(timestamp_ms: int) -> str | None:
    """Return ``time_text``, or None for 0: there is no such time."""
    return time_text(timestamp_ms) if timestamp_ms else None


def time_text(timestamp_ms: int) -> str:
    """Return ms since 1970 as text in UTC, or as a number where the calendar ends; in a drawn table it is an age."""
    try:
        when = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return TimeText(when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z", timestamp_ms)

"""Output of a job: results on standard output, progress and notes on standard error.

Lives here: tables (drawn on a terminal, tab-separated in a pipe), JSON, ``Progress``.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

if TYPE_CHECKING:
    from rich import progress as bars

LINE_EVERY_S: Final = 30.0
"""Without a terminal, progress is a line at this interval, for the logs of schedulers."""


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    print(msgspec.json.encode(value).decode(), flush=True)


def print_result(result: Mapping[str, object], as_json: bool, title: str) -> None:
    """Print the counts of a job: as JSON, or as a table of one row."""
    if as_json:
        print_json(result)
    else:
        print_table(tuple(result), [tuple(result.values())], title=title)


def note(text: str) -> None:
    """Print a line about the job's progress, for a person or a scheduler's log."""
    print(text, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Print rows: a drawn table on a terminal; in a pipe one tab-separated line per row, below a header line."""
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for row in rows:
            print("\t".join(_text(value).replace("\t", " ").replace("\n", " ") for value in row))
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(f"{value:,}" if isinstance(value, int) else _text(value)) for value in row))
    Console().print(table)


def _text(value: object) -> str:
    return "" if value is None else str(value)


class Progress:
    """Progress of a job: a bar on a terminal, else a line each ``LINE_EVERY_S``. ``total`` None: only the count."""

    def __init__(self, title: str, total: int | None, unit: str = "rows") -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._count = 0
        self._begin = self._said = time.monotonic()
        self._bars: bars.Progress | None = None
        self._task: bars.TaskID | None = None

    def reach(self, count: int) -> None:
        """Set the number done to ``count``."""
        self._count = max(count, self._count)
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self._count, rate=self._rate())
        elif time.monotonic() - self._said >= LINE_EVERY_S:
            self._said = time.monotonic()
            of = "" if self._total is None else f" of {self._total:,}"
            note(f"{self._title}: {self._count:,}{of} {self._unit}, {self._rate()}")

    def _rate(self) -> str:
        return f"{self._count / max(time.monotonic() - self._begin, 1e-3):,.0f} {self._unit}/s"

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
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
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bars.add_task(self._title, total=self._total, rate="")
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

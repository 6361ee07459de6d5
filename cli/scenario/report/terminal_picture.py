"""The picture in the terminal: for each run its sends over time, with latency and outcome, or its timeline.

Lives here: ``print_picture``, ``grid`` (the cells of a run's sends), ``row`` (those of one row of a timeline). Drawn
with rich, which the command needs anyway: plotext 6 shares no call with plotext 5, contains an image and video player,
and has no types.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pocketmq.cli.scenario.report.report import Phase, Report

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS: Final = 72
DECADES: Final = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
"""Rows start at these ms; each decade has ``ROWS_A_DECADE``."""
ROWS_A_DECADE: Final = 2
SHADES: Final = "·░▒▓█"
STYLES: Final = ("red", "yellow", "magenta", "cyan", "blue")
"""Of failed sends, the same in all runs; delivered ones are green."""
SPANS: Final = {
    "first": ("1", "blue"),
    "second": ("2", "green"),
    "first, which is gone": ("x", "red"),
    "nobody": ("·", "dim"),
}
"""Mark and style of each span of a timeline."""

Cell = tuple[int, int]
"""(most frequent outcome in this cell, sends in it); (-1, 0): none."""


def grid(phase: Phase, seconds: float) -> list[list[Cell]]:
    """Return rows (longest first) of cells; the columns cover ``seconds``."""
    lowest, rows = math.log10(DECADES[0]), ROWS_A_DECADE * (len(DECADES) - 1)
    counts: dict[tuple[int, int], Counter[int]] = {}
    for point in phase.points:
        column = _column(point.at_s, seconds)
        height = (math.log10(max(point.took_ms, DECADES[0])) - lowest) * ROWS_A_DECADE
        row = rows - 1 - min(rows - 1, max(0, int(height)))
        counts.setdefault((row, column), Counter())[point.outcome] += 1
    cells: list[list[Cell]] = [[(-1, 0)] * COLUMNS for _ in range(rows)]
    for (row, column), found in counts.items():
        cells[row][column] = (found.most_common(1)[0][0], found.total())
    return cells


def shade(count: int, most: int) -> str:
    """Return a character for the number of sends in a cell, darker for more, on a log scale."""
    if count == 0:
        return " "
    share = math.log(count + 1) / math.log(most + 1)
    return SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))]


def row(phase: Phase, lane: str, seconds: float) -> list[str]:
    """Return the name of the span in each column of a lane, or nothing."""
    cells = [""] * COLUMNS
    for span in phase.spans:
        if span.lane == lane:
            first, last = _column(span.from_s, seconds), _column(span.to_s, seconds)
            cells[first : last + 1] = [span.what] * (last + 1 - first)
    return cells


def _column(at_s: float, seconds: float) -> int:
    return min(COLUMNS - 1, int(at_s / seconds * COLUMNS)) if seconds else 0


def print_picture(report: Report) -> None:
    """Draw every run, one below the other; nothing in a pipe, where the tables hold it all."""
    if not sys.stdout.isatty():
        return
    from rich.console import Console

    console = Console(highlight=False)
    ends = [point.at_s for phase in report.phases for point in phase.points]
    if report.has_timeline:
        ends = [span.to_s for phase in report.phases for span in phase.spans]
    colors = report.colors(("green",), STYLES)
    for phase in report.phases:
        console.print(f"\n{phase.role}: {phase.name}", style="bold", markup=False)
        if report.has_timeline:
            _print_timeline(console, phase, max(ends, default=0.0))
        else:
            _print_sends(console, phase, max(ends, default=0.0), colors)
    if report.has_timeline:
        legend = ", ".join(f"{mark} {what}" for what, (mark, _) in SPANS.items())
        console.print(f"\n{legend}; ┴ the first one ends; an empty work row: the queue stands still", markup=False)


def _print_sends(console: "Console", phase: Phase, seconds: float, known: Mapping[str, str]) -> None:
    from rich.text import Text

    cells = grid(phase, seconds)
    colors = [known[outcome.text_without_numbers] for outcome in phase.outcomes]
    most = max((count for row in cells for _, count in row), default=0)
    for number, row in enumerate(cells):
        decade, part = divmod(len(cells) - 1 - number, ROWS_A_DECADE)
        text = Text(f"{DECADES[decade]:>8,g} ms │" if part == 0 else "            │")
        for outcome, count in row:
            text.append(shade(count, most), colors[outcome] if count else None)
        console.print(text, soft_wrap=True)
    console.print(f"            └{'─' * COLUMNS} {seconds:.1f} s", markup=False, soft_wrap=True)
    for each, color in zip(phase.outcomes, colors, strict=True):
        line = Text("             ").append("█ ", color).append(f"{each.count:,} × {each.text}")
        console.print(line, soft_wrap=True, overflow="ellipsis", no_wrap=True)


def _print_timeline(console: "Console", phase: Phase, seconds: float) -> None:
    from rich.text import Text

    for lane in ("lock", "work"):
        text = Text(f"{lane:>6} │")
        for what in row(phase, lane, seconds):
            text.append(*SPANS.get(what, (" ", None)))
        console.print(text, soft_wrap=True)
    column = _column(phase.ended_s, seconds)
    axis = f"       └{'─' * column}┴{'─' * (COLUMNS - column - 1)} {seconds:.1f} s"
    console.print(axis, markup=False, soft_wrap=True)

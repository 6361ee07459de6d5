"""The picture in the terminal: for each run, when sends were made, how long they took, how they ended.

Lives here: ``print_picture``, ``grid`` (the cells of one run). Drawn with rich, which the command has anyway: plotext
6 shares no call with plotext 5, brings an image and video player, and has no types.
"""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pocketmq.cli.scenario.report.report import Outcome, Phase, Report

COLUMNS: Final = 72
DECADES: Final = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
"""Rows start at these ms; each decade has ``ROWS_A_DECADE``."""
ROWS_A_DECADE: Final = 2
SHADES: Final = "·░▒▓█"
STYLES: Final = ("red", "yellow", "magenta", "cyan", "blue")
"""Of what failed, in the order of the outcomes; delivered ones are green."""

Cell = tuple[int, int]
"""(outcome that is most often in this cell, sends in it); (-1, 0): none."""


def grid(phase: Phase, seconds: float) -> list[list[Cell]]:
    """Return rows (longest first) of cells; the columns cover ``seconds``."""
    lowest, rows = math.log10(DECADES[0]), ROWS_A_DECADE * (len(DECADES) - 1)
    counts: dict[tuple[int, int], Counter[int]] = {}
    for point in phase.points:
        column = min(COLUMNS - 1, int(point.at_s / seconds * COLUMNS)) if seconds else 0
        height = (math.log10(max(point.took_ms, DECADES[0])) - lowest) * ROWS_A_DECADE
        row = rows - 1 - min(rows - 1, max(0, int(height)))
        counts.setdefault((row, column), Counter())[point.outcome] += 1
    cells: list[list[Cell]] = [[(-1, 0)] * COLUMNS for _ in range(rows)]
    for (row, column), found in counts.items():
        cells[row][column] = (found.most_common(1)[0][0], found.total())
    return cells


def styles(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the color of each outcome."""
    failed = iter(range(len(outcomes)))
    return ["green" if outcome.delivered else STYLES[next(failed) % len(STYLES)] for outcome in outcomes]


def shade(count: int, most: int) -> str:
    """Return a character that is the darker the more sends a cell has, on a log scale."""
    if count == 0:
        return " "
    share = math.log(count + 1) / math.log(most + 1)
    return SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))]


def print_picture(report: Report) -> None:
    """Draw every run, one below the other; nothing in a pipe, where the tables say all."""
    if not sys.stdout.isatty():
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    seconds = max((point.at_s for phase in report.phases for point in phase.points), default=0.0)
    for phase in report.phases:
        console.print(f"\n{phase.role}: {phase.name}", style="bold", markup=False)
        cells, colors = grid(phase, seconds), styles(phase.outcomes)
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

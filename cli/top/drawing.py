"""The screen of ``pocketmq top`` as lines.

Lives here: ``screen``; how numbers and ages are written. Names come from brokers: each is made safe for a terminal, and
each line is cut to the width.
"""

import time
from collections.abc import Sequence
from typing import Final

from pocketmq.cli.output import printable
from pocketmq.cli.top.overview import Overview, Sort

REASONS_SHOWN: Final = 4
KEYS: Final = "keys: r rate  l lag  f refusals  q quit"
_NAME_SHOWN: Final = 48
_TEXT_SHOWN: Final = 60
_GAP: Final = "  "
BOLD, RED, YELLOW, GREEN, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"
_COLORS: Final = {"ok": GREEN, "warning": YELLOW, "failing": RED}
Cell = str | int | float | None


def screen(
    view: Overview, sort: Sort, limit: int, *, width: int = 0, height: int = 0, is_colored: bool = False, keys: str = ""
) -> list[str]:
    """Return the lines of an overview: ``limit`` rows a table, cut to ``width`` and ``height`` (0: not cut)."""
    at = time.strftime("%H:%M:%S", time.gmtime(view.at_ms / 1000)) + "Z"
    lines = [
        f"{at}  health {view.health}  in {rate(view.in_rate)}/s  out {rate(view.out_rate)}/s  lag {view.lag:,}  "
        f"refused {view.refused:,}/min  sorted by {sort.value}"
    ]
    lines += [f"  {printable(reason)}" for reason in view.reasons[:REASONS_SHOWN]]
    if len(view.reasons) > REASONS_SHOWN:
        lines.append(f"  ... {len(view.reasons) - REASONS_SHOWN} more reasons")
    heads = set()
    for columns, rows in _tables(view):
        if not rows:
            continue
        lines.append("")
        heads.add(len(lines))
        lines += _table(columns, rows[:limit])
        if len(rows) > limit:
            lines.append(f"... {len(rows) - limit:,} more")
    if keys:
        lines += ["", keys]
    if width:
        lines = [line[:width] for line in lines]
    if is_colored:
        color = _COLORS.get(view.health, "")
        lines[0] = lines[0].replace(f"health {view.health}", f"health {color}{view.health}{PLAIN}", 1)
        lines = [f"{BOLD}{line}{PLAIN}" if number in heads else line for number, line in enumerate(lines)]
    return lines[:height] if height else lines


def _tables(view: Overview) -> list[tuple[tuple[str, ...], list[tuple[Cell, ...]]]]:
    return [
        (
            ("broker", "in/s", "out/s", "refused/min", "health", "version"),
            [(row.broker, row.in_rate, row.out_rate, row.refused, row.health, row.version) for row in view.brokers],
        ),
        (
            ("topic", "in/s", "lag", "groups"),
            [(row.topic, row.in_rate, row.lag, row.groups) for row in view.topics],
        ),
        (
            ("group", "lag", "behind", "out/s", "topics"),
            [
                (row.group, row.lag, "-" if row.lag_s is None else age(row.lag_s), row.out_rate, row.topics)
                for row in view.groups
            ],
        ),
        (
            ("refused because", "last minute", "all", "text"),
            [(row.cause, row.last_minute, row.total, row.text) for row in view.refusals],
        ),
    ]


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    texts = [[_cell(value, _NAME_SHOWN if at == 0 else _TEXT_SHOWN) for at, value in enumerate(row)] for row in rows]
    widths = [max(len(head), *(len(row[at]) for row in texts)) for at, head in enumerate(columns)]
    is_right = [all(not isinstance(row[at], str) for row in rows) for at in range(len(columns))]
    return [
        _GAP.join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_right, strict=True)
        ).rstrip()
        for row in [list(columns), *texts]
    ]


def _cell(value: Cell, shown: int) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return rate(value)
    if isinstance(value, int):
        return f"{value:,}"
    text = printable(value)
    return text if len(text) <= shown else text[: shown - 3] + "..."


def rate(value: float) -> str:
    """Return a number a second: with one decimal below 100."""
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"


def age(seconds: float) -> str:
    """Return an age: ``0.4 s``, ``17 s``, ``12 min``, ``5.0 h``, ``3.1 d``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"

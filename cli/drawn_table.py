"""Tables for a terminal: short heads, times as ages, and nothing that a user copies is broken over lines.

Lives here: ``draw_table``; ``TimeText``, a time that a pipe shows in full. Pipes and JSON keep the names of columns.
"""

import time
from collections.abc import Sequence
from typing import Final, Self

HEADS: Final = {
    "queue_id": "queue",
    "min_offset": "min",
    "max_offset": "max",
    "broker_offset": "end",
    "consumer_offset": "at",
    "last_message": "newest",
    "last_consumed": "read up to",
    "offset_msg_id": "offset id",
    "msg_id": "message id",
    "origin_topic": "from topic",
    "last_error": "last error",
}
"""Column → its head on a terminal; others lose their underscores."""
AGES: Final = ((1_000, "s", 60), (60_000, "min", 60), (3_600_000, "h", 48), (86_400_000, "d", 0))
"""ms of a unit, its name, how many of it before the next one is used (0: no end)."""
GAP: Final = 2


class TimeText(str):
    """A time as text in UTC; on a terminal a table shows how long ago it was."""

    __slots__ = ("timestamp_ms",)
    timestamp_ms: int

    def __new__(cls, text: str, timestamp_ms: int) -> Self:
        """Return the text of a time, which is ``timestamp_ms`` since 1970."""
        made = super().__new__(cls, text)
        made.timestamp_ms = timestamp_ms
        return made

    def ago(self, now_ms: int) -> str:
        """Return the age: ``12 s ago``, ``in 3 min``.

        >>> TimeText("", 1_000).ago(13_400), TimeText("", 200_000).ago(20_000)
        ('12 s ago', 'in 3 min')
        """
        age_ms = now_ms - self.timestamp_ms
        text = _age_text(abs(age_ms))
        return f"{text} ago" if age_ms >= 0 else f"in {text}"


def _age_text(age_ms: int) -> str:
    if age_ms < 1_000:
        return "0 s"
    for unit_ms, name, most in AGES:
        if not most or age_ms < most * unit_ms:
            return f"{age_ms // unit_ms:,} {name}"
    raise AssertionError("the last unit has no end")


def draw_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Draw rows below heads; where they are wider than the terminal, one line a value, a block a row."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    now_ms = time.time_ns() // 1_000_000
    heads = [HEADS.get(column, column.replace("_", " ")) for column in columns]
    cells = [[_cell(value, now_ms) for value in row] for row in rows]
    console = Console(highlight=False)
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if title:
        console.print(Text(title, style="italic"), soft_wrap=True)
    if sum(widths) + GAP * (len(widths) - 1) <= console.width:
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        for index, head in enumerate(heads):
            numbers = bool(rows) and all(_is_number(row[index]) for row in rows)
            table.add_column(head, justify="right" if numbers else "left", no_wrap=True)
        for row in cells:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    margin = max(map(cell_len, heads))
    for number, row in enumerate(cells):
        if number:
            console.print()
        for head, cell in zip(heads, row, strict=True):
            console.print(Text.assemble((f"{head:<{margin}}", "bold"), "  ", cell), soft_wrap=True)


def _is_number(value: object) -> bool:
    return value == "-" or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object, now_ms: int) -> str:
    if isinstance(value, TimeText):
        return value.ago(now_ms)
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)

"""The tables of docs/metrics.md, made from the registry; ``make docs-tables`` writes them.

Lives here: ``tables``.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pocketmq.broker.metrics.metrics import GROUPS
from pocketmq.broker.metrics.registry import Group, Row

_BETWEEN: Final = """\
The same values elsewhere: in the [runtime info](#runtime-info) (`…`: the name of the pair), in the JSON of its key
`pocketmqTelemetry`, and in the [log event](#log-events) `interval`, which shows by how much a counter has grown.
Times are milliseconds there. Lines without a metric are values that are shown only there.
"""
_MASKED: Final = str.maketrans({"|": "\\|", "<": "&lt;"})


def _sentence(row: Row[Any]) -> str:
    """Return the description of a row in the document: its note, else its help as a table writes it."""
    text = row.note or row.help.removesuffix(".")
    return text if row.note else text[0].lower() + text[1:]


def _lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    for cells in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(cells) + " |\n"


def _metrics(groups: Iterable[Group[Any]]) -> Iterator[list[str]]:
    for group in groups:
        for row in group.rows:
            if row.name:
                labels = ", ".join((*group.labels, *row.labels))
                yield [f"`{row.exported}`", row.kind, labels, _sentence(row).translate(_MASKED)]


def _elsewhere(groups: Iterable[Group[Any]]) -> Iterator[list[str]]:
    for group in groups:
        for row in group.rows:
            if row.telemetry or row.runtime or row.interval:
                runtime = f"`{'…' if group.labels and row.runtime else ''}{row.runtime}`" if row.runtime else ""
                telemetry = f"`{group.telemetry}.{row.telemetry}`" if row.telemetry else ""
                interval = f"`{row.interval}`" if row.interval else ""
                yield [f"`{row.exported}`" if row.name else _sentence(row), runtime, telemetry, interval]


def tables(groups: Iterable[Group[Any]] = GROUPS) -> str:
    """Return the Markdown: every metric, and the other places that show its value."""
    groups = list(groups)
    return "".join(
        (
            *_lines(("metric", "type", "labels", "meaning"), _metrics(groups)),
            f"\n{_BETWEEN}\n",
            *_lines(("metric", "runtime info", "telemetry", "`interval`"), _elsewhere(groups)),
        )
    )

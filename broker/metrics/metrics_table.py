"""The tables of docs/metrics.md, made from the registry: ``python -m pocketmq.broker.metrics.metrics_table``.

Lives here: ``tables``, and ``written``, which puts them between the marks of the document.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pocketmq.broker.metrics.metrics import GROUPS
from pocketmq.broker.metrics.registry import Group, Row

DOCUMENT: Final = "docs/metrics.md"
BEGIN: Final = "<!-- metrics: made by python -m pocketmq.broker.metrics.metrics_table -->\n"
END: Final = "<!-- end of metrics -->\n"
_BETWEEN: Final = """\
The same values elsewhere: in the [runtime info](#runtime-info) (`…`: the name of the pair), in the JSON of its key
`pocketmqTelemetry`, and in the [log event](#log-events) `interval`, which shows by how much a counter has grown.
Times are milliseconds there. Lines without a metric are values that are shown only there.
"""
_MASKED: Final = str.maketrans({"|": "\\|", "<": "&lt;"})


def _sentence(row: Row[Any]) -> str:
    """Return what the document says of a row: its note, else its help as a table writes it."""
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
    """Return the Markdown: every metric, and where else its value is shown."""
    groups = list(groups)
    return "".join(
        (
            *_lines(("metric", "type", "labels", "meaning"), _metrics(groups)),
            f"\n{_BETWEEN}\n",
            *_lines(("metric", "runtime info", "telemetry", "`interval`"), _elsewhere(groups)),
        )
    )


def written(document: str) -> str:
    """Return the document with the present tables between its marks; raise ``ValueError`` where they are missing."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN.strip()} and {END.strip()}")
    return before + begin + tables() + end + after


def main() -> None:
    """Write the tables into the document, from the root of the repository."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else DOCUMENT)
    path.write_text(written(path.read_text()))


if __name__ == "__main__":
    main()

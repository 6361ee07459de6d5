"""The table of message fields, as docs/sending.md shows it (``docs.tables`` writes it)."""

from collections.abc import Iterator
from typing import Final

from docs.refusal_table import item
from pocketmq.common.message_fields import FIELDS, Field, Not

READERS: Final = {
    "plain": "plain records",
    "column": "`send_arrow`",
    "sink": "Spark sink",
    "read": "`poll_arrow`, Spark source",
    "option": "`produce`",
    "line": "lines of `produce`",
    "json": "`consume --json`, `produce --json-lines`",
    "kept": "retry store",
    "copied": "half messages, requests and replies",
    "exported": "`dlq export` to Parquet",
}
"""Readers that may leave a field out, as the document calls them."""


def _cells(row: Field) -> Iterator[str]:
    yield f"`{row.name}`"
    yield "`" + row.type.replace("|", "\\|") + "`"
    yield row.meaning
    yield "–" if isinstance(row.property, Not) else f"`{row.property}`"
    yield "–" if isinstance(row.column, Not) else row.column
    yield "–" if isinstance(row.option, Not) else f"`{row.option}`"
    yield "yes" if row.kept is True else "no"


def _left_out() -> Iterator[str]:
    for reader, called in READERS.items():
        names: dict[str, list[str]] = {}
        for row in FIELDS.values():
            decision = getattr(row, reader)
            if isinstance(decision, Not):
                names.setdefault(decision.why, []).append(f"`{row.name}`")
        for why, left in names.items():
            yield from item(f"{called}: {', '.join(left)} – {why}.")


def message_fields(_page: str) -> str:
    """Return the whole part of the page: a row for each field, then what each reader leaves out, and why."""
    head = ("field", "type", "meaning", "property", "column of `send_arrow`", "`produce`", "retry store keeps it")
    rows = [head, ["---"] * len(head), *(_cells(row) for row in FIELDS.values())]
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n" + "\n".join([*lines, "", "What each reader leaves out, and why:", "", *_left_out()]) + "\n\n"

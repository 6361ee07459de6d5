"""The known texts that PocketMQ itself never writes, as docs/explain.md shows them (``docs.tables`` writes them)."""

from collections.abc import Iterator

from docs.refusal_table import item, wrapped
from pocketmq.cli.explain.report import STORED, of_source
from pocketmq.common.known_texts.explanation import explain_line
from pocketmq.common.known_texts.search import KNOWN_ROWS
from pocketmq.common.refusal_row import Request, Row


def known_text_lines() -> Iterator[str]:
    """Yield a paragraph for each row."""
    for number, row in enumerate(KNOWN_ROWS):
        yield from (*([""] if number else []), f"### {row.name}", "")
        yield from wrapped(f"{row.what[0].upper()}{row.what[1:]}. {row.why}")
        yield from ("", "```", *(text.template for text in row.texts), "```", "")
        yield from item(f"*Written by*: {'; '.join(dict.fromkeys(text.by.value for text in row.texts))}.{_source(row)}")
        if any(text.request is Request.SEND for text in row.texts):
            yield from item(f"*Stored*: {STORED[row.stored]}.")
        yield from item(f"*Sent again*: {_retried(row)}.")
        yield from item(f"*Cure*: {row.cure}")
        if row.price:
            yield from item(f"*Price*: {row.price}")
        for bad in row.bad_cures:
            yield from item(f"*No cure*: {bad}.")
        if row.scenario:
            yield from item(f"*See it*: `pocketmq scenario {row.scenario}`.")
        yield from item(f"*More*: [{row.page.removeprefix('docs/')}]({row.page.removeprefix('docs/')}).")


def _source(row: Row) -> str:
    return f" {of_source(row.source)}." if row.source else ""


def _retried(row: Row) -> str:
    if row.retried:
        return row.retried
    each = explain_line(row.texts[0].template)
    assert each is not None
    return each.retried


def known_texts(_page: str) -> str:
    """Return the whole part of the page."""
    return "\n" + "\n".join(known_text_lines()) + "\n\n"

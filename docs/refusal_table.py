"""The table of refusals and a paragraph for each cause, as docs/sending.md shows them (``docs.tables`` writes them)."""

import textwrap
from collections.abc import Iterator
from typing import Final

from pocketmq.common.refusals import REFUSALS, Retry, Row, retried_by

WIDTH: Final = 120
_NAMES: Final = {Retry.ROCKETMQ_4_9: "4.9", Retry.ROCKETMQ_5_3: "5.3", Retry.POCKETMQ: "PocketMQ"}


def refusal_lines() -> Iterator[str]:
    """Yield the table of refusals, then a paragraph for each cause."""
    yield "| `cause` | code | stored | retry after, ms | at fault | tried again by |"
    yield "|---|---|---|---|---|---|"
    for row in REFUSALS.values():
        codes = ", ".join(map(str, row.codes)) or "–"
        cells = (f"[`{row.cause.value}`](#{row.cause.value})", codes, row.stored.value, _ms(row), row.fault.value)
        yield f"| {' | '.join(cells)} | {_retried(row)} |"
    for row in REFUSALS.values():
        yield from ("", f"#### {row.cause.value}", "")
        yield from wrapped(f"{row.what[0].upper()}{row.what[1:]}. {row.why}")
        if row.texts:
            yield from ("", "```", *(text.template for text in row.texts), "```")
        yield ""
        if row.retry_after.rule:
            yield from item(f"*Retry after*: {row.retry_after.text}.")
        yield from item(f"*Cure*: {row.cure}")
        if row.price:
            yield from item(f"*Price*: {row.price}")
        for bad in row.bad_cures:
            yield from item(f"*No cure*: {bad}.")
        if row.scenario:
            yield from item(f"*See it*: `pocketmq scenario {row.scenario}`.")
        if row.never_from_broker:
            yield from item(f"*Never from a broker*: {row.never_from_broker}.")


def _ms(row: Row) -> str:
    first, last = row.retry_after.ms_min, row.retry_after.ms_max
    return "–" if not last else f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _retried(row: Row) -> str:
    groups: dict[tuple[Retry, ...], list[int]] = {}
    for code in row.codes:
        groups.setdefault(retried_by(code), []).append(code)
    names = {who: ", ".join(_NAMES[each] for each in who) or "no client" for who in groups}
    if len(groups) <= 1:
        return next(iter(names.values()), "–")
    return "; ".join(f"{', '.join(map(str, codes))}: {names[who]}" for who, codes in groups.items())


def wrapped(text: str) -> list[str]:
    """Return a paragraph, wrapped."""
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def item(text: str) -> list[str]:
    """Return an item of a list, wrapped."""
    return textwrap.wrap(
        text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def refusals(_page: str) -> str:
    """Return the whole part of the page."""
    return "\n" + "\n".join(refusal_lines()) + "\n\n"

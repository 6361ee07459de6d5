"""Explanations as text and as JSON.

Lives here: ``text_lines``, ``json_of``, ``unknown_lines``.

Every word of the paste goes through ``printable``: a pasted control character must not reach a terminal.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pocketmq.common.errors import Stored
from pocketmq.common.known_texts.codes import Code
from pocketmq.common.known_texts.explanation import Explanation
from pocketmq.common.known_texts.search import Known, index
from pocketmq.common.printable import printable
from pocketmq.common.refusal_row import Row, Side

LABEL_CHARS: Final = 13
FLOW_CONTROL: Final = 2
STORED: Final[Mapping[Stored | None, str]] = {
    Stored.NO: "no",
    Stored.YES: "yes",
    Stored.UNKNOWN: "perhaps",
    None: "– (it is not about a send)",
}


def text_lines(found: Sequence[Explanation], width: int | None = None) -> Iterator[str]:
    """Yield the lines about each explanation. ``width``: of the terminal; None wraps nothing."""
    for number, each in enumerate(found):
        if number:
            yield ""
        yield from _explained(each, width)


def _explained(each: Explanation, width: int | None) -> Iterator[str]:
    times = f"  ({each.times} times)" if each.times > 1 else ""
    yield f"{printable(each.text)}{times}"
    if not each.whole:
        yield from _field("cut off", "a part of the text is missing: another one may begin or end like it", width)
    for outer in each.outer:
        yield from _field("led to", printable(outer), width)
    if each.rows and len(each.rows) == 1:
        yield from _field("means", _means(each.rows[0]), width)
    for code in each.codes:
        if each.rows:
            yield from _field("code", f"{code.number} {code.name}{_versions(code.versions)}", width)
        else:
            is_named = each.text.endswith(f" {code.name}") and not code.versions
            name = "" if is_named else f"{code.name}{_versions(code.versions)}: "
            yield from _field("means", f"{name}{code.what}", width)
    of_request_or_exit = not each.rows and not each.retried and each.stored is None
    if not of_request_or_exit:
        source = f" ({of_source(each.source)})" if each.source else ""
        yield from _field("written by", f"{each.by.value}{source}", width)
        yield from _field("stored", STORED[each.stored], width)
    if each.retried:
        yield from _field("sent again", each.retried, width)
    if len(each.rows) > 1:
        yield from _field("causes", "any of these; the field 'cause' beside PocketMQ's text says which", width)
    for row in each.rows:
        if len(each.rows) > 1:
            yield from _field("", "", width)
            yield from _field("cause", f"{row.name}: {_means(row)}", width)
        yield from _cures(row, width)
    if not each.rows:
        for row, template in texts_of_code(each):
            yield from _field("comes with", f"{row.name}: {row.what} ({template})", width)
    for name in scenarios(each):
        yield from _field("see it", f"pocketmq scenario {name}", width)
    for page in dict.fromkeys(row.page for row in each.rows):
        yield from _field("more", page, width)


def of_source(source: str) -> str:
    """Return the class or module that has a text, with its program."""
    return f"PocketMQ: {source}" if source.startswith("pocketmq") else f"RocketMQ: {source}"


def scenarios(each: Explanation) -> list[str]:
    """Return the scenarios that show it: its own first, and the one about retries where clients differ."""
    names = [each.scenario, *(row.scenario for row in each.rows if len(each.rows) > 1)]
    if FLOW_CONTROL in (code.number for code in each.codes) and each.stored is Stored.NO:
        names.append("retry-codes")
    return [name for name in dict.fromkeys(names) if name]


def texts_of_code(each: Explanation) -> list[tuple[Row, str]]:
    """Return the rows whose answers have the response code of an explanation, each with such a text."""
    if not each.key.startswith("code "):
        return []
    numbers = {code.number for code in each.codes}
    found: dict[str, tuple[Row, str]] = {}
    for known in index()[1]:
        if known.text.by in (Side.BROKER_LOG, Side.SYSTEM) or not numbers & {known.text.code, known.text.code_4_9}:
            continue
        for row in known.rows[:1] if known.rows[0].key else known.rows:
            found.setdefault(row.name, (row, known.text.template))
    return list(found.values())


def _means(row: Row) -> str:
    return f"{row.what[0].upper()}{row.what[1:]}. {row.why}"


def _versions(versions: str) -> str:
    return f" ({versions} only)" if versions else ""


def _cures(row: Row, width: int | None) -> Iterator[str]:
    if row.retry_after.ms_max:
        yield from _field("again after", row.retry_after.text, width)
    yield from _field("cure", row.cure, width)
    if row.price:
        yield from _field("price", row.price, width)
    for bad in row.bad_cures:
        yield from _field("no cure", bad, width)


def _field(label: str, text: str, width: int | None) -> Iterator[str]:
    begin = f"  {label}".ljust(LABEL_CHARS)
    if width is None or not text:
        yield f"{begin} {text}".rstrip()
        return
    yield from textwrap.wrap(
        text,
        max(40, width),
        initial_indent=f"{begin} ",
        subsequent_indent=" " * (LABEL_CHARS + 1),
        break_on_hyphens=False,
    )


def unknown_lines(near: Sequence[Known], codes: Sequence[Code] = ()) -> Iterator[str]:
    """Yield what is said about a text that nobody knows; ``codes``: of a number, those with the nearest ones."""
    if codes:
        yield "unknown: no response code, request code or exit code has this number; the nearest response codes are:"
        for code in codes:
            yield f"  {code.number} {code.name}{_versions(code.versions)}: {code.what}"
        return
    yield "unknown: no text of RocketMQ or PocketMQ that this version knows is in it; the nearest are:"
    for known in near:
        yield f"  {known.text.template}  ({known.rows[0].name}: {known.rows[0].what})"


def json_of(found: Sequence[Explanation], near: Sequence[Known], codes: Sequence[Code] = ()) -> dict[str, Any]:
    """Return all of it as one document."""
    return {
        "known": bool(found),
        "explanations": [_json_of_one(each) for each in found],
        "nearest": [{"name": code.name, "text": str(code.number)} for code in codes]
        or [{"name": known.rows[0].name, "text": known.text.template} for known in near],
    }


def _json_of_one(each: Explanation) -> dict[str, Any]:
    return {
        "key": each.key.partition(":")[0],
        "text": printable(each.text),
        "whole": each.whole,
        "times": each.times,
        "led_to": [printable(outer) for outer in each.outer],
        "values": [printable(value) for value in each.values],
        "codes": [
            {"code": code.number, "name": code.name, "versions": code.versions, "what": code.what}
            for code in each.codes
        ],
        "written_by": each.by.value,
        "source": each.source,
        "stored": "" if each.stored is None else STORED[each.stored],
        "sent_again": each.retried,
        "causes": [_json_of_row(row) for row in each.rows],
        "comes_with": [{"name": row.name, "text": template} for row, template in texts_of_code(each)],
        "scenarios": scenarios(each),
    }


def _json_of_row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "cause": row.cause.value,
        "what": row.what,
        "why": row.why,
        "at_fault": row.fault.value,
        "again_after_ms": [row.retry_after.ms_min, row.retry_after.ms_max],
        "cure": row.cure,
        "price": row.price,
        "no_cures": list(row.bad_cures),
        "docs": row.page,
    }

"""Finds the known texts in a line: whatever the numbers and names in them, the blanks, colors and prefixes around them.

Lives here: ``find_all`` and its ``Hit``; ``nearest``, the known texts most like an unknown one; ``cleaned``.

Each text is filed under the first long word of its longest fixed part; only the texts whose word is in a line are
looked for in it, so that most lines of a log cost the splitting into words. The line is then compared without its
blanks and in lower case: the longest part has to be there, and the others before and after it. A text that the end of
the line cuts off counts, if enough of it is there to know it. The work grows with the line, and lines of strangers are
cut by the caller (``LINE_CHARS_MAX``).
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from pocketmq.common.known_texts.broker import BROKER_ROWS
from pocketmq.common.known_texts.consume import CLASS_ROWS, CONSUME_ROWS
from pocketmq.common.known_texts.sdk import SDK_CLASS_ROWS, SDK_ROWS
from pocketmq.common.known_texts.send import SEND_ROWS
from pocketmq.common.known_texts.upkeep import UPKEEP_ROWS
from pocketmq.common.refusal_row import Row, Text
from pocketmq.common.refusals import REFUSALS

LINE_CHARS_MAX: Final = 4096
"""What callers give at once; a longer line comes in pieces."""
HEAD_CHARS: Final = 12
"""Characters by which a text is looked for: of one that is cut off at least these are there."""
WORD_CHARS_CUT: Final = 8
"""Characters by which a word is known that the end of the line cuts off."""
PART_CHARS_ALONE: Final = 16
"""A part of this length says which text it is, without the others."""
LITERAL_CHARS_FEW: Final = 24
GAP_CHARS_MAX: Final = 400
"""Between two parts of a text: names and numbers are shorter. A text with few fixed characters has less room."""
GAP_CHARS_FEW: Final = 48
FINDS_MAX: Final = 4
"""Places at which one text is looked at in a line."""
SHOWN_CHARS_MAX: Final = 300
LINES_COMPARED_MAX: Final = 20
VALUE_CHARS_MAX: Final = 120
"""Of what follows a text that ends with a value."""
KNOWN_ROWS: Final = (
    *SEND_ROWS,
    *CONSUME_ROWS,
    *BROKER_ROWS,
    *UPKEEP_ROWS,
    *SDK_ROWS,
    *SDK_CLASS_ROWS,
    *CLASS_ROWS,
)
"""Rows about single texts. They say more than the row of the cause, which has the same text."""

_OF_CLASSES: Final = frozenset(row.key for row in (*SDK_CLASS_ROWS, *CLASS_ROWS))
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_TAG: Final = re.compile(r"\[([A-Z_]{4,})\]")
_NUMBER: Final = re.compile(r"\s*(?:-?\d{1,20}|%d|\{\})?")
_WORD: Final = re.compile(r"[a-z_]{4,}")
_QUOTES: Final = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A text as it is looked for. ``rows``: what it may mean; those of ``KNOWN_ROWS`` first."""

    text: Text
    rows: tuple[Row, ...]
    parts: tuple[str, ...]
    anchor: int
    """Number of the part that is looked for."""
    gap_chars_max: int

    @property
    def is_class(self) -> bool:
        """Whether it is only the name of an exception's class."""
        return self.rows[0].key in _OF_CLASSES


@dataclass(frozen=True, slots=True)
class Hit:
    """A known text in a line. ``begin``, ``end``: its place in the squashed line; ``shown``: as it stands there.

    ``values``: what stands in the places of ``%s`` and ``%d``. ``whole`` False: a part is cut off.
    """

    known: Known
    begin: int
    end: int
    shown: str
    values: tuple[str, ...]
    whole: bool


def cleaned(line: str) -> str:
    """Return a line without colors and NUL, with plain quotes, and full-width characters as ASCII."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "\x00" in line:
        line = line.replace("\x00", "")
    if "\\" in line:
        line = line.replace("\\n", " ").replace("\\t", " ")  # of a line of JSON
    if not line.isascii():
        line = unicodedata.normalize("NFKC", line).translate(_QUOTES)
    return line


def squashed(text: str) -> str:
    """Return a text in lower case without blanks."""
    return "".join(text.split()).lower()


@cache
def index() -> tuple[dict[str, list[Known]], tuple[Known, ...]]:
    """Return the known texts by the word that they are filed under, and all of them."""
    rows_of: dict[str, tuple[Text, list[Row]]] = {}
    for row in (*KNOWN_ROWS, *REFUSALS.values()):
        for text in row.texts:
            rows_of.setdefault(text.template, (text, []))[1].append(row)
    by_word: dict[str, list[Known]] = {}
    every = []
    for template, (text, rows) in rows_of.items():
        fixed = [part for part in re.split("%[sd]", template) if squashed(part)]
        parts = tuple(map(squashed, fixed))
        anchor = max(range(len(parts)), key=lambda number: len(parts[number]))
        gap = GAP_CHARS_MAX if sum(map(len, parts)) >= LITERAL_CHARS_FEW else GAP_CHARS_FEW
        known = Known(text, tuple(rows), parts, anchor, gap)
        by_word.setdefault(_WORD.findall(fixed[anchor].lower())[0], []).append(known)
        every.append(known)
    tagged: dict[str, list[Known]] = {}
    for known in every:
        if tag := _TAG.match(known.text.template):
            tagged.setdefault(tag[0], []).append(known)
    for texts in tagged.values():
        known = texts[0]
        tag = _TAG.match(known.text.template)
        if tag is not None and len({row.name for each in texts for row in each.rows}) == len(known.rows):
            # it says which text it is, or at least of which row, also without the words behind it
            part = tag[1].lower() if len(tag[1]) >= HEAD_CHARS else tag[0].lower()
            by_word.setdefault(tag[1].lower(), []).append(replace(known, parts=(part,), anchor=0))
    return by_word, tuple(every)


def find_all(line: str) -> list[Hit]:
    """Return the known texts in a line, in their order; of those that overlap the one that fits best.

    >>> [hit.known.rows[0].name for hit in find_all("MQBrokerException: CODE: 2 DESC: [OVERLOAD] system busy, start f")]
    ['exception_of_a_client', 'queue_full']
    """
    clean = cleaned(line)
    by_word = index()[0]
    there = _WORD.findall(clean.lower())
    if "\x1b" in line:
        there += _WORD.findall(_ANSI.sub(" ", line).lower())  # a color may begin in a word, or between two
    words = set(by_word.keys() & there)
    if there and len(there[-1]) >= WORD_CHARS_CUT and clean.lower().endswith(there[-1]):
        words.update(word for word in by_word if word.startswith(there[-1]))
    if not words:
        return []
    compared = squashed(clean)
    found = [place for word in words for known in by_word[word] for place in _all_places(known, compared)]
    if not found:
        return []
    found.sort(key=_rank)
    places = _places(clean, compared)
    hits: list[Hit] = []
    for place in found:
        if all(place.end <= other.begin or other.end <= place.begin for other in hits):
            hits.append(_hit(place, clean, places))
    return sorted(hits, key=lambda hit: hit.begin)


class _Place(NamedTuple):
    """Where a text is in a squashed line; ``gaps``: where its values are."""

    known: Known
    begin: int
    end: int
    whole: bool
    gaps: list[tuple[int, int]]

    @property
    def fixed_chars(self) -> int:
        """How much of the text is there."""
        return self.end - self.begin - sum(last - first for first, last in self.gaps)


def _hit(place: _Place, clean: str, places: list[int]) -> Hit:
    """Return the text as it stands in the line, with its values."""
    shown = _between(clean, places, place.begin, place.end)
    values = tuple(_between(clean, places, first, last).strip() for first, last in place.gaps)
    template = place.known.text.template
    if place.whole and template.endswith(("%s", "%d")):
        rest = clean[places[place.end - 1] + 1 :].partition('","')[0][:VALUE_CHARS_MAX]
        if template.endswith("%d"):
            number = _NUMBER.match(rest)
            rest = "" if number is None else number[0]
        shown += rest
        values = (*values, rest.strip())
    return Hit(place.known, place.begin, place.end, shown.strip()[:SHOWN_CHARS_MAX], values, place.whole)


def _rank(place: _Place) -> tuple[bool, int, bool, int, str]:
    """Order places by how well they fit, the best first."""
    known = place.known
    return known.is_class, -place.fixed_chars, not place.whole, place.begin, known.text.template


def _all_places(known: Known, line: str) -> Iterator[_Place]:
    head = known.parts[known.anchor][:HEAD_CHARS]
    at = line.find(head)
    for _ in range(FINDS_MAX):
        if at < 0:
            return
        place = _place(known, line, at)
        if place is not None:
            yield place
        at = line.find(head, at + 1)


def _place(known: Known, line: str, at: int) -> _Place | None:
    """Return the place of a text whose longest part begins there; None: it is another text."""
    anchor = known.parts[known.anchor]
    begin, end, whole = at, at + len(anchor), True
    if not line.startswith(anchor, at):
        rest = line[at:end].rstrip(".")  # cut by a tool, with three dots
        if end < len(line) or not anchor.startswith(rest):
            return None
        end, whole = at + len(rest), False
    is_enough = end - at >= (PART_CHARS_ALONE if whole else HEAD_CHARS)
    gaps: list[tuple[int, int]] = []
    for part in reversed(known.parts[: known.anchor]):
        before = line.rfind(part, max(0, begin - known.gap_chars_max - len(part)), begin)
        if before < 0:
            whole = False
            break
        gaps.insert(0, (before + len(part), begin))
        begin = before
    for part in known.parts[known.anchor + 1 :] if whole else ():
        after = line.find(part, end, end + known.gap_chars_max + len(part))
        if after < 0:
            whole = False
            break
        gaps.append((end, after))
        end = after + len(part)
    return _Place(known, begin, end, whole, gaps) if whole or is_enough else None


def _places(clean: str, compared: str) -> list[int]:
    """Return the place in ``clean`` of each character of ``compared``."""
    places = [at for at, char in enumerate(clean) for _ in char.lower() if not char.isspace()]
    return places if len(places) == len(compared) else [0] * len(compared)


def _between(clean: str, places: list[int], first: int, last: int) -> str:
    if first >= last:
        return ""
    return clean[places[first] : places[last - 1] + 1]


def nearest(lines: Sequence[str], count: int = 3) -> list[Known]:
    """Return the known texts that share most with one of these unknown lines (the first ``LINES_COMPARED_MAX``).

    Measured by groups of three characters: Dice's coefficient, and the share of the line that the text has, so that
    some words of a long text find it.
    """
    asked = [_triples(squashed(cleaned(line[:SHOWN_CHARS_MAX]))) for line in lines[:LINES_COMPARED_MAX]]
    scored = []
    for known in index()[1]:
        triples = _triples("".join(known.parts))
        scored.append((max((_likeness(each, triples) for each in asked), default=0.0), known))
    scored.sort(key=lambda each: -each[0])
    return [known for _, known in _once_per_row(scored)][:count]


def _likeness(asked: set[str], known: set[str]) -> float:
    both = len(asked & known)
    return both / max(1, len(asked)) + 2 * both / max(1, len(asked) + len(known))


def _once_per_row(scored: list[tuple[float, Known]]) -> Iterator[tuple[float, Known]]:
    seen = set()
    for score, known in scored:
        name = known.rows[0].name
        if name not in seen:
            seen.add(name)
            yield score, known


def _triples(text: str) -> set[str]:
    return {text[at : at + 3] for at in range(max(0, len(text) - 2))}

"""Known texts are found whatever surrounds them, and no input makes the search slow."""

import string
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.common.known_texts.explanation import explain, explain_line, pieces
from pocketmq.common.known_texts.search import LINE_CHARS_MAX, Known, find_all, index, nearest, squashed

EVERY = index()[1]
KNOWN = pytest.mark.parametrize("known", EVERY, ids=lambda known: known.text.template[:60])
VALUE = st.text(string.ascii_letters + string.digits + "-_.:@", min_size=1, max_size=30)


def filled(known: Known, values: Callable[[], str]) -> str:
    """Return a text with something in each of its places."""
    text = known.text.template
    while "%s" in text or "%d" in text:
        at = min(each for each in (text.find("%s"), text.find("%d")) if each >= 0)
        text = text[:at] + (values() if text[at + 1] == "s" else "4711") + text[at + 2 :]
    return text


def rows_found(line: str) -> list[str]:
    return [hit.known.text.template for hit in find_all(line)]


@KNOWN
@given(data=st.data())
@settings(max_examples=5)
def test_a_text_is_found_with_any_values_and_in_any_line(known: Known, data: st.DataObject) -> None:
    """In a log line, with other blanks, other letters and colors."""
    text = filled(known, lambda: data.draw(VALUE))
    line = f"2024-05-01 12:00:00 WARN Thread_1 - {text} ; z"
    assert known.text.template in rows_found(line)
    assert known.text.template in rows_found(text.upper().replace(" ", "  "))
    assert known.text.template in rows_found(f"\x1b[31m{text}\x1b[0m")
    assert known.text.template in rows_found(line.replace(", ", ","))


@KNOWN
def test_values_and_text_stand_as_in_the_line(known: Known) -> None:
    text = filled(known, lambda: "Va-1")
    (hit,) = [hit for hit in find_all(f">> {text}") if hit.known is known]
    assert hit.whole
    assert hit.shown == text.strip()[:300]
    assert len(hit.values) == known.text.template.count("%s") + known.text.template.count("%d")
    assert set(hit.values) <= {"Va-1", "4711"}


@pytest.mark.parametrize("known", [each for each in EVERY if len(each.parts[each.anchor]) > 30])
def test_a_text_that_is_cut_off_is_found(known: Known) -> None:
    """It is said to be cut off."""
    text = filled(known, lambda: "V")
    left = squashed(text).find(known.parts[known.anchor]) + len(known.parts[known.anchor]) - 3
    line = next(text[:at] for at in range(len(text)) if len(squashed(text[:at])) == left)
    hits = find_all(f"2024-05-01 WARN {line}")
    assert hits
    assert known.text.template in [hit.known.text.template for hit in hits]
    assert not hits[-1].whole


def test_a_tag_of_several_texts_with_one_reason_says_that_reason() -> None:
    (hit,) = find_all("we get [QUOTA] again")
    assert [row.name for row in hit.known.rows] == ["quota"]
    (hit,) = find_all("[QUOTA]connection refused: user app has 2 connections, limit 2")
    assert hit.values == ("app", "2", "2")


@pytest.mark.parametrize("tag", ["REJECTREQUEST", "TIMEOUT_CLEAN_QUEUE", "PCBUSY_CLEAN_QUEUE", "PC_SYNCHRONIZED"])
def test_a_tag_says_which_text_it_is(tag: str) -> None:
    """Without the words behind it, and without its brackets."""
    for line in (f"we get {tag} again", f"[{tag}] broker", f"[{tag}]"):
        (found,) = rows_found(line)
        assert found.startswith(f"[{tag}]")
    assert rows_found("[OVERLOAD] again")
    assert rows_found("too much overload, and a [NOTIFYME]") == []


def test_the_longer_text_wins() -> None:
    line = "service not available now: this master of broker-a was replaced"
    assert rows_found(line) == ["service not available now: this master of %s was replaced"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "all is well",
        "connect to the database first; nothing was lost",
        "user: a person who was there and is far, far away; what he had always wanted there is not found "
        "in any of the long and dull books that he wrote",
        "2024-05-01 INFO SendMessageThread_1 - [PAGECACHERT] TotalPut 12, PutMessageDistributeTime [<=0ms]:3",
    ],
)
def test_ordinary_lines_have_no_known_text(line: str) -> None:
    assert find_all(line) == []
    assert explain_line(line) is None


def test_typographic_quotes_and_full_width_letters_are_plain_ones() -> None:
    assert rows_found("the consumer\u2019s subscription not latest") == ["the consumer's subscription not latest"]
    assert rows_found("\uff3bOVERLOAD\uff3dsystem busy\uff0c start flow control for a while")


def test_the_nearest_of_an_unknown_text_are_those_with_the_most_in_common() -> None:
    near = nearest(["java.lang.Strange", "sendDefaultImpl cal timed out"])
    assert near[0].rows[0].name == "send_timeout"
    assert len({known.rows[0].name for known in near}) == 3
    assert "broker busy" in nearest(["broker busy"])[0].text.template
    assert len(nearest([""])) == len(nearest([])) == 3


def steps_of(work: Callable[[], object]) -> int:
    """Count the calls of Python and C functions, as the time of a loaded machine says nothing."""
    steps = 0

    def count(_frame: object, event: str, _argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return steps


PIECE = st.sampled_from(
    [known.text.template[:40] for known in EVERY]
    + [known.parts[known.anchor][:20] for known in EVERY]
    + ["%s", "[", "Caused by: ", "\n", "CODE: 2 ", "\x1b[31m", "A_B", "x" * 50, "\ufdfa"]
)


@given(st.lists(PIECE, max_size=60).map("".join) | st.text(max_size=500))
def test_any_text_is_explained_within_steps_that_grow_with_it(text: str) -> None:
    """Whatever the pieces, also those of known texts in a wrong order."""
    index()
    steps = steps_of(lambda: explain(text.split("\n")))
    assert steps < 3000 + 400 * (len(text) + 1)


@pytest.mark.parametrize(
    "unit", ["connect to ", "[REJECTREQUEST]system busy, start flow control for a while", "the broker["]
)
def test_a_long_line_of_beginnings_costs_as_much_a_character_as_a_short_one(unit: str) -> None:
    """Without bounds on places and gaps the work would grow with the square."""
    index()
    short, long = (unit * 2000)[:20_000], (unit * 20_000)[:200_000]
    once = steps_of(lambda: explain([short]))
    assert steps_of(lambda: explain([long])) < 15 * once


@given(st.integers(0, 3 * LINE_CHARS_MAX))
def test_the_pieces_of_a_line_lose_nothing(length: int) -> None:
    line = "".join(chr(0x4E00 + at) for at in range(length))
    cut = list(pieces(line))
    assert max(map(len, cut)) <= LINE_CHARS_MAX
    at = 0
    for piece in cut:
        begin = line.index(piece, max(0, at - LINE_CHARS_MAX)) if piece else 0
        assert begin <= at
        at = begin + len(piece)
    assert at == length

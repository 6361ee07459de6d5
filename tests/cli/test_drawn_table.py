"""Tables on a terminal."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.drawn_table import TimeText, draw_table
from pocketmq.cli.output import time_text

ID = "7F000001000078BF18B4AAC2139B0000"


def drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, *table: object) -> list[str]:
    """Return the lines of a table drawn on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    draw_table(*table)  # type: ignore[arg-type]
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_short_heads_numbers_to_the_right_no_rules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-`` stands for an unknown number."""
    lines = drawn(
        monkeypatch, capsys, 80, ("broker", "queue_id", "max_offset"), [("a", 0, 12_345), ("b", 10, "-")], "T: 2 queues"
    )
    assert lines == ["T: 2 queues", "broker  queue     max", "a           0  12,345", "b          10       -"]


def test_what_does_not_fit_is_one_line_a_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An id is never broken, even on a terminal that is narrower."""
    rows = [(ID, "no disk", 1), (ID, "no net", 2)]
    lines = drawn(monkeypatch, capsys, 30, ("msg_id", "last_error", "attempts"), rows)
    assert lines == [
        f"message id  {ID}",
        "last error  no disk",
        "attempts    1",
        "",
        f"message id  {ID}",
        "last error  no net",
        "attempts    2",
    ]


def test_no_rows_show_the_heads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """So that one sees what there would be."""
    assert drawn(monkeypatch, capsys, 80, ("group", "lag"), []) == ["group  lag"]


def test_a_describe_of_a_topic_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a queue: the time of the newest message is shown as an age."""
    columns = ("broker", "queue_id", "perm", "min_offset", "max_offset", "messages", "last_message")
    now_ms = time.time_ns() // 1_000_000
    row = ("broker-a", 7, "RW-", 1_000_000, 2_000_000, 1_000_000, time_text(now_ms - 7_200_000))
    _, line = drawn(monkeypatch, capsys, 80, columns, [row])
    assert line.endswith("2 h ago")


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0 s ago"),
        (59_999, "59 s ago"),
        (60_000, "1 min ago"),
        (3_600_000, "1 h ago"),
        (47 * 3_600_000, "47 h ago"),
        (48 * 3_600_000, "2 d ago"),
        (-5_000, "in 5 s"),
        (400 * 86_400_000, "400 d ago"),
    ],
)
def test_ages(age_ms: int, text: str) -> None:
    """Whole units, rounded down."""
    assert TimeText("", 10**12).ago(10**12 + age_ms) == text


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_pipe_shows_the_time_itself(timestamp_ms: int) -> None:
    """Any number that a peer sends has a text."""
    text = time_text(timestamp_ms)
    assert str(text) == f"{text}"
    assert text

"""The report: percentiles, outcomes, points, and the JSON that scripts read."""

from pathlib import Path

import msgspec
import pytest

from pocketmq.cli.scenario.report.report import (
    POINTS_MAX,
    SCHEMA,
    Check,
    Evidence,
    Latency,
    Outcome,
    Phase,
    Report,
    Send,
    kind_of,
    latency,
    outcomes_of,
    points_of,
)

DOC = Path(__file__).parents[4] / "docs" / "scenarios.md"


def test_percentiles_are_those_of_the_numbers() -> None:
    """1 to 101 ms have 51 in the middle; no numbers give zeros, not an error."""
    found = latency([float(number) for number in range(1, 102)])
    assert found == Latency(101, 51.0, 100.0, 101.0)
    assert latency([]) == Latency()


def test_texts_that_differ_in_numbers_only_are_one_outcome() -> None:
    """The count is of all, the text one of the texts seen."""
    texts = [
        f"[TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: {ms}ms, size of queue: {ms // 2}" for ms in (201, 350)
    ]
    sends = [Send(0, 1, False, text) for text in texts] + [Send(0, 1, False, "[OVERLOAD]system busy")]
    found = outcomes_of(sends)
    assert [(outcome.count, outcome.delivered) for outcome in found] == [(2, False), (1, False)]
    assert found[0].text in texts
    assert kind_of("node-1 a2b 3 ms 4.5") == "node-N a2b N ms N"


def test_a_delivered_send_is_never_counted_with_a_failed_one() -> None:
    """The same text with and without a receipt stays apart, delivered ones first."""
    found = outcomes_of([Send(0, 1, False, "odd"), Send(0, 1, False, "odd"), Send(0, 1, True, "odd")])
    assert [(outcome.delivered, outcome.count) for outcome in found] == [(True, 1), (False, 2)]


def test_points_are_thinned_evenly_and_know_their_outcome() -> None:
    """A large run stays drawable: the first and late sends are both there."""
    sends = [Send(number / 100, 1.0, number % 2 == 0, "ok" if number % 2 == 0 else "no") for number in range(10_001)]
    outcomes = outcomes_of(sends)
    points = points_of(sends, outcomes)
    assert POINTS_MAX // 2 < len(points) <= POINTS_MAX
    assert points[0].at_s == 0.0
    assert points[-1].at_s > 99.9
    assert {outcomes[point.outcome].text for point in points} <= {"ok", "no"}


def test_the_json_comes_back_as_the_same_report(report: Report) -> None:
    """What ``--json`` prints holds all of it."""
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert report.schema == SCHEMA
    assert report.ok


def test_what_differed_is_named(report_that_differs: Report) -> None:
    """The phase and its check."""
    assert [(name, check.what) for name, check in report_that_differs.failed()] == [
        ("as it is", "the fault hit the disk")
    ]
    assert not report_that_differs.ok


@pytest.mark.parametrize("kind", [Report, Phase, Outcome, Latency, Evidence, Check])
def test_every_field_of_the_json_is_documented(kind: type[msgspec.Struct]) -> None:
    """A field that scripts can read is in the table of ``docs/scenarios.md``."""
    text = DOC.read_text()
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in text] == []

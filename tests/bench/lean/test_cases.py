"""Rounds alternate, a contender that fails stops no other, and each goal is compared the right way round."""

from functools import partial
from pathlib import Path

import pytest

from bench.lean.cases import CASES, Measure, Row, Run
from bench.lean.command import table
from bench.lean.goals import GOALS, verdicts
from bench.lean.lineup import CONTENDERS, OURS, Lineup
from bench.lean.pinning import Cores


def _run(tmp_path: Path, rounds: int) -> Run:
    core = frozenset({0})
    return Run(Lineup(tmp_path, Cores(core, core)), tmp_path, rounds, 0.1)


def test_every_round_begins_with_another_contender(tmp_path: Path) -> None:
    """So that none is always measured after the same one."""
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    measures: dict[str, Measure] = {name: partial(measure, name) for name in "ABC"}
    row = _run(tmp_path, 3).row("case", "Case", "µs", measures)
    assert "".join(order) == "ABCBCACAB"
    assert row.values == {"A": [1.0, 6.0, 8.0], "B": [2.0, 4.0, 9.0], "C": [3.0, 5.0, 7.0]}
    assert row.median("A") == 6.0
    assert row.median("D") is None


def test_a_contender_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """Its rounds so far stay."""
    values = [1.0]

    def fails() -> float:
        if not values:
            raise RuntimeError("gone")
        return values.pop()

    row = _run(tmp_path, 3).row("case", "Case", "/s", {"bad": fails, "good": lambda: 2.0})
    assert row.values == {"bad": [1.0], "good": [2.0, 2.0, 2.0]}
    assert row.failed == {"bad": "RuntimeError: gone"}


@pytest.mark.parametrize(
    ("unit", "ours", "wanted", "verdict"),
    [
        ("µs", 140.0, "≤ 0.75", "reached"),
        ("µs", 300.0, "≤ 0.75", "missed: 2.00 of it"),
        ("/s", 300.0, "≥ 0.75", "reached"),
        ("/s", 75.0, "≥ 0.75", "missed: 0.50 of it"),
    ],
)
def test_a_time_has_an_upper_limit_and_a_rate_a_lower_one(unit: str, ours: float, wanted: str, verdict: str) -> None:
    """The unit decides."""
    row = Row("one", "one in flight", unit, {OURS: [ours], "nats": [200.0]})
    found = verdicts([row], "default")[0]
    assert found[1:] == ["PocketMQ / NATS JetStream, nats-py", f"{ours / 200:.2f}", wanted, verdict]


def test_a_mode_has_its_own_limits_and_what_was_not_measured_is_said() -> None:
    """The pool's limits are tighter, and a missing peer is no reached goal."""
    row = Row("one", "one in flight", "µs", {OURS: [130.0], "nats": [200.0]})
    assert [each[3:] for each in verdicts([row], "default")] == [["≤ 0.75", "reached"], ["≤ 1", "not measured"]]
    assert [each[3:] for each in verdicts([row], "pool")] == [["≤ 0.6", "missed: 1.08 of it"]]


def test_goals_name_cases_that_exist() -> None:
    """And contenders, or variants of a case."""
    assert {goal.case for goal in GOALS} <= set(CASES)
    assert {goal.against for goal in GOALS if not goal.against[0].isdigit()} <= {*CONTENDERS, "fdatasync"}


def test_the_table_has_a_column_for_each_mode() -> None:
    """A contender that one mode could not measure has a dash there."""
    rows = {
        "split": [Row("one", "one in flight", "µs", {OURS: [3.0, 1.0, 2.0]})],
        "none": [Row("one", "one in flight", "µs", {"nats": [5.0]})],
    }
    assert table(rows) == [
        ["one in flight", "PocketMQ", "µs", "2", "–", "1 … 3"],
        ["one in flight", "NATS JetStream, nats-py", "µs", "–", "5", ""],
    ]

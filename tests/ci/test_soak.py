"""How CI judges a soak."""

from pathlib import Path

import pytest

from tests.ci.soak import is_good, lines
from tests.ci.suite import RETRIES_MAX, Outcome, Report, Retried, try_again

REPORT = Report("soak", Path("nowhere"))


@pytest.mark.parametrize(
    ("outcome", "good"),
    [
        (Outcome(0, True, passed=3), True),
        (Outcome(2, False, passed=3), True),
        (Outcome(1, True, passed=3, failed={"a": "E"}), False),
        (Outcome(1, True, passed=4), True),  # its failing test passed alone
        (Outcome(2, False, passed=3, failed={"a": "E"}), False),
        (Outcome(2, False), False),
        (Outcome(5, True), False),
        (Outcome(3, True, passed=1), False),
    ],
)
def test_a_failure_decides_and_the_bound_does_not(outcome: Outcome, good: bool) -> None:
    assert is_good(outcome) is good
    assert lines(outcome, 20, Retried(), REPORT)[-1].endswith(", good" if good else ", NOT good")


def test_the_bound_and_each_failure_are_reported() -> None:
    outcome = Outcome(2, False, passed=3, failed={"a": "first"})
    retried = try_again(outcome, lambda test: Outcome(1, True, failed={test: "second"}))
    told = lines(outcome, 20, retried, REPORT)
    assert told[0].splitlines() == [
        "soak: BROKEN (twice): a",
        "-- the first try:",
        "first",
        "-- the second try, alone:",
        "second",
    ]
    assert told[1] == "soak: stopped at its bound of 20 minutes"


def test_what_passes_alone_is_no_failure() -> None:
    """But many failures at once are no accident."""
    outcome = Outcome(1, True, passed=3, failed={"a": "E", "b": "E"})
    retried = try_again(outcome, lambda test: Outcome(0 if test == "a" else 1, True, passed=1))
    assert (retried.recovered, retried.broken) == ({"a": "E"}, {"b": ("E", "pytest ended with 1")})
    assert (outcome.passed, list(outcome.failed)) == (4, ["b"])
    many = Outcome(1, True, failed={str(number): "E" for number in range(RETRIES_MAX + 1)})
    assert try_again(many, lambda test: Outcome(0, True, passed=1)).recovered == {}
    assert not is_good(many)

"""The calls of a message stay below their bounds, whatever else the machine does."""

from collections.abc import Iterator

import pytest

from bench.calls.bounds import BOUNDS
from bench.calls.cases import CASES, Counting
from bench.calls.figures import BACKGROUND

COUNTS = 3
"""Waits on a busy machine add calls, and never take any away: one count within the bounds shows the path."""


CALLS_OF_A_USER = {"one": 3, "push": 3, "json": 20}
"""Case → what a user and a policy may add; a JSON send has a signature, which takes fifteen."""


@pytest.fixture(scope="module")
def counting() -> Iterator[Counting]:
    """A broker and clients whose calls are counted."""
    with Counting() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_message_takes_no_more_calls_than_its_bounds(counting: Counting, case: str) -> None:
    """Each side and thread of each load: ``bench/calls/bounds.py`` says when a bound may change."""
    stays_below(counting, case, 0)


@pytest.fixture(scope="module")
def counting_users() -> Iterator[Counting]:
    """The same where each request needs a user and a policy."""
    with Counting(users=True) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("case", CALLS_OF_A_USER)
def test_a_user_adds_few_calls(counting_users: Counting, case: str) -> None:
    """The guard remembers, and the short paths ask it once."""
    stays_below(counting_users, case, CALLS_OF_A_USER[case])


def stays_below(counting: Counting, case: str, more: int) -> None:
    """Fail unless a case takes at most ``more`` calls than its bounds on each side."""
    bounds = [bound for bound in BOUNDS if bound.case == case]
    assert bounds
    for _ in range(COUNTS):
        measured = CASES[case][1](counting, case)
        found = {(bound.side, bound.thread): bound.measured(measured) for bound in bounds}
        assert all(found[bound.side, bound.thread] > 0 for bound in bounds if bound.thread != BACKGROUND)
        over = [bound for bound in bounds if found[bound.side, bound.thread] > bound.calls + more]
        if not over:
            return
    assert not over, f"{over} {found} {[figures.top(10) for figures in measured.sides.values()]}"

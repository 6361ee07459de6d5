"""The calls of a message stay below their bounds, whatever else the machine does."""

from collections.abc import Iterator

import pytest

from bench.calls.bounds import BOUNDS
from bench.calls.cases import CASES, Counting
from bench.calls.figures import BACKGROUND

COUNTS = 3
"""Waits on a busy machine add calls, and never take any away: one count within the bounds shows the path."""


@pytest.fixture(scope="module")
def counting() -> Iterator[Counting]:
    """A broker and clients whose calls are counted."""
    with Counting() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_message_takes_no_more_calls_than_its_bounds(counting: Counting, case: str) -> None:
    """Each side and thread of each load: ``bench/calls/bounds.py`` says when a bound may change."""
    bounds = [bound for bound in BOUNDS if bound.case == case]
    assert bounds
    for _ in range(COUNTS):
        measured = CASES[case][1](counting, case)
        found = {(bound.side, bound.thread): bound.measured(measured) for bound in bounds}
        assert all(found[bound.side, bound.thread] > 0 for bound in bounds if bound.thread != BACKGROUND)
        over = [bound for bound in bounds if found[bound.side, bound.thread] > bound.calls]
        if not over:
            return
    assert not over, f"{over} {found} {[figures.top(10) for figures in measured.sides.values()]}"

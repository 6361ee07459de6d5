"""The calls of a message stay below their bounds, whatever else the machine does."""

from collections.abc import Iterator

import pytest

from bench.calls.bounds import BOUNDS
from bench.calls.cases import CASES, Counting
from bench.calls.figures import BACKGROUND


@pytest.fixture(scope="module")
def counting() -> Iterator[Counting]:
    """A broker and clients whose calls are counted."""
    with Counting() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_message_takes_no_more_calls_than_its_bounds(counting: Counting, case: str) -> None:
    """Each side and thread of each load: ``bench/calls/bounds.py`` says when a bound may change."""
    measured = CASES[case][1](counting, case)
    bounds = [bound for bound in BOUNDS if bound.case == case]
    assert bounds
    found = {(bound.side, bound.thread): bound.measured(measured) for bound in bounds}
    assert all(found[bound.side, bound.thread] > 0 for bound in bounds if bound.thread != BACKGROUND)
    over = [bound for bound in bounds if found[bound.side, bound.thread] > bound.calls]
    assert not over, f"{over} {found} {[figures.top(10) for figures in measured.sides.values()]}"

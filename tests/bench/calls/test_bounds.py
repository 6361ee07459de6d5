"""The calls of a message stay below their bounds, whatever else the machine does."""

from collections.abc import Iterator, Sequence

import pytest

from bench.calls.bounds import BOUNDS, SURVIVING, SURVIVING_BOUNDS, Bound
from bench.calls.cases import CASES, Counting
from bench.calls.figures import BACKGROUND
from tests.memory import has_room

COUNTS = 3
"""Waits on a busy machine add calls, and never take any away: one count within the bounds shows the path."""


CALLS_OF_A_USER = {"one": 3, "push": 3, "json": 20}
"""Case → what a user and a policy may add; a JSON send has a signature, which takes fifteen."""


@pytest.fixture(scope="module")
def counting() -> Iterator[Counting]:
    """A broker and clients whose calls are counted."""
    with Counting() as started:
        yield started


@pytest.fixture(scope="module")
def surviving() -> Iterator[Counting]:
    """The same with write buffers that survive the process."""
    if not has_room():
        pytest.skip("too little memory at /dev/shm")
    with Counting(*SURVIVING) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_message_takes_no_more_calls_than_its_bounds(counting: Counting, case: str) -> None:
    """Each side and thread of each load: ``bench/calls/bounds.py`` says when a bound may change."""
    stays_below(counting, case, BOUNDS)


@pytest.fixture(scope="module")
def counting_users() -> Iterator[Counting]:
    """The same where each request needs a user and a policy."""
    with Counting(users=True) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("case", CALLS_OF_A_USER)
def test_a_user_adds_few_calls(counting_users: Counting, case: str) -> None:
    """The guard remembers, and the short paths ask it once."""
    stays_below(counting_users, case, BOUNDS, CALLS_OF_A_USER[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted({bound.case for bound in SURVIVING_BOUNDS}))
def test_so_does_a_message_that_is_appended_on_the_loop(surviving: Counting, case: str) -> None:
    """A waiting consumer gets it from the thread that commits: the pull thread would take twice as many."""
    stays_below(surviving, case, SURVIVING_BOUNDS)


def stays_below(counting: Counting, case: str, all_bounds: Sequence[Bound], more: int = 0) -> None:
    """Fail unless a case takes at most ``more`` calls than its bounds on each side."""
    bounds = [bound for bound in all_bounds if bound.case == case]
    assert bounds
    for _ in range(COUNTS):
        measured = CASES[case][1](counting, case)
        found = {(bound.side, bound.thread): bound.measured(measured) for bound in bounds}
        assert all(found[bound.side, bound.thread] > 0 for bound in bounds if bound.thread != BACKGROUND)
        over = [bound for bound in bounds if found[bound.side, bound.thread] > bound.calls + more]
        if not over:
            return
    assert not over, f"{over} {found} {[figures.top(10) for figures in measured.sides.values()]}"

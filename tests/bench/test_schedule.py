"""The open-loop schedule: intended times do not depend on when they are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.base.schedule import Schedule


def all_at_once(rate: float, seconds: float, seed: int) -> list[float]:
    schedule = Schedule(rate, seconds, seed)
    return schedule.take(seconds, most=1_000_000)


@given(st.lists(st.floats(0, 0.2), max_size=30), st.integers(1, 5), st.integers(1, 64))
def test_stalls_of_the_taker_move_no_intended_time(steps: list[float], seed: int, most: int) -> None:
    """Times read late, or in other portions, are the same."""
    schedule, taken, now = Schedule(200, 1.0, seed), [], 0.0
    for step in steps:
        now += step
        due = schedule.take(now, most)
        assert all(at <= now for at in due)
        assert len(due) <= most
        taken += due
    while not schedule.over:
        taken += schedule.take(10.0, most)
    assert taken == all_at_once(200, 1.0, seed)


def test_the_rate_is_that_asked_for() -> None:
    """Ten thousand times a second for two seconds are twenty thousand, within 3 %."""
    times = all_at_once(10_000, 2.0, seed=3)
    assert len(times) == pytest.approx(20_000, rel=0.03)
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 2.0


def test_lag_is_how_late_the_first_due_time_was_taken() -> None:
    """A generator that sleeps through half a second reports the lag."""
    schedule = Schedule(1000, 1.0, seed=1)
    first = schedule.next_at
    schedule.take(0.5)
    assert schedule.lag_s_max == pytest.approx(0.5 - first)


def test_two_seeds_differ_and_one_repeats() -> None:
    """The schedule depends on the seed alone."""
    assert all_at_once(100, 1, 1) == all_at_once(100, 1, 1)
    assert all_at_once(100, 1, 1) != all_at_once(100, 1, 2)


@pytest.mark.parametrize(("rate", "seconds"), [(0, 1), (1, 0), (-5, 1)])
def test_a_schedule_without_rate_or_time_is_refused(rate: float, seconds: float) -> None:
    """Such a schedule would never begin or never end."""
    with pytest.raises(ValueError, match="above 0"):
        Schedule(rate, seconds)

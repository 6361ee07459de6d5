"""Clocks."""

import pytest

from pocketmq.common.clock import ManualClock, SteadyTime, SystemClock


def test_a_manual_clock_moves_only_when_told() -> None:
    """Wall and monotonic time move together, also by fractions of a ms."""
    clock = ManualClock(1_000)
    assert clock.now_ms() == clock.now_ms() == 1_000
    start_ns = clock.monotonic_ns()
    clock.advance_ms(1.5)
    clock.advance_ms(0)
    assert clock.now_ms() == 1_001
    assert clock.monotonic_ns() - start_ns == 1_500_000
    with pytest.raises(AssertionError):
        clock.advance_ms(-1)


def test_the_system_clock_counts_ms_since_1970() -> None:
    """Wall time is in ms; the monotonic time does not go back."""
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    assert clock.monotonic_ns() <= clock.monotonic_ns()


def test_it_passes_and_does_not_jump() -> None:
    """A step is taken once; less than a second is none."""
    clock = ManualClock(1_000_000)
    steady = SteadyTime(clock)
    clock.step_ms(999)
    assert steady.take_step() == 0
    clock.step_ms(1)
    assert steady.take_step() == 1_000
    assert steady.take_step() == 0
    clock.advance_ms(5)
    clock.step_ms(-1_000)
    assert (steady.take_step(), steady.skew_ms, steady.now_ms()) == (-1_000, 0, 1_000_005)


def test_the_machines_clock_counts_suspended_time_where_it_can() -> None:
    """Elapsed time never goes back and is never less than it was."""
    clock = SystemClock()
    first = clock.elapsed_ns()
    assert clock.elapsed_ns() >= first

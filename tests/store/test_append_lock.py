"""The append lock and its marker."""

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.store.append_lock import AppendLock


def test_the_marker_shows_how_long_the_holder_has_had_the_lock() -> None:
    """Zero when free, the age while held, totals after."""
    clock = ManualClock()
    lock = AppendLock(clock)
    assert lock.held_ns() == 0
    with lock:
        clock.advance_ms(1500)
        assert lock.held_ns() == 1_500_000_000
    assert lock.held_ns() == 0
    assert (lock.holds, lock.held_ns_total) == (1, 1_500_000_000)


def test_an_exception_inside_resets_the_marker_and_frees_the_lock() -> None:
    """Whatever is raised, the next one gets the lock and nobody looks busy."""
    lock = AppendLock(ManualClock())
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), lock:
            raise error
        assert lock.held_since_ns == 0
    with lock:
        assert lock.held_since_ns


def test_a_clock_that_fails_at_the_end_does_not_keep_the_lock() -> None:
    """The lock is free even if measuring it failed."""

    class Clock(ManualClock):
        fails = False

        def monotonic_ns(self) -> int:
            if self.fails:
                raise OSError
            return super().monotonic_ns()

    clock = Clock()
    lock = AppendLock(clock)
    with pytest.raises(OSError), lock:
        clock.fails = True
    clock.fails = False
    assert lock.held_ns() == 0
    with lock:
        pass

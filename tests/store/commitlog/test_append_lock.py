"""The append lock, its marker, and its waiters."""

import threading
from collections.abc import Callable

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause
from pocketmq.store.commitlog.append_lock import BUSY_GUARD_MS, WAIT_LIMITS_MAX, AppendLock
from pocketmq.store.errors import PageCacheBusy


class Held:
    """Another thread that has the lock until asked to leave."""

    def __init__(self, lock: AppendLock) -> None:
        self._leave = threading.Event()
        entered = threading.Event()

        def hold() -> None:
            with lock:
                entered.set()
                self._leave.wait(30)

        self._thread = threading.Thread(target=hold)
        self._thread.start()
        assert entered.wait(30)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_the_marker_shows_how_long_the_holder_has_had_the_lock() -> None:
    """It is zero when free and the age while held; the totals follow."""
    clock = ManualClock()
    lock = AppendLock(clock)
    assert lock.held_ns() == 0
    with lock:
        clock.advance_ms(1500)
        assert lock.held_ns() == 1_500_000_000
    assert lock.held_ns() == 0
    assert (lock.holds, lock.held_ns_total) == (1, 1_500_000_000)


def test_an_exception_inside_resets_the_marker_and_frees_the_lock() -> None:
    """Whatever the error, the next thread gets the lock and the store is not busy."""
    lock = AppendLock(ManualClock())
    for way in (lock, lock.patient):
        for error in (ValueError, KeyboardInterrupt, SystemExit):
            with pytest.raises(error), way:
                raise error
            assert lock.held_since_ns == 0
    with lock:
        assert lock.held_since_ns


@pytest.mark.parametrize("failing_call", [1, 2])
@pytest.mark.parametrize("patient", [False, True])
def test_a_clock_that_fails_does_not_keep_the_lock(failing_call: int, patient: bool) -> None:
    """The lock is free and unmarked even if measuring failed, at the entry or at the end."""

    class Clock(ManualClock):
        calls_left = 0

        def monotonic_ns(self) -> int:
            self.calls_left -= 1
            if self.calls_left == 0:
                raise OSError
            return super().monotonic_ns()

    clock = Clock()
    lock = AppendLock(clock)
    clock.calls_left = failing_call
    with pytest.raises(OSError), lock.patient if patient else lock:
        pass
    assert (lock.held_since_ns, lock.held_ns(), lock.is_busy()) == (0, 0, False)
    with lock:
        pass


def test_busy_is_a_hold_above_the_limit_and_below_the_guard() -> None:
    """Both bounds are exclusive, as in RocketMQ; a free lock is never busy."""
    clock = ManualClock()
    lock = AppendLock(clock, busy_limit_ms=1000)
    assert not lock.is_busy()
    with lock:
        clock.advance_ms(1000)
        assert not lock.is_busy()
        clock.advance_ms(0.001)
        assert lock.is_busy()
        clock.advance_ms(BUSY_GUARD_MS - 1000 - 0.002)
        assert lock.is_busy()
        clock.advance_ms(0.001)
        assert not lock.is_busy()
    assert not lock.is_busy()
    assert (lock.busy_episodes, lock.busy_refusals) == (1, 0)


def test_who_comes_to_a_busy_lock_is_sent_away_at_once() -> None:
    """It gets the evidence without a wait, even above RocketMQ's guard, where the lock no longer counts as busy."""
    clock = ManualClock()
    lock = AppendLock(clock, busy_limit_ms=1000)
    held = Held(lock)
    for held_ms in (1001, BUSY_GUARD_MS):
        clock.advance_ms(held_ms)
        with pytest.raises(PageCacheBusy, match="the limit is 1000 ms") as caught, lock:
            pass
        assert (caught.value.cause, caught.value.retriable) == (Cause.PAGE_CACHE_BUSY, True)
    assert lock.busy_refusals == 2
    held.leave()
    with lock:
        assert lock.held_ns() == 0


def test_who_waits_gives_up_when_the_holder_passes_the_limit() -> None:
    """The holder stays beyond the limit: one bounded wait; a patient waiter gets the lock at last."""
    clock = ManualClock()
    lock = AppendLock(clock, busy_limit_ms=1000)
    held = Held(lock)
    told: list[str] = []

    def append() -> None:
        try:
            with lock:
                told.append("in")
        except PageCacheBusy:
            told.append("sent away")

    def close() -> None:
        with lock.patient:
            told.append("patient")

    clock.advance_ms(999)
    waiting, patient = in_thread(append), in_thread(close)
    waiting.join(0.12)
    assert told == []
    clock.advance_ms(2)
    waiting.join(30)
    assert told == ["sent away"]
    held.leave()
    patient.join(30)
    assert told == ["sent away", "patient"]


@pytest.mark.slow
def test_a_wait_is_bounded_even_if_every_holder_is_quick() -> None:
    """If another thread always gets the lock first, the waiter gives up after five limits."""
    clock = ManualClock()
    lock = AppendLock(clock, busy_limit_ms=10)
    held = Held(lock)
    raised: list[PageCacheBusy] = []

    def append() -> None:
        try:
            with lock:
                pass
        except PageCacheBusy as error:
            raised.append(error)

    waiting = in_thread(append)
    waited_ms = 0
    while waiting.is_alive() and waited_ms < 10_000:
        clock.advance_ms(5)
        waited_ms += 5
        lock.held_since_ns = clock.monotonic_ns()  # as if a new holder had just entered
        waiting.join(0.06)
    assert len(raised) == 1
    assert waited_ms >= WAIT_LIMITS_MAX * 10
    held.leave()


def test_the_longest_hold_of_the_last_minute_is_known() -> None:
    """The present hold counts, and one that ended more than a minute ago does not."""
    clock = ManualClock()
    lock = AppendLock(clock)

    def hold(duration_ms: int) -> None:
        with lock:
            clock.advance_ms(duration_ms)

    hold(700)
    clock.advance_ms(20_000)
    hold(300)
    assert lock.longest_hold_ns() == 700_000_000
    with lock:
        clock.advance_ms(900)
        assert lock.longest_hold_ns() == 900_000_000
    clock.advance_ms(25_000)
    hold(50)
    assert lock.longest_hold_ns() == 900_000_000
    clock.advance_ms(36_000)
    assert lock.longest_hold_ns() == 50_000_000
    clock.advance_ms(60_000)
    assert lock.longest_hold_ns() == 0
    hold(1)
    assert lock.longest_hold_ns() == 1_000_000

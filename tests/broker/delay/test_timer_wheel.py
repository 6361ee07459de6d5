"""The wheel against a sorted list."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.delay.timer_wheel import DUE_MS_MAX, Entries, TimerWheel
from pocketmq.store.consumequeue.consume_queue import ENTRY

Row = tuple[int, int]


def entries(rows: list[Row]) -> Entries:
    return np.array([(physical, 7, due) for due, physical in rows], ENTRY)


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 40)), max_size=40), st.integers(0, 1 << 30))
def test_it_gives_back_what_is_due_in_order(steps: list[tuple[int, int]], seed: int) -> None:
    """Any adds and takes, in any order, return the first keys of a sorted list, and finally all of them."""
    rng = random.Random(seed)
    wheel, model, now, physical = TimerWheel(100_000, count_seconds=True), list[Row](), 0, 0
    for ahead, count in steps:
        rows = []
        for _ in range(count):
            physical += rng.randint(1, 50)
            rows.append((max(0, now + rng.choice((-5, 0, rng.randint(0, 100_000)))), physical))
        wheel.add(entries(rows))
        model = sorted(model + rows)
        now += rng.choice((0, ahead))
        first = model[0][0] if model else None
        told = wheel.next_due_ms()
        assert (told is None) == (first is None)
        assert told is None or first is None or told <= first
        peeked = wheel.peek(now, rng.randint(1, 60))
        part = peeked.part(0, rng.randint(0, len(peeked)))
        expected = [row for row in model if row[0] <= now][: len(part)]
        assert list(zip(part.due.tolist(), part.physical.tolist(), strict=True)) == expected
        assert wheel.take(part) == len(part)
        del model[: len(part)]
        assert len(wheel) == len(model)
        key = (now, physical)
        up_to = sorted((due, at) for at, _, due in wheel.up_to(key).tolist())
        assert up_to == [row for row in model if row <= key]
    second = now // 1000
    assert wheel.count_at(now) == sum(row[0] // 1000 == second for row in model)


@pytest.mark.parametrize("spread_ms", [1, 3_000, 10_000_000])
def test_beyond_its_memory_it_forgets_the_last_and_says_where(spread_ms: int) -> None:
    """It keeps the first keys, below the horizon; added again after a lift, all are returned in order."""
    rng = random.Random(spread_ms)
    wheel = TimerWheel(1000, count_seconds=True)
    rows = [(rng.randrange(spread_ms), physical) for physical in range(5000)]
    for start in range(0, 5000, 100):
        wheel.add(entries(rows[start : start + 100]))
        assert len(wheel) <= 1000
        wheel.peek(min(spread_ms // 2, 500), 10)
    taken: list[Row] = []
    lifts = 0
    while len(taken) < 5000:
        if wheel.wants_more:
            horizon = wheel.lift_horizon()
            lifts += 1
            again = [row for row in rows if row >= horizon]
            for start in range(0, len(again), 300):
                wheel.add(entries(again[start : start + 300]))
        timers = wheel.peek(spread_ms, 64)
        wheel.take(timers)
        taken += zip(timers.due.tolist(), timers.physical.tolist(), strict=True)
    assert taken == sorted(rows)
    assert lifts >= 4
    assert wheel.count_at(0) == 0


def test_times_beyond_all_sense_break_nothing() -> None:
    """A tags code is any number from a file: below 0 means now, the largest means never."""
    wheel = TimerWheel(100, count_seconds=True)
    wheel.add(entries([((1 << 63) - 1, 1), (-(1 << 63), 2), (5, 3)]))
    timers = wheel.peek(10, 10)
    assert timers.physical.tolist() == [2, 3]
    wheel.take(timers)
    due_ms = wheel.next_due_ms()
    assert due_ms is not None
    assert 1 << 60 < due_ms <= DUE_MS_MAX

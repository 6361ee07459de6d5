"""The due times of a level's entries."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.delay.arrivals import SAMPLES, SAMPLES_MAX, Arrivals
from pocketmq.common.clock import ManualClock, SteadyTime

DAY_MS = 86_400_000


@given(
    st.integers(1, 7_200_000),
    st.lists(
        st.tuples(
            st.integers(0, 100_000),
            st.integers(0, 20),
            st.sampled_from([0, DAY_MS, -DAY_MS, 3_000]),
            st.booleans(),
            st.integers(0, 20),
        ),
        max_size=60,
    ),
)
def test_every_entry_is_due_after_its_delay(delay_ms: int, history: list[tuple[int, int, int, bool, int]]) -> None:
    """For any history of pauses, sends and steps: never early, and late by no more than a part of the delay.

    Entries are appended before a step, and after it before anybody has noticed.
    """
    clock = ManualClock()
    steady = SteadyTime(clock)
    arrivals = Arrivals(delay_ms, steady.now_ms())
    arrivals.open(0)
    wanted: list[int] = []
    tags: list[int] = []
    last_store_ms = 0

    def append(count: int) -> None:
        nonlocal last_store_ms
        last_store_ms = max(last_store_ms, clock.now_ms())
        tags.extend([last_store_ms + delay_ms] * count)
        wanted.extend([steady.now_ms() + delay_ms] * count)

    def notice() -> None:
        if steady.take_step():
            arrivals.stepped(steady.skew_ms)

    for pause_ms, before, step_ms, is_seen, after in history:
        clock.advance_ms(pause_ms)
        append(before)
        clock.step_ms(step_ms)
        if is_seen:  # the delivery thread looks, while the dispatcher is behind
            notice()
        append(after)
        if tags:
            notice()
            arrivals.arrived(len(tags), steady.now_ms())
    due = arrivals.due(0, np.array(tags, np.int64), steady.now_ms())
    late = due - np.array(wanted, np.int64)
    assert ((late >= 0) & (late <= delay_ms // SAMPLES)).all()


def test_what_it_remembers_is_bounded() -> None:
    """A level that is not read for hours: entries are never early, and the memory is bounded."""
    arrivals = Arrivals(1_000, 0)
    arrivals.open(0)
    for now_ms in range(3 * SAMPLES_MAX):
        arrivals.arrived(now_ms + 1, now_ms)
    assert len(arrivals._ends) <= SAMPLES_MAX
    due = arrivals.due(0, np.full(3 * SAMPLES_MAX, 1 << 60), 3 * SAMPLES_MAX)
    assert (due >= np.arange(3 * SAMPLES_MAX) + 1_000).all()

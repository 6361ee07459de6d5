"""The table of waiting pulls: woken by messages, expired by time, dropped with their connection."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.pull.long_polling import TICK_NS, Hold, PullHolds

MS = 1_000_000


def make_hold(owner: Any = "c1", queues: Any = (("T", 0, 5),), deadline_ms: Any = 1000, size_bytes: Any = 10) -> Hold:
    return Hold(owner, list(queues), deadline_ms * MS, size_bytes, None)


def test_news_wakes_only_those_below_it() -> None:
    """A hold at the queue's end stays; one below the new maximum is returned, once."""
    holds = PullHolds(10, 1000)
    early, late = make_hold(queues=[("T", 0, 5)]), make_hold(queues=[("T", 0, 6)])
    assert holds.hold(early)
    assert holds.hold(late)
    assert holds.wake("T", 0, 5) == []
    assert holds.wake("T", 1, 9) == []
    assert holds.wake("T", 0, 6) == [early]
    assert holds.wake("T", 0, 6) == []
    assert holds.count == 1


def test_a_hold_on_many_queues_leaves_them_all_when_one_has_news() -> None:
    """A native pull waits for all of its queues and is returned by the first."""
    holds = PullHolds(10, 1000)
    hold = make_hold(queues=[("A", 0, 0), ("B", 3, 7)])
    assert holds.hold(hold)
    assert holds.wake("B", 3, 8) == [hold]
    assert holds.wake("A", 0, 1) == []
    assert (holds.count, holds.size_bytes) == (0, 0)


def test_expiry_comes_not_before_the_deadline_and_within_one_tick() -> None:
    """Deadlines are kept to one tick."""
    holds = PullHolds(10, 1000)
    hold = make_hold(deadline_ms=250)
    assert holds.hold(hold)
    assert holds.expire(249 * MS) == []
    assert holds.expire(300 * MS) == [hold]
    again = make_hold(deadline_ms=10)
    assert holds.hold(again)
    assert holds.expire(400 * MS) == [again]


def test_the_table_is_bounded_in_count_and_bytes() -> None:
    """A hold too many is refused and leaves no trace."""
    holds = PullHolds(2, 25)
    assert holds.hold(make_hold())
    assert holds.hold(make_hold())
    assert not holds.hold(make_hold())
    assert len(holds.drop_owner("c1")) == 2
    assert holds.hold(make_hold(size_bytes=20))
    assert not holds.hold(make_hold(size_bytes=6))
    assert len(holds.clear()) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("hold"),
            st.sampled_from("xyz"),
            st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=3),
            st.integers(0, 30),
        ),
        st.tuples(st.just("wake"), st.sampled_from("AB"), st.integers(0, 1), st.integers(0, 5)),
        st.tuples(st.just("expire"), st.integers(0, 10)),
        st.tuples(st.just("drop"), st.sampled_from("xyz")),
    ),
    max_size=50,
)


@given(STEPS)
def test_any_order_of_events_agrees_with_a_plain_list(steps: Any) -> None:
    """Each hold is returned once, for the same reason as in the model."""
    holds, now_ns = PullHolds(8, 1 << 20), 0
    model: list[Hold] = []
    for step in steps:
        if step[0] == "hold":
            hold = Hold(step[1], step[2], now_ns + step[3] * TICK_NS, 1, None)
            assert holds.hold(hold) is (len(model) < 8)
            if hold.held:
                model.append(hold)
            continue
        if step[0] == "wake":
            got = holds.wake(step[1], step[2], step[3])
            want = [h for h in model if any(q[:2] == step[1:3] and q[2] < step[3] for q in h.queues)]
        elif step[0] == "expire":
            now_ns += step[1] * TICK_NS
            got = holds.expire(now_ns)
            want = [h for h in model if h.deadline_ns <= now_ns]
        else:
            got = holds.drop_owner(step[1])
            want = [h for h in model if h.owner == step[1]]
        assert set(got) == set(want)
        assert len(got) == len(want)
        model = [h for h in model if h not in want]
        assert holds.count == len(model)
    assert set(holds.clear()) == set(model)
    assert (holds.count, holds.size_bytes) == (0, 0)
    assert not holds._by_queue
    assert not holds._by_owner
    assert not holds._buckets

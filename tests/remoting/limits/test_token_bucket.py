"""So many a second, some at once, debt for what is larger."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.limits.token_bucket import NS_PER_S, Limit, TokenBucket, take_all

STEPS = st.lists(st.tuples(st.integers(0, 3 * NS_PER_S), st.integers(0, 5_000)), max_size=60)
"""(ns since the last request, its size)"""


def bucket(rate: int = 10, burst: int = 10, *, counts_bytes: bool = False, now_ns: int = 0) -> TokenBucket:
    return TokenBucket(Limit("messages_in", counts_bytes, rate, burst), now_ns)


def test_a_full_bucket_lets_its_burst_through_and_then_one_for_each_token() -> None:
    one = bucket()
    assert sum(take_all((one,), 1, 0, 0) is None for _ in range(20)) == 10
    assert 0 < one.wait_ns(0) <= 2
    passed = sum(take_all((one,), 1, 0, 100_000_000 * number + 1) is None for number in range(1, 21))
    assert passed == 20


def test_what_is_larger_than_the_bucket_passes_and_is_paid_off_before_the_next() -> None:
    one = bucket()
    assert take_all((one,), 1_000, 0, 0) is None
    assert take_all((one,), 1, 0, 98 * NS_PER_S) is one
    assert one.wait_ns(98 * NS_PER_S) == NS_PER_S + 1
    assert take_all((one,), 1, 0, 99 * NS_PER_S + 1) is None


@given(st.integers(1, 100_000), st.integers(1, 100_000), STEPS)
def test_no_time_lets_more_through_than_burst_rate_and_one_request(
    rate: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    """And whatever passes is only ever kept back by what passed before it."""
    one, now_ns = bucket(rate, burst), 0
    passed: list[tuple[int, int]] = []
    for pause_ns, size in steps:
        now_ns += pause_ns
        wait_ns = one.wait_ns(now_ns)
        if take_all((one,), size, 0, now_ns) is None:
            assert wait_ns == 0
            passed.append((now_ns, size))
        else:
            assert wait_ns > 0
    for first in range(len(passed)):
        total = 0
        for at_ns, size in passed[first:]:
            allowed = burst + rate * (at_ns - passed[first][0]) / NS_PER_S
            assert total <= allowed + 1e-6 * (allowed + total)  # the last one may be of any size
            total += size


@given(st.integers(1, 100_000), st.integers(1, 100_000), st.integers(0, 1 << 40))
def test_a_bucket_is_open_when_it_said_so_and_not_before(rate: int, burst: int, size: int) -> None:
    one = bucket(rate, burst)
    one.take(size, 0)
    wait_ns = one.wait_ns(0)
    assert one.wait_ns(wait_ns) <= 1 + wait_ns // 10**12  # what the sums of floats may differ by
    if wait_ns > 2:
        assert take_all((one,), 1, 0, wait_ns // 2) is one
        assert take_all((one,), 1, 0, wait_ns + wait_ns // 10**12 + 1) is None


@given(STEPS)
def test_of_several_buckets_all_pay_or_none(steps: list[tuple[int, int]]) -> None:
    """Each of them lets through what all of them let through: a refused request costs nobody anything."""
    both = bucket(50, 100), bucket(2_000, 4_000, counts_bytes=True)
    alone = bucket(50, 100), bucket(2_000, 4_000, counts_bytes=True)
    now_ns = 0
    for pause_ns, size in steps:
        now_ns += pause_ns
        levels = [each.wait_ns(now_ns) for each in both]
        refused_by = take_all(both, 3, size, now_ns)
        if refused_by is None:
            assert levels == [0, 0]
            alone[0].take(3, now_ns)
            alone[1].take(size, now_ns)
        else:
            assert refused_by.wait_ns(now_ns) > 0
        for each, other in zip(both, alone, strict=True):
            assert abs(each.wait_ns(now_ns) - other.wait_ns(now_ns)) <= 1_000


def test_tokens_are_given_back_up_to_the_burst() -> None:
    one = bucket()
    one.take(10, 0)
    one.take(-4, 0)
    assert one.level == 4
    one.take(-100, 0)
    assert one.level == 10


def test_a_clock_that_a_thread_has_read_earlier_takes_nothing_back() -> None:
    one = bucket(now_ns=NS_PER_S)
    one.take(5, 0)
    assert (one.level, one.at_ns) == (5, NS_PER_S)
    assert take_all((one,), 5, 0, 0) is None
    assert take_all((one,), 5, 0, 0) is one

"""Histograms: each value lands in its bucket, and percentiles are right within a bucket."""

import math
import threading

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.histogram import (
    BUCKET_COUNT,
    QUICK_NS,
    SAMPLE_INTERVAL_NS,
    SLOTS,
    VALUE_NS_MAX,
    Histogram,
    SampledHistogram,
    WindowedHistogram,
    bucket_begin_ns,
    bucket_of,
)

values = st.integers(0, VALUE_NS_MAX - 1) | st.integers(0, 10_000_000)


@given(values)
def test_a_value_lies_in_its_bucket(value_ns: int) -> None:
    """Buckets follow each other without gaps, and record_ns uses the same buckets as bucket_of."""
    index = bucket_of(value_ns)
    assert bucket_begin_ns(index) <= value_ns < bucket_begin_ns(index + 1)
    histogram = Histogram()
    histogram.record_ns(value_ns)
    assert histogram.counts.index(1) == index


def test_extremes_are_counted_too() -> None:
    """No value is lost at the ends: a clock that went back counts as 0, an age counts in the last bucket."""
    histogram = Histogram()
    histogram.record_ns(-5)
    histogram.record_ns(VALUE_NS_MAX * 100)
    assert (histogram.counts[0], histogram.counts[BUCKET_COUNT - 1]) == (1, 1)
    assert histogram.max_ns == VALUE_NS_MAX * 100
    assert histogram.count == 2


@given(st.lists(values, min_size=1, max_size=200), st.floats(0, 1))
def test_a_percentile_is_at_most_one_sixteenth_above_the_truth(sample: list[int], q: float) -> None:
    """Compared with the sorted list, the percentile is never below it and at most 1/16 or 128 ns above."""
    histogram = Histogram()
    for value in sample:
        histogram.record_ns(value)
    true = sorted(sample)[max(1, min(len(sample), math.ceil(q * len(sample)))) - 1]
    told = histogram.percentile_ns(q)
    assert true <= told <= true + max(128, true / 16)
    assert histogram.percentile_ns(1.0) == max(sample) == histogram.max_ns
    assert histogram.sum_ns == sum(sample)


@given(st.lists(st.tuples(values, st.integers(1, 5)), max_size=50), st.lists(values, max_size=50))
def test_minus_leaves_what_came_since_the_snapshot(first: list[tuple[int, int]], later: list[int]) -> None:
    """A weight counts as repeats; a difference has the counts and the sum of the later values."""
    histogram, only_later = Histogram(), Histogram()
    for value, count in first:
        histogram.record_ns(value, count)
    before = histogram.snapshot()
    for value in later:
        histogram.record_ns(value)
        only_later.record_ns(value)
    rest = histogram.minus(before)
    assert (rest.counts, rest.sum_ns) == (only_later.counts, only_later.sum_ns)
    assert rest.max_ns >= only_later.max_ns
    before.add(rest)
    assert before.counts == histogram.counts
    assert before.count == sum(count for _, count in first) + len(later)


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert Histogram().percentile_ns(0.99) == 0
    assert Histogram().minus(Histogram()).max_ns == 0


def test_counts_below_a_bucket_are_exact() -> None:
    """Exported buckets never fall, and a bound at the start of a bucket divides exactly."""
    histogram = Histogram()
    for value in (100, 200, 4096, 5000, 1_000_000):
        histogram.record_ns(value)
    assert histogram.count_below_ns(4096) == 2
    below = [histogram.count_below_ns(bound) for bound in range(0, 2_000_000, 997)]
    assert below == sorted(below)
    assert below[-1] == 5


def test_a_window_forgets_what_is_older_than_its_slots() -> None:
    """The totals stay, the window moves on, and its maximum is exact."""
    histogram = WindowedHistogram()
    histogram.record_ns(9_000_000)
    for _ in range(SLOTS - 1):
        histogram.rotate()
        histogram.record_ns(1_000)
    assert (histogram.window().count, histogram.window().max_ns) == (SLOTS, 9_000_000)
    histogram.rotate()
    assert (histogram.window().count, histogram.window().max_ns) == (SLOTS - 1, 1_000)
    assert (histogram.count, histogram.max_ns_total) == (SLOTS, 9_000_000)
    for _ in range(SLOTS):
        histogram.rotate()
    assert (histogram.window().count, histogram.window().sum_ns, histogram.window().max_ns) == (0, 0, 0)


def test_sampling_counts_everything_and_looks_at_few() -> None:
    """Short values represent each other within a millisecond; a long one always counts as itself."""
    histogram = SampledHistogram()
    histogram.sample_ns(0, 1_000, 1)
    for _ in range(1000):
        histogram.sample_ns(SAMPLE_INTERVAL_NS - 1, 2_000, 2)
    histogram.sample_ns(SAMPLE_INTERVAL_NS - 1, QUICK_NS * 7, 3)
    assert sum(1 for each in histogram.counts if each) == 2
    window = histogram.window()
    assert (window.count, window.max_ns) == (2004, QUICK_NS * 7)
    histogram.sample_ns(SAMPLE_INTERVAL_NS, 4_000, 1)
    assert histogram.snapshot().count == 2005
    histogram.sample_ns(SAMPLE_INTERVAL_NS + 1, 4_000, 10)
    histogram.rotate()
    assert histogram.window().count == 2015


@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 3_000_000), st.integers(1, 9)), max_size=100))
def test_sampling_never_loses_a_count(steps: list[tuple[int, int, int]]) -> None:
    """Whatever the order and the times, the counts cover all values and every long value is recorded."""
    histogram, now_ns = SampledHistogram(), 0
    for passed_ns, value_ns, count in steps:
        now_ns += passed_ns
        histogram.sample_ns(now_ns, value_ns, count)
    copy = histogram.snapshot()
    assert copy.count == sum(count for *_, count in steps)
    long = [(value_ns, count) for _, value_ns, count in steps if value_ns >= QUICK_NS]
    at = bucket_of(QUICK_NS) + 1
    assert sum(copy.counts[at:]) == sum(count for value_ns, count in long if bucket_of(value_ns) >= at)


def test_a_reader_beside_the_writer_never_sees_a_count_fall() -> None:
    """To Prometheus a falling counter looks like a restart: each read shows at least the previous count."""
    histogram, stop = SampledHistogram(), threading.Event()

    def write() -> None:
        now_ns = 0
        while not stop.is_set():
            now_ns += 100_000
            histogram.sample_ns(now_ns, now_ns % 400_000, 3)

    writer = threading.Thread(target=write)
    writer.start()
    counts = [histogram.snapshot().count for _ in range(2000)]
    while histogram.snapshot().count == counts[0]:  # on a loaded machine the writer may not have run yet
        counts.append(histogram.snapshot().count)
    counts.append(histogram.snapshot().count)
    stop.set()
    writer.join()
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]

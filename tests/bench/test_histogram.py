"""Recorded, merged and encoded latencies keep their values within three digits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.base.histogram import HIGHEST_NS, LOWEST_NS, Latencies, merged

NS = st.integers(min_value=LOWEST_NS, max_value=HIGHEST_NS)


def close(measured_ms: float, ns: int) -> bool:
    return measured_ms * 1e6 == pytest.approx(ns, rel=2e-3, abs=1_100)


@given(st.lists(NS, min_size=1, max_size=60))
def test_the_extremes_and_the_count_survive(values: list[int]) -> None:
    """Three significant digits of the longest latency are kept, and every value counts."""
    latencies = Latencies.of_ns(values)
    assert latencies.count == len(values)
    assert close(latencies.max_ms, max(values))
    assert close(latencies.percentile_ms(100), max(values))


@given(st.lists(st.lists(NS, max_size=20), min_size=1, max_size=4))
def test_a_merge_of_parts_is_the_whole(parts: list[list[int]]) -> None:
    """The merged encoded parts give the percentiles of all values."""
    whole = Latencies.of_ns([value for part in parts for value in part])
    together = merged(Latencies.of_ns(part).encode() for part in parts)
    assert together.count == whole.count
    for percentile in (0.0, 50.0, 99.0, 100.0):
        assert together.percentile_ms(percentile) == whole.percentile_ms(percentile)


def test_percentiles_are_those_of_a_known_set() -> None:
    """Of latencies from 1 ms to 100 ms, half are at most 50 ms and 99 % at most 99 ms."""
    latencies = Latencies.of_ns([ms * 1_000_000 for ms in range(1, 101)])
    metrics = latencies.metrics("delivered")
    assert metrics["delivered_p50_ms"] == pytest.approx(50, rel=2e-3)
    assert metrics["delivered_p99_ms"] == pytest.approx(99, rel=2e-3)
    assert metrics["delivered_p999_ms"] == pytest.approx(100, rel=2e-3)
    assert metrics["delivered_max_ms"] == pytest.approx(100, rel=2e-3)


def test_what_lies_outside_the_range_counts_at_its_ends() -> None:
    """A latency of an hour counts as a minute, one of zero as a microsecond; none is lost."""
    latencies = Latencies.of_ns([0, 3_600_000_000_000])
    assert latencies.count == 2
    assert close(latencies.max_ms, HIGHEST_NS)
    assert close(latencies.percentile_ms(1), LOWEST_NS)


def test_nothing_recorded_is_nothing() -> None:
    """No latencies give zeros and no curve, not an error."""
    assert Latencies().percentile_ms(99) == 0
    assert Latencies().curve() == []
    assert merged([]).count == 0


def test_the_curve_ends_where_the_count_cannot_tell() -> None:
    """Ten values say nothing about the 99th percentile."""
    curve = Latencies.of_ns([1_000_000] * 10).curve()
    assert [percentile for percentile, _ in curve] == [0.0, 25.0, 50.0, 75.0, 90.0]


@pytest.mark.parametrize("text", ["", "no histogram", "HISTFAAAABV42pNpmSzMwMDAxMAGAAJJAPc="])
def test_other_text_is_refused(text: str) -> None:
    """A text that is no histogram raises an error that quotes the text's beginning."""
    with pytest.raises(ValueError, match="no HdrHistogram"):
        Latencies.decode(text)

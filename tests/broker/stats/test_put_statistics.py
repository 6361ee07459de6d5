"""Put times: RocketMQ's buckets to the millisecond, and the percentiles of a minute."""

import pytest

from pocketmq.broker.stats.put_statistics import EDGES_MS, LABELS, PutStatistics, text
from pocketmq.common.histogram import SLOTS

MS = 1_000_000


@pytest.mark.parametrize(
    ("took_ms", "label"),
    [
        (0, "[<=0ms]"),
        (0.9, "[<=0ms]"),
        (1, "[0~10ms]"),
        (9.9, "[0~10ms]"),
        (10, "[10~50ms]"),
        (50, "[50~100ms]"),
        (100, "[100~200ms]"),
        (200, "[200~500ms]"),
        (500, "[500ms~1s]"),
        (999, "[500ms~1s]"),
        (1000, "[1~2s]"),
        (2000, "[2~3s]"),
        (3000, "[3~4s]"),
        (4999, "[4~5s]"),
        (5000, "[5~10s]"),
        (9999, "[5~10s]"),
        (10_000, "[10s~]"),
        (100_000, "[10s~]"),
    ],
)
def test_each_time_is_counted_under_rocketmqs_label(took_ms: float, label: str) -> None:
    """Whole ms, ends exclusive (RocketMQ StoreStatsService)."""
    times = PutStatistics()
    times.record(int(took_ms * MS), 3)
    assert [each for each in times.window() if each[1]] == [(label, 3)]
    assert times.window() == times.totals()


def test_the_finer_buckets_are_rocketmqs() -> None:
    """20 of 1 ms, 15 of 2, 10 of 5, 10 of 10, 6 of 50, 5 of 100, 9 of 1000, then no end."""
    assert len(EDGES_MS) == 75
    assert [EDGES_MS[index] for index in (19, 34, 44, 54, 60, 65, 74)] == [20, 50, 100, 200, 500, 1000, 10_000]


def test_percentiles_are_those_of_the_last_full_minute() -> None:
    """Interpolated in the bucket; 0 before a minute has ended; the minute before does not count."""
    times = PutStatistics()
    times.record(0, 98)
    times.record(150 * MS, 2)
    assert times.latency_ms(0.99) == 0
    assert dict(times.end_minute())["[100~200ms]"] == 2
    assert times.latency_ms(0.99) == pytest.approx(155)  # half of the two in [150, 160)
    assert times.latency_ms(0.49) == pytest.approx(0.5)
    times.end_minute()
    assert times.latency_ms(0.99) == 0
    assert (times.total, times.max_ms) == (100, 150)


def test_the_bucket_without_an_end_ends_at_the_longest_put() -> None:
    times = PutStatistics()
    times.record(30_000 * MS, 1)
    times.end_minute()
    assert times.latency_ms(1.0) == 30_000


def test_the_window_moves_on_and_the_text_is_rocketmqs() -> None:
    """As RocketMQ prints it: each label, a colon, its count."""
    times = PutStatistics()
    times.record(2 * MS, 4)
    assert text(times.window()).startswith("[<=0ms]:0 [0~10ms]:4 [10~50ms]:0 ")
    for _ in range(SLOTS):
        times.rotate()
    assert sum(count for _, count in times.window()) == 0
    assert [label for label, _ in times.totals()] == list(LABELS)

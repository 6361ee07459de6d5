"""Statistics by name and key: totals, windows, bounds."""

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.stats.stats_items import WINDOWS, StatsItems

MINUTE_MS = 60_000
DAY_MS = 24 * 3_600_000


def test_an_item_that_nobody_counted_is_unknown() -> None:
    """None, not zero: RocketMQ answers an error."""
    items = StatsItems(0)
    assert items.data("N", "k", 1000) is None
    assert items.tps("N", "k", 1000) == 0.0


def test_what_was_counted_is_there_at_once() -> None:
    """Before any sample: sums since the start, the rate over the time since then."""
    items = StatsItems(1_000_000)
    items.add("N", "k", 30, 3)
    data = items.data("N", "k", 1_010_000)
    assert data is not None
    for window in (data.stats_minute, data.stats_hour, data.stats_day):
        assert (window.sum, window.tps, window.avgpt) == (30, 3.0, 10.0)
    assert items.data("M", "k", 1_010_000) is None


def test_the_windows_forget() -> None:
    """After a minute the minute is empty, the hour and the day are not; after a day the item is gone."""
    items = StatsItems(0)
    items.add("N", "k", 8)
    for second in range(1, 120):
        items.sample(second * 1000)
    data = items.data("N", "k", 120_000)
    assert data is not None
    assert [each.sum for each in (data.stats_minute, data.stats_hour, data.stats_day)] == [0, 8, 8]
    for hour in range(1, 27):
        items.sample(hour * 3_600_000)
    assert items.data("N", "k", 26 * 3_600_000) is None
    assert len(items) == 0


def test_a_deleted_topic_or_group_is_forgotten() -> None:
    """In all its items and in no others: else topics that come and go would fill the table for a day."""
    items = StatsItems(0)
    keys = ("T", "T@g", "T@h", "T2", "U@g", "U@g2", "U")
    for key in keys:
        items.add("N", key, 1)
    items.forget(topic="T")
    assert [key for key in keys if items.data("N", key, 1000)] == ["T2", "U@g", "U@g2", "U"]
    items.forget(group="g")
    assert [key for key in keys if items.data("N", key, 1000)] == ["T2", "U@g2", "U"]


def test_items_are_bounded() -> None:
    """New items of a full table are not counted; known ones still are."""
    items = StatsItems(0, items_max=2)
    for key in "abc":
        items.add("N", key, 1)
    items.add("N", "a", 1)
    items.add_all("N", [("c", 5), ("a", 3), ("b", 1)])
    assert len(items) == 2
    data = items.data("N", "a", 1000)
    assert data is not None
    assert (data.stats_day.sum, data.stats_day.avgpt) == (5, 1.0)
    assert items.data("N", "c", 1000) is None


def test_a_clock_that_is_set_back_does_not_stop_the_samples() -> None:
    """And no rate is negative or infinite."""
    items = StatsItems(10 * DAY_MS)
    items.add("N", "k", 5)
    items.sample(10 * DAY_MS + 20_000)
    items.sample(5 * DAY_MS)
    items.add("N", "k", 5)
    data = items.data("N", "k", 5 * DAY_MS)
    assert data is not None
    assert data.stats_minute.sum == 10
    assert data.stats_minute.tps == 0.0


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 1000)), max_size=80))
def test_windows_agree_with_a_list_of_events(steps: list[tuple[int, int]]) -> None:
    """The minute's sum covers the time since one of the last seven samples; no window loses or invents a count."""
    items, now_ms = StatsItems(0), 0
    events: list[tuple[int, int]] = []
    samples = [0]
    for step_ms, value in steps:
        now_ms += step_ms
        if now_ms - samples[-1] >= WINDOWS[0][1]:
            samples.append(now_ms)
        items.sample(now_ms)
        items.add("N", "k", value)
        events.append((now_ms, value))
    data = items.data("N", "k", now_ms)
    if data is None:
        assert not events
        return
    since_ms = samples[-WINDOWS[0][0] :][0]
    assert data.stats_minute.sum == sum(value for at_ms, value in events if at_ms >= since_ms)
    assert data.stats_day.sum >= data.stats_hour.sum >= data.stats_minute.sum

"""Bounds drawn from filters are never narrower than the filters."""

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pocketmq.pipeline.source.positions import QueueKey, QueueRange
from pocketmq.pipeline.source.pushdown import Wanted, wanted_by

TIME = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
TIME_MS = int(TIME.timestamp() * 1000)


def test_queues_are_chosen_by_topic_broker_and_id() -> None:
    """Several filters on one column are joined by AND."""
    wanted = wanted_by([In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), EqualTo(("queue_id",), 2)])
    assert wanted.takes(QueueKey("b", "x", 2))
    assert not wanted.takes(QueueKey("a", "x", 2))
    assert not wanted.takes(QueueKey("b", "x", 1))
    assert not wanted_by([StringStartsWith(("topic",), "ord")]).takes(QueueKey("a", "x", 0))
    assert not wanted_by([EqualTo(("broker",), "y")]).takes(QueueKey("a", "x", 0))


def test_offsets_are_clipped() -> None:
    """Comparisons bound the ranges, both sides."""
    wanted = wanted_by([GreaterThan(("queue_offset",), 10), LessThanOrEqual(("queue_offset",), 20)])
    assert wanted.clip([QueueRange("t", "b", 0, 0, 100), QueueRange("t", "b", 1, 50, 100)]) == [
        QueueRange("t", "b", 0, 10, 21)
    ]


def test_times_become_milliseconds() -> None:
    """The lower bound is inclusive, the upper exclusive, and both are generous by a millisecond at most."""
    wanted = wanted_by([GreaterThanOrEqual(("store_timestamp",), TIME), LessThan(("store_timestamp",), TIME)])
    assert wanted.time_low_ms == TIME_MS
    assert wanted.time_high_ms == TIME_MS + 1
    assert wanted.has_time


def test_tags_become_a_subscription_only_if_they_can() -> None:
    """A tag with a bar cannot be written in a subscription, and the empty one means: no tag."""
    assert wanted_by([In(("tags",), ("b", "a"))]).tag_expression == "a || b"
    assert wanted_by([EqualTo(("tags",), "a|b")]).tag_expression == ""
    assert wanted_by([EqualTo(("tags",), "")]).tags is None


def test_what_says_nothing_is_passed_over() -> None:
    """Other columns, negations, nulls and nested attributes set no bound."""
    filters = [
        Not(EqualTo(("topic",), "a")),
        IsNotNull(("topic",)),
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "k"), "v"),
    ]
    assert wanted_by(filters) == Wanted()

"""Bounds on what a query reads, from its filters.

Lives here: ``Wanted`` (the bounds), ``wanted_by`` (filters to bounds).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from pocketmq.pipeline.source.positions import QueueKey, QueueRange

ItemT = TypeVar("ItemT")
_UNBOUNDED: Final = (1 << 63) - 1
_LEGAL_TAG: Final = frozenset("|* \t\n")


@dataclass(slots=True, frozen=True)
class Wanted:
    """Bounds: no message outside matches the filters. None: unbounded. Ends are exclusive."""

    topics: frozenset[str] | None = None
    topic_prefix: str = ""
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    offset_low: int = 0
    offset_high: int = _UNBOUNDED
    time_low_ms: int = 0
    time_high_ms: int = _UNBOUNDED

    def takes(self, key: QueueKey) -> bool:
        """Return whether a queue can have such messages."""
        return (
            self.takes_topic(key.topic)
            and (self.brokers is None or key.broker in self.brokers)
            and (self.queue_ids is None or key.queue_id in self.queue_ids)
        )

    def takes_topic(self, topic: str) -> bool:
        """Return whether a topic can have such messages."""
        return (self.topics is None or topic in self.topics) and topic.startswith(self.topic_prefix)

    @property
    def has_time(self) -> bool:
        """Whether times are bounded."""
        return self.time_low_ms > 0 or self.time_high_ms < _UNBOUNDED

    @property
    def tag_expression(self) -> str:
        """The subscription for brokers to filter by; empty for none, or if a tag cannot be written in one."""
        if not self.tags or any(_LEGAL_TAG & set(tag) for tag in self.tags):
            return ""
        return " || ".join(sorted(self.tags))

    def narrowed(self, other: "Wanted") -> "Wanted":
        """Return the bounds of both; of two topic prefixes the longer one."""
        return Wanted(
            topics=_both(self.topics, other.topics),
            topic_prefix=max(self.topic_prefix, other.topic_prefix, key=len),
            brokers=_both(self.brokers, other.brokers),
            queue_ids=_both(self.queue_ids, other.queue_ids),
            tags=_both(self.tags, other.tags),
            offset_low=max(self.offset_low, other.offset_low),
            offset_high=min(self.offset_high, other.offset_high),
            time_low_ms=max(self.time_low_ms, other.time_low_ms),
            time_high_ms=min(self.time_high_ms, other.time_high_ms),
        )

    def clip(self, ranges: Iterable[QueueRange]) -> list[QueueRange]:
        """Return the ranges cut to the bounds of queues and offsets."""
        clipped: list[QueueRange] = []
        for each in ranges:
            start, end = max(each.start, self.offset_low), min(each.end, self.offset_high)
            if start < end and self.takes(QueueKey(each.topic, each.broker, each.queue_id)):
                clipped.append(replace(each, start=start, end=end))
        return clipped


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """Return the bounds of all filters together; filters that bound nothing are ignored."""
    wanted = Wanted()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        rule = _RULES.get(attribute[0]) if len(attribute) == 1 else None
        if rule is not None:
            wanted = wanted.narrowed(rule(each))
    return wanted


def _both(one: frozenset[ItemT] | None, other: frozenset[ItemT] | None) -> frozenset[ItemT] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _values(each: Filter) -> frozenset[Any] | None:
    if isinstance(each, EqualTo | EqualNullSafe):
        return frozenset([each.value])
    return frozenset(each.value) if isinstance(each, In) else None


def _topic(each: Filter) -> Wanted:
    return Wanted(topic_prefix=each.value) if isinstance(each, StringStartsWith) else Wanted(topics=_values(each))


def _tags(each: Filter) -> Wanted:
    values = _values(each)
    # messages without a tag have the empty one
    return Wanted() if values is None or None in values or "" in values else Wanted(tags=values)


def _bounds(each: Filter, number: Callable[[Any], int]) -> tuple[int, int]:
    """Return the smallest and (exclusive) largest number that a comparison lets through."""
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return number(each.value), _UNBOUNDED
    if isinstance(each, LessThan | LessThanOrEqual):
        return 0, number(each.value) + 1
    values = _values(each)
    if not values or None in values:
        return 0, _UNBOUNDED
    numbers = [number(value) for value in values]
    return min(numbers), max(numbers) + 1


def _offset(each: Filter) -> Wanted:
    low, high = _bounds(each, int)
    return Wanted(offset_low=low, offset_high=high)


def _time(each: Filter) -> Wanted:
    low, high = _bounds(each, _ms)
    return Wanted(time_low_ms=low, time_high_ms=high)


def _ms(value: datetime) -> int:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


_RULES: Final[dict[str, Callable[[Filter], Wanted]]] = {
    "topic": _topic,
    "broker": lambda each: Wanted(brokers=_values(each)),
    "queue_id": lambda each: Wanted(queue_ids=_values(each)),
    "queue_offset": _offset,
    "tags": _tags,
    "store_timestamp": _time,
}

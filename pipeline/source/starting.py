"""Where a query begins and ends, from its options.

Lives here: ``Choice`` of queues (``subscribe``, ``subscribePattern``, ``assign``), ``Bound`` (earliest, latest,
offsets, times).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.source.notes import print_note
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.positions import QueueKey

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_LATEST_NUMBER: Final = -1
_EARLIEST_NUMBER: Final = -2
"""As in JSON offsets of Spark's Kafka source."""
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
STRATEGIES: Final = ("error", "latest")
CHOICES: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(slots=True, frozen=True)
class Choice:
    """The chosen queues: topics by name or pattern, or queues one by one (topic → queue ids, on every broker)."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    queue_ids: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options) -> "Choice":
        """Read the options; exactly one of the three must be given."""
        name = options.exactly_one(*CHOICES)
        if name == "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in options.text(name).split(",") if part.strip()))
            if not topics:
                raise OptionIllegal("bad option", why="subscribe names no topic", hint="subscribe=a,b")
            return cls(topics=topics)
        if name == "subscribePattern":
            pattern = options.text(name)
            try:
                re.compile(pattern)
            except re.error as error:
                raise OptionIllegal("bad option", why=f"subscribePattern={pattern!r}: {error}") from error
            return cls(pattern=pattern)
        chosen: dict[str, frozenset[int]] = {}
        for topic, ids in options.table(name).items():
            if not isinstance(ids, list) or not ids or not all(type(each) is int and each >= 0 for each in ids):
                raise OptionIllegal("bad option", why=f"assign: {topic}: {ids!r}", hint='{"topic": [0, 1]}')
            chosen[topic] = frozenset(ids)
        if not chosen:
            raise OptionIllegal("bad option", why="assign names no queue", hint='{"topic": [0, 1]}')
        return cls(topics=tuple(chosen), queue_ids=chosen)

    def queues(self, planner: Planner, expected: Iterable[QueueKey] = (), *, absent_ok: bool = False) -> list[QueueKey]:
        """Return the present queues; see ``Planner.queues``."""
        topics = self.topics or sorted({*planner.topics_like(self.pattern), *(key.topic for key in expected)})
        keys = planner.queues(topics, expected, absent_ok=absent_ok)
        if not self.queue_ids:
            return keys
        chosen = [key for key in keys if key.queue_id in self.queue_ids[key.topic]]
        for topic, ids in self.queue_ids.items():
            missing = ids - {key.queue_id for key in chosen if key.topic == topic}
            if missing and not absent_ok:
                raise OptionIllegal(
                    "bad option", why=f"assign: {topic} has no queue {', '.join(map(str, sorted(missing)))}"
                )
        return chosen

    def left_out(self, keys: Iterable[QueueKey]) -> list[QueueKey]:
        """Return the queues of a checkpoint that the options no longer choose."""
        if self.queue_ids:
            return sorted(key for key in keys if key.queue_id not in self.queue_ids.get(key.topic, ()))
        if self.topics:
            return sorted(key for key in keys if key.topic not in self.topics)
        return sorted(key for key in keys if not re.fullmatch(self.pattern, key.topic))


@dataclass(slots=True, frozen=True)
class Bound:
    """A start or end: a word, a time for all queues, or offsets or times by queue with a word for the others."""

    word: str
    timestamp_ms: int | None = None
    offsets: Mapping[QueueKey, int] = field(default_factory=dict)
    times_ms: Mapping[QueueKey, int] = field(default_factory=dict)
    needs_later: bool = False
    """Whether a queue without a message at or behind the time is an error."""

    @classmethod
    def of(cls, options: Options, side: str, default: str) -> "Bound":
        """Read ``startingOffsets``, ``startingTimestamp``, ``startingOffsetsByTimestamp`` (or ``ending…``)."""
        offsets, time, times = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
        name = options.at_most_one(offsets, time, times)
        strategy = options.text(STRATEGY, "latest").lower() if side == "starting" else "latest"
        if strategy not in STRATEGIES:
            raise OptionIllegal("bad option", why=f"{STRATEGY}={strategy!r}", hint="error or latest")
        fails = strategy == "error"
        if name is None:
            return cls(default)
        if name == time:
            return cls(default, timestamp_ms=options.number(time, 0), needs_later=fails)
        if name == times:
            return cls(default, times_ms=_by_queue(options.table(times), times, low=0), needs_later=fails)
        text = options.text(offsets)
        if text.lower() in (EARLIEST, LATEST):
            return cls(text.lower())
        return cls(default, offsets=_by_queue(options.table(offsets), offsets, low=_EARLIEST_NUMBER))

    def place(self, planner: Planner, keys: list[QueueKey], *, clamps: bool = False) -> dict[QueueKey, int]:
        """Return the offset of each queue. Raises ``OptionIllegal`` for an offset outside of its queue; with ``clamps``
        print it, and take the nearest one.
        """
        bounds = planner.bounds(keys)
        known = set(keys)
        for key in [*self.offsets, *self.times_ms]:
            if key not in known:
                raise OptionIllegal("bad option", why=f"{key.topic} has no queue {key.queue_id} on {key.broker}")
        placed = {key: bounds[key][0] if self.word == EARLIEST else bounds[key][1] for key in keys}
        by_time: dict[QueueKey, int] = {}
        if self.timestamp_ms is not None:
            by_time.update(planner.first_at(keys, self.timestamp_ms))
        for time_ms in set(self.times_ms.values()):
            by_time.update(planner.first_at([key for key, each in self.times_ms.items() if each == time_ms], time_ms))
        if self.needs_later:
            self._check_later(by_time, bounds)
        placed.update(by_time)
        for key, offset in self.offsets.items():
            low, high = bounds[key]
            chosen = {_EARLIEST_NUMBER: low, _LATEST_NUMBER: high}.get(offset, offset)
            placed[key] = min(max(chosen, low), high)
            if placed[key] == chosen:
                continue
            outside = f"offset {offset} of {key.topic} queue {key.queue_id} on {key.broker}: it has {low} to {high}"
            if not clamps:
                raise OptionIllegal(
                    "bad option",
                    why=outside,
                    hint="-2 is earliest, -1 latest; failOnDataLoss=false takes the nearest offset that is there",
                )
            print_note(f"{outside}; taken: {placed[key]}")
        return placed

    def _check_later(self, by_time: Mapping[QueueKey, int], bounds: Mapping[QueueKey, tuple[int, int]]) -> None:
        for key, offset in sorted(by_time.items()):
            if offset == bounds[key][1]:
                time_ms = self.times_ms.get(key, self.timestamp_ms)
                raise OptionIllegal(
                    "no message since then",
                    why=f"{key.text} has none that was stored at {time_ms} or later",
                    hint=f"{STRATEGY}=latest begins at its end",
                )


def _by_queue(table: Mapping[str, Any], name: str, low: int) -> dict[QueueKey, int]:
    """Read {topic: {broker: {queue id: number}}}."""
    found: dict[QueueKey, int] = {}
    try:
        for topic, brokers in table.items():
            for broker, queues in brokers.items():
                if type(queues) is int:
                    raise ValueError(f"{topic}: offsets count queue by queue of each broker, and no broker is named")
                for queue_id, number in queues.items():
                    if type(number) is not int or number < low:
                        raise ValueError(f"{number!r} is no number from {low} on")
                    found[QueueKey(topic, broker, int(queue_id))] = number
    except (AttributeError, TypeError, ValueError) as error:
        raise OptionIllegal("bad option", why=f"{name}: {error}", hint='{"topic": {"broker-a": {"0": 23}}}') from error
    return found

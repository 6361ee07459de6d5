"""Where a query stands in its topics.

Lives here: ``QueueKey``, ``Positions`` with the JSON that checkpoints keep, admission control (how far one
micro-batch goes), and the cut into tasks.

The JSON: ``{"v": 1, "topics": {topic: {broker: {"id": identity, "queues": {"0": offset}}}}}``. The identity changes
when a topic is deleted and created again; it is empty for RocketMQ's brokers, which have none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pocketmq.pipeline.errors import DataLost, OptionIllegal

VERSION: Final = 1
TASK_ROWS: Final = 100_000
"""A task costs more than it gains below this (measured: Spark needs about 10 ms for a Python task)."""
TASKS_MIN: Final = 2


class QueueKey(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    @property
    def text(self) -> str:
        """The queue in words."""
        return f"{self.topic} queue {self.queue_id} of {self.broker}"


@dataclass(slots=True, frozen=True)
class QueueRange:
    """Offsets [start, end) of one queue; plain data, it travels to tasks."""

    topic: str
    broker: str
    queue_id: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """Number of offsets."""
        return self.end - self.start


@dataclass(slots=True)
class Positions:
    """Offset of the next message of each queue, and the identity of each topic on each broker."""

    offsets: dict[QueueKey, int] = field(default_factory=dict)
    identities: dict[tuple[str, str], str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that Spark stores in checkpoints."""
        topics: dict[str, dict[str, Any]] = {}
        for (topic, broker), identity in sorted(self.identities.items()):
            topics.setdefault(topic, {})[broker] = {"id": identity, "queues": {}}
        for key, offset in sorted(self.offsets.items()):
            brokers = topics.setdefault(key.topic, {})
            brokers.setdefault(key.broker, {"id": "", "queues": {}})["queues"][str(key.queue_id)] = offset
        return {"v": VERSION, "topics": topics}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Positions":
        """Read a checkpoint's JSON. Raises ``OptionIllegal`` if this version cannot read it."""
        try:
            if value["v"] != VERSION:
                raise OptionIllegal(
                    "checkpoint refused",
                    why=f"its offsets are of version {value['v']}, this is {VERSION}",
                    hint="read it with the version that wrote it",
                )
            positions = cls()
            for topic, brokers in value["topics"].items():
                for broker, part in brokers.items():
                    positions.identities[topic, broker] = str(part["id"])
                    for queue_id, offset in part["queues"].items():
                        positions.offsets[QueueKey(topic, broker, int(queue_id))] = int(offset)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise OptionIllegal(
                "checkpoint refused",
                why=f"its offset was not written by this source: {error!r}",
                hint="a checkpoint belongs to one source; use a new checkpointLocation",
            ) from error
        return positions

    def drop(self, keys: Iterable[QueueKey]) -> None:
        """Forget queues, and the identities of topics that have no others."""
        for key in keys:
            self.offsets.pop(key, None)
        kept = {(key.topic, key.broker) for key in self.offsets}
        self.identities = {pair: identity for pair, identity in self.identities.items() if pair in kept}

    def check_identities(self, now: Mapping[tuple[str, str], str]) -> None:
        """Raise ``DataLost`` for a topic that was deleted and created again. Unknown identities pass."""
        for (topic, broker), identity in self.identities.items():
            current = now.get((topic, broker), "")
            if identity and current and identity != current:
                raise DataLost(
                    "topic was created again",
                    why=f"{topic} on {broker} is not the topic of the checkpoint ({identity}, now {current})",
                    hint="its old messages are gone: start with a new checkpointLocation",
                )


def ranges_between(start: Positions, end: Positions) -> list[QueueRange]:
    """Return the ranges between two positions; queues only in ``end`` have none (see ``TopicStreamReader``)."""
    return [
        QueueRange(*key, start.offsets.get(key, last), last)
        for key, last in sorted(end.offsets.items())
        if start.offsets.get(key, last) < last
    ]


def admit(start: Mapping[QueueKey, int], ends: Mapping[QueueKey, int], rows_max: int) -> dict[QueueKey, int]:
    """Return the end of a micro-batch of at most ``rows_max`` rows, each queue's share in proportion to its rows.

    As in Spark's Kafka source; rows lost by rounding go to the queues in order, so that the sum is exact.
    """
    waiting = {key: max(0, end - start.get(key, end)) for key, end in ends.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(ends)
    granted = {key: count * rows_max // total for key, count in waiting.items()}
    rest = rows_max - sum(granted.values())
    for key in sorted(granted):
        if rest == 0:
            break
        if granted[key] < waiting[key]:
            granted[key] += 1
            rest -= 1
    return {key: ends[key] - waiting[key] + granted[key] for key in ends}


def cut(ranges: Iterable[QueueRange], tasks_wanted: int, rows_max: int = 0) -> list[list[QueueRange]]:
    """Return the work of each task: about equal shares of rows, ranges split where necessary, one broker per task.

    ``tasks_wanted`` 0: choose by the number of rows. ``rows_max``: the most rows of a task; 0: no limit.
    """
    by_broker: dict[str, list[QueueRange]] = {}
    for each in ranges:
        by_broker.setdefault(each.broker, []).append(each)
    total = sum(each.count for parts in by_broker.values() for each in parts)
    if total == 0:
        return []
    queues = sum(len(parts) for parts in by_broker.values())
    wanted = tasks_wanted or min(max(queues, TASKS_MIN), max(TASKS_MIN, -(-total // TASK_ROWS)))
    share = max(1, -(-total // min(wanted, total)))
    if rows_max:
        share = min(share, rows_max)
    tasks: list[list[QueueRange]] = []
    for _, parts in sorted(by_broker.items()):
        task: list[QueueRange] = []
        room = share
        for each in parts:
            at = each.start
            while at < each.end:
                stop = min(each.end, at + room)
                task.append(QueueRange(each.topic, each.broker, each.queue_id, at, stop))
                room -= stop - at
                at = stop
                if room == 0:
                    tasks.append(task)
                    task, room = [], share
        if task:
            tasks.append(task)
    return tasks

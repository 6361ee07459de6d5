"""Pulls that wait for messages.

Lives here: ``PullHolds``, the waiting pulls with their queues and deadlines. It does no I/O and has no clock: its input
is holds, new ends of queues, and the time; it returns the holds to run again.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.common.bounds import bounded

TICK_NS: Final = 100_000_000
"""Holds expire in steps of 100 ms (RocketMQ checks every 5 s)."""


@dataclass(slots=True, eq=False)
class Hold:
    """One waiting pull.

    ``queues``: (topic, queue id, offset) for each queue it waits for; an end at or below the offset does not wake it.
    ``owner``: its connection. ``deadline_ns``: monotonic. ``context``: the caller's data for running it again.
    """

    owner: Hashable
    queues: list[tuple[str, int, int]]
    deadline_ns: int
    size_bytes: int
    context: Any
    held: bool = False

    @property
    def tick(self) -> int:
        """The first tick at which the deadline has passed."""
        return -(-self.deadline_ns // TICK_NS)


@bounded(
    "held pulls in bytes",
    limit="size_bytes_max",
    size="size_bytes",
    unit="bytes",
    setting="broker.pull_holds_size_bytes_max",
)
@bounded("held pulls", limit="count_max", size="count", entry_bytes=1024, setting="broker.pull_holds_max")
@dataclass(slots=True, eq=False)
class PullHolds:
    """The table of waiting pulls, by queue, by connection and by deadline.

    Holds: count <= count_max, size_bytes <= size_bytes_max; every hold is in all three tables or in none. A hold
    returned by ``wake``, ``expire`` or ``drop_owner`` is out of the tables; the caller owns it. One thread only (the
    loop). Deadlines sit in buckets of one tick, so a hold leaves nothing behind, however often its queue grows.
    """

    count_max: int
    size_bytes_max: int
    count: int = field(init=False, default=0)
    size_bytes: int = field(init=False, default=0)
    _by_queue: dict[tuple[str, int], dict[Hold, int]] = field(init=False, default_factory=dict)
    _by_owner: dict[Hashable, set[Hold]] = field(init=False, default_factory=dict)
    _buckets: dict[int, set[Hold]] = field(init=False, default_factory=dict)
    _next_tick: int = field(init=False, default=0)

    def hold(self, hold: Hold) -> bool:
        """Keep ``hold``; False when the table is full."""
        assert not hold.held
        if self.count >= self.count_max or self.size_bytes + hold.size_bytes > self.size_bytes_max:
            return False
        hold.held = True
        self.count += 1
        self.size_bytes += hold.size_bytes
        for topic, queue_id, offset in hold.queues:
            waiting = self._by_queue.setdefault((topic, queue_id), {})
            waiting[hold] = min(offset, waiting.get(hold, offset))
        self._by_owner.setdefault(hold.owner, set()).add(hold)
        self._buckets.setdefault(hold.tick, set()).add(hold)
        self._next_tick = min(self._next_tick, hold.tick)
        return True

    def wake(self, topic: str, queue_id: int, max_offset: int) -> list[Hold]:
        """Remove and return the holds at an offset below ``max_offset`` of this queue."""
        waiting = self._by_queue.get((topic, queue_id))
        if not waiting:
            return []
        return self._remove([hold for hold, offset in waiting.items() if offset < max_offset])

    def expire(self, now_ns: int) -> list[Hold]:
        """Remove and return the holds whose deadline has passed."""
        tick = now_ns // TICK_NS
        if not self._buckets or tick < self._next_tick:
            return []
        due: list[Hold] = []
        if tick - self._next_tick > len(self._buckets):
            ticks: Iterable[int] = [each for each in self._buckets if each <= tick]
        else:
            ticks = range(self._next_tick, tick + 1)
        for each in ticks:
            due.extend(self._buckets.get(each, ()))
        self._next_tick = tick + 1
        return self._remove(due)

    def all(self) -> list[Hold]:
        """Return all holds."""
        return [hold for holds in self._by_owner.values() for hold in holds]

    def drop_owner(self, owner: Hashable) -> list[Hold]:
        """Remove and return the holds of a closed connection; they need no answer."""
        return self._remove(list(self._by_owner.get(owner, ())))

    def remove(self, hold: Hold) -> None:
        """Remove one hold."""
        self._remove([hold])

    def clear(self) -> list[Hold]:
        """Remove and return all holds."""
        return self._remove(self.all())

    def _remove(self, holds: list[Hold]) -> list[Hold]:
        for hold in holds:
            assert hold.held
            hold.held = False
            self.count -= 1
            self.size_bytes -= hold.size_bytes
            for topic, queue_id, _ in hold.queues:
                key = (topic, queue_id)
                waiting = self._by_queue.get(key)
                if waiting is not None:
                    waiting.pop(hold, None)
                    if not waiting:
                        del self._by_queue[key]
            self._discard(self._by_owner, hold.owner, hold)
            self._discard(self._buckets, hold.tick, hold)
        return holds

    @staticmethod
    def _discard(table: dict[Any, set[Hold]], key: Any, hold: Hold) -> None:
        holds = table[key]
        holds.discard(hold)
        if not holds:
            del table[key]

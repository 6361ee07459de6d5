"""The next timers, in bounded memory.

Lives here: ``TimerWheel``: slots of about four seconds, the sorted runs of the near slots, the horizon beyond which
timers are only in their queue.

An entry is that of the timer's consume queue: physical offset, size, tags code = due time in ms: 20 bytes. Far slots
are byte arrays that grow at their end; a slot is sorted once, as columns, when it becomes near. Timers have a total
order, their key: (due ms, physical offset). Measured: a million random timers within three days cost 20 MB and 63,000
slots.
"""

import heapq
import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.consumequeue.consume_queue import ENTRY, ENTRY_BYTES

SLOT_BITS: Final = 12
"""A slot is 2^12 ms."""
RUNS_MAX: Final = 12
"""Sorted runs of the near part; beyond this they are merged."""
SECONDS: Final = 1 << 18
"""Number of per-second counts: 72.8 hours."""
DUE_MS_MAX: Final = (1 << 62) - 1

Entries = NDArray[np.void]
Int64s = NDArray[np.int64]
Key = tuple[int, int]
"""(due ms, physical offset)."""
BEFORE_ALL: Final[Key] = (-1, -1)


@dataclass(slots=True)
class Timers:
    """Columns of some timers, ascending by key."""

    due: Int64s
    physical: Int64s
    sizes: Int64s

    def __len__(self) -> int:
        return len(self.due)

    def part(self, start: int, end: int | None = None) -> "Timers":
        """Return the timers from ``start`` to ``end``."""
        return Timers(self.due[start:end], self.physical[start:end], self.sizes[start:end])

    def first(self, key: Key) -> int:
        """Return how many timers have a key up to and including ``key``."""
        low = int(np.searchsorted(self.due, key[0], "left"))
        high = int(np.searchsorted(self.due, key[0], "right"))
        return low + int(np.searchsorted(self.physical[low:high], key[1], "right"))

    def entries(self) -> Entries:
        """Return the timers as consume-queue entries."""
        entries = np.empty(len(self), ENTRY)
        entries["offset"], entries["size"], entries["tags_code"] = self.physical, self.sizes, self.due
        return entries


def sorted_timers(entries: Entries) -> Timers:
    """Return entries as columns, ascending by key."""
    due = entries["tags_code"].astype(np.int64)
    physical = entries["offset"].astype(np.int64)
    order = np.lexsort((physical, due))
    return Timers(due[order], physical[order], entries["size"].astype(np.int64)[order])


def _merged(runs: list[Timers]) -> Timers:
    due = np.concatenate([run.due for run in runs])
    physical = np.concatenate([run.physical for run in runs])
    order = np.lexsort((physical, due))
    return Timers(due[order], physical[order], np.concatenate([run.sizes for run in runs])[order])


class TimerWheel:
    """Pending timers. Belongs to the delivery thread; ``count_at`` and ``len`` are for any thread.

    Holds: every timer that was added and not taken is kept if its key is below ``horizon``, else forgotten: beyond
    ``entries_max`` timers those due last are forgotten, a slot at a time. ``horizon`` None: none was forgotten. When
    ``wants_more``, the owner calls ``lift_horizon`` and adds the forgotten timers again.
    """

    def __init__(self, entries_max: int, *, count_seconds: bool = False) -> None:
        self.entries_max = entries_max
        self.horizon: Key | None = None
        self._slots: dict[int, bytearray] = {}
        self._order: list[int] = []  # a heap of the slots' numbers
        self._near_slot = -1  # slots up to here are in runs
        self._runs: list[Timers] = []
        self._count = 0
        self._seconds = np.zeros(SECONDS, np.int32) if count_seconds else None

    def __len__(self) -> int:
        return self._count

    def count_at(self, due_ms: int) -> int:
        """Return how many timers are due in the second of ``due_ms``; 0 if they are not counted."""
        return 0 if self._seconds is None else int(self._seconds[due_ms // 1000 % SECONDS])

    # ---- adding

    def add(self, entries: Entries) -> None:
        """Add timers, without blanks. A due time below 0 counts as 0, one above ``DUE_MS_MAX`` as that."""
        due = np.clip(entries["tags_code"].astype(np.int64), 0, DUE_MS_MAX)
        if self.horizon is not None:
            keep = due < self.horizon[0]
            same = due == self.horizon[0]
            if same.any():
                keep |= same & (entries["offset"].astype(np.int64) < self.horizon[1])
            entries, due = entries[keep], due[keep]
        if len(entries) == 0:
            return
        entries = entries.copy()
        entries["tags_code"] = due
        self._count += len(entries)
        self._count_seconds(due, 1)
        slots = due >> SLOT_BITS
        near = slots <= self._near_slot
        if near.any():
            self._add_run(sorted_timers(entries[near]))
            entries, slots = entries[~near], slots[~near]
        if len(entries):
            order = np.argsort(slots, kind="stable")
            entries, slots = entries[order], slots[order]
            cuts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
            packed = entries.view(np.uint8).data
            for first, end in itertools.pairwise(cuts):
                slot = int(slots[first])
                chunk = packed[first * ENTRY_BYTES : end * ENTRY_BYTES]
                known = self._slots.get(slot)
                if known is None:
                    self._slots[slot] = bytearray(chunk)
                    heapq.heappush(self._order, slot)
                else:
                    known += chunk
        if self._count > self.entries_max:
            self._forget_last()

    def _count_seconds(self, due: Int64s, difference: int) -> None:
        if self._seconds is not None:
            np.add.at(self._seconds, due // 1000 % SECONDS, difference)

    def _add_run(self, run: Timers) -> None:
        self._runs.append(run)
        if len(self._runs) > RUNS_MAX:
            self._runs.sort(key=len)
            small = self._runs[:-1]
            if 2 * sum(map(len, small)) >= len(self._runs[-1]):
                self._runs = [_merged(self._runs)]
            else:
                self._runs = [_merged(small), self._runs[-1]]

    def _forget_last(self) -> None:
        """Forget timers, from the last slot backwards and the near part last, until a tenth of the memory is free."""
        keep = self.entries_max - self.entries_max // 10
        lasts = sorted(self._slots, reverse=True)
        for slot in lasts:
            if self._count <= keep:
                break
            held = len(self._slots[slot]) // ENTRY_BYTES
            timers = sorted_timers(np.frombuffer(self._slots.pop(slot), ENTRY))
            kept = max(0, held - (self._count - keep))
            self._forget(timers, kept)
            if kept:
                self._slots[slot] = bytearray(timers.part(0, kept).entries().view(np.uint8).data)
        self._order = list(self._slots)
        heapq.heapify(self._order)
        if self._count > keep and self._runs:
            near = _merged(self._runs)
            kept = max(1, len(near) - (self._count - keep))
            self._forget(near, kept)
            self._runs = [near.part(0, kept)]

    def _forget(self, timers: Timers, kept: int) -> None:
        if kept < len(timers):
            self.horizon = (int(timers.due[kept]), int(timers.physical[kept]))
            self._count -= len(timers) - kept
            self._count_seconds(timers.due[kept:], -1)

    @property
    def wants_more(self) -> bool:
        """Whether timers beyond the horizon should be added again now."""
        return self.horizon is not None and self._count <= self.entries_max // 4

    def lift_horizon(self) -> Key:
        """Return the horizon and remove it: the caller must add all timers from that key on."""
        horizon = self.horizon
        assert horizon is not None
        self.horizon = None
        return horizon

    # ---- taking

    def next_due_ms(self) -> int | None:
        """Return a time no later than the next timer's due time; None without timers."""
        heads = [int(run.due[0]) for run in self._runs]
        if self._order:
            heads.append(self._order[0] << SLOT_BITS)
        return min(heads, default=None)

    def peek(self, until_ms: int, count_max: int) -> Timers:
        """Return the first timers that are due at ``until_ms``, at most ``count_max``, ascending by key."""
        self._sort_slots(until_ms)
        heads: list[Timers] = []
        for run in self._runs:
            due = int(np.searchsorted(run.due, until_ms, "right"))
            heads.append(run.part(0, min(due, count_max)))
        if not heads:
            return Timers(*(np.empty(0, np.int64) for _ in range(3)))
        timers = heads[0] if len(heads) == 1 else _merged(heads)
        if len(timers) > count_max:
            timers = timers.part(0, count_max)
        return timers

    def take(self, timers: Timers) -> int:
        """Remove ``timers``, a prefix of what ``peek`` returned; return how many were removed."""
        if len(timers) == 0:
            return 0
        last = (int(timers.due[-1]), int(timers.physical[-1]))
        runs = [run.part(run.first(last)) for run in self._runs]
        taken = sum(map(len, self._runs)) - sum(map(len, runs))
        self._runs = [run for run in runs if len(run)]
        self._count -= taken
        self._count_seconds(timers.due, -1)
        return taken

    def _sort_slots(self, until_ms: int) -> None:
        """Sort the slots that begin by ``until_ms``; they become near."""
        slot = until_ms >> SLOT_BITS
        while self._order and self._order[0] <= slot:
            number = heapq.heappop(self._order)
            self._add_run(sorted_timers(np.frombuffer(self._slots.pop(number), ENTRY)))
        self._near_slot = max(self._near_slot, slot)

    def up_to(self, key: Key) -> Entries:
        """Return all timers with a key up to ``key``."""
        parts = [run.part(0, run.first(key)).entries().tobytes() for run in self._runs]
        for slot, packed in self._slots.items():
            if slot << SLOT_BITS <= key[0]:
                timers = sorted_timers(np.frombuffer(packed, ENTRY))
                parts.append(timers.part(0, timers.first(key)).entries().tobytes())
        return np.frombuffer(b"".join(parts), ENTRY)  # np.concatenate would change the byte order

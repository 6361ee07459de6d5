"""A retry store in this process's memory: for tests, and where the end of the process may lose messages.

Lives here: ``MemoryStore``.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from pocketmq.client.durable.entry import Entry
from pocketmq.client.durable.store import Changes, Summary


class MemoryStore:
    """Keeps entries in sorted lists. ``close`` keeps them, so that the store can be opened again."""

    name = "memory:"
    durability = "kept in this process's memory: its end loses it"

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._due: list[tuple[int, int]] = []
        self._lanes: dict[str, list[int]] = {}
        self._given_up: dict[int, tuple[Entry, str]] = {}

    def open(self, *, read_only: bool = False) -> Summary:
        """Return what it holds."""
        summary = Summary()
        for entry in self._entries.values():
            summary.add(entry.seq, entry.size_bytes, entry.lane, entry.order_key)
        for seq, (entry, _) in self._given_up.items():
            summary.add_given_up(seq, entry.size_bytes)
        return summary

    def write(self, changes: Changes) -> None:
        """Apply the changes."""
        for entry in changes.added:
            self._entries[entry.seq] = entry
            self._place(entry)
        for entry in changes.removed:
            self._unplace(self._entries.pop(entry.seq, None))
        for entry, due_ms, attempts in changes.moved:
            self._unplace(self._entries.get(entry.seq))
            moved = Entry(entry.seq, due_ms, attempts, entry.lane, entry.order_key, entry.payload)
            self._entries[entry.seq] = moved
            self._place(moved)
        for entry, why in changes.given_up:
            self._unplace(self._entries.pop(entry.seq, None))
            self._given_up[entry.seq] = (entry, why)

    def _place(self, entry: Entry) -> None:
        if entry.lane:
            insort(self._lanes.setdefault(entry.lane, []), entry.seq)
        else:
            insort(self._due, (entry.due_ms, entry.seq))

    def _unplace(self, stored: Entry | None) -> None:
        if stored is None:
            return
        if stored.lane:
            seqs = self._lanes[stored.lane]
            del seqs[bisect_left(seqs, stored.seq)]
            if not seqs:
                del self._lanes[stored.lane]
        else:
            del self._due[bisect_left(self._due, (stored.due_ms, stored.seq))]

    def due(self, start: tuple[int, int], until_ms: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries without a lane."""
        found: list[Entry] = []
        for due_ms, seq in self._due[bisect_left(self._due, start) :][:count]:
            if due_ms > until_ms or size_bytes <= 0:
                break
            found.append(self._entries[seq])
            size_bytes -= found[-1].size_bytes
        return found

    def first_due_ms(self, start: tuple[int, int]) -> int | None:
        """Return the due time of the first entry without a lane."""
        at = bisect_left(self._due, start)
        return self._due[at][0] if at < len(self._due) else None

    def lane(self, lane: str, start_seq: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries of a lane."""
        seqs = self._lanes.get(lane, [])
        found: list[Entry] = []
        for seq in seqs[bisect_left(seqs, start_seq) :][:count]:
            if size_bytes <= 0:
                break
            found.append(self._entries[seq])
            size_bytes -= found[-1].size_bytes
        return found

    def oldest_seq(self, start_seq: int) -> int:
        """Return the smallest seq of the waiting entries."""
        return next(iter(self._entries), 0)  # added in the order of their numbers, and moved ones keep their place

    def given_up(self, start_seq: int, count: int) -> list[tuple[Entry, str]]:
        """Return entries that were given up."""
        return [self._given_up[seq] for seq in sorted(self._given_up) if seq >= start_seq][:count]

    def purge_given_up(self, entries: Sequence[Entry]) -> None:
        """Remove entries that were given up."""
        for entry in entries:
            self._given_up.pop(entry.seq, None)

    def keep_alive(self) -> None:
        """Do nothing: no other process can own it."""

    def repair(self) -> str:
        """Do nothing: memory is not damaged."""
        return "nothing to repair"

    def close(self) -> None:
        """Keep everything for the next ``open``."""

"""The interface of a retry store.

Lives here: the ``RetryStore`` protocol, the changes of one write (``Changes``), the contents found by ``open``
(``Summary``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pocketmq.client.durable.entry import Entry

DUE_MS_MAX = 1 << 60
"""Later than every due time."""


@dataclass(slots=True)
class Changes:
    """Changes that become durable together: all or none.

    ``moved``: (entry as it is stored, its new due time, its new attempts). ``given_up``: (entry, why).
    """

    added: list[Entry] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)
    moved: list[tuple[Entry, int, int]] = field(default_factory=list)
    given_up: list[tuple[Entry, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.moved or self.given_up)

    def merge(self, other: "Changes") -> None:
        """Append the changes of ``other``."""
        self.added += other.added
        self.removed += other.removed
        self.moved += other.moved
        self.given_up += other.given_up


@dataclass(slots=True)
class Summary:
    """The contents of a store. ``lanes``: lane -> order key -> entries. ``oldest_seq``: 0 if nothing waits."""

    count: int = 0
    size_bytes: int = 0
    oldest_seq: int = 0
    last_seq: int = 0
    given_up_count: int = 0
    given_up_bytes: int = 0
    lanes: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, seq: int, size_bytes: int, lane: str, order_key: str) -> None:
        """Count an entry that waits."""
        self.count += 1
        self.size_bytes += size_bytes
        self.last_seq = max(self.last_seq, seq)
        self.oldest_seq = min(self.oldest_seq, seq) if self.oldest_seq else seq
        if lane:
            keys = self.lanes.setdefault(lane, {})
            keys[order_key] = keys.get(order_key, 0) + 1

    def add_given_up(self, seq: int, size_bytes: int) -> None:
        """Count an entry that is given up."""
        self.given_up_count += 1
        self.given_up_bytes += size_bytes
        self.last_seq = max(self.last_seq, seq)


class RetryStore(Protocol):
    """Where messages wait. Used by one thread at a time; every call may block up to its own timeouts.

    One process owns a store while it is open: ``open`` raises ``RetryStoreLocked`` where another one does, and where
    ownership can be lost (a lease that ran out), each ``write`` checks it. ``open`` tries once;
    ``RetryStoreLocked.left_ms`` says whether another try is worthwhile, and the object remembers what it saw of the
    owner (``ownership``). Entries leave only through ``write``, so entries read but not settled are still there after a
    crash.

    Raises ``RetryStoreError``: ``RetryStoreLocked``, ``RetryStoreCorrupt``, ``RetryStoreUnreachable``,
    ``RetryStoreFull``, ``RetryStoreRefused``. After the first three, close the store and open it again.
    """

    @property
    def name(self) -> str:
        """The store in messages and metrics: its URL without a password."""
        ...

    @property
    def durability(self) -> str:
        """What a written entry survives, in words."""
        ...

    def open(self, *, read_only: bool = False) -> Summary:
        """Take ownership (not if ``read_only``) and return the contents."""
        ...

    def write(self, changes: Changes) -> None:
        """Make changes durable, all or none."""
        ...

    def due(self, start: tuple[int, int], until_ms: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries without a lane from (due time, seq) ``start`` on whose due time is at most ``until_ms``.

        At most ``count``, and about ``size_bytes`` (but one at least), by due time and seq.
        """
        ...

    def first_due_ms(self, start: tuple[int, int]) -> int | None:
        """Return the due time of the first entry without a lane from ``start`` on, or None."""
        ...

    def lane(self, lane: str, start_seq: int, count: int, size_bytes: int) -> list[Entry]:
        """Return the entries of a lane from ``start_seq`` on, in order."""
        ...

    def oldest_seq(self, start_seq: int) -> int:
        """Return the smallest seq of the waiting entries, 0 without any; none is smaller than ``start_seq``."""
        ...

    def given_up(self, start_seq: int, count: int) -> list[tuple[Entry, str]]:
        """Return entries that were given up, and why, from ``start_seq`` on."""
        ...

    def purge_given_up(self, entries: Sequence[Entry]) -> None:
        """Remove entries that were given up."""
        ...

    def keep_alive(self) -> None:
        """Renew the ownership; called every few seconds. Raises ``RetryStoreLocked`` if it is lost."""
        ...

    def repair(self) -> str:
        """Try to make a corrupt store usable; return what was done, or raise ``RetryStoreCorrupt``."""
        ...

    def close(self) -> None:
        """Give ownership back; never raises, may be called twice."""
        ...

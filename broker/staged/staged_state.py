"""The state of one staged transaction, and of one transactional id.

Lives here: limits; ``StagedState``, ``Place``, ``Chunk``, ``Attempt``, ``Open``, ``Done``,
``KnownId``, ``Delivery``.
"""

import enum
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pocketmq.broker.staged.staged_records import Dropped, Prepared

IDS_MAX: Final = 10_000
"""Transactional ids remembered: about 1 KB each."""
ATTEMPTS_MAX: Final = 100_000
CHUNKS_MAX: Final = 500_000
"""Chunks without a commit, about 200 bytes each."""
DONE_MAX: Final = 16
"""Commits remembered of each transactional id: those of the highest versions."""
DROPPED_MAX: Final = 1000
"""Attempts in one Dropped event: a larger event could not be read."""
BRIEF_HOURS: Final = 1
"""A commit that is remembered for at most this long makes room for new ids when there are too many, but not before
``BRIEF_MS``."""
BRIEF_MS: Final = 300_000
"""Time in which a program may still repeat its commit."""
HOUR_MS: Final = 3_600_000


class StagedState(enum.IntEnum):
    """The state of a transaction; the numbers are those of the wire."""

    UNKNOWN = 0
    STAGED = 1
    PREPARED = 2
    COMMITTED = 3


class Place(NamedTuple):
    """The place of an event in the log."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_ms: int

    @property
    def end(self) -> int:
        """The end of its record."""
        return self.physical_offset + self.size_bytes


@dataclass(slots=True, frozen=True)
class Chunk:
    """Messages that were staged together."""

    place: Place
    rows: int


@dataclass(slots=True)
class Attempt:
    """The chunks staged by one try to write a part: index → chunk. ``last_ms``: time of the latest one."""

    chunks: dict[int, Chunk] = field(default_factory=dict)
    topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Topic → its identity at the staging, and the highest queue id."""
    first_ms: int = 0
    last_ms: int = 0

    def is_below(self, min_offset: int) -> bool:
        """Return whether a chunk lies below this physical offset."""
        return min_offset > 0 and any(chunk.place.physical_offset < min_offset for chunk in self.chunks.values())


@dataclass(slots=True)
class Open:
    """A transaction without a commit."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    prepared: Prepared | None = None
    prepared_place: Place | None = None


@dataclass(slots=True)
class Done:
    """A commit. ``store_ms``: its time. ``lost``: chunks that were gone before their delivery."""

    store_ms: int
    keep_hours: int
    participants: list[str]
    token: str = ""
    lost: int = 0


@dataclass(slots=True)
class KnownId:
    """The state of one transactional id."""

    open: dict[int, Open] = field(default_factory=dict)
    done: "OrderedDict[int, Done]" = field(default_factory=OrderedDict)
    brokers: list[str] = field(default_factory=list)
    """Brokers that may know this id, if several; sorted."""
    brokers_ms: int = 0
    brokers_keep_hours: int = 0

    def is_kept(self, now_ms: int) -> bool:
        """Return whether any part of it must still be remembered."""
        return (
            bool(self.open)
            or any(now_ms - each.store_ms <= each.keep_hours * HOUR_MS for each in self.done.values())
            or (bool(self.brokers) and now_ms - self.brokers_ms <= self.brokers_keep_hours * HOUR_MS)
        )

    def is_brief(self, now_ms: int) -> bool:
        """Return whether it may make room for new transactional ids."""
        return (
            not self.open
            and max(self.brokers_keep_hours, *(each.keep_hours for each in self.done.values()), 0) <= BRIEF_HOURS
            and now_ms - self.last_ms >= BRIEF_MS
        )

    @property
    def last_ms(self) -> int:
        """Time of the latest commit."""
        return max(self.brokers_ms, *(each.store_ms for each in self.done.values()), 0)


@dataclass(slots=True)
class Delivery:
    """A commit under delivery: chunks below ``at`` are in their queues, and of chunk ``at`` the messages in ``done``
    (their prepared offsets). ``logged_at``: the end of the last record of its progress.
    """

    transactional_id: str
    version: int
    chunks: list[Chunk | None]
    logged_at: int
    at: int = 0
    done: set[int] = field(default_factory=set)


def dropped_parts(transactional_id: str, version: int, attempts: list[str], unprepared: bool = False) -> list[Dropped]:
    """Return the events that drop attempts; with ``unprepared`` the first of them also drops the prepare."""
    return [
        Dropped(transactional_id, version, attempts[at : at + DROPPED_MAX], unprepared and at == 0)
        for at in range(0, max(len(attempts), 1), DROPPED_MAX)
    ]

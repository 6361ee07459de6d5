"""What is known of one staged transaction, and of one transactional id.

Lives here: the limits of what is known; ``StagedState``, ``Place``, ``Chunk``, ``Attempt``, ``Open``, ``Done``,
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
"""Commits remembered of each transactional id: those with the highest versions."""
DROPPED_MAX: Final = 1000
"""Attempts in one Dropped event: it must stay readable."""
BRIEF_HOURS: Final = 1
"""A commit that is to be remembered no longer than this makes room for new ids where there are too many,"""
BRIEF_MS: Final = 300_000
"""but not before this: its program may still ask again."""
HOUR_MS: Final = 3_600_000


class StagedState(enum.IntEnum):
    """What a transaction is; the numbers are those of the wire."""

    UNKNOWN = 0
    STAGED = 1
    PREPARED = 2
    COMMITTED = 3


class Place(NamedTuple):
    """Where an event lies in the log."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_ms: int

    @property
    def end(self) -> int:
        """Behind its record."""
        return self.physical_offset + self.size_bytes


@dataclass(slots=True, frozen=True)
class Chunk:
    """Messages that were staged together."""

    place: Place
    rows: int


@dataclass(slots=True)
class Attempt:
    """What one try to write a part has staged: chunk index → chunk. ``last_ms``: when it staged last."""

    chunks: dict[int, Chunk] = field(default_factory=dict)
    topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Topic → its identity when it was staged for, and the highest queue id."""
    first_ms: int = 0
    last_ms: int = 0

    def is_below(self, min_offset: int) -> bool:
        """Whether a chunk lay below this physical offset."""
        return min_offset > 0 and any(chunk.place.physical_offset < min_offset for chunk in self.chunks.values())


@dataclass(slots=True)
class Open:
    """A transaction without a commit."""

    attempts: dict[str, Attempt] = field(default_factory=dict)
    prepared: Prepared | None = None
    prepared_place: Place | None = None


@dataclass(slots=True)
class Done:
    """A commit. ``store_ms``: when. ``lost``: how many of its chunks were not there any more to be delivered."""

    store_ms: int
    keep_hours: int
    participants: list[str]
    token: str = ""
    lost: int = 0


@dataclass(slots=True)
class KnownId:
    """What is known of one transactional id."""

    open: dict[int, Open] = field(default_factory=dict)
    done: "OrderedDict[int, Done]" = field(default_factory=OrderedDict)
    brokers: list[str] = field(default_factory=list)
    """Those that may know something of it, where there are several; sorted."""
    brokers_ms: int = 0
    brokers_keep_hours: int = 0

    def is_kept(self, now_ms: int) -> bool:
        """Whether anything of it must still be remembered."""
        return (
            bool(self.open)
            or any(now_ms - each.store_ms <= each.keep_hours * HOUR_MS for each in self.done.values())
            or (bool(self.brokers) and now_ms - self.brokers_ms <= self.brokers_keep_hours * HOUR_MS)
        )

    def is_brief(self, now_ms: int) -> bool:
        """Whether it may make room for new transactional ids."""
        return (
            not self.open
            and max(self.brokers_keep_hours, *(each.keep_hours for each in self.done.values()), 0) <= BRIEF_HOURS
            and now_ms - self.last_ms >= BRIEF_MS
        )

    @property
    def last_ms(self) -> int:
        """When something was last committed."""
        return max(self.brokers_ms, *(each.store_ms for each in self.done.values()), 0)


@dataclass(slots=True)
class Delivery:
    """A commit on its way: the chunks below ``at`` are in their queues, and of that one the messages in ``done`` (their
    prepared offsets). ``told_at``: the end of the last record that says how far it is.
    """

    transactional_id: str
    version: int
    chunks: list[Chunk | None]
    told_at: int
    at: int = 0
    done: set[int] = field(default_factory=set)


def dropped_parts(transactional_id: str, version: int, attempts: list[str], unprepared: bool = False) -> list[Dropped]:
    """Return the events that drop attempts, and with the first of them the prepare."""
    return [
        Dropped(transactional_id, version, attempts[at : at + DROPPED_MAX], unprepared and at == 0)
        for at in range(0, max(len(attempts), 1), DROPPED_MAX)
    ]

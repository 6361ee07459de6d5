"""The epochs of a log: a table of its writers, by which two logs compute how far they are the same.

Lives here: ``Epoch``, ``EpochTable`` (a value without I/O), the common end of two logs.

One writer opens an epoch at the end of its log and is the only writer until the next one is opened; a follower copies
the entry with the bytes. So all logs that share an entry have the same bytes below its start, and two logs whose last
shared entry is E agree up to the point where the first of them leaves E.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, BytesIllegal, Cause
from pocketmq.store.errors import StoreError

EPOCHS_MAX: Final = 512
"""Maximum number of entries; the oldest are dropped. Logs more than that many openings apart share none."""
OWNER_CHARS_MAX: Final = 64
NUMBER_MAX: Final = (1 << 53) - 1
OFFSET_MAX: Final = (1 << 63) - 1


class BadEpochs(StoreError, BytesIllegal):
    """Epochs that cannot form a table: from a foreign or broken peer, or a damaged file."""

    default_cause = Cause.CORRUPT


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    """``owner`` wrote the log from ``start_offset`` (physical, bytes) on. ``owner`` names one run of one node."""

    number: int
    owner: str
    start_offset: int


class EpochTable:
    """The epochs of one log, oldest first; immutable, its methods return new tables.

    Holds: numbers increase, start offsets never decrease, at most ``EPOCHS_MAX`` entries.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[Epoch] = ()) -> None:
        """Raises ``BadEpochs`` unless ``entries`` form a table."""
        self.entries: tuple[Epoch, ...] = tuple(entries)
        if len(self.entries) > EPOCHS_MAX:
            raise BadEpochs("epochs refused", why=f"{len(self.entries)} entries, at most {EPOCHS_MAX}")
        number, start_offset = 0, 0
        for entry in self.entries:
            if not (
                number < entry.number <= NUMBER_MAX
                and start_offset <= entry.start_offset <= OFFSET_MAX
                and 0 < len(entry.owner) <= OWNER_CHARS_MAX
            ):
                raise BadEpochs(
                    "epochs refused", why=f"{entry} does not follow epoch {number} at offset {start_offset}"
                )
            number, start_offset = entry.number, entry.start_offset

    @classmethod
    def from_rows(cls, rows: Any) -> "EpochTable":
        """Read the rows of ``to_rows``, perhaps from a peer. Raises ``BadEpochs``."""
        try:
            entries = msgspec.convert(rows, list[Epoch])
        except DECODE_ERRORS as error:
            raise BadEpochs("epochs refused", why=str(error)) from error
        return cls(entries)

    def to_rows(self) -> list[tuple[int, str, int]]:
        """Return the table as (number, owner, start offset) rows, for messages."""
        return [(entry.number, entry.owner, entry.start_offset) for entry in self.entries]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochTable) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"EpochTable({self.to_rows()})"

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def last(self) -> Epoch | None:
        """The newest entry."""
        return self.entries[-1] if self.entries else None

    @property
    def last_number(self) -> int:
        """The newest number, 0 without an entry."""
        return self.entries[-1].number if self.entries else 0

    def opened(self, epoch: Epoch) -> "EpochTable":
        """Return the table with ``epoch`` after the last entry. Raises ``BadEpochs`` if it does not follow it."""
        return EpochTable([*self.entries[-(EPOCHS_MAX - 1) :], epoch])

    def cut(self, end_offset: int) -> "EpochTable":
        """Return the table of a log that ends at ``end_offset``: without entries that start beyond it.

        An entry that starts exactly there stays: all bytes before it are there.
        """
        kept = [entry for entry in self.entries if entry.start_offset <= end_offset]
        return self if len(kept) == len(self.entries) else EpochTable(kept)

    def _end_of(self, index: int, end_offset: int) -> int:
        """Return where entry ``index`` ends in a log that ends at ``end_offset``."""
        following = self.entries[index + 1 : index + 2]
        return min(end_offset, *(entry.start_offset for entry in following)) if following else end_offset


def common_end(mine: EpochTable, my_end: int, theirs: EpochTable, their_end: int) -> int | None:
    """Return the offset up to which two logs are certainly the same; None if their tables share no entry.

    Entries beyond the end of their log do not count.
    """
    mine, theirs = mine.cut(my_end), theirs.cut(their_end)
    places = {entry: index for index, entry in enumerate(theirs.entries)}
    for index in range(len(mine) - 1, -1, -1):
        place = places.get(mine.entries[index])
        if place is not None:
            return min(mine._end_of(index, my_end), theirs._end_of(place, their_end))
    return None

"""Open transactions, and the outcomes of recent ones.

Lives here: ``Half`` (a half message without a decision), ``Outcome``, ``TransactionTable``. No I/O.
"""

import enum
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pocketmq.common.bounds import bounded

OUTCOMES_MAX: Final = 65_536
"""Ended transactions remembered, so that a repeated decision gets its answer: about 12 MB."""
GIVEN_UP_MAX: Final = 4096
"""Given-up half messages that still take a late decision."""
KEPT_BYTES_MAX: Final = 16 << 20
"""Bytes of half records kept in memory, so that most commits need no read."""
SHARES: Final = 10
"""A group may have a tenth of the table, and more only while half of the table is free."""
ORPHAN_MS: Final = 60_000
"""Age at which a half message without a producer may be given up early."""
HALF_BYTES: Final = 1024
"""One half message with its group's name, without its record (CPython 3.11, 64 bit)."""


class Outcome(enum.Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"
    LOST = "lost"


@dataclass(slots=True)
class Half:
    """One half message. ``queue_offset``: in the half topic, the transaction's id; ``op_offset``: the op messages of
    this half message and of later ones are at or after it. Times in ms.
    """

    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_ms: int
    producer_group: str
    immunity_ms: int = 0
    """Age at which it is checked first; 0: the broker's ``transaction_time_out``."""
    op_offset: int = 0
    checks: int = 0
    record: bytes | None = None
    """The half record without its offsets, while there is room for it (``KEPT_BYTES_MAX``)."""
    since_ms: int = 0
    """From when it counts as waiting, by a time that is not set; 0: no round of checks has seen it yet."""
    recovered: bool = False
    """Whether it was found in the log at the start: a crash may have cut off the op message of its commit."""


class Crowded(enum.Enum):
    """Why a half message is refused."""

    FULL = "the table is full"
    SHARE = "its group has its share"
    NO_PRODUCER = "the last fifth is for groups with producers"


@bounded(
    "open transactions", limit="pending_max", size="__len__", entry_bytes=HALF_BYTES,
    setting="broker.transaction_pending_max",
)  # fmt: skip
@bounded("half records in memory", limit=KEPT_BYTES_MAX, size="kept_bytes", unit="bytes", when_full="evicts")
@bounded("outcomes", limit=OUTCOMES_MAX, size="_outcomes", entry_bytes=256, when_full="evicts")
@bounded("given-up half messages", limit=GIVEN_UP_MAX, size="_given_up", entry_bytes=HALF_BYTES, when_full="evicts")
class TransactionTable:
    """Thread-safe; the lock is held for dict calls only.

    Halves are added as soon as they are in the log, before their producer has an answer. A decision claims the half
    first, is then written to the log, and ends with ``finish`` or, if it was not stored, ``release``: so each half has
    one decision. It may exceed ``pending_max`` by the half messages of one drain.
    """

    def __init__(self, pending_max: int, has_producer: Callable[[str], bool] = lambda group: True) -> None:
        """``has_producer``: whether a producer of this group is connected."""
        self.pending_max = pending_max
        self.share = pending_max // SHARES or pending_max
        self._has_producer = has_producer
        self._of_group: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._pending: dict[int, Half] = {}
        self._claimed: dict[int, Half] = {}
        self._given_up: OrderedDict[int, Half] = OrderedDict()
        self._outcomes: OrderedDict[int, tuple[Outcome, int]] = OrderedDict()
        self._end = 0
        """Halves below it are known: open or ended."""
        self._ahead: dict[int, int] = {}
        """First → count of halves that were added before an earlier one (two send threads)."""
        self._ahead_op_offset = 0
        self._op_offset = 0
        self._kept_bytes = 0

    def open_at(self, end: int, op_offset: int) -> None:
        """Begin after the half messages and op messages of the log."""
        self._end, self._op_offset = end, op_offset

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def kept_bytes(self) -> int:
        """Bytes of half records in memory."""
        return self._kept_bytes

    def of_group(self, group: str) -> int:
        """Return how many open half messages a group has."""
        return self._of_group.get(group, 0)

    def refuses(self, group: str, count: int = 1) -> Crowded | None:
        """Return why ``count`` more half messages of a group are refused, or None.

        Strangers can invent half messages and groups; so one group cannot fill the table, and groups without a
        producer leave a fifth of it to the others.
        """
        limit, size = self.pending_max, len(self._pending) + count
        if size > limit:
            return Crowded.FULL
        if size > limit - limit // 2 and self._of_group.get(group, 0) + count > self.share:
            return Crowded.SHARE
        if size > self.usual_max and not self._has_producer(group):
            return Crowded.NO_PRODUCER
        return None

    @property
    def usual_max(self) -> int:
        """Four fifths of the table: above it, half messages without a producer end sooner."""
        return self.pending_max - self.pending_max // 5

    def orphans(self, now_ms: int) -> list[Half]:
        """Return the half messages to give up early: the oldest ones whose groups have no producer, so many as there
        are above four fifths of the table."""
        excess = len(self._pending) - self.usual_max
        if excess <= 0:
            return []
        alone = {group for group in list(self._of_group) if not self._has_producer(group)}
        old_ms = now_ms - ORPHAN_MS
        waiting = [half for half in self.pending() if half.producer_group in alone]
        found = [half for half in waiting if (half.since_ms or half.store_ms) <= old_ms]
        return in_order(found)[:excess]

    def add(self, half: Half) -> None:
        """Note a half message that was appended."""
        self.add_all((half,))

    def add_all(self, halves: Sequence[Half]) -> None:
        """Note half messages that were appended."""
        with self._lock:
            for half in halves:
                self._add(half)

    def _add(self, half: Half) -> None:
        at = half.queue_offset
        if half.record is not None:
            if self._kept_bytes + len(half.record) > KEPT_BYTES_MAX:
                half.record = None
            else:
                self._kept_bytes += len(half.record)
        half.op_offset = self._op_offset
        if at == self._end:
            self._end += 1
            if self._ahead:
                half.op_offset = self._ahead_op_offset
                while count := self._ahead.pop(self._end, 0):
                    self._end += count
        elif at > self._end:
            if not self._ahead:
                self._ahead_op_offset = self._op_offset
            half.op_offset = self._ahead_op_offset
            self._ahead[at] = 1
        self._pending[at] = half
        self._of_group[half.producer_group] += 1

    def restore(self, half: Half) -> None:
        """Add a half message found in the log at the start."""
        if half.queue_offset not in self._pending:
            self._of_group[half.producer_group] += 1
        self._pending[half.queue_offset] = half

    def claim(self, queue_offset: int) -> Half | None:
        """Take an open half message, or a given-up one that is remembered, for a decision; None if there is none or
        another decision has claimed it.
        """
        with self._lock:
            half = self._pending.get(queue_offset) or self._given_up.get(queue_offset)
            if half is None or queue_offset in self._claimed:
                return None
            self._claimed[queue_offset] = half
            return half

    def release(self, half: Half) -> None:
        """Give a claimed half message back undecided."""
        with self._lock:
            self._claimed.pop(half.queue_offset, None)

    def finish(self, half: Half, outcome: Outcome) -> None:
        """Note a decision that is in the log."""
        self.finish_all(((half, outcome),))

    def finish_all(self, ended: Sequence[tuple[Half, Outcome]]) -> None:
        """Note decisions that are in the log."""
        outcomes, given_up = self._outcomes, self._given_up
        with self._lock:
            for half, outcome in ended:
                at = half.queue_offset
                self._claimed.pop(at, None)
                if self._pending.pop(at, None) is not None:
                    self._leave_group(half.producer_group)
                if given_up:
                    given_up.pop(at, None)
                if half.record is not None:
                    self._kept_bytes -= len(half.record)
                    half.record = None
                outcomes[at] = outcome, half.physical_offset
                if outcome is Outcome.GIVEN_UP:
                    given_up[at] = half
            while len(outcomes) > OUTCOMES_MAX:
                outcomes.popitem(last=False)
            while len(given_up) > GIVEN_UP_MAX:
                given_up.popitem(last=False)

    def _leave_group(self, group: str) -> None:
        self._of_group[group] -= 1
        if not self._of_group[group]:
            del self._of_group[group]

    def ops_end_at(self, op_offset: int) -> None:
        """Note that the queue of op messages ends here or later."""
        with self._lock:
            self._op_offset = max(self._op_offset, op_offset)

    def get(self, queue_offset: int) -> Half | None:
        """Return an open half message, or a given-up one that is remembered."""
        return self._pending.get(queue_offset) or self._given_up.get(queue_offset)

    def outcome(self, queue_offset: int) -> tuple[Outcome, int] | None:
        """Return how a transaction ended, and the physical offset of its half message, if that is remembered."""
        return self._outcomes.get(queue_offset)

    def withdraw(self, physical_offset: int) -> bool:
        """Refuse late decisions on the given-up half message at this offset, which is resumed; return False when one is
        being written.
        """
        with self._lock:
            for at, half in self._given_up.items():
                if half.physical_offset == physical_offset:
                    if at in self._claimed:
                        return False
                    del self._given_up[at]
                    return True
            return True

    def is_known(self, queue_offset: int) -> bool:
        """Return whether the half topic ever had this offset, as far as this table knows."""
        return 0 <= queue_offset < self._end or queue_offset in self._pending

    def pending(self) -> list[Half]:
        """Return the open half messages, roughly in the order of the log."""
        with self._lock:
            return list(self._pending.values())

    def low(self) -> tuple[int, int]:
        """Return (half-queue offset, op-queue offset) from which a start must read: all open half messages are at or
        after the first, all op messages about them at or after the second.
        """
        with self._lock:
            first = min(self._pending, default=None)
            if first is not None and first < self._end:
                return first, self._pending[first].op_offset
            return self._end, self._ahead_op_offset if self._ahead else self._op_offset

    def oldest(self) -> Half | None:
        """Return the open half message with the lowest offset."""
        with self._lock:
            first = min(self._pending, default=None)
            return None if first is None else self._pending[first]

    def checks(self) -> dict[int, int]:
        """Return half-queue offset → checks made, of those that were checked."""
        return {half.queue_offset: half.checks for half in self.pending() if half.checks}


def in_order(halves: Sequence[Half]) -> list[Half]:
    """Return ``halves`` in the order of the log."""
    return sorted(halves, key=lambda half: half.physical_offset)

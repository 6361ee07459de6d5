"""Records of groups with a wrong checksum that would enter a queue at a wrong place.

A group checksum shows that a byte has changed, not which one. The record's own checks cover size, magic, physical
offset, lengths and body; a changed queue offset, queue id or topic would put it in the place of other messages, which
would then be taken for known ones and lost.

Lives here: ``misplaced``, which compares queue offsets with their neighbors in the log.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.store.commitlog.log_reader import DamagedRange

Queue = tuple[str, int]


@dataclass(slots=True, frozen=True)
class _Row:
    """A suspect record."""

    queue_offset: int
    start: int
    end: int


@dataclass(slots=True)
class _QueueCheck:
    """Follows one queue through the log. ``before``: the last trusted offset; ``waiting``: suspects after it, until the
    next intact group shows the offset that follows them; ``gaps``: offsets that no record has.
    """

    before: int
    has_holes: bool
    is_known: bool = False
    gaps: int = 0
    waiting: list[_Row] = field(default_factory=list)
    believed: list[_Row] = field(default_factory=list)
    refused: list[_Row] = field(default_factory=list)

    def whole(self, first: int, last: int, count: int) -> None:
        """Take ``count`` records of whole groups with offsets from ``first`` to ``last``."""
        free = self.decide(first)
        self.is_known = True
        self.gaps += max(0, first - self.before - 1 - free) + max(0, last - first + 1 - count)
        self.before = max(self.before, last)

    def decide(self, after: int | None) -> int:
        """Accept or refuse the waiting suspects; return how many offsets after ``before`` the refused leave free."""
        free = 0
        for row in self.waiting:
            offset = row.queue_offset
            fits = self.before < offset and (self.has_holes or offset <= self.before + 1 + free)
            if fits and (after is None or offset < after):
                self.gaps += max(0, offset - self.before - 1 - free)
                self.believed.append(row)
                self.before, free = offset, 0
            else:
                self.refused.append(row)
                free += 1
        self.waiting.clear()
        return free


def misplaced(
    groups: Iterable[RecordGroup],
    suspects: Sequence[DamagedRange],
    queue_ends: Mapping[Queue, int],
    deleted_to: Callable[[str], int],
    has_holes: bool,
) -> list[DamagedRange]:
    """Return the records within ``suspects`` whose queue offset does not fit between its neighbors in the log.

    ``groups``: the log from before the first suspect on; ``queue_ends``: (topic, queue id) → the first queue offset in
    them, 0 for other queues; ``deleted_to(topic)``: records below belong to a deleted topic, whose offsets restarted;
    ``has_holes``: records are missing in the log, so offsets may jump.
    """
    checks: dict[Queue, _QueueCheck] = {}
    for group in groups:
        for section in group.sections:
            queue = (section.topic, section.queue_id)
            check = checks.get(queue)
            if check is None:
                first = queue_ends.get(queue, 0)
                check = checks[queue] = _QueueCheck(first - 1, has_holes, is_known=first > 0)
            _take(check, group, section, suspects, deleted_to(section.topic))
    for check in checks.values():
        check.decide(None)
    found = [row for check in checks.values() for row in check.refused]
    if not has_holes and any(check.gaps for check in checks.values()):
        # a queue lacks a message, and another queue has begun without any intact group
        found += [row for check in checks.values() if not check.is_known for row in check.believed]
    return [
        DamagedRange(row.start, row.end, f"queue offset {row.queue_offset} does not continue its queue")
        for row in sorted(found, key=lambda row: row.start)
    ]


def _take(
    check: _QueueCheck, group: RecordGroup, section: GroupSection, suspects: Sequence[DamagedRange], first_start: int
) -> None:
    """Take the records of a section that enter their queue and begin at or behind ``first_start``."""
    assert group.queue_offsets is not None
    assert group.physical_offsets is not None
    rows = np.arange(section.first, section.first + section.count)
    if group.in_queue is not None:
        rows = rows[group.in_queue[rows]]
    rows = rows[group.physical_offsets[rows] >= first_start]
    if len(rows) == 0:
        return
    starts = group.physical_offsets[rows]
    ends = starts + group.sizes[rows]
    offsets = group.queue_offsets[rows]
    is_suspect = np.zeros(len(rows), np.bool_)
    for part in suspects:
        is_suspect |= (starts >= part.start) & (starts < part.end)
    bounds = [0, *(np.flatnonzero(np.diff(is_suspect)) + 1).tolist(), len(rows)]
    for begin, end in itertools.pairwise(bounds):
        if not is_suspect[begin]:
            check.whole(int(offsets[begin]), int(offsets[end - 1]), end - begin)
            continue
        for at in range(begin, end):
            check.waiting.append(_Row(int(offsets[at]), int(starts[at]), int(ends[at])))

"""The next offset of each queue, from the view of the append.

Lives here: ``QueueOffsets``: the offsets of a group's records in their queues.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.record_group import RecordGroup

Int64s = NDArray[np.int64]
NextOffset = Callable[[str, int], int]
Moved = dict[tuple[str, int], int]


class QueueOffsets:
    """The next queue offset of every queue that was appended to; others are asked of ``next_offset(topic, queue_id)``.

    Changed under the append lock only.
    """

    def __init__(self, next_offset: NextOffset) -> None:
        self._next_offset = next_offset
        self.known: Moved = {}
        """The queues that were appended to; to be changed under the append lock only."""

    def assign(self, group: RecordGroup) -> tuple[Int64s, list[int], Moved]:
        """Return the queue offset of each record, the first of each section, and the argument for ``move`` once the
        group is stored.

        A record that enters no queue has offset 0 and moves nothing (RocketMQ CommitLog: PREPARED and ROLLBACK).
        """
        moved: Moved = {}
        known = self.known
        sections = group.sections
        in_queue = group.in_queue
        firsts: list[int] = []
        offsets: Int64s
        if len(sections) > 1 or in_queue is not None:
            offsets = np.arange(len(group.starts), dtype=np.int64)
        for section in sections:
            key = (section.topic, section.queue_id)
            next_offset = moved.get(key)
            if next_offset is None:
                next_offset = known.get(key)
                if next_offset is None:
                    next_offset = self._next_offset(section.topic, section.queue_id)
            count = section.count
            if in_queue is None:
                firsts.append(next_offset)
                moved[key] = next_offset + count
                if len(sections) == 1:
                    return np.arange(next_offset, next_offset + count), firsts, moved
                offsets[section.first : section.first + count] += next_offset - section.first
            else:
                rows = slice(section.first, section.first + count)
                counted = in_queue[rows]
                offsets[rows] = np.where(counted, np.cumsum(counted) - 1 + next_offset, 0)
                firsts.append(int(offsets[section.first]))
                moved[key] = next_offset + int(np.count_nonzero(counted))
        return offsets, firsts, moved

    def move(self, moved: Moved) -> None:
        """Continue after a stored group."""
        self.known.update(moved)

    def forget(self, topic: str) -> None:
        """Forget the queues of a topic: their next offsets are looked up again."""
        for key in [key for key in self.known if key[0] == topic]:
            del self.known[key]

    def next(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next record of a queue gets."""
        known = self.known.get((topic, queue_id))
        return self._next_offset(topic, queue_id) if known is None else known

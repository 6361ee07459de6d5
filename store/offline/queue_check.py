"""Consume queues against the log.

Lives here: ``QueueCheck``, which takes the records of the log in order, then the end of the log, and reports missing,
wrong and surplus entries, and the messages in a damaged range.

Memory does not grow with the log: entries are read along with their records, and correct ones are kept as ranges.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NOT
from pocketmq.common.record_columns import topic_ids
from pocketmq.common.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.store.consumequeue.consume_queue import ENTRY, Entries, is_blank
from pocketmq.store.disk.queue_paths import LMQ_PREFIX, queue_error
from pocketmq.store.offline.log_walk import LogChunk
from pocketmq.store.offline.queue_files import QueueFiles
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.report import (
    AFFECTED_MAX,
    PROBLEM_QUEUES_MAX,
    Affected,
    FindingReport,
    QueueProblem,
    QueuesReport,
)

QUEUES_MAX: Final = 200_000
"""Maximum number of checked queues; records of others are only counted."""
RANGES_MAX: Final = 10_000
"""Maximum number of ranges for one queue. A sound queue has one; beyond this its entries are no longer checked."""
_SPAN_SLACK: Final = 1024
_EXTENDED_TAGS_CODE: Final = -(1 << 31)
"""Below it a tags code is an address in RocketMQ's extension file (ConsumeQueueExt.MAX_ADDR)."""

Int64s = NDArray[np.int64]


class Ranges:
    """A set of integers as ranges, fed mostly in ascending order."""

    __slots__ = ("_ends", "_sorted", "_starts", "overflown")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._sorted: tuple[Int64s, Int64s] | None = None
        self.overflown = False

    def add(self, values: Int64s) -> None:
        """Add ascending or scattered values."""
        if len(values) == 0 or self.overflown:
            return
        cuts = np.flatnonzero(np.diff(values) != 1) + 1
        firsts = values[np.concatenate([[0], cuts])].tolist()
        lasts = values[np.concatenate([cuts - 1, [len(values) - 1]])].tolist()
        self._sorted = None
        for first, last in zip(firsts, lasts, strict=True):
            if self._ends and self._ends[-1] == first:
                self._ends[-1] = last + 1
            else:
                self._starts.append(first)
                self._ends.append(last + 1)
        if len(self._starts) > RANGES_MAX:
            self._compact()
            self.overflown = len(self._starts) > RANGES_MAX

    def _compact(self) -> tuple[Int64s, Int64s]:
        starts, ends = np.array(self._starts, np.int64), np.array(self._ends, np.int64)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
        keep = np.ones(len(starts), np.bool_)
        keep[1:] = starts[1:] > ends[:-1]
        firsts = np.flatnonzero(keep)
        lasts = np.append(firsts[1:] - 1, len(starts) - 1) if len(firsts) else firsts
        starts, ends = starts[firsts], ends[lasts]
        self._starts, self._ends = starts.tolist(), ends.tolist()
        self._sorted = starts, ends
        return starts, ends

    def has(self, values: Int64s) -> NDArray[np.bool_]:
        """Return which values are in the set."""
        starts, ends = self._sorted or self._compact()
        if len(starts) == 0:
            return np.zeros(len(values), np.bool_)
        at = np.searchsorted(starts, values, "right") - 1
        found: NDArray[np.bool_] = (at >= 0) & (values < ends[np.maximum(at, 0)])
        return found

    def spans(self) -> list[tuple[int, int]]:
        """Return the ranges, ascending."""
        starts, ends = self._sorted or self._compact()
        return list(zip(starts.tolist(), ends.tolist(), strict=True))


class _Followed:
    """The state of one checked queue."""

    __slots__ = ("bad_tags", "differs", "files", "matched", "missing")

    def __init__(self, files: QueueFiles | None) -> None:
        self.files = files
        self.matched = Ranges()
        self.missing = Ranges()
        self.differs = Ranges()
        self.bad_tags = 0


class QueueCheck:
    """``see`` each chunk in log order, ``finish`` once."""

    def __init__(self, reader: StoreReader, deleted: dict[str, int]) -> None:
        """``deleted``: the end of the log at a topic's last deletion; its records below have no entry."""
        self._reader = reader
        self._deleted = deleted
        self._queues: dict[tuple[str, int], _Followed] = {}
        self.report = QueuesReport(queues=len(reader.layout.queues))
        self.unfollowed_records = 0

    def see(self, chunk: LogChunk, ids: Int64s, topics: Sequence[str], tags_codes: Int64s | None = None) -> None:
        """Compare the records of a chunk with their entries. ``ids``: each record's topic in ``topics``;
        ``tags_codes``: of each record, or None not to compare them.
        """
        columns = chunk.columns
        rows = np.arange(len(columns))
        kinds = columns.sys_flags & TRANSACTION_MASK
        if kinds.any():
            rows = rows[(kinds == TRANSACTION_NOT) | (kinds == TRANSACTION_COMMIT)]
        keys = ids[rows] << 32 | columns.queue_ids[rows].astype(np.int64) & 0xFFFF_FFFF
        order = np.argsort(keys, kind="stable")
        rows, keys = rows[order], keys[order]
        cuts = np.flatnonzero(np.diff(keys)) + 1
        for part in np.split(rows, cuts) if len(rows) else ():
            topic = topics[int(ids[part[0]])]
            if topic in self._reader.layout.batch_topics:
                continue
            queue_id = int(columns.queue_ids[part[0]])
            if (topic, queue_id) not in self._queues and queue_error(topic, queue_id) is not None:
                continue  # such a record enters no queue; ``verify`` reports it
            deleted_to = self._deleted.get(topic, 0)
            if deleted_to:
                part = part[columns.physical_offsets[part] >= deleted_to]
                if len(part) == 0:
                    continue
            followed = self._follow(topic, queue_id)
            if followed is None:
                self.unfollowed_records += len(part)
                continue
            codes = None if tags_codes is None or topic in (SCHEDULE_TOPIC, TIMER_TOPIC) else tags_codes[part]
            self._compare(
                followed,
                columns.queue_offsets[part],
                columns.physical_offsets[part],
                columns.sizes[part],
                codes,
                chunk.is_suspect,
            )

    def _follow(self, topic: str, queue_id: int) -> _Followed | None:
        followed = self._queues.get((topic, queue_id))
        if followed is None and len(self._queues) < QUEUES_MAX:
            followed = _Followed(self._reader.queue(topic, queue_id))
            self._queues[topic, queue_id] = followed
        return followed

    def _compare(
        self,
        followed: _Followed,
        queue_offsets: Int64s,
        offsets: Int64s,
        sizes: Int64s,
        codes: Int64s | None,
        is_suspect: bool,
    ) -> None:
        entries = self._entries(followed.files, queue_offsets)
        found = entries["offset"].astype(np.int64)
        same = (found == offsets) & (entries["size"].astype(np.int64) == sizes)
        if same.all():
            followed.matched.add(queue_offsets)
        else:
            followed.matched.add(queue_offsets[same])
            if is_suspect:  # its topic, queue or offset may have changed: more likely the queue is right
                return
            absent = (entries["size"] <= 0) | is_blank(entries)
            followed.missing.add(queue_offsets[absent & ~same])
            followed.differs.add(queue_offsets[~absent & ~same])
        if codes is not None:
            stored = entries["tags_code"].astype(np.int64)
            followed.bad_tags += int(np.count_nonzero(same & (stored != codes) & (stored >= _EXTENDED_TAGS_CODE)))
            self.report.tags_checked += int(np.count_nonzero(same))

    @staticmethod
    def _entries(files: QueueFiles | None, queue_offsets: Int64s) -> Entries:
        count = len(queue_offsets)
        first, last = int(queue_offsets.min()), int(queue_offsets.max())
        if files is None or last < 0 or first >= files.end_entry:
            return np.zeros(count, ENTRY)
        if first >= 0 and last - first < 2 * count + _SPAN_SLACK:
            return files.read(first, last - first + 1)[queue_offsets - first]
        found = np.zeros(count, ENTRY)
        for row, offset in enumerate(queue_offsets.tolist()):
            if 0 <= offset < files.end_entry:
                found[row] = files.read(offset, 1)[0]
        return found

    # ---- the end

    def finish(self, start_offset: int, end_offset: int, findings: list[FindingReport]) -> QueuesReport:
        """Check all entries of all queues; fill ``affects`` of the findings (sorted by ``start``)."""
        problems: dict[tuple[str, int], QueueProblem] = {}
        for files in self._reader.queues():
            key = (files.topic, files.queue_id)
            followed = self._queues.get(key)
            problem = self._scan(files, followed or _Followed(files), start_offset, end_offset, findings)
            if problem is not None:
                problems[key] = problem
        for key, followed in self._queues.items():
            if followed.files is None:
                missing = self._count_missing(followed, 0)
                if missing:
                    spans = followed.missing.spans()
                    problems[key] = QueueProblem(*key, missing=missing, first_offset=spans[0][0])
        kept = [problems[key] for key in sorted(problems)]
        self.report.problems = kept[:PROBLEM_QUEUES_MAX]
        self.report.problems_left_out = max(0, len(kept) - PROBLEM_QUEUES_MAX)
        return self.report

    def _count_missing(self, followed: _Followed, written_end: int) -> int:
        """Return how many records have no entry; those after the last entry of an open store do not count yet."""
        missing = 0
        for first, end in followed.missing.spans():
            pending = max(0, end - max(first, written_end)) if self._reader.layout.is_open else 0
            self.report.pending += pending
            missing += end - first - pending
        return missing

    def _scan(
        self, files: QueueFiles, followed: _Followed, start: int, end: int, findings: list[FindingReport]
    ) -> QueueProblem | None:
        report = self.report
        problem = QueueProblem(files.topic, files.queue_id, tags=followed.bad_tags)
        bad: list[int] = []
        written_end = late = 0
        is_light = files.topic.startswith(LMQ_PREFIX)  # its entries point to records of other topics
        for at, entries in files.blocks():
            written = np.flatnonzero(entries["size"] > 0)
            if len(written) == 0:
                continue
            written_end = at + int(written[-1]) + 1
            entries = entries[written]
            queue_offsets = written + at
            blank = is_blank(entries)
            report.blank += int(np.count_nonzero(blank))
            entries, queue_offsets = entries[~blank], queue_offsets[~blank]
            report.entries += len(entries)
            offsets = entries["offset"].astype(np.int64)
            expired = (offsets >= 0) & (offsets < start)
            report.expired += int(np.count_nonzero(expired))
            _note_affected(findings, files, queue_offsets, offsets)
            matched = followed.matched.has(queue_offsets)
            report.good += int(np.count_nonzero(matched))
            rest = ~matched & ~expired
            if self._reader.layout.is_open and rest.any():  # written since the walk
                came = rest & followed.missing.has(queue_offsets)
                came = came & self._are_there(files, entries, queue_offsets, came) if came.any() else came
                late += int(np.count_nonzero(came))
                rest &= ~came
            beyond = rest & (offsets >= end)
            in_bad = rest & _inside(findings, offsets)
            report.damaged += int(np.count_nonzero(in_bad & ~beyond))
            wrong = rest & ~beyond & ~in_bad
            if is_light or followed.matched.overflown:
                wrong[:] = False
            if beyond.any() and self._reader.layout.is_open:
                beyond &= ~self._are_there(files, entries, queue_offsets, beyond)
            problem.wrong += int(np.count_nonzero(wrong))
            problem.beyond += int(np.count_nonzero(beyond))
            first_bad = np.flatnonzero(wrong | beyond)
            if len(first_bad):
                bad.append(int(queue_offsets[first_bad[0]]))
        superseded = sum(
            int(np.count_nonzero(followed.matched.has(np.arange(first, min(last, first + (1 << 20))))))
            for first, last in followed.differs.spans()
        )
        report.superseded += superseded
        report.good += late
        problem.missing = self._count_missing(followed, written_end) - late
        if problem.missing:
            bad.append(followed.missing.spans()[0][0])
        if not (problem.missing or problem.wrong or problem.beyond or problem.tags):
            return None
        problem.first_offset = min(bad, default=-1)
        return problem

    def _are_there(
        self, files: QueueFiles, entries: Entries, queue_offsets: Int64s, asked: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which entries beyond the walked end point to records that a broker has stored since."""
        found = np.zeros(len(entries), np.bool_)
        rows = np.flatnonzero(asked)
        for row in (rows[0], rows[-1]):
            record = self._reader.record_at(int(entries["offset"][row]))
            if record is None or int.from_bytes(record[20:28], "big", signed=True) != int(queue_offsets[row]):
                return found
        found[rows[0] : rows[-1] + 1] = True
        return found


def _inside(findings: list[FindingReport], offsets: Int64s) -> NDArray[np.bool_]:
    """Return which offsets lie in one of these ranges, which are sorted."""
    if not findings:
        return np.zeros(len(offsets), np.bool_)
    starts = np.array([each.start for each in findings], np.int64)
    ends = np.array([each.end for each in findings], np.int64)
    at = np.searchsorted(starts, offsets, "right") - 1
    found: NDArray[np.bool_] = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
    return found


def _note_affected(findings: list[FindingReport], files: QueueFiles, queue_offsets: Int64s, offsets: Int64s) -> None:
    if not findings:
        return
    starts = np.array([each.start for each in findings], np.int64)
    ends = np.array([each.end for each in findings], np.int64)
    at = np.searchsorted(starts, offsets, "right") - 1
    inside = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
    for number in np.unique(at[inside]).tolist():
        chosen = queue_offsets[inside & (at == number)]
        affects = findings[number].affects
        last = affects[-1] if affects else None
        if last is not None and last.topic == files.topic and last.queue_id == files.queue_id:
            last.messages += len(chosen)
            last.last_offset = int(chosen[-1])
        elif len(affects) < AFFECTED_MAX:
            affects.append(Affected(files.topic, files.queue_id, int(chosen[0]), int(chosen[-1]), len(chosen)))


def topics_of(chunk: LogChunk) -> tuple[Int64s, list[str]]:
    """Return each record's topic as a position in the list of distinct topics, and that list."""
    return topic_ids(chunk.columns.buffer, chunk.columns)

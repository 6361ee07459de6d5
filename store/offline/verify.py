"""Verifying a whole store: log, consume queues, index, checkpoint.

Lives here: ``verify``, which walks the log once and feeds the checks; the checks of the small files.

Levels: ``log`` checks only the log, whole groups by their checksum alone (disk speed); ``normal`` also compares every
consume-queue entry, and tags and index for one in 16 chunks of the log; ``full`` compares everything.
"""

from collections.abc import Callable
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import DECODE_ERRORS, CorruptRecord
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.checkpoint import CHECKPOINT_BYTES, Positions
from pocketmq.store.consumequeue.deleted_topics import decode_deleted
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX, queue_error, topic_error
from pocketmq.store.errors import StoreError
from pocketmq.store.offline.buffers import buffers_left
from pocketmq.store.offline.index_check import IndexCheck
from pocketmq.store.offline.log_walk import Finding, LogChunk
from pocketmq.store.offline.queue_check import QueueCheck, topics_of
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.report import FINDINGS_MAX, FindingReport, TopicSummary, VerifyReport
from pocketmq.store.offline.small_files import CheckpointFile, read_small

Int64s = NDArray[np.int64]
Level = Literal["log", "normal", "full"]
SAMPLE_EVERY: Final = 16
TOPICS_MAX: Final = 100_000
OTHER_TOPICS: Final = "(other topics)"
_PROBLEMS_MAX: Final = 100


class _Illegal:
    """Records that can enter no queue, by topic and queue id; at most ``_PROBLEMS_MAX`` of these are listed."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[int, int, str]] = {}  # (records, offset of the first, why)
        self._left_out = 0

    def see(self, chunk: LogChunk, ids: Int64s, names: list[str]) -> None:
        """Check the topics and queue ids of a chunk."""
        columns = chunk.columns
        bad = (columns.queue_ids < 0) | (columns.queue_ids > QUEUE_ID_MAX)
        for number, name in enumerate(names):
            if topic_error(name) is not None:
                bad |= ids == number
        for row in np.flatnonzero(bad).tolist():
            key = names[int(ids[row])], int(columns.queue_ids[row])
            known = self._found.get(key)
            if known is not None:
                self._found[key] = (known[0] + 1, *known[1:])
            elif len(self._found) < _PROBLEMS_MAX:
                self._found[key] = (1, int(columns.physical_offsets[row]), queue_error(*key) or "")
            else:
                self._left_out += 1

    def texts(self) -> list[str]:
        """Return one line for each topic and queue id."""
        lines = [
            f"{count} records of queue {queue_id} of topic {topic[:128]!a} (first at {offset}) enter no queue: {why}"
            for (topic, queue_id), (count, offset, why) in self._found.items()
        ]
        return lines + ([f"{self._left_out} more records enter no queue"] if self._left_out else [])


class _Totals:
    """Counts while the log is walked."""

    def __init__(self, report: VerifyReport) -> None:
        self.report = report
        self.topics: dict[str, TopicSummary] = {}
        self.last_ms = 0

    def add(self, chunk: LogChunk, ids: Int64s, names: list[str]) -> None:
        columns = chunk.columns
        self.report.records += len(columns)
        self.report.record_bytes += len(columns.buffer)
        times = columns.store_timestamps
        self.last_ms = int(times[-1])
        for number, name in enumerate(names):
            rows = slice(None) if len(names) == 1 else ids == number
            if name not in self.topics and len(self.topics) >= TOPICS_MAX:
                name = OTHER_TOPICS
            summary = self.topics.setdefault(name, TopicSummary(name))
            chosen = times[rows]
            first, last = int(chosen.min()), int(chosen.max())
            summary.first_ms = min(first, summary.first_ms) if summary.records else first
            summary.last_ms = max(last, summary.last_ms)
            summary.records += len(chosen)
            summary.bytes += int(columns.sizes[rows].sum())


def verify(
    reader: StoreReader,
    *,
    level: Level = "normal",
    progress: Callable[[int], None] | None = None,
    clock: Clock | None = None,
) -> VerifyReport:
    """Return the findings of a walk over the whole store. ``progress(bytes)`` gets newly walked bytes.

    Changes nothing. An unreadable file is a problem in the report, not an exception.
    """
    clock = SystemClock() if clock is None else clock
    begin_ns = clock.monotonic_ns()
    layout = reader.layout
    report = VerifyReport(
        layout.paths.root,
        written_by="PocketMQ" if layout.is_ours else "RocketMQ",
        is_open=layout.is_open,
        level=level,
        segments=len(layout.segments),
        segment_bytes=layout.segment_bytes,
        start_offset=layout.start_offset,
        end_offset=layout.start_offset,
    )
    _layout_problems(reader, report)
    if layout.batch_topics:
        report.notes.append(
            f"{len(layout.batch_topics)} topics with RocketMQ's BatchCQ: their queues are not looked at"
        )
    promises = reader.checkpoint(), reader.positions()  # before the walk: a live broker moves them on
    totals, illegal = _Totals(report), _Illegal()
    queues = None if level == "log" else QueueCheck(reader, deleted_topics(reader))
    index = None if level == "log" or not layout.has_index else IndexCheck(reader, is_sample=level != "full")
    at = layout.start_offset
    number = 0
    last: LogChunk | None = None
    for item in reader.walk(checksums_only=level == "log"):
        if progress is not None and item.end > at:
            progress(item.end - at)
        at = max(at, item.end)
        if isinstance(item, Finding):
            _note_finding(report, item)
            continue
        report.end_offset = item.end
        if not isinstance(item, LogChunk):
            report.group_verified_bytes += item.end - item.start
            continue
        if item.by_group:
            report.group_verified_bytes += item.end - item.start
        else:
            report.walked_bytes += item.end - item.start
        ids, names = topics_of(item)
        totals.add(item, ids, names)
        illegal.see(item, ids, names)
        last = item
        if queues is not None:
            is_looked_into = level == "full" or number % SAMPLE_EVERY == 0
            try:
                _check(item, ids, names, queues, index, is_looked_into)
            except StoreError as error:
                report.problems.append(f"consume queues were not checked to the end: {error.why}")
                queues = None
            last = None if is_looked_into else item
        number += 1
    if index is not None and last is not None:
        _check_index(last, index)  # the newest keys are the likeliest to be missing
    report.last_store_ms = totals.last_ms
    report.illegal = illegal.texts()
    end_offset = max(report.end_offset, _judge_end(report, layout.end_offset, promises[1]))
    report.topics = [totals.topics[name] for name in sorted(totals.topics)]
    if queues is not None:
        try:
            report.queues = queues.finish(layout.start_offset, end_offset, report.findings)
        except StoreError as error:
            report.problems.append(f"consume queues were not checked to the end: {error.why}")
        if queues.unfollowed_records:
            report.notes.append(f"{queues.unfollowed_records} records of more queues than are followed")
    if index is not None:
        report.index = index.finish(end_offset)
    elif level != "log":
        report.notes.append("there is no index directory: messages cannot be found by key")
    _check_small_files(report, layout.end_offset, totals.last_ms, *promises)
    report.ok = _is_ok(report)
    report.duration_s = (clock.monotonic_ns() - begin_ns) / 1e9
    return report


def _check(
    chunk: LogChunk,
    ids: Int64s,
    names: list[str],
    queues: QueueCheck,
    index: IndexCheck | None,
    is_looked_into: bool,
) -> None:
    group = _group(chunk) if is_looked_into else None
    queues.see(chunk, ids, names, None if group is None else group.tags_codes)
    if group is not None and index is not None:
        index.see(group)


def _check_index(chunk: LogChunk, index: IndexCheck) -> None:
    group = _group(chunk)
    if group is not None:
        index.see(group)


def _group(chunk: LogChunk) -> RecordGroup | None:
    """Return the records with tags codes and keys; None if their properties cannot be read."""
    try:
        return RecordGroup.from_log(chunk.columns.buffer)
    except CorruptRecord:
        return None


def _note_finding(report: VerifyReport, item: Finding) -> None:
    if len(report.findings) < FINDINGS_MAX:
        report.findings.append(FindingReport(item.kind, item.start, item.end, item.why, item.check))
        report.findings.sort(key=lambda each: each.start)
    else:
        report.findings_left_out += 1


def deleted_topics(reader: StoreReader) -> dict[str, int]:
    """Return where the log ended when each topic was last deleted."""
    data = read_small(reader.file_system, reader.paths.deleted_topics)
    if data is None:
        return {}
    try:
        return decode_deleted(data)
    except DECODE_ERRORS:
        return {}


def _layout_problems(reader: StoreReader, report: VerifyReport) -> None:
    layout = reader.layout
    buffers = buffers_left(reader.file_system, reader.paths)
    if buffers is not None:
        (report.problems if buffers.kind == "held" else report.notes).append(buffers.text)
    if reader.file_system.exists(reader.paths.backup_unfinished):
        report.problems.append("a backup that was not finished: messages are missing, and no broker opens it")
    report.problems += layout.strange[:_PROBLEMS_MAX]
    for segment in layout.segments[:_PROBLEMS_MAX]:
        if segment.have_bytes < segment.end_offset - segment.base_offset:
            report.problems.append(
                f"{segment.path} has {segment.have_bytes} bytes, not {segment.end_offset - segment.base_offset}: "
                "it was not copied whole"
            )
    for (topic, queue_id), files in layout.queues.items():
        for start, size in files.items():
            if size not in (0, layout.queue_file_bytes) and len(report.problems) < _PROBLEMS_MAX:
                report.problems.append(
                    f"consumequeue/{topic}/{queue_id}/{start:020d} has {size} bytes, not {layout.queue_file_bytes}"
                )
    if layout.start_offset:
        report.notes.append(f"the log begins at offset {layout.start_offset}: older files are gone or not here")
    if layout.is_open:
        report.notes.append("abort marker: a broker has this store open, or did not close it")


def promised_end(positions: Positions | None, layout_end: int) -> int:
    """Return the end of the durable log according to positions; 0 without them, or if it lies beyond the files."""
    if positions is None:
        return 0
    promised = positions.end_offset if positions.clean else positions.recover_offset
    return promised if promised <= layout_end else 0


def _judge_end(report: VerifyReport, layout_end: int, positions: Positions | None) -> int:
    """Turn a tail of once durable bytes into damage: its messages were acknowledged, and a start keeps their place
    (ADR 0006). Return the promised end.
    """
    promised = promised_end(positions, layout_end)
    if promised <= report.end_offset or positions is None or positions.segment_bytes != report.segment_bytes:
        return 0
    if any(each.kind == "damage" and each.end >= promised for each in report.findings):
        return promised
    tails = [each for each in report.findings if each.kind == "tail" and each.start < promised]
    start = min([each.start for each in tails], default=report.end_offset)
    why = f"the log was safe up to {promised}: {tails[0].why if tails else 'there are only zeros'}"
    kept = [each for each in report.findings if each not in tails]
    kept.append(FindingReport("damage", start, promised, why, "record"))
    kept += [FindingReport("tail", promised, each.end, each.why, each.check) for each in tails if each.end > promised]
    report.findings = sorted(kept, key=lambda each: each.start)
    return promised


def _check_small_files(
    report: VerifyReport, layout_end: int, last_ms: int, found: CheckpointFile | None, positions: Positions | None
) -> None:
    if found is None:
        report.notes.append("there is no checkpoint: a start verifies the whole log")
    else:
        if found.size_bytes != CHECKPOINT_BYTES:
            report.checkpoint.append(f"the checkpoint has {found.size_bytes} bytes, not {CHECKPOINT_BYTES}")
        times = {"log": found.checkpoint.physic_ms, "queues": found.checkpoint.logics_ms}
        if last_ms and report.level != "log":
            report.checkpoint += [
                f"the checkpoint says that {name} are safe up to {time}, but the last record is of {last_ms}"
                for name, time in times.items()
                if time > last_ms
            ]
        if found.confirm_offset > layout_end or found.master_flushed_offset > layout_end:
            report.checkpoint.append("the checkpoint holds offsets behind the end of the log")
    if positions is None:
        if report.written_by == "PocketMQ":
            report.notes.append("there are no positions: a start verifies more than it must")
        return
    end = report.end_offset
    if positions.segment_bytes != report.segment_bytes:
        report.checkpoint.append(
            f"positions speak of segments of {positions.segment_bytes} bytes, these have {report.segment_bytes}"
        )
    promised = positions.end_offset if positions.clean else positions.recover_offset
    if promised > layout_end and report.is_open:
        return  # a broker that has the store open has a new file since its names were read
    if promised > end and not any(each.end >= promised for each in report.findings if each.kind == "damage"):
        report.checkpoint.append(f"the log was safe up to {promised}, but ends at {end}: messages are lost")
    if positions.clean and not report.is_open and positions.end_offset < end:
        report.notes.append(
            f"PocketMQ closed the log at {positions.end_offset}, and it goes on to {end}: RocketMQ has written since"
        )


def _is_ok(report: VerifyReport) -> bool:
    queues, index = report.queues, report.index
    return not (
        report.problems
        or report.illegal
        or report.checkpoint
        or report.findings_left_out
        or any(each.kind != "tail" or not report.is_open for each in report.findings)
        or (queues is not None and (queues.problems or queues.damaged))
        or (
            index is not None
            and (index.missing or index.wrong or index.unreachable or index.beyond or index.unreadable)
        )
    )

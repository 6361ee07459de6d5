"""Repairing a store that no broker has open.

Lives here: ``plan_repair`` (from a verification, changes nothing), ``Repair`` (locks, copies, changes, verifies again).

Its steps, in an order that allows a repetition after a kill at any point:

1. lock the store, verify it, make the plan; copy everything that will change, sync the copies;
2. mark the store as unfinished: abort marker, a checkpoint and positions that promise nothing about queues and index.
   A broker started before the repair is run again then builds them from the log's first byte;
3. zero the torn tail; drop checksums beyond the end; give a half-copied last file its size;
4. remove the queues that do not fit, and build them from the log; keep entries below the log's first byte;
5. remove the index and build it from the log, if it does not fit;
6. write a checkpoint that promises no more than the log has, remove the marker;
7. verify again.

Damage is not repaired: its bytes are the only trace of the lost records. ``copy_store`` writes a store without it.
Damage at the end of the log, below the promised positions, is kept as well: if it were cut, its queue offsets would be
given to other messages. All files keep RocketMQ's format; only ``pocketmq/quarantine`` is new.
"""

import os
import posixpath
import struct
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.checkpoint import CHECKPOINT_BYTES, StorePaths, mark_open
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.log_reader import DamagedRange
from pocketmq.store.disk.file_system import FileLock, FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.disk.queue_paths import queue_directory, queue_error, queues_directory
from pocketmq.store.errors import StoreError
from pocketmq.store.offline.buffers import buffers_left
from pocketmq.store.offline.errors import RepairRefused
from pocketmq.store.offline.files import copy_file, copy_range, data_bytes, require_space
from pocketmq.store.offline.index_files import ROCKETMQ_ENTRIES, ROCKETMQ_SLOTS, geometry
from pocketmq.store.offline.log_walk import LogChunk
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.rebuild import (
    QUEUE_FILE_BYTES,
    IndexBuilder,
    QueueBuilder,
    groups_of,
    single_groups,
)
from pocketmq.store.offline.report import VerifyReport
from pocketmq.store.offline.verify import deleted_topics, promised_end, verify
from pocketmq.store.recovery.suspects import misplaced

Action = Literal["cut_tail", "extend_file", "rebuild_queues", "rebuild_index", "rewrite_checkpoint"]
_TIMES: Final = struct.Struct(">5q")
_REBUILD_ALL: Final = 1 << 62
"""More entries than any queues have: a start finds them incomplete, verifies all of the log and builds them from it."""


class RepairStep(msgspec.Struct):
    """One step. ``queues``: (topic, queue id) of queues to be rebuilt; ``ranges``: log bytes to be zeroed."""

    action: Action
    why: str
    queues: list[tuple[str, int]] = []
    ranges: list[tuple[int, int]] = []
    path: str = ""


class RepairPlan(msgspec.Struct):
    """The steps of a repair. ``stays``: faults that cannot be repaired in place."""

    directory: str
    steps: list[RepairStep] = []
    stays: list[str] = []
    copied_bytes: int = 0


class RepairResult(msgspec.Struct):
    """The result of a repair. ``after``: the verification afterwards."""

    plan: RepairPlan
    backup: str = ""
    after: VerifyReport | None = None
    queue_entries: int = 0
    index_entries: int = 0
    skipped: list[str] = []
    """Records omitted from queues, and why."""


def plan_repair(reader: StoreReader, report: VerifyReport) -> RepairPlan:
    """Return the steps that a verification's findings require. Changes nothing."""
    plan = RepairPlan(reader.paths.root)
    layout = reader.layout
    tails = [(each.start, each.end) for each in report.findings if each.kind == "tail"]
    if tails:
        count = sum(end - start for start, end in tails)
        plan.steps.append(RepairStep("cut_tail", f"{count:,} unfinished bytes behind the last record", ranges=tails))
    last = layout.segments[-1]
    for segment in layout.segments:
        if segment.have_bytes < segment.end_offset - segment.base_offset:
            if segment is last:
                plan.steps.append(
                    RepairStep("extend_file", f"the last file has {segment.have_bytes} bytes", path=segment.path)
                )
            else:
                plan.stays.append(f"{segment.path} was not copied whole: copy it again")
    for finding in report.findings:
        if finding.kind == "damage":
            lost = sum(each.messages for each in finding.affects)
            plan.stays.append(
                f"bytes {finding.start} to {finding.end} are damaged ({finding.why}), {lost} messages known there: "
                "'log export --format log' writes a store without them"
            )
        elif finding.kind == "suspect":
            plan.stays.append(f"bytes {finding.start} to {finding.end}: {finding.why}; the records stay as they are")
    plan.stays += [f"{text}; 'log export --topic' writes a store without them" for text in report.illegal]
    queues = _bad_queues(reader, report)
    if queues:
        why = f"{len(queues)} queues do not fit the log"
        if not layout.queue_file_bytes:
            why += f"; no file shows their size: assuming {QUEUE_FILE_BYTES:,} bytes (mapped_file_size_consume_queue)"
        plan.steps.append(RepairStep("rebuild_queues", why, queues=queues))
    index = report.index
    if index is not None and (index.missing or index.wrong or index.unreachable or index.beyond or index.unreadable):
        why = (
            f"{index.missing} keys missing, {index.wrong} wrong, {index.unreachable} unreachable, {index.beyond} beyond"
        )
        plan.steps.append(RepairStep("rebuild_index", "; ".join([why, *index.unreadable[:3]])))
    if report.checkpoint:
        plan.steps.append(RepairStep("rewrite_checkpoint", "; ".join(report.checkpoint)))
    plan.copied_bytes = sum(_size_of(reader, path) for path in _copied(reader, plan))
    plan.copied_bytes += sum(end - start for step in plan.steps for start, end in step.ranges)
    return plan


def _bad_queues(reader: StoreReader, report: VerifyReport) -> list[tuple[str, int]]:
    layout = reader.layout
    bad = {
        key
        for key, files in layout.queues.items()
        if any(size not in (0, layout.queue_file_bytes) for size in files.values())
    }
    if report.queues is not None:
        bad |= {(each.topic, each.queue_id) for each in report.queues.problems}
    return sorted(key for key in bad if queue_error(*key) is None)


def _queue_paths(reader: StoreReader, key: tuple[str, int]) -> list[str]:
    directory = queue_directory(reader.paths.root, *key)
    return [f"{directory}/{name}" for name in reader.file_system.list(directory)]


def _copied(reader: StoreReader, plan: RepairPlan) -> list[str]:
    """Return the files that are copied whole."""
    found: list[str] = []
    for step in plan.steps:
        for key in step.queues:
            found += _queue_paths(reader, key)
        if step.action == "rebuild_index":
            found += [path for path, _ in reader.layout.index_files]
    if plan.steps:
        paths = reader.paths
        found += [path for path in (paths.checkpoint, paths.positions) if reader.file_system.exists(path)]
    return found


def _size_of(reader: StoreReader, path: str) -> int:
    try:
        return data_bytes(reader.file_system, path)
    except (FileNotFoundError, StoreError):
        return 0


class Repair:
    """One repair of one directory; ``run`` once."""

    def __init__(
        self,
        directory: str,
        *,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        backup: str = "",
        index_numbers: tuple[int, int] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """``backup``: where copies go, else a directory of its own under ``pocketmq/quarantine``. ``progress(what,
        bytes, total)``: bytes of the log that were walked since the last call.
        """
        self._directory = directory
        self._files: FileSystem = OsFileSystem() if file_system is None else file_system
        self._clock: Clock = SystemClock() if clock is None else clock
        self._backup = backup
        self._index_numbers = index_numbers
        self._progress = progress

    def _open(self) -> StoreReader:
        reader = StoreReader.open(self._directory, file_system=self._files, index_numbers=self._index_numbers)
        reader.layout.is_open = False  # this process has the lock: half-written records will not be finished
        return reader

    def _verify(self, reader: StoreReader, what: str) -> VerifyReport:
        total = reader.layout.log_bytes
        tell = self._progress
        return verify(reader, clock=self._clock, progress=None if tell is None else lambda n: tell(what, n, total))

    def run(self) -> RepairResult:
        """Lock, plan, copy, change, verify.

        Raises ``StoreInUse`` when a broker has the store open, ``StoreFull`` and ``RepairRefused`` before any change,
        and disk errors.
        """
        reader = self._open()
        reader.close()
        lock = self._files.lock_file(reader.paths.lock, f"lock\nrepair, pid {os.getpid()}\n")
        try:
            return self._run(lock)
        finally:
            lock.release()

    def _run(self, lock: FileLock) -> RepairResult:
        reader = self._open()
        buffers = buffers_left(self._files, reader.paths)
        if buffers is not None and buffers.kind == "held":
            reader.close()
            raise RepairRefused("repair refused", why=buffers.text, hint="then repair it, if that is still necessary")
        try:
            report = self._verify(reader, "verify")
            plan = plan_repair(reader, report)
            result = RepairResult(plan)
            if plan.steps:
                result.backup = self._copy(reader, plan)
                self._change(reader, report, plan, result)
        finally:
            reader.close()
        if plan.steps:
            reader = self._open()
            try:
                result.after = self._verify(reader, "verify again")
            finally:
                reader.close()
        else:
            result.after = report
        return result

    # ---- copies

    def _copy(self, reader: StoreReader, plan: RepairPlan) -> str:
        files, root = self._files, reader.paths.root
        stamp = self._clock.now_ms()
        backup = os.path.abspath(self._backup) if self._backup else f"{reader.paths.quarantine}/repair-{stamp}"
        if files.list(backup):
            raise RepairRefused(
                "repair not begun", why=f"{backup} is not empty", hint="name a directory that does not exist yet"
            )
        parent = backup
        while not files.exists(parent):
            parent = posixpath.dirname(parent) or "/"
        require_space(files, parent, plan.copied_bytes, "repair not begun")
        files.make_dirs(backup)
        files.replace(f"{backup}/plan.json", msgspec.json.format(msgspec.json.encode(plan)))
        for path in _copied(reader, plan):
            copy_file(files, path, f"{backup}/{posixpath.relpath(path, root)}")
        for step in plan.steps:
            for start, end in step.ranges:
                self._copy_log(reader, start, end, f"{backup}/commitlog/{start:020d}-{end:020d}.bin")
        files.sync_all(backup)
        return backup

    def _copy_log(self, reader: StoreReader, start: int, end: int, path: str) -> None:
        segment = reader.layout.find(start)
        assert segment is not None
        self._files.make_dirs(posixpath.dirname(path))
        source = self._files.open(segment.path, writable=False)
        target = self._files.open(path, create=True)
        try:
            copy_range(source, target, start - segment.base_offset, end - segment.base_offset, 0)
            target.sync()
        finally:
            target.close()
            source.close()

    # ---- changes

    def _change(self, reader: StoreReader, report: VerifyReport, plan: RepairPlan, result: RepairResult) -> None:
        files, paths = self._files, reader.paths
        was_marked = files.exists(paths.abort)
        checkpoint = self._begin(reader, report)
        queues: list[tuple[str, int]] = []
        with_index = False
        for step in plan.steps:
            if step.action == "cut_tail":
                self._cut(reader, step)
            elif step.action == "extend_file":
                file = files.open(step.path)
                try:
                    file.reserve(reader.layout.segment_bytes)
                    file.sync()
                finally:
                    file.close()
            elif step.action == "rebuild_queues":
                queues = step.queues
            elif step.action == "rebuild_index":
                with_index = True
        if queues or with_index:
            refused = _misplaced(reader, report) if queues else set()
            self._rebuild(reader, queues, with_index, refused, result)
        files.sync_all(paths.root)
        if checkpoint:
            self._write_checkpoint(paths, _lowered(checkpoint, report))
        if not was_marked:
            files.remove(paths.abort)
            files.sync_dir(paths.root)

    def _begin(self, reader: StoreReader, report: VerifyReport) -> bytes:
        """Make every start of a broker rebuild queues and index until the repair has ended; return the checkpoint,
        empty if there is none.
        """
        files, paths, layout = self._files, reader.paths, reader.layout
        mark_open(files, paths, durable=True)
        checkpoint = b""
        if files.exists(paths.checkpoint):
            file = files.open(paths.checkpoint, writable=False)
            try:
                checkpoint = file.read(0, CHECKPOINT_BYTES)
            finally:
                file.close()
            self._write_checkpoint(paths, bytes(CHECKPOINT_BYTES))
        positions = reader.positions()
        promised = promised_end(positions, layout.end_offset)
        if positions is not None and promised > report.end_offset and positions.segment_bytes == layout.segment_bytes:
            start = layout.start_offset
            unfinished = msgspec.structs.replace(
                positions,
                clean=False,
                end_offset=promised,
                recover_offset=promised,
                indexed_offset=start,
                last_group_offset=start,
                queue_entries=_REBUILD_ALL,
            )
            files.replace(paths.positions, unfinished.encode())
        elif files.exists(paths.positions):
            files.remove(paths.positions)
            files.sync_dir(paths.own)
        return checkpoint

    def _cut(self, reader: StoreReader, step: RepairStep) -> None:
        layout = reader.layout
        if self._files.exists(layout.paths.checksums):
            ChecksumLog(self._files, layout.paths.checksums, layout.segment_bytes).cut(step.ranges[0][0])
        for start, end in step.ranges:
            segment = layout.find(start)
            assert segment is not None
            file = self._files.open(segment.path)
            try:
                file.zero(start - segment.base_offset, end - start)
                file.sync()
            finally:
                file.close()

    def _rebuild(
        self,
        reader: StoreReader,
        keys: list[tuple[str, int]],
        with_index: bool,
        refused: set[int],
        result: RepairResult,
    ) -> None:
        """``refused``: offsets of records that enter no queue."""
        files, paths, layout = self._files, reader.paths, reader.layout
        queues = None
        if keys:
            queues = QueueBuilder(
                files,
                paths.root,
                self._clock,
                queue_file_bytes=layout.queue_file_bytes,
                only=set(keys),
                log_start=layout.start_offset,
            )
            # Entries below the log are read from the copies: a kill leaves them there.
            for topic, queue_id in keys:
                directory = queue_directory(paths.root, topic, queue_id)
                before = reader.queue(topic, queue_id)
                reader.queue_cache.close()
                kept = None if before is None else before.moved(queue_directory(result.backup, topic, queue_id))
                files.remove_tree(directory, below=queues_directory(paths.root))
                if kept is not None:
                    queues.keep_expired(kept, layout.start_offset)
        index = None
        if with_index:
            numbers = next(
                (found for _, size in layout.index_files if (found := geometry(size, self._index_numbers))), None
            )
            for path, _ in layout.index_files:
                files.remove(path)
            slots, entries_max = self._index_numbers or numbers or (ROCKETMQ_SLOTS, ROCKETMQ_ENTRIES)
            index = IndexBuilder(files, paths.root, slots, entries_max)
        for item in reader.walk():
            if isinstance(item, LogChunk):
                if self._progress is not None:
                    self._progress("rebuild", item.end - item.start, layout.log_bytes)
                groups = list(groups_of(item))
                if index is not None:
                    for group in groups:
                        index.add(group)
                if queues is not None:
                    if item.is_suspect and refused:
                        groups = [each for each in single_groups(item) if _start_of(each) not in refused]
                    queues.add(item, groups)
        if queues is not None:
            queues.close()
            result.queue_entries = queues.entries
            result.skipped = sorted(queues.skipped)
        if index is not None:
            index.close()
            result.index_entries = index.entries

    def _write_checkpoint(self, paths: StorePaths, data: bytes) -> None:
        file = self._files.open(paths.checkpoint)
        try:
            file.resize(CHECKPOINT_BYTES)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()


def _misplaced(reader: StoreReader, report: VerifyReport) -> set[int]:
    """Return the offsets of suspect records that would take the place of others in a queue; a recovery agrees."""
    suspects = [DamagedRange(each.start, each.end, each.why) for each in report.findings if each.kind == "suspect"]
    if not suspects:
        return set()
    deleted = deleted_topics(reader)
    has_holes = reader.layout.start_offset > 0 or any(each.kind == "damage" for each in report.findings)
    groups = (group for chunk in reader.chunks() for group in groups_of(chunk))
    found = misplaced(groups, suspects, {}, lambda topic: deleted.get(topic, 0), has_holes)
    return {each.start for each in found}


def _start_of(group: RecordGroup) -> int:
    assert group.physical_offsets is not None
    return int(group.physical_offsets[0])


def _lowered(checkpoint: bytes, report: VerifyReport) -> bytes:
    """Return the checkpoint, lowered to the records that exist."""
    data = checkpoint.ljust(CHECKPOINT_BYTES, b"\0")
    limits = (report.last_store_ms,) * 3 + (report.end_offset,) * 2
    values = [max(0, min(value, limit)) for value, limit in zip(_TIMES.unpack_from(data), limits, strict=True)]
    return _TIMES.pack(*values) + data[_TIMES.size :]

"""Recovery of the log at a start.

Lives here: where a recovery begins, which bytes it cuts, keeps and reports, ``RecoveryReport``.

Where it begins (RocketMQ's rules where our own positions are missing):

- clean stop with positions: only the last group is verified, so the time does not depend on the size of the log;
- clean stop, but the last group has changed since: its segment is verified; the log still continues after the group,
  because promised messages keep their offsets;
- clean stop without positions (a store RocketMQ closed): verification from the third-last segment on;
- queues with fewer entries than in the positions: as below, and all queues are rebuilt from the log;
- no clean stop: from the last checkpoint (without any entry in consume queues these are built from the log's first
  byte); without one from the newest segment whose first record is older than
  RocketMQ's checkpoint, else from the first segment.

Its changes, each safe to repeat after a kill: bytes to be cut are copied to ``pocketmq/quarantine`` and synced; their
checksums are removed; segments beyond the end are removed, last one first; bytes beyond the end in its own segment are
overwritten with zeros and synced. Else old, well-placed records would reappear after the next crash. The cut bytes are
the torn tail (``torn_tail``): bytes not followed by a good record, and the rest of an unfinished group. Damage in the
middle stays as it is, is copied, listed in ``pocketmq/damage.json`` and skipped by every walk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import DECODE_ERRORS, CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.store.checkpoint import Positions, StorePaths, mark_open, read_checkpoint, read_positions
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.log_reader import DamagedRange, LogReader
from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import StoreError
from pocketmq.store.recovery.log_scan import LogScan, ScanResult
from pocketmq.store.recovery.quarantine import Quarantine
from pocketmq.store.recovery.surviving_buffers import BuffersReport
from pocketmq.store.recovery.suspects import Queue, misplaced
from pocketmq.store.recovery.torn_tail import end_before_torn_tail

_COPY_BYTES: Final = 1 << 20
_SEGMENTS_CHECKED: Final = 3
"""A clean stop without positions: verify this many segments (RocketMQ CommitLog.recoverNormally)."""


@dataclass(slots=True)
class RecoveryReport:
    """Findings and actions of a start. Offsets are physical; ``kind`` is ``new``, ``clean`` or ``unclean``."""

    kind: str
    reason: str = ""
    start_offset: int = 0
    end_offset: int = 0
    end_reason: str = ""
    scanned_bytes: int = 0
    group_verified_bytes: int = 0
    walked_records: int = 0
    cut_bytes: int = 0
    """From the end to the last non-zero byte, and the same of each removed segment."""
    removed_segments: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    suspect: list[DamagedRange] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    dispatched_from: int = 0
    """Consume queues were rebuilt from here on."""
    truncate_queues: bool = False
    """Their entries from there on were dropped first."""
    indexed_from: int | None = None
    index_clean: bool = False
    last_group_offset: int = 0
    last_store_timestamp: int = 0
    buffers: BuffersReport = field(default_factory=BuffersReport)
    """What the write buffers of the last run held."""
    duration_ms: float = 0.0


@dataclass(slots=True, frozen=True)
class _Start:
    """Where to verify from, and what can be trusted. ``verified_end``: the log ends there, nothing is left to verify.
    ``promised_end``: it ends there or later, whatever is found: everything below was durable.
    """

    kind: str
    reason: str
    scan_from: int
    dispatch_from: int
    index_from: int | None = None
    verified_end: int | None = None
    last_store_timestamp: int = 0
    promised_end: int = 0


class Recovery:
    """One recovery of a log whose files are loaded and locked. Consume queues are not touched here."""

    def __init__(
        self,
        environment: StoreEnvironment,
        segments: SegmentQueue,
        checksums: ChecksumLog | None,
        *,
        progress: Callable[[int, int], None] | None = None,
        cut_at_damage: bool = False,
    ) -> None:
        """``progress(offset, end)`` is called now and then while the log is verified. ``cut_at_damage``: see
        ``opening.OpenPlan``.
        """
        self._cut_at_damage = cut_at_damage
        self._damage_unread = False
        self._config = config = environment.config
        self._file_system = file_system = environment.file_system
        self._paths = paths = environment.paths
        self._log = log = environment.log
        self._segments = segments
        self._checksums = checksums
        report = None if progress is None else partial(_report_progress, progress, segments)
        self._scan = LogScan(segments, checksums, check_crc=config.check_crc_on_recover, progress=report)
        self._quarantine = Quarantine(config, file_system, paths, segments, log)
        self._ends_below: Callable[[int], dict[Queue, int]] | None = None
        self._deleted_to: Callable[[str], int] | None = None

    def run(
        self,
        queues_end: Callable[[], int],
        queue_entries: int | None = None,
        last_deletion: int = -1,
        ends_below: Callable[[int], dict[Queue, int]] | None = None,
        deleted_to: Callable[[str], int] | None = None,
    ) -> RecoveryReport:
        """Find the end of the log and make it the end of its files. ``queues_end``: the end of the last record in a
        consume queue; ``queue_entries``: the number of their entries, None if unknown; ``last_deletion``: the end of
        the log at the last deletion of a topic; ``ends_below(offset)``: for each queue the offset after its last entry
        below a physical offset; ``deleted_to(topic)``: the end of the log at the topic's last deletion, 0 if never.

        Raises ``StoreError`` when the disk does; run again, it continues.
        """
        self._damage_unread = damage_is_unread(self._file_system, self._paths, self._log)
        positions = read_positions(self._file_system, self._paths)
        clean = positions is not None and positions.clean and not self._file_system.exists(self._paths.abort)
        if positions is not None and not clean and last_deletion >= positions.recover_offset:
            queue_entries = None  # the deletion came after the count
        self._ends_below, self._deleted_to = ends_below, deleted_to
        report = self._run(positions, queues_end, queue_entries)
        if positions is not None:
            promised = positions.end_offset if positions.clean else positions.recover_offset
            if report.end_offset < promised:
                self._log.error("log_end_lost", durable_offset=promised, end_offset=report.end_offset)
        return report

    def _run(
        self, positions: Positions | None, queues_end: Callable[[], int], queue_entries: int | None
    ) -> RecoveryReport:
        if len(self._segments) == 0:
            if queues_end() == 0 and (positions is None or positions.end_offset == 0):
                return RecoveryReport("new", "there is no segment", indexed_from=0)
            return RecoveryReport(
                "unclean", "the log is gone, its consume queues go too", indexed_from=0, truncate_queues=True
            )
        start = self._start(positions, queues_end, queue_entries)
        if self._damage_unread:  # walks would stop at known damage, or skip good bytes: find all damage again
            start = replace(
                start,
                kind="unclean",
                reason="the list of damage cannot be read",
                scan_from=self._segments.first_offset,
                verified_end=None,
                promised_end=max(start.promised_end, start.verified_end or 0),
            )
        if start.verified_end is not None:
            report = RecoveryReport(
                start.kind,
                start.reason,
                start_offset=start.scan_from,
                end_offset=start.verified_end,
                end_reason="the clean stop",
                scanned_bytes=start.verified_end - start.scan_from,
                damaged=read_damage(self._file_system, self._paths),
                dispatched_from=start.verified_end,
                indexed_from=start.index_from,
                index_clean=True,
                last_group_offset=start.scan_from,
                last_store_timestamp=start.last_store_timestamp,
            )
            if self._segments.all[-1].base_offset > start.verified_end:
                # A prepared segment whose removal was not durable. Left there, the next one would replace its file.
                self._cut(start.verified_end, report)
            return report
        result = self._scan.run(start.scan_from)
        self._decide_end(start, result, queues_end)
        return self._finish(start, result)

    def cut_to(self, end: int) -> RecoveryReport:
        """Cut everything beyond ``end``, a boundary between records, off the log, after copying it; before ``run``.

        After a kill run it again: until the cut is complete the start counts as unclean, and promises nothing beyond
        ``end``. Raises ``StoreError``.
        """
        files, paths = self._file_system, self._paths
        mark_open(files, paths, durable=True)
        positions = read_positions(files, paths)
        if positions is not None and (positions.clean or positions.end_offset > end):
            if positions.recover_offset > end:
                positions.recover_offset, positions.queue_entries, positions.last_group_offset = end, 0, end
            positions.clean = False
            positions.end_offset = max(positions.recover_offset, min(positions.end_offset, end))
            positions.indexed_offset = min(positions.indexed_offset, end)
            files.replace(paths.positions, positions.encode())
        report = RecoveryReport("unclean", "cut", end_offset=end, end_reason="what a master has in common with it")
        self._remember_damage([], end)
        self._cut(end, report)
        self._report(report)
        return report

    # ---- where to begin

    def _start(self, positions: Positions | None, queues_end: Callable[[], int], queue_entries: int | None) -> _Start:
        segments = self._segments
        first, end = segments.first_offset, segments.end_offset
        is_clean = not self._file_system.exists(self._paths.abort)
        if positions is not None and (
            positions.segment_bytes != segments.segment_bytes
            or not first <= positions.recover_offset <= positions.end_offset <= end
        ):
            positions = None
        if positions is not None:
            recover_offset, index_from = positions.recover_offset, positions.indexed_offset
            stored_ms = positions.last_store_timestamp
            if queue_entries is not None and queue_entries < positions.queue_entries:
                self._log.error("consume_queues_incomplete", entries=queue_entries, expected=positions.queue_entries)
                base = max(first, min(recover_offset, positions.last_group_offset))
                why = "consume queues are incomplete"
                return _Start("unclean", why, base, first, index_from, None, stored_ms, recover_offset)
            if not (is_clean and positions.clean):
                at = recover_offset
                return _Start("unclean", "no clean stop", at, at, index_from, None, stored_ms, at)
            stop, group = positions.end_offset, positions.last_group_offset
            if not (first <= group <= stop and self._scan.verify_range(group, stop)):
                base = max(first, min(recover_offset, stop - stop % segments.segment_bytes))
                return _Start(
                    "unclean", "the last group is damaged", base, base, index_from, None, stored_ms, recover_offset
                )
            if self._scan.is_record(stop):
                why = "the log goes on behind its clean stop"
                return _Start("unclean", why, stop, stop, index_from, None, stored_ms, stop)
            self._make_durable(recover_offset, stop)  # nothing to do unless the stop did not sync (``sync_on_close``)
            return _Start("clean", "clean stop", group, stop, index_from, stop, stored_ms)
        if is_clean:
            checked = segments.all[-min(_SEGMENTS_CHECKED, len(segments)) :]
            return _Start("clean", "clean stop without positions", checked[0].base_offset, max(queues_end(), first))
        base = self._before_checkpoint()
        if queues_end() == 0:  # removed in order to be rebuilt: the checkpoint does not know that
            why = "no clean stop, no positions, no consume queues"
            return _Start("unclean", why, base, first, base)
        return _Start("unclean", "no clean stop and no positions", base, base, base)

    def _before_checkpoint(self) -> int:
        """Return the base of the newest segment whose first record RocketMQ's checkpoint covers, else of the first."""
        checkpoint = read_checkpoint(self._file_system, self._paths)
        safe_ms = checkpoint.safe_ms(self._config.message_index_enable and self._config.message_index_safe)
        for segment in reversed(self._segments.all):
            if self._scan.is_record(segment.base_offset):
                times = self._scan.store_times(segment.base_offset, segment.base_offset + 1, 1)
                if 0 < max(times, default=0) <= safe_ms:
                    return segment.base_offset
        return self._segments.first_offset

    # ---- decisions

    def _decide_end(self, start: _Start, result: ScanResult, queues_end: Callable[[], int]) -> None:
        """Drop a torn tail, add groups that are damaged although each record passes its own checks."""

        def finished_end(offset: int) -> int:
            written = 0 if self._checksums is None else self._checksums.finished_end(offset)
            return max(start.promised_end, written, queues_end())

        known = read_damage(self._file_system, self._paths)
        end_before_torn_tail(self._scan, self._segments, result, known, finished_end, self._config.group_bytes_max)
        if self._cut_at_damage:
            _end_at_damage(result, known, start.promised_end)
        if result.end_offset < start.promised_end:
            result.damaged.append(DamagedRange(result.end_offset, start.promised_end, result.why))
            result.end_offset = result.last_group_offset = start.promised_end
            result.why = "the end that was promised"
        if result.suspect and self._ends_below is not None and self._deleted_to is not None:
            reader = LogReader(
                self._read_into, self._segments.segment_bytes, self._config.record_bytes_max, [*known, *result.damaged]
            )
            begin = min(start.dispatch_from, result.suspect[0].start)
            try:
                wrong = misplaced(
                    reader.groups(begin, result.end_offset),
                    result.suspect,
                    self._ends_below(begin),
                    self._deleted_to,
                    bool(known or result.damaged) or begin == self._segments.first_offset > 0,
                )
            except CorruptRecord as error:
                self._log.error("suspects_not_compared", error=str(error))
                return
            result.damaged = sorted([*result.damaged, *wrong], key=lambda part: part.start)

    def _read_into(self, offset: int, out: NDArray[np.uint8]) -> None:
        segment = self._segments.find(offset)
        assert segment is not None
        segment.read_into(offset - segment.base_offset, out)

    # ---- changes

    def _finish(self, start: _Start, result: ScanResult) -> RecoveryReport:
        end = result.end_offset
        report = RecoveryReport(
            kind=start.kind,
            reason=start.reason,
            start_offset=result.start_offset,
            end_offset=end,
            end_reason=result.why,
            scanned_bytes=result.scanned_bytes,
            group_verified_bytes=result.group_verified_bytes,
            walked_records=result.walked_records,
            suspect=result.suspect,
            dispatched_from=min(start.dispatch_from, end),
            truncate_queues=start.kind == "unclean" or start.dispatch_from > end,
            indexed_from=None if start.index_from is None else min(start.index_from, end),
            last_group_offset=min(result.last_group_offset, end),
        )
        for part in result.damaged:
            report.quarantined += self._quarantine.keep(part.start, part.end)
        report.damaged = self._remember_damage(result.damaged, end)
        self._cut(end, report)
        if start.kind == "unclean":
            self._make_durable(result.start_offset, end)
            self._make_end_durable(end)
        group = report.last_group_offset
        is_suspect = any(part.start <= group < part.end for part in report.suspect)
        scanned_ms = 0 if is_suspect else self._last_store_timestamp(group, end)
        report.last_store_timestamp = max(scanned_ms, start.last_store_timestamp)
        self._report(report)
        return report

    def _cut(self, end: int, report: RecoveryReport) -> None:
        """Remove everything beyond ``end``."""
        segments = self._segments
        last = segments.find(end)
        extents = [] if last is None else [(end, stop) for _, stop in self._nonzero(last, end - last.base_offset)]
        later = [segment for segment in segments.all if segment.base_offset > end]
        for segment in later:
            extents += self._nonzero(segment, 0)
        for start, stop in extents:
            report.cut_bytes += stop - start
            report.quarantined += self._quarantine.keep(start, stop)
        if not later and not extents:
            return
        if self._checksums is not None:
            self._checksums.cut(end)
        for _ in later:
            segments.remove_last()
            report.removed_segments += 1
            self._file_system.sync_dir(segments.directory)  # one by one: names in any order could leave a gap
        if last is not None:
            stops = [stop for start, stop in extents if last.base_offset <= start < last.end_offset]
            if stops:
                last.zero(end - last.base_offset, max(stops) - end)
                last.sync()

    def _nonzero(self, segment: Segment, position: int) -> list[tuple[int, int]]:
        """Return [(first, end)] of the stretch from ``position`` on that is not all zero; empty if it is."""
        first = last = -1
        data = np.empty(_COPY_BYTES, np.uint8)
        for start, end in self._scan.data_ranges(segment):
            for at in range(max(start, position), end, _COPY_BYTES):
                view = data[: min(_COPY_BYTES, end - at)]
                segment.read_into(at, view)
                if view.any():
                    found = np.flatnonzero(view)
                    first = at + int(found[0]) if first < 0 else first
                    last = at + int(found[-1]) + 1
        return [] if first < 0 else [(segment.base_offset + first, segment.base_offset + last)]

    def _remember_damage(self, new: list[DamagedRange], end: int) -> list[DamagedRange]:
        """Return all known damage below ``end``; write the list if it has changed."""
        known = read_damage(self._file_system, self._paths)
        first = self._segments.first_offset
        merged = {(part.start, part.end): part for part in [*known, *new] if first <= part.start and part.end <= end}
        parts = [merged[key] for key in sorted(merged)]
        if parts != known or self._damage_unread:
            self._file_system.make_dirs(self._paths.own)
            write_damage(self._file_system, self._paths, parts)
            self._damage_unread = False
        return parts

    def _make_durable(self, start: int, end: int) -> None:
        """Sync bytes that a killed process left in the page cache: from now on they count as flushed."""
        for segment in self._segments.between(start, end):
            segment.sync()
        if end > start:
            self._file_system.sync_dir(self._segments.directory)

    def _make_end_durable(self, end: int) -> None:
        """Sync bytes beyond ``end`` and the names: an earlier recovery may have been killed between its zeros, or the
        removal of a segment, and their sync. The removed bytes are invisible now, but would reappear with the next
        power cut, among new appends.
        """
        last = self._segments.find(end)
        if last is not None:
            last.sync()
        self._file_system.sync_dir(self._segments.directory)

    def _last_store_timestamp(self, group: int, end: int) -> int:
        """Return the newest store time in the last group, so that store times never step back."""
        return max(self._scan.store_times(group, end, end), default=0)

    def _report(self, report: RecoveryReport) -> None:
        for part in report.damaged:
            self._log.error("log_damaged", from_offset=part.start, to_offset=part.end, why=part.why)
        for part in report.suspect:
            self._log.error("log_group_checksum_differs", from_offset=part.start, to_offset=part.end)
        if report.cut_bytes:
            self._log.warning(
                "log_tail_cut",
                end_offset=report.end_offset,
                cut_bytes=report.cut_bytes,
                removed_segments=report.removed_segments,
                why=report.end_reason,
                quarantined=report.quarantined,
            )


def _end_at_damage(result: ScanResult, known: list[DamagedRange], promised_end: int) -> None:
    """End the log before the first damage that was neither kept before nor known to be durable."""
    for number, part in enumerate(result.damaged):
        if part.start >= promised_end and not any(old.start < part.end and part.start < old.end for old in known):
            result.why = f"damage that another node can repair: {part.why}"
            result.end_offset = part.start
            result.last_group_offset = result.groups_before_damage[number]
            result.suspect = [suspect for suspect in result.suspect if suspect.end <= part.start]
            del result.damaged[number:], result.groups_before_damage[number:]
            return


def _report_progress(progress: Callable[[int, int], None], segments: SegmentQueue, at: int) -> None:
    progress(at, segments.end_offset)


def read_damage(file_system: FileSystem, paths: StorePaths) -> list[DamagedRange]:
    """Return the damage that earlier recoveries found."""
    try:
        return _decode_damage(file_system.read_all(paths.damage))
    except (StoreError, *DECODE_ERRORS):
        return []


def write_damage(file_system: FileSystem, paths: StorePaths, damaged: list[DamagedRange]) -> None:
    """Replace the list of damage, with a checksum (``common.sealed_json``). Raises ``StoreError``."""
    file_system.replace(paths.damage, seal(msgspec.json.encode(_DamageFile(damaged))))


def damage_is_unread(file_system: FileSystem, paths: StorePaths, log: EventLog) -> bool:
    """Return whether there is an unreadable list of damage; if so, log it."""
    try:
        _decode_damage(file_system.read_all(paths.damage))
    except FileNotFoundError:
        return False
    except (StoreError, *DECODE_ERRORS) as error:
        log.error(
            "config_file_damaged",
            path=paths.damage,
            error=str(error),
            taken="the findings of a verification of the whole log",
            what_to_do="nothing; the list is written again",
        )
        return True
    return False


class _DamageFile(msgspec.Struct):
    damaged: list[DamagedRange]


def _decode_damage(data: bytes) -> list[DamagedRange]:
    content = unseal(data)
    if content.startswith(b"["):  # from an older version
        damaged = msgspec.json.decode(content, type=list[DamagedRange])
    else:
        damaged = msgspec.json.decode(content, type=_DamageFile).damaged
    if not all(0 <= part.start < part.end for part in damaged):
        raise msgspec.ValidationError("a range that ends before it starts")
    return damaged

"""Starting on what the last run left.

Lives here: where a recovery begins, what is cut, what is kept and reported, ``RecoveryReport``.
Not here: the verification (``log_scan``), consume queues and index (``message_store`` has them rebuilt from the log),
the files between two runs (``checkpoint``).

Where it begins (RocketMQ's rules where our own positions are missing):

- clean stop with positions: the last group is verified, nothing else; not depending on the size of the log;
- clean stop without positions (a store RocketMQ closed): verification from the third-last segment on;
- queues with fewer entries than positions say: as below, and all queues are built again from the log;
- no clean stop: from the last checkpoint; without one from the newest segment whose first record is older than
  RocketMQ's checkpoint, else from the first segment.

What it changes, each step safe to repeat after a kill: copies of what will go are put under ``pocketmq/quarantine`` and
synced; checksums of it are removed; segments behind the end are removed, last one first; what is behind the end in its
own segment is overwritten with zeros and synced. Else old, well-placed records would come back after the next crash.
Only bytes without a good record behind them go. Damage in the middle stays as it is, is copied, listed in
``pocketmq/damage.json`` and skipped by every walk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import numpy as np

from pocketmq.common.events import EventLog
from pocketmq.common.record import BORN_HOST_V6_FLAG, HOST_V6_EXTRA, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from pocketmq.store.checkpoint import Positions, StorePaths, read_checkpoint, read_positions
from pocketmq.store.checksums import ChecksumLog
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import StoreError
from pocketmq.store.file_system import FileSystem
from pocketmq.store.log_reader import DamagedRange, size_and_magic
from pocketmq.store.log_scan import LogScan, ScanResult
from pocketmq.store.segment import Segment
from pocketmq.store.segment_queue import SegmentQueue

_COPY_BYTES: Final = 1 << 20
_SEGMENTS_CHECKED: Final = 3
"""A clean stop without positions: verify this many segments (RocketMQ CommitLog.recoverNormally)."""


@dataclass(slots=True)
class RecoveryReport:
    """What a start found and did. Offsets are physical; ``kind`` is ``new``, ``clean`` or ``unclean``."""

    kind: str
    reason: str = ""
    start_offset: int = 0
    end_offset: int = 0
    end_reason: str = ""
    scanned_bytes: int = 0
    group_verified_bytes: int = 0
    walked_records: int = 0
    cut_bytes: int = 0
    """From the end to the last byte that was not zero, and the same of each segment removed."""
    removed_segments: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    suspect: list[DamagedRange] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    dispatched_from: int = 0
    """Consume queues were rebuilt from here on."""
    truncate_queues: bool = False
    """Their entries from there on were dropped before."""
    indexed_from: int | None = None
    index_clean: bool = False
    last_group_offset: int = 0
    last_store_timestamp: int = 0
    duration_ms: float = 0.0


@dataclass(slots=True, frozen=True)
class _Start:
    """Where to verify from, what can be believed. ``verified_end``: the log ends there, nothing is left to verify."""

    kind: str
    reason: str
    scan_from: int
    dispatch_from: int
    index_from: int | None = None
    verified_end: int | None = None
    last_store_timestamp: int = 0


class Recovery:
    """One recovery of a log whose files are loaded and locked. Consume queues are not touched here."""

    def __init__(
        self,
        config: StoreConfig,
        file_system: FileSystem,
        paths: StorePaths,
        segments: SegmentQueue,
        checksums: ChecksumLog | None,
        log: EventLog,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """``progress(offset, end)`` is called now and then while the log is verified."""
        self._config = config
        self._file_system = file_system
        self._paths = paths
        self._segments = segments
        self._checksums = checksums
        self._log = log
        tell = None if progress is None else partial(_tell, progress, segments)
        self._scan = LogScan(segments, checksums, check_crc=config.check_crc_on_recover, progress=tell)

    def run(
        self, queues_end: Callable[[], int], queue_entries: int | None = None, last_deletion: int = -1
    ) -> RecoveryReport:
        """Find the end of the log and make it the end of its files. ``queues_end``: what the consume queues reach,
        ``queue_entries``: how many entries they have, None if nobody counted; ``last_deletion``: where the log ended
        when a topic was last deleted.

        Raises ``StoreError`` when the disk does; run again it goes on.
        """
        positions = read_positions(self._file_system, self._paths)
        clean = positions is not None and positions.clean and not self._file_system.exists(self._paths.abort)
        if positions is not None and not clean and last_deletion >= positions.recover_offset:
            queue_entries = None  # the deletion came behind the count
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
        if start.verified_end is not None:
            return RecoveryReport(
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
        return self._finish(start, self._scan.run(start.scan_from))

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
                return _Start("unclean", "consume queues are incomplete", base, first, index_from, None, stored_ms)
            if not (is_clean and positions.clean):
                return _Start("unclean", "no clean stop", recover_offset, recover_offset, index_from, None, stored_ms)
            stop, group = positions.end_offset, positions.last_group_offset
            if not (first <= group <= stop and self._scan.verify_range(group, stop)):
                base = max(first, min(recover_offset, stop - stop % segments.segment_bytes))
                return _Start("unclean", "the last group is damaged", base, base, index_from, None, stored_ms)
            if self._scan.is_record(stop):
                why = "the log goes on behind its clean stop"
                return _Start("unclean", why, stop, stop, index_from, None, stored_ms)
            self._make_durable(recover_offset, stop)  # nothing to do unless the stop was told not to sync
            return _Start("clean", "clean stop", group, stop, index_from, stop, stored_ms)
        if is_clean:
            checked = segments.all[-min(_SEGMENTS_CHECKED, len(segments)) :]
            return _Start("clean", "clean stop without positions", checked[0].base_offset, max(queues_end(), first))
        base = self._before_checkpoint()
        return _Start("unclean", "no clean stop and no positions", base, base)

    def _before_checkpoint(self) -> int:
        """Return the base of the newest segment whose first record RocketMQ's checkpoint covers, else of the first."""
        checkpoint = read_checkpoint(self._file_system, self._paths)
        safe_ms = checkpoint.safe_ms(self._config.message_index_enable and self._config.message_index_safe)
        for segment in reversed(self._segments.all):
            if self._scan.is_record(segment.base_offset):
                stored_ms = _store_time(segment, 0)
                if 0 < stored_ms <= safe_ms:
                    return segment.base_offset
        return self._segments.first_offset

    # ---- what is done

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
            self._quarantine(part.start, part.end, report)
        report.damaged = self._remember_damage(result.damaged, end)
        self._cut(end, report)
        if start.kind == "unclean":
            self._make_durable(result.start_offset, end)
        scanned_ms = self._last_store_timestamp(report.last_group_offset, end)
        report.last_store_timestamp = max(scanned_ms, start.last_store_timestamp)
        self._report(report)
        return report

    def _cut(self, end: int, report: RecoveryReport) -> None:
        """Remove everything behind ``end``."""
        segments = self._segments
        last = segments.find(end)
        extents = [] if last is None else [(end, stop) for _, stop in self._nonzero(last, end - last.base_offset)]
        later = [segment for segment in segments.all if segment.base_offset > end]
        for segment in later:
            extents += self._nonzero(segment, 0)
        for start, stop in extents:
            report.cut_bytes += stop - start
            self._quarantine(start, stop, report)
        if not later and not extents:
            return
        if self._checksums is not None:
            self._checksums.cut(end)
        for _ in later:
            segments.remove_last()
            report.removed_segments += 1
        if later:
            self._file_system.sync_dir(segments.directory)
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

    def _quarantine(self, start: int, end: int, report: RecoveryReport) -> None:
        """Copy bytes of the log; a copy that is there already is kept, so that a repeated recovery does not lose the
        first.
        """
        self._file_system.make_dirs(self._paths.quarantine)
        at = start
        while at < end:
            segment = self._segments.find(at)
            assert segment is not None
            stop = min(end, segment.end_offset)
            used = sum(self._file_system.size(path) for path in report.quarantined)
            stop = min(stop, at + self._config.recovery_quarantine_bytes_max - used)
            if stop <= at:
                self._log.error("quarantine_full", from_offset=at, to_offset=end)
                break
            path = f"{self._paths.quarantine}/{at:020d}-{stop:020d}.bin"
            if not self._file_system.exists(path):
                self._copy(segment, at, stop, path)
            report.quarantined.append(path)
            at = stop
        self._file_system.sync_dir(self._paths.quarantine)

    def _copy(self, segment: Segment, start: int, stop: int, path: str) -> None:
        temporary = path + ".tmp"
        file = self._file_system.open(temporary, create=True)
        try:
            file.resize(0)
            for at in range(start, stop, _COPY_BYTES):
                view = np.empty(min(_COPY_BYTES, stop - at), np.uint8)
                segment.read_into(at - segment.base_offset, view)
                file.write_at(at - start, view)
            file.sync()
        finally:
            file.close()
        self._file_system.rename(temporary, path)

    def _remember_damage(self, new: list[DamagedRange], end: int) -> list[DamagedRange]:
        """Return all known damage below ``end``; write the list if it has changed."""
        known = read_damage(self._file_system, self._paths)
        first = self._segments.first_offset
        merged = {(part.start, part.end): part for part in [*known, *new] if first <= part.start and part.end <= end}
        parts = [merged[key] for key in sorted(merged)]
        if parts != known:
            self._file_system.make_dirs(self._paths.own)
            self._file_system.replace(self._paths.damage, msgspec.json.encode(parts))
        return parts

    def _make_durable(self, start: int, end: int) -> None:
        """Sync what a killed process left in the page cache: from here on it counts as flushed."""
        for segment in self._segments.between(start, end):
            segment.sync()
        if end > start:
            self._file_system.sync_dir(self._segments.directory)

    def _last_store_timestamp(self, group: int, end: int) -> int:
        """Return the newest store time in the last group, so that store times go on without a step back."""
        newest = 0
        at = group
        while at < end:
            segment = self._segments.find(at)
            if segment is None:
                break
            position = at - segment.base_offset
            head = np.zeros(8, np.uint8)
            segment.read_into(position, head)
            size, _ = size_and_magic(head.data, 0)
            if not self._scan.is_record(at):
                break
            newest = max(newest, _store_time(segment, position))
            at += size
        return newest

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


def _tell(progress: Callable[[int, int], None], segments: SegmentQueue, at: int) -> None:
    progress(at, segments.end_offset)


def read_damage(file_system: FileSystem, paths: StorePaths) -> list[DamagedRange]:
    """Return the damage that earlier recoveries found."""
    try:
        return msgspec.json.decode(file_system.read_all(paths.damage), type=list[DamagedRange])
    except (FileNotFoundError, StoreError, msgspec.MsgspecError):
        return []


def _store_time(segment: Segment, position: int) -> int:
    """Return the store timestamp of the good record at ``position``."""
    head = np.empty(STORE_TIMESTAMP_AT + HOST_V6_EXTRA + 8, np.uint8)
    segment.read_into(position, head)
    at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if int(head[SYS_FLAG_AT + 3]) & BORN_HOST_V6_FLAG else 0)
    return int.from_bytes(head[at : at + 8].tobytes(), "big", signed=True)

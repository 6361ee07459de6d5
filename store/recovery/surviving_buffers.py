"""Writes what a dead process has left in its surviving write buffers to the log, before the log is verified.

Lives here: ``SurvivingBuffers.recover``: it writes what the log lacks to its files, copies what it must not have to
``pocketmq/quarantine``, and removes the buffers. ADR 0012 has the table of decisions for every moment of death.

Nothing reaches the log that is not certainly the next bytes of this log: the store's record names the run; the machine
has not been started again; the files belong to this user alone; identity, size and the CRC of all bytes agree; no
buffer before it is missing (all this: ``left_buffers``); and the log's file has zeros or the same bytes there.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace as with_changes
from numpy.typing import NDArray

from pocketmq.common.events import EventLog
from pocketmq.common.hashes import crc32
from pocketmq.store.checkpoint import mark_open
from pocketmq.store.commitlog.buffer_header import HEADER_BYTES
from pocketmq.store.commitlog.buffer_record import (
    LOCK,
    BufferRecord,
    own_pid,
    record_path,
    remove_directory,
    write_record,
)
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.disk.file_system import FileLock, FileSystem, StoreFile
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import StoreError
from pocketmq.store.recovery.left_buffers import WHY, BufferRefused, Found, Left, look

_COPY_BYTES: Final = 1 << 20

Bytes = NDArray[np.uint8]


@dataclass(slots=True)
class BuffersReport:
    """``had``: the last run had surviving buffers and did not stop cleanly; ``kept``: the log has all that they held.
    ``written_bytes``: so many were not in its files.
    """

    had: bool = False
    kept: bool = False
    written_bytes: int = 0


class SurvivingBuffers:
    """The buffers of the last run of a store that is being opened: its directory is locked, its segments loaded."""

    def __init__(self, environment: StoreEnvironment, segments: SegmentQueue, *, durable: bool) -> None:
        """``durable``: the marker of an unclean stop must survive a power cut."""
        self._files = environment.file_system
        self._paths = environment.paths
        self._log: EventLog = environment.log
        self._segments = segments
        self._durable = durable
        self._room_bytes = environment.config.recovery_quarantine_bytes_max

    def recover(self, epochs: frozenset[int] | None = None, *, drop: bool = False) -> BuffersReport:
        """Write to the log what it does not have; remove the buffers. After a kill run it again.

        ``epochs``: those in which this node has led, None for a store without replication; ``drop``: the log was
        dropped, and the buffers with it. Raises ``StoreInUse`` while their process lives, and disk errors.
        """
        left = look(self._files, self._paths)
        record = left.record
        if record is None:
            self._tell(left)
            if left.refused:  # the next run must not be blocked by it; its directory stays, and is named by doctor
                self._files.remove(record_path(self._paths))
            return BuffersReport(had=bool(left.refused))
        if record.state == "open":
            with _Held(self._files, record, left):
                report = self._take(left, epochs, drop)
        else:
            report = BuffersReport()
        if record.state:
            self._remove(record, left)
        return report

    def _take(self, left: Left, epochs: frozenset[int] | None, drop: bool) -> BuffersReport:
        record = left.record
        assert record is not None
        report = BuffersReport(had=True)
        begin, end = left.uncommitted
        if drop:
            self._log.warning("write_buffers_dropped", from_offset=begin, to_offset=end, why="the log was dropped")
            return report
        for number, buffer in enumerate(left.found):
            if buffer.end_offset <= left.committed_offset:
                continue
            try:
                if epochs is not None and buffer.binding.epoch and buffer.binding.epoch not in epochs:
                    raise BufferRefused("other_epoch", f"{buffer.path}: epoch {buffer.binding.epoch}")
                report.written_bytes += self._write(buffer, left.committed_offset)
            except BufferRefused as error:
                left.refused.append((error.kind, str(error)))
                left.suspects += [(each.path, each.binding.offset) for each in left.found[number:]]
                left.refused += [("gap", f"{WHY['gap']}: {each.path}") for each in left.found[number + 1 :]]
                break
        self._tell(left)
        if left.may_remove:
            for path, offset in left.suspects:
                self._keep(path, offset, record)
        report.kept = not left.refused
        if report.kept:
            tell = self._log.warning if report.written_bytes else self._log.info
            tell(
                "write_buffers_recovered",
                from_offset=begin,
                to_offset=end,
                written_bytes=report.written_bytes,
                directory=record.directory,
            )
        return report

    def _write(self, buffer: Found, committed_offset: int) -> int:
        """Write a buffer's bytes beyond ``committed_offset`` to the log's file; return how many differed."""
        offset = buffer.binding.offset
        segment = self._segments.find(offset)
        if segment is None or buffer.end_offset > segment.end_offset:
            raise BufferRefused("no_segment", f"{buffer.path} has [{offset}, {buffer.end_offset})")
        source = self._files.open_private(buffer.path)
        self._verify(source, buffer)
        target = segment.open_for_read()
        written = 0
        begin = max(committed_offset - offset, 0)
        for is_write in (False, True):  # all is compared before anything is written
            for at in range(begin, buffer.position, _COPY_BYTES):
                new = _read(source, HEADER_BYTES + at, min(_COPY_BYTES, buffer.position - at))
                old = np.zeros(len(new), np.uint8)
                position = offset + at - segment.base_offset
                segment.read_into(position, old)
                differs = old != new
                if not is_write and bool((old[differs] != 0).any()):
                    raise BufferRefused("log_differs", f"{segment.path} from position {position} on")
                if is_write and differs.any():
                    if not written:
                        mark_open(self._files, self._paths, durable=self._durable)
                    target.write_at(position, new)
                    written += int(np.count_nonzero(differs))
        source.close()
        return buffer.position - begin if written else 0

    @staticmethod
    def _verify(source: StoreFile, buffer: Found) -> None:
        crc = 0
        for at in range(0, buffer.position, _COPY_BYTES):
            crc = crc32(_read(source, HEADER_BYTES + at, min(_COPY_BYTES, buffer.position - at)).data, crc)
        if crc != buffer.crc:
            raise BufferRefused("changed", f"{buffer.path}: [0, {buffer.position})")

    def _tell(self, left: Left) -> None:
        for kind, text in left.refused:
            directory = "" if left.record is None else left.record.directory
            what = "look at the copies in pocketmq/quarantine" if left.suspects else "nothing can bring them back"
            self._log.error(
                f"write_buffers_{kind}",
                why=text,
                directory=directory,
                committed_offset=left.committed_offset,
                what_to_do=f"messages acknowledged in the last moments before the process died may be lost; {what}",
            )

    def _keep(self, path: str, offset: int, record: BufferRecord) -> None:
        """Copy a refused buffer, without its zeros at the end, to the quarantine."""
        files = self._files
        try:
            source = files.open_private(path)
            size = min(source.size() - HEADER_BYTES, record.buffer_bytes)
        except StoreError:
            return
        end = _last_nonzero(source, size)
        if end == 0:
            return
        if end > self._room_bytes:
            self._log.error("quarantine_full", path=path, size_bytes=end)
            return
        self._room_bytes -= end
        files.make_dirs(self._paths.quarantine)
        where = f"{offset:020d}" if offset >= 0 else "unknown"
        name = f"write-buffer-{record.run_id[:8]}-{path.rpartition('/')[2]}-{where}.bin"
        target = files.open(f"{self._paths.quarantine}/{name}", create=True)
        target.resize(0)
        for at in range(0, end, _COPY_BYTES):
            target.write_at(at, _read(source, HEADER_BYTES + at, min(_COPY_BYTES, end - at)))
        target.sync()
        target.close()
        source.close()
        files.sync_dir(self._paths.quarantine)
        self._log.warning("write_buffer_quarantined", path=path, copy=f"{self._paths.quarantine}/{name}")

    def _remove(self, record: BufferRecord, left: Left) -> None:
        """Remove the buffers; first note that the log has all it may have, so that a kill in between repeats only the
        removal. A copy of a store becomes a store of its own.
        """
        files, paths = self._files, self._paths
        is_copy = any(kind == "copy" for kind, _ in left.refused)
        if left.may_remove:
            write_record(files, paths, with_changes(record, state="written", root=paths.root))
            try:
                remove_directory(files, record.directory)
            except StoreError as error:
                self._log.error("write_buffers_not_removed", directory=record.directory, error=str(error))
        if is_copy:
            files.remove(record_path(paths))
        else:
            write_record(files, paths, BufferRecord(store_id=record.store_id, root=paths.root))


class _Held:
    """The lock of a run's directory, so that no process that still has the buffers loses them."""

    def __init__(self, files: FileSystem, record: BufferRecord, left: Left) -> None:
        self._files = files
        self._path = f"{record.directory}/{LOCK}"
        self._wanted = left.may_remove
        self._lock: FileLock | None = None

    def __enter__(self) -> None:
        if self._wanted:
            self._lock = self._files.lock_file(self._path, f"lock\npid {own_pid()}\n")

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()


def _read(file: StoreFile, at: int, length: int) -> Bytes:
    out = np.zeros(length, np.uint8)
    file.read_into(at, out)
    return out


def _last_nonzero(file: StoreFile, size: int) -> int:
    """Return the end of the last byte that is not zero."""
    last = 0
    for at in range(0, size, _COPY_BYTES):
        found = np.flatnonzero(_read(file, HEADER_BYTES + at, min(_COPY_BYTES, size - at)))
        if len(found):
            last = at + int(found[-1]) + 1
    return last

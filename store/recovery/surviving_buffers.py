"""What a dead process has left in its surviving write buffers, before the log is verified.

Lives here: ``look`` finds out, and changes nothing; ``SurvivingBuffers.recover`` writes what the log does not have to
its files, copies what it must not have to ``pocketmq/quarantine``, and removes the buffers. ADR 0012 has the table of
decisions for every moment of death.

Nothing reaches the log that is not certainly the next bytes of this log: the store's record names the run; the machine
has not been started again; the files belong to this user alone; identity, size and the CRC of all bytes agree; no
buffer before it is missing; and the log's file has zeros or the same bytes there.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec.structs import replace as with_changes
from numpy.typing import NDArray

from pocketmq.common.errors import BytesIllegal
from pocketmq.common.events import EventLog
from pocketmq.common.hashes import crc32
from pocketmq.store.checkpoint import StorePaths, mark_open
from pocketmq.store.commitlog.buffer_header import (
    BOUND,
    COMMITTED,
    HEADER_BYTES,
    RELEASED,
    Binding,
    Header,
    run_salt,
)
from pocketmq.store.commitlog.buffer_record import (
    LOCK,
    OWNER,
    BufferRecord,
    boot_id,
    own_pid,
    process_start,
    read_record,
    remove_directory,
    write_record,
)
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.disk.file_system import FileLock, FileSystem, StoreFile
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import NotPrivate, StoreError

_COPY_BYTES: Final = 1 << 20

Bytes = NDArray[np.uint8]

WHY: Final = {
    "record_damaged": "the store's record of its buffers cannot be read",
    "copy": "this directory is a copy of a store, and the buffers belong to the other one",
    "stale": "the machine has been started since: what they held is lost, as any unsynced file",
    "missing": "they are gone from shared memory, as after a restart of a container with a /dev/shm of its own",
    "foreign": "they belong to another user or another store",
    "torn": "a header is damaged",
    "truncated": "a file has not its size",
    "changed": "the bytes do not match their checksum",
    "gap": "a buffer before them is not there",
    "other_epoch": "they were written in an epoch that is not this node's",
    "log_differs": "the log has other bytes there: something else has written to it since",
    "no_segment": "the log has no file for these bytes",
}
"""Why buffers are refused, by kind; the log event is ``write_buffers_<kind>``."""


class BufferRefused(Exception):
    """A buffer is not used. ``kind``: see ``WHY``."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{WHY[kind]}: {detail}")
        self.kind = kind


@dataclass(slots=True, frozen=True)
class Found:
    """A buffer with bytes that were published: the log from ``binding.offset``, ``position`` bytes with this CRC."""

    path: str
    binding: Binding
    position: int
    crc: int

    @property
    def end_offset(self) -> int:
        """End of its bytes in the log."""
        return self.binding.offset + self.position


@dataclass(slots=True)
class Left:
    """What is there. ``found``: in the order of the log, without a gap; ``committed_offset``: the log's files have all
    bytes below it. ``refused``: (kind, text) of everything that is not used. ``lost``: how many of the buffers that the
    process had in use are refused; ``is_alive``: that process still runs.
    """

    record: BufferRecord | None = None
    found: list[Found] = field(default_factory=list)
    committed_offset: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    suspects: list[tuple[str, int]] = field(default_factory=list)
    """(path, offset of the log, -1 if unknown) of refused files that may hold messages."""
    is_alive: bool = False
    may_remove: bool = False
    """The directory is certainly that of this store's dead run."""

    @property
    def uncommitted(self) -> tuple[int, int]:
        """The range of the log that may be only in the buffers; empty if both are equal."""
        end = max((each.end_offset for each in self.found), default=0)
        return (self.committed_offset, end) if end > self.committed_offset else (0, 0)


def look(files: FileSystem, paths: StorePaths) -> Left:
    """Return what the last run has left in its buffers. Raises disk errors of the store's own files."""
    left = Left()
    try:
        left.record = record = read_record(files, paths)
    except BytesIllegal as error:
        left.refused.append(("record_damaged", str(error)))
        return left
    if record is None or record.state != "open":
        left.may_remove = record is not None and record.state == "written" and record.root == paths.root
        return left
    try:
        _check_place(files, paths, record)
        owner = _page(files, record, OWNER, -1, HEADER_BYTES)
        left.may_remove = True
        if record.boot_id != boot_id(files) or not record.boot_id:
            raise BufferRefused("stale", record.directory)
        identity = owner.identity
        left.is_alive = bool(identity.process_start) and process_start(files, identity.pid) == identity.process_start
        salt = run_salt(record.run_id)
        try:
            released = owner.value(RELEASED, salt) or 0
            bound = owner.value(BOUND, salt) or 0
            left.committed_offset = owner.value(COMMITTED, salt) or 0
        except BytesIllegal as error:
            raise BufferRefused("torn", f"{record.directory}/{OWNER}: {error.why}") from error
        if not 0 <= bound - released <= record.buffers:
            raise BufferRefused(
                "torn", f"{record.directory}/{OWNER}: buffers {released} to {bound} of {record.buffers}"
            )
    except BufferRefused as error:
        left.refused.append((error.kind, str(error)))
        if error.kind in ("torn", "truncated", "missing"):  # only this user can have made that directory's files
            left.may_remove = files.exists(record.directory)
        if left.may_remove:
            left.suspects = [(f"{record.directory}/{number}", -1) for number in range(record.buffers)]
        return left
    _find(files, record, left, released, bound, salt)
    return left


def _check_place(files: FileSystem, paths: StorePaths, record: BufferRecord) -> None:
    """Refuse the buffers of the store that this one is a copy of. A store that was moved keeps its own."""
    if record.root != paths.root:
        try:
            other = read_record(files, StorePaths(record.root))
        except (BytesIllegal, StoreError):
            other = None
        if other is not None and other.store_id == record.store_id:
            raise BufferRefused("copy", f"{record.directory} belongs to {record.root}")
    if not files.exists(record.directory):
        raise BufferRefused("stale" if record.boot_id != boot_id(files) else "missing", record.directory)


def _page(files: FileSystem, record: BufferRecord, name: str, number: int, size_bytes: int) -> Header:
    """Return the header of a file after all checks of whose it is. Raises ``BufferRefused``."""
    path = f"{record.directory}/{name}"
    try:
        file = files.open_private(path)
        size = file.size()
        page = file.read(0, HEADER_BYTES)
        file.close()
    except NotPrivate as error:
        raise BufferRefused("foreign", error.why) from error
    except FileNotFoundError as error:
        raise BufferRefused("missing", path) from error
    except StoreError as error:
        raise BufferRefused("foreign", error.why) from error
    if size != size_bytes:
        raise BufferRefused("truncated", f"{path} has {size} bytes, not {size_bytes}")
    try:
        header = Header(page)
    except BytesIllegal as error:
        raise BufferRefused("torn", f"{path}: {error.why}") from error
    identity = header.identity
    if (identity.store_id, identity.run_id) != (record.store_id, record.run_id):
        raise BufferRefused("foreign", f"{path} belongs to the store {identity.root[:200]!r}")
    if (identity.number, identity.buffers, identity.buffer_bytes) != (number, record.buffers, record.buffer_bytes):
        raise BufferRefused("foreign", f"{path} is buffer {identity.number} of {identity.buffers}")
    return header


def _find(files: FileSystem, record: BufferRecord, left: Left, released: int, bound: int, salt: int) -> None:
    """Fill ``found`` with the buffers numbered from ``released + 1`` to ``bound``, as far as none is missing."""
    found: dict[int, Found | None] = {}
    unread: list[tuple[BufferRefused, str]] = []
    for number in range(record.buffers):
        path = f"{record.directory}/{number}"
        try:
            header = _page(files, record, str(number), number, HEADER_BYTES + record.buffer_bytes)
            try:
                for binding in header.bindings(salt):
                    if not released < binding.number <= bound or binding.number in found:
                        continue
                    published = header.published(binding, salt)
                    if published is not None and published[0] > record.buffer_bytes:
                        raise BytesIllegal("header refused", why=f"{published[0]} bytes in it")
                    found[binding.number] = None if published is None else Found(path, binding, *published)
            except BytesIllegal as error:
                raise BufferRefused("torn", f"{path}: {error.why}") from error
        except BufferRefused as error:
            unread.append((error, path))
    wanted = range(released + 1, bound + 1)
    missing = [number for number in wanted if number not in found]
    end = min(missing, default=bound + 1)
    for number in wanted:
        buffer = found.get(number)
        if buffer is None:
            continue
        if number < end:
            left.found.append(buffer)
        else:
            left.refused.append(("gap", f"{WHY['gap']}: {buffer.path} from offset {buffer.binding.offset} on"))
            left.suspects.append((buffer.path, buffer.binding.offset))
    for refused, path in unread:
        if missing:
            left.refused.append((refused.kind, str(refused)))
            left.suspects.append((path, -1))
    if missing and not unread:
        left.refused.append(("torn", f"{record.directory}: no buffer has number {end}"))


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
                self._files.remove(f"{self._paths.own}/write_buffers.json")
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
            files.remove(f"{paths.own}/write_buffers.json")
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

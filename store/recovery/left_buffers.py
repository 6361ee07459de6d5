"""What a dead process has left in its surviving write buffers.

Lives here: ``look``, which finds out and changes nothing; why a buffer is refused (``WHY``).
"""

from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.errors import BytesIllegal
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.commitlog.buffer_header import (
    BOUND,
    COMMITTED,
    HEADER_BYTES,
    RELEASED,
    Binding,
    Header,
    run_salt,
)
from pocketmq.store.commitlog.buffer_record import OWNER, BufferRecord, boot_id, process_start, read_record
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import NotPrivate, StoreError

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

"""Checksums of append groups, beside the log.

RocketMQ's CRC covers only the body of a record. Each group gets one checksum after its offsets are filled in, so that
recovery, ``log verify`` and replication detect a change of any byte, at memory speed.

Lives here: the files ``checksums/<base offset of the segment>`` and their entries. Entries are optional: bytes without
one are checked record by record.

An entry is 20 bytes, big-endian::

    u64 physical offset   u32 length   u32 crc32 of the bytes   u32 check of this entry

The check separates an entry from garbage, zeros and torn writes; a bad one is skipped, later ones still count.
"""

import threading
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.commitlog.segment import segment_name
from pocketmq.store.disk.file_system import FileSystem, StoreFile
from pocketmq.store.errors import StoreError

CHECKSUM_ENTRY: Final = np.dtype([("offset", ">u8"), ("length", ">u4"), ("crc", ">u4"), ("check", ">u4")])
CHECKSUM_ENTRY_BYTES: Final = 20
PENDING_MAX: Final = 65_536
"""Entries waiting for the next write; further ones are dropped (their bytes are then checked record by record)."""

Entries = NDArray[np.void]


def _check(entries: Entries) -> NDArray[np.uint32]:
    """Return the check of each entry: odd multipliers, so that a change of any one field changes it."""
    offsets = entries["offset"].astype(np.uint64)
    value = (offsets >> np.uint64(32)).astype(np.uint32) * np.uint32(0x9E3779B1)
    value = (value + offsets.astype(np.uint32)) * np.uint32(0x85EBCA77)
    value = (value + entries["length"].astype(np.uint32)) * np.uint32(0xC2B2AE3D)
    mixed: NDArray[np.uint32] = (value ^ entries["crc"].astype(np.uint32)) + np.uint32(0x165667B1)
    return mixed


def pack_entries(entries: list[tuple[int, int, int]]) -> Entries:
    """Return (offset, length, crc) tuples as entries with their checks."""
    packed = np.zeros(len(entries), CHECKSUM_ENTRY)
    columns = np.array(entries, np.uint64).reshape(-1, 3)
    packed["offset"] = columns[:, 0]
    packed["length"] = columns[:, 1]
    packed["crc"] = columns[:, 2]
    packed["check"] = _check(packed)
    return packed


def good_entries(data: bytes, base_offset: int, segment_bytes: int) -> Entries:
    """Return the entries of one segment's file that are whole and lie within the segment, in file order."""
    entries = np.frombuffer(data, CHECKSUM_ENTRY, len(data) // CHECKSUM_ENTRY_BYTES)
    offsets = entries["offset"].astype(np.int64)
    lengths = entries["length"].astype(np.int64)
    good = entries["check"] == _check(entries)
    good &= (offsets >= base_offset) & (lengths > 0) & (offsets + lengths <= base_offset + segment_bytes)
    kept: Entries = entries[good]
    return kept


class ChecksumLog:
    """Collects entries in memory and writes them in batches. ``add`` does no I/O; ``write`` is called by one thread."""

    def __init__(self, file_system: FileSystem, directory: str, segment_bytes: int) -> None:
        self.directory = directory
        self.dropped = 0
        self.written = 0
        self._file_system = file_system
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._pending: list[tuple[int, int, int]] = []
        self._file: StoreFile | None = None
        self._file_base = -1
        self._file_bytes = 0

    def _path(self, base_offset: int) -> str:
        return f"{self.directory}/{segment_name(base_offset)}"

    def add(self, offset: int, length: int, crc: int) -> None:
        """Record a group; it must lie within one segment."""
        with self._lock:
            if len(self._pending) < PENDING_MAX:
                self._pending.append((offset, length, crc))
            else:
                self.dropped += 1

    def write(self) -> None:
        """Append the recorded entries to the files. Raises ``StoreError``; lost entries only cost speed."""
        with self._lock:
            pending, self._pending = self._pending, []
        if not pending:
            return
        pending.sort()
        first = 0
        while first < len(pending):
            base_offset = pending[first][0] // self._segment_bytes * self._segment_bytes
            end_offset = base_offset + self._segment_bytes
            end = first
            while end < len(pending) and pending[end][0] < end_offset:
                end += 1
            self._append(base_offset, pack_entries(pending[first:end]))
            self.written += end - first
            first = end

    def _append(self, base_offset: int, entries: Entries) -> None:
        if self._file is None or self._file_base != base_offset:
            path = self._path(base_offset)
            try:
                file = self._file_system.open(path, create=True)
            except FileNotFoundError:  # the directory has been removed
                self._file_system.make_dirs(self.directory)
                file = self._file_system.open(path, create=True)
            size = file.size()
            self._file, self._file_base = file, base_offset
            self._file_bytes = size - size % CHECKSUM_ENTRY_BYTES  # a torn entry at the end is overwritten
        self._file.write_at(self._file_bytes, entries.view(np.uint8))
        self._file_bytes += entries.nbytes

    def load(self, base_offset: int) -> dict[int, tuple[int, int]]:
        """Return {offset: (length, crc)} of one segment, in the order of the offsets; an unreadable file counts as
        empty.
        """
        try:
            data = self._file_system.read_all(self._path(base_offset))
        except (FileNotFoundError, StoreError):
            return {}
        entries = good_entries(data, base_offset, self._segment_bytes)
        rows = zip(entries["offset"].tolist(), entries["length"].tolist(), entries["crc"].tolist(), strict=True)
        return dict(sorted((offset, (length, crc)) for offset, length, crc in rows))

    def finished_end(self, offset: int) -> int:
        """Return the end of the last group with an entry in the segment of ``offset`` or later; 0 if none.

        An entry is written after its group is complete, so that group was finished, whatever is there now.
        """
        end = 0
        for name in self._file_system.list(self.directory):
            if name.isdecimal() and int(name) + self._segment_bytes > offset:
                end = max([end, *(at + length for at, (length, _) in self.load(int(name)).items())])
        return end

    def cut(self, end_offset: int) -> None:
        """Remove the entries of bytes at or beyond ``end_offset``, durably, so that none outlives its bytes."""
        self.close()
        changed = False
        for name in self._file_system.list(self.directory):
            if not name.isdecimal() or int(name) + self._segment_bytes <= end_offset:
                continue
            path = f"{self.directory}/{name}"
            if int(name) >= end_offset:
                self._file_system.remove(path)
                changed = True
                continue
            data = self._file_system.read_all(path)
            entries = good_entries(data, int(name), self._segment_bytes)
            kept = entries[entries["offset"].astype(np.int64) + entries["length"].astype(np.int64) <= end_offset]
            if kept.nbytes != len(data):
                self._file_system.replace(path, kept.tobytes())
        if changed:
            self._file_system.sync_dir(self.directory)

    def delete_expired(self, log_min_offset: int) -> list[str]:
        """Remove the files of segments that lie wholly below the log's first offset; return their paths."""
        removed: list[str] = []
        for name in self._file_system.list(self.directory):
            if name.isdecimal() and int(name) + self._segment_bytes <= log_min_offset:
                path = f"{self.directory}/{name}"
                self._file_system.remove(path)
                removed.append(path)
        return removed

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        self._file = None
        self._file_base = -1


class HeldChecksums:
    """Checksums of groups that are appended but not yet committed: an entry is passed on only once its bytes are in the
    log's file, because an entry for bytes lost with a killed process would later describe other bytes.

    Roughly in the order of the log: an early entry holds later ones back until its own commit.

    Thread-safe, no I/O; beyond ``PENDING_MAX`` entries are dropped.
    """

    def __init__(self, checksums: ChecksumLog) -> None:
        self._checksums = checksums
        self._lock = threading.Lock()
        self._held: deque[tuple[int, int, int]] = deque()
        self._committed_offset = 0

    def add(self, offset: int, length: int, crc: int) -> None:
        """Record a group within one segment; pass it on at once if it is committed already."""
        with self._lock:
            if offset + length > self._committed_offset:
                if len(self._held) < PENDING_MAX:
                    self._held.append((offset, length, crc))
                else:
                    self._checksums.dropped += 1
                return
        self._checksums.add(offset, length, crc)

    def release(self, committed_offset: int) -> None:
        """Pass on the entries of committed bytes."""
        with self._lock:
            self._committed_offset = max(self._committed_offset, committed_offset)
            held, ready = self._held, []
            while held and held[0][0] + held[0][1] <= committed_offset:
                ready.append(held.popleft())
        for entry in ready:
            self._checksums.add(*entry)

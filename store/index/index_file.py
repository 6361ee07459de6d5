"""One index file: from the hash of a key to physical offsets.

Lives here: RocketMQ's layout, inserting many keys at once, following a chain, writing changes, truncating a file.

Layout (RocketMQ IndexFile.java), big-endian::

    header 40     i64 begin timestamp, i64 end timestamp, i64 begin offset, i64 end offset, i32 used slots, i32 index
    count slots  4 * S  i32 newest entry of the slot, 0 for none
    entries 20*N  i32 key hash, i64 physical offset, i32 seconds since begin timestamp, i32 previous entry of the slot

The index count starts at 1: entry 0 is never used. Files are sparse. The slots of the file in use are kept in private
memory (20 MB of zeros that cost nothing until touched) and written by changed blocks: a full disk is an error here,
not a SIGBUS.
"""

import struct
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.errors import CorruptStore

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
INDEX_ENTRY: Final = np.dtype([("key_hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
INDEX_ENTRY_BYTES: Final = 20
PENDING_ENTRIES_MAX: Final = 16_384
"""Maximum of unwritten entries: 320 KiB; a chain that leads into the file costs a read per step."""
CHAIN_STEPS_MAX: Final = 100_000
"""Entries that one query follows in one file: about 0.3 s of reads."""
_HEADER: Final = struct.Struct(">qqqqii")
_BLOCK_SLOTS: Final = 1024  # slots are written in blocks of 4 KiB
_GAP_BLOCKS: Final = 4  # unchanged blocks written along rather than starting another write
_ENTRY: Final = struct.Struct(">iqii")
_INT_MAX: Final = 0x7FFF_FFFF

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class CorruptIndex(CorruptStore):
    """An index file does not belong to this store. The log can rebuild it."""


class IndexFile:
    """One file; ``index_count - 1`` keys are in it, at most ``entries_max - 1``.

    One thread changes it at a time; any thread looks up. The lock is never held over I/O.
    ``begin_timestamp``/``end_timestamp`` (ms) and ``begin_offset``/``end_offset`` are those of its first and last key.
    """

    def __init__(self, path: str, files: FileCache, slots: int, entries_max: int) -> None:
        self.path = path
        self.begin_timestamp = 0
        self.end_timestamp = 0
        self.begin_offset = 0
        self.end_offset = 0
        self.used_slots = 0
        self.index_count = 1
        self.is_damaged = False
        """The header is wrong; ``truncate_to_physical`` rebuilds it from the entries."""
        self._files = files
        self._slot_count = slots
        self._entries_max = entries_max
        self._file_bytes = HEADER_BYTES + slots * SLOT_BYTES + entries_max * INDEX_ENTRY_BYTES
        self._lock = threading.Lock()
        self._slots: NDArray[np.int32] | None = None  # big-endian; None: not in memory, the file has them
        self._dirty_blocks = np.zeros(-(-slots // _BLOCK_SLOTS), np.bool_)
        self._pending: tuple[int, NDArray[np.void]] = (1, np.empty(0, INDEX_ENTRY))
        self._header_dirty = False

    @classmethod
    def create(
        cls, path: str, files: FileCache, slots: int, entries_max: int, *, behind: "IndexFile | None" = None
    ) -> "IndexFile":
        """Return a new, empty file, which is created on disk by its first write.

        ``behind``: the full file before it. As in RocketMQ the header begins with the end of that file, and the first
        entry counts its seconds from there (IndexService.getAndCreateLastIndexFile, IndexFile.putKey).
        """
        file = cls(path, files, slots, entries_max)
        file._slots = np.zeros(slots, ">i4")
        if behind is not None:
            file.begin_timestamp = file.end_timestamp = behind.end_timestamp
            file.begin_offset = file.end_offset = behind.end_offset
        return file

    @classmethod
    def open(cls, path: str, files: FileCache, slots: int, entries_max: int) -> "IndexFile":
        """Read the header of an existing file. Raises ``CorruptIndex``."""
        file = cls(path, files, slots, entries_max)
        size = files.size(path)
        if size != file._file_bytes:
            raise CorruptIndex(
                "index file refused",
                why=f"{path} has {size} bytes, not {file._file_bytes}",
                hint="restore max_hash_slot_num and max_index_num, or remove the index directory",
            )
        header = np.zeros(HEADER_BYTES, np.uint8)
        files.read_at(path, 0, header)
        (
            file.begin_timestamp,
            file.end_timestamp,
            file.begin_offset,
            file.end_offset,
            file.used_slots,
            count,
        ) = _HEADER.unpack(header.tobytes())
        file.is_damaged = not 0 <= count <= entries_max
        file.index_count = 1 if file.is_damaged else max(count, 1)
        file._pending = (file.index_count, np.empty(0, INDEX_ENTRY))
        return file

    @property
    def room(self) -> int:
        """Keys that still fit."""
        return self._entries_max - self.index_count

    @property
    def is_dirty(self) -> bool:
        """Whether memory holds unwritten changes."""
        return self._header_dirty

    # ---- insert

    def insert(self, key_hashes: Int64s, offsets: Int64s, timestamps: Int64s) -> None:
        """Insert keys in log order, with the result of RocketMQ's putKey one by one; at most ``room`` and
        ``PENDING_ENTRIES_MAX`` of them.

        Raises disk errors; then nothing was inserted.
        """
        count = len(key_hashes)
        assert count <= self.room
        assert count <= PENDING_ENTRIES_MAX
        if count == 0:
            return
        slots = self._load_slots()
        if self.index_count - self._pending[0] + count > PENDING_ENTRIES_MAX:
            self.write_entries()
        first = self.index_count
        before, begin = self.begin_timestamp, self.begin_timestamp if first > 1 else int(timestamps[0])
        entries = np.empty(count, INDEX_ENTRY)
        entries["key_hash"] = key_hashes
        entries["offset"] = offsets
        entries["seconds"] = np.clip((timestamps - begin) // 1000, 0, _INT_MAX) if begin > 0 else 0
        if first == 1 and before > 0:
            entries["seconds"][0] = min(max((begin - before) // 1000, 0), _INT_MAX)
        at = key_hashes % self._slot_count
        order = np.argsort(at, kind="stable")
        sorted_at = at[order]
        is_first = np.empty(count, np.bool_)
        is_first[0] = True
        np.not_equal(sorted_at[1:], sorted_at[:-1], out=is_first[1:])
        heads = slots[sorted_at[is_first]].astype(np.int64)
        heads[(heads < 0) | (heads >= first)] = 0  # as RocketMQ: a slot that points nowhere counts as empty
        previous = np.empty(count, np.int64)
        previous[1:] = order[:-1] + first
        previous[is_first] = heads
        chained = np.empty(count, np.int64)
        chained[order] = previous
        entries["previous"] = chained
        last_of_run = np.append(np.flatnonzero(is_first)[1:] - 1, count - 1)
        changed = sorted_at[last_of_run]
        newest = order[last_of_run] + first
        with self._lock:
            self._add_pending(entries)
            slots[changed] = newest
            self._dirty_blocks[changed // _BLOCK_SLOTS] = True
            if first == 1:
                self.begin_offset = int(offsets[0])
                self.begin_timestamp = begin
            self.used_slots += int(np.count_nonzero(heads == 0))
            self.end_offset = int(offsets[-1])
            self.end_timestamp = int(timestamps[-1])
            self.index_count = first + count
            self._header_dirty = True

    def _add_pending(self, entries: NDArray[np.void]) -> None:
        first, pending = self._pending
        used = self.index_count - first
        if used + len(entries) > len(pending):
            grown = np.empty(min(max(1024, 2 * (used + len(entries))), 2 * PENDING_ENTRIES_MAX), INDEX_ENTRY)
            grown[:used] = pending[:used]
            pending = grown
            self._pending = (first, grown)
        pending[used : used + len(entries)] = entries

    def _load_slots(self) -> NDArray[np.int32]:
        slots = self._slots
        if slots is None:
            slots = self._read_slots()
            with self._lock:
                self._slots = slots
        return slots

    def _read_slots(self) -> NDArray[np.int32]:
        """Read the slot table; pages of zeros stay untouched in memory."""
        slots = np.zeros(self._slot_count, ">i4")
        raw = slots.view(np.uint8)
        scratch = np.empty(1 << 20, np.uint8)
        for start in range(0, len(raw), len(scratch)):
            piece = scratch[: min(len(scratch), len(raw) - start)]
            got = self._files.read_at(self.path, HEADER_BYTES + start, piece)
            for at in range(0, got, 4096):
                page = piece[at : min(at + 4096, got)]
                if page.any():
                    raw[start + at : start + at + len(page)] = page
        return slots

    # ---- write

    def _entry_at(self, index: int) -> int:
        return HEADER_BYTES + self._slot_count * SLOT_BYTES + index * INDEX_ENTRY_BYTES

    def write_entries(self) -> None:
        """Write the entries that only memory holds. After an error the next call writes the same again."""
        first, pending = self._pending
        count = self.index_count - first
        if count == 0:
            return
        data = pending[:count].view(np.uint8)
        self._files.write_at(self.path, self._entry_at(first), data, self._file_bytes)
        with self._lock:
            self._pending = (first + count, np.empty(0, INDEX_ENTRY))

    def write(self) -> None:
        """Write all that changed: entries, then slots, then the header. Durable after the next sync."""
        self.write_entries()
        if self._slots is not None:
            raw = self._slots.view(np.uint8)
            blocks = np.flatnonzero(self._dirty_blocks)
            cuts = np.flatnonzero(np.diff(blocks) > _GAP_BLOCKS) + 1
            for run in np.split(blocks, cuts) if len(blocks) else ():
                start = int(run[0]) * _BLOCK_SLOTS * SLOT_BYTES
                end = min((int(run[-1]) + 1) * _BLOCK_SLOTS * SLOT_BYTES, len(raw))
                self._files.write_at(self.path, HEADER_BYTES + start, raw[start:end], self._file_bytes)
            self._dirty_blocks[blocks] = False
        if self._header_dirty:
            self._write_header()

    def _write_header(self) -> None:
        header = _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.index_count,
        )
        self._files.write_at(self.path, 0, np.frombuffer(header, np.uint8), self._file_bytes)
        self._header_dirty = False

    def seal(self) -> None:
        """Write everything and release the memory: nothing more is inserted."""
        self.write()
        with self._lock:
            self._slots = None

    # ---- look up

    def overlaps(self, begin: int, end: int) -> bool:
        """Return whether a key of this file may lie between two store timestamps (ms)."""
        return self.index_count > 1 and begin <= self.end_timestamp and end >= self.begin_timestamp

    def lookup(self, key_hash: int, begin: int, end: int, max_num: int) -> tuple[list[int], bool]:
        """Return physical offsets of entries with this hash and a store time between ``begin`` and ``end`` ms, newest
        first.

        Entries hold seconds only, so one within a second before ``begin`` is returned too. Other keys may have the same
        hash: the caller compares. The flag is True if the whole chain was followed or enough entries were found.
        """
        slot = key_hash % self._slot_count
        with self._lock:
            slots, (pending_first, pending) = self._slots, self._pending
            count, base = self.index_count, self.begin_timestamp
            head = None if slots is None else int(slots[slot])
        if head is None:
            raw = np.zeros(SLOT_BYTES, np.uint8)
            self._files.read_at(self.path, HEADER_BYTES + slot * SLOT_BYTES, raw)
            head = int(raw.view(">i4")[0])
        found: list[int] = []
        entry = np.zeros(INDEX_ENTRY_BYTES, np.uint8)
        at = head
        for _ in range(CHAIN_STEPS_MAX):
            if not 0 < at < count:
                return found, True
            if at >= pending_first:
                entry_hash, offset, seconds, previous = pending[at - pending_first].item()
            else:
                entry[:] = 0
                self._files.read_at(self.path, self._entry_at(at), entry)
                entry_hash, offset, seconds, previous = _ENTRY.unpack(entry.data)
            time = base + seconds * 1000 if at > 1 else base  # the first entry has the begin time, whatever it holds
            if entry_hash == key_hash and begin - 999 <= time <= end:
                found.append(offset)
                if len(found) >= max_num:
                    return found, True
            if time + 999 < begin or previous >= at:
                return found, True
            at = previous
        return found, False

    # ---- truncation

    def truncate_to_physical(self, physical_end: int, store_time_at: Callable[[int], int]) -> bool:
        """Drop entries at or beyond ``physical_end``; rebuild slots and header from the entries. Return False if none
        is left.

        For a file that was not closed properly: only the entries are trusted, up to the first that does not fit.
        ``store_time_at`` gives the store time (ms) of the record at a physical offset, negative if it is gone.
        """
        out = np.zeros(self._entries_max * INDEX_ENTRY_BYTES, np.uint8)
        kept = 1
        step = 1 << 16
        last_offset = -1
        while kept < self._entries_max:
            want = min(step, self._entries_max - kept)
            raw = out[kept * INDEX_ENTRY_BYTES : (kept + want) * INDEX_ENTRY_BYTES]
            self._files.read_at(self.path, self._entry_at(kept), raw)
            entries = raw.view(INDEX_ENTRY)
            offsets = entries["offset"].astype(np.int64)
            fits = (offsets >= 0) & (offsets < physical_end)
            # All zero: never written, or a key of hash 0 in the log's very first record, one in 2^31, which is dropped.
            fits &= raw.reshape(-1, INDEX_ENTRY_BYTES).any(axis=1)
            fits &= entries["previous"].astype(np.int64) < np.arange(kept, kept + want)
            fits[1:] &= offsets[1:] >= offsets[:-1]
            fits[0] &= offsets[0] >= last_offset
            bad = np.flatnonzero(~fits)
            if len(bad):
                kept += int(bad[0])
                break
            kept += want
            last_offset = int(offsets[-1])
        self.is_damaged = False
        if kept == 1:
            return False
        entries = out[INDEX_ENTRY_BYTES : kept * INDEX_ENTRY_BYTES].view(INDEX_ENTRY)
        slots = np.zeros(self._slot_count, ">i4")
        at = entries["key_hash"].astype(np.int64) % self._slot_count
        slots[at] = np.arange(1, kept)  # the last of equal slots stays
        before = self._read_slots()
        changed = np.flatnonzero(slots != before)
        self._files.clear_from(self.path, self._entry_at(kept))
        self.begin_offset = int(entries["offset"][0])
        self.end_offset = int(entries["offset"][-1])
        begin, end = store_time_at(self.begin_offset), store_time_at(self.end_offset)
        self.begin_timestamp = begin if begin >= 0 else self.begin_timestamp
        self.end_timestamp = end if end >= 0 else self.end_timestamp
        self.used_slots = int(np.count_nonzero(slots))
        self.index_count = kept
        self._pending = (kept, np.empty(0, INDEX_ENTRY))
        self._slots = slots
        self._dirty_blocks[changed // _BLOCK_SLOTS] = True
        self._header_dirty = True
        self.write()
        return True

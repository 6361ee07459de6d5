"""One consume queue: the position in the commit log of each message of a (topic, queue).

Lives here: the entry format, the tail in memory, the files, loading and truncating one queue.

Format (RocketMQ ConsumeQueue.java), big-endian, 20 bytes an entry; entry N of a queue is at byte N * 20
of the queue's files laid end to end, each named by its first byte in 20 digits and of one size::

    i64 physical offset   i32 record size   i64 tags code

An entry never written is zero (its size is). A queue whose first file begins before its first entry is padded in
front with blanks: offset 0, size 2^31 - 1, tags code 0.
"""

import struct
import threading
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.events import EventLog
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.errors import CorruptStore

ENTRY: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
ENTRY_BYTES: Final = 20
_pack_entry: Final = struct.Struct(">qiq").pack_into
BLANK_SIZE: Final = 0x7FFF_FFFF
"""Size of a padding entry (RocketMQ ConsumeQueue.fillPreBlank)."""
TAIL_ENTRIES_MIN: Final = 64
"""Capacity of a queue's first tail: 1,280 bytes, so that 50,000 queues in use cost 64 MB at worst."""
TAIL_ENTRIES_KEPT: Final = 4096
"""Written entries that stay in memory at the end of a busy queue."""
_PAGE_ENTRIES: Final = 204
_WINDOW_ENTRIES: Final = 820  # 16 KiB: one read instead of ten more steps

Entries = NDArray[np.void]
Bytes = NDArray[np.uint8]


class CorruptQueue(CorruptStore):
    """The files of a consume queue do not belong to this store: wrong size or wrong name. The log can rebuild them."""


class TailMemory:
    """Counts the bytes of all tails together."""

    __slots__ = ("_lock", "used_bytes")

    def __init__(self) -> None:
        self.used_bytes = 0
        self._lock = threading.Lock()

    def add(self, difference_bytes: int) -> None:
        """Count ``difference_bytes`` more (or less)."""
        with self._lock:
            self.used_bytes += difference_bytes


def file_name(start_byte: int) -> str:
    """Return the name of the file that begins at this byte: 20 digits."""
    return f"{start_byte:020d}"


def blanks(count: int) -> Bytes:
    """Return ``count`` padding entries as bytes."""
    entries = np.zeros(count, ENTRY)
    entries["size"] = BLANK_SIZE
    return entries.view(np.uint8)


def is_blank(entries: Entries) -> NDArray[np.bool_]:
    """Return which entries are padding."""
    blank: NDArray[np.bool_] = (entries["size"] == BLANK_SIZE) & (entries["offset"] == 0)
    return blank


class ConsumeQueue:
    """The entries of one queue; queue offsets count entries.

    Holds: ``min_offset <= max_offset``; files hold every entry below ``written_offset``; memory holds every entry from
    ``written_offset`` (often from further back) to ``max_offset``.
    One thread puts at a time, one thread writes files at a time (``ConsumeQueues`` sees to both), any thread reads.
    Bytes of a tail are written once and never again, so a reader works on them without a lock.
    ``max_offset`` and ``min_offset`` are plain attributes: reading them never blocks.
    """

    __slots__ = (
        "_epoch",
        "_file_bytes",
        "_files",
        "_lock",
        "_log",
        "_memory",
        "_pad_start",
        "_tail",
        "_used",
        "_view",
        "directory",
        "max_offset",
        "min_offset",
        "queue_id",
        "removed",
        "topic",
        "written_offset",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: str,
        files: FileCache,
        file_bytes: int,
        memory: TailMemory,
        log: EventLog,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.min_offset = 0
        self.max_offset = 0
        self.written_offset = 0
        self.removed = False
        self._files = files
        self._file_bytes = file_bytes
        self._memory = memory
        self._log = log
        self._lock = threading.Lock()
        self._tail: tuple[int, Bytes] = (0, np.empty(0, np.uint8))
        self._view = self._tail[1].data  # of the tail's bytes; for ``put_one``, under the lock
        self._used = False  # an entry has been put, or files were found
        self._pad_start: int | None = None  # first entry of blanks still to write in front of written_offset
        self._epoch = 0

    # ---- put and read

    def put(self, first_offset: int, packed: Bytes) -> int:
        """Put packed entries, the first at queue offset ``first_offset``; return how many were new.

        Entries below ``max_offset`` exist already and are skipped: dispatching twice changes nothing. Entries beyond it
        leave a gap, which is padded with blanks and logged (see ``_open_gap``). Does no I/O.
        """
        with self._lock:
            max_offset = self.max_offset
            if first_offset != max_offset:
                if first_offset < max_offset:
                    packed = packed[(max_offset - first_offset) * ENTRY_BYTES :]
                    if len(packed) == 0:
                        return 0
                else:
                    self._open_gap(first_offset)
                    max_offset = first_offset
            self._append(max_offset, packed)
            self._used = True
        return len(packed) // ENTRY_BYTES

    def put_one(self, offset: int, position: int, size: int, tags_code: int) -> bool:
        """Put the entry of one record if it comes next in this queue; return whether it did. Does no I/O."""
        with self._lock:
            if offset != self.max_offset or self.removed:
                return False
            first, tail = self._tail
            at = (offset - first) * ENTRY_BYTES
            if at + ENTRY_BYTES > tail.size:
                first, tail = self._grow(first, tail, at, ENTRY_BYTES)
                at = (offset - first) * ENTRY_BYTES
            _pack_entry(self._view, at, position, size, tags_code)
            self.max_offset = offset + 1  # last: a reader that sees it sees the bytes
            self._used = True
        return True

    def _append(self, max_offset: int, packed: Bytes) -> None:
        first, tail = self._tail
        used = (max_offset - first) * ENTRY_BYTES
        end = used + len(packed)
        if end > len(tail):
            first, tail = self._grow(first, tail, used, len(packed))
            used = (max_offset - first) * ENTRY_BYTES
            end = used + len(packed)
        tail[used:end] = packed
        self.max_offset = max_offset + len(packed) // ENTRY_BYTES  # last: a reader that sees it sees the bytes

    def _grow(self, first: int, tail: Bytes, used: int, more: int) -> tuple[int, Bytes]:
        keep_from = max(first, min(self.written_offset, first + used // ENTRY_BYTES - TAIL_ENTRIES_KEPT))
        live = tail[(keep_from - first) * ENTRY_BYTES : used]
        capacity = TAIL_ENTRIES_MIN * ENTRY_BYTES
        while capacity < len(live) + more:
            capacity *= 2
        if capacity < len(live) * 2:
            capacity *= 2  # else a full tail would soon move again
        return self._replace_tail(keep_from, live, capacity)

    def _replace_tail(self, first: int, live: Bytes, capacity: int) -> tuple[int, Bytes]:
        grown = np.empty(capacity, np.uint8)
        grown[: len(live)] = live
        self._memory.add(capacity - len(self._tail[1]))
        self._tail = (first, grown)
        self._view = grown.data
        return first, grown

    def _open_gap(self, first_offset: int) -> None:
        """Move ``max_offset`` up to ``first_offset``.

        The first entry of a new queue is no gap: its file is padded in front, as RocketMQ's. A gap in a queue in use
        means that entries are missing in the log; one shorter than a file is filled with blanks. A longer one restarts
        the queue at ``first_offset``: earlier messages are no longer reachable, which is logged.
        """
        file_entries = self._file_bytes // ENTRY_BYTES
        missing = first_offset - self.max_offset
        if self._used:
            event = "consume_queue_gap" if missing <= file_entries else "consume_queue_restarted"
            self._log.error(
                event,
                topic=self.topic,
                queue_id=self.queue_id,
                expected_offset=self.max_offset,
                offset=first_offset,
                missing=missing,
            )
            if missing <= file_entries:
                self._append(self.max_offset, blanks(missing))
                return
        start = first_offset - first_offset % file_entries
        self._pad_start = start if start < first_offset else None
        self._epoch += 1
        self.written_offset = first_offset
        self._replace_tail(first_offset, np.empty(0, np.uint8), 0)
        self.min_offset = first_offset
        self.max_offset = first_offset

    def read(self, offset: int, count: int) -> Entries:
        """Return up to ``count`` entries from queue offset ``offset``, read-only; fewer at the end, none outside the
        queue.

        From memory where the tail reaches, else from the files: not for the event loop. Blanks are returned as they
        are.
        """
        end = min(offset + count, self.max_offset)  # before the tail: see _append
        first, tail = self._tail
        if offset < self.min_offset or offset >= end:
            return np.empty(0, ENTRY)
        if offset >= first:
            return tail[(offset - first) * ENTRY_BYTES : (end - first) * ENTRY_BYTES].view(ENTRY)
        out = np.empty((end - offset) * ENTRY_BYTES, np.uint8)
        file_end = min(end, first)
        found = self._read_files(offset, out[: (file_end - offset) * ENTRY_BYTES])
        if found == file_end - offset and end > first:
            out[(first - offset) * ENTRY_BYTES :] = tail[: (end - first) * ENTRY_BYTES]
            found = end - offset
        entries = out[: found * ENTRY_BYTES].view(ENTRY)
        unwritten = np.flatnonzero(entries["size"] <= 0)
        return entries[: unwritten[0]] if len(unwritten) else entries

    def _pieces(self, offset: int, count: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield (path, byte in the file, first byte, end byte of the range) for each file that a range touches."""
        at = offset * ENTRY_BYTES
        end = at + count * ENTRY_BYTES
        while at < end:
            within = at % self._file_bytes
            piece_end = min(end, at - within + self._file_bytes)
            path = f"{self.directory}/{file_name(at - within)}"
            yield path, within, at - offset * ENTRY_BYTES, piece_end - offset * ENTRY_BYTES
            at = piece_end

    def _read_files(self, offset: int, out: Bytes) -> int:
        """Fill ``out`` from the files; return how many entries were there before the first missing byte."""
        for path, within, start, end in self._pieces(offset, len(out) // ENTRY_BYTES):
            got = self._files.read_at(path, within, out[start:end])
            if got < end - start:
                return (start + got) // ENTRY_BYTES
        return len(out) // ENTRY_BYTES

    # ---- files

    def write(self) -> int:
        """Write the entries that only memory holds; return their number. One thread at a time; raises disk errors.

        After an error only the files may have changed, and the next call writes the same bytes again.
        """
        with self._lock:
            if self.removed:
                return 0
            first, tail = self._tail
            start, end, pad_start, epoch = self.written_offset, self.max_offset, self._pad_start, self._epoch
        if start == end:
            return 0
        if pad_start is not None:
            self._write_files(pad_start, blanks(start - pad_start))
        self._write_files(start, tail[(start - first) * ENTRY_BYTES : (end - first) * ENTRY_BYTES])
        with self._lock:
            if self._epoch == epoch:
                self.written_offset = end
                self._pad_start = None
        return end - start

    def _write_files(self, offset: int, data: Bytes) -> None:
        for path, within, start, end in self._pieces(offset, len(data) // ENTRY_BYTES):
            self._files.write_at(path, within, data[start:end], self._file_bytes)

    def trim(self, keep_entries: int = 0) -> None:
        """Release the memory of written entries, all but the last ``keep_entries`` of the queue; with 0 all that it
        can."""
        with self._lock:
            first, tail = self._tail
            keep_from = max(first, min(self.written_offset, self.max_offset - keep_entries))
            live = tail[(keep_from - first) * ENTRY_BYTES : (self.max_offset - first) * ENTRY_BYTES]
            is_small = len(tail) <= TAIL_ENTRIES_MIN * ENTRY_BYTES  # the next entry would need it again
            if keep_entries == 0 or (len(live) * 2 < len(tail) and not is_small):
                self._replace_tail(keep_from, live, len(live))

    def remove(self) -> None:
        """Refuse writes from now on; the caller removes the files."""
        with self._lock:
            self.removed = True
            self._memory.add(-len(self._tail[1]))
            self._tail = (self.max_offset, np.empty(0, np.uint8))
            self._view = self._tail[1].data

    def _starts(self) -> list[int]:
        """Return the first entry of each file, ascending; raise ``CorruptQueue`` for a wrong name or size."""
        starts: list[int] = []
        for name in self._files.list(self.directory):
            path = f"{self.directory}/{name}"
            size = self._files.size(path)
            if len(name) != 20 or not name.isdecimal() or int(name) % self._file_bytes or size != self._file_bytes:
                if size == 0 and name.isdecimal():
                    continue  # created, but without its size yet when the process died
                raise CorruptQueue(
                    "consume queue refused",
                    why=f"{path} has {size} bytes, files here have {self._file_bytes}",
                    hint="restore mapped_file_size_consume_queue, or remove the directory to rebuild it",
                )
            starts.append(int(name) // ENTRY_BYTES)
        return sorted(starts)

    def _at(self, offset: int, count: int = 1) -> Entries:
        """Return ``count`` entries straight from the files, zeros where there are none."""
        out = np.zeros(count * ENTRY_BYTES, np.uint8)
        self._read_files(offset, out)
        return out.view(ENTRY)

    def _prefix(self, start: int, physical_end: int | None) -> int:
        """Return how many entries of the file that begins at ``start`` are written and point below ``physical_end``.

        First the first page, then a binary search over pages. The two entries before the end found are checked; if they
        do not fit (pages lost in a power cut), the whole file is read and the longest good prefix counts.
        """
        file_entries = self._file_bytes // ENTRY_BYTES

        def good(entries: Entries) -> NDArray[np.bool_]:
            fits: NDArray[np.bool_] = (entries["size"] > 0) & (entries["offset"] >= 0)
            if physical_end is not None:
                fits &= entries["offset"] < physical_end
            return fits

        window_at, window = 0, self._at(start, min(_PAGE_ENTRIES, file_entries))
        if good(window).all():
            low, end = len(window), file_entries  # entries below low are good, the one at end is not or does not exist
            while end - low > _WINDOW_ENTRIES:
                middle = (low + end) // 2
                if good(self._at(start + middle))[0]:
                    low = middle + 1
                else:
                    end = middle
            window_at, window = low, self._at(start + low, end - low)
        bad = np.flatnonzero(~good(window))
        high = window_at + (int(bad[0]) if len(bad) else len(window))
        tail_from = max(0, high - 3)
        if tail_from >= window_at:
            tail = window[tail_from - window_at : high - window_at]
        else:
            tail = self._at(start + tail_from, high - tail_from)
        if good(tail).all() and self._ascends(tail):
            return high
        entries = self._at(start, file_entries)
        offsets = entries["offset"].astype(np.int64)
        fits = good(entries)
        fits[1:] &= (offsets[1:] > offsets[:-1]) | is_blank(entries[:-1]) | is_blank(entries[1:])
        bad = np.flatnonzero(~fits)
        kept = int(bad[0]) if len(bad) else file_entries
        self._log.error(
            "consume_queue_damaged", topic=self.topic, queue_id=self.queue_id, file_offset=start, kept_entries=kept
        )
        return kept

    @staticmethod
    def _ascends(entries: Entries) -> bool:
        offsets = entries["offset"].astype(np.int64)[~is_blank(entries)]
        return bool((offsets[1:] > offsets[:-1]).all())

    def load(self) -> None:
        """Find the first and the last entry in the files. Raises ``CorruptQueue``."""
        starts = self._starts()
        file_entries = self._file_bytes // ENTRY_BYTES
        for start in reversed(starts):
            written = self._prefix(start, None)
            if written:  # else created but never written, and ignored
                self._used = True
                self._set_end(start + written)
                # Files before a missing one are left from an interrupted removal: a power cut may keep any of them.
                while start - file_entries in starts:
                    start -= file_entries
                self._set_min(start)
                return

    def _set_end(self, max_offset: int) -> None:
        with self._lock:
            self._epoch += 1
            self._pad_start = None
            self.written_offset = max_offset
            self._replace_tail(max_offset, np.empty(0, np.uint8), 0)
            self.max_offset = max_offset

    def _set_min(self, start: int) -> None:
        """Set ``min_offset`` to the first entry at or behind ``start`` that is no blank."""
        while start < self.max_offset:
            entries = self._at(start, min(_WINDOW_ENTRIES, self.max_offset - start))
            real = np.flatnonzero(~is_blank(entries))
            if len(real):
                start += int(real[0])
                break
            start += len(entries)
        self.min_offset = min(start, self.max_offset)

    def correct_min(self, log_min_offset: int) -> None:
        """Raise ``min_offset`` above the entries whose records the log no longer has (RocketMQ correctMinOffset)."""
        if log_min_offset > 0:
            self.min_offset = max(self.min_offset, self.first_from(log_min_offset))

    def first_from(self, physical_offset: int) -> int:
        """Return the queue offset of the first entry whose record begins at ``physical_offset`` or behind it;
        ``max_offset`` without one.
        """
        low, high = self.min_offset, self.max_offset
        probe = low  # most often nothing was removed, and one probe shows it
        while low < high:
            found = self.read(probe, 1)
            if len(found) and is_blank(found)[0]:  # a blank has no offset; take the next entry after the blanks
                found = self.read(probe, high - probe)
                found = found[~is_blank(found)][:1]
            if len(found) == 0 or int(found["offset"][0]) >= physical_offset:
                high = probe
            else:
                low = probe + 1
            probe = (low + high) // 2
        return low

    def next_file_offset(self, offset: int) -> int:
        """Return the first queue offset of the file behind the one that holds ``offset``."""
        file_entries = self._file_bytes // ENTRY_BYTES
        return offset - offset % file_entries + file_entries

    def expired_files(self) -> list[str]:
        """Return the paths of files that lie wholly below ``min_offset``; never the last one."""
        file_entries = self._file_bytes // ENTRY_BYTES
        last = (max(self.max_offset, 1) - 1) // file_entries * file_entries
        return [
            f"{self.directory}/{file_name(start * ENTRY_BYTES)}"
            for start in self._starts()
            if start + file_entries <= self.min_offset and start < last
        ]

    def truncate_to_physical(self, physical_end: int) -> None:
        """Drop every entry that points at or beyond ``physical_end``; its place in the files is zero again.

        Files without a remaining entry are removed, so that the queue's files are those of a queue that ended there.
        No thread may put, write or read meanwhile (recovery).
        """
        self.write()
        for name in self._files.list(self.directory):
            if self._files.size(f"{self.directory}/{name}") == 0:
                self._files.remove(f"{self.directory}/{name}")
        for start in reversed(self._starts()):
            path = f"{self.directory}/{file_name(start * ENTRY_BYTES)}"
            kept = self._prefix(start, physical_end)
            if kept:
                self._files.clear_from(path, kept * ENTRY_BYTES)
                self._set_end(start + kept)
                self.min_offset = min(self.min_offset, self.max_offset)
                return
            self._files.remove(path)
        self._set_end(0)
        self.min_offset = 0
        self._used = False

    def first_physical_offset(self) -> int:
        """Return the physical offset of the queue's first message; a huge offset without one."""
        first = self.read(self.min_offset, 1)
        return int(first["offset"][0]) if len(first) else 1 << 63

    def last_physical_end(self) -> int:
        """Return the end of the last record that an entry points to, 0 without entries."""
        last = self.read(self.max_offset - 1, 1) if self.max_offset > self.min_offset else np.empty(0, ENTRY)
        if len(last) == 0 or is_blank(last)[0]:
            return 0
        return int(last["offset"][0]) + int(last["size"][0])

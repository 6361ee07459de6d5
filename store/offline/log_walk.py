"""Walking a commit log from its files: good records in chunks, and findings about all other bytes.

Lives here: ``LogWalk``, its chunks and findings; reading a part of the log on its own, for parallel readers.

Records never cross files, and a file begins with a record. So each file can be walked by itself, and the result for a
byte does not depend on how the log was split.

Findings, in this order:

- a *group checksum* agrees: all bytes of the group are right, headers and properties included;
- it differs, but each record passes its own checks: *suspect*; the records are still yielded;
- bytes without one are checked record by record (``record_check``), which covers bodies and lengths only;
- bad bytes followed by good records are *damage*, and the walk continues after it;
- bad bytes followed by nothing good are the *tail*: an append unfinished when the broker died, or now under way.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.hashes import crc32
from pocketmq.common.record import (
    BLANK_BYTES_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
)
from pocketmq.common.record_columns import RecordColumns
from pocketmq.store.commitlog.checksums import good_entries
from pocketmq.store.commitlog.segment import segment_name
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError
from pocketmq.store.offline.layout import SegmentFile, StoreLayout
from pocketmq.store.offline.record_check import chain, good_columns
from pocketmq.store.offline.segment_bytes import WINDOW_BYTES, WINDOW_BYTES_MIN, SegmentBytes, head_of

RECORD_BYTES_MAX: Final = 64 << 20
"""Largest accepted record; a size field above it is damage. RocketMQ's default limit is 4 MiB and 64 KiB."""
CHECKSUM_FILE_BYTES_MAX: Final = 256 << 20
"""Larger checksum files are not read: one entry takes 20 bytes, so that is 13 million groups in one segment."""
RANGE_BYTES: Final = 64 << 20
"""About how large the pieces are of which a walk that begins within the log leaves some out."""
RECHECKS: Final = 5
PAUSES_MAX: Final = 50
"""How often one walk waits in order to check bytes again."""

Check = Literal["group", "record", "file", "read"]


@dataclass(slots=True, frozen=True)
class LogChunk:
    """Good records back to back from ``start``. ``columns.buffer`` is private memory of at most a few MiB (one large
    record has its own chunk); of a walk that ``reuses`` memory it is valid until the next item is asked for.
    ``by_group``: their group checksums agreed; ``is_suspect``: theirs differs, a finding follows.
    """

    start: int
    columns: RecordColumns
    by_group: bool
    is_suspect: bool = False

    @property
    def end(self) -> int:
        """Where the last record ends."""
        return self.start + len(self.columns.buffer)


@dataclass(slots=True, frozen=True)
class Checked:
    """Bytes [start, end) whose group checksums agreed, not checked further (``checksums_only``)."""

    start: int
    end: int


@dataclass(slots=True, frozen=True)
class Finding:
    """Bad bytes [start, end).

    ``damage``: no records, followed by good ones; ``suspect``: records whose group's checksum differs; ``tail``: the
    unfinished end of the log. ``check``: the check that failed.
    """

    kind: Literal["damage", "suspect", "tail"]
    start: int
    end: int
    why: str
    check: Check


@dataclass(slots=True, frozen=True)
class LogRange:
    """The part of one reader: the records that begin in [start, end) of one file."""

    path: str
    start: int
    end: int


Walked = LogChunk | Checked | Finding


class LogWalk:
    """Walks one store. Not for several threads; open one for each. Changes nothing, holds one file open.

    ``pause``: called before bytes of a store that may be open elsewhere are read again, since they may be half written.
    ``reuses``: read groups into the same memory again and again (fresh memory costs 0.1 µs a record of 200 bytes).
    """

    def __init__(
        self,
        file_system: FileSystem,
        layout: StoreLayout,
        *,
        use_checksums: bool = True,
        record_bytes_max: int = RECORD_BYTES_MAX,
        pause: Callable[[], None] | None = None,
        reuses: bool = False,
    ) -> None:
        self._reuses = reuses
        self._memory = np.empty(0, np.uint8)
        self._file_system = file_system
        self._layout = layout
        self._use_checksums = use_checksums
        self._record_bytes_max = record_bytes_max
        self._pause = pause
        self._opened: SegmentBytes | None = None
        self._groups: tuple[list[int], dict[int, tuple[int, int]]] = ([], {})
        self._has_records: dict[int, bool] = {}
        self._window_bytes = WINDOW_BYTES
        self._pauses = 0

    # ---- ranges

    def ranges(self, bytes_max: int | None = None) -> list[LogRange]:
        """Return the ranges of the log in order: one a file, or, where checksum files say where groups begin, pieces
        of about ``bytes_max``.

        Each record is in exactly one range, whoever walks them and in whatever order.
        """
        found: list[LogRange] = []
        for segment in self._layout.segments:
            cuts = [segment.base_offset]
            if bytes_max is not None:
                starts, _ = self._load_groups(segment)
                while cuts[-1] + bytes_max < segment.end_offset:
                    at = bisect_left(starts, cuts[-1] + bytes_max)
                    if at == len(starts):
                        break
                    cuts.append(starts[at])
            ends = [*cuts[1:], segment.end_offset]
            found += [LogRange(segment.path, start, end) for start, end in zip(cuts, ends, strict=True)]
        return found

    def all(self, begin: int = 0, *, checksums_only: bool = False) -> Iterator[Walked]:
        """Walk the log, files that are missing between others included; leave out ranges that end at or before
        ``begin``.

        In a store that may be open elsewhere the walk stops at the first unfinished end: a broker may have gone on into
        the next file since, and the records there must not follow a gap.
        """
        missing = list(self._layout.missing)
        for log_range in self.ranges(RANGE_BYTES if begin else None):
            while missing and missing[0][0] <= log_range.start:
                start, end = missing.pop(0)
                yield Finding("damage", start, end, "there is no file for this range", "file")
            if log_range.end <= begin:
                continue
            is_end = yield from self.one(log_range, checksums_only=checksums_only)
            if is_end and self._layout.is_open:
                return

    def one(self, log_range: LogRange, *, checksums_only: bool = False) -> Generator[Walked, None, bool]:
        """Walk one range; return whether the log ended in it. A file removed meanwhile (by a live broker)
        is a finding."""
        segment = self._layout.find(log_range.start)
        assert segment is not None, "a range of another store"
        try:
            self._open(segment)
            return (yield from self._walk(segment, log_range.start, log_range.end, checksums_only))
        except FileNotFoundError:
            yield Finding("damage", log_range.start, log_range.end, "the file has been removed meanwhile", "file")
        except StoreError as error:
            yield Finding("damage", log_range.start, log_range.end, f"{error.what}: {error.why}", "read")
        return False

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # ---- single records

    def record_at(self, offset: int) -> bytes | None:
        """Return the good record that starts at ``offset``, or None."""
        segment = self._layout.find(offset)
        if segment is None:
            return None
        try:
            self._open(segment)
            data, why = self._bytes.one(offset)
        except (FileNotFoundError, StoreError):
            return None
        return None if why else data.tobytes()

    # ---- inside

    def _open(self, segment: SegmentFile) -> None:
        if self._opened is not None and self._opened.segment is segment:
            return
        self.close()
        self._opened = SegmentBytes(self._file_system, segment, self._record_bytes_max, self._layout.is_open)
        self._groups = self._load_groups(segment) if self._use_checksums else ([], {})

    @property
    def _bytes(self) -> SegmentBytes:
        assert self._opened is not None
        return self._opened

    def _load_groups(self, segment: SegmentFile) -> tuple[list[int], dict[int, tuple[int, int]]]:
        """Return where groups start, and {start: (length, CRC)}; nothing where there is no usable file."""
        path = f"{self._layout.paths.checksums}/{segment_name(segment.base_offset)}"
        try:
            if self._file_system.size(path) > CHECKSUM_FILE_BYTES_MAX:
                return [], {}
            data = self._file_system.read_all(path)
        except (FileNotFoundError, StoreError):
            return [], {}
        entries = good_entries(data, segment.base_offset, segment.end_offset - segment.base_offset)
        rows = zip(entries["offset"].tolist(), entries["length"].tolist(), entries["crc"].tolist(), strict=True)
        groups = {offset: (length, crc) for offset, length, crc in rows if length <= self._record_bytes_max}
        return sorted(groups), groups

    def _walk(self, segment: SegmentFile, at: int, stop: int, checksums_only: bool) -> Generator[Walked, None, bool]:
        begin = at
        why = ""
        while at < stop:
            size, magic = head_of(self._bytes.read(at, BLANK_BYTES_MIN))
            if magic == MAGIC_BLANK and size == segment.end_offset - at:
                return False
            for item in self._run(segment, at, stop, checksums_only):
                if isinstance(item, str):
                    why = item
                    break
                yield item
                at = max(at, item.end)  # of a suspect range too: its records came before
            else:
                continue
            finding = self._judge(segment, at, stop, why)
            if (finding is None or finding.kind == "tail") and self._goes_on(segment):
                continue  # a broker has filled this file since, and begun the next one
            if finding is None:
                return True
            if finding.kind == "damage" and self._is_whole_now(segment, at):
                continue  # written between the two checks, like the bytes after it
            yield finding
            at = finding.end
            if finding.kind == "tail":
                return True
        assert at >= begin
        return False

    def _run(self, segment: SegmentFile, at: int, stop: int, checksums_only: bool) -> Iterator[Walked | str]:
        """Yield good records from ``at`` on; end before a blank, or, with the reason, before bytes without a record."""
        starts, groups = self._groups
        while at < stop:
            run, end = self._group_run(at, stop)
            if run:
                data = self._read_groups(at, end - at)
                good_end = self._check_groups(data, at, run)
                if good_end > at:
                    if checksums_only:
                        yield Checked(at, good_end)
                        at = good_end
                        continue
                    begin = at
                    for chunk in self._group_chunks(data, at, good_end):
                        yield chunk
                        at = chunk.end
                    if at == good_end:
                        continue
                    assert at >= begin
            entry = groups.get(at)
            if entry is not None:
                limit = at + entry[0]
            else:
                following = bisect_right(starts, at)
                limit = starts[following] if following < len(starts) else segment.end_offset
            limit = min(limit, stop)
            begin = at
            for item in self._record_run(segment, at, limit):
                if isinstance(item, str):
                    if item:
                        yield item
                    return
                yield item if entry is None else replace(item, is_suspect=True)
                at = item.end
            if entry is not None and at >= begin + entry[0]:
                yield Finding("suspect", begin, begin + entry[0], "the checksum of the group differs", "group")

    def _read_groups(self, at: int, length: int) -> NDArray[np.uint8]:
        if not self._reuses:
            return self._bytes.read(at, length)
        if len(self._memory) < length:
            self._memory = np.empty(max(length, WINDOW_BYTES), np.uint8)
        return self._bytes.read(at, length, self._memory)

    @staticmethod
    def _group_chunks(data: NDArray[np.uint8], begin: int, end: int) -> Iterator[LogChunk]:
        """Yield the records of groups whose checksums agree; end early if a group contains no valid record."""
        at = begin
        while at < end:
            piece = data[at - begin : end - begin]
            sizes, chained = chain(piece, min(len(piece), WINDOW_BYTES))
            if chained == 0:  # one larger than a window
                size, _ = head_of(piece)
                sizes, chained = chain(piece, min(len(piece), size))
            columns = good_columns(piece, sizes, at, check_crc=False)
            if len(columns):
                yield LogChunk(at, columns, True)
                at += len(columns.buffer)
            if len(columns) < len(sizes) or not len(sizes):
                return

    def _group_run(self, at: int, stop: int) -> tuple[list[tuple[int, int, int]], int]:
        """Return consecutive groups from ``at`` on that fill about one window, and where they end."""
        groups = self._groups[1]
        run: list[tuple[int, int, int]] = []
        end = at
        while end < stop:
            entry = groups.get(end)
            if entry is None or (run and end + entry[0] - at > WINDOW_BYTES):
                break
            run.append((end, *entry))
            end += entry[0]
        return run, end

    @staticmethod
    def _check_groups(data: NDArray[np.uint8], at: int, run: list[tuple[int, int, int]]) -> int:
        """Return where the leading groups with the right checksum end."""
        view = data.data
        end = at
        for offset, length, crc in run:
            if offset - at + length > len(view) or crc32(view[offset - at : offset - at + length]) != crc:
                break
            end = offset + length
        return end

    def _record_run(self, segment: SegmentFile, at: int, limit: int) -> Iterator[LogChunk | str]:
        """Yield good records that begin in [at, limit); then an empty text before a blank, else the reason."""
        while at < limit:
            data = self._bytes.read(at, self._window_bytes)
            sizes, _ = chain(data, len(data))
            if at + int(sizes.sum()) > limit:  # only those that begin below the limit
                ends = np.cumsum(sizes)
                sizes = sizes[: int(np.searchsorted(ends, limit - at)) + 1]
            columns = good_columns(data, sizes, at) if len(sizes) else None
            if columns is None or len(columns) == 0:
                size, magic = head_of(data)
                if magic == MAGIC_BLANK and size == segment.end_offset - at:
                    yield ""
                    return
                data, why = self._bytes.one(at)
                if why:
                    yield why
                    return
                columns = good_columns(data, np.array([len(data)], np.int64), at)
                if len(columns) == 0:
                    yield "the record contradicts itself"
                    return
            yield LogChunk(at, columns, False)
            at += len(columns.buffer)
            if len(columns) == len(sizes):
                self._window_bytes = min(WINDOW_BYTES, self._window_bytes * 4)

    def _is_whole_now(self, segment: SegmentFile, at: int) -> bool:
        """Check again: bytes of a store that is open elsewhere may have been half written at the first check."""
        if not self._layout.is_open:
            return False
        for _ in range(RECHECKS):
            if not self._bytes.one(at)[1]:
                return True
            size, magic = head_of(self._bytes.read(at, BLANK_BYTES_MIN))
            if magic == MAGIC_BLANK and size == segment.end_offset - at:
                return True
            if self._pause is None or self._pauses >= PAUSES_MAX:
                return False
            self._pauses += 1
            self._pause()
        return False

    def _judge(self, segment: SegmentFile, at: int, stop: int, why: str) -> Finding | None:
        """Classify the bad bytes at ``at``; None: the log ends here, nothing is wrong."""
        self._window_bytes = WINDOW_BYTES_MIN
        begin = at + 1
        head = self._bytes.read(at, 64)
        size, magic = head_of(head)
        own = int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8].tobytes(), "big", signed=True)
        if magic in (MAGIC_V1, MAGIC_V2) and own == at and RECORD_BYTES_MIN <= size <= segment.end_offset - at:
            begin = at + size  # a plausible header: its body is chosen by a sender and may look like a record
        good_at = self._bytes.search(begin)
        if good_at is not None:
            return Finding("damage", at, min(good_at, stop), why, "record")
        have_end = segment.base_offset + segment.have_bytes
        if self._later_records(segment):
            if have_end < segment.end_offset:
                why = f"the file ends after {segment.have_bytes} bytes"
            check: Check = "file" if have_end < segment.end_offset else "record"
            return Finding("damage", at, min(segment.end_offset, stop), why, check)
        extent = self._bytes.nonzero_end(at)
        if extent is None:
            return None
        return Finding("tail", at, extent, why, "record")

    def _holds_record(self, segment: SegmentFile) -> bool:
        try:
            there = SegmentBytes(self._file_system, segment, self._record_bytes_max, self._layout.is_open)
        except (FileNotFoundError, StoreError):
            return False
        try:
            at = segment.base_offset
            return not there.one(at)[1] or there.search(at) is not None
        except StoreError:
            return False
        finally:
            there.close()

    def _goes_on(self, segment: SegmentFile) -> bool:
        """Look again, in a store that may be open elsewhere, whether a file behind this one holds a good record."""
        if not self._layout.is_open:
            return False
        self._has_records = {base: True for base, known in self._has_records.items() if known}
        return self._later_records(segment)

    def _later_records(self, segment: SegmentFile) -> bool:
        """Return whether a later file holds a good record."""
        found = False
        for later in self._layout.segments:
            if later.base_offset <= segment.base_offset or found:
                continue
            known = self._has_records.get(later.base_offset)
            if known is None:
                known = self._holds_record(later)
                self._has_records[later.base_offset] = known
            found = known
        return found

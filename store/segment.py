"""One file of the commit log.

Lives here: ``Segment``: the only way by which bytes enter the log (``store``), reads, sync, zeroing, names.
Not here: which segments exist (``segment_queue``), how one is made ahead of its use (``allocate``), record boundaries.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.errors import DiskError
from pocketmq.store.file_system import Bytes, FileSystem, MappedFile, StoreFile

NAME_DIGITS: Final = 20
HOLE_BYTES_MIN: Final = 1 << 20


def segment_name(base_offset: int) -> str:
    """Return a segment's file name: its first offset in 20 digits (RocketMQ UtilAll.offset2FileName)."""
    return f"{base_offset:0{NAME_DIGITS}d}"


class Segment:
    """Bytes [base_offset, end_offset) of the log, in one file of exactly ``size_bytes``.

    Positions are bytes from the start of the file. Reads go through ``preadv`` into private memory, from any thread.
    While it takes appends it is *open*: a handle that stays until ``seal``, and a map in mapped mode. The handle must
    stay until the last sync, because a failed write-back is reported to the handles that were open then.
    """

    __slots__ = (
        "_append_file",
        "_file_system",
        "_map",
        "_read_file",
        "base_offset",
        "end_offset",
        "path",
        "size_bytes",
    )

    def __init__(self, file_system: FileSystem, path: str, base_offset: int, size_bytes: int) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset + size_bytes
        self.size_bytes = size_bytes
        self.path = path
        self._file_system = file_system
        self._append_file: StoreFile | None = None
        self._read_file: StoreFile | None = None
        self._map: MappedFile | None = None

    def open(self, mapped: bool) -> None:
        """Make ready for ``store``."""
        if self._append_file is None:
            self._append_file = self._file_system.open(self.path)
        if mapped and self._map is None:
            self._map = self._append_file.map()

    @property
    def is_open(self) -> bool:
        """Whether ``store`` may be called."""
        return self._append_file is not None

    def store(self, position: int, data: Bytes) -> None:
        """Put ``data`` at ``position``: a copy into the map, or a write. After an error any part of it may be there."""
        assert position + len(data) <= self.size_bytes
        if self._map is not None:
            self._map.store(position, data)
        else:
            assert self._append_file is not None, "store into a segment that is not open"
            self._append_file.write_at(position, data)

    def read_into(self, position: int, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` from ``position``."""
        file = self._append_file or self._read_file or self.open_for_read()
        if file.read_into(position, out) != out.size:
            raise DiskError(
                "a segment is shorter than its size",
                why=f"{self.path} ends within [{position}, {position + out.size})",
                hint="another program has cut the file",
            )

    def open_for_read(self) -> StoreFile:
        """Open the file if it is not open; return its handle."""
        file = self._append_file or self._read_file
        if file is None:
            file = self._read_file = self._file_system.open(self.path)
        return file

    def close_read(self) -> None:
        """Give the reading handle back; readers that hold it end undisturbed."""
        self._read_file = None

    def data_ranges(self) -> list[tuple[int, int]]:
        """Return the [start, end) positions outside of which all bytes are zero; holes below 1 MiB are not left out.

        Ask before reading: reading a hole makes pages for it, and more ahead, which then count as data.
        """
        file = self.open_for_read()
        ranges: list[tuple[int, int]] = []
        start = file.next_data(0)
        while start is not None and start < self.size_bytes:
            end = min(file.next_hole(start), self.size_bytes)
            if ranges and start - ranges[-1][1] < HOLE_BYTES_MIN:
                start = ranges.pop()[0]
            ranges.append((start, end))
            start = file.next_data(end) if end < self.size_bytes else None
        return ranges

    def zero(self, position: int, length: int) -> None:
        """Make a range read as zeros. Durable after ``sync``."""
        self.open_for_read().zero(position, length)

    def sync(self) -> None:
        """Return when all bytes are durable."""
        self.open_for_read().sync()

    def seal(self) -> None:
        """Take no more appends: give map and handle back (they end when nobody uses them any more)."""
        self._map = None
        self._append_file = None

    def close(self) -> None:
        """Give everything back."""
        self.seal()
        self.close_read()

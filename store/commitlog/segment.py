"""One file of the commit log.

Lives here: ``Segment``: the only way by which bytes enter the log (``store``, and ``commit`` where a write buffer is in
between), reads, sync, zeroing, names.

No small copy goes into a map: a page that is absent, or just being written back, blocks the thread that touches it for
as long as the disk takes, and a copy that holds the GIL blocks the whole process, fast failure included. Small data is
written with ``pwrite``, which always releases the GIL. On Linux and macOS a file's shared map and its reads and writes
are the same memory.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.hashes import crc32
from pocketmq.store.commitlog.windows import Windows
from pocketmq.store.commitlog.write_buffer_pool import WriteBuffer
from pocketmq.store.config import PAGE_BYTES
from pocketmq.store.disk.file_system import Bytes, FileSystem, MappedFile, StoreFile
from pocketmq.store.errors import DiskError

NAME_DIGITS: Final = 20
HOLE_BYTES_MIN: Final = 1 << 20
HEAD_BYTES: Final = 8
"""Size and magic, with which records and blanks begin."""
GIL_HELD_COPY_BYTES_MAX: Final = 500
"""The largest copy of bytes for which NumPy keeps the GIL (ndarraytypes.h, NPY_BEGIN_THREADS_THRESHOLDED)."""
WRITTEN_WHOLE_BYTES_MAX: Final = 4096
"""Up to this size data is written in one piece instead of copied into a map. CPU time on fresh segments, ext4 and
tmpfs, against two copies: 0.5 to 0.8 at 250 bytes to 4 KB; a copy with a written head 1.1 to 1.3.

A kill can only truncate such a write: its beginning is there and nothing follows, as in ``append_mode=written``.
"""


def segment_name(base_offset: int) -> str:
    """Return a segment's file name: its first offset in 20 digits (RocketMQ UtilAll.offset2FileName)."""
    return f"{base_offset:0{NAME_DIGITS}d}"


class Segment:
    """Bytes [base_offset, end_offset) of the log, in one file of exactly ``size_bytes``.

    Positions are bytes from the start of the file. Reads go through ``preadv`` into private memory, from any thread.
    While it takes appends it is *open*: a handle that stays until ``seal``, and a map in mapped mode. The handle must
    stay until the last sync, because a failed write-back is reported to the handles that were open then.

    A *buffered* segment takes its appends into borrowed write buffers (``windows``), without a gap; ``buffered_end`` is
    where they end. ``commit`` writes only below that: every byte it writes was stored here since its buffer was
    borrowed, so what the buffer held before never reaches the file. What is left out, the rest of a blank end, reads as
    zeros: the file was reserved, and nothing else was written to it.
    """

    __slots__ = (
        "_append_file",
        "_buffer",
        "_file_system",
        "_map",
        "_read_file",
        "_windows",
        "base_offset",
        "buffered_end",
        "end_offset",
        "on_seal",
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
        self._buffer: WriteBuffer | None = None
        self._windows: Windows | None = None
        self.buffered_end = 0
        self.on_seal: Callable[[NDArray[np.uint8]], None] | None = None
        """Called with the map when it is released, so that its lock in RAM can be undone."""

    def open(self, mapped: bool, windows: Windows | None = None) -> None:
        """Prepare for ``store``: into ``windows``, a map, or by writes."""
        if self._append_file is None:
            self._append_file = self._file_system.open(self.path)
        if windows is not None:
            assert self._map is None
            assert self._windows is None
            self._windows = windows
            self._buffer = windows.newest
            self.buffered_end = windows.position
        elif mapped and self._map is None:
            self._map = self._append_file.map()

    @property
    def is_open(self) -> bool:
        """Whether ``store`` may be called."""
        return self._append_file is not None

    @property
    def is_buffered(self) -> bool:
        """Whether stored bytes go to a write buffer and reach the file by ``commit``."""
        return self._windows is not None

    @property
    def map(self) -> MappedFile | None:
        """The map, while there is one."""
        return self._map

    def store(self, position: int, data: Bytes) -> None:
        """Store ``data`` at ``position``: copied into the buffer or map, or written; only large data is copied into a
        map, after which its head is written. After an error any part may be there, but in a buffer none of it counts.

        Raises ``NoWindow`` when too few write buffers are free; nothing was stored then (``store_through``).
        """
        size_bytes = data.nbytes if type(data) is memoryview else len(data)
        end = position + size_bytes
        assert end <= self.size_bytes
        buffer = self._buffer
        if buffer is not None:
            assert position == self.buffered_end, "a gap in a write buffer would show what it held before"
            if end > buffer.end:
                assert self._windows is not None
                self._buffer = self._windows.store(self.base_offset, position, data)
                self.buffered_end = end
                return
            start, stop = position - buffer.start, end - buffer.start
            array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
            if buffer.swapped is None:  # this copy cannot stall
                buffer.array[start:stop] = array
            else:
                buffer.put(start, array)
            if buffer.words is not None:
                buffer.publish(stop, crc32(data, buffer.crc))
            self.buffered_end = end
        elif self._map is not None:
            assert self._append_file is not None
            if size_bytes <= WRITTEN_WHOLE_BYTES_MAX or PAGE_BYTES - 8 < position % PAGE_BYTES < PAGE_BYTES - 4:
                self._append_file.write_at(position, data)
                return
            # The first eight bytes last: a zero magic means that no group was finished (``torn_tail``). A kill can cut
            # a write at the end of a page; half a magic would not be zero, so a group whose magic spans two pages is
            # written above.
            rest = data[HEAD_BYTES:]
            assert size_bytes - HEAD_BYTES > GIL_HELD_COPY_BYTES_MAX
            self._map.store(position + HEAD_BYTES, rest)
            self._append_file.write_at(position, bytes(data[:HEAD_BYTES]))
        else:
            assert self._append_file is not None, "store into a segment that is not open"
            self._append_file.write_at(position, data)

    def is_in_memory(self, position: int, size_bytes: int) -> bool:
        """Return whether ``store`` would be one copy into the write buffer that is in use."""
        buffer = self._buffer
        return buffer is not None and position + size_bytes <= buffer.end

    def commit(self, position: int, end: int) -> None:
        """Write the bytes stored within [position, end) from the buffer to the file; without a buffer they are there
        already. After an error any part may be there: write it again.
        """
        windows = self._windows
        end = min(end, self.buffered_end)
        if windows is not None and position < end:
            assert self._append_file is not None
            windows.write_to(self._append_file, position, end)

    def store_through(self, position: int, data: Bytes) -> None:
        """Store ``data`` in the file itself, because too few write buffers are free. All bytes before it must be in the
        file already. Later data goes to a buffer again, once one is free.
        """
        assert position == self.buffered_end
        assert self._windows is not None
        assert self._append_file is not None
        self._append_file.write_at(position, data)
        self._buffer = self._windows.skip(position, position + len(data))
        self.buffered_end = position + len(data)

    def retreat(self, position: int) -> None:
        """Forget what was stored from ``position`` on, in a buffered segment: it was refused in the end."""
        if self._windows is not None and position < self.buffered_end:
            self._buffer = self._windows.retreat(position)
            self.buffered_end = position

    def release(self, end: int) -> None:
        """Return the write buffers whose positions are all below ``end``; their content must be in the file."""
        windows = self._windows
        if windows is not None:
            windows.release(end)
            if end == self.size_bytes:
                windows.discard()
                self._windows = self._buffer = None

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
        """Release the reading handle; readers that hold it finish undisturbed."""
        self._read_file = None

    def data_ranges(self) -> list[tuple[int, int]]:
        """Return the [start, end) positions outside of which all bytes are zero; holes below 1 MiB are included.

        Call it before reading: reading a hole creates pages for it, and read-ahead ones, which then count as data.
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
        """Accept no more appends: release map and handle (they end with their last user)."""
        mapped, self._map = self._map, None
        self._append_file = None
        if mapped is not None and self.on_seal is not None:
            self.on_seal(mapped.view())

    def close(self) -> None:
        """Release everything."""
        self.seal()
        self.close_read()

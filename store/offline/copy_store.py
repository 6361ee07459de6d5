"""Writing a clean store from the good records of another one.

Lives here: ``StoreCopy``: records of all or some topics, back to back in new files, with queues, index and checkpoint.

A record keeps everything except its physical offset. So message ids made from offsets (``offsetMsgId``) and the offsets
in prepared transactions belong to the old store. Queue offsets stay; the places of omitted records in the queues are
blank.
"""

import posixpath
import struct
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.record import BLANK_BYTES_MIN, MAGIC_BLANK, PHYSICAL_OFFSET_AT
from pocketmq.common.record_columns import windows
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.commitlog.segment import segment_name
from pocketmq.store.disk.file_system import FileSystem, StoreFile
from pocketmq.store.offline.errors import RepairRefused
from pocketmq.store.offline.files import copy_file, require_space
from pocketmq.store.offline.index_files import ROCKETMQ_ENTRIES, ROCKETMQ_SLOTS, geometry
from pocketmq.store.offline.log_walk import Finding, LogChunk
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.rebuild import IndexBuilder, QueueBuilder, groups_of

_BLANK: Final = struct.Struct(">II")
Rows = Callable[[LogChunk], NDArray[np.bool_] | None]


class _LogWriter:
    """Appends records to new files of ``segment_bytes``, each ended by a blank."""

    def __init__(self, file_system: FileSystem, directory: str, segment_bytes: int) -> None:
        self._file_system = file_system
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._file: StoreFile | None = None
        self.end_offset = 0

    def append(self, buffer: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Append records that lie back to back in ``buffer`` (private, writable)."""
        row = 0
        ends = starts + sizes
        while row < len(starts):
            if self._file is None:
                self._open()
            position = self.end_offset % self._segment_bytes
            room = self._segment_bytes - BLANK_BYTES_MIN - position
            stop = int(np.searchsorted(ends, int(starts[row]) + room, "right"))
            if stop == row:
                self._finish(position)
                continue
            first = int(starts[row])
            offsets = (starts[row:stop] - first + self.end_offset).astype(">i8")
            windows(buffer, 8)[starts[row:stop] + PHYSICAL_OFFSET_AT] = offsets.view("V8")
            assert self._file is not None
            self._file.write_at(position, buffer[first : int(ends[stop - 1])])
            self.end_offset += int(ends[stop - 1]) - first
            row = stop

    def _open(self) -> None:
        base = self.end_offset - self.end_offset % self._segment_bytes
        self._file = self._file_system.open(f"{self._directory}/{segment_name(base)}", create=True)
        self._file.resize(self._segment_bytes)

    def _finish(self, position: int) -> None:
        """Write the blank end of a file; the next append opens another."""
        assert self._file is not None
        left = self._segment_bytes - position
        self._file.write_at(position, _BLANK.pack(left, MAGIC_BLANK))
        self._file.sync()
        self._file.close()
        self._file = None
        self.end_offset += left

    def close(self) -> None:
        """Sync and close the last file."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None


class StoreCopy:
    """One copy. ``target`` must be missing or empty."""

    def __init__(
        self,
        reader: StoreReader,
        target: str,
        file_system: FileSystem,
        *,
        clock: Clock | None = None,
        on_finding: Callable[[Finding], None] | None = None,
    ) -> None:
        self._reader = reader
        self._target = target.rstrip("/")
        self._files = file_system
        self._clock: Clock = SystemClock() if clock is None else clock
        self._on_finding = on_finding
        self.records = 0
        self.bytes = 0
        self.skipped: list[str] = []
        """Records that are copied and enter no queue, and why."""

    def run(self, rows: Rows | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Copy the records that ``rows`` selects (None: all). Raises ``RepairRefused``, ``StoreFull`` before it begins,
        and disk errors, which leave an unfinished copy.
        """
        files, target, layout = self._files, self._target, self._reader.layout
        if files.exists(target) and files.list(target):
            raise RepairRefused("not copied", why=f"{target} is not empty", hint="name a directory that does not exist")
        parent = target
        while not files.exists(parent):
            parent = posixpath.dirname(parent) or "/"
        if rows is None:
            require_space(files, parent, layout.log_bytes, "not copied")
        files.make_dirs(f"{target}/commitlog")
        for path in layout.config_files:
            copy_file(files, path, f"{target}/config/{posixpath.basename(path)}", self._reader.file_system)
        writer = _LogWriter(files, f"{target}/commitlog", layout.segment_bytes)
        last_ms = 0
        try:
            for item in self._reader.walk():
                if progress is not None:
                    progress(item.end - item.start)
                if isinstance(item, LogChunk):
                    last_ms = self._append(writer, item, rows) or last_ms
                elif isinstance(item, Finding) and self._on_finding is not None:
                    self._on_finding(item)
        finally:
            writer.close()
        if self.records:
            self._build()
        checkpoint = files.open(f"{target}/checkpoint", create=True)
        try:
            checkpoint.write_at(0, Checkpoint(last_ms, last_ms, last_ms).encode())
            checkpoint.sync()
        finally:
            checkpoint.close()
        files.sync_all(target)

    def _append(self, writer: _LogWriter, chunk: LogChunk, rows: Rows | None) -> int:
        columns = chunk.columns
        chosen = None if rows is None else rows(chunk)
        buffer, starts, sizes = columns.buffer, columns.starts, columns.sizes
        times = columns.store_timestamps
        if chosen is not None and not chosen.all():
            picked = np.flatnonzero(chosen)
            if len(picked) == 0:
                return 0
            pieces = [buffer[starts[row] : starts[row] + sizes[row]] for row in picked.tolist()]
            buffer, sizes, times = np.concatenate(pieces), sizes[picked], times[picked]
            starts = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.int64)
        elif not buffer.flags.writeable:
            buffer = buffer.copy()
        writer.append(buffer, starts, sizes)
        self.records += len(starts)
        self.bytes += int(sizes.sum())
        return int(times[-1])

    def _build(self) -> None:
        """Build queues and index from the copied log."""
        layout = self._reader.layout
        numbers = next(
            (found for _, size in layout.index_files if (found := geometry(size, self._reader.index_numbers))), None
        )
        slots, entries_max = numbers or (ROCKETMQ_SLOTS, ROCKETMQ_ENTRIES)
        queues = QueueBuilder(self._files, self._target, self._clock, queue_file_bytes=layout.queue_file_bytes)
        index = IndexBuilder(self._files, self._target, slots, entries_max)
        copied = StoreReader.open(self._target, file_system=self._files)
        try:
            for item in copied.walk():
                if isinstance(item, LogChunk):
                    groups = list(groups_of(item))
                    for group in groups:
                        index.add(group)
                    queues.add(item, groups)
        finally:
            copied.close()
            queues.close()
            index.close()
            self.skipped = sorted(queues.skipped)

"""A store opened for reading only: live, stopped, a copy, ours or RocketMQ's.

Lives here: ``StoreReader``, for commands and for the pipeline: ranges for parallel readers, chunks of records
as columns, queues, index files, small files.

    reader = StoreReader.open("/var/lib/pocketmq")
    for log_range in reader.ranges(bytes_max=64 << 20): # hand each to a task; a task opens its own StoreReader
        for item in reader.walk(log_range):
            if isinstance(item, LogChunk):
                item.columns                           # RecordColumns: every header field as an array

It takes no lock and creates nothing, so a broker may have the store open. Records that the broker appends after
``open`` to existing files are read as the walk reaches them; half-written records are left out.
"""

import os.path
from collections.abc import Callable, Iterator

from pocketmq.store.checkpoint import Positions, StorePaths
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.disk.queue_paths import queue_directory
from pocketmq.store.errors import StoreError
from pocketmq.store.offline.index_files import IndexReader, open_index
from pocketmq.store.offline.layout import StoreLayout, read_layout
from pocketmq.store.offline.log_walk import RECORD_BYTES_MAX, Checked, Finding, LogChunk, LogRange, LogWalk, Walked
from pocketmq.store.offline.queue_files import QueueFiles
from pocketmq.store.offline.read_only import ReadOnlyFileSystem
from pocketmq.store.offline.small_files import CheckpointFile, read_checkpoint, read_positions

__all__ = ["Checked", "Finding", "LogChunk", "LogRange", "StoreReader", "Walked"]

QUEUE_FILES_OPEN_MAX = 128
NEW_FILES_LOOKS_MAX = 1000
"""How often names are listed again for a record beyond the last known file; false entries cost no more."""


class StoreReader:
    """One opened store. Not for several threads: open one for each (it costs a listing of names)."""

    def __init__(
        self,
        file_system: FileSystem,
        layout: StoreLayout,
        *,
        use_checksums: bool = True,
        record_bytes_max: int = RECORD_BYTES_MAX,
        pause: Callable[[], None] | None = None,
        index_numbers: tuple[int, int] | None = None,
        reuses: bool = False,
    ) -> None:
        self.file_system = file_system
        self.layout = layout
        self.index_numbers = index_numbers
        self._walk = LogWalk(
            file_system,
            layout,
            use_checksums=use_checksums,
            record_bytes_max=record_bytes_max,
            pause=pause,
            reuses=reuses,
        )
        self._record_bytes_max = record_bytes_max
        self._lookups = self._lookups_in(layout)
        self._lookups_end = layout.end_offset
        self._looks_left = NEW_FILES_LOOKS_MAX
        self.queue_cache = FileCache(file_system, QUEUE_FILES_OPEN_MAX)

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        file_system: FileSystem | None = None,
        use_checksums: bool = True,
        record_bytes_max: int = RECORD_BYTES_MAX,
        pause: Callable[[], None] | None = None,
        index_numbers: tuple[int, int] | None = None,
        reuses: bool = False,
    ) -> "StoreReader":
        """Open a directory: the store, or its ``commitlog``.

        ``pause``: waits briefly before bytes that a broker may be writing are read again. ``index_numbers``: slots and
        entries of index files, where the file size is ambiguous. ``reuses``: a chunk is valid until the next. Raises
        ``NotAStore``, ``EmptyStore``, ``MixedSegments``, ``StorePermission``.
        """
        files = ReadOnlyFileSystem(OsFileSystem() if file_system is None else file_system)
        layout = read_layout(files, os.path.abspath(os.path.expanduser(directory)))
        return cls(
            files,
            layout,
            use_checksums=use_checksums,
            record_bytes_max=record_bytes_max,
            pause=pause,
            index_numbers=index_numbers,
            reuses=reuses,
        )

    @property
    def paths(self) -> StorePaths:
        """Where the parts of the store are."""
        return self.layout.paths

    def close(self) -> None:
        """Close the files."""
        self._walk.close()
        self._lookups.close()
        self.queue_cache.close()

    # ---- the log

    def ranges(self, bytes_max: int | None = None) -> list[LogRange]:
        """Return the ranges of the log for parallel readers; see ``LogWalk.ranges``."""
        return self._walk.ranges(bytes_max)

    def walk(
        self, log_range: LogRange | None = None, *, begin: int = 0, checksums_only: bool = False
    ) -> Iterator[Walked]:
        """Walk a range, or the whole log, or what of it does not end at or before ``begin``."""
        if log_range is None:
            return self._walk.all(begin, checksums_only=checksums_only)
        return self._walk.one(log_range, checksums_only=checksums_only)

    def chunks(
        self,
        log_range: LogRange | None = None,
        on_finding: Callable[[Finding], None] | None = None,
        *,
        begin: int = 0,
    ) -> Iterator[LogChunk]:
        """Walk and yield only good records; findings go to ``on_finding``."""
        for item in self.walk(log_range, begin=begin):
            if isinstance(item, LogChunk):
                yield item
            elif isinstance(item, Finding) and on_finding is not None:
                on_finding(item)

    def _lookups_in(self, layout: StoreLayout) -> LogWalk:
        return LogWalk(self.file_system, layout, use_checksums=False, record_bytes_max=self._record_bytes_max)

    def _look_for_new_files(self) -> None:
        """Include in lookups the log files that a live broker has made since ``open``."""
        try:
            layout = read_layout(self.file_system, self.paths.root)
        except StoreError:
            return
        self._lookups.close()
        self._lookups = self._lookups_in(layout)
        self._lookups_end = layout.end_offset
        self._looks_left = NEW_FILES_LOOKS_MAX

    def record_at(self, offset: int) -> bytes | None:
        """Return the good record at a physical offset, or None."""
        if offset >= self._lookups_end and self.layout.is_open and self._looks_left:
            self._looks_left -= 1
            self._look_for_new_files()
        return self._lookups.record_at(offset)

    # ---- derived files

    def queue(self, topic: str, queue_id: int) -> QueueFiles | None:
        """Return a consume queue, None if there is none."""
        files = self.layout.queues.get((topic, queue_id))
        if files is None:
            return None
        directory = queue_directory(self.paths.root, topic, queue_id)
        return QueueFiles(topic, queue_id, directory, files, self.queue_cache)

    def queues(self) -> Iterator[QueueFiles]:
        """Yield every consume queue."""
        for topic, queue_id in sorted(self.layout.queues):
            queue = self.queue(topic, queue_id)
            assert queue is not None
            yield queue

    def index_readers(self) -> Iterator[tuple[str, IndexReader | str]]:
        """Yield (path, reader or the reason why there is none) of every index file; the caller closes them."""
        for path, size_bytes in self.layout.index_files:
            yield path, open_index(self.file_system, path, size_bytes, self.index_numbers)

    def checkpoint(self) -> CheckpointFile | None:
        """Return RocketMQ's checkpoint."""
        return read_checkpoint(self.file_system, self.paths)

    def positions(self) -> Positions | None:
        """Return our positions."""
        return read_positions(self.file_system, self.paths)

"""The key index: finds messages by unique id or key.

Lives here: the files in order, the worker that inserts, its watermark, queries, the start after a stop.

The index follows the dispatcher. It has its own worker and watermark because inserting costs more than all other
dispatch together, and only queries wait for it.
"""

import datetime
import posixpath
import threading
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.commitlog.group_feed import FEED_BYTES_MAX, FEED_GROUPS_MAX, GroupFeed, LogColumns, LogSource
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.time_index import store_time_at
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.index.index_file import PENDING_ENTRIES_MAX, IndexFile
from pocketmq.store.index.index_keys import KeyHasher, index_hash

PASS_RECORDS: Final = 1024
"""Records that wake the worker; half the cost per key of passes of 100 (bench/own/queues.py)."""
PASS_RECORDS_MAX: Final = 4096
PASS_WAIT_MS: Final = 100
"""Longest wait of a record for others."""
WRITE_INTERVAL_MS: Final = 10_000
"""How often slots and header are written: under load all slot pages change, 20 MB each time."""
QUERY_WAIT_MS: Final = 2000
QUERY_NUM_MAX: Final = 64
"""RocketMQ IndexService.maxMsgsNumBatch."""
RETRY_AFTER_MS: Final = 1000.0
_FILES_OPEN_MAX: Final = 16
_TIMESTAMP_MAX: Final = 253_402_214_400_000  # 9999-12-31, the last day that a name can have


@dataclass(slots=True)
class KeyQueryResult:
    """Physical offsets of candidates, newest first, and how far the index has come.

    ``complete``: everything dispatched when the query began was searched. The caller reads each record and compares the
    real key.
    """

    offsets: list[int] = field(default_factory=list)
    complete: bool = True
    last_update_timestamp: int = 0
    last_update_physical_offset: int = 0


@dataclass(slots=True)
class _Batch:
    """Keys on their way into files; ``done`` of them are there."""

    key_hashes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    end_offset: int
    done: int = 0


class KeyIndex:
    """The index under ``<store>/index/``.

    ``indexed_offset``: the keys of every record below it can be found. It follows ``Dispatcher.dispatched_offset``.
    ``put_columns`` is O(1) and does no I/O; columns that do not fit are read again from the log. With
    ``message_index_enable`` off there are no files, and queries find nothing.
    File names are the store time of the first key in local time (RocketMQ: the time of creation), so a rebuild gives
    the same names.
    """

    def __init__(
        self,
        config: StoreConfig,
        file_system: FileSystem,
        clock: Clock,
        runner: Runner,
        log_source: LogSource,
        *,
        groups_max: int = FEED_GROUPS_MAX,
        bytes_max: int = FEED_BYTES_MAX,
        log: EventLog | None = None,
    ) -> None:
        self.enabled = config.message_index_enable
        self.directory = f"{config.store_path_root_dir}/index"
        self.indexed_offset = 0
        self._slots = config.max_hash_slot_num
        self._entries_max = config.max_index_num
        self._clock = clock
        self._runner = runner
        self._log_source = log_source
        self._log: EventLog = NullLog() if log is None else log
        self._files = FileCache(file_system, _FILES_OPEN_MAX)
        self._index_files: list[IndexFile] = []
        self._hasher = KeyHasher()
        self._feed = GroupFeed(log_source, groups_max=groups_max, bytes_max=bytes_max, on_damage=self._damaged)
        self._batch: _Batch | None = None
        self._work_lock = threading.Lock()  # held over I/O: one thread inserts
        self._waiting_since_ns = 0
        self._written_ns = clock.monotonic_ns()
        self._worker: Worker | None = None

    # ---- start and stop

    def load(self, resume_offset: int | None = None, *, clean: bool = False) -> None:
        """Open the files. ``resume_offset``: the end of the durable keys at the last stop (as ``flush`` returned it).

        ``clean``: the files were closed properly and are trusted. Else entries at or beyond ``resume_offset`` (None:
        those of the last record in the index) are dropped, and the worker inserts them again from the log. Raises
        ``CorruptIndex``. Without an index directory the whole log is indexed again.
        """
        if not self.enabled:
            return
        is_new = not self._files.exists(self.directory)
        self._files.make_dirs(self.directory)
        names = [name for name in self._files.list(self.directory) if len(name) == 17 and name.isdecimal()]
        for name in names:
            if self._files.size(f"{self.directory}/{name}") == 0:  # created, but without its size yet at a power cut
                self._files.remove(f"{self.directory}/{name}")
        names = [name for name in names if self._files.exists(f"{self.directory}/{name}")]
        files = [
            IndexFile.open(f"{self.directory}/{name}", self._files, self._slots, self._entries_max) for name in names
        ]
        self._index_files = files
        for file in files:
            if file.is_damaged:
                self._log.error("index_header_damaged", path=file.path)
                file.truncate_to_physical(1 << 62, lambda at: store_time_at(self._log_source, at))
        if is_new or (not files and resume_offset is None):
            self.indexed_offset = self._log_source.min_offset
        elif clean and resume_offset is not None:
            self.indexed_offset = resume_offset
        else:
            known_end = max((file.end_offset for file in files), default=0)
            self.truncate_to_physical(known_end if resume_offset is None else resume_offset)

    def truncate_to_physical(self, physical_end: int) -> None:
        """Drop the keys of records at or beyond ``physical_end`` and continue there; no other thread is at work."""
        if not self.enabled:
            return
        with self._work_lock:
            while self._index_files:
                file = self._index_files[-1]
                if file.truncate_to_physical(physical_end, lambda at: store_time_at(self._log_source, at)):
                    break
                self._files.remove(file.path)
                self._index_files.pop()
            self._batch = None
            self._feed.clear(physical_end)
            self.indexed_offset = physical_end

    def start(self) -> None:
        """Start the worker."""
        if self.enabled:
            self._worker = self._runner.start("key-index", self._step)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """End the worker; return False if it did not end."""
        worker, self._worker = self._worker, None
        return worker is None or worker.stop(timeout_s)

    def close(self) -> None:
        """Stop, insert all that was dispatched, write and close the files. Raises disk errors."""
        self.stop()
        if not self.enabled:
            return
        with self._work_lock:
            while self._pass():
                pass
            for file in self._index_files[-1:]:
                file.seal()
        self._files.close()

    # ---- called by the dispatcher

    def put_group(self, group: RecordGroup) -> None:
        """Take the columns of a group whose offsets are known, in log order."""
        self.put_columns(LogColumns(group))

    def put_columns(self, columns: LogColumns) -> None:
        """Take columns in log order. O(1), no I/O."""
        if not self.enabled:
            self.indexed_offset = columns.end
            return
        is_first = self._feed.records == 0
        if is_first:
            self._waiting_since_ns = self._clock.monotonic_ns()
        self._feed.offer(columns)
        if self._worker is not None and (is_first or self._feed.records >= PASS_RECORDS):
            self._worker.wake()

    def announce(self, end_offset: int) -> None:
        """Announce that records up to ``end_offset`` are dispatched without columns: they are read from the log."""
        if not self.enabled:
            self.indexed_offset = max(self.indexed_offset, end_offset)
            return
        self._feed.announce(end_offset)
        if self._worker is not None:
            self._worker.wake()

    # ---- the worker

    @property
    def is_behind(self) -> bool:
        """Whether something dispatched is not indexed yet."""
        return self._feed.known_end > self.indexed_offset

    def _step(self) -> float | None:
        """Insert waiting keys when it is time; return the ms until the next check."""
        now_ns = self._clock.monotonic_ns()
        records = self._feed.records
        if 0 < records < PASS_RECORDS and self._batch is None:
            wait_ms = PASS_WAIT_MS - (now_ns - self._waiting_since_ns) / 1_000_000
            if wait_ms > 0:
                return wait_ms
        try:
            with self._work_lock:
                more = self._pass()
                if now_ns - self._written_ns >= WRITE_INTERVAL_MS * 1_000_000:
                    self._written_ns = now_ns
                    self._write()
        except (OSError, PocketMQError) as error:
            self._log.error("index_failed", offset=self.indexed_offset, error=str(error))
            return RETRY_AFTER_MS
        if more and self._worker is not None:
            self._worker.wake()
            return 0
        if self._index_files and self._index_files[-1].is_dirty:
            return max(1.0, WRITE_INTERVAL_MS - (now_ns - self._written_ns) / 1_000_000)
        return None

    def _pass(self) -> bool:
        """Insert the keys of up to ``PASS_RECORDS_MAX`` records; return whether there may be more. Under the work
        lock.
        """
        if self._batch is None:
            groups, end = self._feed.take(self.indexed_offset, self._feed.known_end, PASS_RECORDS_MAX)
            self._waiting_since_ns = self._clock.monotonic_ns()
            if not groups:
                self.indexed_offset = max(end, self.indexed_offset)
                return False
            self._batch = _Batch(*self._hasher.columns(groups), end)
        batch = self._batch
        total = len(batch.key_hashes)
        while batch.done < total:
            file = self._file_in_use(int(batch.timestamps[batch.done]))
            stop = min(total, batch.done + file.room, batch.done + PENDING_ENTRIES_MAX)
            rows = slice(batch.done, stop)
            file.insert(batch.key_hashes[rows], batch.offsets[rows], batch.timestamps[rows])
            batch.done = stop
        self._batch = None
        self.indexed_offset = batch.end_offset
        return self.is_behind

    def _file_in_use(self, timestamp: int) -> IndexFile:
        """Return the file that takes the next key; rolls when the last one is full."""
        if self._index_files and self._index_files[-1].room > 0:
            return self._index_files[-1]
        name = _file_name(timestamp)
        last: IndexFile | None = None
        if self._index_files:
            last = self._index_files[-1]
            last.seal()
            last_name = posixpath.basename(last.path)
            if name <= last_name:  # the same ms, or the hour that summer time repeats
                name = f"{int(last_name) + 1:017d}"
        file = IndexFile.create(f"{self.directory}/{name}", self._files, self._slots, self._entries_max, behind=last)
        self._index_files.append(file)
        return file

    def _write(self) -> None:
        for file in self._index_files[-1:]:
            file.write()

    def flush(self) -> int:
        """Write all inserted keys; return the end of the records whose keys are in the files (durable after a sync)."""
        if not self.enabled:
            return self.indexed_offset
        with self._work_lock:
            self._write()
            return self.indexed_offset if self._batch is None else min(self.indexed_offset, int(self._batch.offsets[0]))

    def delete_expired(self, log_min_offset: int) -> list[str]:
        """Remove files whose keys all point below the log's first offset, never the one in use; return their paths."""
        removed: list[str] = []
        with self._work_lock:
            while len(self._index_files) > 1 and self._index_files[0].end_offset < log_min_offset:
                file = self._index_files[0]
                self._files.remove(file.path)
                del self._index_files[0]
                removed.append(file.path)
        return removed

    def _damaged(self, start: int, end: int, error: CorruptRecord) -> None:
        self._log.error("index_skipped_damage", from_offset=start, to_offset=end, error=str(error))

    # ---- query

    def query(
        self, topic: str, key: str, begin: int, end: int, max_num: int, *, wait_ms: int = QUERY_WAIT_MS
    ) -> KeyQueryResult:
        """Return where messages with this key (or unique id), stored between two times (ms), may be; newest first.

        Up to ``max_num`` and 64. Waits up to ``wait_ms`` until all that was dispatched before the call is indexed, and
        helps indexing: not for the event loop. Omits entries whose record the log no longer has.
        """
        result = KeyQueryResult()
        if not self.enabled:
            return result
        result.complete = self._catch_up(wait_ms)
        max_num = min(max_num, QUERY_NUM_MAX)
        key_hash = index_hash(topic, key)
        log_min_offset = self._log_source.min_offset
        files = list(self._index_files)
        if files:
            result.last_update_timestamp = files[-1].end_timestamp
            result.last_update_physical_offset = files[-1].end_offset
        found: dict[int, None] = {}  # a key given twice in one message counts once
        for file in reversed(files):
            if len(found) >= max_num or file.end_offset < log_min_offset:
                break
            if file.overlaps(begin, end):
                offsets, whole = file.lookup(key_hash, begin, end, max_num - len(found))
                found.update((offset, None) for offset in offsets if offset >= log_min_offset)
                result.complete &= whole
        result.offsets = list(found)
        return result

    def _catch_up(self, wait_ms: int) -> bool:
        """Insert the keys of all dispatched records in this thread; return whether ``wait_ms`` was enough."""
        target = self._feed.known_end
        deadline_ns = self._clock.monotonic_ns() + wait_ms * 1_000_000
        while self.indexed_offset < target:
            left_ns = deadline_ns - self._clock.monotonic_ns()
            if left_ns <= 0 or not self._work_lock.acquire(timeout=left_ns / 1e9):
                return False
            try:
                before = self.indexed_offset
                if before < target:
                    self._pass()
                if self.indexed_offset == before and self._batch is None:
                    return self.indexed_offset >= target
            except (OSError, PocketMQError) as error:
                self._log.error("index_failed", offset=self.indexed_offset, error=str(error))
                return False
            finally:
                self._work_lock.release()
        return True


def _file_name(timestamp: int) -> str:
    """Return ``yyyyMMddHHmmssSSS`` in local time (RocketMQ UtilAll.timeMillisToHumanString)."""
    timestamp = min(max(timestamp, 0), _TIMESTAMP_MAX)  # a damaged record may hold any number
    moment = datetime.datetime.fromtimestamp(timestamp // 1000)
    return f"{moment:%Y%m%d%H%M%S}{timestamp % 1000:03d}"

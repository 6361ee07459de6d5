"""Rebuilding consume queues and index from a log, in RocketMQ's format.

Lives here: ``QueueBuilder``, ``IndexBuilder``; the tags codes of delayed messages.
"""

import datetime
import posixpath
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record import DELAY, decode_properties
from pocketmq.common.record_columns import RecordColumns
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queue import ENTRY_BYTES, is_blank
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.queue_paths import queue_error
from pocketmq.store.index.index_file import PENDING_ENTRIES_MAX, IndexFile
from pocketmq.store.index.index_keys import KeyHasher
from pocketmq.store.offline.index_files import ROCKETMQ_ENTRIES, ROCKETMQ_SLOTS
from pocketmq.store.offline.log_walk import LogChunk
from pocketmq.store.offline.queue_files import QueueFiles

QUEUE_FILE_BYTES: Final = 300_000 * ENTRY_BYTES
"""For a store without a consume queue (RocketMQ mappedFileSizeConsumeQueue)."""
SKIPPED_MAX: Final = 100
DELAY_LEVELS_MS: Final = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""RocketMQ's default messageDelayLevel; a store does not record its broker's setting."""
_UNKNOWN_LEVEL_MS: Final = 1000
"""RocketMQ ScheduleMessageService.computeDeliverTimestamp."""


def groups_of(chunk: LogChunk) -> Iterator[RecordGroup]:
    """Yield the records of a chunk with their keys and tags codes; those whose properties cannot be read are left
    out, one by one.
    """
    try:
        yield RecordGroup.from_log(chunk.columns.buffer)
        return
    except CorruptRecord:
        pass
    yield from single_groups(chunk)


def single_groups(chunk: LogChunk) -> Iterator[RecordGroup]:
    """Yield the records of a chunk one by one; those whose properties cannot be read are left out."""
    columns = chunk.columns
    for start, size in zip(columns.starts.tolist(), columns.sizes.tolist(), strict=True):
        try:
            yield RecordGroup.from_log(columns.buffer[start : start + size])
        except CorruptRecord:
            continue


class QueueBuilder:
    """Puts the entries of records into consume queues, as a broker's dispatch would.

    ``only``: these queues, None for all. Records of topics deleted before they were stored are left out.
    """

    def __init__(
        self,
        file_system: FileSystem,
        root: str,
        clock: Clock,
        *,
        queue_file_bytes: int = 0,
        only: set[tuple[str, int]] | None = None,
        log_start: int = 0,
    ) -> None:
        config = StoreConfig(
            store_path_root_dir=root, mapped_file_size_consume_queue=queue_file_bytes or QUEUE_FILE_BYTES
        )
        self._only = only
        self._columns: RecordColumns | None = None
        self._queues = ConsumeQueues(config, file_system, clock, SteppedRunner(), tags_code_of=self._deliver_times)
        self._queues.deleted.load(log_start)
        self.skipped: set[str] = set()
        """Omitted records, and why; at most ``SKIPPED_MAX``."""
        self.entries = 0

    def keep_expired(self, files: QueueFiles, log_start: int) -> None:
        """Keep entries that point below the log: they hold the queue's offsets where no records are left."""
        queue = self._queues.get_or_create(files.topic, files.queue_id)
        for at, entries in files.blocks():
            offsets = entries["offset"].astype(np.int64)
            rows = np.flatnonzero((entries["size"] > 0) & ~is_blank(entries) & (offsets >= 0) & (offsets < log_start))
            for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
                packed = np.ascontiguousarray(entries[run]).view(np.uint8)
                self.entries += queue.put(at + int(run[0]), packed)
            queue.write()
            queue.trim()

    def add(self, chunk: LogChunk, groups: list[RecordGroup]) -> None:
        """Put the entries of one chunk."""
        self._columns = chunk.columns
        for group in groups:
            group.sections = [section for section in group.sections if self._is_wanted(section)]
            self._queues.put_group(group)
            self.entries += sum(section.count for section in group.sections)

    def _is_wanted(self, section: GroupSection) -> bool:
        why = queue_error(section.topic, section.queue_id)
        if why is not None:
            if len(self.skipped) < SKIPPED_MAX:
                self.skipped.add(f"records of queue {section.queue_id} of topic {section.topic[:128]!a}: {why}")
            return False
        return self._only is None or (section.topic, section.queue_id) in self._only

    def _deliver_times(self, section: GroupSection, group: LogColumns) -> NDArray[np.int64] | None:
        """Return when delayed messages are due: the tags code of their entries (RocketMQ CommitLog.checkMessage…)."""
        columns = self._columns
        assert columns is not None
        codes = group.tags_codes[section.first : section.first + section.count].copy()
        rows = np.searchsorted(columns.physical_offsets, group.physical_offsets[section.first :][: section.count])
        for place, row in enumerate(rows.tolist()):
            start = int(columns.property_starts[row])
            text = columns.buffer[start : start + int(columns.property_lengths[row])].tobytes()
            level = decode_properties(text).get(DELAY, "")
            if level.isascii() and level.isdecimal() and int(level) > 0:
                number = min(int(level), len(DELAY_LEVELS_MS))
                delay_ms = DELAY_LEVELS_MS[number - 1] if number else _UNKNOWN_LEVEL_MS
                codes[place] = int(columns.store_timestamps[row]) + delay_ms
        return codes

    def close(self) -> None:
        """Write the rest."""
        self._queues.close()


class IndexBuilder:
    """Writes index files for records in log order, as RocketMQ's IndexService does."""

    def __init__(
        self,
        file_system: FileSystem,
        root: str,
        slots: int = ROCKETMQ_SLOTS,
        entries_max: int = ROCKETMQ_ENTRIES,
    ) -> None:
        self.directory = posixpath.join(root, "index")
        self._files = FileCache(file_system, 4)
        self._files.make_dirs(self.directory)
        self._slots = slots
        self._entries_max = entries_max
        self._hasher = KeyHasher()
        self._file: IndexFile | None = None
        self._names: set[str] = set()
        self.entries = 0

    def add(self, group: RecordGroup) -> None:
        """Insert the keys of these records."""
        hashes, offsets, times = self._hasher.columns([LogColumns(group)])
        at = 0
        while at < len(hashes):
            file = self._file
            if file is None or file.room <= 0:
                file = self._roll(int(times[at]))
            stop = min(len(hashes), at + file.room, at + PENDING_ENTRIES_MAX)
            file.insert(hashes[at:stop], offsets[at:stop], times[at:stop])
            at = stop
        self.entries += len(hashes)

    def _roll(self, timestamp: int) -> IndexFile:
        last = self._file
        if last is not None:
            last.seal()
        name = _name(timestamp)
        while name in self._names:
            name = f"{int(name) + 1:017d}"
        self._names.add(name)
        path = f"{self.directory}/{name}"
        self._file = IndexFile.create(path, self._files, self._slots, self._entries_max, behind=last)
        return self._file

    def close(self) -> None:
        """Write and close."""
        if self._file is not None:
            self._file.seal()
            self._file = None
        self._files.close()


def _name(timestamp_ms: int) -> str:
    """Return ``yyyyMMddHHmmssSSS`` in local time; a store time that the calendar does not have counts as 1970."""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms // 1000)
    except (OverflowError, ValueError, OSError):
        moment, timestamp_ms = datetime.datetime.fromtimestamp(0), 0
    return f"{moment:%Y%m%d%H%M%S}".rjust(14, "0") + f"{timestamp_ms % 1000:03d}"

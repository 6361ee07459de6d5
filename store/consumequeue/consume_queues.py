"""All consume queues of a store: their table, their writes, the memory of their tails.

Lives here: the table of queues, loading and truncating all of them, packing dispatched columns into entries, the
worker that writes dirty queues, the budget of their memory.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.runner import Runner, Worker
from pocketmq.common.topics import SCHEDULE_TOPIC
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    TAIL_ENTRIES_KEPT,
    ConsumeQueue,
    TailMemory,
    blanks,
)
from pocketmq.store.consumequeue.deleted_topics import DeletedTopics
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.queue_paths import (
    QUEUE_OFFSET_MAX,
    queue_directory,
    queue_error,
    queue_id_of,
    queues_directory,
    topic_directory,
)

TAILS_BYTES_MAX: Final = 64 << 20
"""Memory limit of all tails: written entries are released first, then dispatch waits for the writer."""
WRITE_SOON_BYTES: Final = 4 << 20
"""Unwritten entries that wake the writer before its second is over."""
REST_FACTOR: Final = 9
"""A round of writes is followed by a rest of at least so many times its length: a round opens, writes and closes a
file for each dirty queue, and a store may have tens of thousands. Memory's limits cut the rest short."""
RETRY_AFTER_MS: Final = 1000.0
ILLEGAL_LOGGED_MAX: Final = 100
"""How many queues that cannot be on a disk are logged one by one."""
_LOOK_ENTRIES: Final = 820  # 16 KiB

TagsCodeOf = Callable[[GroupSection, LogColumns], "NDArray[np.int64] | None"]
"""Return the tags codes of a section's entries where they are not the hash of the tags, else None.

Called for sections of ``SCHEDULE_TOPIC`` only: their tags code is the deliver timestamp in ms (ScheduleMessageService),
store timestamp plus the delay of level ``queue_id + 1``. Called again when the log is read again, and must then
return the same.
"""


class ConsumeQueues:
    """The table of consume queues under ``<store>/consumequeue/<topic>/<queue id>/``.

    ``put_groups`` is called by one thread (the dispatcher's; during recovery the recovering one). The writing worker,
    ``flush``, ``delete_topic`` and ``truncate_to_physical`` exclude each other by a lock that is held over disk I/O
    and that neither dispatch, reads nor the event loop ever take.
    """

    def __init__(
        self,
        config: StoreConfig,
        file_system: FileSystem,
        clock: Clock,
        runner: Runner,
        *,
        tags_code_of: TagsCodeOf | None = None,
        files_open_max: int | None = None,
        tails_bytes_max: int = TAILS_BYTES_MAX,
        log: EventLog | None = None,
    ) -> None:
        self._root = config.store_path_root_dir
        self.directory = queues_directory(self._root)
        self.tags_code_of = tags_code_of
        path = StorePaths(config.store_path_root_dir).deleted_topics
        self.deleted = DeletedTopics(file_system, path, durable=config.sync_on_close)
        self.memory = TailMemory()
        self._file_bytes = config.mapped_file_size_consume_queue
        self._interval_ns = config.flush_interval_consume_queue * 1_000_000
        self._tails_bytes_max = tails_bytes_max
        self._clock = clock
        self._runner = runner
        self._log: EventLog = NullLog() if log is None else log
        self._batch_directory = f"{config.store_path_root_dir}/batchconsumequeue"
        self._batch_topics: frozenset[str] = frozenset()  # RocketMQ 5's BatchCQ: it refuses queues of both kinds
        self._files = FileCache(file_system, files_open_max)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._resident: dict[ConsumeQueue, None] = {}  # queues with a tail, least recently written first
        self._dirty: dict[ConsumeQueue, None] = {}
        self._illegal_logged: set[tuple[str, int]] = set()
        self._dirty_entries = 0
        self._dirty_since_ns = 0
        self._rest_until_ns = 0
        self._dirty_lock = threading.Lock()  # never held over I/O
        self._file_lock = threading.Lock()  # held over I/O: one thread works on files
        self._worker: Worker | None = None

    # ---- the table

    def load(self) -> None:
        """Find every queue on disk and its first and last entry; remove the remains of deleted topics. Leaves other
        directories alone. Raises ``CorruptQueue`` naming the file.
        """
        self._batch_topics = frozenset(self._files.list(self._batch_directory))
        if self._batch_topics:
            self._log.error("batch_queues_not_served", topics=sorted(self._batch_topics)[:20])
        for topic in self._files.list(self.directory):
            deleted_to = self.deleted.get(topic)
            why = queue_error(topic, 0)
            if why is not None:
                self._log_illegal(topic, 0, "queue_directory_left_alone", why=why)
                continue
            for name in self._files.list(topic_directory(self._root, topic)):
                queue_id = queue_id_of(name)
                if queue_id is not None:
                    queue = self.get_or_create(topic, queue_id)
                    queue.load()
                    if queue.first_physical_offset() < deleted_to:  # killed while its files were being removed
                        self._remove(queue)

    def start(self) -> None:
        """Start the worker that writes."""
        self._worker = self._runner.start("consume-queue-writer", self._step, first_after_ms=None)
        if self._dirty:
            self._worker.wake()

    def stop(self) -> None:
        """End the worker after its present step."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def close(self) -> None:
        """Write everything and close the files, after the last put. Raises disk errors."""
        self.stop()
        try:
            self.flush(force=True)
        finally:
            self._files.close()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None when nothing was ever dispatched to it."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; a new one is empty and has no file yet. Raises ``TopicIllegal``."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = ConsumeQueue(
                topic,
                queue_id,
                queue_directory(self._root, topic, queue_id),
                self._files,
                self._file_bytes,
                self.memory,
                self._log,
            )
            self._queues[(topic, queue_id)] = queue
        return queue

    def all(self) -> list[ConsumeQueue]:
        """Return every queue."""
        return list(self._queues.values())

    def queues(self) -> list[tuple[str, int, int, int]]:
        """Return (topic, queue id, min offset, max offset) of every queue."""
        return [(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in self.all()]

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the queue's next message gets, as far as it is dispatched."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def last_physical_end(self) -> int:
        """Return the end of the last record that any entry points to; 0 without entries."""
        return max((queue.last_physical_end() for queue in self.all()), default=0)

    def entries(self) -> int:
        """Return how many entries all queues ever got."""
        return sum(queue.max_offset for queue in self.all())

    # ---- dispatch

    def put_group(self, group: RecordGroup) -> list[tuple[str, int, int]]:
        """Put the entries of one group and write when much is unwritten: for recovery, without the writer."""
        updates = self.put_groups([LogColumns(group)])
        if self._dirty_entries * ENTRY_BYTES >= WRITE_SOON_BYTES:
            self.flush(force=True)
        return updates

    def put_groups(self, groups: Sequence[LogColumns]) -> list[tuple[str, int, int]]:
        """Put the entries of groups in log order; return (topic, queue id, max offset) once for each queue that grew.

        Does no I/O. Records not ``in_queue`` get no entry, nor do those whose topic, queue id or queue offset no queue
        can have: a copied or foreign log may hold them. Each such queue is logged once.
        """
        entries = _pack(groups)
        packed = entries.view(np.uint8)
        touched: dict[ConsumeQueue, None] = {}
        put = 0
        base = 0
        for group in groups:
            queue_offsets = group.queue_offsets
            for section in group.sections:
                if self._batch_topics and section.topic in self._batch_topics:
                    continue
                if len(self.deleted):
                    alive = self._alive(section, group)
                    if alive is None:
                        continue
                    section = alive
                first = section.first
                start = base + first
                end = start + section.count
                queue = self._queues.get((section.topic, section.queue_id))
                if queue is None:
                    why = queue_error(section.topic, section.queue_id)
                    if why is not None:
                        at = int(group.physical_offsets[first])
                        self._log_illegal(section.topic, section.queue_id, "records_skipped", first_offset=at, why=why)
                        continue
                    queue = self.get_or_create(section.topic, section.queue_id)
                if section.topic == SCHEDULE_TOPIC and self.tags_code_of is not None:
                    codes = self.tags_code_of(section, group)
                    if codes is not None:
                        entries["tags_code"][start:end] = codes
                first_offset = int(queue_offsets[first])
                last_offset = int(queue_offsets[first + section.count - 1])
                is_run = last_offset - first_offset == section.count - 1 and last_offset <= QUEUE_OFFSET_MAX
                if group.in_queue is None and is_run:
                    new = queue.put(first_offset, packed[start * ENTRY_BYTES : end * ENTRY_BYTES])
                else:
                    new = self._put_some(queue, group, section, packed, base)
                if new:
                    put += new
                    touched[queue] = None
            base += group.count
        if put:
            self._mark_dirty(touched, put)
        return [(queue.topic, queue.queue_id, queue.max_offset) for queue in touched]

    def put_rows(
        self, rows: Sequence[tuple[Any, int, int, int, int, int, bytes]], count: int
    ) -> tuple[list[tuple[str, int, int]], bool]:
        """Put the entries of short appends, row by row (see ``Dispatcher.show``); return what ``put_groups`` returns,
        and whether all were put.

        If not, memory is short or a queue has gone. Put all of them again, as a group: entries that are there already
        are skipped.
        """
        if self._dirty_entries * ENTRY_BYTES > self._tails_bytes_max // 2:
            return [], False
        updates: list[tuple[str, int, int]] = []
        put = 0
        with self._dirty_lock:
            is_clean = not self._dirty
            for section, position, size, code, queue_offset, _, _ in rows:
                queue = section.queue
                if not queue.put_one(queue_offset, position, size, code):
                    if put and rows[put - 1][0] is section:
                        updates += ((section.topic, section.queue_id, queue.max_offset),)
                    break
                self._dirty[queue] = None
                put += 1
                if put == count or rows[put][0] is not section:
                    updates += ((section.topic, section.queue_id, queue_offset + 1),)
            self._dirty_entries += put
        if is_clean or self._dirty_entries * ENTRY_BYTES >= WRITE_SOON_BYTES:
            if is_clean:
                self._dirty_since_ns = self._clock.monotonic_ns()
            if self._worker is not None:
                self._worker.wake()
        return updates, put == count

    def _log_illegal(self, topic: str, queue_id: int, event: str, **facts: object) -> None:
        """Log an impossible queue: once, and at most ``ILLEGAL_LOGGED_MAX`` of them."""
        key = (topic[:256], queue_id)
        if key in self._illegal_logged or len(self._illegal_logged) > ILLEGAL_LOGGED_MAX:
            return
        self._illegal_logged.add(key)
        if len(self._illegal_logged) > ILLEGAL_LOGGED_MAX:
            self._log.error(
                f"{event}_left_out", why=f"more than {ILLEGAL_LOGGED_MAX} illegal queues: the others are not logged"
            )
            return
        self._log.error(
            event,
            topic=ascii(topic[:128]),
            queue_id=queue_id,
            **facts,
            what_to_do="find out what wrote it: no broker stores such topics; 'pocketmq log verify' lists them",
        )

    def _alive(self, section: GroupSection, group: LogColumns) -> GroupSection | None:
        """Return the part of a section stored after its topic was last deleted."""
        deleted_to = self.deleted.get(section.topic)
        if group.physical_offsets[section.first] >= deleted_to:
            return section
        offsets = group.physical_offsets[section.first : section.first + section.count]
        gone = int(np.searchsorted(offsets, deleted_to))
        if gone == section.count:
            return None
        return GroupSection(section.topic, section.queue_id, section.first + gone, section.count - gone)

    def _put_some(
        self, queue: ConsumeQueue, group: LogColumns, section: GroupSection, packed: NDArray[np.uint8], base: int
    ) -> int:
        """Put, run by run, a section in which some records enter no queue or queue offsets have gaps."""
        rows = np.arange(section.first, section.first + section.count)
        if group.in_queue is not None:
            rows = rows[group.in_queue[rows]]
        if len(rows) == 0:
            return 0
        offsets = group.queue_offsets[rows]
        cuts = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(rows) != 1)) + 1
        bounds = [0, *cuts.tolist(), len(rows)]
        new = 0
        for first, end in itertools.pairwise(bounds):
            start = base + int(rows[first])
            if int(offsets[first]) + (end - first) > QUEUE_OFFSET_MAX:
                at = int(group.physical_offsets[rows[first]])
                why = f"the queue offset is {offsets[first]}, more than {QUEUE_OFFSET_MAX}"
                self._log_illegal(queue.topic, queue.queue_id, "records_skipped", first_offset=at, why=why)
                continue
            new += queue.put(int(offsets[first]), packed[start * ENTRY_BYTES : (start + end - first) * ENTRY_BYTES])
        return new

    # ---- writing

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of unwritten entries."""
        return self._dirty_entries * ENTRY_BYTES

    @property
    def over_budget(self) -> bool:
        """Whether tails that cannot be released fill the budget: dispatch then waits for the writer."""
        return self._dirty_entries * ENTRY_BYTES > self._tails_bytes_max // 2

    def _mark_dirty(self, touched: Mapping[ConsumeQueue, object], entries: int) -> None:
        with self._dirty_lock:
            was_clean = not self._dirty
            if was_clean:
                self._dirty_since_ns = self._clock.monotonic_ns()
            for queue in touched:
                self._dirty[queue] = None
            before = self._dirty_entries
            self._dirty_entries = before + entries
        is_much = before * ENTRY_BYTES < WRITE_SOON_BYTES <= (before + entries) * ENTRY_BYTES
        if (was_clean or is_much) and self._worker is not None:
            self._worker.wake()

    def _step(self) -> float | None:
        with self._dirty_lock:
            if not self._dirty:
                return None
            now_ns = self._clock.monotonic_ns()
            wait_ns = max(self._dirty_since_ns + self._interval_ns, self._rest_until_ns) - now_ns
        if wait_ns > 0 and self.unwritten_bytes < WRITE_SOON_BYTES:
            return wait_ns / 1_000_000
        try:
            self.flush(force=True)
        except (OSError, PocketMQError) as error:
            self._log.error("consume_queue_write_failed", error=str(error), unwritten_bytes=self.unwritten_bytes)
            return RETRY_AFTER_MS
        end_ns = self._clock.monotonic_ns()
        self._rest_until_ns = end_ns + REST_FACTOR * (end_ns - now_ns)
        return None if not self._dirty else max(self._interval_ns, self._rest_until_ns - end_ns) / 1_000_000

    def flush(self, force: bool = True) -> None:
        """Write every dirty queue (``force`` False: only if the interval is over). Durable after the next sync of the
        file system.

        Raises disk errors; unwritten queues then stay dirty.
        """
        if not force:
            self._step()
            return
        with self._file_lock:
            with self._dirty_lock:
                dirty, self._dirty = self._dirty, {}
                self._dirty_since_ns = self._clock.monotonic_ns()
            for queue in list(dirty):
                try:
                    written = queue.write()
                except BaseException:
                    with self._dirty_lock:
                        dirty.update(self._dirty)
                        self._dirty = dirty
                    raise
                del dirty[queue]
                with self._dirty_lock:
                    self._dirty_entries = max(0, self._dirty_entries - written)
                self._resident.pop(queue, None)
                self._resident[queue] = None
                queue.trim(TAIL_ENTRIES_KEPT)
            with self._dirty_lock:
                if not self._dirty:
                    self._dirty_entries = 0  # entries that a restarted queue dropped were counted and never written
            self._give_back()

    def _give_back(self) -> None:
        """Keep tails within the budget: those written longest ago are released first."""
        while self.memory.used_bytes > self._tails_bytes_max // 2 and self._resident:
            queue = next(iter(self._resident))
            del self._resident[queue]
            queue.trim()

    # ---- recovery, retention, deletion

    def truncate_to_physical(self, physical_end: int) -> None:
        """Drop every entry that points at or beyond ``physical_end`` from memory and files (recovery; no other thread
        is at work).
        """
        with self._file_lock:
            for queue in self.all():
                queue.truncate_to_physical(physical_end)
            with self._dirty_lock:
                self._dirty.clear()
                self._dirty_entries = 0

    def ends_below(self, physical_end: int) -> dict[tuple[str, int], int]:
        """Return, for each queue, the offset after its last entry that points below ``physical_end``."""
        ends: dict[tuple[str, int], int] = {}
        for queue in self.all():
            at = queue.max_offset
            while at > queue.min_offset:
                first = max(queue.min_offset, at - _LOOK_ENTRIES)
                below = np.flatnonzero(queue.read(first, at - first)["offset"] < physical_end)
                if len(below):
                    ends[queue.topic, queue.queue_id] = first + int(below[-1]) + 1
                    break
                at = first
        return ends

    def keep_ends(self, ends: dict[tuple[str, int], int]) -> None:
        """Fill queues with blanks up to the offsets from ``ends_below``: offsets of messages now damaged in the log are
        not given to others.
        """
        for (topic, queue_id), end in ends.items():
            queue = self.get_or_create(topic, queue_id)
            missing = end - queue.max_offset
            if missing > 0:
                self._mark_dirty({queue: None}, queue.put(queue.max_offset, blanks(missing)))

    def correct_min(self, log_min_offset: int) -> None:
        """Move every queue's min offset above entries whose records the log no longer holds."""
        for queue in self.all():
            queue.correct_min(log_min_offset)

    def between(self, start_offset: int, end_offset: int) -> dict[tuple[str, int], tuple[int, int]]:
        """Return (topic, queue id) → (first, end) queue offset of the messages that lie in [start, end) of the log.

        About twenty probes of each queue; may read files. Raises disk errors.
        """
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for queue in self.all():
            first, end = queue.first_from(start_offset), queue.first_from(end_offset)
            if first < end:
                found[queue.topic, queue.queue_id] = (first, end)
        return found

    def delete_expired(self, log_min_offset: int) -> list[str]:
        """Correct the min offsets, remove files that lie wholly below them (never a queue's last), forget deleted
        topics without records in the log; return the paths of the files.
        """
        removed: list[str] = []
        for queue in self.all():
            queue.correct_min(log_min_offset)
            with self._file_lock:
                for path in queue.expired_files():
                    self._files.remove(path)
                    removed.append(path)
        with self._file_lock:
            self.deleted.forget_below(log_min_offset)
        return removed

    def delete_topic(self, topic: str, exclusively: Callable[[Callable[[int], None]], None] | None = None) -> None:
        """Remove a topic's queues and their files. Entries that are dispatched afterwards begin new queues.

        ``exclusively(forget)`` calls ``forget(end of the log)`` while no thread puts: the topic's records below that
        end never enter a queue again, even after a crash. Raises ``TopicIllegal``; ``StoreError`` when the list of
        deleted topics cannot be written: the topic is then still there.
        """
        directory = topic_directory(self._root, topic)
        queues: list[ConsumeQueue] = []

        def forget(end_offset: int) -> None:
            self.deleted.add(topic, end_offset)
            queues.extend(self._queues.pop(key) for key in [key for key in list(self._queues) if key[0] == topic])

        with self._file_lock:
            if exclusively is None:
                queues.extend(self._queues.pop(key) for key in [key for key in list(self._queues) if key[0] == topic])
            else:
                exclusively(forget)
            for queue in queues:
                self._remove(queue)
            self._files.remove_directory(directory, below=self.directory)

    def _remove(self, queue: ConsumeQueue) -> None:
        if self._queues.get((queue.topic, queue.queue_id)) is queue:
            del self._queues[(queue.topic, queue.queue_id)]
        queue.remove()
        with self._dirty_lock:
            if self._dirty.pop(queue, self) is None:
                self._dirty_entries = max(0, self._dirty_entries - (queue.max_offset - queue.written_offset))
        self._resident.pop(queue, None)
        self._files.remove_directory(queue.directory, below=self.directory)


def _pack(groups: Sequence[LogColumns]) -> NDArray[np.void]:
    """Return the entries of all rows of all groups."""
    if len(groups) == 1:
        group = groups[0]
        entries = np.empty(group.count, ENTRY)
        entries["offset"] = group.physical_offsets
        entries["size"] = group.sizes
        entries["tags_code"] = group.tags_codes
        return entries
    entries = np.empty(sum(group.count for group in groups), ENTRY)
    if groups:
        entries["offset"] = np.concatenate([group.physical_offsets for group in groups])
        entries["size"] = np.concatenate([group.sizes for group in groups])
        entries["tags_code"] = np.concatenate([group.tags_codes for group in groups])
    return entries

"""The log's end of the short path: a few records, appended with as few calls as possible.

Lives here: ``ShortSection`` and ``ShortRecord`` (the facts that were checked), ``ShortFrame`` (the records of one
request), ``ShortAppend`` (the append, the queue entries at once, the columns for the key index in a tick).

A wide append (``CommitLog.append``) builds columns of a group and lets the dispatcher carry them to queues and index.
For a handful of records that costs more than the records. Here one hold of the append lock places all frames of a
drain, fills their offsets in and writes them as one group; their queue entries are put in the same thread, and what the
index needs waits as tuples for ``hand_on``.

Both ways share lock, offsets, watermarks, checksums and clean-up, and any frame that this one cannot place (the end of
a segment, no room, anything changed since its check) is left to the wide one, which alone words refusals.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import msgspec
import numpy as np

from pocketmq.common.clock import Clock
from pocketmq.common.hashes import crc32
from pocketmq.common.record import BLANK_BYTES_MIN
from pocketmq.common.record_group import GroupSection, uniq_key_rows
from pocketmq.store.commitlog.commit_log import LONG_HOLD_NS, CommitLog
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.commitlog.windows import NoWindow
from pocketmq.store.consumequeue.consume_queue import ConsumeQueue
from pocketmq.store.dispatch import Dispatcher
from pocketmq.store.errors import PageCacheBusy, StoreError
from pocketmq.store.gate import SendGate
from pocketmq.store.index.index import KeyIndex

ROWS_MAX: Final = 4096
"""Rows that wait for ``hand_on``; the append that reaches this number hands them on itself."""
PATCHED_AT: Final = 20
"""Where the fields begin that the broker fills in: queue offset (RocketMQ MessageDecoder, V1)."""
# queue offset, physical offset, sysFlag, born timestamp, born host, store timestamp, store host
_patch_v4 = Struct(">qqiq8sq8s").pack_into
_patch_v6 = Struct(">qqiq20sq20s").pack_into

Bytes = bytes | memoryview

ShortRecord = tuple[int, int, int, int, int, bytes]
"""Place of ``PATCHED_AT`` in the frame's buffer, size in bytes, sysFlag, born timestamp (ms), tags code, unique key
(ASCII, 32 bytes as a rule)."""
_Row = tuple["ShortSection", int, int, int, int, int, bytes]
"""Section, physical offset, size, tags code, queue offset, store timestamp, unique key."""
_Held = tuple[int, int, list[_Row], int, Bytes]
"""Start, end, rows, their number, the bytes if it is one record."""
_NO_BYTES: Final = b""
RECORDS_KEPT_MAX: Final = 64
RECORD_KEPT_BYTES_MAX: Final = 65_536
"""Records that are kept with the held appends, for pulls that wait, or will by then; larger ones are read again."""
SHOWN_APART_MAX: Final = 4
"""Of so many held appends each is shown by itself, with its record; of more all at once."""


@dataclass(slots=True, eq=False)
class ShortSection:
    """One queue of a frame."""

    topic: str
    queue_id: int
    queue: ConsumeQueue
    key: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.topic, self.queue_id)


class ShortFrame(msgspec.Struct, eq=False):
    """The checked records of one request. ``buffer`` is writable memory of their own, ``count`` records in
    ``size_bytes``; ``generation`` is that of the gate when the frame was checked. A struct: one is made for each
    request."""

    parts: Sequence[tuple[ShortSection, list[ShortRecord]]]
    """Each section with its records."""
    buffer: memoryview
    count: int
    size_bytes: int
    host: bytes
    generation: int
    store_timestamp: int = 0
    """ms; this and ``places`` are filled in by the append."""
    places: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """First queue offset and physical offset of each section."""


class ShortAppend:
    """Appends short frames. Any thread may call ``append`` and ``hand_on``, the event loop's only where nothing that
    they touch can stall.
    """

    def __init__(
        self, log: CommitLog, dispatcher: Dispatcher, index: KeyIndex, gate: SendGate, clock: Clock, has_buffers: bool
    ) -> None:
        """``has_buffers``: segments may take their bytes into write buffers first."""
        self._log = log
        self._lock = log.lock
        self._writer = log.writer
        self._offsets = log.queue_offsets.known
        self._next_offset = log.queue_offsets.next
        self._dispatcher = dispatcher
        self._index = index
        self._gate = gate
        self._now_ms = clock.now_ms
        self._monotonic_ns = clock.monotonic_ns
        self._has_buffers = has_buffers
        self._shown: list[_Row] = []
        """Rows whose queue entries are put; the index lacks them."""
        self._held: deque[_Held] = deque()
        """Later ones that consumers may not see yet: they are not committed, or a synchronous master's (``ha.shown``).
        """
        self._held_lock = threading.Lock()
        self._confirmed: list[_Row] = []
        """Rows of ``_held`` whose queue entries are put; the index lacks them. Under ``_held_lock``."""
        self._count = 0
        self._sum = self._sum_start = 0  # CRC and start of the bytes that have no checksum entry yet
        self._sum_end = -1  # their end; -1: there are none
        log.before_wide = self._hand_on_locked

    @property
    def waiting(self) -> int:
        """Rows that wait for ``hand_on``."""
        return self._count

    def append(self, frames: Sequence[ShortFrame], now_ns: int) -> tuple[int, int, int]:
        """Append the first of ``frames``, as many as can be placed; return their number, and when the append lock was
        entered and left.

        ``now_ns``: the monotonic time. Frames that were not placed are not in the log. Raises ``PageCacheBusy``; a
        failed write counts as not placed.
        """
        lock = self._lock
        lock.enter_at(now_ns)
        entered_ns, asked_ns = lock.held_since_ns, now_ns
        try:
            taken = self._append_locked(frames)
        finally:
            now_ns = self._monotonic_ns()
            lock.leave_at(now_ns)
        if now_ns - entered_ns > LONG_HOLD_NS:
            self._tell_long_hold(frames[: taken or None], now_ns - entered_ns, entered_ns - asked_ns)
        if taken:
            log = self._log
            if log.committed_offset == log.appended_offset or log.on_buffered is None:
                for callback in log.on_committed:
                    callback()
            else:
                log.on_buffered()
        return taken, entered_ns, now_ns

    def _tell_long_hold(self, frames: Sequence[ShortFrame], held_ns: int, waited_ns: int) -> None:
        records, size_bytes = sum(frame.count for frame in frames), sum(frame.size_bytes for frame in frames)
        self._log.tell_long_hold(held_ns, waited_ns, records, size_bytes)

    def append_now(self, frame: ShortFrame, now_ns: int) -> int:
        """Append one frame into the write buffer, if that needs no waiting; return when it was done, 0: it was not.

        For the event loop, where the store's appends cannot stall.
        """
        log, lock, entered_ns = self._log, self._lock, now_ns
        if not lock.try_enter_at(now_ns):
            return 0
        try:
            segment = log.writer.active
            position = 0 if segment is None else log.appended_offset - segment.base_offset
            is_near = segment is not None and segment.is_in_memory(position, frame.size_bytes)
            taken = self._append_locked((frame,)) if is_near else 0
        finally:
            now_ns = self._monotonic_ns()
            lock.leave_at(now_ns)
        if now_ns - entered_ns > LONG_HOLD_NS:
            self._tell_long_hold((frame,), now_ns - entered_ns, 0)
        if taken and log.on_buffered is not None:
            log.on_buffered()
        return now_ns if taken else 0

    def _append_locked(self, frames: Sequence[ShortFrame]) -> int:
        log, writer, offsets = self._log, self._writer, self._offsets
        segment = writer.active
        if segment is None or writer.unclean:
            return 0
        start = position = log.appended_offset
        end_max = segment.end_offset - BLANK_BYTES_MIN
        now_ms = self._now_ms()
        if now_ms < log.last_store_timestamp:
            now_ms = log.last_store_timestamp
        store_host = log.store_host
        patch = _patch_v6 if log.is_v6 else _patch_v4
        rows: list[_Row] = []
        taken = count = 0
        # The gate again, now under the lock: whoever has closed it since the check may wait for this lock, to be sure
        # that nothing is appended any more.
        generation = self._gate.generation
        for frame in frames:
            if frame.generation != generation or position + frame.size_bytes > end_max:
                break
            buffer, host, places = frame.buffer, frame.host, frame.places
            for section, records in frame.parts:
                key = section.key
                queue_offset = offsets.get(key)
                if queue_offset is None:
                    queue_offset = self._next_offset(*key)
                places += ((queue_offset, position),)
                for at, size, sys_flag, born_ms, code, uniq_key in records:
                    patch(buffer, at, queue_offset, position, sys_flag, born_ms, host, now_ms, store_host)
                    rows += ((section, position, size, code, queue_offset, now_ms, uniq_key),)
                    queue_offset += 1
                    position += size
                offsets[key] = queue_offset
            frame.store_timestamp = now_ms
            count += frame.count
            taken += 1
        if not taken:
            return 0
        data = frames[0].buffer if taken == 1 else b"".join([frame.buffer for frame in frames[:taken]])
        try:
            segment.store(start - segment.base_offset, data)
        except (StoreError, NoWindow) as error:  # the wide way meets it again: it words it, or writes to the file
            segment.retreat(start - segment.base_offset)
            if isinstance(error, StoreError):
                writer.leave_nothing(segment, start, position - start)
            for frame in reversed(frames[:taken]):
                for (section, _), (queue_offset, _) in zip(frame.parts, frame.places, strict=True):
                    offsets[section.key] = min(queue_offset, offsets[section.key])
                frame.places.clear()
            return 0
        log.last_store_timestamp = now_ms
        log.last_group_offset = start
        log.advance(position, self._has_buffers and segment.is_buffered)
        # The checksum of back-to-back appends is chained: one entry for all until ``hand_on``.
        if start == self._sum_end:
            self._sum = crc32(data, self._sum)
        else:
            self._note_checksum()
            self._sum_start, self._sum = start, crc32(data)
        self._sum_end = position
        # Under the lock, so that the order of the rows is that of the log. The dispatcher's own lock is only tried:
        # while it is taken the dispatcher gets the rows and finds its own time.
        self._count += count
        dispatcher = self._dispatcher
        limit = dispatcher.limit
        if (self._has_buffers and log.committed_offset < position) or (limit is not None and limit() < position):
            is_kept = count == 1 and len(self._held) < RECORDS_KEPT_MAX and len(data) <= RECORD_KEPT_BYTES_MAX
            self._held.append((start, position, rows, count, data if is_kept else _NO_BYTES))
            if log.committed_offset >= position and dispatcher.due_offset >= position:
                self.show_held(position)  # by now; whoever showed the others may not have found these
        elif dispatcher.show(start, position, rows, count, data):
            self._shown += rows
        else:
            self._hand_on_locked()
            dispatcher.feed_columns(_columns_of(rows))
        if self._count >= ROWS_MAX:
            self._hand_on_locked()
        return taken

    def committed(self) -> None:
        """Show what the log's files have by now. Any thread; no I/O, and it waits for no append."""
        if self._held:
            self.show_held(self._dispatcher.due_offset)

    def show_held(self, limit: int) -> None:
        """Put the queue entries of rows below ``limit`` that consumers may see from now on. Any thread; no I/O, and it
        waits for no append."""
        held, dispatcher = self._held, self._dispatcher
        if not held:
            return
        with self._held_lock:
            due: list[_Held] = []
            while held and held[0][1] <= limit:
                due += (held.popleft(),)
            if len(due) > SHOWN_APART_MAX:
                due = _joined(due)
            for start, end, rows, count, data in due:
                if dispatcher.show(start, end, rows, count, data):
                    self._confirmed += rows
                else:
                    self._index_confirmed()
                    dispatcher.feed_columns(_columns_of(rows))

    def _index_confirmed(self) -> None:
        confirmed, self._confirmed = self._confirmed, []
        if confirmed:
            self._put_shown(confirmed)

    def index_shown(self) -> None:
        """Give the rows that consumers see to the index. Waits for an append under way: not for the event loop."""
        if self._count:
            with self._lock.patient:
                self._hand_on_locked(held_too=False)

    def hand_on(self) -> None:
        """Give the waiting rows to index and dispatcher. Waits for an append under way: not for the event loop."""
        if self._count:
            with self._lock.patient:
                self._hand_on_locked()

    def hand_on_soon(self) -> bool:
        """Do what ``hand_on`` does, or return False if an append has taken too long: the disk is slow or hangs."""
        if self._count:
            try:
                with self._lock:
                    self._hand_on_locked()
            except PageCacheBusy:
                return False
        return True

    def _note_checksum(self) -> None:
        if self._sum_end >= 0:
            self._log.note_checksum(self._sum_start, self._sum_end - self._sum_start, self._sum)
            self._sum_end = -1

    def _hand_on_locked(self, held_too: bool = True) -> None:
        """Under the append lock: later appends must find the earlier rows handed on. ``held_too``: also those that
        wait in memory until consumers may see them; then the dispatcher shows them.
        """
        self._note_checksum()
        shown, self._shown = self._shown, []
        self._count = 0
        if shown:
            self._put_shown(shown)
        if self._held or self._confirmed:
            with self._held_lock:
                self._index_confirmed()
                if not held_too:
                    self._count = sum([held[3] for held in self._held])
                elif self._held:
                    ((_, _, rows, _, _),) = _joined(list(self._held))
                    self._held.clear()
                    self._dispatcher.feed_columns(_columns_of(rows))

    def _put_shown(self, rows: list[_Row]) -> None:
        self._index.put_columns(_columns_of(rows))
        queues = {row[0].queue: None for row in rows}
        self._dispatcher.notify_dispatched([(queue.topic, queue.queue_id, queue.max_offset) for queue in queues])


def _joined(held: list[_Held]) -> list[_Held]:
    """Return appends that follow each other as one."""
    rows = [row for _, _, some, _, _ in held for row in some]
    return [(held[0][0], held[-1][1], rows, len(rows), _NO_BYTES)]


def _columns_of(rows: list[_Row]) -> LogColumns:
    """Return rows as the columns of one group."""
    sections, starts, sizes, codes, offsets, times, uniq_keys = zip(*rows, strict=True)
    key_rows, other_keys = uniq_key_rows(uniq_keys)
    runs: list[GroupSection] = []
    last: tuple[str, int] | None = None
    for at, section in enumerate(sections):
        if section.key == last:
            runs[-1].count += 1
        else:
            last = section.key
            runs += (GroupSection(section.topic, section.queue_id, at, 1),)
    return LogColumns.of_rows(
        runs,
        physical_offsets=np.array(starts, np.int64),
        queue_offsets=np.array(offsets, np.int64),
        sizes=np.array(sizes, np.int64),
        tags_codes=np.array(codes, np.int64),
        store_timestamps=np.array(times, np.int64),
        uniq_keys=key_rows,
        other_uniq_keys=other_keys,
    )

"""Moves timers between a RocketMQ 5 broker and ours, on the same store, in both directions.

Lives here: ``RocketMQTimers``: reads RocketMQ's progress if a RocketMQ broker used the store last, and writes ours in
RocketMQ's format.

RocketMQ keeps pending timers in ``timerwheel`` and ``timerlog``, both made from the queue of the timer topic, and its
progress in ``config/timercheck`` (RocketMQ TimerCheckpoint.java), 4096 bytes, big-endian::

    i64 lastReadTimeMs   i64 lastTimerLogFlushPos   i64 lastTimerQueueOffset   i64 masterTimerQueueOffset
    i64 stateVersion   i64 timestamp   i64 counter   zeros

Below ``lastTimerQueueOffset`` the queue was read; of those timers, the ones due (in whole seconds) before
``lastReadTimeMs`` were delivered. RocketMQ starts to read at the lower of both queue offsets, and delivers overdue
timers at once. A copy of our file, in ``pocketmq/timercheck``, shows whether another broker has written since.

A crash between two of these writes loses no timer; some may be delivered twice.
"""

import base64
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from pocketmq.broker.delay.timer_queue import BLOCK_ENTRIES, TimerState
from pocketmq.common.events import EventLog
from pocketmq.common.record import TIMER_OUT_MS
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import timer_code_of
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE, ENTRY
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore

CHECK_FILE: Final = "config/timercheck"
COPY_FILE: Final = "pocketmq/timercheck"
DERIVED: Final = ("timerwheel", "timerlog")
"""Files that RocketMQ builds from the queue; ``timerlog`` is a directory."""
CHECK_BYTES: Final = 4096
PRECISION_MS: Final = 1000
"""RocketMQ's ``timerPrecisionMs``: a slot of its wheel."""
_CHECK = struct.Struct(">7q")


@dataclass(slots=True, frozen=True)
class TimerCheck:
    """The relevant content of ``timercheck``: when the next slot is due, in ms, and the next queue offset to read."""

    read_time_ms: int
    queue_offset: int

    def encode(self) -> bytes:
        """Return the file's content."""
        fields = (self.read_time_ms, 0, self.queue_offset, self.queue_offset, 0, 0, 0)
        return _CHECK.pack(*fields).ljust(CHECK_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "TimerCheck":
        """Decode the file's content; a file that is too short counts as no progress."""
        if len(data) < _CHECK.size:
            return cls(0, 0)
        read_time_ms, _, last, master, *_ = _CHECK.unpack_from(data)
        return cls(max(0, read_time_ms), max(0, min(last, master)))


def _one_bit_apart(one: bytes, other: bytes) -> bool:
    """Return whether a difference is damage, not another broker's work: RocketMQ fills four fields that we leave 0."""
    return len(one) == len(other) and (int.from_bytes(one) ^ int.from_bytes(other)).bit_count() == 1


class RocketMQTimers:
    """RocketMQ's side of the timers' progress. All methods block on the disk; one thread at a time."""

    def __init__(self, store: MessageStore, file_system: FileSystem, log: EventLog) -> None:
        root = store.config.store_path_root_dir
        self._root = root
        self._check, self._copy = f"{root}/{CHECK_FILE}", f"{root}/{COPY_FILE}"
        self._durable = store.config.sync_on_close
        self._store = store
        self._files = file_system
        self._log = log

    def take_over(self) -> TimerState | None:
        """Return RocketMQ's progress as ours; None if no RocketMQ 5 broker has used the store since we did.

        Reads every timer in the log: once, when the store changes hands. Raises ``StoreError``.
        """
        found, copy = self._read(self._check), self._read(self._copy)
        if found is None or found == copy:
            return None
        if copy is not None and _one_bit_apart(found, copy):
            self._log.error(
                "config_file_damaged",
                path=self._check,
                error=f"it differs from {self._copy} in one bit",
                taken="our own progress",
                what_to_do="nothing, both are written again; if it happens again, check the disk",
            )
            return None
        check = TimerCheck.decode(found)
        low, high = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        read_offset = min(max(check.queue_offset, low), high)
        pending: list[tuple[int, int, int]] = []
        offset = low
        while offset < read_offset:
            entries = self._store.read_entries(TIMER_TOPIC, 0, offset, min(BLOCK_ENTRIES, read_offset - offset))
            if len(entries) == 0:
                break
            for physical, size, _ in entries[entries["size"] != BLANK_SIZE].tolist():
                due_ms = self._due_ms(physical, size)
                if due_ms is not None and due_ms - due_ms % PRECISION_MS >= check.read_time_ms:
                    pending.append((physical, size, due_ms))
            offset += len(entries)
        self._log.info(
            "timers_taken_over", pending=len(pending), read_offset=read_offset, read_time_ms=check.read_time_ms
        )
        rest = base64.b64encode(np.array(pending, ENTRY).tobytes()).decode()
        return TimerState(read_offset=read_offset, low_offset=read_offset, rest=rest)

    def hand_over(self, state: TimerState) -> None:
        """Write ``state``, which is on disk already, in RocketMQ 5's format. Raises ``StoreError``.

        A store that never had timers gets no file. RocketMQ's derived files are removed: they hold timers that we
        deliver.
        """
        if not self._store.max_offset(TIMER_TOPIC, 0) and self._read(self._check) is None:
            return
        due_ms = max(0, state.due_ms)
        content = TimerCheck(due_ms - due_ms % PRECISION_MS, self._first_waiting(state)).encode()
        for path in (self._check, self._copy):
            if content != self._read(path):
                self._files.replace(path, content, durable=self._durable)
        for name in DERIVED:
            path = f"{self._root}/{name}"
            if self._files.exists(path):
                self._log.info("timer_files_removed", path=path)
                if name == "timerlog":
                    self._files.remove_tree(path, below=self._root)
                else:
                    self._files.remove(path)

    def _read(self, path: str) -> bytes | None:
        try:
            return self._files.read_all(path)
        except FileNotFoundError:
            return None

    def _due_ms(self, physical: int, size: int) -> int | None:
        """Return when the timer at this place of the log is due; None if there is none."""
        record = self._store.read_record(physical, size)
        if record is None:
            return None
        return timer_code_of(decode_record(record, check_crc=False).property_map().get(TIMER_OUT_MS, ""))

    def _first_waiting(self, state: TimerState) -> int:
        """Return the queue offset of the first timer that may wait, in ``rest`` or outside of it."""
        rest = np.frombuffer(base64.b64decode(state.rest), ENTRY)
        offset = self._first_beyond(state)
        if len(rest):
            offset = min(offset, self._queue_offset(int(rest["offset"].min())))
        return offset

    def _first_beyond(self, state: TimerState) -> int:
        """Return the first queue offset from ``low_offset`` on whose entry is due after the last delivery."""
        offset = max(state.low_offset, self._store.min_offset(TIMER_TOPIC, 0))
        while offset < state.read_offset:
            entries = self._store.read_entries(TIMER_TOPIC, 0, offset, min(BLOCK_ENTRIES, state.read_offset - offset))
            due, physical = entries["tags_code"].astype(np.int64), entries["offset"].astype(np.int64)
            waits = (due > state.due_ms) | ((due == state.due_ms) & (physical > state.physical_offset))
            if waits.any():
                return offset + int(np.flatnonzero(waits)[0])
            if len(entries) == 0:
                return offset
            offset += len(entries)
        return min(offset, state.read_offset)

    def _queue_offset(self, physical: int) -> int:
        """Return the queue offset of the first entry at or behind a physical offset."""
        low, high = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        while low < high:
            middle = (low + high) // 2
            entry = self._store.read_entries(TIMER_TOPIC, 0, middle, 1)
            if len(entry) == 0:
                raise StoreError("no entry", why=f"queue of timers at {middle}", hint="run pocketmq log verify")
            if int(entry["offset"][0]) < physical and entry["size"][0] != BLANK_SIZE:
                low = middle + 1
            else:
                high = middle
        return low

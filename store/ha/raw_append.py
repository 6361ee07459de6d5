"""A slave's appends: received bytes of its master's log into its own log.

Lives here: ``RawAppender``: finding whole records, keeping incomplete ones, copying damage that the master has kept,
handing records to the dispatcher.

Only whole records, and whole blank ends of segments, enter the log. So its end is always a boundary between records,
and reads, dispatch and acknowledgements never see half a record; an incomplete one waits in memory for its rest.
"""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.record import (
    BLANK_BYTES_MIN,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
)
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.commitlog.log_reader import size_and_magic
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery.log_scan import store_time_of

RECORD_BYTES_MAX: Final = 64 << 20
"""Largest record or blank end; a larger one counts as damage."""
_UNDISPATCHED_GROUPS_MAX: Final = 64
_HEAD: Final = struct.Struct(">II20xQ")  # size, magic, physical offset
assert _HEAD.size == PHYSICAL_OFFSET_AT + 8
_MAGIC_START: Final = (MAGIC_V1 >> 8).to_bytes(3, "big")  # V1 and V2 differ in the last byte

Bytes = NDArray[np.uint8]


class RawAppender:
    """Appends the bytes that follow the log's end. One thread calls it, and nothing else appends to the store.

    Memory: less than ``RECORD_BYTES_MAX`` and one call's bytes.
    """

    def __init__(self, store: MessageStore, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._waiting = np.empty(0, np.uint8)
        self._undispatched: list[Bytes] = []
        self._damage_start = -1

    @property
    def expected_offset(self) -> int:
        """Where the next bytes must begin: after those that wait for their rest."""
        return self._store.log.appended_offset + len(self._waiting)

    def forget_waiting(self) -> None:
        """Drop an incomplete record: the master will send its bytes again."""
        self._waiting = np.empty(0, np.uint8)

    def take(self, offset: int, body: memoryview) -> None:
        """Append the whole records of ``body``, which continues at ``offset``, and keep the rest in memory.

        ``body`` may be overwritten when this returns. Raises ``StoreError`` when the log accepts nothing; the bytes
        then wait, and ``retry`` tries again.
        """
        assert offset == self.expected_offset
        if len(self._waiting):
            joined = np.empty(len(self._waiting) + len(body), np.uint8)
            joined[: len(self._waiting)] = self._waiting
            joined[len(self._waiting) :] = np.frombuffer(body, np.uint8)
            self._waiting = joined
        else:
            self._waiting = np.frombuffer(body, np.uint8)
        try:
            self._append_whole()
        finally:
            if len(self._waiting):
                self._waiting = self._waiting.copy()

    def retry(self) -> None:
        """Append the whole records among the waiting bytes. Raises ``StoreError`` as ``take`` does."""
        self._append_whole()

    def probe(self) -> None:
        """Raise ``StoreError`` if the log would refuse an append now, as far as that is known without writing."""
        fenced = self._store.log.fence_error
        if fenced is not None:
            raise fenced
        if self._store.retention.flags.bits:
            raise self._store.retention.refusal()

    def _append_whole(self) -> None:
        self.probe()
        log = self._store.log
        while len(self._waiting):
            at = log.appended_offset
            segment_end = (at // log.segment_bytes + 1) * log.segment_bytes
            view = self._waiting.data[: segment_end - at]
            end, last = _whole_records(view, at)
            if end:
                data = self._waiting[:end]
                log.append_raw(at, data, at + end, store_time_of(view[last:end]))
                if len(self._undispatched) < _UNDISPATCHED_GROUPS_MAX:
                    self._undispatched.append(data.copy())
                self._waiting = self._waiting[end:]
                self._damage_ended()
                continue
            if len(view) < BLANK_BYTES_MIN:
                if at + len(view) == segment_end:  # a segment has no blank end only where the master lost it
                    self._append_damage(at, len(view))
                    continue
                return
            size, magic = size_and_magic(view, 0)
            if magic == MAGIC_BLANK and size == segment_end - at and size <= RECORD_BYTES_MAX:
                if len(view) < size:
                    return
                blank = self._waiting[:size]
                if not blank[BLANK_BYTES_MIN:].any():
                    blank = blank[:BLANK_BYTES_MIN]
                log.append_raw(at, blank, segment_end, 0)
                self._waiting = self._waiting[size:]
                self._damage_ended()
            elif _may_be_record(view, at, size, magic, segment_end):
                return  # its rest is still missing
            else:
                length = _next_record(view, at, at + len(view) == segment_end)
                if length == 0:
                    return
                self._append_damage(at, length)

    def _append_damage(self, at: int, length: int) -> None:
        """Append bytes that are no record: the master has kept damage, and offsets must stay the same."""
        end = at + length
        if self._damage_start < 0:
            self._damage_start = at
            self._log.error("slave_copies_damage", from_offset=at, why="the master's log has no record there")
        self._store.note_damage(at, end, "damage in the master's log")
        self._store.log.append_raw(at, self._waiting[:length], end, 0)
        self._waiting = self._waiting[length:]

    def _damage_ended(self) -> None:
        if self._damage_start >= 0:
            self._log.info("slave_copied_damage", from_offset=self._damage_start)
            self._damage_start = -1

    def dispatch(self) -> None:
        """Make records appended since the last call visible to consumers; called after the acknowledgement, which is
        more urgent. In this thread, unless the dispatch worker is at work.
        """
        dispatcher = self._store.dispatcher
        parts, self._undispatched = self._undispatched, []
        try:
            for part in parts:
                dispatcher.feed(RecordGroup.from_log(part))
        except CorruptRecord:
            pass  # the dispatcher reads it from the log, and logs the bytes it skips
        dispatcher.feed_queue.announce(self._store.log.committed_offset)
        dispatcher.dispatch_here()


def _whole_records(view: memoryview, at: int) -> tuple[int, int]:
    """Return where the last whole record in ``view`` (at offset ``at`` of the log) ends, and where it starts."""
    position = last = 0
    length = len(view)
    unpack = _HEAD.unpack_from
    while length - position >= RECORD_BYTES_MIN:
        size, magic, physical_offset = unpack(view, position)
        if (
            (magic != MAGIC_V1 and magic != MAGIC_V2)
            or size < RECORD_BYTES_MIN
            or size > length - position
            or physical_offset != at + position
        ):
            break
        last = position
        position += size
    return position, last


def _own_offset(view: memoryview, position: int) -> int:
    return int.from_bytes(view[position + PHYSICAL_OFFSET_AT : position + PHYSICAL_OFFSET_AT + 8], "big")


def _may_be_record(view: memoryview, at: int, size: int, magic: int, segment_end: int) -> bool:
    """Return whether ``view`` can be the beginning of a record that ends beyond it."""
    if magic not in (MAGIC_V1, MAGIC_V2) or size <= len(view):
        return False
    if not RECORD_BYTES_MIN <= size <= min(RECORD_BYTES_MAX, segment_end - at - BLANK_BYTES_MIN):
        return False
    return len(view) < PHYSICAL_OFFSET_AT + 8 or _own_offset(view, 0) == at


def _next_record(view: memoryview, at: int, is_segment_rest: bool) -> int:
    """Return how many bytes at the start of ``view`` are certainly no record; 0: more bytes are needed."""
    data = view.tobytes()
    found = data.find(_MAGIC_START, MAGIC_AT + 1)
    while found >= 0 and found - MAGIC_AT + PHYSICAL_OFFSET_AT + 8 <= len(data):
        position = found - MAGIC_AT
        if _own_offset(view, position) == at + position:
            return position
        found = data.find(_MAGIC_START, found + 1)
    return len(data) if is_segment_rest else max(0, len(data) - PHYSICAL_OFFSET_AT - 8)

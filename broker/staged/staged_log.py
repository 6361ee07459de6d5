"""Append the events of staged transactions to the log, and apply them.

Lives here: ``StagedLog``: the lock, one append for each event, delivery of a committed chunk, the snapshot.

An event is appended first and applied after, under one lock, so that the table always agrees with the queue of events.
A delivery is one append group, the messages followed by ``Delivered``. After a kill of the process a group is whole in
the log or not there at all, unless it crosses into the next segment; then, and after a power failure, only a part of it
may be left. So a start searches for the messages of the chunk that was under way, and of those that damage may have hit
(``staged_recovery``), and delivers the missing ones: none twice, none lost. Under SYNC_FLUSH a commit is delivered only
once it is on the disk.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocketmq.broker.staged.staged_records import (
    RECORD_EXTRA_BYTES,
    AnyEvent,
    Delivered,
    IdDone,
    MakeGroup,
    Snapshot,
    Staged,
    encode_event,
    encoded_bytes,
    read_event,
    staged_messages,
)
from pocketmq.broker.staged.staged_state import Chunk, Delivery, Place
from pocketmq.broker.staged.staged_table import StagedTable
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.clock import STEP_MS_MIN, Clock, SteadyTime
from pocketmq.common.errors import CorruptRecord, MessageIllegal, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.topics import STAGED_TOPIC
from pocketmq.store.append_result import AppendResult
from pocketmq.store.message_store import MessageStore

SNAPSHOT_BYTES: Final = 512 << 10
"""Of one part of a snapshot, less if a group of the store holds less; one transactional id alone may take more."""


@dataclass(slots=True, eq=False)
class StagedLog:
    """Whoever judges by ``table`` and appends holds ``lock``; worker threads only, never the event loop."""

    store: MessageStore
    counters: BrokerCounters
    clock: Clock
    log: EventLog
    has_topic: Callable[[str], bool] = lambda topic: True
    make: MakeGroup | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    table: StagedTable = field(default_factory=StagedTable)
    time: SteadyTime = field(init=False)
    """Times of events and time-outs: a wall clock that is set while the broker runs ends no attempt."""
    delivered_messages: int = 0
    repairs: list[tuple[Delivery, Chunk, set[int]]] = field(default_factory=list)
    """Found at a start: chunks marked as delivered, some of whose messages damage has taken from the log; with the
    messages that are there."""
    lost_chunks: int = 0
    """Committed chunks that retention or damage had taken from the log: a fault, logged each time."""

    def __post_init__(self) -> None:
        self.time = SteadyTime(self.clock)

    @property
    def record_bytes_max(self) -> int:
        """Bytes of the record of one chunk."""
        return min(self.store.group_bytes_max, self.store.config.max_message_size)

    def now_ms(self) -> int:
        """Return the time that stamps events."""
        return self.time.now_ms()

    @property
    def min_offset(self) -> int:
        """The beginning of the log."""
        return self.store.log.min_offset

    def write(
        self, event: AnyEvent, payload: bytes | memoryview = b"", *, before: RecordGroup | None = None
    ) -> AppendResult:
        """Append an event, after the messages ``before`` it, as one group; apply it if it was stored. Raises
        ``MessageIllegal``, before any append, for an event that is too large.
        """
        store = self.store
        record, meta = encode_event(event, payload, self.now_ms(), store.store_host)
        if isinstance(event, Staged) and len(record) > self.record_bytes_max:
            raise MessageIllegal(
                "staged transaction refused",
                why=f"the record of the chunk has {len(record)} bytes, this broker takes {self.record_bytes_max}",
                hint="smaller chunks, or a larger max_message_size",
            )
        group = RecordGroup.from_records([record], [meta])
        if before is not None:
            group = RecordGroup.concat([before, group])
        result = store.append(group)
        if result.status.is_stored:
            self.counters.put(len(group), group.size_bytes)
            stored_ms, now_ms = result.store_timestamp, self.now_ms()
            if abs(stored_ms - now_ms) > STEP_MS_MIN:  # the log's times follow a wall clock that was set
                stored_ms = now_ms
            place = Place(result.first_queue_offsets[-1], result.runs[-1][-1][0], len(record), stored_ms)
            self.table.apply(event, place)
        else:
            self.counters.put_failed(len(group))
        return result

    def deliver(self) -> tuple[Delivery, AppendResult] | None:
        """Deliver the next chunk; return its transaction and the result of the append, None if no chunk is due."""
        with self.lock:
            if not self.table.deliveries:
                return None
            delivery = self.table.deliveries[0]
            is_synchronous = self.store.config.flush_disk_type == "SYNC_FLUSH"
            if is_synchronous and delivery.at == 0 and self.store.flushed_offset < delivery.logged_at:
                self.store.make_durable()
            lost_before = self.lost_chunks
            messages = self._messages(delivery, delivery.chunks[delivery.at], delivery.done)
            known = self.table.get(delivery.transactional_id, delivery.version)[2]
            lost = (0 if known is None else known.lost) + self.lost_chunks - lost_before
            event = Delivered(delivery.transactional_id, delivery.version, delivery.at + 1, lost)
            result = self.write(event, before=messages)
            if result.status.is_stored:
                self.delivered_messages += 0 if messages is None else len(messages)
            return delivery, result

    def repair(self) -> bool:
        """Deliver the messages that damage took, before any others; return whether all are delivered."""
        with self.lock:
            while self.repairs:
                delivery, chunk, done = self.repairs[0]
                messages = self._messages(delivery, chunk, done)
                if messages is not None:
                    if not self.store.append(messages).status.is_stored:
                        return False
                    self.log.warning(
                        "staged_transaction_repaired",
                        transactional_id=delivery.transactional_id,
                        version=delivery.version,
                        messages=len(messages),
                        why="they were in a part of the log that a crash has damaged",
                    )
                self.repairs.pop(0)
            return True

    def _messages(self, delivery: Delivery, chunk: Chunk | None, done: set[int]) -> RecordGroup | None:
        """Return the messages of a chunk that are to be delivered; None if none is left."""
        group: RecordGroup | None = None
        why = "it is no longer in the log"
        record: bytes | None = None
        if chunk is not None:
            place = chunk.place
            if place.end > self.store.committed_offset:  # in a write buffer
                self.store.show_all()
            record = self.store.read_record(place.physical_offset, place.size_bytes)
        if record is not None and chunk is not None:
            try:
                group = staged_messages(record, chunk.rows, chunk.place.physical_offset, done, self.make)
            except CorruptRecord as error:
                why, record = str(error), None
        if record is None:
            self.lost_chunks += 1
            self.log.error(
                "staged_transaction_chunk_lost",
                transactional_id=delivery.transactional_id,
                version=delivery.version,
                chunk=delivery.at,
                why=why,
            )
            return None
        return None if group is None else self._of_known_topics(group, delivery)

    def _of_known_topics(self, group: RecordGroup, delivery: Delivery) -> RecordGroup | None:
        """Leave out messages of topics that were deleted since the commit."""
        gone = {section.topic for section in group.sections if not self.has_topic(section.topic)}
        if not gone:
            return group
        self.log.error(
            "staged_transaction_topic_gone",
            transactional_id=delivery.transactional_id,
            version=delivery.version,
            topics=sorted(gone),
        )
        kept = [at for at, section in enumerate(group.sections) if section.topic not in gone]
        return group.select(kept) if kept else None

    def snapshot(self) -> bool:
        """Write the remembered state, so that older events need not be kept; return whether that succeeded. They are
        kept until the snapshot is on the disk and was read again.
        """
        written: list[tuple[Snapshot, AppendResult]] = []
        with self.lock:
            end = self.store.log.next_queue_offset(STAGED_TOPIC, 0)
            from_offset = self.table.from_offset(end)
            parts = self._snapshot_parts()
            for number, part in enumerate(parts, 1):
                event = Snapshot(part, number if number == len(parts) else 0, from_offset)
                result = self.write(event)
                if not result.status.is_stored:
                    return False
                written.append((event, result))
        # the flush may take long: requests are served meanwhile
        try:
            self.store.make_durable()
            is_good = all(self._reads_as(event, result) for event, result in written)
        except PocketMQError as error:
            self.log.error("staged_transaction_snapshot_failed", error=str(error))
            return False
        if not is_good:
            self.log.error("staged_transaction_snapshot_failed", error="it cannot be read back")
            return False
        with self.lock:
            self.table.confirm_snapshot()
        return True

    def _snapshot_parts(self) -> list[list[IdDone]]:
        limit = min(SNAPSHOT_BYTES, self.store.group_bytes_max - RECORD_EXTRA_BYTES)
        parts: list[list[IdDone]] = [[]]
        size_bytes = 0
        for each in self.table.remembered():
            needed = encoded_bytes(each)
            if parts[-1] and size_bytes + needed > limit:
                parts.append([])
                size_bytes = 0
            parts[-1].append(each)
            size_bytes += needed
        return parts

    def _reads_as(self, event: Snapshot, result: AppendResult) -> bool:
        """Return whether the log has this event where it was appended."""
        physical_offset = result.runs[-1][-1][0]
        record = self.store.read_record(physical_offset)
        try:
            return record is not None and read_event(record) == event
        except CorruptRecord:
            return False

"""Events of staged transactions become log, and are learned from it.

Lives here: ``StagedLog``: the lock, one append for each event, delivery of a committed chunk, the snapshot.

An event is appended first and learned after, under one lock, so that the table is always what the queue of events says.
Of a delivery the messages come first and ``Delivered`` behind them, in one append group. After a kill of the process a
group is in the log whole or not at all, unless it crosses into the next segment; then, and after a power failure, a
part of it can be what is left. So a start looks for the messages of the chunk that was under way, and of those that
damage may have hit (``staged_recovery``), and delivers the others: none twice, none lost. Under SYNC_FLUSH a commit is
delivered when it is on the disk, not before.
"""

import threading
from collections.abc import Callable
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
from pocketmq.common.clock import Clock
from pocketmq.common.errors import CorruptRecord, MessageIllegal, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.topics import STAGED_TOPIC
from pocketmq.store.append_result import AppendResult
from pocketmq.store.message_store import MessageStore

SNAPSHOT_BYTES: Final = 512 << 10
"""Of one part of a snapshot, less where a group of the store holds less; one transactional id alone may take more."""


class StagedLog:
    """``lock`` is held by whoever judges by ``table`` and appends; worker threads only, never the event loop."""

    def __init__(
        self,
        store: MessageStore,
        counters: BrokerCounters,
        clock: Clock,
        log: EventLog,
        has_topic: Callable[[str], bool] = lambda topic: True,
        make: MakeGroup | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.table = StagedTable()
        self._store = store
        self._counters = counters
        self._clock = clock
        self._log = log
        self._has_topic = has_topic
        self._make = make
        self.delivered_messages = 0
        self.repairs: list[tuple[Delivery, Chunk, set[int]]] = []
        """Of a start: chunks that are said to be delivered, some of whose messages damage has taken out of the log;
        with those that are there."""
        self.lost_chunks = 0
        """Committed chunks that retention or damage had taken out of the log: a fault, told each time."""

    @property
    def record_bytes_max(self) -> int:
        """Bytes of the record of one chunk."""
        return min(self._store.group_bytes_max, self._store.config.max_message_size)

    def now_ms(self) -> int:
        """The time by which events are stamped."""
        return self._clock.now_ms()

    @property
    def min_offset(self) -> int:
        """Where the log begins."""
        return self._store.log.min_offset

    def write(
        self, event: AnyEvent, payload: bytes | memoryview = b"", *, before: RecordGroup | None = None
    ) -> AppendResult:
        """Append an event, behind the messages ``before`` it, as one group; learn it if it was stored. Raises
        ``MessageIllegal``, before anything is appended, for one that is too large.
        """
        store = self._store
        record, meta = encode_event(event, payload, self._clock.now_ms(), store.store_host)
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
            self._counters.put(len(group), group.size_bytes)
            place = Place(result.first_queue_offsets[-1], result.runs[-1][-1][0], len(record), result.store_timestamp)
            self.table.apply(event, place)
        else:
            self._counters.put_failed(len(group))
        return result

    def deliver(self) -> tuple[Delivery, AppendResult] | None:
        """Deliver the next chunk; return its transaction and what became of the append, None if nothing is due."""
        with self.lock:
            if not self.table.deliveries:
                return None
            delivery = self.table.deliveries[0]
            is_synchronous = self._store.config.flush_disk_type == "SYNC_FLUSH"
            if is_synchronous and delivery.at == 0 and self._store.flushed_offset < delivery.told_at:
                self._store.make_durable()
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
        """Deliver what damage took, before anything else; return whether all of it is delivered."""
        with self.lock:
            while self.repairs:
                delivery, chunk, done = self.repairs[0]
                messages = self._messages(delivery, chunk, done)
                if messages is not None:
                    if not self._store.append(messages).status.is_stored:
                        return False
                    self._log.warning(
                        "staged_transaction_repaired",
                        transactional_id=delivery.transactional_id,
                        version=delivery.version,
                        messages=len(messages),
                        why="they were in a part of the log that a crash has damaged",
                    )
                self.repairs.pop(0)
            return True

    def _messages(self, delivery: Delivery, chunk: Chunk | None, done: set[int]) -> RecordGroup | None:
        """Return the messages of a chunk that are to be delivered; None if there are none any more."""
        group: RecordGroup | None = None
        why = "it is not in the log any more"
        record: bytes | None = None
        if chunk is not None:
            place = chunk.place
            if place.end > self._store.committed_offset:  # in a write buffer
                self._store.show_all()
            record = self._store.read_record(place.physical_offset, place.size_bytes)
        if record is not None and chunk is not None:
            try:
                group = staged_messages(record, chunk.rows, chunk.place.physical_offset, done, self._make)
            except CorruptRecord as error:
                why, record = str(error), None
        if record is None:
            self.lost_chunks += 1
            self._log.error(
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
        gone = {section.topic for section in group.sections if not self._has_topic(section.topic)}
        if not gone:
            return group
        self._log.error(
            "staged_transaction_topic_gone",
            transactional_id=delivery.transactional_id,
            version=delivery.version,
            topics=sorted(gone),
        )
        kept = [at for at, section in enumerate(group.sections) if section.topic not in gone]
        return group.select(kept) if kept else None

    def snapshot(self) -> bool:
        """Write down what is remembered, so that older events need not be kept; return whether that is so. They are
        kept until it is on the disk and was read again.
        """
        written: list[tuple[Snapshot, AppendResult]] = []
        with self.lock:
            end = self._store.log.next_queue_offset(STAGED_TOPIC, 0)
            from_offset = self.table.from_offset(end)
            parts = self._snapshot_parts()
            for number, part in enumerate(parts, 1):
                event = Snapshot(part, number if number == len(parts) else 0, from_offset)
                result = self.write(event)
                if not result.status.is_stored:
                    return False
                written.append((event, result))
        # the flush may take long: requests go on meanwhile
        try:
            self._store.make_durable()
            is_good = all(self._reads_as(event, result) for event, result in written)
        except PocketMQError as error:
            self._log.error("staged_transaction_snapshot_failed", error=str(error))
            return False
        if not is_good:
            self._log.error("staged_transaction_snapshot_failed", error="it cannot be read again")
            return False
        with self.lock:
            self.table.confirm_snapshot()
        return True

    def _snapshot_parts(self) -> list[list[IdDone]]:
        limit = min(SNAPSHOT_BYTES, self._store.group_bytes_max - RECORD_EXTRA_BYTES)
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
        """Whether the log has this event where it was appended."""
        physical_offset = result.runs[-1][-1][0]
        record = self._store.read_record(physical_offset)
        try:
            return record is not None and read_event(record) == event
        except CorruptRecord:
            return False

"""Events of named transactions become log, and are learned from it.

Lives here: ``NamedLog``: the lock, one append for each event, delivery of a committed chunk, the snapshot.
Not here: what events mean (``named_table``), requests (``named_processor``), when what is due (``named_service``).

An event is appended first and learned after, under one lock, so that the table is always what the queue of events says.
Of a delivery the messages come first and ``Delivered`` behind them, in one append group. After a kill of the process a
group is in the log whole or not at all, unless it crosses into the next segment; then, and after a power failure, a
part of it can be what is left. So a start looks for the messages of the chunk that was under way, and of those that
damage may have hit (``named_recovery``), and delivers the others: none twice, none lost. Under SYNC_FLUSH a commit is
delivered when it is on the disk, not before.
"""

import threading
from collections.abc import Callable
from typing import Final

from pocketmq.broker.counters import BrokerCounters
from pocketmq.broker.named_records import (
    RECORD_EXTRA_BYTES,
    AnyEvent,
    Delivered,
    MakeGroup,
    NameDone,
    Snapshot,
    encode_event,
    staged_messages,
)
from pocketmq.broker.named_table import Chunk, Delivery, NamedTable, Place
from pocketmq.common.clock import Clock
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.topics import NAMED_TOPIC
from pocketmq.store.append_result import AppendResult
from pocketmq.store.message_store import MessageStore

SNAPSHOT_NAMES: Final = 500
"""Names in one part of a snapshot, less where a group of the store holds less."""
NAME_BYTES: Final = 2048
"""What a name takes in a snapshot, about, at most."""


class NamedLog:
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
        self.table = NamedTable()
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
    def chunk_bytes_max(self) -> int:
        """Bytes of messages that one chunk can have."""
        config = self._store.config
        return min(self._store.group_bytes_max, config.max_message_size) - RECORD_EXTRA_BYTES

    def write(
        self, event: AnyEvent, payload: bytes | memoryview = b"", *, before: RecordGroup | None = None
    ) -> AppendResult:
        """Append an event, behind the messages ``before`` it, as one group; learn it if it was stored."""
        store = self._store
        record, meta = encode_event(event, payload, self._clock.now_ms(), store.store_host)
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
            messages = self._messages(delivery, delivery.chunks[delivery.at], delivery.done)
            event = Delivered(delivery.name, delivery.sequence, delivery.at + 1)
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
                        "named_transaction_repaired",
                        name=delivery.name,
                        sequence=delivery.sequence,
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
                "named_transaction_chunk_lost",
                name=delivery.name,
                sequence=delivery.sequence,
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
            "named_transaction_topic_gone", name=delivery.name, sequence=delivery.sequence, topics=sorted(gone)
        )
        kept = [at for at, section in enumerate(group.sections) if section.topic not in gone]
        return group.select(kept) if kept else None

    def snapshot(self) -> bool:
        """Write down what is remembered, so that older events need not be kept; return whether it was stored."""
        with self.lock:
            table = self.table
            end = self._store.log.next_queue_offset(NAMED_TOPIC, 0)
            from_offset = table.from_offset(end)
            names = table.remembered()
            count = max(1, min(SNAPSHOT_NAMES, self.chunk_bytes_max // NAME_BYTES))
            parts: list[list[NameDone]] = [names[at : at + count] for at in range(0, len(names), count)] or [[]]
            for number, part in enumerate(parts, 1):
                event = Snapshot(part, number if number == len(parts) else 0, from_offset)
                if not self.write(event).status.is_stored:
                    return False
            return True

"""Read the state of staged transactions from the log at the start of a broker.

Lives here: ``recover_staged``.

The last snapshot is searched from the end of the queue of events, in the consume queue alone: its entry has a tags code
of its own. If it cannot be read whole, the one before it is taken. Then the events are read from the offset in the
snapshot. Only the log is needed, so a promoted slave knows all that its master knew, as far as it has the log.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_records import (
    HEAD_BYTES,
    SNAPSHOT_CODE,
    AnyEvent,
    Delivered,
    Snapshot,
    delivered_of,
    event_bytes,
    read_event,
)
from pocketmq.broker.staged.staged_state import Chunk, Delivery, Place
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.record import BORN_HOST_V6_FLAG, HOST_V6_EXTRA, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from pocketmq.common.topics import STAGED_TOPIC
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE
from pocketmq.store.errors import OffsetOutOfRange
from pocketmq.store.message_store import MessageStore

READ_ENTRIES: Final = 4096


def recover_staged(store: MessageStore, staged_log: StagedLog, log: EventLog) -> None:
    """Fill the table of ``staged_log``. Blocks; raises the errors of the disk."""
    first, end = store.min_offset(STAGED_TOPIC, 0), store.max_offset(STAGED_TOPIC, 0)
    if first == end:
        return
    table = staged_log.table
    at, from_offset = -1, first
    unreadable = 0
    suspects: list[tuple[Delivery, Chunk, int]] = []
    before = end
    while (before := _last_snapshot(store, first, before)) >= 0:
        snapshot = _snapshot_at(store, first, before)
        if snapshot:
            at, from_offset = before, max(first, snapshot[-1][0].from_offset)
            for part in snapshot:
                table.apply(*part)
            table.confirm_snapshot()
            break
        log.error("staged_transaction_snapshot_lost", queue_offset=before)
    for queue_offset, found in _events(store, from_offset, end):
        if found is None:
            unreadable += 1
        elif not isinstance(found[0], Snapshot) or queue_offset > at:
            if isinstance(found[0], Delivered):
                suspects += _suspects(store, staged_log, *found)
            table.apply(*found)
    if unreadable:
        log.error("staged_transaction_events_lost", count=unreadable, from_offset=from_offset, end_offset=end)
    for delivery in table.deliveries:
        chunk = delivery.chunks[delivery.at]
        if chunk is not None:
            delivery.done = _delivered(store, chunk, delivery.logged_at)
    for delivery, chunk, from_physical in suspects:
        done = _delivered(store, chunk, from_physical)
        if len(done) < chunk.rows:
            staged_log.repairs.append((delivery, chunk, done))
    log.info(
        "staged_transactions_recovered",
        transactional_ids=len(table),
        attempts=table.attempts,
        chunks=table.chunks,
        undelivered=len(table.deliveries),
        from_offset=from_offset,
        end_offset=end,
    )


def _suspects(
    store: MessageStore, staged_log: StagedLog, event: AnyEvent, place: Place
) -> list[tuple[Delivery, Chunk, int]]:
    """Return the chunks that this event marks as delivered though the log is damaged where their messages should be,
    with the physical offset from which to search."""
    delivery = (
        staged_log.table.delivery(event.transactional_id, event.version) if isinstance(event, Delivered) else None
    )
    if delivery is None or not isinstance(event, Delivered):
        return []
    start = delivery.logged_at
    if not any(part.start < place.physical_offset and start < part.end for part in store.log.damaged):
        return []
    return [(delivery, chunk, start) for chunk in delivery.chunks[delivery.at : event.chunks] if chunk is not None]


def _delivered(store: MessageStore, chunk: Chunk, from_physical: int) -> set[int]:
    """Return the prepared offsets of the messages of a chunk that the log has from an offset on."""
    done: set[int] = set()
    for group in store.log.walk(from_physical, store.committed_offset):
        done |= delivered_of(group, chunk.place.physical_offset, chunk.place.size_bytes)
    return done


def _last_snapshot(store: MessageStore, first: int, end: int) -> int:
    """Return the queue offset of the last part of the last snapshot, -1 if there is none."""
    while end > first:
        start = max(first, end - READ_ENTRIES)
        entries = store.read_entries(STAGED_TOPIC, 0, start, end - start)
        hits = (entries["tags_code"] == SNAPSHOT_CODE) & (entries["size"] != BLANK_SIZE)
        if hits.any():
            return start + int(hits.nonzero()[0][-1])
        end = start
    return -1


def _snapshot_at(store: MessageStore, first: int, at: int) -> list[tuple[Snapshot, Place]]:
    """Return the parts of the snapshot whose last part is here; empty if it is not whole."""
    for _, last in _events(store, at, at + 1):
        if last is None or not isinstance(last[0], Snapshot):
            return []
        count = last[0].parts
        parts = [found for _, found in _events(store, max(first, at - count + 1), at + 1) if found is not None]
        whole = [(event, place) for event, place in parts if isinstance(event, Snapshot)]
        return whole if len(whole) == count else []
    return []


def _events(store: MessageStore, offset: int, end: int) -> Iterator[tuple[int, tuple[AnyEvent, Place] | None]]:
    """Yield (queue offset, event with its place or None where it cannot be read)."""
    while offset < end:
        entries = store.read_entries(STAGED_TOPIC, 0, offset, min(READ_ENTRIES, end - offset))
        if not len(entries):
            return
        for entry in entries:
            if int(entry["size"]) != BLANK_SIZE:
                yield offset, _read(store, offset, int(entry["offset"]), int(entry["size"]))
            offset += 1


def _read(store: MessageStore, queue_offset: int, physical_offset: int, size: int) -> tuple[AnyEvent, Place] | None:
    try:
        head = store.log.read(physical_offset, min(size, HEAD_BYTES)).tobytes()
        needed = event_bytes(head)
        if needed > len(head):
            head = store.log.read(physical_offset, min(size, needed)).tobytes()
        event = read_event(head)
    except (CorruptRecord, OffsetOutOfRange):
        return None
    at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if head[SYS_FLAG_AT + 3] & BORN_HOST_V6_FLAG else 0)
    store_ms = int.from_bytes(head[at : at + 8], "big")
    return event, Place(queue_offset, physical_offset, size, store_ms)

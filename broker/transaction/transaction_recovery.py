"""Find the open transactions in the log: half messages without an op message.

Lives here: ``recover``, which fills a ``TransactionTable`` at the start; ``TransactionProgress``, where it begins to
read.

The half topic and the op topic hold the whole state; the progress only saves reading, and keeps the number of checks.
RocketMQ keeps its progress as the consumer group ``CID_RMQ_SYS_TRANS``: a store without our progress continues from it.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.broker.transaction.transaction_plan import immunity_of
from pocketmq.broker.transaction.transaction_records import parse_op
from pocketmq.broker.transaction.transaction_table import Half, TransactionTable
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.record import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from pocketmq.common.record_codec import decode_record
from pocketmq.common.topics import HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE
from pocketmq.store.message_store import MessageStore

READ_ENTRIES: Final = 4096
READ_BYTES: Final = 4 << 20
NeedTopic = Callable[[str, int, int], None]
"""Called with topic, queue id, and the physical offset of the message that is for them."""


class _ProgressFile(msgspec.Struct, rename="camel"):
    half_offset: Annotated[int, msgspec.Meta(ge=-1)]  # all required: a file without one of them is damaged
    op_offset: Annotated[int, msgspec.Meta(ge=-1)]
    checks: dict[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]]


class TransactionProgress:
    """Where a start begins to read the half queue and the op queue, and the checks made so far by half-queue offset.

    Thread-safe. The file gets the state of the last ``settle``; -1 stands for a store without progress.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.generation = 0
        self.half_offset = -1
        self.op_offset = -1
        self.checks: dict[int, int] = {}

    def settle(self, half_offset: int, op_offset: int, checks: dict[int, int]) -> bool:
        """Set the state to write next; True when it is new. The ends of all halves below it must be durable."""
        with self._lock:
            if (half_offset, op_offset, checks) == (self.half_offset, self.op_offset, self.checks):
                return False
            self.half_offset, self.op_offset, self.checks = half_offset, op_offset, checks
            self.generation += 1
            return True

    def encode(self) -> bytes:
        """Return the content of the file."""
        with self._lock:
            return msgspec.json.encode(_ProgressFile(self.half_offset, self.op_offset, self.checks))

    def load(self, content: bytes) -> None:
        """Take over a file; raises ``DECODE_ERRORS``."""
        loaded = msgspec.json.decode(content, type=_ProgressFile, strict=False)
        with self._lock:
            self.half_offset, self.op_offset = loaded.half_offset, loaded.op_offset
            self.checks = loaded.checks


def recover(
    store: MessageStore,
    table: TransactionTable,
    half_offset: int,
    op_offset: int,
    checks: dict[int, int],
    log: EventLog,
    need: NeedTopic = lambda topic, queue_id, physical_offset: None,
) -> None:
    """Fill ``table`` with the transactions open from these offsets on; ``need`` is called with the topic and queue of
    each. Blocks; raises the errors of the disk."""
    half_min, half_end = store.min_offset(HALF_TOPIC, 0), store.max_offset(HALF_TOPIC, 0)
    op_min, op_end = store.min_offset(OP_HALF_TOPIC, 0), store.max_offset(OP_HALF_TOPIC, 0)
    low = min(max(half_offset, half_min), half_end)
    op_low = min(max(op_offset, op_min), op_end)
    if (half_offset, op_offset) != (-1, -1) and (low, op_low) != (half_offset, op_offset):
        log.warning(
            "transaction_progress_corrected",
            half_offset=half_offset,
            op_offset=op_offset,
            half_queue=f"{half_min} to {half_end}",
            op_queue=f"{op_min} to {op_end}",
        )
    table.open_at(half_end, op_end)
    if low == half_end:
        return
    done = np.zeros(half_end - low, np.bool_)
    holes = _holes(store)
    doubted = 0
    for _, data, physical_offset, _ in _records(store, OP_HALF_TOPIC, op_low, op_end, None):
        try:
            op = decode_record(data, check_crc=False)
        except CorruptRecord as error:  # its transactions are open again, and their messages show that they ended
            log.error("op_message_unreadable", error=str(error))
            continue
        if any(start <= physical_offset and time == op.store_timestamp for start, time in holes):
            doubted += 1
            continue
        for offset in parse_op(op.body):
            if low <= offset < half_end:
                done[offset - low] = True
    found: dict[int, Half] = {}
    targets: dict[int, tuple[str, int, int]] = {}
    copies: dict[tuple[str, str], int] = {}  # producer group and unique key → offset of the last copy
    gone = 0
    for offset, data, physical_offset, size_bytes in _records(store, HALF_TOPIC, low, half_end, ~done):
        try:
            record = decode_record(data, check_crc=False)
            properties = record.property_map()
        except CorruptRecord:  # gone, or damaged: no reason not to serve
            gone += 1
            continue
        original = properties.get(TRAN_PREPARED_QUEUE_OFFSET, "")  # RocketMQ stores a half message again at each check
        if original.isdecimal() and len(original) <= 18 and low <= int(original) < offset:
            if done[int(original) - low]:
                continue
            found.pop(int(original), None)
        same = properties.get(PGROUP, ""), properties.get(UNIQ_KEY, "")
        if same[1] and TRANSACTION_CHECK_TIMES in properties:  # a copy that does not name its original (RocketMQ
            found.pop(copies.get(same, -1), None)  # putBackHalfMsgQueue); no client can say so
        copies[same] = offset
        queue_id = properties.get(REAL_QID, "")
        number = int(queue_id) if queue_id.isdecimal() and len(queue_id) <= 9 else 0
        targets[offset] = properties.get(REAL_TOPIC, ""), number, physical_offset
        found[offset] = Half(
            offset,
            physical_offset,
            size_bytes,
            record.store_timestamp,
            properties.get(PGROUP, ""),
            immunity_of(properties) or 0,
            op_low,
            checks.get(offset, 0),
            recovered=True,
        )
    for half in found.values():
        table.restore(half)
        need(*targets[half.queue_offset])
    if doubted:
        log.warning(
            "op_messages_doubted",
            count=doubted,
            why="their append lost bytes in a power failure, maybe messages too; their transactions are open again",
        )
    if gone:
        log.error("half_messages_lost", count=gone, why="their queue names them, the log no longer has them")
    log.info("transactions_recovered", open=len(found), half_offset=low, half_end=half_end, op_offset=op_low)
    if len(found) > table.pending_max:
        log.warning("transactions_above_limit", open=len(found), transaction_pending_max=table.pending_max)


def _holes(store: MessageStore) -> list[tuple[int, int]]:
    """Return for each damaged range of the log its end, and the store time of the first record after it.

    An append writes messages before the op messages that end their transactions, all with one store time. So an op
    message after damage with the time of the first record after it may have lost its messages (ADR 0006 keeps records
    after damage).
    """
    holes = []
    for part in store.log.damaged:
        try:
            group = next(store.log.walk(part.end, store.log.committed_offset), None)
        except CorruptRecord:  # damage that no start has seen yet
            continue
        if group is not None:
            times = group.store_timestamps
            holes.append((part.end, group.store_timestamp if times is None else int(times[0])))
    return holes


def _records(
    store: MessageStore, topic: str, offset: int, end: int, wanted: NDArray[np.bool_] | None
) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield (queue offset, record or b"" where it is gone, physical offset, size) of queue 0 of ``topic``; only
    those ``wanted``, counted from ``offset``.
    """
    first = offset
    while offset < end:
        entries = store.read_entries(topic, 0, offset, min(READ_ENTRIES, end - offset))
        if not len(entries):
            return
        at = np.arange(offset, offset + len(entries))
        keep = entries["size"] != BLANK_SIZE
        if wanted is not None:
            keep &= wanted[offset - first : offset - first + len(entries)]
        offset += len(entries)
        places, offsets, sizes = at[keep], entries["offset"][keep].astype(np.int64), entries["size"][keep]
        sizes = sizes.astype(np.int64)
        while len(places):
            count = max(1, int(np.searchsorted(np.cumsum(sizes), READ_BYTES, side="right")))
            yield from _read(store, places[:count], offsets[:count], sizes[:count])
            places, offsets, sizes = places[count:], offsets[count:], sizes[count:]


def _read(
    store: MessageStore, places: NDArray[np.int64], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield the records; their offsets ascend."""
    spans = list(zip(places.tolist(), offsets.tolist(), sizes.tolist(), strict=True))
    try:
        data = store.read_records(offsets, sizes).tobytes()
    except CorruptRecord:
        for place, offset, size in spans:
            yield place, store.read_record(offset, size) or b"", offset, size
        return
    at = 0
    for place, offset, size in spans:
        yield place, data[at : at + size], offset, size
        at += size

"""Damaged records in the answer to a pull: which, at which offsets, and why.

Called after the columns have refused an answer: record by record, so that one bad record does not cost the others.

Lives here: ``sort_out``, ``Damaged``, ``damage_error``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.pull.pull_wire import PullResult
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.hashes import crc32
from pocketmq.common.record import BODY_CRC_AT, CRC_MASK, QUEUE_OFFSET_AT
from pocketmq.common.record_codec import record_size_at, record_spans

OFFSET_BYTES = 8


@dataclass(slots=True, frozen=True)
class Damaged:
    """One record that is not whole. ``is_exact`` False: ``offset`` is the lowest that it may have."""

    queue: MessageQueue
    offset: int
    is_exact: bool
    why: str

    def __str__(self) -> str:
        place = "offset" if self.is_exact else "the message at or behind offset"
        return f"{self.queue.topic} queue {self.queue.queue_id} of {self.queue.broker_name}: {place} {self.offset}"


@dataclass(slots=True, frozen=True)
class SortedOut:
    """The whole records of an answer back to back, and the damaged ones.

    ``resume_at``: RocketMQ's answers have no sizes, so nothing can be read behind a record whose size is damaged: the
    offset to pull from next; None: all of the answer is here.
    """

    body: bytes
    sizes: NDArray[np.int64]
    damaged: list[Damaged]
    resume_at: int | None = None


def sort_out(
    result: PullResult, starts: Mapping[MessageQueue, int], *, is_filtered: bool, check_crc: bool
) -> SortedOut:
    """Return which records of an answer are whole.

    ``starts``: where each queue was pulled from. ``is_filtered``: the broker left out messages, so that the offset of a
    damaged one can only come from the record itself, or from the one before.
    """
    view = memoryview(result.body).cast("B")
    whole: list[memoryview] = []
    damaged: list[Damaged] = []
    at = 0
    for part in result.queues:
        queue, following = part.queue, starts[part.queue]
        end = len(view) if result.sizes is None else at + _bytes_of(result, part.queue)
        is_dense = not is_filtered and part.count == part.next_offset - following
        row = _rows_before(result, part.queue)
        while at < end:
            try:
                size = record_size_at(view, at) if result.sizes is None else int(result.sizes[row])
            except CorruptRecord as error:
                damaged.append(Damaged(queue, following, True, error.why))
                return SortedOut(b"".join(whole), _sizes(whole), damaged, following + 1)
            record = view[at : at + size]
            why, own = _judged(record, size, check_crc)
            offset = following if is_dense or own is None else own
            if not why:
                whole.append(record)
            else:
                damaged.append(Damaged(queue, offset, is_dense or own is not None or not is_filtered, why))
            following = offset + 1
            at += size
            row += 1
    return SortedOut(b"".join(whole), _sizes(whole), damaged)


def damage_error(damaged: Damaged) -> CorruptRecord:
    """Return the error of a consumer that does not skip damaged records."""
    return CorruptRecord(
        f"{damaged} is damaged",
        why=damaged.why,
        hint="pocketmq log verify on the broker's store explains it; seek_offset() to the next offset passes it over",
    )


def _judged(record: memoryview, size: int, check_crc: bool) -> tuple[str, int | None]:
    """Return why a record is bad (empty: it is not), and its own offset if its header can be trusted."""
    try:
        spans = record_spans(record)
    except CorruptRecord as error:
        return error.why, None
    if spans.size != size:
        return f"its size field says {spans.size}, not {size}", None
    own = int.from_bytes(record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + OFFSET_BYTES], "big", signed=True)
    if check_crc:
        crc = crc32(record[spans.body_start : spans.body_start + spans.body_length]) & CRC_MASK
        said = int.from_bytes(record[BODY_CRC_AT : BODY_CRC_AT + 4], "big")
        if crc != said:
            return f"body CRC 0x{crc:08X}, the record says 0x{said:08X}", own
    return "", own


def _rows_before(result: PullResult, queue: MessageQueue) -> int:
    """Return how many records of an answer with sizes come before those of a queue."""
    before = 0
    for part in result.queues:
        if part.queue == queue:
            break
        before += max(part.count, 0)
    return before


def _bytes_of(result: PullResult, queue: MessageQueue) -> int:
    assert result.sizes is not None
    first = _rows_before(result, queue)
    [count] = [part.count for part in result.queues if part.queue == queue]
    return int(result.sizes[first : first + count].sum())


def _sizes(records: list[memoryview]) -> NDArray[np.int64]:
    found: NDArray[Any] = np.fromiter(map(len, records), np.int64, len(records))
    return found

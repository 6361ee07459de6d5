"""Reads messages for a consumer: from a queue offset to a body of whole records.

Lives here: the statuses and the rules for the next offset, tag filter, limits, the coalesced reads of the log.

Statuses and next offsets as RocketMQ DefaultMessageStore.getMessage.
"""

import enum
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record_columns import windows
from pocketmq.store.commitlog.group_feed import LogSource
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE, ConsumeQueue
from pocketmq.store.errors import OffsetOutOfRange

SCAN_ENTRIES_MIN: Final = 800
"""Minimum number of entries that a filtered pull checks (RocketMQ: 16,000 bytes of consume queue)."""
GAP_BYTES_MAX: Final = 16 << 10
"""Largest gap between two records that is read along instead of starting another read, which costs about as much as 32
KiB.
"""
SPAN_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of log read at once for records with gaps between them."""

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


class GetMessageStatus(enum.Enum):
    """The result of reading a queue (RocketMQ GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """Records of one queue and the offset to continue at.

    ``body``: the records back to back in queue order, private memory; ``sizes``: their sizes, u32 big-endian, ready
    for the wire. ``physical_end``: the end of the last record checked, for the hint to read from a slave.
    """

    status: GetMessageStatus
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    sizes: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, ">u4"))
    body: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    physical_end: int = 0

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.sizes)


def get_message(
    queue: ConsumeQueue | None,
    log_source: LogSource,
    offset: int,
    *,
    max_messages: int,
    max_bytes: int,
    tags_codes: frozenset[int] | None = None,
) -> GetResult:
    """Return the messages of a queue from ``offset`` on: at most ``max_messages`` and, after the first, ``max_bytes``.

    ``tags_codes`` None: all messages; else those whose tags code is among them, out of the next 800 entries (or
    ``max_messages``, if more). ``min_offset`` of the result lies above every message that the log no longer had.
    Reads files: not for the event loop. Ends before a record that does not match its entry; raises
    ``CorruptRecord`` when that is the first one, and disk errors.
    """
    if queue is None:
        return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE)
    min_offset, max_offset = queue.min_offset, queue.max_offset
    status: GetMessageStatus | None = None
    next_offset = offset
    if max_offset == 0:
        status, next_offset = GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < min_offset:
        status, next_offset = GetMessageStatus.OFFSET_TOO_SMALL, min_offset
    elif offset == max_offset:
        status = GetMessageStatus.OFFSET_OVERFLOW_ONE
    elif offset > max_offset:
        status, next_offset = GetMessageStatus.OFFSET_OVERFLOW_BADLY, max_offset
    if status is not None:
        return GetResult(status, next_offset, min_offset, max_offset)

    scan = max_messages if tags_codes is None else max(SCAN_ENTRIES_MIN, max_messages)
    entries = queue.read(offset, max(1, scan))
    if len(entries) == 0:
        min_offset = queue.min_offset
        if offset < min_offset:  # retention has raised it meanwhile
            return GetResult(GetMessageStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
        return GetResult(GetMessageStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), min_offset, max_offset)
    offsets = entries["offset"].astype(np.int64)
    sizes = entries["size"].astype(np.int64)
    physical_end = int(offsets[-1]) + int(sizes[-1])
    if tags_codes is None and (sizes != BLANK_SIZE).all():
        matched = None
    else:
        wanted = sizes != BLANK_SIZE
        if tags_codes is not None:
            wanted &= _is_in(entries["tags_code"].astype(np.int64), tags_codes)
        matched = np.flatnonzero(wanted)
        offsets, sizes = offsets[matched], sizes[matched]

    while True:  # again when retention has removed a segment between the check of the log's start and the read
        log_min_offset = log_source.min_offset
        gone = 0
        if len(offsets) and offsets[0] < log_min_offset:  # the queue's min offset follows the log's start later
            gone = int(np.searchsorted(offsets, log_min_offset))
            min_offset = max(min_offset, queue.first_from(log_min_offset))
        if gone == len(offsets):
            was_there = len(offsets) > 0
            return GetResult(
                GetMessageStatus.MESSAGE_WAS_REMOVING if was_there else GetMessageStatus.NO_MATCHED_MESSAGE,
                offset + len(entries),
                min_offset,
                max_offset,
                physical_end=physical_end,
            )
        ends = np.cumsum(sizes[gone:])
        taken = min(max(1, int(np.searchsorted(ends, max_bytes, side="right"))), max_messages, len(ends))
        taken = max(taken, 1)
        last = gone + taken
        try:
            body = read_records(log_source, offsets[gone:last], sizes[gone:last])
        except OffsetOutOfRange:
            if log_source.min_offset == log_min_offset:
                raise
            continue
        if len(body) < ends[taken - 1]:  # a get that begins with the bad record will raise
            last = gone + int(np.searchsorted(ends, len(body), side="right"))
        if last == len(offsets):
            next_offset = offset + len(entries)
        else:
            next_offset = offset + (last if matched is None else int(matched[last]))
        return GetResult(
            GetMessageStatus.FOUND,
            next_offset,
            min_offset,
            max_offset,
            sizes[gone:last].astype(">u4"),
            body,
            int(offsets[last - 1]) + int(sizes[last - 1]),
        )


def _is_in(codes: Int64s, wanted: frozenset[int]) -> NDArray[np.bool_]:
    if len(wanted) == 1:
        matches: NDArray[np.bool_] = codes == next(iter(wanted))
        return matches
    return np.isin(codes, np.fromiter(wanted, np.int64, len(wanted)))


def read_records(log_source: LogSource, offsets: Int64s, sizes: Int64s) -> Bytes:
    """Return the records at these physical offsets (ascending) back to back, in private memory.

    Records back to back in the log are read by one call straight into the result. Records with small gaps between them
    (interleaved queues) are read with the gaps and moved together. Ends before the first record whose own size differs;
    raises ``CorruptRecord`` if that leaves none.
    """
    ends = offsets + sizes
    out_ends = np.cumsum(sizes)
    total = int(out_ends[-1])
    span = int(ends[-1]) - int(offsets[0])
    out = np.empty(total, np.uint8)
    if span == total:
        log_source.read_into(int(offsets[0]), out)
    else:
        gaps = offsets[1:] - ends[:-1]
        cuts = (np.flatnonzero((gaps > GAP_BYTES_MAX) | (gaps < 0)) + 1).tolist()
        for first, end in zip([0, *cuts], [*cuts, len(offsets)], strict=True):
            while first < end:
                stop = end
                if int(ends[end - 1]) - int(offsets[first]) > SPAN_BYTES_MAX:
                    limit = int(offsets[first]) + SPAN_BYTES_MAX
                    stop = first + max(1, int(np.searchsorted(ends[first:end], limit, side="right")))
                start_out = int(out_ends[first]) - int(sizes[first])
                _read_cluster(
                    log_source, offsets[first:stop], sizes[first:stop], out[start_out : int(out_ends[stop - 1])]
                )
                first = stop
    good = _leading_good(out, out_ends - sizes, offsets, sizes)
    return out if good == len(sizes) else out[: int(out_ends[good - 1])]


def _read_cluster(log_source: LogSource, offsets: Int64s, sizes: Int64s, out: Bytes) -> None:
    """Read records that lie close together into ``out``, which they fill."""
    start = int(offsets[0])
    span = int(offsets[-1]) + int(sizes[-1]) - start
    if span == len(out):
        log_source.read_into(start, out)
        return
    scratch = np.empty(span, np.uint8)
    log_source.read_into(start, scratch)
    starts = offsets - start
    size = int(sizes[0])
    if (sizes == size).all():  # records of one size: one gather
        out.view(f"V{size}")[:] = windows(scratch, size)[starts]
        return
    view = scratch.data
    bounds = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    out[:] = np.frombuffer(b"".join([view[first:end] for first, end in bounds]), np.uint8)


def _leading_good(body: Bytes, starts: Int64s, offsets: Int64s, sizes: Int64s) -> int:
    """Return how many leading records begin with the size in their entry. Raises ``CorruptRecord`` if the first one
    does not.
    """
    if len(body) < 4:
        raise CorruptRecord("consume queue entry refused", why=f"record of {len(body)} bytes at {int(offsets[0])}")
    fields = windows(body, 4)[np.minimum(starts, len(body) - 4)].view(">u4")
    wrong = np.flatnonzero(fields != sizes)
    if len(wrong) and wrong[0] == 0:
        raise CorruptRecord(
            "record does not match its consume queue entry",
            why=f"at {int(offsets[0])}: size {int(fields[0])}, the entry says {int(sizes[0])}",
            hint="run pocketmq log verify",
        )
    return int(wrong[0]) if len(wrong) else len(sizes)

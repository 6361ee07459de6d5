"""Reads one run of the log for several queues at once.

Lives here: ``RunReader``. Messages that producers send to the queues of a topic in turn lie interleaved in the log.
Read queue by queue, every byte of the log is read once for each queue, with the others' records thrown away. A run is
read once, in pieces that stay in the processor's cache, and each record is copied to the part of its queue.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import PocketMQError
from pocketmq.common.record import RECORD_BYTES_MIN
from pocketmq.common.record_columns import windows
from pocketmq.store.commitlog.group_feed import LogSource
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE, ConsumeQueue
from pocketmq.store.consumequeue.get import GAP_BYTES_MAX, Bytes, GetMessageStatus, GetResult, Int64s

BACKLOG_MIN: Final = 64
"""Queues with fewer messages to read are read one by one: sorting costs more than it saves. So many entries also show
whether a queue is interleaved with others."""
GAPS_MIN: Final = 8
"""With fewer gaps among so many messages, longer stretches of one queue lie behind each other: each is one read."""
NEAR_BYTES: Final = 4 << 20
"""Queues take part whose next messages lie within so many bytes of the log."""
PIECE_BYTES: Final = 512 << 10
"""The log is read in pieces of this size."""
_SCRATCHES_MAX: Final = 8
"""Buffers of a piece that are kept for the next runs."""


class RunReader:
    """Reads runs of one log. Thread-safe."""

    def __init__(self, log_source: LogSource) -> None:
        self._log = log_source
        self._scratches: deque[Bytes] = deque(maxlen=_SCRATCHES_MAX)

    def get(
        self, queues: Sequence[tuple[ConsumeQueue | None, int]], *, max_messages: int, max_bytes: int
    ) -> dict[int, GetResult]:
        """Return messages of those of ``queues`` (with the offset to read from) that lie interleaved in the log.

        By position in ``queues``; in log order, at most ``max_messages`` and ``max_bytes`` of all. The first queue with
        messages chooses the place, so that callers can let the queues take turns. Empty where a run saves nothing,
        where that queue is no part of one, or where anything is unusual (a bad offset, a blank, removed, damaged or
        unreadable records): ``get_message`` reads the queues then. Reads files: not for the event loop. Raises disk
        errors of the queues' files.
        """
        parts = _interleaved(queues, max_messages, max_bytes)
        if len(parts) < 2 or min(int(part.offsets[0]) for part in parts) < self._log.min_offset:
            return {}
        offsets = np.concatenate([part.offsets for part in parts])
        sizes = np.concatenate([part.sizes for part in parts])
        owners = np.repeat(np.arange(len(parts)), [len(part.offsets) for part in parts])
        order = np.argsort(offsets, kind="stable")
        sizes = sizes[order]
        taken = min(int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right")), max_messages)
        if taken < 2:
            return {}
        order, sizes = order[:taken], sizes[:taken]
        try:
            bodies = self._read(offsets[order], sizes, owners[order], parts)
        except PocketMQError:  # removed meanwhile, or unreadable: read queue by queue, that says which
            return {}
        return {} if bodies is None else _results(parts, bodies)

    def _read(
        self, offsets: Int64s, sizes: Int64s, owners: NDArray[np.intp], parts: "list[_Part]"
    ) -> list[Bytes] | None:
        """Return the records of each part back to back; None if one does not begin with its size.

        Records in log order. Pieces end before gaps that are not worth reading.
        """
        for at, part in enumerate(parts):
            part.count = int(np.count_nonzero(owners == at))
        bodies = [np.empty(int(part.sizes[: part.count].sum()), np.uint8) for part in parts]
        filled = [0] * len(parts)
        ends = offsets + sizes
        cuts = (np.flatnonzero(offsets[1:] - ends[:-1] > GAP_BYTES_MAX) + 1).tolist()
        scratch = self._scratches.pop() if self._scratches else np.empty(PIECE_BYTES, np.uint8)
        try:
            first = 0
            for last in (*cuts, len(offsets)):
                while first < last:
                    start = int(offsets[first])
                    end = min(last, int(np.searchsorted(ends, start + PIECE_BYTES, side="right")))
                    end = max(end, first + 1)
                    span = int(ends[end - 1]) - start
                    piece = scratch[:span] if span <= PIECE_BYTES else np.empty(span, np.uint8)
                    self._log.read_into(start, piece)
                    places = offsets[first:end] - start
                    if not _begin_with(piece, places, sizes[first:end]):
                        return None
                    _deal(piece, places, sizes[first:end], owners[first:end], bodies, filled)
                    first = end
        finally:
            self._scratches.append(scratch)
        return bodies


class _Part:
    """One queue of a run: its next entries, and how many of them the run has."""

    __slots__ = ("count", "index", "max_offset", "min_offset", "offset", "offsets", "sizes")

    def __init__(self, index: int, queue: ConsumeQueue, offset: int, offsets: Int64s, sizes: Int64s) -> None:
        self.count = 0
        self.index = index
        self.offset = offset
        self.min_offset = queue.min_offset
        self.max_offset = queue.max_offset
        self.offsets = offsets
        self.sizes = sizes


def _interleaved(queues: Sequence[tuple[ConsumeQueue | None, int]], max_messages: int, max_bytes: int) -> list[_Part]:
    """Return the queues of the run; fewer than two: there is none."""
    parts: list[_Part] = []
    for index, (queue, offset) in enumerate(queues):
        if queue is None or offset == queue.max_offset:
            continue  # nothing to read
        part = None
        if queue.min_offset <= offset <= queue.max_offset - BACKLOG_MIN:
            part = _part(index, queue, offset, BACKLOG_MIN)
        if not parts:
            if part is None or _lies_alone(part):
                return []  # it is this queue's turn
        elif part is None or abs(int(part.offsets[0]) - int(parts[0].offsets[0])) > NEAR_BYTES:
            continue
        parts.append(part)
    # As many entries as an even share takes, twice: a queue that has more there waits for the next run.
    for at, part in enumerate(parts):
        count = min(max_messages, 2 * max_bytes // (int(part.sizes[0]) * len(parts)))
        if count > BACKLOG_MIN:
            queue = queues[part.index][0]
            assert queue is not None
            parts[at] = _part(part.index, queue, part.offset, count) or part
    return parts


def _part(index: int, queue: ConsumeQueue, offset: int, count: int) -> _Part | None:
    """Return the next entries of a queue; None if there are none, or one that no record can have."""
    entries = queue.read(offset, count)
    sizes = entries["size"].astype(np.int64)
    if len(sizes) == 0 or int(sizes.min()) < RECORD_BYTES_MIN or (sizes == BLANK_SIZE).any():
        return None
    return _Part(index, queue, offset, entries["offset"].astype(np.int64), sizes)


def _lies_alone(part: _Part) -> bool:
    """Return whether a queue's messages have little between them, or so much that each is read by itself."""
    gaps = part.offsets[1:] - part.offsets[:-1] - part.sizes[:-1]
    read_along = gaps[(gaps > 0) & (gaps <= GAP_BYTES_MAX)]
    return len(read_along) < GAPS_MIN or 2 * int(read_along.sum()) < int(part.sizes.sum())


def _begin_with(piece: Bytes, places: Int64s, sizes: Int64s) -> bool:
    """Return whether the record at each place begins with its size."""
    return not (windows(piece, 4)[places].view(">u4") != sizes).any()


def _deal(
    piece: Bytes,
    places: Int64s,
    sizes: Int64s,
    owners: NDArray[np.intp],
    bodies: list[Bytes],
    filled: list[int],
) -> None:
    """Copy each record of a piece to the end of its part's body."""
    size = int(sizes[0])
    alike = bool((sizes == size).all())
    view = piece.data
    for owner, body in enumerate(bodies):
        chosen = np.flatnonzero(owners == owner)
        if not len(chosen):
            continue
        at = filled[owner]
        if alike:  # records of one size: one gather
            end = at + len(chosen) * size
            body[at:end].view(f"V{size}")[:] = windows(piece, size)[places[chosen]]
        else:
            starts = places[chosen]
            bounds = zip(starts.tolist(), (starts + sizes[chosen]).tolist(), strict=True)
            joined = b"".join([view[first:last] for first, last in bounds])
            end = at + len(joined)
            body[at:end] = np.frombuffer(joined, np.uint8)
        filled[owner] = end


def _results(parts: list[_Part], bodies: list[Bytes]) -> dict[int, GetResult]:
    return {
        part.index: GetResult(
            GetMessageStatus.FOUND,
            part.offset + part.count,
            part.min_offset,
            part.max_offset,
            part.sizes[: part.count].astype(">u4"),
            body,
            int(part.offsets[part.count - 1]) + int(part.sizes[part.count - 1]),
        )
        for part, body in zip(parts, bodies, strict=True)
        if part.count
    }

"""Tells a torn tail from damage (ADR 0006).

Lives here: ``end_before_torn_tail``, which decides about bad bytes with good records behind them.

A group enters the log in one write, from its beginning on, or by a copy with its first eight bytes, size and magic,
last (``Segment.store``), into space that is zero. So where a head must begin and its magic is zero, no group was ever
finished, whatever follows: it is the rest of a group whose copy was cut off by a kill, or of one whose pages were lost
in a power cut before any sync of them ended.
Bytes that changed later look different. Good records after such a place are cut off with it only if there is no sign of
a finished group among them:

1. they lie beyond all promised bytes (positions), and beyond every group checksum and consume-queue entry, because both
   are written after a group is complete;
2. an earlier recovery has not decided to keep the place;
3. they can be one group: one store time, and no more bytes than one append takes.

Everything else is kept and reported: nothing acknowledged is cut, and after a power cut under ASYNC_FLUSH whole groups
after a lost one stay readable at their offsets.
"""

from collections.abc import Callable, Sequence

from pocketmq.common.record import BLANK_BYTES_MIN, MAGIC_BLANK
from pocketmq.store.commitlog.log_reader import DamagedRange, size_and_magic
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.recovery.log_scan import LogScan, ScanResult
from pocketmq.store.recovery.scan_window import ScanWindow, summed_size


def end_before_torn_tail(
    scan: LogScan,
    segments: SegmentQueue,
    result: ScanResult,
    known: Sequence[DamagedRange],
    finished_end: Callable[[int], int],
    group_bytes_max: int,
) -> None:
    """Drop the torn end of ``result``: damaged ranges and all bytes after them, one group after the other.

    ``known``: damage that earlier recoveries kept. ``finished_end(offset)``: the end of the last group that was
    certainly finished, searched at least from ``offset`` on.
    """
    while (number := _first_unfinished(scan, segments, result, known, finished_end, group_bytes_max)) is not None:
        part = result.damaged[number]
        result.why = f"an unfinished group: {part.why}"
        result.end_offset = part.start
        result.last_group_offset = result.groups_before_damage[number]
        result.suspect = [suspect for suspect in result.suspect if suspect.end <= part.start]
        del result.damaged[number:], result.groups_before_damage[number:]


def _first_unfinished(
    scan: LogScan,
    segments: SegmentQueue,
    result: ScanResult,
    known: Sequence[DamagedRange],
    finished_end: Callable[[int], int],
    group_bytes_max: int,
) -> int | None:
    """Return the damaged range that, with all bytes after it, can be one unfinished group; None if there is none."""
    for number, part in enumerate(result.damaged):
        if (
            result.end_offset - part.start <= group_bytes_max + BLANK_BYTES_MIN
            and not any(old.start < part.end and part.start < old.end for old in known)
            and never_written(segments, part)
            and part.start >= finished_end(part.start)
            and len(scan.store_times(part.end, result.end_offset, 2)) <= 1
        ):
            return number
    return None


def never_written(segments: SegmentQueue, part: DamagedRange) -> bool:
    """Return whether ``part`` has zeros where a record or a blank had to begin.

    Bad records are followed only if all their lengths agree: a damaged size may lead anywhere, even to zeros.
    """
    at = part.start
    while at < part.end:
        segment = segments.find(at)
        assert segment is not None
        position, left = at - segment.base_offset, segment.end_offset - at
        window = ScanWindow(segment)
        size, magic = size_and_magic(window.view(position, BLANK_BYTES_MIN), 0)
        if left >= BLANK_BYTES_MIN and magic == 0:
            return True
        if left < BLANK_BYTES_MIN or (magic == MAGIC_BLANK and size == left):
            at = segment.end_offset
        elif 0 < size == summed_size(window, at):
            at += size
        else:
            return False
    return False

"""The segments of a log, in order.

Lives here: ``SegmentQueue``: loading and checking the files, finding the segment of an offset, a bound on reading
handles.
"""

import threading
from collections import deque
from itertools import pairwise
from typing import Final

from pocketmq.store.commitlog.segment import NAME_DIGITS, Segment
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import CorruptStore, SegmentSizeMismatch, StoreError

READ_HANDLES_MAX: Final = 64
"""Old segments that stay open for reads: 64 GiB of log at full size."""
_WHAT_IS_LEFT: Final = (
    "`pocketmq log verify` says what is lost, `pocketmq log export --format log` writes a store without it"
)


class SegmentQueue:
    """Consecutive segments of one size. Readers take no lock: the tuple of segments is replaced, never changed.

    Holds: each segment starts where the one before ends.
    """

    def __init__(self, file_system: FileSystem, directory: str, segment_bytes: int) -> None:
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._file_system = file_system
        self._segments: tuple[Segment, ...] = ()
        self._lock = threading.Lock()
        self._change_lock = threading.Lock()  # both ends may change at once; never held over I/O
        self._removal_unsynced = False
        self._reading: deque[Segment] = deque()

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def all(self) -> tuple[Segment, ...]:
        """Every segment, oldest first."""
        return self._segments

    @property
    def first_offset(self) -> int:
        """First offset of the oldest segment; 0 without segments."""
        segments = self._segments
        return segments[0].base_offset if segments else 0

    @property
    def end_offset(self) -> int:
        """End of the newest segment; 0 without segments."""
        segments = self._segments
        return segments[-1].end_offset if segments else 0

    def load(self) -> None:
        """Find the segments on disk; changes nothing there.

        Raises ``SegmentSizeMismatch`` when a file has another size than the settings say, ``CorruptStore`` when one is
        missing in between. Other names are ignored, and so is an empty last file (created, but not yet reserved when
        the process died).
        """
        names = [
            name for name in self._file_system.list(self.directory) if len(name) == NAME_DIGITS and name.isdecimal()
        ]
        segments: list[Segment] = []
        for name in names:
            path = f"{self.directory}/{name}"
            size_bytes = self._file_system.size(path)
            if size_bytes == 0 and name == names[-1]:
                continue
            if size_bytes == 0:
                raise CorruptStore(
                    "commit log not opened",
                    why=f"{path} is empty, and later files are there",
                    hint="copy the file back; nothing was changed",
                )
            if size_bytes != self.segment_bytes:
                raise self._wrong_size(path, size_bytes, [int(each) for each in names])
            base_offset = int(name)
            if segments and segments[-1].end_offset != base_offset:
                raise CorruptStore(
                    "commit log not opened",
                    why=f"{self.directory} has no file between offsets {segments[-1].end_offset} and {base_offset}",
                    hint="copy the missing files back; nothing was changed",
                )
            segments.append(Segment(self._file_system, path, base_offset, size_bytes))
        self._segments = tuple(segments)

    def _wrong_size(self, path: str, size_bytes: int, offsets: list[int]) -> StoreError:
        """Return the error about a file of another size: the names of several files show whether the setting is wrong
        or the file was cut."""
        steps = {after - before for before, after in pairwise(offsets)}
        why = f"{path} has {size_bytes} bytes, but store.mapped_file_size_commit_log={self.segment_bytes}"
        setting = f"set store.mapped_file_size_commit_log={size_bytes}, with which this store was written"
        if self.segment_bytes in steps:
            return CorruptStore(
                "commit log not opened",
                why=f"{why}, and the other files have that size: this one was {_cut_or_grown(size_bytes, self)}",
                hint=f"copy the file back; {_WHAT_IS_LEFT}; nothing was changed",
            )
        if steps:
            return SegmentSizeMismatch("commit log not opened", why=why, hint=setting)
        return SegmentSizeMismatch(
            "commit log not opened",
            why=why,
            hint=f"{setting}; if the setting is right, the file was {_cut_or_grown(size_bytes, self)}: copy it back; "
            f"{_WHAT_IS_LEFT}",
        )

    def find(self, offset: int) -> Segment | None:
        """Return the segment that holds the byte at ``offset``, or None."""
        segments = self._segments
        if not segments:
            return None
        index = (offset - segments[0].base_offset) // self.segment_bytes
        return segments[index] if 0 <= index < len(segments) else None

    def between(self, start_offset: int, end_offset: int) -> list[Segment]:
        """Return the segments that hold bytes of [start_offset, end_offset), in order."""
        if start_offset >= end_offset:
            return []
        return [part for part in self._segments if part.base_offset < end_offset and part.end_offset > start_offset]

    def for_read(self, segment: Segment) -> None:
        """Record that ``segment`` is read; beyond the bound, close the handle opened longest ago."""
        with self._lock:
            if segment in self._reading or self.find(segment.base_offset) is not segment:
                return  # the second: retention has removed it, and it must not be added again
            segment.open_for_read()
            self._reading.append(segment)
            if len(self._reading) > READ_HANDLES_MAX:
                self._reading.popleft().close_read()

    def add(self, segment: Segment) -> None:
        """Append the next segment."""
        assert segment.size_bytes == self.segment_bytes
        with self._change_lock:
            assert not self._segments or segment.base_offset == self.end_offset
            self._segments = (*self._segments, segment)

    def remove_last(self) -> Segment:
        """Remove the newest segment with its file (recovery). Its name is gone for good after ``sync_dir``."""
        segment = self._segments[-1]
        self._segments = self._segments[:-1]
        self._forget(segment)
        self._file_system.remove(segment.path)
        return segment

    def remove_first(self) -> None:
        """Remove the oldest of several segments, durably (retention). Readers that have it finish undisturbed; later
        ones do not find it.

        Raises disk errors: the segment is then still there, or only its removal is not durable; the next call makes it
        durable first, because after a crash a later segment must never be gone while an earlier one is back.
        """
        if self._removal_unsynced:
            self._file_system.sync_dir(self.directory)
            self._removal_unsynced = False
        with self._change_lock:
            segment, *rest = self._segments
            assert rest, "the last segment stays"
            self._segments = tuple(rest)
        try:
            self._file_system.remove(segment.path)
        except BaseException:
            with self._change_lock:
                self._segments = (segment, *self._segments)
            raise
        self._forget(segment)
        self._removal_unsynced = True
        self._file_system.sync_dir(self.directory)
        self._removal_unsynced = False

    def _forget(self, segment: Segment) -> None:
        with self._lock:
            if segment in self._reading:
                self._reading.remove(segment)
        segment.close()

    def close(self) -> None:
        """Release all handles."""
        for segment in self._segments:
            segment.close()
        with self._lock:
            self._reading.clear()


def _cut_or_grown(size_bytes: int, queue: SegmentQueue) -> str:
    return "cut short" if size_bytes < queue.segment_bytes else "extended"

"""The files of one consume queue, read without trusting them.

Lives here: ``QueueFiles``: entries by queue offset, first and last entry.

Sizes come from the files: each begins at the byte in its name and reaches to its own end.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import numpy as np

from pocketmq.store.consumequeue.consume_queue import ENTRY, ENTRY_BYTES, Entries, file_name, is_blank
from pocketmq.store.disk.file_cache import FileCache

BLOCK_ENTRIES: Final = 1 << 16


class QueueFiles:
    """One queue. ``files``: first byte → size. Entries that no file holds read as zeros, as unwritten ones do."""

    def __init__(self, topic: str, queue_id: int, directory: str, files: dict[int, int], cache: FileCache) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self._cache = cache
        self._starts = sorted(start for start in files if start % ENTRY_BYTES == 0)
        self._sizes = files

    def moved(self, directory: str) -> "QueueFiles":
        """Return the same files in another directory."""
        return QueueFiles(self.topic, self.queue_id, directory, self._sizes, self._cache)

    @property
    def end_entry(self) -> int:
        """Return the queue offset after the last file, written or not."""
        return max(((start + self._sizes[start]) // ENTRY_BYTES for start in self._starts), default=0)

    def read(self, first: int, count: int) -> Entries:
        """Return ``count`` entries from queue offset ``first`` on."""
        out = np.zeros(count * ENTRY_BYTES, np.uint8)
        begin, end = first * ENTRY_BYTES, (first + count) * ENTRY_BYTES
        index = max(0, bisect_right(self._starts, begin) - 1)
        while index < len(self._starts) and self._starts[index] < end:
            start = self._starts[index]
            low = max(begin, start)
            high = min(end, start + self._sizes[start])
            if index + 1 < len(self._starts):
                high = min(high, self._starts[index + 1])
            if low < high:
                path = f"{self.directory}/{file_name(start)}"
                self._cache.read_at(path, low - start, out[low - begin : high - begin])
            index += 1
        return out.view(ENTRY)

    def blocks(self) -> Iterator[tuple[int, Entries]]:
        """Yield (queue offset, entries) of all files, in order, block by block."""
        for index, start in enumerate(self._starts):
            end = start + self._sizes[start]
            if index + 1 < len(self._starts):
                end = min(end, self._starts[index + 1])
            at, stop = start // ENTRY_BYTES, end // ENTRY_BYTES
            while at < stop:
                count = min(BLOCK_ENTRIES, stop - at)
                yield at, self.read(at, count)
                at += count

    def bounds(self) -> tuple[int, int]:
        """Return (first, end) of the written entries without padding."""
        first = end = -1
        for at, entries in self.blocks():
            written = np.flatnonzero((entries["size"] > 0) & ~is_blank(entries))
            if len(written):
                first = at + int(written[0]) if first < 0 else first
                end = at + int(written[-1]) + 1
        return (0, 0) if first < 0 else (first, end)

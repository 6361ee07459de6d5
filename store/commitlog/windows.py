"""The write buffers of one segment, each a window on some of its positions.

Where a buffer is smaller than a segment, the segment takes one after the other; where it is not, the first one has all
positions. Lives here: ``Windows``, ``NoWindow``.
"""

import threading
from collections import deque

import numpy as np

from pocketmq.common.hashes import crc32
from pocketmq.store.commitlog.write_buffer_pool import WriteBuffer, WriteBufferPool
from pocketmq.store.disk.file_system import Bytes, StoreFile


class NoWindow(Exception):
    """Too few write buffers are free for this data; nothing was stored."""


class Windows:
    """Borrowed buffers in the order of their positions. A buffer has the positions from ``start`` to ``end``: those it
    can take while it is the newest, those it has once it is not.

    ``store``, ``skip`` and ``retreat`` run under the append lock, ``release`` under the commit lock; ``write_to`` is
    called for positions whose append is over. ``newest`` begins as a buffer without positions, so that its first store
    comes here and binds it.
    """

    __slots__ = ("_bound", "_lock", "_pool", "_size_bytes", "_spare", "newest", "position")

    def __init__(self, pool: WriteBufferPool, spare: WriteBuffer, size_bytes: int, position: int = 0) -> None:
        """``spare``: the borrowed buffer that takes the data from ``position`` on."""
        self._pool = pool
        self._size_bytes = size_bytes
        self._bound: deque[WriteBuffer] = deque()
        self._lock = threading.Lock()  # around changes of _bound; never held over I/O
        self._spare: WriteBuffer | None = spare
        self.position = position
        self.newest = _without_positions(position)

    def store(self, base_offset: int, position: int, data: Bytes) -> WriteBuffer:
        """Store data that the newest buffer has no room for; return the buffer that is then the newest."""
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        newest = self.newest
        room = newest.end - position
        fresh = self._borrow(position + room, position + len(array))
        if room:
            newest.put(position - newest.start, array[:room])
            self._publish(newest, newest.end, array[:room])
        done = room
        for buffer in fresh:
            start = position + done
            buffer.start = start
            buffer.end = min(start + buffer.array.size, self._size_bytes)
            buffer.crc = 0
            self._pool.bind(buffer, base_offset + start)
            with self._lock:
                self._bound.append(buffer)
            part = array[done : done + buffer.end - start]
            buffer.put(0, part)
            self._publish(buffer, start + len(part), part)
            done += len(part)
            newest = buffer
        self.newest = newest
        return newest

    def _borrow(self, start: int, end: int) -> list[WriteBuffer]:
        """Return as many buffers as [start, end) takes."""
        fresh: list[WriteBuffer] = []
        while start < end:
            buffer, self._spare = self._spare, None
            if buffer is None:
                buffer = self._pool.borrow()
            if buffer is None:
                if fresh:
                    self._spare = fresh.pop(0)
                for unused in fresh:
                    self._pool.give_back(unused)
                raise NoWindow
            fresh.append(buffer)
            start += buffer.array.size
        return fresh

    @staticmethod
    def _publish(buffer: WriteBuffer, end: int, data: Bytes) -> None:
        if buffer.words is not None:
            buffer.publish(end - buffer.start, crc32(data, buffer.crc))

    def write_to(self, file: StoreFile, position: int, end: int) -> None:
        """Write what the buffers have of [position, end)."""
        with self._lock:
            bound = tuple(self._bound)
        for buffer in bound:
            first, last = max(position, buffer.start), min(end, buffer.end)
            if first < last:
                file.write_at(first, buffer.array[first - buffer.start : last - buffer.start])

    def skip(self, position: int, end: int) -> WriteBuffer:
        """Note that [position, end) is in the file and in no buffer; return the buffer that is then the newest: one
        without positions.
        """
        self.newest.end = position
        self.newest = _without_positions(end)
        return self.newest

    def retreat(self, position: int) -> WriteBuffer:
        """Forget everything from ``position`` on; return the buffer that is then the newest."""
        dropped: list[WriteBuffer] = []
        with self._lock:
            while self._bound and self._bound[-1].start >= position:
                dropped.insert(0, self._bound.pop())
            last = self._bound[-1] if self._bound else None
            if last is not None and last.end >= position:
                last.end = min(last.start + last.array.size, self._size_bytes)
            else:
                last = None
        self._pool.unbind(dropped)
        if last is None:
            self.newest = _without_positions(position)
        else:
            self.newest = last
            if last.words is not None:
                last.publish(position - last.start, crc32(last.array[: position - last.start]))
        return self.newest

    def release(self, end: int) -> None:
        """Return the buffers whose positions are all below ``end``."""
        while True:
            with self._lock:
                if not self._bound or self._bound[0].end > end:
                    return
                buffer = self._bound.popleft()
            self._pool.release(buffer)

    def discard(self) -> None:
        """Return a buffer that was never used."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._pool.give_back(spare)


def _without_positions(position: int) -> WriteBuffer:
    """Return a buffer that has no room, so that the next store comes to ``Windows.store``."""
    empty = WriteBuffer(np.empty(0, np.uint8))
    empty.start = empty.end = position
    return empty

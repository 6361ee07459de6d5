"""The write-buffer pool (RocketMQ's TransientStorePool): appends go to RAM, a commit thread writes the files.

Lives here: ``WriteBufferPool``: N anonymous buffers, locked in RAM where that is permitted; borrow and return; the
warning when few are left. ``surviving_pool`` has the kind whose buffers outlive the process.
"""

import mmap
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.store.commitlog.buffer_header import CHECK_FACTOR, CHECK_MASK, PUBLISHED
from pocketmq.store.disk.file_system import Words
from pocketmq.store.disk.memory_lock import Memory

PUBLISHED_AT, COPY_AT = PUBLISHED
FEW_LEFT_FRACTION: Final = 0.4
"""Below this part of free buffers a borrow warns (RocketMQ TransientStorePool.borrowBuffer)."""
LOCK_BYTES: Final = 64 << 20
"""Locked at a time: the kernel has to find and clear all of these pages, a tenth of a second's work or more."""
_WARN_EVERY_NS: Final = 1_000_000_000
_TELL_EVERY_NS: Final = 1_000_000_000


def nothing() -> None:
    """Do nothing."""


class WriteBuffer:
    """One buffer: ``array``. Not cleared between two uses: its user knows which bytes it wrote.

    Its user holds in ``start`` and ``end`` which positions of a segment it has. ``words``: of a buffer that survives
    the process, where its bytes must be published; else None. ``swapped``: copies into memory that
    is not locked; None where it is.
    """

    __slots__ = ("array", "crc", "end", "head", "is_borrowed", "number", "salt", "start", "swapped", "words")

    def __init__(
        self, array: NDArray[np.uint8], words: Words | None = None, head: NDArray[np.uint8] | None = None
    ) -> None:
        """``head``: bytes of the page with ``words`` that nobody reads."""
        self.array = array
        self.words = words
        self.head = head
        self.is_borrowed = False
        self.swapped: Memory | None = None
        self.start = 0
        self.end = 0
        self.number = 0
        self.salt = 0
        self.crc = 0

    def put(self, at: int, data: NDArray[np.uint8]) -> None:
        """Copy ``data`` to ``at``. Where the page, or that with ``words``, may have been swapped out, no other thread
        waits until it is back.
        """
        swapped = self.swapped
        if swapped is None:
            self.array[at : at + len(data)] = data
            return
        swapped.copy(self.array, at, data)
        if self.head is not None:
            swapped.touch(self.head)

    def publish(self, position: int, crc: int) -> None:
        """Let the bytes before ``position`` survive the process, after all of them were stored; ``crc`` is theirs."""
        words = self.words
        assert words is not None
        self.crc = crc
        word = position << 32 | crc
        check = (word ^ self.salt) * CHECK_FACTOR & CHECK_MASK
        words[PUBLISHED_AT] = word
        words[PUBLISHED_AT + 1] = check
        words[COPY_AT] = word
        words[COPY_AT + 1] = check


class WriteBufferPool:
    """``size`` buffers of ``buffer_bytes``, of which ``available`` are free now.

    ``borrow`` takes the buffer returned last, because its pages are the warmest; with none left it returns None and
    never waits. Thread-safe. ``size`` and ``available`` are plain attributes: reading one takes no lock.
    """

    def __init__(self, size: int, buffer_bytes: int, memory: Memory, clock: Clock, log: EventLog) -> None:
        self.size = size
        self.buffer_bytes = buffer_bytes
        self.survives = False
        """Whether what the buffers hold outlives the process."""
        self.epoch = 0
        """Of replication, in which appends are made; 0 without."""
        self.available = 0
        self.is_locked = False
        """All buffers are locked in RAM."""
        self.lock_error = ""
        """Why not."""
        self._memory = memory
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._free: list[WriteBuffer] = []  # the last one is taken first
        self._warned_ns = 0

    @property
    def cannot_stall(self) -> bool:
        """Whether no copy into a buffer ever waits for a disk, and no copied byte dies with the process."""
        return False

    def check(self) -> None:
        """Raise ``ConfigError`` if the machine does not have the memory for the pool now."""
        free_bytes = self._memory.free_bytes()
        wanted_bytes = self.size * self.buffer_bytes
        if free_bytes is not None and wanted_bytes > free_bytes:
            raise ConfigError(
                "impossible settings",
                why=f"store.transient_store_pool_size={self.size} buffers of {self.buffer_bytes} bytes are "
                f"{wanted_bytes} bytes of RAM, but {free_bytes} are free",
                hint="make the pool or mapped_file_size_commit_log smaller, or free memory",
            )

    def open(self, still_wanted: Callable[[], None] = nothing) -> None:
        """Make the buffers and lock them; takes seconds for gigabytes, and says each second how far it is.

        ``still_wanted`` is called now and then; what it raises ends the opening, and nothing is left of it. Raises
        ``ConfigError`` as ``check`` does.
        """
        self.check()
        self.lock_error = ""
        begin_ns = told_ns = self._clock.monotonic_ns()
        buffers: list[WriteBuffer] = []
        locked = locked_bytes = 0
        sizes = {"buffers": self.size, "buffer_bytes": self.buffer_bytes}
        self._log.info("write_buffer_pool_opening", **sizes)
        for number in range(self.size):
            buffer, array = self._make(number)
            buffers.append(buffer)
            try:
                for at in range(0, 0 if self.lock_error else array.nbytes, LOCK_BYTES):
                    still_wanted()
                    piece = array[at : at + LOCK_BYTES]
                    self._memory.lock(piece)
                    locked_bytes += piece.nbytes
                    if self._clock.monotonic_ns() - told_ns >= _TELL_EVERY_NS:
                        told_ns = self._clock.monotonic_ns()
                        done = 100 * locked_bytes // (self.size * array.nbytes)
                        self._log.info("write_buffer_pool_opening", **sizes, percent=done)
                locked += not self.lock_error
            except OSError as error:
                self.lock_error = error.strerror or str(error)
                self._memory.unlock(array)
        self.is_locked = locked == self.size
        for buffer in buffers:
            buffer.swapped = None if self.is_locked else self._memory
        with self._lock:
            self._free = buffers
            self.available = self.size
        duration_ms = round((self._clock.monotonic_ns() - begin_ns) / 1e6, 1)
        if self.is_locked:
            self._log.info(
                "write_buffer_pool_opened", buffers=self.size, buffer_bytes=self.buffer_bytes, duration_ms=duration_ms
            )
        else:
            self._log.warning(
                "write_buffer_pool_not_locked",
                why=self.lock_error,
                hint="raise the limit of locked memory (ulimit -l, LimitMEMLOCK) or grant CAP_IPC_LOCK; without it the "
                "system may swap the buffers out, and their first use waits for pages",
                buffers=self.size,
                locked_buffers=locked,
                buffer_bytes=self.buffer_bytes,
                duration_ms=duration_ms,
            )

    def _make(self, number: int) -> tuple[WriteBuffer, NDArray[np.uint8]]:
        """Return a new buffer, and all of its memory, to be locked."""
        array = np.frombuffer(mmap.mmap(-1, self.buffer_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        return WriteBuffer(array), array

    def continue_at(self, offset: int) -> None:
        """Note, before the first append, where the log ends."""

    def bind(self, buffer: WriteBuffer, offset: int) -> None:
        """Note, before its first byte is stored, that a borrowed buffer takes the log from ``offset`` on. Under the
        append lock.
        """

    def unbind(self, buffers: list[WriteBuffer]) -> None:
        """Take back the buffers bound last, oldest first: nothing that was stored in them counts. Under the append
        lock.
        """
        for buffer in buffers:
            self.give_back(buffer)

    def committed(self, offset: int) -> None:
        """Note that the log's files have all bytes below ``offset``. Under the commit lock."""

    def release(self, buffer: WriteBuffer) -> None:
        """Take back a buffer whose bytes are in the log's file. Under the commit lock, in the order of the log."""
        self.give_back(buffer)

    def borrow(self) -> WriteBuffer | None:
        """Return a free buffer, or None."""
        with self._lock:
            buffer = self._free.pop() if self._free else None
            if buffer is not None:
                assert not buffer.is_borrowed
                buffer.is_borrowed = True
            left = self.available = len(self._free)
        if left < self.size * FEW_LEFT_FRACTION:
            self._warn(left)
        return buffer

    def _warn(self, left: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._warned_ns >= _WARN_EVERY_NS:
            self._warned_ns = now_ns
            self._log.warning(f"TransientStorePool only remain {left} sheets.", available=left, size=self.size)

    def give_back(self, buffer: WriteBuffer) -> None:
        """Take a borrowed buffer back; its next borrower gets it with its old content."""
        with self._lock:
            assert buffer.is_borrowed, "a buffer returned twice"
            buffer.is_borrowed = False
            self._free.append(buffer)
            self.available = len(self._free)
            assert self.available <= self.size

    def close(self, *, is_empty: bool = True) -> None:
        """Drop the buffers: their memory is freed with their last user. ``is_empty``: the log's files have all that
        was stored in them.
        """
        with self._lock:
            self._free = []
            self.available = 0

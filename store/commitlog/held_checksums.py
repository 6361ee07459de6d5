"""Checksums of groups that are appended but not yet committed.

Lives here: ``HeldChecksums``, which hands an entry on only when its bytes are in the log's file: an entry of bytes
that a killed process took with it would speak of others later.
"""

import threading
from collections import deque

from pocketmq.store.commitlog.checksums import PENDING_MAX, ChecksumLog


class HeldChecksums:
    """Entries in about the order of the log: one that came too early keeps those behind it until its own commit.

    Thread-safe, no I/O; beyond ``PENDING_MAX`` entries are dropped (their
    bytes then are checked record by record).
    """

    def __init__(self, checksums: ChecksumLog) -> None:
        self._checksums = checksums
        self._lock = threading.Lock()
        self._held: deque[tuple[int, int, int]] = deque()
        self._committed_offset = 0

    def add(self, offset: int, length: int, crc: int) -> None:
        """Note a group within one segment; hand it on at once if it is committed already."""
        with self._lock:
            if offset + length > self._committed_offset:
                if len(self._held) < PENDING_MAX:
                    self._held.append((offset, length, crc))
                else:
                    self._checksums.dropped += 1
                return
        self._checksums.add(offset, length, crc)

    def release(self, committed_offset: int) -> None:
        """Hand on what is committed now."""
        with self._lock:
            self._committed_offset = max(self._committed_offset, committed_offset)
            held, ready = self._held, []
            while held and held[0][0] + held[0][1] <= committed_offset:
                ready.append(held.popleft())
        for entry in ready:
            self._checksums.add(*entry)

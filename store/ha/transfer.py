"""Sends the log over one connection, from any offset.

Lives here: ``LogTransfer``: the next bytes to send, their pieces, and those that the socket has not taken yet.
"""

import enum
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.ha.transport import Transport

FIRST_BUFFER_BYTES: Final = 64 << 10
"""Buffer of a connection that keeps up; one that has to catch up gets a whole batch."""

EncodeHead = Callable[[int, memoryview], bytes]
"""The head of a frame, from the offset and the bytes of its body."""


class LogSource(Protocol):
    """The reads of ``CommitLog`` that a transfer needs."""

    segment_bytes: int
    committed_offset: int

    @property
    def min_offset(self) -> int:
        """First offset the log still has."""
        ...

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` with committed bytes."""
        ...


class Pumped(enum.Enum):
    """How a call of ``pump`` ended."""

    DONE = "done"
    """The system has taken everything committed."""
    MORE = "more"
    """There is more, and the socket accepts it."""
    BLOCKED = "blocked"
    """The socket accepts nothing at the moment."""


class LogTransfer:
    """Sends [start, committed end) in frames of at most ``batch_bytes`` that never cross the end of a segment.

    One thread at a time. Memory: one batch, however far behind the slave is; the next one is read from the log when the
    socket has taken the previous one. ``sent_offset``: end of the framed bytes; ``sent_bytes`` counts bodies.
    """

    def __init__(
        self, log: LogSource, transport: Transport, batch_bytes: int, encode_head: EncodeHead, offset: int
    ) -> None:
        self.sent_offset = offset
        self.sent_bytes = 0
        self._log = log
        self._transport = transport
        self._batch_bytes = batch_bytes
        self._encode_head = encode_head
        self._buffer: NDArray[np.uint8] = np.empty(min(batch_bytes, FIRST_BUFFER_BYTES), np.uint8)
        self._pending: list[memoryview] = []

    @property
    def lag_bytes(self) -> int:
        """Committed bytes not framed yet."""
        return self._log.committed_offset - self.sent_offset

    def pump(self, batches_max: int) -> Pumped:
        """Send up to ``batches_max`` batches, without waiting. Raises ``TransportError``, ``OffsetOutOfRange``
        (retention has removed them), DiskError."""
        log = self._log
        for _ in range(batches_max):
            if self._pending and not self._send_pending():
                return Pumped.BLOCKED
            offset = self.sent_offset
            size = log.committed_offset - offset
            if size <= 0:
                return Pumped.DONE
            self._send_batch(offset, min(size, self._batch_bytes, log.segment_bytes - offset % log.segment_bytes))
        if self._pending:
            return Pumped.BLOCKED
        return Pumped.MORE if log.committed_offset > self.sent_offset else Pumped.DONE

    def send_frame(self, frame: bytes) -> None:
        """Send a frame without a body after the bytes under way; drop it when the socket accepts nothing, because the
        peer then has enough to read. Raises ``TransportError``."""
        if not self._pending:
            self._send([memoryview(frame)])

    def _send_batch(self, offset: int, size: int) -> None:
        if size > self._buffer.size:
            self._buffer = np.empty(self._batch_bytes, np.uint8)
        body = self._buffer[:size]
        self._log.read_into(offset, body)
        view = body.data
        head = memoryview(self._encode_head(offset, view))
        self.sent_offset = offset + size  # before the slave can have it: another thread checks its ACK against this
        self.sent_bytes += size
        self._send([head, view])

    def _send(self, parts: list[memoryview]) -> None:
        taken = self._transport.send(parts)
        for part in parts:
            if taken < len(part):
                self._pending.append(part[taken:])
                taken = 0
            else:
                taken -= len(part)

    def _send_pending(self) -> bool:
        """Send the bytes that the socket did not take; return whether none are left."""
        parts, self._pending = self._pending, []
        self._send(parts)
        return not self._pending

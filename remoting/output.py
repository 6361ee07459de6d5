"""Outgoing frames of one connection, written once per loop turn.

Lives here: ``Output``: collect buffers, join the small ones, hand the large ones on without a copy.
"""

import asyncio
from collections.abc import Callable, Sequence

from pocketmq.remoting.frame import Buffer

LARGE_BYTES = 64 * 1024
"""A buffer of at least this size is written as it is; smaller ones are joined."""
EAGER_BYTES = 256 * 1024
"""At this size the output is written without waiting for the turn's end: one turn of uvloop reads up to 8 MiB of
requests, and their answers must reach the high-water mark before that."""


class Output:
    """Buffers that wait to be written to one transport. Loop thread only.

    Buffers belong to the output from ``add`` on and must not change until written.
    """

    __slots__ = ("_buffers", "_loop", "_on_flush", "_scheduled", "_transport", "turn", "waiting_bytes")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, on_flush: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._on_flush = on_flush
        self._buffers: list[Buffer] = []
        self._scheduled = False
        self.waiting_bytes = 0
        """Bytes added and not yet handed to the transport."""
        self.turn = 0
        """Counts flushes: buffers added in the present turn are not written yet."""

    def add(self, buffers: Sequence[Buffer]) -> None:
        """Write ``buffers`` in this loop turn, after those added before."""
        self._buffers += buffers
        for buffer in buffers:
            self.waiting_bytes += len(buffer)
        if self.waiting_bytes >= EAGER_BYTES:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand everything to the transport now."""
        buffers = self._buffers
        if not buffers or self._transport.is_closing():
            self.clear()
            return
        self._buffers = []
        self.turn += 1
        write = self._transport.write
        if self.waiting_bytes < LARGE_BYTES:
            self.waiting_bytes = 0
            write(b"".join(buffers))
        else:
            self.waiting_bytes = 0
            small: list[Buffer] = []
            for buffer in buffers:
                if len(buffer) < LARGE_BYTES:
                    small.append(buffer)
                    continue
                if small:
                    write(b"".join(small))
                    small = []
                write(buffer)
            if small:
                write(b"".join(small))
        self._on_flush()

    def clear(self) -> None:
        """Drop the waiting buffers."""
        self._buffers = []
        self.waiting_bytes = 0

"""Outgoing frames of one connection, written once per loop turn.

Lives here: ``Output``: collect buffers, join the small ones, hand the large ones on without a copy; write one buffer at
once.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from pocketmq.remoting.frame import Buffer

LARGE_BYTES = 64 * 1024
"""A buffer of at least this size is written as it is; smaller ones are joined."""
EAGER_BYTES = 256 * 1024
"""At this size the output is written without waiting for the turn's end: one turn of uvloop reads up to 8 MiB of
requests, and their answers must reach the high-water mark before that."""


class OtherWriter(Protocol):
    """Another writer to the same socket."""

    lock: threading.Lock
    """Held by the side that writes; see ``direct_writer``."""


class Output:
    """Buffers that wait to be written to one transport. Loop thread only.

    Buffers belong to the output from ``add`` on and must not change until written. Nothing else writes to the
    transport. ``write``: ``os.write``, or what a test puts in its place; used for transports that have a socket.
    """

    __slots__ = (
        "_buffers",
        "_descriptor",
        "_loop",
        "_noting",
        "_on_flush",
        "_scheduled",
        "_transport",
        "_write",
        "direct",
        "handed_on",
        "passed_on",
        "turn",
        "waiting_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.WriteTransport,
        on_flush: Callable[[], None],
        write: Callable[[int, Buffer], int] = os.write,
    ) -> None:
        self._write = write
        sock = transport.get_extra_info("socket")
        encrypted = transport.get_extra_info("sslcontext") is not None  # then only the transport may write
        self._descriptor: int = -1 if sock is None or encrypted else sock.fileno()
        self.handed_on = 0
        self.passed_on = 0
        """How many of the ``handed_on`` writes to the transport have certainly left their turn; see ``is_clear``."""
        self._noting = False
        self._loop = loop
        self._transport = transport
        self._on_flush = on_flush
        self._buffers: list[Buffer] = []
        self._scheduled = False
        self.direct: OtherWriter | None = None
        """A writer in another thread, if there is one."""
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

    def write_now(self, data: bytes) -> None:
        """Write ``data`` after everything added before: at once if the peer reads, without waiting for the turn's end.

        The caller must take it as sent, even if the connection is lost right away. What the socket does not take goes
        to the transport; a closing one drops it.
        """
        if self._buffers:
            self.add((data,))
            self.flush()
            return
        self.turn += 1
        transport = self._transport
        if transport.is_closing():  # from here on the descriptor may be another connection's
            return
        if self.handed_on != self.passed_on or self._descriptor < 0 or transport.get_write_buffer_size():
            self._hand_on(data)
            return
        try:
            written = self._write(self._descriptor, data)
        except OSError:  # full, or lost: the transport waits, or notices
            written = 0
        if written != len(data):
            self._hand_on(memoryview(data)[written:])

    def _hand_on(self, data: Buffer) -> None:
        # Until the end of the turn uvloop holds what it was given, and does not count it as its buffer: only in a later
        # turn does an empty buffer mean that all of it has left.
        self.handed_on += 1
        self._transport.write(data)
        self._note_soon()
        self._on_flush()

    def is_clear(self) -> bool:
        """Return whether all bytes have certainly left for the socket, so that another writer may write now."""
        if self.handed_on != self.passed_on:
            self._note_soon()
            return False
        return not self.waiting_bytes and not self._transport.get_write_buffer_size()

    def _note_soon(self) -> None:
        if not self._noting:
            self._noting = True
            self._loop.call_soon(self._note, self.handed_on)

    def _note(self, handed_on: int) -> None:
        """In a later turn: all writes up to number ``handed_on`` have left, or the transport counts them."""
        self.passed_on = handed_on
        self._noting = handed_on != self.handed_on
        if self._noting:
            self._loop.call_soon(self._note, self.handed_on)

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand everything to the transport now; if another thread is writing, it asks for this again."""
        if not self._buffers or self._transport.is_closing():
            self.clear()
            return
        direct = self.direct
        if direct is None:
            self._flush()
        elif direct.lock.acquire(False):
            try:
                self._flush()
            finally:
                direct.lock.release()

    def write_first(self, data: Buffer) -> None:
        """Hand ``data`` to the transport before everything that waits here."""
        if not self._transport.is_closing():
            self.turn += 1
            self.handed_on += 1
            self._transport.write(data)
            self._note_soon()

    def _flush(self) -> None:
        buffers = self._buffers
        self._buffers = []
        self.turn += 1
        self.handed_on += 1
        if self.direct is not None:
            self._note_soon()
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

"""Writes to a connection's socket past the event loop, from the thread that has the answer.

Waking the loop for an answer of 60 bytes costs more than the answer. So a thread may write small frames itself, under
rules that keep every byte in order:

- It writes only while the connection's ``Output`` has written nothing since the loop saw the transport empty
  (``is_clear``): bytes that wait in the transport must leave first.
- One side writes at a time: the loop's ``Output`` and the thread take ``lock`` for each write, and neither waits for
  it. A write never blocks, so the lock is held for microseconds. The loop, if it fails, keeps its buffers, and the
  thread asks it to flush when it is done.
- The descriptor is a duplicate that this object closes: the transport may close its own at any moment, and its number
  may then belong to another connection.
- What the socket does not take goes to the loop, and until it is written the lock stays with it.

Lives here: ``DirectWriter``.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

from pocketmq.remoting.output import Output

SystemWrite = Callable[[int, bytes], int]


class DirectWriter:
    """The right of other threads to write to one connection. ``write`` may be called from any thread, the rest belongs
    to the loop."""

    __slots__ = ("_closed", "_descriptors", "_loop", "_output", "_stuck", "_write", "lock")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, output: Output, descriptor: int, system_write: SystemWrite = os.write
    ) -> None:
        """``descriptor``: the transport's, which is duplicated. ``system_write`` writes without blocking."""
        self.lock = threading.Lock()
        self._loop = loop
        self._output = output
        self._descriptors = [os.dup(descriptor)]  # popped by whoever closes it: a pop happens once
        self._write = system_write
        self._closed = False
        self._stuck = False
        output.direct = self

    def write(self, frame: bytes, turn: int) -> bool:
        """Write ``frame`` now; return False if the loop has to, and then nothing was written.

        ``turn``: ``Output.turn`` when the loop last saw the transport empty.
        """
        if not self.lock.acquire(False):
            return False
        output = self._output
        rest, written = b"", False
        if not self._closed and output.turn == turn and not output.waiting_bytes:
            written = True
            try:
                rest = frame[self._write(self._descriptors[0], frame) :]
            except (BrokenPipeError, ConnectionError):
                pass  # the peer is gone; the loop learns it by its next read
            except OSError:  # the socket is full, or the system has no memory for it
                written = False
        if rest:
            self._stuck = True  # the lock stays taken until the loop has written the rest
            self._call_loop(self._finish, rest)
            return True
        self.lock.release()
        if self._closed:
            self._close_descriptor()
        elif output.waiting_bytes:  # added by a loop that may have found the lock taken
            self._call_loop(output.flush)
        return written

    def _call_loop(self, function: Callable[..., None], *arguments: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the connection with it
            self._loop.call_soon_threadsafe(function, *arguments)

    def _finish(self, rest: bytes) -> None:
        """Write what the socket did not take, before anything else."""
        self._output.write_first(rest)
        self._stuck = False
        self.lock.release()
        if self._closed:  # while the thread was still writing: then ``close`` has left the descriptor
            self._close_descriptor()
        self._output.flush()

    def close(self) -> None:
        """Let no thread write any more; the descriptor is closed now, or by the thread that is writing."""
        self._closed = True
        if self._stuck or self.lock.acquire(False):
            self._close_descriptor()
            if not self._stuck:
                self.lock.release()

    def _close_descriptor(self) -> None:
        with contextlib.suppress(IndexError, OSError):
            os.close(self._descriptors.pop())

"""One log output for several processes: each line begins with the name of its process.

Lives here: ``LabelledLog``, ``LineSplitter``. Lines that are JSON objects get the name as their first member,
``process``.
"""

import contextlib
import json
import threading
import time
from collections import deque
from typing import Final, Protocol

LINE_BYTES_MAX: Final = 1 << 20
"""A longer line is cut into several."""
QUEUE_BYTES_MAX: Final = 8 << 20


class ByteSink(Protocol):
    """An unbuffered stream (``io.RawIOBase``): a write takes a part of the bytes, or None when it would block."""

    def write(self, data: memoryview, /) -> int | None:
        """Return how many bytes were taken."""
        ...


class LineSplitter:
    """Cut a stream of bytes into lines. Holds at most ``line_bytes_max`` bytes of a line that has not ended."""

    __slots__ = ("_line_bytes_max", "_rest")

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that have ended, without their ends."""
        *lines, rest = (self._rest + data).split(b"\n")
        while len(rest) >= self._line_bytes_max:
            lines.append(rest[: self._line_bytes_max])
            rest = rest[self._line_bytes_max :]
        self._rest = rest
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, which lacks its end, if there is one."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class LabelledLog:
    """Writes lines to ``stream`` in a thread of its own. ``write`` and ``tell`` never wait.

    When the stream does not take the lines (a pipe without a reader, a stopped terminal), at most 8 MiB are kept; the
    rest is counted and reported with the next line that is written.
    """

    def __init__(self, stream: ByteSink, *, width: int, as_json: bool) -> None:
        """``width``: characters of the longest name; ``as_json``: the form of the command's own lines."""
        self._stream = stream
        self._width = width
        self._as_json = as_json
        self._lines: deque[bytes] = deque()
        self._size_bytes = 0
        self._left_out = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="cluster-log", daemon=True)
        self._thread.start()

    def write(self, name: str, line: bytes) -> None:
        """Queue a line of a process."""
        if line.startswith(b"{") and line.endswith(b"}"):
            self._queue(b'{"process":%b%b%b\n' % (json.dumps(name).encode(), b"" if line == b"{}" else b",", line[1:]))
        elif self._as_json:
            text = {"process": name, "text": line.decode("utf-8", "replace")}
            self._queue(json.dumps(text, ensure_ascii=False).encode() + b"\n")
        else:
            self._queue(b"%b | %b\n" % (name.ljust(self._width).encode(), line))

    def tell(self, text: str) -> None:
        """Queue a line of the command itself."""
        self.write("cluster", text.encode())

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued; give up after ``timeout_s``."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _queue(self, line: bytes) -> None:
        with self._changed:
            if self._size_bytes + len(line) > QUEUE_BYTES_MAX:
                self._left_out += 1
                return
            self._lines.append(line)
            self._size_bytes += len(line)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closed:
                    self._changed.wait()
                if not self._lines:
                    return
                data, left_out = b"".join(self._lines), self._left_out
                self._lines.clear()
                self._size_bytes = self._left_out = 0
            if left_out:
                data += b"%b | %d lines left out: this output was not read\n" % (
                    b"cluster".ljust(self._width),
                    left_out,
                )
            with contextlib.suppress(OSError, ValueError):  # the reader has gone: brokers do not stop for their log
                self._write_all(data)

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = self._stream.write(left)
            if written is None:  # a descriptor that another program made non-blocking
                time.sleep(0.01)
            left = left[written or 0 :]

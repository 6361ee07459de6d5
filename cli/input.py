"""The input of ``pocketmq produce``: lines of files or of standard input, as they arrive.

Lives here: ``LineSplitter``, ``InputFile`` (reads without blocking the loop), ``LineParser`` (line → message).
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, MessageIllegal, PocketMQError
from pocketmq.common.message import Message

READ_BYTES: Final = 1 << 18
LINE_BYTES_MAX: Final = 16 << 20
"""A longer line is not a message, whatever the broker allows."""


class InputFailed(PocketMQError):
    """A file cannot be read, or one of its lines is not a message."""


class LineSplitter:
    """Cut received bytes into lines. Does no I/O. The end of line (LF, or CR LF) is not part of a line.

    Holds: fewer than ``line_bytes_max`` bytes stay buffered; a longer line raises ``MessageIllegal``.
    """

    __slots__ = ("_line_bytes_max", "_rest")

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._rest = bytearray()
        self._line_bytes_max = line_bytes_max

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes."""
        end = data.rfind(b"\n")
        if end < 0:
            self._rest += data
            self._check(len(self._rest))
            return []
        lines = (bytes(self._rest) + data[:end]).split(b"\n")
        self._rest = bytearray(data[end + 1 :])
        self._check(max(map(len, lines)))
        return [line.removesuffix(b"\r") for line in lines]

    def finish(self) -> list[bytes]:
        """Return the last line if it has no line end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest.removesuffix(b"\r")] if rest else []

    def _check(self, length: int) -> None:
        if length > self._line_bytes_max:
            raise MessageIllegal("line refused", why=f"more than {self._line_bytes_max} bytes without an end of line")


class InputFile:
    """One file, or standard input for ``-``. ``size_bytes`` is None where it is not known (a pipe, a terminal).

    The loop waits for a pipe, not a thread, so that Ctrl-C ends the wait.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY)
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise InputFailed("the input cannot be read", why=f"{path}: {error.strerror}") from error
        self._waits = not stat.S_ISREG(status.st_mode)
        self.size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the input in chunks, each as soon as it can be read, up to the end."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                if self._waits:
                    await self._readable(loop)
                try:
                    data = os.read(self._descriptor, READ_BYTES)
                except OSError as error:
                    raise InputFailed("the input cannot be read", why=f"{self.path}: {error.strerror}") from error
                if not data:
                    return
                yield data
                await asyncio.sleep(0)
        finally:
            if self._descriptor:
                os.close(self._descriptor)

    async def _readable(self, loop: asyncio.AbstractEventLoop) -> None:
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except OSError:  # epoll refuses regular files and /dev/null: reading them never waits
            self._waits = False
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)


class LineParser:
    """Turn a line into a message: where the key is, and what every message gets.

    ``key_separator``: the key is what stands before it in the line. ``key_field``: the line is a JSON object, the key
    is the value of that field. ``sharding``: the key also chooses the queue. ``fields``: other fields of ``Message``,
    the same for every line.
    """

    def __init__(
        self,
        topic: str,
        *,
        key: str = "",
        key_separator: bytes = b"",
        key_field: str = "",
        sharding: bool = False,
        **fields: Any,
    ) -> None:
        self._topic = topic
        self._fields = fields
        self._key = key
        self._key_separator = key_separator
        self._key_field = key_field
        self._sharding = sharding

    def parse(self, line: bytes) -> Message:
        """Return the message that ``line`` stands for; raise ``InputFailed`` if the key is not where it should be."""
        key, body = self._key, line
        if self._key_separator:
            before, separator, body = line.partition(self._key_separator)
            if not separator:
                raise InputFailed(
                    "line refused",
                    why=f"no {self._key_separator!r} in {shown(line)}",
                    hint="--key-sep must be in each line",
                )
            key = _key_text(before)
        elif self._key_field:
            key = self._json_key(line)
        return Message(
            self._topic,
            body,
            keys=key,
            sharding_key=key if self._sharding and key else None,
            **self._fields,
        )

    def _json_key(self, line: bytes) -> str:
        try:
            value = msgspec.json.decode(line)
        except DECODE_ERRORS as error:
            raise InputFailed("line refused", why=f"{shown(line)} is not JSON: {error}") from error
        if not isinstance(value, dict) or self._key_field not in value:
            raise InputFailed(
                "line refused",
                why=f"no field {self._key_field!r} in {shown(line)}",
                hint="--key-field must be in each line",
            )
        key = value[self._key_field]
        return key if isinstance(key, str) else msgspec.json.encode(key).decode()


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise InputFailed("line refused", why=f"key {shown(key)} is not UTF-8") from error


def shown(line: bytes) -> str:
    """Return the beginning of a line for the text of an error."""
    return repr(line[:60]) + ("…" if len(line) > 60 else "")

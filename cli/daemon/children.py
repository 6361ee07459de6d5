"""Processes of a cluster: ``pocketmq`` in processes of their own, whose output goes to one log.

Lives here: ``ChildProcess``.
"""

import asyncio
import contextlib
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.cli.daemon.labelled_log import LabelledLog, LineSplitter

READ_BYTES: Final = 65_536
LAST_LINES: Final = 20
ERROR_PREFIX: Final = "error: "


class ChildProcess:
    """A running ``pocketmq namesrv | broker``. It ends with this process, also if that is killed."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: LabelledLog) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process
        self._log = log
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._ready: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        assert process.stdout is not None
        assert process.stderr is not None
        self._copies = [
            asyncio.create_task(self._copy_output(process.stdout)),
            asyncio.create_task(self._copy_errors(process.stderr)),
        ]

    @classmethod
    async def launch(cls, name: str, arguments: Sequence[str], log: LabelledLog) -> "ChildProcess":
        """Start ``pocketmq ARGUMENTS``."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pocketmq.cli.daemon.bound_to_parent",
            *arguments,
            stdin=asyncio.subprocess.PIPE,  # its end tells the process that this one has ended
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only the command, which stops them in order
        )
        return cls(name, process, log)

    async def ready(self) -> Mapping[str, str]:
        """Wait for the ready line, as long as the process lives: a recovery takes its time. Empty: it has ended."""
        return await asyncio.shield(self._ready)

    async def ended(self) -> int:
        """Wait for the end and the last line of its output; return the exit code."""
        code = await self._process.wait()
        await asyncio.gather(*(asyncio.shield(copy) for copy in self._copies), return_exceptions=True)
        return code

    def last_words(self) -> str:
        """Return its error message, or the end of its output."""
        errors = [line for line in self._last if line.startswith(ERROR_PREFIX)]
        return errors[-1].removeprefix(ERROR_PREFIX) if errors else "\n".join(self._last)

    def terminate(self) -> None:
        """Ask it to stop cleanly."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _copy_output(self, stream: asyncio.StreamReader) -> None:
        """Find the ready line; what follows it goes to the log."""
        lines = LineSplitter()
        try:
            while data := await stream.read(READ_BYTES):
                for line in lines.feed(data):
                    if not self._ready.done() and line.startswith(b"ready "):
                        words = line.decode("utf-8", "replace").split()[1:]
                        self._ready.set_result(dict(word.split("=", 1) for word in words if "=" in word))
                    else:
                        self._log.write(self._name, line)
        finally:
            if not self._ready.done():
                self._ready.set_result({})

    async def _copy_errors(self, stream: asyncio.StreamReader) -> None:
        lines = LineSplitter()
        while data := await stream.read(READ_BYTES):
            self._write(lines.feed(data))
        self._write(lines.end())

    def _write(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._last.append(line[:2000].decode("utf-8", "replace"))
            self._log.write(self._name, line)

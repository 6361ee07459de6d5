"""A ``pocketmq standalone`` in its own process, for ``bench``, examples and tests.

Lives here: ``OwnBroker``.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pocketmq.cli.exit_codes import CannotStart

READY_LINE: Final = re.compile(r"ready(?: namesrv=(\S+))?(?: broker=(\S+))?(?: \w+=\S+)*\n")
"""The line that a daemon prints when it serves."""
_STOP_S = 30.0


class OwnBroker:
    """Name server and broker on free ports of 127.0.0.1 with their own store.

    The store is removed at the end unless ``data_dir`` is given. ``kill`` ends the process as a crash would; ``start``
    may follow. Raises ``CannotStart`` with the standard error of the process.
    """

    def __init__(self, *, data_dir: Path | None = None, arguments: Sequence[str] = ()) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="pocketmq-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary else data_dir or Path()
        self._arguments = list(arguments)
        self._process: subprocess.Popen[str] | None = None
        self.namesrv = ""
        self.address = ""

    @property
    def process_id(self) -> int:
        """The id of the process, for tools that watch it."""
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        """Return the command and its role; ports of the broker, log level and the caller's arguments follow."""
        command = [sys.executable, "-m", "pocketmq.cli.main", "standalone", "--data-dir", str(self.data_dir)]
        return [*command, "--namesrv-port", "0"]

    def start(self) -> None:
        """Start the process and wait for its ready line."""
        command = [*self.command(), "--broker-port", "0", "--log-level", "warning", *self._arguments]
        with tempfile.TemporaryFile("w+") as errors:
            process = self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert process.stdout is not None
            match = READY_LINE.fullmatch(process.stdout.readline())
            if match is None:
                process.kill()
                process.wait()
                process.stdout.close()
                self._process = None
                errors.seek(0)
                raise CannotStart("the broker did not start", why=errors.read(4096).strip() or "it wrote no error")
        self.namesrv, self.address = match[1] or self.namesrv, match[2] or ""

    def stop(self) -> int:
        """End the process cleanly and return its exit code; kill it if that takes more than 30 s."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as ``kill -9`` does."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        os.kill(process.pid, number)
        try:
            code = process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
        return code

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._remove()

    def _remove(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

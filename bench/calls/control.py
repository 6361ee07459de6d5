"""The command line between the process that measures and those that are counted: one Unix socket each.

Lives here: ``serve`` (the thread in a counted process), ``Counted`` (its other end).
Commands: ``start``, ``stop`` (answers ``Counts``), ``do`` with a name and arguments (answers what it returns).
"""

import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final

from bench.calls.counter import CallCounter, Counts

ANSWER_S: Final = 120.0


def _nothing(*arguments: Any) -> None: ...


def serve(
    address: str,
    counter: CallCounter,
    do: Callable[..., Any] = _nothing,
    closed: Callable[[], object] = _nothing,
) -> None:
    """Take commands in a thread that is not counted; call ``closed`` when the other end has closed."""

    def run() -> None:
        sys.setprofile(None)
        with Client(address) as connection:
            while True:
                try:
                    command, *arguments = connection.recv()
                except EOFError:
                    closed()
                    return
                try:
                    answer: Any = {"start": counter.start, "stop": counter.stop, "do": do}[command](*arguments)
                except BaseException as error:
                    answer = error
                connection.send(answer)

    threading.Thread(target=run, name="bench-control", daemon=True).start()


class Counted:
    """A counted process. ``accept`` after its start; then commands, one at a time."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.address = str(directory / f"{name}.socket")
        self._listener = Listener(self.address, family="AF_UNIX")
        self._connection: Connection[Any, Any] | None = None

    def accept(self) -> None:
        """Wait for the process to connect."""
        self._connection = self._listener.accept()

    def ask(self, command: str, *arguments: Any) -> Any:
        """Return the answer. Raises the error of the other process, or ``TimeoutError``."""
        self.begin(command, *arguments)
        return self.answer()

    def begin(self, command: str, *arguments: Any) -> None:
        """Send a command without waiting for its answer."""
        assert self._connection is not None
        self._connection.send((command, *arguments))

    def answer(self) -> Any:
        """Wait for the answer of ``begin``."""
        assert self._connection is not None
        if not self._connection.poll(ANSWER_S):
            raise TimeoutError(f"no answer of the {self.name} within {ANSWER_S:g} s")
        found = self._connection.recv()
        if isinstance(found, BaseException):
            raise found
        return found

    def start(self) -> None:
        """Begin a window."""
        self.ask("start")

    def stop(self) -> Counts:
        """End the window; return its calls."""
        found: Counts = self.ask("stop")
        return found

    def close(self) -> None:
        """Close both sockets; the process goes on."""
        if self._connection is not None:
            self._connection.close()
        self._listener.close()

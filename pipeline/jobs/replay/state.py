"""The state of a replay: a small file, so that an interrupted replay continues.

Lives here: ``Journal``.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, ConfigError
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.jobs.replay.ordering import KeyValue


class Reached(msgspec.Struct, frozen=True):
    """The replay, and the number and key of the last acknowledged row."""

    what: list[str]
    rows: int = 0
    key: list[KeyValue] | None = None
    done: bool = False


def default_path(what: Sequence[str]) -> Path:
    """Return the default path of a replay's state, in the user's state directory (XDG)."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    name = hashlib.sha256("\0".join(what).encode()).hexdigest()[:16]
    return Path(home, "pocketmq", "replay", f"{name}.json")


class Journal:
    """The file of one replay. ``what``: input, topic and columns; a file of another replay is refused."""

    def __init__(self, path: Path, what: Sequence[str]) -> None:
        self.path = path
        self.reached = Reached(list(what))

    @contextmanager
    def opened(self, *, restart: bool) -> Iterator[Reached]:
        """Lock the file and yield its state. Raises ``JobFailed``: in use, of another replay, or done before."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "ab") as lock:
            self._lock(lock)
            if not restart and self.path.exists():
                self.reached = self._read()
            yield self.reached

    def _lock(self, lock: IO[bytes]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JobFailed("this replay runs", why=f"another process holds {self.path}", hint="wait for it") from error

    def _read(self) -> Reached:
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=Reached)
        except DECODE_ERRORS as error:
            raise JobFailed(
                "state not read", why=f"{self.path}: {error}", hint="--restart sends from the start"
            ) from error
        if found.what != self.reached.what:
            raise ConfigError(
                "state of another replay",
                why=f"{self.path} is of {' → '.join(found.what)}",
                hint="name another --state",
            )
        if found.done:
            raise JobFailed(
                "replayed before", why=f"{found.rows:,} rows, says {self.path}", hint="--restart sends them once more"
            )
        return found

    def reach(self, rows: int, key: list[KeyValue] | None, *, done: bool = False) -> None:
        """Store that ``rows`` were acknowledged, the last with this key. A kill leaves this state or the one before."""
        self.reached = Reached(self.reached.what, rows, key, done)
        aside = self.path.with_suffix(f".{os.getpid()}")
        with open(aside, "wb") as file:
            file.write(msgspec.json.encode(self.reached))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)

"""How far a replay came: a small file, so that it goes on where it was cut off.

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
    """What was replayed where, and the last row that the broker acknowledged: its number and its key."""

    what: list[str]
    rows: int = 0
    key: list[KeyValue] | None = None
    done: bool = False


def default_path(what: Sequence[str]) -> Path:
    """Return where the state of a replay is kept if nobody says: in the user's state directory (XDG)."""
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
        """Hold the file and give what it says. Raises ``JobFailed``: in use, of another replay, or done before."""
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
        """Note that ``rows`` were acknowledged, the last one of key ``key``. A kill leaves this note or the last."""
        self.reached = Reached(self.reached.what, rows, key, done)
        aside = self.path.with_suffix(f".{os.getpid()}")
        with open(aside, "wb") as file:
            file.write(msgspec.json.encode(self.reached))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)

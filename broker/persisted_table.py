"""The broker's small tables on disk: ``config/topics.json`` and its siblings.

A damaged file never counts as an empty one, and none of its content is lost silently:

- each file ends with its own checksum (``common.sealed_json``), which RocketMQ's files lack, and its main key is
  required: without it the file is damaged;
- the backup then replaces it, and the damaged file is kept as ``<name>.damaged-<n>``; the event
  ``config_file_damaged`` reports this. Without a readable backup the broker does not start: the error names the file
  to repair or to move away;
- a file becomes the backup only if this process has read it without an error, or written it.

Lives here: ``PersistedTable``, which loads a table and writes it when it has changed, like RocketMQ's ConfigManager.
"""

import posixpath
import threading
from typing import Final, Protocol

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.common.hashes import crc32
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.remoting.fastjson import standard_json
from pocketmq.store.disk.file_system import FileSystem

BACKUP: Final = ".bak"
DAMAGED: Final = ".damaged-"
"""Between the name of a table's file and the number of a damaged copy."""
KEPT_MAX: Final = 5
"""Damaged copies kept of one file."""
_MISSING: Final = "it is not there"


class Table(Protocol):
    """A table that can be written to a file."""

    generation: int
    """Counts changes."""

    def encode(self) -> bytes:
        """Return the whole content."""
        ...

    def load(self, content: bytes) -> None:
        """Replace the content; raises ``DECODE_ERRORS``."""
        ...


class PersistedTable:
    """One table and its file.

    ``persist`` writes the whole table if it has changed since it was last written, and returns when it is durable:
    concurrent callers share one write. The old content is kept as ``.bak``; loading falls back to it. All
    methods block on the disk: worker threads only.
    """

    def __init__(
        self, table: Table, path: str, file_system: FileSystem, log: EventLog, *, durable: bool = True
    ) -> None:
        self._table = table
        self.path = path
        self._file_system = file_system
        self._log = log
        self._durable = durable
        self._lock = threading.Lock()
        self._persisted = -1
        self._sound: int | None = None  # CRC of the file as this process has read or written it
        self.is_old = False
        """Whether ``load`` found no file, or used the backup: the latest changes may be missing."""

    def load(self) -> bool:
        """Fill the table from the file, or from its backup; False when neither exists.

        Raises ``CorruptRecord`` when a file exists and none is readable: an empty table must not replace a damaged one.
        """
        self.is_old = True
        backup = self.path + BACKUP
        why = self._load(self.path)
        if why is None:
            self._persisted = self._table.generation
            self.is_old = False
            return True
        why_not_backup = self._load(backup)
        if why_not_backup is None:
            kept_as = "" if why == _MISSING else self._set_aside()
            self._log.error(
                "config_file_damaged",
                path=self.path,
                error=why,
                taken=backup,
                kept_as=kept_as,
                what_to_do="check whether the last change is missing; if you edited the file, stop the broker, remove "
                "the field crc at the end of the kept file, and copy it back",
            )
            return True
        if why == why_not_backup == _MISSING:
            return False
        for path, error in ((self.path, why), (backup, why_not_backup)):
            if error != _MISSING:
                self._log.error("config_file_damaged", path=path, error=error, taken="", kept_as=path)
        raise CorruptRecord(
            "the broker does not start",
            why=f"{self.path}: {why}; {backup}: {why_not_backup}",
            hint=f"replace {self.path} by a good copy; if you edited it, correct it and remove the field crc at its "
            "end; or move both files away: the broker then starts without their content",
        )

    def _load(self, path: str) -> str | None:
        """Fill the table from a file; return None, or the reason why it cannot be read."""
        try:
            data = self._file_system.read_all(path)
        except FileNotFoundError:
            return _MISSING
        try:
            content = unseal(data)
            try:
                self._table.load(content)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:  # fastjson writes integer keys without quotes
                self._table.load(standard_json(content))
        except DECODE_ERRORS as error:
            return str(error)
        if path == self.path:
            self._sound = crc32(data)
        return None

    def _set_aside(self) -> str:
        """Keep for the operator a file that this process has not written; return its new name.

        At most ``KEPT_MAX`` are kept; the oldest is removed.
        """
        directory, name = posixpath.split(self.path)
        prefix = name + DAMAGED
        names = [each for each in self._file_system.list(directory) if each.startswith(prefix)]
        numbers = sorted(int(each[len(prefix) :]) for each in names if each[len(prefix) :].isdecimal())
        for number in numbers[: max(0, len(numbers) - KEPT_MAX + 1)]:
            self._file_system.remove(f"{self.path}{DAMAGED}{number}")
        kept_as = f"{self.path}{DAMAGED}{numbers[-1] + 1 if numbers else 1}"
        self._file_system.rename(self.path, kept_as)
        return kept_as

    def persist(self) -> bool:
        """Write the table if it has changed or its file is gone; True when it was written. Raises ``StoreError``."""
        with self._lock:
            generation = self._table.generation  # before the content: later changes are written next time
            if generation == self._persisted and self._file_system.exists(self.path):
                return False
            content = seal(self._table.encode())
            self._keep_old()
            self._file_system.replace(self.path, content, durable=self._durable)
            self._sound = crc32(content)
            self._persisted = generation
            return True

    def _keep_old(self) -> None:
        """Make the file the backup if this process has read or written it."""
        if self._sound is None:  # none was read: it is missing, or is that of another role of this broker
            return
        try:
            old = self._file_system.read_all(self.path)
        except FileNotFoundError:
            return
        if crc32(old) == self._sound:
            self._file_system.replace(self.path + BACKUP, old, durable=False)
            return
        self._log.error(
            "config_file_damaged",
            path=self.path,
            error="it has changed since this broker wrote or read it",
            taken="the table in memory",
            kept_as=self._set_aside(),
            what_to_do="stop the broker before you edit its files; if you did not edit it, check the disk",
        )

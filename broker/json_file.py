"""The broker's small tables on disk: ``config/topics.json`` and its siblings.

Lives here: ``PersistedTable``, which loads a table and writes it when it has changed, the way RocketMQ's ConfigManager
does. Not here: the tables and their JSON (``topic_table``, ``consumer_offsets``, ``subscription_groups``), file access
itself (``store.file_system``).
"""

import threading
from typing import Final, Protocol

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, CorruptRecord
from pocketmq.common.events import EventLog
from pocketmq.remoting.fastjson import standard_json
from pocketmq.store.file_system import FileSystem

BACKUP: Final = ".bak"


class Table(Protocol):
    """What can be persisted."""

    generation: int
    """Counts changes."""

    def encode(self) -> bytes:
        """Return the whole content."""
        ...

    def load(self, content: bytes) -> None:
        """Take over a content; raises ``DECODE_ERRORS``."""
        ...


class PersistedTable:
    """One table and its file.

    ``persist`` writes the whole table if it has changed since it was last written, and returns when it is durable:
    callers that come together share one write. The old content is kept as ``.bak``; loading falls back to it. All
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
        self._is_damaged = False  # the file, not its backup

    def load(self) -> bool:
        """Fill the table from the file, or from its backup; False when neither exists.

        Raises ``CorruptRecord`` when a file is there and none can be read: an empty table must not replace a damaged
        one.
        """
        damaged = ""
        for path in (self.path, self.path + BACKUP):
            try:
                content = self._file_system.read_all(path)
            except FileNotFoundError:
                continue
            try:
                self._load(content)
            except DECODE_ERRORS as error:
                damaged = f"{path}: {error}"
                self._is_damaged |= path == self.path
                self._log.error("config_file_damaged", path=path, error=str(error))
                continue
            if path == self.path:
                self._persisted = self._table.generation
            return True
        if damaged:
            raise CorruptRecord("the broker does not start", why=damaged, hint="repair the file, or move it away")
        return False

    def _load(self, content: bytes) -> None:
        try:
            self._table.load(content)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # fastjson writes integer keys without quotes
            self._table.load(standard_json(content))

    def persist(self) -> bool:
        """Write the table if it has changed or its file is gone; True when it was written. Raises ``StoreError``."""
        with self._lock:
            generation = self._table.generation  # before the content: what changes meanwhile is written next time
            if generation == self._persisted and self._file_system.exists(self.path):
                return False
            content = self._table.encode()
            try:
                old = self._file_system.read_all(self.path)
            except FileNotFoundError:
                old = b""
            if old and not self._is_damaged:  # the backup is then the only good copy
                self._file_system.replace(self.path + BACKUP, old, durable=False)
            self._file_system.replace(self.path, content, durable=self._durable)
            self._is_damaged = False
            self._persisted = generation
            return True

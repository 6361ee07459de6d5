"""How full the disks of the store are, as it was a moment ago.

Lives here: ``DiskSpace``: looked at off the loop, read from anywhere.
"""

import os.path
from dataclasses import dataclass

from pocketmq.common.errors import PocketMQError
from pocketmq.store.disk.file_system import FileSystem


@dataclass(frozen=True, slots=True)
class Space:
    """One file system. ``ratio``: used part of it, 0 to 1; -1 where it is not known."""

    free_bytes: int = -1
    total_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Return the used part."""
        return 1 - self.free_bytes / self.total_bytes if self.total_bytes > 0 else -1.0


class DiskSpace:
    """The space around the commit log and the consume queues.

    ``look`` asks the file system and may hang with it: housekeeping thread only. What it found stays until the next
    look.
    """

    def __init__(self, file_system: FileSystem, commit_log: str, consume_queues: str) -> None:
        self._file_system = file_system
        self._paths = (commit_log, consume_queues)
        self.commit_log = Space()
        self.consume_queues = Space()

    def look(self) -> None:
        """Ask again."""
        self.commit_log, self.consume_queues = (self._space(path) for path in self._paths)

    def _space(self, path: str) -> Space:
        if not self._file_system.exists(path):  # consume queues come with the first message
            path = os.path.dirname(path)
        try:
            return Space(*self._file_system.free_bytes(path))
        except (PocketMQError, OSError):
            return Space()

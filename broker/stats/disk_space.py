"""How full the store's disks were at the last check.

Lives here: ``DiskSpace``: updated off the loop, read from any thread.
"""

import os.path

from pocketmq.common.errors import PocketMQError
from pocketmq.store.disk.disk_limits import Space
from pocketmq.store.disk.file_system import FileSystem


class DiskSpace:
    """Disk space of the commit log and of the consume queues, as the last ``look`` found it.

    ``look`` asks the file system and may hang with it: call it only in the housekeeping thread.
    """

    def __init__(self, file_system: FileSystem, commit_log: str, consume_queues: str) -> None:
        self._file_system = file_system
        self._paths = (commit_log, consume_queues)
        self.commit_log = Space()
        self.consume_queues = Space()

    def refresh(self) -> None:
        """Ask the file system again."""
        self.commit_log, self.consume_queues = (self._space(path) for path in self._paths)

    def _space(self, path: str) -> Space:
        if not self._file_system.exists(path):  # the first message creates the consume queues
            path = os.path.dirname(path)
        try:
            return Space(*self._file_system.free_bytes(path))
        except (PocketMQError, OSError):
            return Space()

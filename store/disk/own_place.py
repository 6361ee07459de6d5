"""Whether an open store still is where it was opened.

A process goes on writing to files that somebody has moved or removed, and nobody finds what it wrote. So each
checkpoint compares the identities of the directory, of the log's directory and of the file ``lock``.

Lives here: ``OwnPlace``.
"""

from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreReplaced


class OwnPlace:
    """Remembers what an opening found under its paths. Touches the disk."""

    __slots__ = ("_file_system", "_identities", "_lock_path", "_paths")

    def __init__(self, file_system: FileSystem, directories: tuple[str, ...], lock_path: str) -> None:
        self._file_system = file_system
        self._paths = (*directories, lock_path)
        self._lock_path = lock_path
        self._identities: dict[str, tuple[int, int] | None] = {}

    def remember(self) -> None:
        """Note what is there now: the store is open."""
        self._identities = {path: self._file_system.identity(path) for path in self._paths}

    def check(self, file: str) -> None:
        """Raise ``StoreReplaced`` unless all are there still, and ``file``, the segment of the appends (empty: none).

        A missing file ``lock`` is no error: the directory is locked too. Another file of that name is: its maker may
        have opened the store.
        """
        for path, known in self._identities.items():
            found = self._file_system.identity(path)
            if found != known and not (found is None and path == self._lock_path):
                raise self._replaced(path, "was replaced by another one" if found else "was moved or removed")
        if file and self._file_system.identity(file) is None:
            raise self._replaced(file, "was moved or removed")

    def _replaced(self, path: str, how: str) -> StoreReplaced:
        return StoreReplaced(
            "the store is not where it was opened",
            why=f"{path} {how} while the broker ran",
            hint="what this process stored last may be in files without a name: save what its consumers still need, "
            "stop it, and put the directory back",
        )

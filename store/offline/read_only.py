"""A read-only file system.

Lives here: ``ReadOnlyFileSystem``, used by every offline reader, so that one class guarantees that no file changes.
"""

from typing import NoReturn

from pocketmq.store.disk.file_system import FileLock, FileSystem, StoreFile
from pocketmq.store.errors import StoreReadOnly


class ReadOnlyFileSystem:
    """Opens files only for reading; refuses every call that changes a name or a byte."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> StoreFile:
        """Open a file that exists, for reading. A write to it fails in the system."""
        return self._inner.open(path, create=False, writable=False)

    def open_private(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file that exists, for reading. A write to it fails in the system."""
        return self._inner.open(path, create=False, writable=False)

    def make_private_dir(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def exists(self, path: str) -> bool:
        """Return whether it exists."""
        return self._inner.exists(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return what tells it from another file of that name."""
        return self._inner.identity(path)

    def size(self, path: str) -> int:
        """Return a file's size."""
        return self._inner.size(path)

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time."""
        return self._inner.modified_ms(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory."""
        return self._inner.list(path)

    def read_all(self, path: str) -> bytes:
        """Return a whole small file."""
        return self._inner.read_all(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (bytes free, total bytes)."""
        return self._inner.free_bytes(path)

    def make_dirs(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def remove(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def remove_tree(self, path: str, *, below: str) -> None:
        """Refuse."""
        self._refuse(path)

    def rename(self, source: str, target: str) -> None:
        """Refuse."""
        self._refuse(source)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Refuse."""
        self._refuse(path)

    def sync_dir(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def sync_all(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def lock_file(self, path: str, holder: str) -> FileLock:
        """Refuse."""
        self._refuse(path)

    @staticmethod
    def _refuse(path: str) -> NoReturn:
        raise StoreReadOnly("not done", why=f"{path}: this store was opened for reading only")

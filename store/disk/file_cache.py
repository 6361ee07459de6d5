"""A bounded number of open files for a store that has tens of thousands.

Lives here: the cache of open files (the least recently used one goes first), whole reads and writes through it.
"""

import posixpath
import resource
import threading
from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.disk.file_system import FileSystem, StoreFile

FILES_OPEN_MAX: Final = 512
"""Half of the usual limit of 1,024 descriptors."""
FILES_SHARE: Final = 4
"""A smaller limit is shared: with connections, segments, index files, their second descriptors."""

Bytes = NDArray[np.uint8]


def files_open_max() -> int:
    """Return how many files a cache may keep open: ``FILES_OPEN_MAX``, less where the process may open few files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_OPEN_MAX if soft == resource.RLIM_INFINITY else max(1, min(FILES_OPEN_MAX, soft // FILES_SHARE))


class FileCache:
    """Open files by path, at most ``files_max`` (None: ``files_open_max()``); any thread.

    A file evicted while another thread reads it closes when that thread releases it (``StoreFile`` closes with its last
    reference). The lock is held for look-ups only, never over a call of the file system.
    """

    def __init__(self, file_system: FileSystem, files_max: int | None = None) -> None:
        self._file_system = file_system
        self._files_max = files_open_max() if files_max is None else files_max
        self._lock = threading.Lock()
        self._files: OrderedDict[str, StoreFile] = OrderedDict()

    @property
    def count(self) -> int:
        """Number of open files in the cache."""
        return len(self._files)

    def _get(self, path: str) -> StoreFile | None:
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
            return file

    def _keep(self, path: str, file: StoreFile) -> StoreFile:
        with self._lock:
            present = self._files.get(path)
            if present is not None:
                return present  # another thread was faster
            self._files[path] = file
            dropped = self._files.popitem(last=False)[1] if len(self._files) > self._files_max else None
        del dropped  # closes here, outside the lock, unless another thread still reads it
        return file

    def read_at(self, path: str, offset: int, out: Bytes) -> int:
        """Fill ``out`` from ``offset``; return the bytes that were there, 0 when there is no such file."""
        file = self._get(path)
        if file is None:
            try:
                file = self._keep(path, self._file_system.open(path))
            except FileNotFoundError:
                return 0
        return file.read_into(offset, out)

    def write_at(self, path: str, offset: int, data: Bytes, file_bytes: int) -> None:
        """Write at ``offset`` of a file of ``file_bytes``; a missing file is created sparse, its directories too."""
        file = self._get(path)
        if file is None:
            try:
                file = self._file_system.open(path, create=True)
            except FileNotFoundError:
                self._file_system.make_dirs(posixpath.dirname(path))
                file = self._file_system.open(path, create=True)
            if file.size() < file_bytes:
                file.resize(file_bytes)
            self._keep(path, file)
        file.write_at(offset, data)

    def clear_from(self, path: str, offset: int) -> None:
        """Make all bytes of a file from ``offset`` on zero again; holes stay holes.

        The size never changes meanwhile: after a kill in between the file is still valid.
        """
        file = self._file_system.open(path)
        size = file.size()
        at = file.next_data(offset) if offset < size else None
        while at is not None and at < size:
            end = min(max(file.next_hole(at), at + 1), size)
            file.zero(at, end - at)
            at = file.next_data(end) if end < size else None

    def forget(self, path: str) -> None:
        """Close a file."""
        with self._lock:
            dropped = self._files.pop(path, None)
        del dropped

    def remove(self, path: str) -> None:
        """Close and remove a file; no error if it is gone."""
        self.forget(path)
        self._file_system.remove(path)

    def remove_directory(self, path: str, *, below: str) -> None:
        """Close the files below a directory and remove it with all it holds. Raises ``OutsideStore`` unless it lies
        below ``below``.
        """
        with self._lock:
            names = [name for name in self._files if name.startswith(path + "/")]
            dropped = [self._files.pop(name) for name in names]
        del dropped
        self._file_system.remove_tree(path, below=below)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none when it does not exist."""
        return self._file_system.list(path)

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return self._file_system.exists(path)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents where missing."""
        self._file_system.make_dirs(path)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self._file_system.size(path)

    def close(self) -> None:
        """Close all files; a later call opens them again."""
        with self._lock:
            dropped = list(self._files.values())
            self._files.clear()
        del dropped

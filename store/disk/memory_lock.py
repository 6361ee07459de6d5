"""The machine's memory: pages locked in RAM, pages prepared in advance, free memory.

Lives here: the ``Memory`` protocol and ``OsMemory``, which calls ``mlock`` and ``madvise`` through ``ctypes`` (that
releases the GIL, as do ``memmove`` and ``memset`` of ``ctypes``).
"""

import ctypes
import errno
import os
import sys
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError

MADV_WILLNEED: Final = 3  # asm-generic/mman-common.h
_MEMINFO: Final = "/proc/meminfo"
_MOUNTS: Final = "/proc/self/mounts"
_MOUNTS_BYTES_MAX: Final = 1 << 20
_CGROUP: Final = "/sys/fs/cgroup/memory."
_LINUX: Final = sys.platform == "linux"

Bytes = NDArray[np.uint8]


class Memory(Protocol):
    """The machine's memory. Arrays given to it are contiguous and start at a page. May take seconds: not for a loop."""

    def lock(self, array: Bytes) -> None:
        """Make the array resident and keep it so. Raises ``OSError`` where the machine does not permit it."""
        ...

    def unlock(self, array: Bytes) -> None:
        """Undo ``lock``; an array that is not locked stays as it is."""
        ...

    def will_need(self, array: Bytes) -> None:
        """Announce that the array will be used soon; a hint."""
        ...

    def copy(self, target: Bytes, at: int, data: Bytes) -> None:
        """Copy ``data`` to ``at`` in ``target``, whose pages may be on a disk; other threads go on meanwhile."""
        ...

    def touch(self, array: Bytes) -> None:
        """Store a zero at the start of ``array``, so that its page takes stores without a wait; other threads go on
        meanwhile.
        """
        ...

    def free_bytes(self) -> int | None:
        """Return how much memory can be allocated without swapping, None if unknown."""
        ...


class OsMemory:
    """The operating system's memory: Linux, best-effort on macOS."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._libc: Any = ctypes.CDLL(None, use_errno=True)

    def lock(self, array: Bytes) -> None:
        """Call ``mlock``."""
        if not hasattr(self._libc, "mlock"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._call(self._libc.mlock, array)

    def unlock(self, array: Bytes) -> None:
        """Call ``munlock``."""
        if hasattr(self._libc, "munlock"):
            self._call(self._libc.munlock, array)

    def will_need(self, array: Bytes) -> None:
        """Call ``madvise(MADV_WILLNEED)``; failures are ignored."""
        if _LINUX:
            self._libc.madvise(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), MADV_WILLNEED)

    def copy(self, target: Bytes, at: int, data: Bytes) -> None:
        """Call ``memmove``."""
        assert 0 <= at <= at + len(data) <= len(target)
        ctypes.memmove(target.ctypes.data + at, data.ctypes.data, len(data))

    def touch(self, array: Bytes) -> None:
        """Call ``memset``."""
        ctypes.memset(array.ctypes.data, 0, 1)

    def _call(self, function: Any, array: Bytes) -> None:
        if function(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def free_bytes(self) -> int | None:
        """Read MemAvailable and the limit of the process's control group (v2, as seen in a container)."""
        found = [_available(self._read(_MEMINFO))]
        limit, current = self._read(_CGROUP + "max").strip(), self._read(_CGROUP + "current").strip()
        if limit.isdecimal() and current.isdecimal():
            found.append(max(0, int(limit) - int(current)))
        return min((bytes_free for bytes_free in found if bytes_free is not None), default=None)

    def _read(self, path: str) -> str:
        """Return a small file of the kernel, empty where there is none. Its reported size is 0, so read to the end."""
        try:
            return self._file_system.open(path, writable=False).read(0, 65_536).decode("ascii", "replace")
        except (FileNotFoundError, StoreError):
            return ""


def _available(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[0].isdecimal():
            return int(value.split()[0]) * 1024
    return None


def is_shared_memory(file_system: FileSystem, path: str) -> bool:
    """Return whether ``path`` is on a file system in memory, whose pages no disk can hold back."""
    try:
        mounts = file_system.open(_MOUNTS, writable=False).read(0, _MOUNTS_BYTES_MAX).decode("utf-8", "replace")
    except (FileNotFoundError, StoreError):
        return False
    found = ("", "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].rstrip("/") + "/"
            if f"{path}/".startswith(point) and len(point) >= len(found[0]):
                found = (point, fields[2])
    return found[1] in ("tmpfs", "ramfs")

"""The file system as a protocol: the store accesses files only through a ``FileSystem``.

Lives here: the protocols ``FileSystem``, ``StoreFile``, ``MappedFile`` and ``FileLock``; ``check_below``.
Fault injection implements the same protocols.

Rules for every implementation:

- Paths are absolute strings. Every method may block on the disk: never call one on an event loop's thread.
- Failures raise ``StoreError`` subclasses (``store.errors``): StoreFull, StoreReadOnly, StorePermission, DiskError. A
  missing file or directory raises ``FileMissing``, which is a ``FileNotFoundError`` too: callers that expect it handle
  it, and for all others it is a failure like any other.
- A write either takes all bytes or raises; after a failure any part of them may be there.
- Nothing is durable before ``sync`` (a file's data and size), ``sync_dir`` (names in a directory) or ``sync_all``.
- A file closes on ``close`` or with its last reference, so a reader that holds one is never interrupted.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.errors import OutsideStore

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]


def check_below(path: str, below: str, resolve: Callable[[str], str]) -> None:
    """Raise ``OutsideStore`` unless ``path`` lies within the directory ``below``, once both are resolved."""
    if "\0" not in path + below:
        found, root = resolve(path), resolve(below)
        if found.startswith(root.rstrip("/") + "/"):
            return
        why = f"{path!a} leads to {found!a}, which does not lie below {root!a}"
    else:
        why = f"{path!a} is not a path"
    raise OutsideStore(
        "directory not removed", why=why, hint="look for a symbolic link that leads out of the store; then report this"
    )


class Words(Protocol):
    """Words of 8 bytes in a map, each from 0 to 2^64 - 1."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...


class MappedFile(Protocol):
    """A file's bytes as memory, for its whole size at the time of mapping. Every reader of the file sees stores at
    once.

    A mapped file is never truncated: touching a page beyond its end would kill the process (SIGBUS).
    """

    size_bytes: int

    def store(self, offset: int, data: Bytes) -> None:
        """Copy ``data`` to ``offset``. Must lie within the map. Large copies release the GIL; small ones stop the whole
        process while a page stalls (``segment``): write them instead.
        """
        ...

    def scatter(self, offsets: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        """Copy row ``i`` of the 2-D ``rows`` to ``offsets[i]``; where rows overlap the later one wins."""
        ...

    def view(self) -> NDArray[np.uint8]:
        """Return a read-only array over the whole map. Reading a bad sector through it kills the process."""
        ...

    def memory(self) -> NDArray[np.uint8]:
        """Return a writable array over the whole map, for a file in shared memory."""
        ...

    def words(self, count: int) -> Words:
        """Return the first ``count`` words of 8 bytes, in the machine's order. A stored word is there or is not,
        however the process dies.
        """
        ...


class StoreFile(Protocol):
    """An open file. Methods may be called from several threads at once."""

    path: str

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> int:
        """Fill ``out`` (contiguous) from ``offset``; return the bytes read, fewer than asked only at the end of the
        file.
        """
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes, fewer only at the end of the file."""
        ...

    def write_at(self, offset: int, data: Bytes) -> None:
        """Write all of ``data`` (contiguous) at ``offset``; the file grows where needed."""
        ...

    def reserve(self, size_bytes: int) -> None:
        """Make the file at least this large, with its blocks reserved; new bytes read as zeros."""
        ...

    def resize(self, size_bytes: int) -> None:
        """Cut or extend the file. Never for a file that is mapped."""
        ...

    def zero(self, offset: int, length: int) -> None:
        """Make the range read as zeros and keep its blocks reserved."""
        ...

    def next_data(self, offset: int) -> int | None:
        """Return the first position at or after ``offset`` that may differ from zero; None if none follows. A hint:
        skipped bytes are certainly zero.
        """
        ...

    def next_hole(self, offset: int) -> int:
        """Return where the data at ``offset`` ends: bytes from there to the next data are zero. At worst the size."""
        ...

    def sync(self) -> None:
        """Return when data and size are durable (fdatasync)."""
        ...

    def map(self) -> MappedFile:
        """Map the whole file, readable and writable."""
        ...

    def close(self) -> None:
        """Close the file; maps of it stay valid."""
        ...


class FileLock(Protocol):
    """An exclusive lock that ends with the process."""

    def release(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """Creates, opens, lists and removes files."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> StoreFile:
        """Open a file; ``create`` makes it where it is missing (its directory must exist)."""
        ...

    def open_private(self, path: str, *, create: bool = False) -> StoreFile:
        """Open a file that no other user can have written; ``create`` makes it with mode 0600, and it must not exist.

        Raises ``NotPrivate`` for a symbolic link, anything but a file, a second name, another owner, or a mode that
        lets others write.
        """
        ...

    def make_private_dir(self, path: str) -> None:
        """Create a directory with mode 0700; it must not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return what tells a file or directory from another one under the same name; None if it does not exist."""
        ...

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when the file's content last changed, wall time in ms."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents where missing."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it is gone already."""
        ...

    def remove_tree(self, path: str, *, below: str) -> None:
        """Remove a directory and its content; no error if it is gone already.

        ``below``: the caller's directory in which it must lie, at any depth, after symbolic links and ``..`` are
        resolved; it is not that directory itself. Raises ``OutsideStore`` otherwise, before anything is removed.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file in one step, replacing any file with the new name."""
        ...

    def read_all(self, path: str) -> bytes:
        """Return a whole small file."""
        ...

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a whole small file so that a crash leaves the old or the new content (``.tmp``, sync, rename,
        sync_dir).

        A missing directory of the file is made, durably, before the file is written. The directory above must exist: no
        piece of a removed store shall reappear.
        """
        ...

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are durable."""
        ...

    def sync_all(self, path: str) -> None:
        """Return when everything on the file system that holds ``path`` is durable (syncfs)."""
        ...

    def lock_file(self, path: str, holder: str) -> FileLock:
        """Lock a file (created if missing) and write ``holder`` into it. Raises ``StoreInUse`` if it is locked."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (bytes free to any user, free and used bytes) of the file system that holds ``path``."""
        ...

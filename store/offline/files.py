"""Sparse copies of files.

Lives here: ``copy_file``, ``copy_range``, ``data_bytes``, for repairs and copied stores.
"""

import posixpath
from typing import Final

import numpy as np

from pocketmq.store.disk.file_system import FileSystem, StoreFile
from pocketmq.store.errors import StoreFull

_PIECE_BYTES: Final = 4 << 20
FREE_BYTES_MIN: Final = 16 << 20
"""Space that must stay free besides the bytes to be written."""


def data_ranges(file: StoreFile, size: int) -> list[tuple[int, int]]:
    """Return the [start, end) ranges of a file that may hold non-zero bytes."""
    ranges: list[tuple[int, int]] = []
    start = file.next_data(0)
    while start is not None and start < size:
        end = max(start + 1, min(file.next_hole(start), size))
        ranges.append((start, end))
        start = file.next_data(end) if end < size else None
    return ranges


def data_bytes(file_system: FileSystem, path: str) -> int:
    """Return the number of bytes of a file outside its holes."""
    file = file_system.open(path, writable=False)
    try:
        return sum(end - start for start, end in data_ranges(file, file.size()))
    finally:
        file.close()


def copy_range(source: StoreFile, target: StoreFile, start: int, end: int, to: int) -> None:
    """Copy bytes [start, end) of one open file to offset ``to`` of another."""
    for at in range(start, end, _PIECE_BYTES):
        piece = np.empty(min(_PIECE_BYTES, end - at), np.uint8)
        got = source.read_into(at, piece)
        if got:
            target.write_at(to + at - start, piece[:got])


def copy_file(file_system: FileSystem, source_path: str, target_path: str, reader: FileSystem | None = None) -> None:
    """Copy a file with its holes, durably. ``reader``: the file system of the source, if it is another one."""
    file_system.make_dirs(posixpath.dirname(target_path))
    source = (reader or file_system).open(source_path, writable=False)
    try:
        size = source.size()
        target = file_system.open(target_path, create=True)
        try:
            target.resize(0)
            target.resize(size)
            for start, end in data_ranges(source, size):
                copy_range(source, target, start, end, start)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()


def require_space(file_system: FileSystem, directory: str, wanted_bytes: int, what: str) -> None:
    """Raise ``StoreFull`` unless the file system has room; call it before anything is written."""
    free, _ = file_system.free_bytes(directory)
    if free < wanted_bytes + FREE_BYTES_MIN:
        raise StoreFull(
            what,
            why=f"{wanted_bytes:,} bytes are needed at {directory}, {free:,} are free",
            hint="free space, or name a directory on another file system",
        )

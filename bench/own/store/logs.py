"""Log files of a store as the disk has them: drop them from the page cache, read them as a floor."""

import os
from pathlib import Path

import numpy as np

READ_BYTES = 4 << 20


def log_files(root: Path) -> list[Path]:
    """Return the segments."""
    return sorted(path for path in (root / "commitlog").iterdir() if path.name.isdecimal())


def drop_cache(root: Path) -> None:
    """Write every file back and drop its pages."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(root: Path, size_bytes: int) -> None:
    """Read the first bytes of the log once, in pieces into one buffer."""
    piece = np.empty(READ_BYTES, np.uint8)
    left = size_bytes
    for path in log_files(root):
        with path.open("rb", buffering=0) as file:
            while left > 0 and (got := file.readinto(piece.data)):
                left -= got

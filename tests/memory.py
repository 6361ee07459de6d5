"""Directories in memory, for tests of brokers and clients in the process itself. Their files are the subject of others.

Such a store lives for a fraction of a second. Its files cost a disk thrice: they are made, synced and removed by the
thousand, and where the disk is busy each sync takes as long as a hundred tests. The tests of the store, of processes
and of crashes stay on the disk.
"""

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

MEMORY: Final = Path("/dev/shm")
ROOM_MIN: Final = 2 << 30
"""Bytes that must be free in ``MEMORY`` and in the machine. A test needs a few million of them, and gives them back."""


@functools.cache
def has_room() -> bool:
    """Return whether stores of tests may go to memory; in a small container they may not."""
    with contextlib.suppress(OSError):
        return min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) >= ROOM_MIN
    return False


@pytest.fixture(name="tmp_path")
def path_in_memory(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return an empty directory in memory. What a failed test leaves there is copied to where pytest keeps it."""
    if not has_room():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="pocketmq-test-", dir=MEMORY, ignore_cleanup_errors=True) as name:
        failed_before = request.session.testsfailed
        yield Path(name)
        if request.session.testsfailed > failed_before:
            with contextlib.suppress(shutil.Error):  # it names what has no bytes to copy, as a socket
                shutil.copytree(name, tmp_path, symlinks=True, dirs_exist_ok=True)


@pytest.fixture(scope="package", autouse=True)
def brokers_in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let an in-process broker that is given no directory make its own in memory."""
    tmp_path_factory.getbasetemp()  # chosen now: pytest's own directories stay where they are
    with pytest.MonkeyPatch.context() as patch:
        if has_room():
            patch.setattr(tempfile, "tempdir", str(MEMORY))
        yield

"""How bytes reach a segment: through a map, by writes, into a buffer."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.events import NullLog
from pocketmq.store.commitlog.segment import GIL_HELD_COPY_BYTES_MAX, HEAD_BYTES, WRITTEN_WHOLE_BYTES_MAX, Segment
from pocketmq.store.commitlog.windows import Windows
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.config import PAGE_BYTES
from pocketmq.store.disk.file_system import Bytes, FileSystem
from pocketmq.store.disk.memory_lock import OsMemory
from pocketmq.store.disk.os_file_system import OsFile, OsFileSystem, OsMappedFile
from pocketmq.store.errors import DiskError, StoreFull, StoreReadOnly, translated
from tests.store.commitlog import held_page

SEGMENT_BYTES = 1 << 20
EDGES = (1, 7, 8, 9, 100, 499, 500, 501, 507, 508, 509, 1024, 4095, 4096, 4097, 4104, 4105, 100_000)
MAGIC_ON_TWO_PAGES = (4089, 4090, 4091)
Call = tuple[str, int, int]


class TellingMap(OsMappedFile):
    calls: list[Call]

    def store(self, offset: int, data: Bytes) -> None:
        self.calls.append(("store", offset, len(data)))
        super().store(offset, data)


class TellingFile(OsFile):
    """Records each store and write; ``fails`` raises the disk's error for a write."""

    calls: list[Call]
    fails: Callable[[int], None]

    def write_at(self, offset: int, data: Bytes) -> None:
        self.calls.append(("write", offset, len(data)))
        self.fails(len(data))
        super().write_at(offset, data)

    def map(self) -> TellingMap:
        mapped = TellingMap(self._descriptor, self.size(), self.path)
        mapped.calls = self.calls
        return mapped


class TellingFileSystem(OsFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.fails: Callable[[int], None] = lambda length: None

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> TellingFile:
        plain = super().open(path, create=create, writable=writable)
        file = TellingFile(plain._descriptor, path, plain._libc)
        plain._descriptor = -1
        file.calls, file.fails = self.calls, lambda length: self.fails(length)
        return file


def segment_on(files: FileSystem, directory: Path) -> Segment:
    path = str(directory / "segment")
    files.open(path, create=True).reserve(SEGMENT_BYTES)
    return Segment(files, path, 0, SEGMENT_BYTES)


def noise(length: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(length).integers(1, 256, length, dtype=np.uint8)


@pytest.mark.parametrize("kind", [bytes, np.asarray])
def test_no_small_copy_goes_into_a_map(tmp_path: Path, kind: Callable[[object], Bytes]) -> None:
    """Copies that hold the GIL would stop the whole process at a page that stalls. A large record is copied without its
    head, which is written last; map, file and stored bytes are equal.
    """
    files = TellingFileSystem()
    segment = segment_on(files, tmp_path)
    segment.open(mapped=True)
    assert segment.map is not None
    expected = bytearray(SEGMENT_BYTES)
    at = [(sum(EDGES[:number]) + 3, length) for number, length in enumerate(EDGES)]
    at += [(200_000 // PAGE_BYTES * PAGE_BYTES + number * 3 * PAGE_BYTES - 10 + number, 5000) for number in range(12)]
    for position, length in at:
        data = noise(length)
        files.calls.clear()
        segment.store(position, kind(data if kind is np.asarray else data.tobytes()))
        expected[position : position + length] = data.tobytes()
        whole = [("write", position, length)]
        copied = [("store", position + HEAD_BYTES, length - HEAD_BYTES), ("write", position, HEAD_BYTES)]
        is_whole = length <= WRITTEN_WHOLE_BYTES_MAX or position % PAGE_BYTES in MAGIC_ON_TWO_PAGES
        assert files.calls == (whole if is_whole else copied)
        assert all(length > GIL_HELD_COPY_BYTES_MAX for name, _, length in files.calls if name == "store")
    assert segment.map.view().tobytes() == (tmp_path / "segment").read_bytes() == bytes(expected)


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, StoreFull), (errno.EROFS, StoreReadOnly), (errno.EIO, DiskError)]
)
@pytest.mark.parametrize("length", [200, 10_000])
def test_a_write_that_fails_is_the_disks_error_in_mapped_mode_too(
    tmp_path: Path, length: int, number: int, error: type[Exception]
) -> None:
    files = TellingFileSystem()
    segment = segment_on(files, tmp_path)
    segment.open(mapped=True)

    def fails(length: int) -> None:
        raise translated(OSError(number, os.strerror(number)), "write failed", segment.path)

    files.fails = fails
    with pytest.raises(error):
        segment.store(0, noise(length))
    assert not any((tmp_path / "segment").read_bytes()[:HEAD_BYTES])


def buffered() -> Windows:
    """Return a write buffer of the segment's size."""
    pool = WriteBufferPool(1, SEGMENT_BYTES, OsMemory(OsFileSystem()), ManualClock(), NullLog())
    pool.open()
    buffer = pool.borrow()
    assert buffer is not None
    return Windows(pool, buffer, SEGMENT_BYTES)


def test_a_buffer_is_filled_without_a_touch_of_the_file(tmp_path: Path) -> None:
    """The buffer is memory of the process; ``commit`` writes it."""
    files = TellingFileSystem()
    segment = segment_on(files, tmp_path)
    segment.open(mapped=True, windows=buffered())
    position = 0
    for length in EDGES:
        segment.store(position, noise(length))
        position += length
    assert files.calls == []
    segment.commit(0, position)
    assert files.calls == [("write", 0, position)]


def hold_pages(kind: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``held_page``; skip the test where this system does not permit it."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm")
    path = f"/dev/shm/pocketmq-held-page-{os.getpid()}"
    python_path = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, held_page.__file__, kind, path, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path, **environment},
        )
    finally:
        Path(path).unlink(missing_ok=True)
    if done.returncode == held_page.NOT_HERE:
        pytest.skip(done.stdout.strip())
    return done


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mapped", "anonymous", "surviving"])
def test_a_page_that_stalls_does_not_stop_other_threads(kind: str) -> None:
    """Real pages are held back by userfaultfd until another thread, which needs the GIL, releases them. Small data
    touches no page of a file's map; buffers that could not be locked are touched by every size."""
    sizes = [8, 100, 500, 508, 1024, WRITTEN_WHOLE_BYTES_MAX + 1]
    done = hold_pages(kind, *map(str, sizes))
    assert done.returncode == 0, done.stderr
    touched = {int(size): waits for size, waits in json.loads(done.stdout).items()}
    assert touched[sizes[-1]] > 0, "no page was held back"
    if kind == "mapped":
        assert not any(touched[size] for size in sizes[:-1]), touched
    else:
        assert all(touched.values()), touched


@pytest.mark.slow
def test_a_small_copy_by_numpy_would_stop_them() -> None:
    """The program of the test above finds such a copy: it hangs until its watchdog ends it."""
    done = hold_pages("mapped" if sys.platform != "linux" else "anonymous", "100", "--by-hand", WATCHDOG_S="2")
    assert (done.returncode, "Timeout" in done.stderr) == (1, True), done.stderr

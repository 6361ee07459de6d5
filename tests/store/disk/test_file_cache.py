"""The cache of open files: bounded, whole, sparse."""

from pathlib import Path

import numpy as np

from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.os_file_system import OsFileSystem


def test_few_files_stay_open_and_all_can_be_read(tmp_path: Path) -> None:
    """More files than the limit can be written and read; only the limit's number stays open."""
    cache = FileCache(OsFileSystem(), 3)
    for number in range(10):
        cache.write_at(str(tmp_path / "d" / str(number)), 5, np.full(4, number, np.uint8), 100)
        assert cache.count <= 3
    for number in range(10):
        out = np.zeros(100, np.uint8)
        assert cache.read_at(str(tmp_path / "d" / str(number)), 0, out) == 100
        assert out.tolist() == [0] * 5 + [number] * 4 + [0] * 91
        assert cache.count <= 3
    cache.close()
    assert cache.count == 0


def test_a_missing_file_reads_as_nothing(tmp_path: Path) -> None:
    """A missing file gives no bytes and no error, and is not created."""
    cache = FileCache(OsFileSystem())
    assert cache.read_at(str(tmp_path / "x"), 0, np.zeros(4, np.uint8)) == 0
    assert list(tmp_path.iterdir()) == []


def test_clearing_zeroes_the_rest(tmp_path: Path) -> None:
    """After a clear the file has its size and zeros from there, also for other readers that have it open."""
    cache = FileCache(OsFileSystem())
    path = str(tmp_path / "x")
    cache.write_at(path, 0, np.full(9000, 7, np.uint8), 10_000)
    cache.clear_from(path, 100)
    out = np.zeros(10_000, np.uint8)
    assert cache.read_at(path, 0, out) == 10_000
    assert out[:100].all()
    assert not out[100:].any()


def test_a_removed_directory_is_forgotten(tmp_path: Path) -> None:
    """Files below it are closed; the same names start empty."""
    cache = FileCache(OsFileSystem())
    path = str(tmp_path / "d" / "x")
    cache.write_at(path, 0, np.ones(4, np.uint8), 4)
    cache.remove_directory(str(tmp_path / "d"), below=str(tmp_path))
    assert cache.count == 0
    cache.write_at(path, 0, np.ones(1, np.uint8), 4)
    assert Path(path).read_bytes() == b"\1\0\0\0"

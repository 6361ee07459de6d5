"""Files, maps and locks of the real disk."""

import copy
import errno
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import (
    DiskError,
    OutsideStore,
    StoreFull,
    StoreInUse,
    StorePermission,
    StoreReadOnly,
    translated,
)


def test_what_is_written_is_read_and_the_end_of_a_file_is_short(tmp_path: Path) -> None:
    """Reads return the written bytes, and fewer only at the end."""
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.write_at(3, b"abc")
    file.write_at(6, np.frombuffer(b"def", np.uint8))
    out = np.full(8, 7, np.uint8)
    assert file.read_into(0, out) == 8
    assert out.tobytes() == b"\0\0\0abcde"
    assert file.read(7, 100) == b"ef"
    assert file.read_into(9, out) == 0


def test_short_reads_and_writes_of_the_system_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call that moves one byte at a time has no visible effect."""
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:1], at))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: preadv(fd, [buffers[0][:2]], at))
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.write_at(0, np.arange(9, dtype=np.uint8))
    assert file.read(0, 9) == bytes(range(9))


def test_a_map_and_its_file_show_the_same_bytes(tmp_path: Path) -> None:
    """Stores into a map are seen by reads, writes to the file by the map; the map outlives its handle."""
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.reserve(8192)
    mapped = file.map()
    mapped.store(4000, b"x" * 200)
    file.write_at(0, b"y")
    assert file.read(3999, 202) == b"\0" + b"x" * 200 + b"\0"
    file.close()
    mapped.scatter(np.array([10, 20]), np.array([[1, 2], [3, 4]], np.uint8))
    assert mapped.view()[:22].tobytes() == b"y" + bytes(9) + b"\1\2" + bytes(8) + b"\3\4"
    with pytest.raises(ValueError):
        mapped.view()[0] = 1
    with pytest.raises(AssertionError):
        mapped.store(8190, b"abc")


def test_zeroed_ranges_and_holes(tmp_path: Path) -> None:
    """A zeroed range reads as zeros and the size stays; ``next_data`` never skips a byte that is not zero."""
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.reserve(1 << 20)
    assert file.size() == 1 << 20
    file.write_at(600_000, b"z" * 10_000)
    found = file.next_data(0)
    assert found is not None
    assert found <= 600_000
    assert file.next_hole(found) >= 610_000
    file.zero(600_100, 9_000)
    assert file.read(600_000, 10_000) == b"z" * 100 + bytes(9_000) + b"z" * 900
    file.zero(609_000, 1 << 18)
    assert file.size() == 1 << 20


def test_a_file_system_without_zero_range_gets_zeros_written(tmp_path: Path) -> None:
    """Without the system call the range is written."""
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file._libc = None
    file.write_at(0, b"q" * 100)
    file.zero(10, 80)
    assert file.read(0, 100) == b"q" * 10 + bytes(80) + b"q" * 10


def test_replace_leaves_the_whole_new_content(tmp_path: Path) -> None:
    """A shorter content does not keep the end of the older one, and no temporary file stays."""
    files = OsFileSystem()
    path = str(tmp_path / "f")
    files.replace(path, b"longer content")
    files.replace(path, b"short", durable=False)
    assert files.read_all(path) == b"short"
    assert files.list(str(tmp_path)) == ["f"]


def test_a_symbolic_link_leads_no_removal_out_of_its_owners_directory(tmp_path: Path) -> None:
    """The link itself and files below it are refused; a store whose own directory is a link still removes its files."""
    files = OsFileSystem()
    victim = tmp_path / "victim" / "deep"
    victim.mkdir(parents=True)
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(tmp_path / "victim")
    for path in (own / "link", own / "link" / "deep", own / "link" / ".." / "victim"):
        with pytest.raises(OutsideStore, match="symbolic link"):
            files.remove_tree(str(path), below=str(own))
    assert victim.is_dir()
    (own / "queues").symlink_to(tmp_path / "victim")
    files.remove_tree(str(own / "queues" / "deep"), below=str(own / "queues"))
    assert not victim.exists()


def test_missing_files_and_directories(tmp_path: Path) -> None:
    """A missing file raises FileNotFoundError; removing it and listing a missing directory are no errors."""
    files = OsFileSystem()
    missing = str(tmp_path / "no" / "file")
    for call in (files.open, files.size, files.modified_ms, files.read_all):
        with pytest.raises(FileNotFoundError):
            call(missing)
    files.remove(missing)
    files.remove_tree(missing, below=str(tmp_path))
    assert files.list(missing) == []
    files.make_dirs(os.path.dirname(missing))
    files.sync_dir(os.path.dirname(missing))
    files.sync_all(os.path.dirname(missing))
    free, total = files.free_bytes(str(tmp_path))
    assert 0 <= free <= total


def test_a_lock_excludes_a_second_holder_until_it_is_released(tmp_path: Path) -> None:
    """The refusal names the directory and the holder."""
    files = OsFileSystem()
    path = str(tmp_path / "lock")
    lock = files.lock_file(path, "pid 7")
    with pytest.raises(StoreInUse, match="a second broker on the same store") as caught:
        files.lock_file(path, "pid 8")
    assert "pid 7" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    lock.release()
    files.lock_file(path, "pid 8").release()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EROFS, StoreReadOnly),
        (errno.EACCES, StorePermission),
        (errno.EIO, DiskError),
    ],
)
def test_errors_of_the_system_become_typed_ones(number: int, kind: type[Exception]) -> None:
    """Each error number has its class, and the text names the file."""
    error = translated(OSError(number, os.strerror(number)), "write failed", "some/file")
    assert type(error) is kind
    assert "some/file" in str(error)


def test_too_many_open_files_are_no_fault_of_the_disk() -> None:
    """The hint names the limit that helps."""
    error = translated(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open failed", "some/file")
    assert "ulimit -n" in error.hint


def test_a_full_device_raises_store_full() -> None:
    """A write to a device that is always full arrives as StoreFull."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with pytest.raises(StoreFull):
        OsFileSystem().open("/dev/full").write_at(0, b"x")


def test_a_directory_is_made_again_with_its_name_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent is synced before the file is written; where that fails, the next attempt makes and syncs it again."""
    files, steps = OsFileSystem(), []
    sync_dir = OsFileSystem.sync_dir
    sick = [True]

    def noted(self: OsFileSystem, path: str) -> None:
        steps.append(Path(path).name)
        if sick[0]:
            raise DiskError("sick")
        sync_dir(self, path)

    monkeypatch.setattr(OsFileSystem, "sync_dir", noted)
    path = tmp_path / "config" / "t.json"
    with pytest.raises(DiskError):
        files.replace(str(path), b"x")
    assert (steps, path.parent.exists()) == ([tmp_path.name], False)
    sick[0] = False
    files.replace(str(path), b"x")
    assert steps == [tmp_path.name, tmp_path.name, "config"]
    assert path.read_bytes() == b"x"


def test_a_missing_file_is_still_a_file_not_found_error(tmp_path: Path) -> None:
    """Both kinds of callers catch it; it can be printed and copied like the others."""
    with pytest.raises(FileNotFoundError, match="No such file") as caught:
        OsFileSystem().read_all(str(tmp_path / "f"))
    error = caught.value
    assert isinstance(error, DiskError)
    assert str(copy.copy(error)) == str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_deleted_lock_file_lets_no_second_holder_in(tmp_path: Path) -> None:
    """The directory itself is locked too; its next holder makes the file again."""
    files, path = OsFileSystem(), tmp_path / "lock"
    first = files.lock_file(str(path), "lock first")
    path.unlink()
    with pytest.raises(StoreInUse, match="is locked by"):
        files.lock_file(str(path), "lock second")
    first.release()
    files.lock_file(str(path), "lock third").release()
    assert path.read_text() == "lock third"

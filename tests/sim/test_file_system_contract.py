"""The same rules for the real disk and the one in memory; then abilities of the one in memory only."""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import (
    DiskError,
    FileMissing,
    OutsideStore,
    StoreError,
    StoreFull,
    StoreInUse,
    StorePermission,
    StoreReadOnly,
)
from tests.sim.crash_disk import PAGE
from tests.sim.crash_file_system import CrashFileSystem, Fault, Killed, Operation, kill_at


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, str]]:
    """A file system and an empty directory in it."""
    if request.param == "disk":
        yield OsFileSystem(), str(tmp_path)
    else:
        files = CrashFileSystem()
        files.make_dirs("/data")
        yield files, "/data"


def test_bytes_sizes_and_the_end_of_a_file(place: tuple[FileSystem, str]) -> None:
    """Writes extend a file, reads are short only at its end, ``resize`` cuts and extends with zeros."""
    files, root = place
    file = files.open(f"{root}/f", create=True)
    file.write_at(3, b"abc")
    file.write_at(6, np.frombuffer(b"def", np.uint8))
    out = np.full(8, 7, np.uint8)
    assert file.read_into(0, out) == 8
    assert out.tobytes() == b"\0\0\0abcde"
    assert (file.read(7, 100), file.read_into(9, out)) == (b"ef", 0)
    file.resize(4)
    file.resize(6)
    assert (file.read(0, 9), file.size(), files.size(f"{root}/f")) == (b"\0\0\0a\0\0", 6, 6)
    file.reserve(5000)
    assert file.size() == 5000
    file.reserve(10)
    assert file.size() == 5000
    file.sync()
    file.close()


def test_zero_and_data_ranges(place: tuple[FileSystem, str]) -> None:
    """All bytes outside ``next_data`` and ``next_hole`` are zero; ``zero`` keeps the size."""
    files, root = place
    file = files.open(f"{root}/f", create=True)
    file.reserve(1 << 16)
    file.write_at(20_000, b"z" * 10_000)
    file.zero(20_100, 9_000)
    file.zero(60_000, 1 << 16)
    assert file.size() == 1 << 16
    assert file.read(20_000, 10_000) == b"z" * 100 + bytes(9_000) + b"z" * 900
    covered = np.zeros(1 << 16, np.bool_)
    at = file.next_data(0)
    while at is not None:
        end = file.next_hole(at)
        assert end > at
        covered[at:end] = True
        at = file.next_data(end) if end < 1 << 16 else None
    data = np.frombuffer(file.read(0, 1 << 16), np.uint8)
    assert not data[~covered].any()


def test_maps_show_what_files_write_and_the_other_way_round(place: tuple[FileSystem, str]) -> None:
    """A map and its file are the same bytes; views cannot be written."""
    files, root = place
    file = files.open(f"{root}/f", create=True)
    file.reserve(8192)
    mapped = file.map()
    mapped.store(4000, b"x" * 200)
    file.write_at(0, b"y")
    file.close()
    mapped.scatter(np.array([10, 20]), np.array([[1, 2], [3, 4]], np.uint8))
    assert mapped.view()[:22].tobytes() == b"y" + bytes(9) + b"\1\2" + bytes(8) + b"\3\4"
    assert files.read_all(f"{root}/f")[3999:4201] == b"\0" + b"x" * 200 + b"\0"
    with pytest.raises(ValueError):
        mapped.view()[0] = 1
    with pytest.raises(AssertionError):
        mapped.store(8190, b"abc")


def test_names(place: tuple[FileSystem, str]) -> None:
    """Directories, renames over an existing name, removal of missing names, missing files."""
    files, root = place
    files.make_dirs(f"{root}/a/b")
    files.make_dirs(f"{root}/a/b")
    files.open(f"{root}/a/b/2", create=True).write_at(0, b"two")
    files.open(f"{root}/a/b/1", create=True).write_at(0, b"one")
    assert files.list(f"{root}/a/b") == ["1", "2"]
    files.rename(f"{root}/a/b/2", f"{root}/a/b/1")
    assert (files.list(f"{root}/a/b"), files.read_all(f"{root}/a/b/1")) == (["1"], b"two")
    files.replace(f"{root}/a/b/1", b"x")
    files.replace(f"{root}/a/b/1", b"newest", durable=False)
    assert (files.list(f"{root}/a/b"), files.read_all(f"{root}/a/b/1")) == (["1"], b"newest")
    assert files.exists(f"{root}/a")
    assert files.modified_ms(f"{root}/a/b/1") >= 0
    files.remove_tree(f"{root}/a", below=root)
    files.remove_tree(f"{root}/a", below=root)
    files.remove(f"{root}/a/b/1")
    assert not files.exists(f"{root}/a")
    assert files.list(f"{root}/a") == []
    for call in (files.open, files.size, files.modified_ms, files.read_all):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/a/missing")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/a/missing", create=True)
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/missing", f"{root}/x")
    files.sync_dir(root)
    files.sync_all(root)
    free, total = files.free_bytes(root)
    assert 0 <= free <= total


def test_replace_makes_the_directory_and_no_more(place: tuple[FileSystem, str]) -> None:
    """Replacing a file in a removed directory creates the directory; it does not create a removed store."""
    files, root = place
    files.make_dirs(f"{root}/store/config")
    for durable in (True, False):
        files.replace(f"{root}/store/config/t.json", b"old", durable=durable)
        files.remove_tree(f"{root}/store/config", below=root)
        files.replace(f"{root}/store/config/t.json", b"new", durable=durable)
        assert files.read_all(f"{root}/store/config/t.json") == b"new"
    files.remove_tree(f"{root}/store", below=root)
    with pytest.raises(FileMissing):
        files.replace(f"{root}/store/config/t.json", b"new")
    assert not files.exists(f"{root}/store")


def test_what_is_missing_is_an_error_of_the_store_too(place: tuple[FileSystem, str]) -> None:
    """Callers that do not expect it handle it like any other failure of the disk."""
    files, root = place
    missing = f"{root}/missing"
    for call in (files.open, files.size, files.modified_ms, files.read_all, files.sync_dir, files.sync_all):
        with pytest.raises(StoreError):
            call(missing)
    with pytest.raises(StoreError, match="missing"):
        files.rename(missing, f"{root}/x")
    with pytest.raises(StoreError):
        files.open(f"{missing}/f", create=True)


def test_a_tree_is_removed_only_below_its_owners_directory(place: tuple[FileSystem, str]) -> None:
    """The directory itself, its siblings, paths with ``..`` and paths with a zero byte are refused."""
    files, root = place
    for name in ("own/part/deep", "own2", "other"):
        files.make_dirs(f"{root}/{name}")
    own = f"{root}/own"
    for path in (
        own,
        f"{own}/",
        f"{own}/.",
        f"{own}/..",
        f"{own}/part/..",
        f"{root}/own2",
        f"{own}/../other",
        root,
        "/",
    ):
        with pytest.raises(OutsideStore):
            files.remove_tree(path, below=own)
    with pytest.raises(OutsideStore):
        files.remove_tree(f"{own}/x\0y", below=own)
    assert files.list(root) == ["other", "own", "own2"]
    assert files.list(f"{own}/part") == ["deep"]
    files.remove_tree(f"{own}/part/deep", below=own)
    files.remove_tree(f"{own}/part", below=f"{own}/")
    files.remove_tree(f"{root}/other", below=root)
    assert files.list(own) == []
    assert files.list(root) == ["own", "own2"]


def test_an_open_file_outlives_its_name(place: tuple[FileSystem, str]) -> None:
    """A reader that holds a handle is never cut off."""
    files, root = place
    file = files.open(f"{root}/f", create=True)
    file.write_at(0, b"still here")
    files.remove(f"{root}/f")
    assert file.read(0, 100) == b"still here"


def test_a_lock_is_exclusive_until_released(place: tuple[FileSystem, str]) -> None:
    """The refusal names directory and holder."""
    files, root = place
    lock = files.lock_file(f"{root}/lock", "lock\npid 7\n")
    with pytest.raises(StoreInUse, match="pid 7"):
        files.lock_file(f"{root}/lock", "pid 8")
    lock.release()
    files.lock_file(f"{root}/lock", "pid 8").release()


# ---- only in memory


def in_memory() -> CrashFileSystem:
    files = CrashFileSystem()
    files.make_dirs("/d")
    files.sync_dir("/")
    return files


def test_only_what_was_synced_survives_every_power_cut() -> None:
    """Without ``sync_dir`` the name may be lost, without ``sync`` the bytes; with both neither is."""
    files = in_memory()
    file = files.open("/d/f", create=True)
    file.write_at(0, b"data")
    found = {disk.image().get("/d/f") for disk in files.crash_states(random.Random(1))}
    assert found == {None, b"", bytes(4), b"data"}
    file.sync()
    found = {disk.image().get("/d/f") for disk in files.crash_states(random.Random(1))}
    assert found == {None, b"data"}
    files.sync_dir("/d")
    assert [disk.image() for disk in files.crash_states(random.Random(1))] == [{"/d/f": b"data"}]


def test_pages_come_back_in_any_order_and_torn() -> None:
    """Each page separately is old, new or a mix of sectors."""
    files = in_memory()
    file = files.open("/d/f", create=True)
    file.reserve(2 * PAGE)
    file.sync()
    files.sync_dir("/d")
    mapped = file.map()
    mapped.store(0, b"n" * 2 * PAGE)
    halves = {(disk.image()["/d/f"][0], disk.image()["/d/f"][-1]) for disk in files.crash_states(random.Random(1))}
    assert halves == {(0, 0), (0, 110), (110, 0), (110, 110)}
    torn = {disk.image()["/d/f"][:PAGE].count(b"n") for disk in files.crash_states(random.Random(1))}
    assert torn == {0, PAGE // 2, PAGE}
    assert files.after_kill().image()["/d/f"] == b"n" * 2 * PAGE


def test_a_rename_is_whole_or_did_not_happen() -> None:
    """After ``replace`` without a sync of the directory either content is there, never none."""
    files = in_memory()
    files.replace("/d/f", b"old")
    files.replace("/d/f", b"new", durable=False)
    found = {disk.image().get("/d/f") for disk in files.crash_states(random.Random(1))}
    assert found == {b"old", b"", bytes(3), b"new"}
    files.replace("/d/f", b"newest")
    assert {disk.image()["/d/f"] for disk in files.crash_states(random.Random(1))} == {b"newest"}


def test_a_directory_made_again_survives_with_its_file() -> None:
    """A durable ``replace`` promises the file, and thus the name of its directory."""
    files = in_memory()
    files.make_dirs("/d/config")
    files.replace("/d/config/t.json", b"old")
    files.sync_dir("/d")
    files.remove_tree("/d/config", below="/d")
    files.sync_dir("/d")
    files.replace("/d/config/t.json.bak", b"older", durable=False)
    files.replace("/d/config/t.json", b"new")
    for disk in files.crash_states(random.Random(1)):
        assert disk.image()["/d/config/t.json"] == b"new"


def test_faults_have_the_errors_of_the_system() -> None:
    """EIO after half a write, a full disk, a read-only one, no permission; the accepted part is written."""
    files = in_memory()
    file = files.open("/d/f", create=True)
    files.before = lambda operation: Fault(errno.EIO, taken=2) if operation.kind == "write" else None
    with pytest.raises(DiskError):
        file.write_at(0, b"four")
    files.before = None
    assert file.read(0, 9) == b"fo"
    files.capacity_bytes = PAGE
    with pytest.raises(StoreFull):
        file.write_at(PAGE, b"x")
    assert files.free_bytes("/d")[0] == 0
    files.capacity_bytes = None
    files.read_only = True
    with pytest.raises(StoreReadOnly):
        files.make_dirs("/d/e")
    files.read_only = False
    files.denied = ("/d",)
    with pytest.raises(StorePermission):
        files.open("/d/f")


def test_a_lost_sync_says_that_all_is_well() -> None:
    """The caller notices no failure; a power cut shows it."""
    files = in_memory()
    file = files.open("/d/f", create=True)
    files.sync_dir("/d")
    file.write_at(0, b"x")
    files.before = lambda operation: Fault(lost=True) if operation.kind == "sync" else None
    file.sync()
    assert b"" in {disk.image()["/d/f"] for disk in files.crash_states(random.Random(1))}


def test_a_kill_leaves_part_of_the_last_change_and_nothing_after_it() -> None:
    """The dead process changes nothing more; any cache lines of a store into a map may remain."""
    seen = set()
    for seed in range(40):
        files = in_memory()
        file = files.open("/d/f", create=True)
        file.reserve(1024)
        mapped = file.map()
        files.before = kill_at(0, random.Random(seed))
        with pytest.raises(Killed):
            mapped.store(0, b"k" * 1024)
        with pytest.raises(Killed):
            file.write_at(0, b"zombie")
        left = files.after_kill().image()["/d/f"]
        seen.add((left[0] == 107, left[-1] == 107))
        assert files.operations[-1] == Operation("store", "/d/f", 0, 1024)
    assert {(True, False), (False, True), (False, False)} <= seen


def test_an_identity_tells_files_apart(place: tuple[FileSystem, str]) -> None:
    """It stays with a file that is renamed, and goes with one that is removed."""
    files, root = place
    files.open(f"{root}/a", create=True).close()
    known = files.identity(f"{root}/a")
    assert known is not None
    assert files.identity(root) not in (None, known)
    files.rename(f"{root}/a", f"{root}/b")
    assert (files.identity(f"{root}/a"), files.identity(f"{root}/b")) == (None, known)
    files.open(f"{root}/a", create=True).close()
    assert files.identity(f"{root}/a") not in (None, known)

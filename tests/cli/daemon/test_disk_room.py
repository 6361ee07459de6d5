"""What the disk of a store allows, before a daemon is ready."""

import os
from pathlib import Path

import msgspec
import pytest

from pocketmq.cli.daemon import disk_room
from pocketmq.cli.daemon.daemon import load_settings, look_at_disk
from pocketmq.cli.daemon.disk_room import SEGMENT_BYTES_MIN, check_directory, kept_line, room_for_store
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.errors import PocketMQError
from pocketmq.store.commitlog.segment import segment_name
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.os_file_system import OsFileSystem

MIB, GIB = 1 << 20, 1 << 30


class Disk(OsFileSystem):
    """The real disk, with as many free bytes as a test says; -1: it does not answer."""

    def __init__(self, free_bytes: int, total_bytes: int = 1 << 40) -> None:
        super().__init__()
        self.answer = free_bytes, total_bytes

    def free_bytes(self, path: str) -> tuple[int, int]:
        if self.answer[0] < 0:
            raise PocketMQError("statvfs failed")
        return self.answer


def config(root: Path, **changes: object) -> StoreConfig:
    return msgspec.structs.replace(StoreConfig(store_path_root_dir=str(root)), **changes)


def segment_bytes(root: Path, free_bytes: int, *, chosen: bool = False, **changes: object) -> int:
    found = room_for_store(config(root, **changes), Disk(free_bytes), size_is_chosen=chosen)
    return found.mapped_file_size_commit_log


@pytest.mark.parametrize(
    ("free_bytes", "expected"),
    [
        (20 * MIB, SEGMENT_BYTES_MIN),
        (300 * MIB, 16 * MIB),
        (16 * 32 * MIB - 1, 16 * MIB),
        (16 * 32 * MIB, 32 * MIB),
        (12 * GIB, 512 * MIB),
        (16 * GIB, GIB),
        (900 * GIB, GIB),
        (-1, GIB),
    ],
)
def test_a_new_store_takes_files_that_fit_its_disk(tmp_path: Path, free_bytes: int, expected: int) -> None:
    """A sixteenth of the free bytes, from 16 MiB to the default."""
    assert segment_bytes(tmp_path / "new" / "store", free_bytes) == expected


def test_a_size_that_was_chosen_stays(tmp_path: Path) -> None:
    assert segment_bytes(tmp_path, 12 * GIB, chosen=True) == GIB
    assert segment_bytes(tmp_path, 12 * GIB, chosen=True, mapped_file_size_commit_log=MIB) == MIB


@pytest.mark.parametrize("role", ["SLAVE", "SYNC_MASTER"])
def test_members_of_a_pair_begin_with_the_same_size(tmp_path: Path, role: str) -> None:
    """Each has a disk of its own."""
    assert segment_bytes(tmp_path, 12 * GIB, broker_role=role) == GIB


@pytest.mark.parametrize("free_bytes", [0, 12 * GIB, 900 * GIB])
@pytest.mark.parametrize("files", [1, 3])
def test_a_store_continues_with_its_own_size(tmp_path: Path, files: int, free_bytes: int) -> None:
    """Whatever the disk has by now: it may be full, and its messages are read."""
    log = tmp_path / "commitlog"
    log.mkdir()
    for number in range(files):
        with (log / segment_name(8 * MIB * (5 + number))).open("wb") as file:
            file.truncate(8 * MIB)
    assert segment_bytes(tmp_path, free_bytes) == 8 * MIB


def test_a_single_file_that_was_cut_is_left_to_the_opening(tmp_path: Path) -> None:
    """It compares the file with the setting and says what is wrong."""
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / segment_name(0)).write_bytes(bytes(12_345))
    assert segment_bytes(tmp_path, 900 * GIB) == GIB


def test_a_new_store_without_room_is_refused(tmp_path: Path) -> None:
    """Before it is ready, with the bytes that are missing and the settings."""
    with pytest.raises(CannotStart) as caught:
        room_for_store(config(tmp_path / "store"), Disk(10 * MIB), size_is_chosen=False)
    assert str(caught.value) == (
        f"the disk has no room for a new store: {tmp_path}/store: 10 MiB are free, a file of the log takes 16 MiB "
        "(store.mapped_file_size_commit_log), and 4 MiB must stay free for queues and index "
        "(store.disk_free_bytes_min) (free 10 MiB there, or name another directory (--data-dir))"
    )
    with pytest.raises(CannotStart, match="or use smaller files"):
        room_for_store(config(tmp_path), Disk(GIB), size_is_chosen=True)


def test_one_line_says_what_is_kept(tmp_path: Path) -> None:
    line = kept_line(config(tmp_path), Disk(12 * GIB))
    assert line == (
        f"keeping messages for 3 days in {tmp_path} (files of 1 GiB, 12 GiB free); below 256 MiB free sends are "
        "refused, and nothing younger is deleted"
    )
    forced = config(tmp_path, file_reserved_time=30, clean_file_forcibly_enable=True)
    assert kept_line(forced, Disk(-1)) == (
        f"keeping messages for 30 hours in {tmp_path} (files of 1 GiB); a full disk deletes the oldest messages, read "
        "or not"
    )


@pytest.mark.parametrize(
    ("free_bytes", "changes", "words"),
    [
        (2 * GIB, [], ""),
        (
            GIB,
            [],
            "/nowhere/store is 99.9 % full (1 GiB are free): nothing younger than 72 hours (store.file_reserved_time) "
            "is deleted, and sends are refused when the present file of the log is full, unless 1.2 GiB are free for "
            "the next one; free space",
        ),
        (
            200 * MIB,
            [],
            "/nowhere/store is nearly full (200 MiB are free): below 256 MiB sends are refused "
            "(store.disk_free_bytes_min); free space",
        ),
        (
            130 * GIB,
            ["store.disk_space_clean_forcibly_ratio=85", "store.disk_space_warning_level_ratio=90"],
            "/nowhere/store is 87.3 % full (130 GiB are free): nothing younger than 72 hours "
            "(store.file_reserved_time) is deleted, and above 90 % sends are refused "
            "(store.disk_space_warning_level_ratio)",
        ),
    ],
)
def test_the_warning_says_which_limit_the_disk_is_above(
    free_bytes: int, changes: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, and nothing on a disk with space."""
    sets = ["store.store_path_root_dir=/nowhere/store", "store.mapped_file_size_commit_log=1073741824", *changes]
    monkeypatch.setattr(disk_room, "_present_segment_bytes", lambda directory, files: GIB)
    look_at_disk(load_settings({}, None, sets, {}), Disk(free_bytes, 1 << 40))
    shown = capsys.readouterr().err
    assert shown.startswith(f"warning: the disk of {words}" if words else "")
    assert bool(shown) is bool(words)


def test_the_small_profile_starts_small_and_yields_to_what_is_given(tmp_path: Path) -> None:
    settings = load_settings({}, None, ["store.file_reserved_time=48"], {}, "small")
    store = settings.get(StoreConfig)
    assert (store.mapped_file_size_commit_log, store.file_reserved_time) == (16 * MIB, 48)
    with pytest.raises(PocketMQError, match="there is small"):
        load_settings({}, None, [], {}, "large")


def test_a_directory_that_is_there_or_can_be_made_is_fine(tmp_path: Path) -> None:
    check_directory(str(tmp_path))
    check_directory(str(tmp_path / "new" / "store"))


def test_what_is_no_directory_is_named(tmp_path: Path) -> None:
    """Also through a link that leads nowhere."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("file", "file/store", "link"):
        with pytest.raises(CannotStart, match=r"it is no directory.*--data-dir"):
            check_directory(str(tmp_path / name))


def test_a_directory_of_others_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is read-only is another matter, which the opening says."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CannotStart, match=rf"{tmp_path}/new cannot be made in {tmp_path}: this user may not write"):
        check_directory(str(tmp_path / "new"))
    monkeypatch.setattr(disk_room, "_is_read_only", lambda path: True)
    check_directory(str(tmp_path / "new"))

"""Timed flushes of the log, without sends that wait."""

import contextlib
import shutil
from pathlib import Path

import msgspec
import pytest

from pocketmq.store.commitlog.allocate import ALLOCATING_SUFFIX
from pocketmq.store.errors import DiskError, StoreError
from tests.store.log_fakes import HookedFileSystem, Stepped


def syncs(files: HookedFileSystem) -> int:
    """Count the syncs of segments in use; the allocator syncs new ones under another name."""
    names = [
        operation
        for operation, path in files.operations
        if "commitlog/" in path and not path.endswith(ALLOCATING_SUFFIX)
    ]
    return names.count("sync")


def test_too_few_pages_wait_for_the_thorough_flush(tmp_path: Path) -> None:
    """Fewer than four pages are flushed after ten seconds, more after half a second."""
    files = HookedFileSystem()
    stepped = Stepped(tmp_path, files, mapped_file_size_commit_log=1 << 20)
    flush = stepped.store.components.flush
    assert flush.step() is None
    stepped.append(b"x")
    assert flush.step() == 500
    stepped.clock.advance_ms(500)
    assert flush.step() == 500
    assert (syncs(files), stepped.store.flushed_offset) == (0, 0)
    stepped.clock.advance_ms(9500)
    assert flush.step() is None
    assert (syncs(files), stepped.store.flushed_offset) == (1, stepped.store.appended_offset)
    stepped.append(bytes(5 * 4096))
    stepped.clock.advance_ms(499)
    assert flush.step() == 1
    stepped.clock.advance_ms(1)
    assert flush.step() is None
    assert (syncs(files), stepped.store.flushed_offset) == (2, stepped.store.appended_offset)
    assert stepped.store.log.flush_count == 2
    stepped.store.close()


def test_a_sleeping_service_is_woken_once_by_the_first_append(tmp_path: Path) -> None:
    """While it has work it checks at every interval; appends do not wake it again."""
    stepped = Stepped(tmp_path)
    worker = next(worker for worker in stepped.runner.workers if worker.name == "flush-commit-log")
    stepped.append(b"1")
    assert worker.woken
    worker.woken = False
    stepped.append(b"2")
    assert not worker.woken
    stepped.clock.advance_ms(20_000)
    assert worker.step() is None
    stepped.append(b"3")
    assert worker.woken
    stepped.store.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_sync_is_under_way_until_it_ends_well_or_not(tmp_path: Path, fails: bool) -> None:
    """Its beginning is seen from outside while the disk stands still."""
    files = HookedFileSystem()
    stepped = Stepped(tmp_path, files)
    log, seen = stepped.store.log, []

    def look(operation: str, path: str) -> None:
        if operation == "sync" and "commitlog/" in path and not path.endswith(ALLOCATING_SUFFIX):
            seen.append(log.flush_began_ns)
            if fails:
                raise DiskError("sync failed", why="test")

    stepped.append(b"x")
    files.hook = look
    now_ns = stepped.clock.monotonic_ns()
    with contextlib.suppress(StoreError):
        log.flush()
    files.hook = None
    assert (seen, log.flush_began_ns) == ([now_ns], 0)
    with contextlib.suppress(StoreError):
        stepped.store.close()


def test_a_full_segment_is_flushed_and_given_back(tmp_path: Path) -> None:
    """A roll-over flushes any number of pages, and the old segment keeps neither map nor handle."""
    stepped = Stepped(tmp_path)
    stepped.append(bytes(5000))
    stepped.append(bytes(5000))
    stepped.clock.advance_ms(500)
    stepped.store.components.flush.step()
    first, second = stepped.store.log._segments.all
    assert (first.is_open, second.is_open) == (False, True)
    assert stepped.store.flushed_offset == stepped.store.appended_offset
    assert len(stepped.bodies()) == 2
    stepped.store.close()


def test_a_failed_sync_fences_under_async_flush_too(tmp_path: Path) -> None:
    """The service gives up, appends are refused, and a checksum file that cannot be written is only a warning."""
    broken: set[str] = set()

    def hook(operation: str, path: str) -> None:
        if operation in broken:
            raise DiskError("EIO")

    stepped = Stepped(tmp_path, HookedFileSystem(hook))
    stepped.append(bytes(6000))
    broken.add("write")
    stepped.store.components.flush.write_checksums()
    broken.add("sync")
    stepped.clock.advance_ms(20_000)
    assert stepped.store.components.flush.step() is None
    assert stepped.store.log.fenced_by is not None
    assert stepped.store.flushed_offset == 0
    assert len(stepped.bodies()) == 1


def test_a_removed_directory_of_checksums_does_not_keep_the_flush(tmp_path: Path) -> None:
    """It is created again; the flush happens at its promised time."""
    stepped = Stepped(tmp_path)
    shutil.rmtree(tmp_path / "checksums")
    stepped.append(bytes(4 * 4096 // 5))
    stepped.clock.advance_ms(10_000)
    stepped.store.components.flush.step()
    assert stepped.store.flushed_offset == stepped.store.appended_offset > 0
    assert [path.name for path in (tmp_path / "checksums").iterdir()] == [f"{0:020d}"]
    stepped.store.close()


@pytest.mark.parametrize("error", [DiskError("sick"), FileNotFoundError("gone"), OSError("odd")])
def test_checksums_come_after_the_flush_and_what_fails_there_is_reported(tmp_path: Path, error: Exception) -> None:
    """The flush was promised, checksums are for speed: they neither delay nor hide it."""

    def hook(operation: str, path: str) -> None:
        if "checksums/" in path:
            raise error

    files = HookedFileSystem(hook)
    stepped = Stepped(tmp_path, files)
    stepped.append(b"x")
    files.operations.clear()
    stepped.clock.advance_ms(10_000)
    assert stepped.store.components.flush.step() is None
    assert stepped.store.flushed_offset == stepped.store.appended_offset
    order = [path.split("/")[-2] for _, path in files.operations if "commitlog/" in path or "checksums/" in path]
    assert order[0] == "commitlog"
    assert set(order[1:]) == {"checksums"}
    assert [event["event"] for event in stepped.log.events].count("checksums_not_written") == 1
    stepped.store.close()


def test_a_shorter_interval_does_not_wait_for_the_end_of_the_old_one(tmp_path: Path) -> None:
    day_ms = 24 * 3_600_000
    stepped = Stepped(tmp_path, flush_interval_commit_log=day_ms, flush_commit_log_least_pages=0)
    worker = next(worker for worker in stepped.runner.workers if worker.name == "flush-commit-log")
    stepped.append(b"x")
    assert worker.step() == day_ms
    worker.woken = False
    stepped.store.components.settings_changed(
        msgspec.structs.replace(stepped.store.config, flush_interval_commit_log=7)
    )
    assert worker.woken
    assert worker.step() == 7
    stepped.clock.advance_ms(7)
    assert worker.step() is None
    assert stepped.store.flushed_offset == stepped.store.appended_offset
    stepped.store.close()

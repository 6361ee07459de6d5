"""Segments prepared ahead."""

import threading
from pathlib import Path

import pytest

from pocketmq.common.events import NullLog
from pocketmq.common.runner import SteppedRunner, ThreadRunner
from pocketmq.store import allocate
from pocketmq.store.allocate import SegmentAllocator
from pocketmq.store.errors import SegmentNotReady, StoreFull
from tests.store.log_fakes import SEGMENT_BYTES, HookedFileSystem, store_config


def allocator_of(
    root: Path, files: HookedFileSystem, threads: bool = False, **changes: object
) -> tuple[SegmentAllocator, SteppedRunner]:
    runner = SteppedRunner()
    allocator = SegmentAllocator(
        store_config(root, **changes), files, str(root), ThreadRunner() if threads else runner, NullLog()
    )
    allocator.start()
    return allocator, runner


def test_a_requested_segment_is_ready_without_a_wait(tmp_path: Path) -> None:
    """What was asked for ahead is handed over as it is, whole and named."""
    allocator, runner = allocator_of(tmp_path, HookedFileSystem())
    allocator.request(SEGMENT_BYTES)
    runner.run_until_idle()
    segment = allocator.take(SEGMENT_BYTES)
    assert (segment.base_offset, segment.is_open, allocator.waited) == (SEGMENT_BYTES, True, 0)
    assert Path(segment.path).stat().st_size == SEGMENT_BYTES


def test_a_segment_nobody_took_is_removed_at_stop(tmp_path: Path) -> None:
    """No empty file stays behind a clean stop."""
    allocator, runner = allocator_of(tmp_path, HookedFileSystem())
    allocator.request(0)
    runner.run_until_idle()
    assert len(list(tmp_path.iterdir())) == 1
    allocator.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_guess_is_replaced(tmp_path: Path) -> None:
    """A segment prepared for another offset goes away when the right one is taken."""
    allocator, runner = allocator_of(tmp_path, HookedFileSystem())
    allocator.request(0)
    runner.run_until_idle()
    segment = allocator.take(SEGMENT_BYTES)
    assert [path.name for path in tmp_path.iterdir()] == [Path(segment.path).name]


def test_a_full_disk_is_the_answer_and_a_later_try_succeeds(tmp_path: Path) -> None:
    """The cause reaches the append, nothing half made stays, and space that comes back is used."""
    full = True

    def hook(operation: str, path: str) -> None:
        if operation == "reserve" and full:
            raise StoreFull("no space")

    allocator, runner = allocator_of(tmp_path, HookedFileSystem(hook))
    allocator.request(0)
    runner.run_until_idle()
    with pytest.raises(StoreFull):
        allocator.take(0)
    assert list(tmp_path.iterdir()) == []
    full = False
    assert allocator.take(0).base_offset == 0


def test_a_hanging_disk_is_waited_for_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append is refused, and the segment serves the next one once it is there."""
    monkeypatch.setattr(allocate, "WAIT_MS_MAX", 10)
    go = threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "reserve":
            go.wait(10)

    allocator, _ = allocator_of(tmp_path, HookedFileSystem(hook), threads=True)
    with pytest.raises(SegmentNotReady):
        allocator.take(0)
    go.set()
    monkeypatch.setattr(allocate, "WAIT_MS_MAX", 10_000)
    assert allocator.take(0).base_offset == 0
    allocator.stop()


def test_under_sync_flush_the_file_is_written_and_synced_before_its_use(tmp_path: Path) -> None:
    """Blocks are written once, so a later sync changes no metadata."""
    files = HookedFileSystem()
    allocator, runner = allocator_of(tmp_path, files, flush_disk_type="SYNC_FLUSH")
    allocator.request(0)
    runner.run_until_idle()
    names = [operation for operation, _ in files.operations]
    assert names == ["create", "resize", "reserve", "write", "sync", "rename"]

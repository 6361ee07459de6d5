"""Segments prepared ahead."""

import errno
import os
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.runner import SteppedRunner, ThreadRunner
from pocketmq.store.commitlog import allocate
from pocketmq.store.commitlog.allocate import SegmentAllocator
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.disk.memory_lock import Bytes
from pocketmq.store.errors import DiskError, SegmentNotReady, StoreFull
from tests.store.log_fakes import SEGMENT_BYTES, HookedFile, HookedFileSystem, store_config


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
    """A segment requested ahead is returned whole and named."""
    allocator, runner = allocator_of(tmp_path, HookedFileSystem())
    allocator.request(SEGMENT_BYTES)
    runner.run_until_idle()
    segment = allocator.take(SEGMENT_BYTES)
    assert (segment.base_offset, segment.is_open, allocator.waited) == (SEGMENT_BYTES, True, 0)
    assert Path(segment.path).stat().st_size == SEGMENT_BYTES


def test_a_segment_nobody_took_is_removed_at_stop(tmp_path: Path) -> None:
    """No empty file stays after a clean stop."""
    allocator, runner = allocator_of(tmp_path, HookedFileSystem())
    allocator.request(0)
    runner.run_until_idle()
    assert len(list(tmp_path.iterdir())) == 1
    allocator.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_guess_is_replaced(tmp_path: Path) -> None:
    """A segment prepared for another offset is removed when the right one is taken."""
    allocator, runner = allocator_of(tmp_path, HookedFileSystem())
    allocator.request(0)
    runner.run_until_idle()
    segment = allocator.take(SEGMENT_BYTES)
    assert [path.name for path in tmp_path.iterdir()] == [Path(segment.path).name]


def test_a_full_disk_is_the_answer_and_a_later_try_succeeds(tmp_path: Path) -> None:
    """The append gets the cause, no half-made file stays, and returned space is used."""
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


@pytest.mark.parametrize(("free_bytes", "fits"), [(SEGMENT_BYTES * 5 // 4, True), (SEGMENT_BYTES * 5 // 4 - 1, False)])
def test_a_segment_leaves_room_for_the_other_files(tmp_path: Path, free_bytes: int, fits: bool) -> None:
    """A quarter of its size stays free for queues, index and tables; the refusal names the setting that matters."""

    class Small(HookedFileSystem):
        def free_bytes(self, path: str) -> tuple[int, int]:
            return free_bytes, 1 << 30

    allocator, _ = allocator_of(tmp_path, Small())
    if fits:
        assert allocator.take(0).base_offset == 0
        return
    with pytest.raises(StoreFull) as raised:
        allocator.take(0)
    assert raised.value.cause is Cause.DISK_FULL
    assert "10 KiB are free, a file of the log takes 8 KiB" in raised.value.why
    assert "store.mapped_file_size_commit_log" in raised.value.why
    assert list(tmp_path.iterdir()) == []


def test_a_hanging_disk_is_waited_for_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append is refused, and the segment serves the next one once it is ready."""
    monkeypatch.setattr(allocate, "WAIT_MS_MAX", 10)
    go = threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "reserve":
            go.wait(60)

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
    assert names == ["create", "resize", "reserve", "sync", "write", "sync", "rename", "sync_dir"]


# ---- warm-up and write buffers


class FakeMemory:
    """Records locked memory; refuses on request."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.calls: list[tuple[str, int]] = []

    def lock(self, array: Bytes) -> None:
        self.calls.append(("lock", array.size))
        if self.refuses:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def unlock(self, array: Bytes) -> None:
        self.calls.append(("unlock", array.size))

    def copy(self, target: Bytes, at: int, data: Bytes) -> None:
        target[at : at + len(data)] = data

    def touch(self, array: Bytes) -> None:
        pass

    def will_need(self, array: Bytes) -> None:
        self.calls.append(("will_need", array.size))

    def free_bytes(self) -> int | None:
        return None


def warm_allocator(
    root: Path, files: HookedFileSystem, memory: FakeMemory, log: EventLog, **changes: object
) -> tuple[SegmentAllocator, SteppedRunner]:
    runner = SteppedRunner()
    config = store_config(root, mapped_file_size_commit_log=4 << 20, warm_maped_file_enable=True, **changes)
    allocator = SegmentAllocator(config, files, str(root), runner, log, memory=memory)
    allocator.start()
    return allocator, runner


def test_a_warm_up_touches_every_page_ahead_and_unlocks_a_full_segment(tmp_path: Path) -> None:
    """It happens in slices, before the segment is taken; the segment stays locked in RAM until it is sealed."""
    files, memory = HookedFileSystem(), FakeMemory()
    allocator, runner = warm_allocator(tmp_path, files, memory, NullLog())
    allocator.request(0)
    runner.run_until_idle()
    assert [operation for operation, _ in files.operations].count("store") == 4
    assert memory.calls == [("lock", 4 << 20), ("will_need", 4 << 20)]
    segment = allocator.take(0)
    assert segment.is_open
    assert not any((tmp_path / ("0" * 20)).read_bytes())
    segment.seal()
    assert memory.calls[2:] == [("unlock", 4 << 20)]
    segment.seal()
    assert len(memory.calls) == 3


def test_a_warm_up_ends_when_an_append_waits_for_the_segment(tmp_path: Path) -> None:
    """The append gets the segment cold rather than late."""
    allocator: SegmentAllocator

    def hook(operation: str, path: str) -> None:
        if operation == "store":
            allocator._urgent = True

    files, memory = HookedFileSystem(hook), FakeMemory()
    allocator, runner = warm_allocator(tmp_path, files, memory, NullLog())
    allocator.request(0)
    runner.run_until_idle()
    assert [operation for operation, _ in files.operations].count("store") == 1
    assert memory.calls == []
    assert allocator.take(0).is_open


def test_under_sync_flush_a_warm_up_syncs_now_and_then(tmp_path: Path) -> None:
    """It syncs every so many pages and at its end, so that the first message does not pay for the whole segment."""
    files = HookedFileSystem()
    allocator, runner = warm_allocator(
        tmp_path,
        files,
        FakeMemory(),
        NullLog(),
        flush_disk_type="SYNC_FLUSH",
        flush_least_pages_when_warm_maped_file=768,
    )
    allocator.request(0)
    runner.run_until_idle()
    names = [operation for operation, path in files.operations if path.endswith("0" * 20)]
    assert names == ["rename", "store", "store", "store", "sync", "store", "sync"]


def test_a_machine_that_does_not_lock_a_warm_segment_is_reported_once(tmp_path: Path) -> None:
    """The segments are used unlocked; the warning is not repeated for every segment."""
    log, memory = Mock(), FakeMemory(refuses=True)
    allocator, runner = warm_allocator(tmp_path, HookedFileSystem(), memory, log)
    for number in range(2):
        allocator.request(number << 22)
        runner.run_until_idle()
        allocator.take(number << 22).seal()
    assert [call.args[0] for call in log.warning.call_args_list] == ["warm_segment_not_locked"]
    assert memory.calls == [("lock", 4 << 20), ("will_need", 4 << 20)] * 2


def test_a_buffered_segment_is_not_warmed_and_an_unused_one_gives_its_buffer_back(tmp_path: Path) -> None:
    """It has no map; an unused segment does not keep a buffer."""
    files, runner = HookedFileSystem(), SteppedRunner()
    config = store_config(tmp_path, warm_maped_file_enable=True, transient_store_pool_enable=True)
    pool = WriteBufferPool(1, SEGMENT_BYTES, FakeMemory(), ManualClock(), NullLog())
    pool.open()
    allocator = SegmentAllocator(config, files, str(tmp_path), runner, NullLog(), pool=pool, memory=FakeMemory())
    allocator.start()
    allocator.request(0)
    runner.run_until_idle()
    assert (pool.available, [operation for operation, _ in files.operations].count("store")) == (0, 0)
    segment = allocator.take(SEGMENT_BYTES)
    assert (segment.is_buffered, pool.available) == (False, 1)
    allocator.request(2 * SEGMENT_BYTES)
    runner.run_until_idle()
    assert pool.available == 0
    allocator.stop()
    assert pool.available == 1


def test_a_segment_that_cannot_be_opened_gives_its_buffer_back(tmp_path: Path) -> None:
    """A pool that loses buffers to a sick disk would be deficient for ever."""

    class Files(HookedFileSystem):
        def open(self, path: str, *, create: bool = False, writable: bool = True) -> HookedFile:
            if not create:
                raise DiskError("EIO")
            return super().open(path, create=create, writable=writable)

    runner = SteppedRunner()
    pool = WriteBufferPool(1, SEGMENT_BYTES, FakeMemory(), ManualClock(), NullLog())
    pool.open()
    config = store_config(tmp_path, transient_store_pool_enable=True)
    allocator = SegmentAllocator(config, Files(), str(tmp_path), runner, NullLog(), pool=pool)
    allocator.start()
    with pytest.raises(DiskError):
        allocator.take(0)
    assert pool.available == 1

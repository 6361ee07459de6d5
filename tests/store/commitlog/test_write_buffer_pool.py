"""The write-buffer pool, and its demands on the machine's memory."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.disk.memory_lock import Bytes, OsMemory
from pocketmq.store.disk.os_file_system import OsFile, OsFileSystem
from pocketmq.store.errors import DiskError
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import Stepped, store_config

BUFFER_BYTES = 8192


class FakeMemory:
    """A machine that locks a number of arrays and has a size of memory."""

    def __init__(self, locks_max: int = 99, free: int | None = None) -> None:
        self.locks_max = locks_max
        self.free = free
        self.locked: list[Bytes] = []

    def lock(self, array: Bytes) -> None:
        if len(self.locked) >= self.locks_max:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        self.locked.append(array)

    def unlock(self, array: Bytes) -> None:
        pass

    def copy(self, target: Bytes, at: int, data: Bytes) -> None:
        target[at : at + len(data)] = data

    def touch(self, array: Bytes) -> None:
        pass

    def will_need(self, array: Bytes) -> None:
        pass

    def free_bytes(self) -> int | None:
        return self.free


def pool_of(size: int, memory: FakeMemory | None = None) -> tuple[WriteBufferPool, Mock, ManualClock]:
    log, clock = Mock(), ManualClock()
    pool = WriteBufferPool(size, BUFFER_BYTES, memory or FakeMemory(), clock, log)
    pool.open()
    return pool, log, clock


def test_buffers_are_lent_until_none_is_left_and_come_back() -> None:
    """Each borrower has its own buffer; the last one returned is lent next; without any the result is None."""
    pool, _, _ = pool_of(3)
    buffers = [pool.borrow() for _ in range(3)]
    assert (pool.available, pool.borrow()) == (0, None)
    assert len({buffer.array.ctypes.data for buffer in buffers if buffer is not None}) == 3
    for buffer in buffers[:2]:
        assert buffer is not None
        pool.give_back(buffer)
    assert pool.available == 2
    assert pool.borrow() is buffers[1]


def test_a_buffer_returned_twice_is_our_bug() -> None:
    """Two borrowers of one buffer would mix their messages."""
    pool, _, _ = pool_of(1)
    buffer = pool.borrow()
    assert buffer is not None
    pool.give_back(buffer)
    with pytest.raises(AssertionError, match="twice"):
        pool.give_back(buffer)


def test_few_free_buffers_warn_once_a_second() -> None:
    """RocketMQ's words appear below 40 %, at most once a second."""
    pool, log, clock = pool_of(5)
    for _ in range(3):
        pool.borrow()
    assert log.warning.call_count == 0
    pool.borrow()
    pool.borrow()
    assert [call.args[0] for call in log.warning.call_args_list] == ["TransientStorePool only remain 1 sheets."]
    clock.advance_ms(1000)
    pool.borrow()
    assert log.warning.call_args.args[0] == "TransientStorePool only remain 0 sheets."


def test_all_buffers_are_locked_in_ram_and_the_time_is_reported() -> None:
    """One event says what begins, since gigabytes take seconds; one has count and time."""
    memory = FakeMemory()
    pool, log, _ = pool_of(3, memory)
    assert (pool.is_locked, len(memory.locked)) == (True, 3)
    begun, event = log.info.call_args_list
    assert (begun.args, begun.kwargs) == (
        ("write_buffer_pool_opening",),
        {"buffers": 3, "buffer_bytes": BUFFER_BYTES},
    )
    assert event.args == ("write_buffer_pool_opened",)
    assert event.kwargs == {"buffers": 3, "buffer_bytes": BUFFER_BYTES, "duration_ms": 0.0}


def test_a_long_opening_says_each_second_how_far_it_is() -> None:
    """Locking a buffer takes 600 ms here: after the second one the line is due, after the third one it is not."""
    log, clock = Mock(), ManualClock()

    class SlowMemory(FakeMemory):
        def lock(self, array: Bytes) -> None:
            super().lock(array)
            clock.advance_ms(600)

    WriteBufferPool(3, BUFFER_BYTES, SlowMemory(), clock, log).open()
    told = [call.kwargs.get("percent") for call in log.info.call_args_list if "opening" in call.args[0]]
    assert told == [None, 66]


class NoLongerWanted(Exception):
    pass


@pytest.mark.parametrize("survives", [False, True])
def test_an_opening_that_is_no_longer_wanted_ends_between_two_buffers(tmp_path: Path, survives: bool) -> None:
    """A signal to stop does not wait for gigabytes; nothing is left, and the next opening works."""
    shared = tmp_path / "shm"
    shared.mkdir()
    path = str(shared) if survives else "anonymous"
    config = store_config(tmp_path / "store", transient_store_pool_enable=True, transient_store_pool_path=path)
    memory = FakeMemory()
    store = MessageStore(config, memory=memory, runner=SteppedRunner())

    def wanted_until_two_are_locked() -> None:
        if len(memory.locked) >= 2:
            raise NoLongerWanted

    store.still_wanted = wanted_until_two_are_locked
    with pytest.raises(NoLongerWanted):
        store.open()
    assert len(memory.locked) == 2
    assert list(shared.iterdir()) == []
    again = MessageStore(config, memory=FakeMemory(), runner=SteppedRunner())
    again.open()
    assert again.pool is not None
    assert again.pool.available == 5
    again.close()


def test_a_machine_that_locks_no_memory_is_reported_once() -> None:
    """The pool works unlocked; the warning has the reason and the cure."""
    pool, log, _ = pool_of(3, FakeMemory(locks_max=1))
    assert (pool.is_locked, pool.available) == (False, 3)
    (event,) = log.warning.call_args_list
    assert event.args == ("write_buffer_pool_not_locked",)
    assert (event.kwargs["why"], event.kwargs["locked_buffers"]) == (os.strerror(errno.ENOMEM), 1)
    assert "ulimit -l" in event.kwargs["hint"]


def test_a_pool_larger_than_the_free_memory_stops_the_start(tmp_path: Path) -> None:
    """The error has both numbers and comes before any write."""
    config = store_config(tmp_path / "store", transient_store_pool_enable=True, transient_store_pool_size=5)
    store = MessageStore(config, memory=FakeMemory(free=5 * 8192 - 1))
    with pytest.raises(ConfigError, match=r"transient_store_pool_size=5 .* 40960 bytes of RAM, but 40959 are free"):
        store.open()
    assert not (tmp_path / "store").exists()
    store = MessageStore(config, memory=FakeMemory(free=5 * 8192), runner=SteppedRunner())
    store.open()
    store.close()


def test_a_closed_pool_holds_no_memory(tmp_path: Path) -> None:
    """A stopped store has no free buffer, and a new start of it has all again."""
    stepped = Stepped(tmp_path, transient_store_pool_enable=True)
    pool = stepped.store.pool
    assert pool is not None
    assert (pool.size, pool.available) == (5, 5)
    stepped.store.close()
    assert (pool.available, stepped.store.is_transient_store_pool_deficient()) == (0, True)
    stepped.store.open()
    assert (pool.available, stepped.store.is_transient_store_pool_deficient()) == (5, False)
    stepped.store.close()


class FilesOf(OsFileSystem):
    """The kernel's small files, as on this machine."""

    def __init__(self, root: Path, contents: Mapping[str, str]) -> None:
        super().__init__()
        self._root = root
        for name, content in contents.items():
            (root / name).write_text(content)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        name = path.rsplit("/", 1)[1]
        if name == "memory.broken":
            raise DiskError("unreadable")
        return super().open(str(self._root / name), create=create, writable=writable)


@pytest.mark.parametrize(
    ("contents", "free"),
    [
        ({"meminfo": "MemTotal: 9 kB\nMemAvailable:   4 kB\n"}, 4096),
        ({"meminfo": "MemAvailable: 4 kB\n", "memory.max": "max\n", "memory.current": "7\n"}, 4096),
        ({"meminfo": "MemAvailable: 4 kB\n", "memory.max": "100\n", "memory.current": "70\n"}, 30),
        ({"memory.max": "100\n", "memory.current": "170\n"}, 0),
        ({"meminfo": "garbage"}, None),
        ({}, None),
    ],
)
def test_free_memory_is_what_machine_and_container_leave(
    tmp_path: Path, contents: dict[str, str], free: int | None
) -> None:
    """The smaller of both counts; None where unknown."""
    assert OsMemory(FilesOf(tmp_path, contents)).free_bytes() == free


def test_the_real_machine_locks_a_page_or_says_why_not() -> None:
    """It uses the system's own call; unlocking is harmless."""
    memory = OsMemory(OsFileSystem())
    array = np.frombuffer(bytearray(3 * 4096), np.uint8)
    refused = 0
    try:
        memory.lock(array)
    except OSError as error:
        refused = error.errno or 0
    assert refused in (0, errno.ENOMEM, errno.EPERM, errno.EAGAIN, errno.ENOSYS)
    memory.unlock(array)
    free_bytes = memory.free_bytes()
    assert free_bytes is None or free_bytes > 0

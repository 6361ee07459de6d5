"""Appends that hold the lock for too long: the store's answers, the waiters, and the end of every wait."""

import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.errors import DiskError, StoreFenced
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import HOST, SEGMENT_BYTES, HookedFileSystem, Stepped, bodies, store_config

Breaks = Callable[[Stepped, type[BaseException]], None]


class Stall:
    """A disk whose appends to the log hang from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self.stands_still = False
        self.entered = threading.Event()
        self._go = threading.Event()
        self.files = HookedFileSystem(self._hook)

    def _hook(self, operation: str, path: str) -> None:
        if self.stands_still and operation in ("store", "write") and "/commitlog/" in path:
            self.entered.set()
            self._go.wait(30)

    def end(self) -> None:
        self.stands_still = False
        self._go.set()


class Appender(threading.Thread):
    def __init__(self, store: MessageStore, body: bytes) -> None:
        super().__init__()
        self.result: AppendResult | None = None
        self._store = store
        self._body = body
        self.start()

    def run(self) -> None:
        self.result = self._store.append(bodies(self._body))

    def status(self) -> PutStatus | None:
        self.join(30)
        return None if self.result is None else self.result.status


def test_of_two_appenders_at_most_one_waits_longer_than_the_limit(tmp_path: Path) -> None:
    """The disk hangs: one append is in it, the other gives up at the limit, a third does not wait at all."""
    stall = Stall()
    stepped = Stepped(tmp_path, stall.files, os_page_cache_busy_timeout_mills=1000)
    store, clock = stepped.store, stepped.clock
    stepped.append(b"before")
    stall.stands_still = True
    first = Appender(store, b"first")
    assert stall.entered.wait(30)
    clock.advance_ms(400)
    assert (store.is_os_page_cache_busy(), store.lock_time_mills()) == (False, 400)
    second = Appender(store, b"second")
    second.join(0.1)
    assert second.result is None
    clock.advance_ms(601)
    assert second.status() is PutStatus.OS_PAGE_CACHE_BUSY
    assert second.result is not None
    assert (second.result.cause, second.result.append_ns) == (Cause.PAGE_CACHE_BUSY, 0)
    assert 0 <= second.result.lock_wait_ns <= 601_000_000
    assert (store.is_os_page_cache_busy(), store.lock_time_mills()) == (True, 1001)
    assert store.append(bodies(b"third")).status is PutStatus.OS_PAGE_CACHE_BUSY
    assert store.log.lock.busy_refusals == 2
    stall.end()
    assert first.status() is PutStatus.PUT_OK
    assert first.result is not None
    assert first.result.append_ns == 1_001_000_000
    assert (store.is_os_page_cache_busy(), store.lock_time_mills(), store.log.lock.busy_episodes) == (False, 0, 1)
    stepped.append(b"after")
    assert stepped.bodies() == [b"before", b"first", b"after"]
    store.close()


def test_a_long_append_is_reported_with_its_wait(tmp_path: Path) -> None:
    """RocketMQ's words appear above 500 ms under the lock, also after a failed append; below that none."""
    clock, log, slow_ms, fails = ManualClock(), Mock(), 0, False

    def hook(operation: str, path: str) -> None:
        if operation == "write" and "/commitlog/" in path:
            clock.advance_ms(slow_ms)
            if fails:
                raise DiskError("EIO")

    store = MessageStore(
        store_config(tmp_path, append_mode="written"),
        file_system=HookedFileSystem(hook),
        clock=clock,
        runner=SteppedRunner(),
        log=log,
    )
    store.store_host = HOST
    store.open()
    slow_ms = 500
    assert store.append(bodies(b"1")).append_ns == 500_000_000
    assert log.warning.call_count == 0
    slow_ms = 612
    assert store.append(bodies(b"2")).append_ns == 612_000_000
    fails = True
    refused = store.append(bodies(b"3"))
    assert (refused.status, refused.append_ns) == (PutStatus.SERVICE_NOT_AVAILABLE, 612_000_000)
    assert [call.args for call in log.warning.call_args_list] == [("[NOTIFYME]putMessage in lock cost time(ms)",)] * 2
    assert log.warning.call_args.kwargs == {"lock_held_ms": 612, "lock_wait_ms": 0, "records": 1, "size_bytes": 93}
    fails = False
    store.dispatcher.catch_up()
    store.close()


def test_disk_trouble_goes_to_a_log_of_its_own(tmp_path: Path) -> None:
    """The second log has the fence, the first one does not."""
    log, error_log, broken = Mock(), Mock(), False

    def hook(operation: str, path: str) -> None:
        if broken and operation == "sync":
            raise DiskError("EIO")

    store = MessageStore(
        store_config(tmp_path), file_system=HookedFileSystem(hook), runner=SteppedRunner(), log=log, error_log=error_log
    )
    store.store_host = HOST
    store.open()
    store.append(bodies(b"x"))
    broken = True
    with pytest.raises(StoreFenced):
        store.log.flush()
    assert [call.args[0] for call in error_log.error.call_args_list] == ["log_fenced"]
    assert log.error.call_count == 0


# ---- any error under the lock


def break_next_offset(stepped: Stepped, kind: type[BaseException]) -> None:
    def next_offset(topic: str, queue_id: int) -> int:
        raise kind

    stepped.store.log.queue_offsets._next_offset = next_offset


def break_on_appended(stepped: Stepped, kind: type[BaseException]) -> None:
    def on_appended(group: RecordGroup) -> None:
        raise kind

    stepped.store.log.on_appended = on_appended


def break_allocator(stepped: Stepped, kind: type[BaseException]) -> None:
    def take(base_offset: int) -> None:
        raise kind

    vars(stepped.store.components.allocator)["take"] = take


def mend(stepped: Stepped) -> None:
    stepped.store.log.on_appended = stepped.store.dispatcher.feed
    stepped.store.log.queue_offsets._next_offset = stepped.store.consume_queues.next_offset
    vars(stepped.store.components.allocator).pop("take", None)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("breaks", [break_next_offset, break_on_appended, break_allocator])
@pytest.mark.parametrize("pool", [False, True])
def test_whatever_is_raised_under_the_lock_resets_the_marker(
    tmp_path: Path, breaks: Breaks, kind: type[BaseException], pool: bool
) -> None:
    """The lock is free at once, the store is not busy, and the next append is stored."""
    stepped = Stepped(tmp_path, transient_store_pool_enable=pool)
    store = stepped.store
    stepped.append(bytes(SEGMENT_BYTES - 1000))
    breaks(stepped, kind)
    with pytest.raises(kind):
        store.append(bodies(bytes(1000), queue_id=1))
    assert (store.log.lock.held_since_ns, store.lock_time_mills(), store.is_os_page_cache_busy()) == (0, 0, False)
    stepped.clock.advance_ms(2000)
    assert not store.is_os_page_cache_busy()
    mend(stepped)
    stepped.append(b"next")
    store.log.commit()
    stepped.dispatch()
    assert stepped.bodies()[-1] == b"next"
    store.close()


@pytest.mark.parametrize("kind", [DiskError, RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_whatever_the_disk_raises_resets_the_marker(
    tmp_path: Path, append_mode: str, kind: type[BaseException]
) -> None:
    """The error comes from a store into the segment, in both modes."""
    broken = False

    def hook(operation: str, path: str) -> None:
        if broken and operation in ("store", "write") and "/commitlog/" in path:
            raise kind("broken")

    stepped = Stepped(tmp_path, HookedFileSystem(hook), append_mode=append_mode)
    store = stepped.store
    stepped.append(b"1")
    broken = True
    if kind is DiskError:
        assert store.append(bodies(b"2")).status is PutStatus.SERVICE_NOT_AVAILABLE
    else:
        with pytest.raises(kind):
            store.append(bodies(b"2"))
    broken = False
    assert (store.log.lock.held_since_ns, store.lock_time_mills()) == (0, 0)
    stepped.append(b"3")
    assert stepped.bodies() == [b"1", b"3"]
    store.close()


class FailingClock(ManualClock):
    """Raises at the n-th read of either of its times."""

    def __init__(self) -> None:
        super().__init__()
        self.looks_left = 0

    def _look(self) -> None:
        self.looks_left -= 1
        if self.looks_left == 0:
            raise KeyboardInterrupt

    def now_ms(self) -> int:
        self._look()
        return super().now_ms()

    def monotonic_ns(self) -> int:
        self._look()
        return super().monotonic_ns()


@pytest.mark.parametrize("look", range(1, 6))
def test_a_clock_that_fails_at_any_look_resets_the_marker(tmp_path: Path, look: int) -> None:
    """Before the lock, at its entry, for the store time, at its exit, after it."""
    clock = FailingClock()
    store = MessageStore(store_config(tmp_path), clock=clock, runner=SteppedRunner())
    store.store_host = HOST
    store.open()
    store.append(bodies(b"1"))
    clock.looks_left = look
    with pytest.raises(KeyboardInterrupt):
        store.append(bodies(b"2"))
    clock.looks_left = 0
    assert (store.log.lock.held_since_ns, store.is_os_page_cache_busy()) == (0, False)
    assert store.append(bodies(b"3")).status is PutStatus.PUT_OK
    store.dispatcher.catch_up()
    store.close()

"""Each cell of the table in docs/durability.md: which events an acknowledged message survives, by setting."""

import errno
import random
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import StoreError
from tests.sim.checkers import Ledger, SimStore, fresh_disk, read_all
from tests.sim.crash_file_system import CrashFileSystem, Fault, Operation
from tests.sim.schedules import SURVIVING
from tests.store.log_fakes import group_of, put

MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {},
    "pool": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
    "surviving": SURVIVING | {"transient_store_pool_size": 3},
}
BODY = b"acknowledged"


class Promise:
    """A store with one message in it, and the answer to its sender."""

    def __init__(self, mode: str, *, wait: bool = True, append_mode: str = "auto") -> None:
        self.clock = ManualClock()
        self.settings = {**MODES[mode], "append_mode": append_mode}
        self.sim = SimStore(fresh_disk(), Ledger(), self.clock, **self.settings)
        self.told: list[PutStatus] = []
        result = self.sim.store.append(group_of([put(BODY)]))
        self.sim.store.acknowledge(result.end_offset, wait, self.told.append)

    def sync(self) -> None:
        self.sim.step("group-commit")

    def left(self, disk: CrashFileSystem) -> bool:
        """Return whether a start on this disk finds the message."""
        found = SimStore(disk, Ledger(only_kills=False), self.clock, **self.settings)
        found.store.show_all()
        bodies = [record.body for records in read_all(found.store).values() for record in records]
        found.store.close()
        assert bodies in ([], [BODY])
        return bool(bodies)

    def after_kill(self) -> bool:
        return self.left(self.sim.files.after_kill())

    def after_power_loss(self) -> set[bool]:
        """Return the results of all power cuts."""
        return {self.left(disk) for disk in self.sim.files.crash_states(random.Random(5), 40)}


@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_sync_flush_survives_kill_and_power_loss(append_mode: str) -> None:
    """The answer comes with the sync, not before, and from then on nothing loses the message."""
    promise = Promise("sync", append_mode=append_mode)
    assert promise.told == []
    promise.sync()
    assert promise.told == [PutStatus.PUT_OK]
    assert promise.after_kill()
    assert promise.after_power_loss() == {True}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_without_waiting_a_power_loss_may_take_it(mode: str) -> None:
    """WAIT=false under SYNC_FLUSH equals ASYNC_FLUSH: safe from a kill at once, from power loss after the flush."""
    promise = Promise(mode, wait=False)
    assert promise.told == [PutStatus.PUT_OK]
    assert promise.after_kill()
    assert promise.after_power_loss() == {True, False}
    promise.sim.store.log.flush()
    assert promise.after_power_loss() == {True}


def test_async_flush_is_safe_from_power_loss_after_its_interval() -> None:
    """Four pages wait at most ``flush_interval_commit_log``, fewer pages ``flush_commit_log_thorough_interval``."""
    promise = Promise("async")
    config = promise.sim.config
    promise.sim.step("flush-commit-log")
    promise.clock.advance_ms(config.flush_interval_commit_log)
    promise.sim.step("flush-commit-log")
    assert promise.after_power_loss() == {True, False}
    promise.clock.advance_ms(config.flush_commit_log_thorough_interval)
    promise.sim.step("flush-commit-log")
    assert promise.after_power_loss() == {True}


def test_a_pool_survives_a_kill_after_its_commit() -> None:
    """It is acknowledged in RAM: until the commit a kill loses it, then until the flush only a power loss does."""
    promise = Promise("pool")
    assert promise.told == [PutStatus.PUT_OK]
    assert not promise.after_kill()
    assert promise.after_power_loss() == {False}
    promise.sim.step("commit-log")
    assert promise.after_kill()
    assert promise.after_power_loss() == {True, False}
    promise.sim.store.log.flush()
    assert promise.after_power_loss() == {True}


def test_surviving_buffers_survive_a_kill_at_once() -> None:
    """Acknowledged in shared memory: a kill loses nothing, at any time; a power loss takes it until the flush."""
    promise = Promise("surviving")
    assert promise.told == [PutStatus.PUT_OK]
    assert promise.after_kill()
    assert promise.after_power_loss() == {False}
    promise.sim.step("commit-log")
    assert promise.after_kill()
    assert promise.after_power_loss() == {True, False}
    promise.sim.store.log.flush()
    assert promise.after_kill()
    assert promise.after_power_loss() == {True}


def test_a_flush_timeout_is_stored_but_not_safe() -> None:
    """FLUSH_DISK_TIMEOUT: it survives a kill, and a power loss perhaps; the late sync makes it safe."""
    promise = Promise("sync")
    promise.clock.advance_ms(promise.sim.config.sync_flush_timeout)
    promise.sim.step("group-commit-watch")
    assert promise.told == [PutStatus.FLUSH_DISK_TIMEOUT]
    assert promise.after_kill()
    assert promise.after_power_loss() == {True, False}
    promise.sync()
    assert promise.told == [PutStatus.FLUSH_DISK_TIMEOUT]
    assert promise.after_power_loss() == {True}


@pytest.mark.parametrize("mode", ["sync", "async", "pool"])
def test_a_sync_that_fails_acknowledges_nothing_later(mode: str) -> None:
    """With any setting, waiting sends learn that the result is unknown, and no further message is accepted."""
    promise = Promise(mode)
    sim = promise.sim
    sim.commit()

    def fail(operation: Operation) -> Fault | None:
        return Fault(errno.EIO) if operation.kind == "sync" and "/commitlog/" in operation.path else None

    sim.files.before = fail
    if mode == "sync":
        promise.sync()
        assert promise.told == [PutStatus.SERVICE_NOT_AVAILABLE]
    else:
        with pytest.raises(StoreError):
            sim.store.log.flush()
        assert promise.told == [PutStatus.PUT_OK]
    sim.files.before = None
    refused = sim.store.append(group_of([put(b"later")]))
    assert (refused.status, refused.cause.value) == (PutStatus.SERVICE_NOT_AVAILABLE, "fenced")
    assert promise.after_kill()


@pytest.mark.parametrize("mode", ["sync", "async", "pool"])
def test_a_clean_stop_leaves_nothing_to_lose(mode: str) -> None:
    """With every setting, acknowledged messages are durable when ``close`` returns."""
    promise = Promise(mode)
    promise.sim.store.close()
    assert promise.told == [PutStatus.PUT_OK]
    assert promise.after_power_loss() == {True}

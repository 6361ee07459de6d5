"""Disk faults in a running store: failed syncs, no space, read-only, bad sectors, calls that hang."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.errors import Cause
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner, ThreadRunner
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.disk.os_file_system import OsFile
from pocketmq.store.errors import DiskError, StoreError, StoreFenced, StoreFull, translated
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import HOST, HookedFileSystem, Stepped, bodies, crashed_copy, group_of, put, store_config

BODY = b"x" * 900
ENOSPC, EROFS, EIO = errno.ENOSPC, errno.EROFS, errno.EIO
WRITING = frozenset(("create", "write", "reserve", "resize", "zero", "remove", "rename"))


class SickDisk(HookedFileSystem):
    """A real disk; each rule (operations, part of the path, errno) makes those calls fail while it is there."""

    def __init__(self) -> None:
        super().__init__(self._hook)
        self.rules: list[tuple[frozenset[str], str, int]] = []
        self.hits = 0

    def fails(self, operations: str | frozenset[str], path: str, number: int) -> None:
        self.rules.append((frozenset(operations.split()) if isinstance(operations, str) else operations, path, number))

    def _hook(self, operation: str, path: str) -> None:
        for operations, part, number in self.rules:
            if operation in operations and part in path:
                self.hits += 1
                raise translated(OSError(number, os.strerror(number)), f"{operation} failed", path)


class Sick(Stepped):
    """A stepped store on a disk that can fail."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.disk = SickDisk()
        self.errors = self.errors_to = CapturedLog()
        super().__init__(root, self.disk, **changes)
        self.put_bodies: list[bytes] = []

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            body = b"%05d" % len(self.put_bodies) + BODY
            self.append(body)
            self.put_bodies.append(body)

    def try_put(self) -> AppendResult:
        """Append a message that may be refused and then belongs to no queue."""
        body = b"%05d" % len(self.put_bodies) + BODY
        result = self.store.append(group_of([put(body, key=f"k{len(self.put_bodies)}")]))
        if result.status.is_stored:
            self.put_bodies.append(body)
            self.dispatch()
        return result

    def events(self) -> list[str]:
        return [event["event"] for event in self.errors.events]

    def step(self, name: str) -> None:
        next(worker for worker in self.runner.workers if worker.name == name).step()

    def reopened(self, **changes: Any) -> Stepped:
        """Return the store after a restart."""
        self.disk.rules.clear()
        try:
            self.store.close()
        except StoreError:
            pass
        return Stepped(self.root, **changes)


@pytest.fixture
def sick_of(tmp_path: Path) -> Iterator[Callable[..., Sick]]:
    made: list[Sick] = []

    def make(**changes: object) -> Sick:
        made.append(Sick(tmp_path / "store", **changes))
        return made[-1]

    yield make
    for sick in made:
        sick.disk.rules.clear()
        try:
            sick.store.close()
        except StoreError:
            pass


def acknowledged(sick: Sick, end_offset: int) -> list[PutStatus]:
    told: list[PutStatus] = []
    sick.store.acknowledge(end_offset, True, told.append)
    return told


# ---- a sync that fails


@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_a_failed_sync_fences_for_good(sick_of: Callable[..., Sick], append_mode: str) -> None:
    """It fails once and would succeed again: waiters get the error, no later message is accepted or acknowledged,
    earlier ones are readable, and a restart shows all of them.
    """
    sick = sick_of(flush_disk_type="SYNC_FLUSH", append_mode=append_mode)
    sick.put()
    told = acknowledged(sick, sick.store.appended_offset)
    sick.step("group-commit")
    assert told == [PutStatus.PUT_OK]
    sick.put()
    waiting = acknowledged(sick, sick.store.appended_offset)
    sick.disk.fails("sync", "/commitlog/", EIO)
    sick.step("group-commit")
    sick.disk.rules.clear()
    assert waiting == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert acknowledged(sick, sick.store.appended_offset) == [PutStatus.SERVICE_NOT_AVAILABLE]
    refused = sick.try_put()
    assert (refused.status.code, refused.cause) == (14, Cause.FENCED)
    assert "sync failed" in refused.error
    assert "restart the broker; reads continue" in refused.error
    for attempt in (sick.store.log.flush, sick.store.checkpoint):
        with pytest.raises(StoreFenced):
            attempt()
    sick.step("group-commit")
    sick.step("flush-commit-log")
    assert sick.store.flushed_offset < sick.store.appended_offset
    assert sick.bodies() == sick.put_bodies
    (event,) = sick.errors.events
    assert (event["event"], event["flushed_offset"]) == ("log_fenced", sick.store.flushed_offset)
    assert f"{sick.root}/commitlog/" in event["error"]
    assert "restart" in event["what_to_do"]
    again = sick.reopened()
    assert again.report.kind == "unclean"
    assert again.bodies() == sick.put_bodies
    again.append(b"goes on")
    again.store.close()


def test_a_failed_sync_of_the_queues_fences_too(sick_of: Callable[..., Sick]) -> None:
    """Entries may be lost that a later sync would say nothing of: no checkpoint may ever promise them. The restart
    builds them again from the last good one.
    """
    sick = sick_of()
    sick.put(3)
    sick.store.checkpoint()
    good = sick.store.components.checkpointer.recover_offset
    sick.put(3)
    sick.disk.fails("sync_all", "", EIO)
    sick.step("checkpoint")
    sick.disk.rules.clear()
    assert sick.events() == ["log_fenced", "checkpoint_failed"]
    sick.step("checkpoint")
    assert sick.store.components.checkpointer.recover_offset == good
    assert sick.try_put().cause is Cause.FENCED
    assert sick.bodies() == sick.put_bodies
    again = sick.reopened()
    assert (again.report.kind, again.report.dispatched_from) == ("unclean", good)
    assert again.bodies() == sick.put_bodies
    again.store.close()


@pytest.mark.parametrize(
    ("operation", "path"), [("sync", "/store/checkpoint"), ("rename", "positions"), ("write", "positions")]
)
def test_a_checkpoint_that_cannot_be_written_is_written_later(
    sick_of: Callable[..., Sick], operation: str, path: str
) -> None:
    """It is written as a whole each time, so a failed write promises no data and fences no log."""
    sick = sick_of()
    sick.put(3)
    sick.disk.fails(operation, path, EIO)
    sick.step("checkpoint")
    assert sick.events() == ["checkpoint_failed"]
    assert sick.store.components.checkpointer.recover_offset == 0
    sick.put()
    sick.disk.rules.clear()
    sick.step("checkpoint")
    assert sick.store.components.checkpointer.recover_offset == sick.store.committed_offset
    sick.put()
    assert sick.bodies() == sick.put_bodies


# ---- no space


PLACES = {
    "segment": (WRITING, "/commitlog/"),
    "queue": (WRITING, "/consumequeue/"),
    "index": (WRITING, "/index/"),
    "checksums": (WRITING, "/checksums/"),
    "checkpoint": (WRITING, "/checkpoint"),
    "positions": (WRITING, "/positions"),
    "all": (WRITING, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [ENOSPC, EROFS], ids=["ENOSPC", "EROFS"])
@pytest.mark.parametrize("append_mode", ["mapped", "written"])
@pytest.mark.parametrize("place", PLACES)
def test_without_space_consumers_go_on_and_writing_resumes(
    sick_of: Callable[..., Sick], place: str, append_mode: str, number: int
) -> None:
    """Wherever the disk is full or read-only: refused messages have a cause and are not stored; accepted ones are
    always readable, once each and in order; when there is space again everything works without help, and after a
    restart no message is missing.
    """
    sick = sick_of(append_mode=append_mode)
    sick.put(9)
    sick.store.checkpoint()
    operations, path = PLACES[place]
    sick.disk.fails(operations, path, number)
    refusals: list[AppendResult] = []
    for _ in range(20):
        result = sick.try_put()
        if not result.status.is_stored:
            refusals.append(result)
        sick.clock.advance_ms(1000)
        for name in ("consume-queue-writer", "key-index", "flush-commit-log", "checkpoint"):
            sick.step(name)
        assert sick.bodies() == sick.put_bodies
    assert sick.disk.hits > 0
    causes = {Cause.DISK_FULL} if number == ENOSPC else {Cause.READ_ONLY}
    assert {refusal.cause for refusal in refusals} == (causes if place in ("segment", "all") else set())
    assert {refusal.status.code for refusal in refusals} <= {14}
    sick.disk.rules.clear()
    assert sick.store.log.fenced_by is None
    before = len(sick.put_bodies)
    sick.put(20)
    assert len(sick.put_bodies) == before + 20
    for name in ("consume-queue-writer", "key-index", "flush-commit-log", "checkpoint"):
        sick.step(name)
    assert sick.store.components.checkpointer.recover_offset == sick.store.committed_offset
    crashed = Stepped(crashed_copy(sick.root, sick.root.parent / "copy"))
    assert crashed.bodies() == sick.put_bodies
    crashed.store.close()
    for key in range(9, before):
        assert len(sick.store.query("T", f"k{key}", 0, 1 << 60, 9)) == 1
    again = sick.reopened()
    assert again.report.kind == "clean"
    assert again.bodies() == sick.put_bodies
    again.store.close()


def test_a_topic_is_not_deleted_while_its_deletion_cannot_be_noted(sick_of: Callable[..., Sick]) -> None:
    """The topic stays, and is deleted when there is space."""
    sick = sick_of()
    sick.put(3)
    sick.disk.fails(WRITING, "deleted_topics", ENOSPC)
    with pytest.raises(StoreFull):
        sick.store.delete_topic("T")
    assert sick.bodies() == sick.put_bodies
    sick.disk.rules.clear()
    sick.store.delete_topic("T")
    assert sick.store.max_offset("T", 0) == 0


def test_a_read_only_disk_is_noticed_by_the_sync(sick_of: Callable[..., Sick]) -> None:
    """Where the kernel accepts appends, the sync fails, and fences the log."""
    sick = sick_of(flush_disk_type="SYNC_FLUSH", append_mode="mapped")
    sick.put()
    sick.disk.fails(WRITING - {"write"} | {"sync", "sync_dir", "sync_all"}, "", EROFS)
    sick.put()
    told = acknowledged(sick, sick.store.appended_offset)
    sick.step("group-commit")
    assert told == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert sick.try_put().cause is Cause.FENCED
    assert "Read-only file system" in sick.try_put().error
    assert sick.bodies() == sick.put_bodies


def test_a_pool_keeps_what_cannot_be_written(sick_of: Callable[..., Sick]) -> None:
    """With a write-buffer pool: appends are refused with the cause while the commit fails, and acknowledged messages
    are committed when there is space.
    """
    sick = sick_of(transient_store_pool_enable=True, transient_store_pool_size=3)
    sick.store.append(bodies(b"waits in a buffer"))
    sick.disk.fails("write", "/commitlog/", ENOSPC)
    sick.step("commit-log")
    refused = sick.try_put()
    assert (refused.status.code, refused.cause) == (14, Cause.DISK_FULL)
    sick.disk.rules.clear()
    sick.step("commit-log")
    sick.dispatch()
    assert sick.bodies() == [b"waits in a buffer"]
    assert sick.store.append(bodies(b"next")).status is PutStatus.PUT_OK


# ---- bad sectors


def test_a_bad_sector_is_one_readers_trouble(sick_of: Callable[..., Sick], monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers there get a typed error, others their messages; appends continue; the failure is logged once."""
    sick = sick_of()
    sick.put(20)
    real = OsFile.read_into

    def read_into(self: OsFile, offset: int, out: Any) -> int:
        if self.path.endswith(f"commitlog/{0:020d}"):
            raise DiskError(f"read at {offset} failed", why=f"{self.path}: Input/output error")
        return real(self, offset, out)

    monkeypatch.setattr(OsFile, "read_into", read_into)
    for _ in range(5):
        with pytest.raises(DiskError, match="Input/output error"):
            sick.store.get("T", 0, 0, max_messages=1, max_bytes=10_000)
    assert sick.events() == ["read_failed"]
    found = sick.store.get("T", 0, 12, max_messages=1, max_bytes=10_000)
    assert found.count == 1
    sick.put()
    assert sick.store.log.fenced_by is None


# ---- calls that hang


@pytest.mark.slow
def test_a_sync_that_hangs_times_out_each_waiter_by_itself(tmp_path: Path) -> None:
    """FLUSH_DISK_TIMEOUT at the deadline of each while the sync still hangs; the log is not fenced; when it returns
    all is well.
    """
    gate, hanging = threading.Event(), threading.Event()
    disk = HookedFileSystem()
    store = MessageStore(
        store_config(tmp_path / "store", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=150),
        file_system=disk,
        runner=ThreadRunner(),
    )
    store.store_host = HOST
    store.open()

    def hang(operation: str, path: str) -> None:
        if operation == "sync" and "/commitlog/0" in path and not path.endswith("allocating"):
            hanging.set()
            gate.wait(60)

    disk.hook = hang
    told: list[tuple[int, PutStatus]] = []
    ended = threading.Semaphore(0)

    def note(number: int, status: PutStatus) -> None:
        told.append((number, status))
        ended.release()

    try:
        for number in range(3):
            end = store.append(bodies(b"%d" % number)).end_offset
            store.acknowledge(end, True, partial(note, number))
            assert hanging.wait(30)
        for _ in range(3):
            assert ended.acquire(timeout=30)
        assert told == [(number, PutStatus.FLUSH_DISK_TIMEOUT) for number in range(3)]
        assert store.log.fenced_by is None
        gate.set()
        while told[-1] != (9, PutStatus.PUT_OK):  # the disk of a loaded machine may be slower than the limit
            store.acknowledge(store.append(bodies(b"after")).end_offset, True, partial(note, 9))
            assert ended.acquire(timeout=30)
    finally:
        gate.set()
        store.close()


@pytest.mark.parametrize("what", ["", "commitlog", "lock", "segment"])
@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_a_store_that_was_moved_accepts_nothing_more(tmp_path: Path, what: str, how: str) -> None:
    """What would be stored from now on lies in files without a name; the error says which path, and the stop ends."""
    log = CapturedLog()
    runner = SteppedRunner()
    store = MessageStore(store_config(tmp_path / "store"), runner=runner, error_log=log)
    store.open()
    store.store_host = HOST
    assert store.append(bodies(b"before")).status is PutStatus.PUT_OK
    path = tmp_path / "store" / what
    if what == "segment":
        path = next(each for each in (tmp_path / "store" / "commitlog").iterdir())
    path.rename(tmp_path / "elsewhere")
    if how == "replaced" and what in ("", "commitlog"):
        path.mkdir()
    elif how == "replaced":
        path.write_bytes(b"another")
    step = next(worker.step for worker in runner.workers if worker.name == "checkpoint")
    step()
    refused = store.append(bodies(b"after"))
    if how == "moved" and what == "lock":
        assert refused.status is PutStatus.PUT_OK  # the directory is locked too
    elif how == "replaced" and what == "segment":
        pass  # a file of that name is there: its content shows at the next start
    else:
        assert refused.cause is Cause.FENCED
        assert f"{path} was {how}" in refused.error
        [event] = [event for event in log.events if event["event"] == "log_fenced"]
        assert str(path) in event["error"]
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()
    elif how == "replaced":
        path.unlink()
    (tmp_path / "elsewhere").rename(path)
    with pytest.raises(StoreFenced) if refused.cause is Cause.FENCED else nullcontext():
        store.close()

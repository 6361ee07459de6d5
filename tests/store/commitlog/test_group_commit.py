"""Sends that wait for a sync, and their answers."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import ThreadRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.commitlog.group_commit import GroupCommit
from pocketmq.store.errors import DiskError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.waiters import Waiters
from tests.store.log_fakes import HookedFileSystem, Stepped, bodies, store_config

Told = list[tuple[int, PutStatus]]


def ignore(status: PutStatus) -> None:
    pass


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 20), st.integers(0, 20)),
            st.tuples(st.just("release"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("expire"), st.integers(0, 20), st.just(0)),
        ),
        max_size=40,
    )
)
def test_every_waiter_leaves_once_by_its_offset_or_its_own_deadline(steps: list[tuple[str, int, int]]) -> None:
    """As in a plain list: release takes all offsets reached, expire all deadlines passed, and memory follows."""
    waiters, model, left = Waiters(), dict[int, tuple[int, int]](), list[int]()
    for number, (kind, first, second) in enumerate(steps):
        if kind == "add":

            def done(status: PutStatus, number: int = number) -> None:
                left.append(number)

            assert waiters.add(first, second, done)
            model[number] = (first, second)
            continue
        at = 0 if kind == "release" else 1
        due = {key for key, value in model.items() if value[at] <= first}
        callbacks = waiters.release(first) if kind == "release" else waiters.expire(first)
        left.clear()
        for callback in callbacks:
            callback(PutStatus.PUT_OK)
        assert (set(left), len(left)) == (due, len(due))
        for key in due:
            del model[key]
        assert len(waiters) == len(model)
        assert waiters.next_deadline_ns() == min((value[1] for value in model.values()), default=None)
    if not model:
        assert (waiters._by_offset, waiters._by_deadline) == ([], [])


def test_too_many_waiters_are_an_answer() -> None:
    """Above the bound no waiter is accepted."""
    waiters = Waiters(count_max=1)
    assert waiters.add(1, 1, ignore)
    assert not waiters.add(1, 1, ignore)
    assert len(waiters.leave_all()) == 1
    assert waiters.add(1, 1, ignore)


def sync_store(root: Path, files: HookedFileSystem | None = None) -> tuple[Stepped, GroupCommit]:
    stepped = Stepped(root, files, flush_disk_type="SYNC_FLUSH")
    commit = stepped.store._group_commit
    assert commit is not None
    return stepped, commit


def acknowledge(stepped: Stepped, end_offset: int, told: Told, wait: bool = True) -> None:
    stepped.store.acknowledge(end_offset, wait, lambda status: told.append((end_offset, status)))


def test_one_sync_serves_all_that_wait(tmp_path: Path) -> None:
    """Three groups, one sync, three answers in the order of their offsets."""
    files = HookedFileSystem()
    stepped, commit = sync_store(tmp_path, files)
    told: Told = []
    ends = [stepped.append(b"%d" % number) for number in range(3)]
    for end in reversed(ends):
        acknowledge(stepped, end, told)
    assert told == []
    files.operations.clear()
    commit.step()
    commit.watch()
    assert told == [(end, PutStatus.PUT_OK) for end in ends]
    assert [operation for operation, path in files.operations if "commitlog" in path].count("sync") == 1
    assert stepped.store.flushed_offset == ends[-1]
    acknowledge(stepped, ends[0], told)
    assert told[-1] == (ends[0], PutStatus.PUT_OK)
    stepped.store.close()


def test_who_does_not_wait_is_told_at_once(tmp_path: Path) -> None:
    """WAIT=false answers before the sync, which follows."""
    stepped, _ = sync_store(tmp_path)
    told: Told = []
    end = stepped.append(b"x")
    acknowledge(stepped, end, told, wait=False)
    assert told == [(end, PutStatus.PUT_OK)]
    assert stepped.store.flushed_offset == 0
    stepped.runner.run_until_idle()
    assert stepped.store.flushed_offset == end
    stepped.store.close()


def test_each_waiter_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    """While no sync ends, each gets FLUSH_DISK_TIMEOUT five seconds after its wait began, not later."""
    stepped, commit = sync_store(tmp_path)
    told: Told = []
    first = stepped.append(b"1")
    acknowledge(stepped, first, told)
    stepped.clock.advance_ms(3000)
    second = stepped.append(b"2")
    acknowledge(stepped, second, told)
    wait_ms = commit.watch()
    assert wait_ms == 2000
    stepped.clock.advance_ms(2000)
    assert commit.watch() == 3000
    assert told == [(first, PutStatus.FLUSH_DISK_TIMEOUT)]
    stepped.clock.advance_ms(3000)
    assert commit.watch() is None  # nothing has come since
    assert told[1:] == [(second, PutStatus.FLUSH_DISK_TIMEOUT)]
    stepped.store.close()


def test_after_a_failed_sync_nothing_is_acknowledged_and_reads_go_on(tmp_path: Path) -> None:
    """Waiters, later acknowledgements and appends are refused with the cause; messages stay readable."""
    broken = False

    def hook(operation: str, path: str) -> None:
        if broken and operation == "sync" and "commitlog" in path:
            raise DiskError("sync failed", why="EIO")

    stepped, commit = sync_store(tmp_path, HookedFileSystem(hook))
    told: Told = []
    safe = stepped.append(b"safe")
    commit.step()
    lost = stepped.append(b"lost")
    acknowledge(stepped, lost, told)
    broken = True
    commit.step()
    assert told == [(lost, PutStatus.SERVICE_NOT_AVAILABLE)]
    broken = False
    commit.step()  # a later sync that succeeds proves nothing
    acknowledge(stepped, lost, told)
    assert told[-1] == (lost, PutStatus.SERVICE_NOT_AVAILABLE)
    acknowledge(stepped, safe, told)
    assert told[-1] == (safe, PutStatus.PUT_OK)
    refused = stepped.store.append(bodies(b"more"))
    assert (refused.status, refused.cause.value) == (PutStatus.SERVICE_NOT_AVAILABLE, "fenced")
    assert "EIO" in refused.error
    assert stepped.bodies() == [b"safe", b"lost"]
    assert stepped.store.flushed_offset == safe
    with pytest.raises(Exception, match="a sync failed"):
        stepped.store.close()
    assert (tmp_path / "abort").exists()


def test_a_callback_that_raises_does_not_disturb_the_others(tmp_path: Path) -> None:
    """The later ones get their answers as well."""
    stepped, commit = sync_store(tmp_path)
    told: Told = []
    first, second = stepped.append(b"1"), stepped.append(b"2")

    def broken(status: PutStatus) -> None:
        raise ValueError("a fault of the caller")

    stepped.store.acknowledge(first, True, broken)
    acknowledge(stepped, second, told)
    commit.step()
    commit.watch()
    assert told == [(second, PutStatus.PUT_OK)]
    stepped.store.close()


def test_deadlines_pass_while_a_sync_hangs(tmp_path: Path) -> None:
    """With real threads: the sync does not return, and the waiter gets its answer."""
    go, told = threading.Event(), threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and "/commitlog/0" in path and not path.endswith("allocating"):
            go.wait(60)

    config = store_config(tmp_path, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=20)
    log = CapturedLog()
    store = MessageStore(config, file_system=HookedFileSystem(hook), runner=ThreadRunner(), log=log)
    store.open()
    result = store.append(bodies(b"x"))
    answers: list[PutStatus] = []

    def done(status: PutStatus) -> None:
        answers.append(status)
        told.set()

    store.acknowledge(result.end_offset, True, done)
    assert told.wait(30)
    assert answers == [PutStatus.FLUSH_DISK_TIMEOUT]
    (timeout,) = log.of("flush_disk_timeout")
    assert timeout["text"] == "do groupcommit, wait for flush failed"
    go.set()
    store.close()
    assert answers == [PutStatus.FLUSH_DISK_TIMEOUT]


def lead(stepped: Stepped, end_offset: int, told: Told) -> None:
    def done(status: PutStatus) -> None:
        told.append((end_offset, status))

    if stepped.store.sync_here(end_offset, done):
        done(PutStatus.PUT_OK)


def test_a_thread_may_sync_for_itself_while_syncs_are_quick(tmp_path: Path) -> None:
    """Then it may answer when ``sync_here`` returns; after a slow sync the worker syncs."""
    slow_ms = 0

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and "commitlog" in path:
            stepped.clock.advance_ms(slow_ms)

    stepped, commit = sync_store(tmp_path, HookedFileSystem(hook))
    told: Told = []
    first = stepped.append(b"1")
    lead(stepped, first, told)
    assert told == [(first, PutStatus.PUT_OK)]
    assert stepped.store.flushed_offset == first
    second, slow_ms = stepped.append(b"2"), 1
    lead(stepped, second, told)
    third = stepped.append(b"3")
    lead(stepped, third, told)
    assert told == [(first, PutStatus.PUT_OK), (second, PutStatus.PUT_OK)]
    assert stepped.store.flushed_offset == second
    stepped.runner.run_until_idle()
    assert told[2:] == [(third, PutStatus.PUT_OK)]
    assert commit.served == 3
    stepped.store.close()


def test_a_failed_sync_of_a_sending_thread_fences_the_log(tmp_path: Path) -> None:
    """Nothing is acknowledged, and the next append is refused."""
    broken = False

    def hook(operation: str, path: str) -> None:
        if broken and operation == "sync" and "commitlog" in path:
            raise DiskError("sync failed", why="EIO")

    stepped, _ = sync_store(tmp_path, HookedFileSystem(hook))
    told: Told = []
    end, broken = stepped.append(b"lost"), True
    lead(stepped, end, told)
    assert told == [(end, PutStatus.SERVICE_NOT_AVAILABLE)]
    assert stepped.store.append(bodies(b"more")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert stepped.store.flushed_offset == 0


def test_while_a_sending_thread_hangs_in_a_sync_all_get_their_timeout(tmp_path: Path) -> None:
    """With real threads: the watcher answers the one that syncs and the one that came later, once each."""
    go, syncs = threading.Event(), threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and "/commitlog/0" in path and not path.endswith("allocating"):
            syncs.set()
            go.wait(60)

    config = store_config(tmp_path, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=20)
    store = MessageStore(config, file_system=HookedFileSystem(hook), runner=ThreadRunner())
    store.open()
    answers: list[PutStatus] = []
    both = threading.Semaphore(0)

    def done(status: PutStatus) -> None:
        answers.append(status)
        both.release()

    first = store.append(bodies(b"1")).end_offset
    leader = threading.Thread(target=store.sync_here, args=(first, done))
    leader.start()
    assert syncs.wait(30)
    assert not store.sync_here(store.append(bodies(b"2")).end_offset, done), "it does not wait for the sync"
    assert both.acquire(timeout=30)
    assert both.acquire(timeout=30)
    go.set()
    leader.join(30)
    store.close()
    assert answers == [PutStatus.FLUSH_DISK_TIMEOUT] * 2

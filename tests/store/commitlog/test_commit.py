"""Appends to write buffers: commit times, visibility, failed commits."""

import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pocketmq.common.errors import Cause
from pocketmq.common.runner import SteppedWorker
from pocketmq.store.append_result import PutStatus
from pocketmq.store.commitlog.commit import LAST_TRIES, PACE_MS, PACED_BYTES
from pocketmq.store.errors import DiskError, OffsetOutOfRange, StoreError, StoreFull
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import (
    HOST,
    SEGMENT_BYTES,
    HookedFileSystem,
    Stepped,
    bodies,
    crashed_copy,
    group_of,
    log_bytes,
    put,
    store_config,
)

OVERHEAD = 91 + len("T")


_KIND: dict[str, object] = {}


@pytest.fixture(autouse=True, params=["anonymous", "surviving"])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both kinds of buffers do the same while the process lives."""
    path = "anonymous" if request.param == "anonymous" else str(tmp_path_factory.mktemp("shm"))
    _KIND["transient_store_pool_path"] = path


def survives() -> bool:
    return _KIND["transient_store_pool_path"] != "anonymous"


def pooled(root: Path, files: HookedFileSystem | None = None, **changes: object) -> Stepped:
    return Stepped(root, files, **({"transient_store_pool_enable": True} | _KIND | changes))


def append(stepped: Stepped, *texts: bytes) -> int:
    result = stepped.store.append(bodies(*texts))
    assert result.status is PutStatus.PUT_OK, result.error
    return result.end_offset


def commit(stepped: Stepped) -> None:
    stepped.store.log.commit()
    stepped.dispatch()


def worker(stepped: Stepped, name: str) -> SteppedWorker:
    return next(worker for worker in stepped.runner.workers if worker.name == name)


def free(stepped: Stepped) -> int:
    assert stepped.store.pool is not None
    return stepped.store.pool.available


class Disk:
    """A disk whose writes to the log fail or wait on request."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self.files = HookedFileSystem(self.hook)

    def hook(self, operation: str, path: str) -> None:
        if self.error is not None and operation in ("write", "store") and "/commitlog/" in path:
            raise self.error

    def writes(self) -> int:
        return [operation for operation, path in self.files.operations if "/commitlog/" in path].count("write")


def test_what_is_not_committed_is_acknowledged_but_nobody_sees_it(tmp_path: Path) -> None:
    """No reader, queue, index, time search or file has it before the commit; all have it afterwards."""
    stepped = pooled(tmp_path)
    store = stepped.store
    told: list[PutStatus] = []
    result = store.append(group_of([put(b"hidden", key="k")]))
    store.acknowledge(result.end_offset, True, told.append)
    assert told == [PutStatus.PUT_OK]
    stepped.dispatch()
    assert (store.appended_offset, store.committed_offset, store.flushed_offset) == (result.end_offset, 0, 0)
    assert (store.dispatched_offset, store.max_offset("T", 0), store.queues()) == (0, 0, [])
    store.find_earliest()
    assert (store.read_record(0), store.earliest_store_time()) == (None, -1)
    with pytest.raises(OffsetOutOfRange):
        store.log.read(0, 1)
    assert list(store.log.walk(0, store.committed_offset)) == []
    assert not any(log_bytes(tmp_path)["0" * 20])
    assert store.log.flush() == 0
    assert store.log.commit() == result.end_offset
    stepped.dispatch()
    assert stepped.bodies() == [b"hidden"]
    assert store.read_record(0) is not None
    store.find_earliest()
    assert store.earliest_store_time() == result.store_timestamp
    assert store.log.flush() == result.end_offset
    store.close()


@pytest.mark.parametrize("asked", ["show_all", "query"])
def test_who_asks_for_the_end_after_a_receipt_is_shown_it(tmp_path: Path, asked: str) -> None:
    """Such a query commits first, in the calling thread."""
    stepped = pooled(tmp_path)
    assert stepped.store.append(group_of([put(b"x", key="k")])).status.is_stored
    if asked == "query":
        assert len(stepped.store.query("T", "k", 0, 1 << 60, 10)) == 1
    stepped.store.show_all()
    assert stepped.store.max_offset("T", 0) == 1
    stepped.store.close()


def test_consumers_are_woken_by_the_commit_not_by_the_append(tmp_path: Path) -> None:
    """A wake-up for unreadable messages would cause pulls in vain."""
    stepped = pooled(tmp_path)
    news: list[tuple[str, int, int]] = []
    stepped.store.on_dispatched.append(news.extend)
    stepped.runner.run_until_idle()
    append(stepped, b"1")
    assert not worker(stepped, "dispatch").woken
    stepped.store.dispatch()
    assert not worker(stepped, "dispatch").woken
    assert news == []
    stepped.runner.run_until_idle()
    assert news == [("T", 0, 1)]
    assert worker(stepped, "flush-commit-log").step() == 500
    stepped.store.close()


# ---- times of commits


def test_a_lone_append_is_committed_at_once_and_the_next_one_after_the_interval(tmp_path: Path) -> None:
    """Few pages wait for the thorough interval since the last commit; without work the service sleeps."""
    stepped = pooled(tmp_path, mapped_file_size_commit_log=1 << 20)
    store, service = stepped.store, worker(stepped, "commit-log")
    assert not service.woken
    append(stepped, b"1")
    assert service.woken
    service.woken = False
    assert service.step() is None
    assert store.committed_offset == store.appended_offset
    append(stepped, b"2")
    service.woken = False
    append(stepped, b"3")
    assert not service.woken
    assert service.step() == 200
    stepped.clock.advance_ms(150)
    assert service.step() == 50
    assert store.committed_offset < store.appended_offset
    stepped.clock.advance_ms(50)
    assert service.step() is None
    assert store.committed_offset == store.appended_offset
    store.close()


def test_an_awaited_append_is_committed_at_once_only_by_buffers_that_survive(tmp_path: Path) -> None:
    """RocketMQ's kind keeps its pace; the other one does while no consumer waits."""
    holds = SimpleNamespace(count=0)
    stepped = pooled(tmp_path)
    store, service = stepped.store, worker(stepped, "commit-log")
    store.serve_awaited(holds)
    append(stepped, b"1")
    service.step()
    append(stepped, b"2")
    assert service.step() == 200
    holds.count, service.woken = 1, False
    append(stepped, b"3")
    if _KIND["transient_store_pool_path"] == "anonymous":
        assert (service.woken, service.step()) == (False, 200)
    else:
        assert (service.woken, service.step()) == (True, None)
    assert (store.committed_offset == store.appended_offset) is service.woken
    store.close()


@pytest.mark.parametrize("wakes", [True, False])
def test_enough_pages_wake_the_service_if_told_so(tmp_path: Path, wakes: bool) -> None:
    """Four pages are committed without a wait for the interval; the setting decides whether an append wakes it."""
    stepped = pooled(tmp_path, mapped_file_size_commit_log=1 << 20, wake_commit_when_put_message=wakes)
    store, service = stepped.store, worker(stepped, "commit-log")
    append(stepped, b"1")
    service.step()
    append(stepped, b"2")
    service.step()
    service.woken = False
    append(stepped, bytes(3 * 4096))
    assert (service.woken, service.step()) == (False, 200)
    append(stepped, bytes(4096))
    assert service.woken is wakes
    stepped.clock.advance_ms(100)
    assert service.step() is None
    assert store.committed_offset == store.appended_offset
    store.close()


def test_what_a_pull_begins_to_wait_for_is_committed_soon(tmp_path: Path) -> None:
    """It was appended while nobody waited. RocketMQ's kind keeps its pace."""
    stepped = pooled(tmp_path)
    store, service = stepped.store, worker(stepped, "commit-log")
    append(stepped, b"1")
    service.step()
    service.woken = False
    store.show_soon()
    assert not service.woken, "all is committed"
    append(stepped, b"2")
    assert service.step() == 200
    service.woken = False
    store.show_soon()
    assert service.woken is survives()
    service.step()
    assert (store.committed_offset == store.appended_offset) is survives()
    store.close()


def test_buffers_that_survive_are_committed_at_a_pace(tmp_path: Path) -> None:
    """Where four pages come quickly again and again, the service looks by itself, and only much wakes it; once they
    come slowly, or a consumer waits, an append wakes it as before. RocketMQ's kind keeps its pace."""
    stepped = pooled(tmp_path, mapped_file_size_commit_log=8 << 20)
    store, service = stepped.store, worker(stepped, "commit-log")
    holds = SimpleNamespace(count=0)
    store.serve_awaited(holds)

    def four_pages() -> tuple[bool, float | None]:
        service.woken = False
        append(stepped, bytes(4 * 4096))
        return service.woken, service.step()

    assert four_pages() == (True, None)
    if not survives():
        assert four_pages() == (True, None)
        store.close()
        return
    assert four_pages() == (True, PACE_MS)
    assert store.committed_offset == store.appended_offset
    assert four_pages() == (False, PACE_MS)
    holds.count = 1
    assert four_pages() == (True, PACE_MS)
    holds.count, service.woken = 0, False
    append(stepped, bytes(PACED_BYTES))
    assert (service.woken, service.step()) == (True, PACE_MS)
    assert service.step() is None
    stepped.clock.advance_ms(100)
    assert four_pages() == (True, None)
    store.close()


def test_a_full_segment_is_committed_at_once_and_its_buffer_is_free_again(tmp_path: Path) -> None:
    """Any number of pages is committed. One buffer stays with the segment in use."""
    stepped = pooled(tmp_path, transient_store_pool_size=3)
    assert free(stepped) == 3
    append(stepped, bytes(5000))
    worker(stepped, "commit-log").step()
    assert free(stepped) == 2
    append(stepped, bytes(5000))
    append(stepped, bytes(100))
    assert free(stepped) == 1
    assert worker(stepped, "commit-log").step() is None
    assert free(stepped) == 2
    assert stepped.store.committed_offset == stepped.store.appended_offset
    stepped.dispatch()
    assert [len(body) for body in stepped.bodies()] == [5000, 5000, 100]
    stepped.store.close()


def test_a_real_service_commits_by_itself(tmp_path: Path) -> None:
    """With threads: appended messages become visible."""
    store = MessageStore(store_config(tmp_path, transient_store_pool_enable=True, **_KIND))
    store.store_host = HOST
    store.open()
    seen = threading.Event()

    def on_dispatched(updates: list[tuple[str, int, int]]) -> None:
        if updates[-1][2] == 40:
            seen.set()

    store.on_dispatched.append(on_dispatched)
    for number in range(40):
        assert store.append(bodies(b"%d" % number + bytes(700)), dispatch_later=True).status is PutStatus.PUT_OK
    assert seen.wait(30)
    store.close()


# ---- buffers and segments


def test_several_segments_behind_are_committed_in_order(tmp_path: Path) -> None:
    """One call writes all of them to the files, including groups across a roll-over and blank ends."""
    stepped = pooled(tmp_path)
    sent = [bytes([65 + number]) * 1500 for number in range(20)]
    for at in range(0, 20, 4):
        append(stepped, *sent[at : at + 4])
    assert len(log_bytes(tmp_path)) == 4
    assert free(stepped) == 1
    commit(stepped)
    assert free(stepped) == 4
    assert stepped.bodies() == sent
    stepped.store.close()
    again = pooled(tmp_path)
    assert (again.report.kind, again.bodies()) == ("clean", sent)
    again.store.close()


def test_a_buffer_that_is_used_again_never_shows_what_it_held(tmp_path: Path) -> None:
    """The blank end of a segment is zeros, whatever the buffer held before."""
    stepped = pooled(tmp_path, transient_store_pool_size=2)
    for number in range(8):
        append(stepped, bytes([200 + number]) * (SEGMENT_BYTES - OVERHEAD - 8))  # it fills a segment
        commit(stepped)
    append(stepped, bytes(10))
    start = stepped.store.appended_offset
    append(stepped, bytes(SEGMENT_BYTES - OVERHEAD - 8))
    commit(stepped)
    blank = log_bytes(tmp_path)[f"{start - start % SEGMENT_BYTES:020d}"][start % SEGMENT_BYTES :]
    assert int.from_bytes(blank[:4], "big") == len(blank)
    assert not any(blank[8:])
    stepped.store.close()


def test_with_no_buffer_left_a_segment_is_written_as_without_a_pool(tmp_path: Path) -> None:
    """It commits at once, but only after the bytes in buffers; the next segment gets a buffer again."""
    stepped = pooled(tmp_path, transient_store_pool_size=1)
    store = stepped.store
    append(stepped, bytes(5000))
    assert store.is_transient_store_pool_deficient()
    append(stepped, bytes(5000))
    append(stepped, b"second segment, in its file")
    assert store.committed_offset == 0
    commit(stepped)
    assert store.committed_offset == store.appended_offset
    assert not store.is_transient_store_pool_deficient()
    assert append(stepped, b"not buffered") == store.committed_offset
    append(stepped, bytes(5000))
    append(stepped, b"buffered")
    assert store.committed_offset < store.appended_offset
    commit(stepped)
    assert len(stepped.bodies()) == 6
    store.close()


@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_a_crash_leaves_no_hole_before_a_segment_without_a_buffer(tmp_path: Path, append_mode: str) -> None:
    """When a group crosses from a buffer into a file, the buffer's bytes are written first."""
    stepped = pooled(tmp_path / "0", transient_store_pool_size=1, append_mode=append_mode)
    append(stepped, bytes(2000))
    append(stepped, bytes(2000), bytes(1500), bytes(4000))
    assert (stepped.store.committed_offset, len(log_bytes(tmp_path / "0"))) == (0, 2)
    again = pooled(crashed_copy(tmp_path / "0", tmp_path / "1"))
    assert [len(body) for body in again.bodies()] == [2000, 2000, 1500, 4000]
    assert (again.report.damaged, again.report.cut_bytes) == ([], 0)
    again.store.close()
    stepped.store.close()


def test_a_roll_past_the_buffers_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Neither half of the group is there after a crash, and the next append takes its place."""
    disk = Disk()
    stepped = pooled(tmp_path / "0", disk.files, transient_store_pool_size=1)
    append(stepped, b"first" + bytes(4000))
    disk.error = StoreFull("no space")
    refused = stepped.store.append(bodies(bytes(3000), bytes(4000)))
    assert (refused.status, refused.cause) == (PutStatus.SERVICE_NOT_AVAILABLE, Cause.DISK_FULL)
    disk.error = None
    crashed = pooled(crashed_copy(tmp_path / "0", tmp_path / "1"))
    assert crashed.bodies() in ([], [b"first" + bytes(4000)])
    assert crashed.report.damaged == []
    crashed.store.close()
    append(stepped, bytes(2000), bytes(5000))
    commit(stepped)
    assert [len(body) for body in stepped.bodies()] == [4005, 2000, 5000]
    stepped.store.close()


def test_a_restart_goes_on_in_a_half_full_segment(tmp_path: Path) -> None:
    """RocketMQ's kind buffers only a new segment; the surviving kind takes the rest of a segment, too."""
    stepped = pooled(tmp_path)
    append(stepped, b"1")
    stepped.store.close()
    again = pooled(tmp_path)
    assert free(again) == (4 if survives() else 5)
    assert (append(again, b"2") == again.store.committed_offset) != survives()
    commit(again)
    assert again.bodies() == [b"1", b"2"]
    again.store.close()


def test_without_a_free_buffer_no_segment_is_made_if_told_so(tmp_path: Path) -> None:
    """The append is refused in RocketMQ's words, and succeeds once a buffer is free."""
    stepped = pooled(tmp_path, transient_store_pool_size=1, fast_fail_if_no_buffer_in_store_pool=True)
    append(stepped, bytes(5000))
    refused = stepped.store.append(bodies(bytes(5000)))
    assert (refused.status, refused.cause) == (PutStatus.CREATE_MAPEDFILE_FAILED, Cause.NO_WRITE_BUFFER)
    assert "[NOTIFYME]TransientStorePool is not enough, so create mapped file error" in refused.error
    assert len(log_bytes(tmp_path)) == 1
    small = append(stepped, b"still fits")
    commit(stepped)
    assert stepped.store.committed_offset == small
    refused = stepped.store.append(bodies(bytes(5000)))
    assert refused.status is PutStatus.CREATE_MAPEDFILE_FAILED
    stepped.store.close()


# ---- failures


@pytest.mark.parametrize("kind", [StoreFull, DiskError])
def test_a_failed_commit_shows_nothing_refuses_appends_and_is_tried_again(
    tmp_path: Path, kind: type[StoreError]
) -> None:
    """Acknowledged messages stay in their buffer and are committed when the disk works again."""
    disk = Disk()
    stepped = pooled(tmp_path, disk.files)
    service = worker(stepped, "commit-log")
    append(stepped, b"1")
    disk.error = kind("write failed")
    assert service.step() == 200
    assert (stepped.store.committed_offset, stepped.store.dispatched_offset) == (0, 0)
    refused = stepped.store.append(bodies(b"2"))
    assert (refused.status, refused.cause) == (PutStatus.SERVICE_NOT_AVAILABLE, kind.default_cause)
    assert "write buffers cannot be written" in refused.error
    stepped.store.show_all()
    assert stepped.store.max_offset("T", 0) == 0
    assert service.step() == 200
    disk.error = None
    assert service.step() is None
    append(stepped, b"3")
    commit(stepped)
    assert stepped.bodies() == [b"1", b"3"]
    stepped.store.close()


def test_a_segment_that_was_written_is_committed_though_the_next_one_failed(tmp_path: Path) -> None:
    """Every segment counts separately, and its followers are notified."""
    failing = False

    def hook(operation: str, path: str) -> None:
        if failing and operation == "write" and path.endswith(f"{SEGMENT_BYTES:020d}"):
            raise DiskError("EIO")

    stepped = pooled(tmp_path, HookedFileSystem(hook))
    append(stepped, bytes(5000))
    append(stepped, bytes(5000))
    failing = True
    stepped.runner.run_until_idle()
    with pytest.raises(DiskError):
        stepped.store.log.commit()
    stepped.runner.run_until_idle()
    assert stepped.store.committed_offset == SEGMENT_BYTES
    assert [len(body) for body in stepped.bodies()] == [5000]
    assert stepped.store.log.flush() == SEGMENT_BYTES
    failing = False
    commit(stepped)
    assert len(stepped.bodies()) == 2
    stepped.store.close()


def test_a_stop_tries_ten_times_and_then_is_no_clean_stop(tmp_path: Path) -> None:
    """If the disk recovers in time no message is lost; if not, it is reported and the next start recovers the rest."""
    disk = Disk()
    stepped = pooled(tmp_path, disk.files)
    append(stepped, b"1")
    commit(stepped)
    append(stepped, b"2")
    disk.files.operations.clear()
    disk.error = DiskError("EIO")
    with pytest.raises(DiskError):
        stepped.store.close()
    assert disk.writes() == LAST_TRIES
    name, key = ("write_buffers_left", "left_bytes") if survives() else ("write_buffers_lost", "lost_bytes")
    lost = [event for event in stepped.log.events if event["event"] == name]
    assert [event[key] for event in lost] == [OVERHEAD + 1]
    again = pooled(tmp_path)
    left = [b"1", b"2"] if survives() else [b"1"]
    assert (again.report.kind, again.bodies()) == ("unclean", left)
    assert append(again, b"3")
    commit(again)
    assert again.bodies() == [*left, b"3"]
    again.store.close()


def test_a_stop_commits_what_a_sick_disk_left(tmp_path: Path) -> None:
    """The ninth attempt works as well as the first."""
    failures = 9

    def hook(operation: str, path: str) -> None:
        nonlocal failures
        if operation == "write" and "/commitlog/" in path and failures:
            failures -= 1
            raise DiskError("EIO")

    stepped = pooled(tmp_path, HookedFileSystem(hook))
    append(stepped, b"1")
    stepped.store.close()
    again = pooled(tmp_path)
    assert (again.report.kind, again.bodies()) == ("clean", [b"1"])
    again.store.close()


def test_a_fenced_log_still_commits_what_it_acknowledged(tmp_path: Path) -> None:
    """A failed sync ends appends, but acknowledged messages still reach their readers."""
    syncs = True

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and "/commitlog/" in path and not syncs:
            raise DiskError("EIO")

    stepped = pooled(tmp_path, HookedFileSystem(hook))
    append(stepped, b"1")
    commit(stepped)
    append(stepped, b"2")
    syncs = False
    stepped.clock.advance_ms(20_000)
    worker(stepped, "flush-commit-log").step()
    assert stepped.store.log.fenced_by is not None
    assert stepped.store.append(bodies(b"3")).cause is Cause.FENCED
    worker(stepped, "commit-log").step()
    stepped.dispatch()
    assert stepped.bodies() == [b"1", b"2"]


# ---- together with the rest of the store


def test_checksums_are_written_with_the_commit(tmp_path: Path) -> None:
    """After the next start, an entry for bytes lost in a crash would cover other bytes."""
    stepped = pooled(tmp_path / "0")
    append(stepped, b"1")
    commit(stepped)
    append(stepped, b"22", b"22")
    stepped.write_checksums()
    files = list((tmp_path / "0").rglob("checksums/*"))
    assert [path.stat().st_size for path in files] == [20]
    again = pooled(crashed_copy(tmp_path / "0", tmp_path / "1"))
    assert (again.bodies(), again.report.suspect, again.report.cut_bytes) == ([b"1"], [], 0)
    append(again, b"another one")
    again.store.close()
    commit(stepped)
    stepped.write_checksums()
    assert [path.stat().st_size for path in files] == [40]
    stepped.store.close()


def test_a_checkpoint_speaks_of_committed_messages_only(tmp_path: Path) -> None:
    """After a crash uncommitted messages are gone and others get their offsets."""
    stepped = pooled(tmp_path / "0")
    append(stepped, b"1")
    commit(stepped)
    append(stepped, b"2")
    stepped.store.checkpoint()
    stepped.clock.advance_ms(10_000)
    append(stepped, b"3")
    stepped.store.checkpoint()
    again = pooled(crashed_copy(tmp_path / "0", tmp_path / "1"))
    assert again.bodies() == [b"1"]
    assert again.store.append(bodies(b"4")).first_queue_offsets == [1]
    again.store.close()
    last = pooled(tmp_path / "1")
    assert last.bodies() == [b"1", b"4"]
    last.store.close()
    stepped.store.close()


def test_a_deleted_topic_takes_its_uncommitted_messages_along(tmp_path: Path) -> None:
    """They are committed later, but enter no queue; messages sent after the deletion start at offset 0."""
    stepped = pooled(tmp_path / "0")
    append(stepped, b"1")
    commit(stepped)
    append(stepped, b"2")
    stepped.store.delete_topic("T")
    assert stepped.store.append(bodies(b"3")).first_queue_offsets == [0]
    crashed = pooled(crashed_copy(tmp_path / "0", tmp_path / "1"))
    assert crashed.bodies() == []
    append(crashed, b"4")
    commit(crashed)
    assert crashed.bodies() == [b"4"]
    crashed.store.close()
    commit(stepped)
    assert stepped.bodies() == [b"3"]
    stepped.store.close()
    again = pooled(tmp_path / "0")
    assert again.bodies() == [b"3"]
    again.store.close()


def test_a_commit_that_hangs_keeps_no_append_waiting(tmp_path: Path) -> None:
    """The disk's work happens outside the append lock."""
    hangs, go = threading.Event(), threading.Event()

    def hook(operation: str, path: str) -> None:
        if operation == "write" and "/commitlog/" in path:
            hangs.set()
            go.wait(30)

    stepped = pooled(tmp_path, HookedFileSystem(hook), mapped_file_size_commit_log=1 << 20)
    append(stepped, b"1")
    committing = threading.Thread(target=stepped.store.log.commit)
    committing.start()
    assert hangs.wait(30)
    for _ in range(50):
        append(stepped, bytes(1000))
    assert stepped.store.committed_offset == 0
    assert stepped.store.lock_time_mills() == 0
    go.set()
    committing.join(30)
    commit(stepped)
    assert len(stepped.bodies()) == 51
    stepped.store.close()


def test_a_shorter_interval_does_not_wait_for_the_end_of_the_old_one(tmp_path: Path) -> None:
    day_ms = 24 * 3_600_000
    stepped = pooled(tmp_path, commit_interval_commit_log=day_ms, commit_commit_log_thorough_interval=day_ms)
    worker = next(worker for worker in stepped.runner.workers if worker.name == "commit-log")
    append(stepped, b"first")
    worker.step()
    append(stepped, b"x")
    assert worker.step() == day_ms
    worker.woken = False
    config = msgspec.structs.replace(stepped.store.config, commit_commit_log_thorough_interval=7)
    stepped.store.components.settings_changed(config)
    assert worker.woken
    stepped.clock.advance_ms(7)
    assert worker.step() is None
    assert stepped.store.log.committed_offset == stepped.store.appended_offset
    stepped.store.close()

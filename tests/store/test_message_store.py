"""The store as a whole: model, threads, kill -9, refusals."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record_codec import decode_record
from pocketmq.store.append_result import PutStatus
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.get import GetMessageStatus
from pocketmq.store.errors import DiskError, StoreClosed, StoreError, StoreInUse
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import (
    HOST,
    HookedFileSystem,
    Stepped,
    bodies,
    crashed_copy,
    group_of,
    put,
    split,
    store_config,
)

STEPS = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(st.tuples(st.integers(0, 700), st.integers(0, 2)), min_size=1, max_size=12),
    ),
    st.tuples(
        st.sampled_from(["dispatch", "steps", "checksums", "flush", "checkpoint", "crash", "restart"]), st.none()
    ),
)


@given(st.lists(STEPS, max_size=14), st.sampled_from(["mapped", "written"]))
def test_whatever_happens_every_message_stays_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[tuple[int, int]] | None]], mode: str
) -> None:
    """Against a dict of lists: appends, rolls, flushes, crashes and restarts in any order lose and invent nothing."""
    base = tmp_path_factory.mktemp("model")
    stepped = Stepped(base / "0", append_mode=mode)
    model: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    crashes = number = 0
    for step, sizes in [*steps, ("crash", None), ("restart", None)]:
        store = stepped.store
        if step == "append":
            assert sizes is not None
            puts = []
            for size, queue_id in sizes:
                number += 1
                body = b"%d." % number + bytes(size)
                model[queue_id].append(body)
                puts.append(put(body, "T", queue_id))
            group = group_of(puts)
            if len(group.buffer) > store.group_bytes_max:
                for one in puts:
                    assert store.append(group_of([one])).status is PutStatus.PUT_OK
            else:
                assert store.append(group).status is PutStatus.PUT_OK
        elif step == "dispatch":
            stepped.dispatch()
        elif step == "steps":
            stepped.clock.advance_ms(1000)
            stepped.runner.run_until_idle()
        elif step == "checksums":
            stepped.write_checksums()
        elif step == "flush":
            store.log.flush()
        elif step == "checkpoint":
            store.checkpoint()
        elif step == "crash":
            crashes += 1
            copy = crashed_copy(stepped.root, base / str(crashes))
            store.components.lock = None
            stepped = Stepped(copy, append_mode=mode)
            assert stepped.report.cut_bytes == 0
            assert stepped.report.damaged == stepped.report.suspect == []
        else:
            stepped.dispatch()
            store.close()
            stepped = Stepped(stepped.root, append_mode=mode)
            assert stepped.report.kind in ("clean", "new")
    assert {queue_id: stepped.bodies("T", queue_id) for queue_id in model} == model
    stepped.store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flush_disk_type", "append_mode"),
    [("ASYNC_FLUSH", "mapped"), ("ASYNC_FLUSH", "written"), ("SYNC_FLUSH", "mapped")],
)
def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path, flush_disk_type: str, append_mode: str) -> None:
    """Killed twice at any point under load: all messages reported to the parent are there, in order, and no others."""
    source = Path(__file__).resolve().parents[2]
    environment = dict(os.environ, PYTHONPATH=f"{source / 'src'}{os.pathsep}{source}")
    acknowledged: dict[tuple[int, int], int] = {}
    for acks_wanted in (300, 500):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.kill_target", str(tmp_path), flush_disk_type, append_mode],
            stdout=subprocess.PIPE,
            env=environment,
            cwd=source,
        )
        assert process.stdout is not None
        heard = 0
        for line in process.stdout:
            words = line.split()
            if words[:1] == [b"ack"] and line.endswith(b"\n"):
                queue_id, first, count, number = map(int, words[1:])
                acknowledged.update(((queue_id, first + at), number) for at in range(count))
                heard += 1
                if heard == acks_wanted:
                    process.kill()
        process.wait()
        process.stdout.close()
        assert heard >= acks_wanted
    config = store_config(
        tmp_path,
        mapped_file_size_commit_log=1 << 18,
        mapped_file_size_consume_queue=20 * 1000,
        max_index_num=100_000,
        max_hash_slot_num=1000,
    )
    store = MessageStore(config)
    report = store.open()
    assert report.kind == "unclean"
    assert report.damaged == report.suspect == []
    assert not (tmp_path / "pocketmq" / "damage.json").exists()
    found: dict[tuple[int, int], int] = {}
    for queue_id in range(3):
        offset, last = 0, -1
        while offset < store.max_offset("T", queue_id):
            got = store.get("T", queue_id, offset, max_messages=200, max_bytes=1 << 20)
            for record in split(got.body, got.sizes):
                number = int(record.body.split()[0])
                assert record.body == b"%d " % number + bytes(number % 900)
                assert number % 3 == queue_id
                assert number >= last or record.queue_offset == 0
                assert record.queue_offset == offset
                found[queue_id, offset] = number
                offset += 1
            offset = max(offset, got.next_begin_offset)
    assert {key: found.get(key) for key in acknowledged} == acknowledged
    last_number = max(found.values())
    assert store.query("T", f"k{last_number}", 0, 1 << 60, 64)
    store.close()


def test_a_message_is_dispatched_read_and_found_by_its_key(tmp_path: Path) -> None:
    """With real workers: appended messages become visible, and callbacks run once per pass."""
    store = MessageStore(store_config(tmp_path))
    store.store_host = HOST
    assert store.open().kind == "new"
    seen = threading.Event()
    updates: list[tuple[str, int, int]] = []

    def on_dispatched(changed: list[tuple[str, int, int]]) -> None:
        updates.extend(changed)
        seen.set()

    store.on_dispatched.append(on_dispatched)
    result = store.append(group_of([put(b"hello", "T", 1, key="red green")]))
    assert seen.wait(60)
    assert updates == [("T", 1, 1)]
    got = store.get("T", 1, 0, max_messages=10, max_bytes=1000)
    assert (got.status, got.next_begin_offset) == (GetMessageStatus.FOUND, 1)
    assert [record.body for record in split(got.body, got.sizes)] == [b"hello"]
    found = store.query("T", "green", 0, 1 << 60, 10)
    assert [decode_record(record).body for record in found] == [b"hello"]
    assert store.query("T", "gree", 0, 1 << 60, 10) == []
    store.find_earliest()
    assert store.store_time("T", 1, 0) == result.store_timestamp == store.earliest_store_time()
    assert store.offset_by_time("T", 1, result.store_timestamp) == 0
    assert store.queues() == [("T", 1, 0, 1)]
    assert store.dispatched_offset == store.committed_offset == store.appended_offset == result.end_offset
    store.close()
    store.close()


def test_what_was_appended_is_shown_although_a_pass_that_does_not_see_it_is_under_way(tmp_path: Path) -> None:
    """The pass took its part of the log earlier: the call waits for it, and one more pass follows."""
    store = Stepped(tmp_path / "0").store
    dispatcher, tried = store.dispatcher, threading.Event()
    dispatch_here = dispatcher.dispatch_here

    def dispatch_and_tell() -> None:
        dispatch_here()
        tried.set()

    dispatcher.dispatch_here = dispatch_and_tell  # type: ignore[method-assign]
    with dispatcher.between_passes():
        assert store.append(bodies(b"x")).status is PutStatus.PUT_OK
        showing = threading.Thread(target=store.show_all)
        showing.start()
        assert tried.wait(60)
    showing.join(60)
    assert store.dispatched_offset == store.appended_offset


def test_a_second_store_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """The message names the directory and the process; the first store is not affected."""
    first = Stepped(tmp_path)
    with pytest.raises(StoreInUse, match="a second broker on the same store") as caught:
        Stepped(tmp_path)
    assert f"pid {os.getpid()}" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    first.append(b"x")
    first.store.close()
    again = Stepped(tmp_path)
    assert again.bodies() == [b"x"]
    again.store.close()


def test_a_closed_store_refuses_appends(tmp_path: Path) -> None:
    """SERVICE_NOT_AVAILABLE with the cause, before open and after close."""
    store = MessageStore(store_config(tmp_path))
    for _ in range(2):
        refused = store.append(bodies(b"x"))
        assert (refused.status, refused.cause.value) == (PutStatus.SERVICE_NOT_AVAILABLE, "shutting_down")
        store.open()
        store.close()
    with pytest.raises(StoreClosed):
        store.delete_topic("T")


def test_a_record_is_read_only_where_one_starts(tmp_path: Path) -> None:
    """Clients' message ids contain offsets: anything but a record's start gives None."""
    stepped = Stepped(tmp_path)
    end = stepped.append(b"one", b"two")
    size = end // 2
    record = stepped.store.read_record(size)
    assert record is not None
    assert decode_record(record).body == b"two"
    assert stepped.store.read_record(size, size) == record
    for offset, length in ((size, size - 1), (-1, 0), (1, 0), (size + 1, 0), (end, 0), (end - 5, 0), (1 << 62, 0)):
        assert stepped.store.read_record(offset, length) is None
    stepped.store.close()


def test_a_deleted_topic_starts_anew(tmp_path: Path) -> None:
    """Its queues count from 0 again, other queues continue."""
    stepped = Stepped(tmp_path)
    stepped.append(b"1", b"2", topic="T")
    stepped.append(b"3", topic="U")
    stepped.store.delete_topic("T")
    assert stepped.store.max_offset("T", 0) == 0
    assert stepped.store.append(bodies(b"4", topic="T")).first_queue_offsets == [0]
    assert stepped.store.append(bodies(b"5", topic="U")).first_queue_offsets == [1]
    stepped.dispatch()
    assert (stepped.bodies("T"), stepped.bodies("U")) == ([b"4"], [b"3", b"5"])
    stepped.store.close()


@pytest.mark.parametrize("positions", [True, False])
def test_messages_of_a_deleted_topic_never_come_back(tmp_path: Path, positions: bool) -> None:
    """After a crash the log is read again: messages from before the deletion must not replace newer ones."""
    stepped = Stepped(tmp_path / "0")
    stepped.append(b"1", b"2", topic="T")
    stepped.append(b"3", topic="U")
    stepped.store.delete_topic("T")
    stepped.append(b"4", topic="T")
    if positions:
        stepped.store.checkpoint()
    stepped.append(b"5", topic="T")
    again = Stepped(crashed_copy(tmp_path / "0", tmp_path / "1"))
    assert (again.bodies("T"), again.bodies("U")) == ([b"4", b"5"], [b"3"])
    again.append(b"6", topic="T")
    again.store.close()
    if not positions:
        (tmp_path / "1/pocketmq/positions.json").unlink()
        (tmp_path / "1/abort").touch()
    last = Stepped(tmp_path / "1")
    assert last.bodies("T") == [b"4", b"5", b"6"]
    last.store.close()
    stepped.store.close()


def test_a_message_not_yet_dispatched_goes_with_its_topic(tmp_path: Path) -> None:
    """It must not start the new queue at its old offset: later messages would count as known."""
    stepped = Stepped(tmp_path)
    stepped.append(b"1", topic="T")
    stepped.store.append(bodies(b"2", topic="T"), dispatch_later=True)
    stepped.store.delete_topic("T")
    assert stepped.store.append(bodies(b"3", topic="T"), dispatch_later=True).first_queue_offsets == [0]
    stepped.dispatch()
    assert stepped.bodies("T") == [b"3"]
    stepped.store.close()


def test_a_killed_deletion_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """The files of the queues may still be there when the list of deleted topics already names the topic."""
    stepped = Stepped(tmp_path / "0")
    stepped.append(b"1", b"2", topic="T")
    stepped.store.checkpoint()
    copy = crashed_copy(tmp_path / "0", tmp_path / "1")
    stepped.store.delete_topic("T")
    shutil.copy(tmp_path / "0/pocketmq/deleted_topics.json", copy / "pocketmq")
    again = Stepped(copy)
    assert again.store.queues() == []
    again.append(b"3", topic="T")
    assert again.bodies("T") == [b"3"]
    again.store.close()
    stepped.store.close()


def test_a_deletion_reaches_no_further_than_the_log(tmp_path: Path) -> None:
    """A power cut can remove the end of the log that the deletion saw; messages stored there later are not deleted."""
    stepped = Stepped(tmp_path / "0")
    stepped.append(b"1", topic="T")
    copy = crashed_copy(tmp_path / "0", tmp_path / "1")
    stepped.append(b"2", topic="T")
    stepped.store.delete_topic("T")
    shutil.copy(tmp_path / "0/pocketmq/deleted_topics.json", copy / "pocketmq")
    again = Stepped(copy)
    again.append(b"3", topic="T")
    assert again.bodies("T") == [b"3"]
    third = Stepped(crashed_copy(copy, tmp_path / "2"))
    assert third.bodies("T") == [b"3"]
    for each in (stepped, again, third):
        each.store.close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/T/1"])
def test_lost_consume_queues_are_built_again(tmp_path: Path, is_clean: bool, lost: str) -> None:
    """After a removal of their files every message is found again, and new ones get new offsets."""
    stepped = Stepped(tmp_path / "0")
    stepped.append(b"1", b"2", queue_id=0)
    stepped.append(b"3", queue_id=1)
    stepped.store.checkpoint()
    stepped.append(b"4", queue_id=1)
    if is_clean:
        stepped.store.close()
    copy = crashed_copy(tmp_path / "0", tmp_path / "1")
    shutil.rmtree(copy / lost)
    again = Stepped(copy)
    assert again.report.reason == "consume queues are incomplete"
    assert (again.bodies(queue_id=0), again.bodies(queue_id=1)) == ([b"1", b"2"], [b"3", b"4"])
    again.append(b"5", queue_id=1)
    again.store.close()
    last = Stepped(copy)
    assert last.report.kind == "clean"
    assert last.bodies(queue_id=1) == [b"3", b"4", b"5"]
    last.store.close()
    stepped.store.close()


def test_a_deleted_topic_does_not_make_its_store_incomplete(tmp_path: Path) -> None:
    """This holds even if no message was appended after the last clean stop."""
    stepped = Stepped(tmp_path)
    stepped.append(b"1", topic="T")
    stepped.store.close()
    again = Stepped(tmp_path)
    again.store.delete_topic("T")
    crashed = Stepped(crashed_copy(tmp_path, tmp_path.with_name("crashed")))
    assert crashed.report.reason == "no clean stop"
    crashed.store.close()
    again.store.close()
    last = Stepped(tmp_path)
    assert last.report.kind == "clean"
    assert last.store.queues() == []
    last.store.close()


def test_a_lost_end_of_the_log_is_reported(tmp_path: Path) -> None:
    """A removed last segment had acknowledged messages: the start reports the loss."""
    stepped = Stepped(tmp_path)
    for number in range(30):
        stepped.append(b"%d" % number + bytes(500))
    stepped.store.close()
    segments = sorted((tmp_path / "commitlog").iterdir())
    segments[-1].unlink()
    log = Mock()
    store = MessageStore(store_config(tmp_path), log=log)
    store.open()
    assert [call.args[0] for call in log.error.call_args_list] == ["log_end_lost"]
    store.close()


def test_without_a_sync_on_close_a_restart_is_clean(tmp_path: Path) -> None:
    """A store for a test's lifetime syncs no file at its stop, and a restart finds its messages."""
    files = HookedFileSystem()
    stepped = Stepped(tmp_path, files, sync_on_close=False)
    stepped.append(b"x")
    files.operations.clear()
    stepped.store.close()
    assert not [operation for operation, _ in files.operations if operation.startswith("sync")]
    again = Stepped(tmp_path, sync_on_close=False)
    assert (again.report.kind, again.bodies()) == ("clean", [b"x"])
    again.store.close()


def test_a_stop_that_cannot_write_is_no_clean_stop(tmp_path: Path) -> None:
    """The error is raised, the lock is free, and the next start recovers everything from the log."""
    broken = False

    def hook(operation: str, path: str) -> None:
        if broken and operation == "write" and "consumequeue" in path:
            raise DiskError("write failed")

    stepped = Stepped(tmp_path, HookedFileSystem(hook))
    stepped.append(b"x")
    broken = True
    with pytest.raises(DiskError):
        stepped.store.close()
    again = Stepped(tmp_path)
    assert (again.report.kind, again.bodies()) == ("unclean", [b"x"])
    again.store.close()


def test_a_stop_takes_every_step_whatever_one_raises(tmp_path: Path) -> None:
    """An unexpected error prevents neither the flush nor the lock's release; all are logged, the first is raised."""

    def hook(operation: str, path: str) -> None:
        if operation == "write" and ("consumequeue" in path or "index" in path):
            raise RuntimeError(f"no {path.split('/')[-1]}")

    stepped = Stepped(tmp_path, HookedFileSystem(hook))
    stepped.store.append(group_of([put(b"x", key="k")]))
    with pytest.raises(PocketMQError, match="index: RuntimeError") as caught:
        stepped.store.close()
    assert any("consume_queues failed as well" in note for note in caught.value.__notes__)
    told = [event["step"] for event in stepped.log.events if event["event"] == "store_close_failed"]
    assert told == ["index", "consume_queues"]
    assert stepped.store.flushed_offset == stepped.store.appended_offset
    again = Stepped(tmp_path)
    assert (again.report.kind, again.bodies()) == ("unclean", [b"x"])
    again.store.close()


@pytest.mark.parametrize(
    ("lost", "count"), [("checksums", 100), ("index", 100), ("pocketmq", 100), ("consumequeue", 60)]
)
def test_a_directory_removed_under_a_running_store(tmp_path: Path, lost: str, count: int) -> None:
    """Checkpoints and the stop go on, and a restart has every message."""
    stepped = Stepped(tmp_path)
    sent = [b"%03d" % number + bytes(200) for number in range(count)]
    for number, body in enumerate(sent):
        if number == 20:
            stepped.store.checkpoint()
            shutil.rmtree(tmp_path / lost)
        stepped.store.append(group_of([put(body, key=f"k{number}")]))
        stepped.dispatch()
        stepped.runner.run_until_idle()
    stepped.clock.advance_ms(10_000)
    stepped.runner.step_all()
    stepped.store.checkpoint()
    assert stepped.store.flushed_offset == stepped.store.appended_offset
    stepped.store.close()
    again = Stepped(tmp_path)
    assert again.bodies() == sent
    again.store.close()


def test_a_store_removed_as_a_whole_ends_with_an_error_of_the_store(tmp_path: Path) -> None:
    """No part of it is created again, and the lock is released."""
    stepped = Stepped(tmp_path / "store")
    stepped.append(b"x")
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreError):
        stepped.store.checkpoint()
    with pytest.raises(StoreError):
        stepped.store.close()
    assert stepped.store.components.lock is None


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The default, ~/store, is in the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    store = MessageStore(StoreConfig(), clock=SystemClock())
    assert store.paths.root == str(tmp_path / "store")


def test_what_its_sender_does_not_dispatch_is_dispatched_at_the_next_flush(tmp_path: Path) -> None:
    """A thread that promised to dispatch and waits for the disk keeps its messages invisible for half a second."""
    stepped = Stepped(tmp_path)
    stepped.runner.run_until_idle()
    assert stepped.store.append(bodies(b"x"), dispatch_later=True).status.is_stored
    stepped.runner.run_until_idle()
    assert stepped.bodies() == []
    stepped.clock.advance_ms(500)
    next(worker for worker in stepped.runner.workers if worker.name == "flush-commit-log").step()
    stepped.runner.run_until_idle()
    assert stepped.bodies() == [b"x"]
    stepped.store.close()


def test_a_key_is_found_right_after_its_receipt(tmp_path: Path) -> None:
    """A query does not wait for the turns of the dispatch worker and the index worker."""
    stepped = Stepped(tmp_path)
    assert stepped.store.append(group_of([put(key="order-7")]), dispatch_later=True).status.is_stored
    assert len(stepped.store.query("T", "order-7", 0, 1 << 60, 10)) == 1
    stepped.store.close()


def test_show_all_makes_visible_what_was_appended(tmp_path: Path) -> None:
    """A query for the end of a queue after a receipt returns an end above it."""
    stepped = Stepped(tmp_path)
    assert stepped.store.append(bodies(b"x"), dispatch_later=True).status.is_stored
    assert stepped.store.max_offset("T", 0) == 0
    stepped.store.show_all()
    assert stepped.store.max_offset("T", 0) == 1
    stepped.store.close()

"""Queues, index and gets over the real commit log: threads, restart, crash and rebuild."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import decode_record, encode_record
from pocketmq.common.record_group import RecordGroup, record_meta
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.consumequeue.get import GetMessageStatus
from pocketmq.store.message_store import MessageStore
from tests.store.queue_fakes import HOST, store_config, tags_code, tree

DERIVED = ("consumequeue", "index")


def group(number: int, count: int) -> RecordGroup:
    records, metas = [], []
    for at in range(count):
        properties = {"UNIQ_KEY": f"{number:030d}{at:02d}", "TAGS": "AB"[at % 2], "KEYS": f"n{number} all"}
        topic, queue_id = f"T{at // 3 % 2}", (number + at) % 3
        records.append(
            encode_record(
                topic,
                f"body {number} {at}".encode() * (number % 5 + 1),
                queue_id=queue_id,
                properties=encode_properties(properties),
                born_timestamp=1,
                born_host=HOST,
                store_host=HOST,
            )
        )
        metas.append(record_meta(topic, queue_id, 0, properties))
    return RecordGroup.from_records(records, metas)


def open_store(root: Path, clock: ManualClock, **settings: object) -> tuple[MessageStore, SteppedRunner]:
    runner = SteppedRunner()
    store = MessageStore(store_config(root, **settings), clock=clock, runner=runner)
    store.store_host = HOST
    store.open()
    return store, runner


def append(store: MessageStore, runner: SteppedRunner, clock: ManualClock, numbers: range, step_every: int = 1) -> None:
    for number in numbers:
        clock.advance_ms(7)
        result = store.append(group(number, number % 9 + 1))
        if result.status.name == "CREATE_MAPEDFILE_FAILED":
            raise AssertionError(result.error)
        if number % step_every == 0:
            runner.run_until_idle()


def derived(root: Path) -> dict[str, bytes]:
    return {f"{name}/{key}": data for name in DERIVED for key, data in tree(root / name).items()}


def test_what_was_sent_is_read_back_by_queue_tag_time_and_key(tmp_path: Path) -> None:
    """Every message of every queue is read once and in order; tags, keys and times find the right ones."""
    clock = ManualClock()
    store, runner = open_store(tmp_path, clock)
    append(store, runner, clock, range(300))
    runner.run_until_idle()
    seen = []
    for topic, queue_id, min_offset, max_offset in store.queues():
        assert min_offset == 0
        offset = 0
        while offset < max_offset:
            got = store.get(topic, queue_id, offset, max_messages=50, max_bytes=4000)
            assert got.status is GetMessageStatus.FOUND
            for record in split(got.body, got.sizes):
                message = decode_record(record)
                assert (message.topic, message.queue_id, message.queue_offset) == (topic, queue_id, offset)
                seen.append(message.body)
                offset += 1
            assert offset == got.next_begin_offset
    expected = sum(number % 9 + 1 for number in range(300))
    assert len(seen) == len(set(seen)) == expected
    got = store.get("T0", 1, 0, max_messages=20, max_bytes=1 << 20, tags_codes=frozenset([tags_code("B")]))
    assert {decode_record(record).property_map()["TAGS"] for record in split(got.body, got.sizes)} == {"B"}
    assert got.count == 20
    (record,) = store.query("T1", f"{161:030d}{5:02d}", 0, 1 << 60, 64)
    assert decode_record(record).body.startswith(b"body 161 5")
    assert len(store.query("T1", "n161", 0, 1 << 60, 64)) == 3  # of nine, three went to T1
    time = store.store_time("T0", 0, 17)
    offset = store.offset_by_time("T0", 0, time)
    assert store.store_time("T0", 0, offset) == time
    store.close()


def split(
    body: np.ndarray[tuple[int], np.dtype[np.uint8]], sizes: np.ndarray[tuple[int], np.dtype[np.uint32]]
) -> list[bytes]:
    ends = np.cumsum(sizes.astype(np.int64))
    return [body[end - size : end].tobytes() for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


@pytest.mark.parametrize("checkpoint_at", [None, 40, 100])
@pytest.mark.parametrize("lost", ["nothing", "queues", "index"])
def test_queues_and_index_are_rebuilt_to_the_byte(tmp_path: Path, checkpoint_at: int | None, lost: str) -> None:
    """A killed store, reopened, ends with the same consume queues and index as an undisturbed one."""
    clock = ManualClock()
    store, runner = open_store(tmp_path / "a", clock)
    append(store, runner, clock, range(160))
    store.close()

    clock = ManualClock()
    store, runner = open_store(tmp_path / "b", clock)
    for number in range(140):
        append(store, runner, clock, range(number, number + 1), step_every=3)
        if number == checkpoint_at:
            store.checkpoint()
        if number == 120:
            runner.step_all()
            store.consume_queues.flush()
            store.index.flush()
    shutil.copytree(tmp_path / "b", tmp_path / "c")  # the disk of a killed process
    (tmp_path / "c" / "lock").unlink()
    if lost == "queues":
        shutil.rmtree(tmp_path / "c" / "consumequeue")
        (tmp_path / "c" / "pocketmq" / "positions.json").unlink(missing_ok=True)
    elif lost == "index":
        shutil.rmtree(tmp_path / "c" / "index")
    again, runner = open_store(tmp_path / "c", clock)
    append(again, runner, clock, range(140, 160))
    again.close()
    assert derived(tmp_path / "c") == derived(tmp_path / "a")
    store.close()


def test_threads_dispatch_what_is_appended(tmp_path: Path) -> None:
    """With real workers all appended messages become visible, and a clean restart needs no rebuild."""
    store = MessageStore(store_config(tmp_path))
    store.store_host = HOST
    store.open()
    told: list[tuple[str, int, int]] = []
    store.on_dispatched.append(told.extend)
    for number in range(200):
        assert store.append(group(number, 3)).error == ""
    store.close()
    assert sum(end for _, _, _, end in store.queues()) == 600
    assert {(topic, queue_id): end for topic, queue_id, end in told} == {
        (topic, queue_id): end for topic, queue_id, _, end in store.queues()
    }
    before = derived(tmp_path)
    store = MessageStore(store_config(tmp_path))
    assert store.open().kind == "clean"
    assert store.dispatcher.feed_queue.reread_groups == 0
    assert len(store.query("T0", "all", 0, 1 << 60, 64)) == 64
    store.close()
    assert derived(tmp_path) == before

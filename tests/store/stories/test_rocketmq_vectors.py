"""Stores that RocketMQ 4.9.7 and 5.3.3 wrote, as recorded: read, verified, rebuilt, continued."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketmq.common.body_codec import decompress_body
from pocketmq.common.record import COMPRESSED_FLAG, KEYS, UNIQ_KEY
from pocketmq.common.record_codec import Record, decode_record
from pocketmq.common.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.store.consumequeue.consume_queue import ENTRY
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import bodies, store_config
from tests.store.rocketmq_vectors import FOLDERS, SIZES, STATES, Vector, index_contents, unpacked

BODY_BYTES_MAX = 1 << 20


@pytest.fixture(params=[(version, state) for version in FOLDERS for state in STATES], ids=lambda each: "-".join(each))
def vector(request: pytest.FixtureRequest, tmp_path: Path) -> Vector:
    """One recorded store, unpacked."""
    version, state = request.param
    return unpacked(version, state, tmp_path)


def opened(vector: Vector) -> MessageStore:
    return MessageStore(store_config(vector.directory, **SIZES))


def fields(record: Record) -> dict[str, Any]:
    """Return a record with the names of ``seen.json``."""
    body = record.body
    if record.sys_flag & COMPRESSED_FLAG:
        body = decompress_body(body, record.sys_flag, BODY_BYTES_MAX)
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "flag": record.flag,
        "sys_flag": record.sys_flag & ~COMPRESSED_FLAG,
        "born_timestamp": record.born_timestamp,
        "store_timestamp": record.store_timestamp,
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
        "body": body,
        "properties": record.property_map(),
    }


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_it_verifies_without_a_fault(vector: Vector) -> None:
    """Log, consume queues, tags and index agree, record by record and key by key; no file is written."""
    before = files_below(vector.directory)
    report = verify(StoreReader.open(str(vector.directory)), level="full")
    assert report.ok, report
    assert (report.written_by, report.is_open) == ("RocketMQ", vector.state == "killed")
    assert report.segments > 1
    assert report.queues is not None
    assert report.queues.good == report.queues.entries >= len(vector.seen)
    assert report.index is not None
    assert report.index.checked > len(vector.of("orders"))
    assert files_below(vector.directory) == before


def test_every_message_is_what_rocketmqs_consumer_saw(vector: Vector) -> None:
    """In our store each is at its place with all its fields; keys and unique ids lead to it."""
    store = opened(vector)
    store.open()
    try:
        for seen in vector.seen:
            [entry] = store.read_entries(seen["topic"], seen["queue_id"], seen["queue_offset"], 1).tolist()
            assert entry[:2] == (seen["physical_offset"], seen["size_bytes"])
            record = store.read_record(entry[0], entry[1])
            assert record is not None
            wanted = {**seen, "sys_flag": seen["sys_flag"] & ~COMPRESSED_FLAG}
            del wanted["size_bytes"]
            assert fields(decode_record(record)) == wanted
        for seen in vector.of("orders")[::7]:
            names = [seen["properties"][UNIQ_KEY], *seen["properties"].get(KEYS, "").split()[:2]]
            for name in names:
                found = [decode_record(each) for each in store.query("orders", name, 0, 1 << 60, 64)]
                assert seen["physical_offset"] in [each.physical_offset for each in found]
    finally:
        store.close()


def test_a_new_message_goes_behind_and_the_store_stays_sound(vector: Vector) -> None:
    """Queue offsets and the log continue where RocketMQ stopped; no byte is cut."""
    store = opened(vector)
    report = store.open()
    last = max(seen["queue_offset"] for seen in vector.of("orders") if seen["queue_id"] == 1)
    result = store.append(bodies(b"new", topic="orders", queue_id=1))
    store.show_all()
    assert result.status.is_stored
    assert report.cut_bytes == 0
    assert report.damaged == []
    assert store.max_offset("orders", 1) == last + 2
    store.close()
    after = verify(StoreReader.open(str(vector.directory)), level="full")
    assert after.ok, after


def test_rebuilt_queues_and_index_have_rocketmqs_bytes(vector: Vector) -> None:
    """Only an index file's name (RocketMQ: its creation) and the tags codes of 5.3's timers (ours: due time) differ."""
    theirs = files_below(vector.directory / "consumequeue")
    their_index = index_contents(vector.directory / "index")
    for name in ("consumequeue", "index"):
        shutil.rmtree(vector.directory / name)
    store = opened(vector)
    store.open()
    store.show_all()
    store.close()
    ours = files_below(vector.directory / "consumequeue")
    assert set(ours) == set(theirs)
    assert any(name.startswith(SCHEDULE_TOPIC) for name in ours)
    for name, content in theirs.items():
        if name.startswith(TIMER_TOPIC):
            mine, other = np.frombuffer(ours[name], ENTRY), np.frombuffer(content, ENTRY)
            assert mine[["offset", "size"]].tolist() == other[["offset", "size"]].tolist()
        else:
            assert ours[name] == content, name
    assert index_contents(vector.directory / "index") == their_index

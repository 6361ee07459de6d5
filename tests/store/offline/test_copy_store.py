"""A clean store made from the good records of another one."""

from pathlib import Path

import numpy as np
import pytest

from pocketmq.common.record_columns import received_messages, topic_ids
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import StoreFull
from pocketmq.store.offline.copy_store import StoreCopy
from pocketmq.store.offline.errors import RepairRefused
from pocketmq.store.offline.log_walk import Finding, LogChunk
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import Stepped
from tests.store.offline.rocketmq_files import ENTRIES, QUEUE_FILE_BYTES, SEGMENT_BYTES, SLOTS, some_messages, tree


def bodies_of(root: Path) -> list[tuple[str, int, int, bytes]]:
    found = []
    for chunk in StoreReader.open(str(root)).chunks():
        found += [
            (m.topic, m.queue_id, m.queue_offset, m.raw_body)
            for m in received_messages(chunk.columns.buffer, chunk.columns.sizes, "", check_crc=True)
        ]
    return found


def test_a_copy_holds_all_good_records_and_verifies(tmp_path: Path) -> None:
    """Damage is left out and reported, the rest is there with queues, index and settings; the source is unchanged."""
    store = some_messages(tmp_path / "s", 120)
    victim = store.sent[33]
    base = victim.physical_offset - victim.physical_offset % SEGMENT_BYTES
    store.log[base][victim.physical_offset - base + 5] ^= 1
    root = store.write()
    before = tree(root)
    findings: list[Finding] = []
    copy = StoreCopy(StoreReader.open(str(root)), str(tmp_path / "copy"), OsFileSystem(), on_finding=findings.append)
    copy.run()
    assert tree(root) == before
    assert [each.start for each in findings] == [victim.physical_offset]
    assert copy.records == 119
    kept = [(s.topic, s.queue_id, s.queue_offset, s.body) for s in store.sent if s is not victim]
    assert bodies_of(tmp_path / "copy") == kept
    report = verify(StoreReader.open(str(tmp_path / "copy")), level="full")
    assert report.ok, report
    assert (tmp_path / "copy" / "config" / "topics.json").exists()
    assert not (tmp_path / "copy" / "pocketmq").exists()


def test_a_copy_of_one_topic_opens_in_our_broker(tmp_path: Path) -> None:
    """Only the selected records are copied, with their queue offsets, and a broker serves them."""
    store = some_messages(tmp_path / "s", 120)
    reader = StoreReader.open(str(store.write()))

    def rows(chunk: LogChunk) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
        ids, names = topic_ids(chunk.columns.buffer, chunk.columns)
        return np.array([name == "Orders" for name in names], np.bool_)[ids]

    StoreCopy(reader, str(tmp_path / "copy"), OsFileSystem()).run(rows)
    kept = [s for s in store.sent if s.topic == "Orders"]
    assert [each[3] for each in bodies_of(tmp_path / "copy")] == [s.body for s in kept]
    opened = Stepped(
        tmp_path / "copy",
        mapped_file_size_commit_log=SEGMENT_BYTES,
        mapped_file_size_consume_queue=QUEUE_FILE_BYTES,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
    )
    for queue_id in (0, 1):
        assert opened.bodies("Orders", queue_id) == [s.body for s in kept if s.queue_id == queue_id]
    opened.store.close()


def test_a_copy_is_refused_before_it_begins(tmp_path: Path) -> None:
    """A target that is not empty and a full disk are reported, and no file is written."""
    reader = StoreReader.open(str(some_messages(tmp_path / "s", 20).write()))
    with pytest.raises(RepairRefused):
        StoreCopy(reader, str(tmp_path / "s"), OsFileSystem()).run()

    class Full(OsFileSystem):
        def free_bytes(self, path: str) -> tuple[int, int]:
            return 1000, 1 << 40

    with pytest.raises(StoreFull):
        StoreCopy(reader, str(tmp_path / "copy"), Full()).run()
    assert not (tmp_path / "copy").exists()

"""A directory that RocketMQ wrote, encoded in the test from the documented layout."""

from pathlib import Path

import pytest

from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record_columns import received_messages
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.reader import Finding, StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import store_config
from tests.store.offline.rocketmq_files import (
    ENTRIES,
    QUEUE_FILE_BYTES,
    SEGMENT_BYTES,
    SLOTS,
    RocketStore,
    some_messages,
    tree,
)


def read_all(reader: StoreReader) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    for chunk in reader.chunks():
        messages += received_messages(chunk.columns.buffer, chunk.columns.sizes, "", check_crc=True)
    return messages


def test_every_message_is_read_with_all_its_fields(tmp_path: Path) -> None:
    """Records of both formats and both address families come out as they were packed, even across blank ends."""
    store = some_messages(tmp_path)
    reader = StoreReader.open(str(store.write()))
    got = read_all(reader)
    assert len(reader.layout.segments) > 2
    assert [(m.topic, m.queue_id, m.queue_offset, m.physical_offset, m.raw_body, m.tags, m.keys) for m in got] == [
        (s.topic, s.queue_id, s.queue_offset, s.physical_offset, s.body, s.tags, s.keys) for s in store.sent
    ]
    assert [m.store_timestamp for m in got] == [s.stored_ms for s in store.sent]
    assert {m.store_host for m in got} == {"10.1.2.3:10911", "[1:203:405:607:809:a0b:c0d:e0f]:10911"}


@pytest.mark.parametrize("first_segment", [0, 3])
def test_a_sound_store_is_found_sound_and_stays_untouched(tmp_path: Path, first_segment: int) -> None:
    """Queues, index and checkpoint agree with the log, also when its first files are gone; no file changes."""
    store = some_messages(tmp_path / "s", first_segment=first_segment)
    root = store.write()
    before = tree(root)
    report = verify(StoreReader.open(str(root)), level="full")
    assert report.ok, report
    assert report.written_by == "RocketMQ"
    assert report.records == len(store.sent)
    assert report.group_verified_bytes == 0
    assert report.walked_bytes == sum(sent.size for sent in store.sent)
    assert {each.topic: each.records for each in report.topics} == {
        topic: sum(sent.topic == topic for sent in store.sent) for topic in {sent.topic for sent in store.sent}
    }
    assert report.queues is not None
    assert report.queues.good == report.queues.tags_checked == len(store.sent)
    assert report.index is not None
    assert (report.index.checked, report.index.files) == (75, 1)
    assert tree(root) == before


def test_the_queues_read_as_they_were_written(tmp_path: Path) -> None:
    """Bounds and entries of a queue that spans files equal the packed ones."""
    store = some_messages(tmp_path)
    reader = StoreReader.open(str(store.write()))
    mine = [sent for sent in store.sent if (sent.topic, sent.queue_id) == ("Orders", 1)]
    queue = reader.queue("Orders", 1)
    assert queue is not None
    assert queue.bounds() == (0, len(mine))
    assert queue.read(0, len(mine))["offset"].tolist() == [sent.physical_offset for sent in mine]
    assert reader.queue("Orders", 7) is None


def test_rocketmqs_fill_in_front_of_a_queue_is_no_entry(tmp_path: Path) -> None:
    """Blank entries that pad a queue's first file are counted as such and are no fault."""
    store = RocketStore(tmp_path)
    store.next["T", 0] = 3
    store.put("T", 0, b"x")
    root = store.write()
    path = root / "consumequeue/T/0" / f"{0:020d}"
    entry = path.read_bytes()[:20]
    blank = bytes(8) + (0x7FFF_FFFF).to_bytes(4, "big") + bytes(8)
    path.write_bytes((blank * 3 + entry).ljust(QUEUE_FILE_BYTES, b"\0"))
    report = verify(StoreReader.open(str(root)))
    assert report.queues is not None
    assert (report.queues.blank, report.queues.good, report.queues.problems) == (3, 1, [])


def test_our_own_store_and_rocketmqs_verify_alike_after_our_broker_has_opened_it(tmp_path: Path) -> None:
    """A store of RocketMQ that MessageStore opened and closed is still sound, now with our positions."""
    store = some_messages(tmp_path)
    root = store.write()
    config = store_config(
        root,
        mapped_file_size_commit_log=SEGMENT_BYTES,
        mapped_file_size_consume_queue=QUEUE_FILE_BYTES,
        max_hash_slot_num=SLOTS,
        max_index_num=ENTRIES,
    )
    opened = MessageStore(config)
    opened.open()
    opened.close()
    report = verify(StoreReader.open(str(root)), level="full")
    assert report.ok, report
    assert report.written_by == "PocketMQ"
    assert report.records == len(store.sent)


def test_damage_between_good_records_is_skipped_and_its_messages_named(tmp_path: Path) -> None:
    """One bad byte in a body costs that record only; the finding names its topic, queue and offset."""
    store = some_messages(tmp_path)
    victim = next(sent for sent in store.sent[40:] if sent.body)
    base = victim.physical_offset - victim.physical_offset % SEGMENT_BYTES
    store.log[base][victim.physical_offset - base + 115] ^= 1
    reader = StoreReader.open(str(store.write()))
    findings: list[Finding] = []
    got = [
        m.physical_offset
        for chunk in reader.chunks(on_finding=findings.append)
        for m in received_messages(chunk.columns.buffer, chunk.columns.sizes, "")
    ]
    assert got == [sent.physical_offset for sent in store.sent if sent is not victim]
    (finding,) = findings
    assert (finding.kind, finding.start, finding.end) == (
        "damage",
        victim.physical_offset,
        victim.physical_offset + victim.size,
    )
    report = verify(reader)
    assert not report.ok
    (affected,) = report.findings[0].affects
    assert (affected.topic, affected.queue_id, affected.first_offset, affected.messages) == (
        victim.topic,
        victim.queue_id,
        victim.queue_offset,
        1,
    )

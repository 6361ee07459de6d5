"""Reading a store that a broker is writing at the same time."""

import threading
from pathlib import Path

import pytest

from pocketmq.common.record_columns import received_messages
from pocketmq.store.append_result import PutStatus
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.reader import Finding, StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import HOST, group_of, put, store_config


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mapped", "written"])
def test_a_store_being_appended_to_has_no_damage_and_gives_each_message_in_order(tmp_path: Path, mode: str) -> None:
    """Verifications and reads beside a running writer find whole records only, never damage, and no gap in a queue."""
    config = store_config(
        tmp_path,
        append_mode=mode,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
        max_hash_slot_num=1000,
        max_index_num=4000,
        flush_interval_consume_queue=50,
    )
    store = MessageStore(config)
    store.store_host = HOST
    store.open()
    stop = threading.Event()
    pause = threading.Event()
    stored: list[int] = [0]

    def write() -> None:
        number = 0
        while not stop.is_set() and number < 30_000:
            puts = [put(b"%d." % (number + each) * (1 + (number + each) % 90), key=f"k{number}") for each in range(20)]
            assert store.append(group_of(puts)).status is PutStatus.PUT_OK
            number += 20
            stored[0] = number
            pause.wait(0.0005)

    def wait() -> None:
        pause.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rounds = 0
        while rounds < 6 or stored[0] < 2000:
            rounds += 1
            before = stored[0]
            reader = StoreReader.open(str(tmp_path), pause=wait)
            findings: list[Finding] = []
            numbers: list[int] = []
            for chunk in reader.chunks(on_finding=findings.append):
                messages = received_messages(chunk.columns.buffer, chunk.columns.sizes, "", check_crc=True)
                assert all(m.raw_body.startswith(b"%d." % m.queue_offset) for m in messages)
                numbers += [m.queue_offset for m in messages]
            assert [each for each in findings if each.kind != "tail"] == []
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= before
            report = verify(reader)
            assert report.ok, (report.queues, report.index, report.findings, report.problems, report.checkpoint)
            reader.close()
    finally:
        stop.set()
        writer.join()
        store.close()
    report = verify(StoreReader.open(str(tmp_path)), level="full")
    assert report.ok, report
    assert report.records == stored[0]

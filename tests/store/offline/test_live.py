"""Reading a store that a broker is writing at the same time."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.common.record_columns import received_messages
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.append_result import PutStatus
from pocketmq.store.disk.os_file_system import OsFile, OsFileSystem
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.index_check import IndexCheck
from pocketmq.store.offline.reader import Finding, StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import HOST, Stepped, group_of, put, store_config


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mapped", "written"])
def test_a_store_being_appended_to_has_no_damage_and_gives_each_message_in_order(tmp_path: Path, mode: str) -> None:
    """Verifications and reads beside a running writer find whole records only, no damage, and no gap in a queue."""
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
    began = threading.Event()
    stored: list[int] = [0]

    def write() -> None:
        number = 0
        while not stop.is_set() and number < 30_000:
            puts = [put(b"%d." % (number + each) * (1 + (number + each) % 90), key=f"k{number}") for each in range(20)]
            assert store.append(group_of(puts)).status is PutStatus.PUT_OK
            number += 20
            stored[0] = number
            began.set()
            pause.wait(0.0005)

    def wait() -> None:
        pause.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    began.wait()  # a store without a message has none to read
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


class Growing(OsFileSystem):
    """Calls ``grow`` at one of the times when a file is opened."""

    def __init__(self, path: str, grow: Callable[[], None], at: int) -> None:
        super().__init__()
        self._path = path
        self._grow = grow
        self._left = at
        self.is_armed = False

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        """Open a file, and grow the store at the chosen time."""
        if self.is_armed and path == self._path:
            self._left -= 1
            if self._left == 0:
                self._grow()
        return super().open(path, create=create, writable=writable)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_broker_that_goes_on_into_the_next_file_leaves_no_gap(tmp_path: Path, at: int) -> None:
    """A walk that found the end of the log in one file returns no record of the next one without those in between."""
    live = Stepped(tmp_path, mapped_file_size_commit_log=16_384, max_message_size=2000)
    live.append(*[b"x" * 1000] * 10)
    live.runner.step_all()
    segments = sorted((tmp_path / "commitlog").iterdir())
    assert len(segments) == 2  # the second one is prepared, and empty

    def grow() -> None:
        for _ in range(10):
            live.append(b"y" * 1000)

    files = Growing(str(segments[1]), grow, at)
    reader = StoreReader.open(str(tmp_path), file_system=files)
    files.is_armed = True
    findings: list[Finding] = []
    offsets = [
        message.queue_offset
        for chunk in reader.chunks(on_finding=findings.append)
        for message in received_messages(chunk.columns.buffer, chunk.columns.sizes, "")
    ]
    reader.close()
    live.store.close()
    assert [each for each in findings if each.kind != "tail"] == []
    assert offsets == list(range(len(offsets)))
    assert len(offsets) >= 10


def test_what_a_broker_stores_behind_the_known_files_is_no_finding(tmp_path: Path) -> None:
    """Entries of queues and index written after the names were read, also of records in new files, fit the log."""
    live = Stepped(tmp_path)

    def store_some(count: int) -> None:
        for _ in range(count):
            result = live.store.append(group_of([put(b"x" * 1000, key="key")]))
            assert result.status.is_stored
        live.dispatch()
        live.store.consume_queues.flush(force=True)
        assert live.store.query("T", "key", 0, 1 << 60, 1)  # the index has caught up
        live.store.index.flush()

    store_some(3)
    reader = StoreReader.open(str(tmp_path), index_numbers=(64, 512))
    report = verify(reader, level="full")
    assert (report.ok, report.records) == (True, 3)
    reader = StoreReader.open(str(tmp_path), index_numbers=(64, 512))
    store_some(30)
    live.store.checkpoint()
    report = verify(reader, level="full")
    assert report.ok, (report.queues, report.index, report.checkpoint)
    reader = StoreReader.open(str(tmp_path), index_numbers=(64, 512))
    index = IndexCheck(reader, is_sample=False)  # after it has read the headers
    store_some(30)
    for chunk in reader.chunks():
        index.see(RecordGroup.from_log(chunk.columns.buffer))
    found = index.finish(reader.layout.end_offset)
    assert (found.missing, found.wrong, found.unreachable) == (0, 0, 0)
    assert found.checked > 0
    live.store.close()


def test_a_checkpoint_while_a_live_store_is_verified_is_no_finding(tmp_path: Path) -> None:
    """Positions and checkpoint that a broker wrote after the walk promise only bytes outside the walk."""
    live = Stepped(tmp_path)
    live.append(b"one")
    live.store.checkpoint()
    reader = StoreReader.open(str(tmp_path), index_numbers=(64, 512))

    def after_the_walk(count: int) -> None:
        live.clock.advance_ms(5000)
        live.append(b"two" * 500)
        live.store.checkpoint()
        live.store.checkpoint()

    report = verify(reader, progress=after_the_walk)
    assert report.ok, (report.checkpoint, report.findings)
    live.store.close()

"""A slave's log is its master's, byte for byte, and ends between two records."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pocketmq.common.logs import CapturedLog
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import DiskError, StoreFull
from pocketmq.store.ha.raw_append import RawAppender
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from pocketmq.store.retention.retention import FIRST_ROUND_MS
from tests.store.log_fakes import (
    SEGMENT_BYTES,
    HookedFileSystem,
    Stepped,
    bodies,
    crashed_copy,
    group_of,
    put,
)


class OldFiles(HookedFileSystem):
    """A disk whose files all changed long ago."""

    def modified_ms(self, path: str) -> int:
        return 0


def fill(master: Stepped, groups: int, seed: int = 1) -> None:
    """Append groups of several queues, with keys, across several segments."""
    rng = random.Random(seed)
    for number in range(groups):
        records = [
            put(rng.randbytes(rng.randint(0, 400)), f"T{number % 2}", rng.randrange(2), key=f"k{number}-{at}")
            for at in range(rng.randint(1, 4))
        ]
        records.sort(key=lambda item: item[1].queue_id)
        master.store.append(group_of(records))
        master.clock.advance_ms(1)
    master.dispatch()


def stream(master: Stepped, at: int, piece_bytes: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the master's log from ``at`` as frames: pieces that cross no segment."""
    log = master.store.log
    while at < log.committed_offset:
        border = (at // SEGMENT_BYTES + 1) * SEGMENT_BYTES
        data = log.read(at, min(piece_bytes, border - at, log.committed_offset - at))
        yield at, data.data
        at += len(data)


def follow(slave: Stepped, master: Stepped, piece_bytes: int, appender: RawAppender | None = None) -> RawAppender:
    appender = RawAppender(slave.store, slave.log) if appender is None else appender
    for offset, body in stream(master, appender.expected_offset, piece_bytes):
        scratch = bytearray(body)
        appender.take(offset, memoryview(scratch))
        scratch[:] = bytes(len(scratch))  # the decoder's buffer is reused
        appender.dispatch()
    return appender


def pair(tmp_path: Path) -> tuple[Stepped, Stepped]:
    master = Stepped(tmp_path / "master")
    return master, Stepped(tmp_path / "slave", broker_role="SLAVE")


def files_of(root: Path, folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted((root / folder).rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 5000, 1 << 20])
def test_log_queues_and_index_are_those_of_the_master(tmp_path: Path, piece_bytes: int) -> None:
    """However the stream is cut, a closed slave has the same log, consume queues and index, bit for bit."""
    master, slave = pair(tmp_path)
    fill(master, 25)
    follow(slave, master, piece_bytes)
    slave.dispatch()
    assert slave.store.log.committed_offset == master.store.log.committed_offset
    assert slave.bodies("T0") == master.bodies("T0") != []
    for name in ("T0", "T1"):
        assert [record.body for record in slave.records(name, 1)] == [record.body for record in master.records(name, 1)]
    master.store.close()
    slave.store.close()
    for folder in ("commitlog", "consumequeue", "index"):
        assert files_of(slave.root, folder) == files_of(master.root, folder), folder
    assert len(files_of(slave.root, "commitlog")) > 2


def test_the_end_is_always_a_boundary(tmp_path: Path) -> None:
    """Half a record stays in memory, so readers, acknowledgements and a kill never see it."""
    master, slave = pair(tmp_path)
    ends = [master.append(bytes([65 + at]) * 300) for at in range(3)]
    appender = RawAppender(slave.store, slave.log)
    data = master.store.log.read(0, ends[-1])
    for at in range(len(data)):
        appender.take(at, data[at : at + 1].data)
        assert slave.store.log.committed_offset == max([0, *(end for end in ends if end <= at + 1)])
        assert appender.expected_offset == at + 1
    appender.dispatch()
    assert slave.bodies() == master.bodies()


def test_a_slave_killed_anywhere_recovers_to_a_prefix(tmp_path: Path) -> None:
    """``kill -9`` leaves a prefix of the master's log, and following continues from there to the same files."""
    master, slave = pair(tmp_path)
    fill(master, 15)
    whole = master.store.log.read(0, master.store.log.committed_offset)
    appender = RawAppender(slave.store, slave.log)
    for number, (offset, body) in enumerate(stream(master, 0, 1777)):
        appender.take(offset, body)
        appender.dispatch()
        again = Stepped(crashed_copy(slave.root, tmp_path / f"killed{number}"), broker_role="SLAVE")
        end = again.store.log.committed_offset
        assert end == slave.store.log.committed_offset
        assert not len(whole[:end]) or np.array_equal(again.store.log.read(0, end), whole[:end])
        follow(again, master, 4096)
        again.dispatch()
        assert again.bodies("T0") == master.bodies("T0")
        again.store.close()


def test_an_empty_slave_starts_at_the_oldest_segment(tmp_path: Path) -> None:
    """A log that begins behind offset 0 has queues that begin behind 0, verifies, and survives a restart."""
    master, slave = pair(tmp_path)
    fill(master, 40)
    master.store.checkpoint()
    first = 2 * SEGMENT_BYTES
    slave.store.start_at(first)
    assert slave.store.log.appended_offset == first
    appender = follow(slave, master, 3000)
    assert appender.expected_offset == slave.store.log.appended_offset
    slave.dispatch()
    log = slave.store.log
    assert log.min_offset == first
    for topic in ("T0", "T1"):
        oldest = [record.physical_offset for record in master.records(topic, 0)]
        skipped = sum(offset < first for offset in oldest)
        assert slave.store.min_offset(topic, 0) == skipped > 0
        assert slave.store.max_offset(topic, 0) == master.store.max_offset(topic, 0)
        assert slave.bodies(topic, 0) == master.bodies(topic, 0)[skipped:]
        found = slave.store.get(topic, 0, 0, max_messages=5, max_bytes=1 << 20)
        assert (found.status.value, found.next_begin_offset) == ("OFFSET_TOO_SMALL", skipped)
    slave.store.close()
    report = verify(StoreReader.open(str(slave.root), index_numbers=(64, 512)), level="full")
    assert (report.ok, report.start_offset, report.problems, report.findings) == (True, first, [], [])
    again = Stepped(slave.root, broker_role="SLAVE")
    assert again.store.min_offset("T0", 0) > 0
    assert again.store.log.committed_offset == master.store.log.committed_offset
    fill(master, 5, seed=2)
    follow(again, master, 100)
    again.dispatch()
    assert again.bodies("T1")[-1] == master.bodies("T1")[-1]


def test_start_at_leaves_no_gap_for_a_kill(tmp_path: Path) -> None:
    """The segment prepared at offset 0 is removed before the first one exists: otherwise the store would not open."""
    master, slave = pair(tmp_path)
    fill(master, 40)
    slave.runner.run_until_idle()
    assert [path.name for path in (slave.root / "commitlog").iterdir()] == ["0" * 20]
    slave.store.start_at(SEGMENT_BYTES)
    names = {path.name for path in (slave.root / "commitlog").iterdir()}
    assert "0" * 20 not in names
    slave.runner.run_until_idle()
    again = Stepped(crashed_copy(slave.root, tmp_path / "killed"), broker_role="SLAVE")
    assert again.store.log.min_offset == again.store.log.appended_offset == SEGMENT_BYTES


def test_what_a_sick_disk_refused_is_appended_later_and_nothing_twice(tmp_path: Path) -> None:
    """A write that fails leaves the log as it was; ``retry`` appends the same bytes when the disk works."""
    files = HookedFileSystem()
    master = Stepped(tmp_path / "master")
    slave = Stepped(tmp_path / "slave", files, broker_role="SLAVE")
    fill(master, 12)
    appender = RawAppender(slave.store, slave.log)
    pieces = list(stream(master, 0, 900))
    for offset, body in pieces[:3]:
        appender.take(offset, body)
    end = slave.store.log.committed_offset

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and "commitlog" in path:
            raise DiskError("refused", why="test")

    files.hook = refuse
    joined = b"".join(bytes(body) for _, body in pieces[3:6])
    with pytest.raises(DiskError):
        appender.take(pieces[3][0], memoryview(joined))
    assert slave.store.log.committed_offset == end
    with pytest.raises(DiskError):
        appender.retry()
    files.hook = None
    appender.retry()
    assert slave.store.log.committed_offset > end
    follow(slave, master, 900, appender)
    slave.dispatch()
    assert slave.bodies("T0") == master.bodies("T0")
    assert np.array_equal(
        slave.store.log.read(0, master.store.log.committed_offset),
        master.store.log.read(0, master.store.log.committed_offset),
    )


def test_a_store_that_takes_no_messages_takes_no_raw_bytes(tmp_path: Path) -> None:
    """A full disk (warning level) and a failed sync stop a slave's appends, too."""
    master, slave = pair(tmp_path)
    end = master.append(b"x")
    appender = RawAppender(slave.store, slave.log)
    slave.store.retention.flags.set_disk_full(True)
    with pytest.raises(StoreFull):
        appender.take(0, master.store.log.read(0, end).data)
    slave.store.retention.flags.set_disk_full(False)
    appender.retry()
    assert slave.store.log.committed_offset == end


def test_damage_that_the_master_kept_is_copied_and_skipped(tmp_path: Path) -> None:
    """Bytes that are no record keep their offsets on the slave; messages behind them are dispatched."""
    master, slave = pair(tmp_path)
    fill(master, 10)
    log = master.store.log
    whole = log.read(0, log.committed_offset).copy()
    starts = [record.physical_offset for record in master.records("T0", 0)]
    bad = starts[1]
    whole[bad : bad + 60] = 0xEE
    appender = RawAppender(slave.store, slave.log)
    for at in range(0, len(whole), 512):
        end = min(at + 512, len(whole))
        appender.take(at, whole[at:end].data)
        appender.dispatch()
    slave.dispatch()
    assert np.array_equal(slave.store.log.read(0, len(whole)), whole)
    [part] = slave.store.log.damaged
    assert part.start == bad
    assert len(slave.bodies("T0", 0)) == len(master.bodies("T0", 0)) - 1
    assert [event["event"] for event in slave.log.events if event["event"].startswith("slave_cop")] == [
        "slave_copies_damage",
        "slave_copied_damage",
    ]
    killed = crashed_copy(slave.root, tmp_path / "killed")
    again = Stepped(killed, broker_role="SLAVE")
    assert again.store.log.committed_offset == len(whole)
    assert [(found.start, found.end) for found in again.report.damaged] == [(part.start, part.end)]


def test_held_reads_learn_of_raw_messages(tmp_path: Path) -> None:
    """Dispatch on a slave wakes held pulls, as on a master."""
    master, slave = pair(tmp_path)
    told: list[tuple[str, int, int]] = []
    slave.store.on_dispatched.append(told.extend)
    end = master.append(b"a", b"b")
    appender = RawAppender(slave.store, CapturedLog())
    appender.take(0, master.store.log.read(0, end).data)
    appender.dispatch()
    assert told == [("T", 0, 2)]


def test_checksums_of_raw_groups_speed_up_a_recovery(tmp_path: Path) -> None:
    """Bytes from the master are verified by group after a kill, not record by record."""
    master, slave = pair(tmp_path)
    master.append(*[b"x" * 50] * 20)
    follow(slave, master, 1 << 20)
    slave.write_checksums()
    again = Stepped(crashed_copy(slave.root, tmp_path / "killed"), broker_role="SLAVE")
    assert again.report.group_verified_bytes == master.store.log.committed_offset
    assert again.report.walked_records == 0


def test_retention_of_a_slave_is_its_own(tmp_path: Path) -> None:
    """A slave removes its own old segments; its master keeps them."""
    master = Stepped(tmp_path / "master")
    slave = Stepped(tmp_path / "slave", OldFiles(), broker_role="SLAVE")
    fill(master, 40)
    follow(slave, master, 4096)
    slave.dispatch()
    slave.store.checkpoint()
    slave.clock.advance_ms(FIRST_ROUND_MS)
    slave.store.retention.delete_soon()
    for _ in range(5):
        slave.store.retention.step()
        slave.clock.advance_ms(10_000)
    assert slave.store.log.min_offset > 0
    assert master.store.log.min_offset == 0
    assert slave.store.min_offset("T0", 0) > 0


def test_a_group_larger_than_a_frame_waits_in_memory_once(tmp_path: Path) -> None:
    """A record's length is in its head; it bounds the memory for its parts."""
    master, slave = pair(tmp_path)
    end = master.append(b"y" * 4000)
    appender = RawAppender(slave.store, slave.log)
    data = master.store.log.read(0, end)
    appender.take(0, data[:3000].data)
    assert (appender.expected_offset, slave.store.log.appended_offset) == (3000, 0)
    appender.forget_waiting()
    appender.take(0, data.data)
    assert appender.expected_offset == slave.store.log.appended_offset == end
    assert slave.store.append(bodies(b"z")).status is PutStatus.SERVICE_NOT_AVAILABLE  # no bytes of its own

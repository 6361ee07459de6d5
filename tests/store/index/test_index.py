"""The key index: keys of columns, queries, rolling, overflow, restart and rebuild."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock
from pocketmq.common.hashes import java_string_hash
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.commitlog.group_feed import FEED_GROUPS_MAX, LogColumns
from pocketmq.store.disk.file_system import StoreFile
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import StoreFull
from pocketmq.store.index.index import KeyIndex
from pocketmq.store.index.index_keys import KeyHasher, index_hash
from tests.store.queue_fakes import MemoryLog, Put, store_config, tree, uniq_key

FOREVER = (0, 1 << 60)


class Fixture:
    """An index over a log in memory, driven by hand."""

    def __init__(
        self,
        root: Path,
        log: MemoryLog | None = None,
        *,
        groups_max: int | None = None,
        file_system: OsFileSystem | None = None,
        **settings: object,
    ) -> None:
        self.log = MemoryLog() if log is None else log
        self.clock = ManualClock()
        self.runner = SteppedRunner()
        groups_max = FEED_GROUPS_MAX if groups_max is None else groups_max
        disk = OsFileSystem() if file_system is None else file_system
        self.events = CapturedLog()
        self.index = KeyIndex(
            store_config(root, **settings),
            disk,
            self.clock,
            self.runner,
            self.log,
            groups_max=groups_max,
            log=self.events,
        )

    def open(self, resume: int | None = None, clean: bool = False) -> "Fixture":
        self.index.load(resume, clean=clean)
        self.index.announce(self.log.committed_offset)
        self.index.start()
        return self

    def put(self, *puts: Put) -> list[int]:
        self.log.now_ms += 700
        group = self.log.append(puts)
        self.index.put_group(group)
        assert group.physical_offsets is not None
        return [int(offset) for offset in group.physical_offsets]

    def wait(self) -> None:
        self.clock.advance_ms(100)
        self.runner.step_all()

    def find(self, key: str, topic: str = "TopicTest", max_num: int = 64) -> list[int]:
        return self.index.query(topic, key, *FOREVER, max_num).offsets


@given(
    puts=st.lists(
        st.builds(
            Put,
            topic=st.sampled_from(["A", "TopicTest", "%RETRY%g"]),
            keys=st.sampled_from(["", "k1", "k1 k2", " k ", "日本", "é " + "y" * 70, "a b c d"]),
            uniq_key=st.one_of(st.just(""), st.builds(uniq_key), st.sampled_from(["short", "ü" * 16, "F" * 56])),
            sys_flag=st.sampled_from([0, 0, 0, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK]),
            v6=st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    cut=st.integers(0, 12),
)
def test_keys_in_columns_are_those_of_the_messages(puts: list[Put], cut: int) -> None:
    """Each record gives its unique key, then its keys, hashed with the topic; rollbacks give none; log and append
    agree.
    """
    log = MemoryLog()
    groups = [log.append(part) for part in (puts[:cut], puts[cut:]) if part]
    expected = []
    offsets = np.concatenate([LogColumns(group).physical_offsets for group in groups]).tolist()
    for put, offset in zip(puts, offsets, strict=True):
        if put.sys_flag != TRANSACTION_ROLLBACK:
            keys = ([put.uniq_key] if put.uniq_key else []) + [key for key in put.keys.split(" ") if key]
            expected += [(index_hash(put.topic, key), offset, log.now_ms) for key in keys]
    for source in (groups, list(log.walk(0, log.committed_offset))):
        columns = KeyHasher().columns([LogColumns(group) for group in source])
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_the_hash_without_absolute_value_is_zero() -> None:
    """The absolute value |hashCode| of Integer.MIN_VALUE does not exist; RocketMQ uses 0."""
    topic, key = "TopicTest", "aXA4ptp"
    assert java_string_hash(f"{topic}#{key}") == -(1 << 31)
    assert index_hash(topic, key) == 0


def test_messages_are_found_by_key_and_unique_id(tmp_path: Path) -> None:
    """A query finds candidates newest first without a wait for the worker, limited in number and by topic."""
    fixture = Fixture(tmp_path).open()
    uniq = uniq_key()
    first = fixture.put(Put(keys="k1 k2", uniq_key=uniq), Put(keys="k2"))
    second = fixture.put(Put(keys="k2 k2"), Put(topic="Other", keys="k2"))
    assert fixture.find(uniq) == [first[0]]
    assert fixture.find("k1") == [first[0]]
    assert fixture.find("k2") == [second[0], first[1], first[0]]
    assert fixture.find("k2", max_num=2) == [second[0]]  # both slots went to the same message
    assert fixture.find("k2", "Other") == [second[1]]
    assert fixture.find("nothing") == []


def test_the_worker_waits_for_a_pass_worth_its_cost(tmp_path: Path) -> None:
    """A few keys wait 100 ms for others; then all are in the index, and the watermark shows it."""
    fixture = Fixture(tmp_path).open()
    fixture.put(Put(keys="k"))
    fixture.runner.run_until_idle()
    assert fixture.index.is_behind
    fixture.wait()
    assert not fixture.index.is_behind
    assert fixture.index.indexed_offset == fixture.log.committed_offset


def test_a_query_is_limited_in_time(tmp_path: Path) -> None:
    """Only messages stored between two times are found; entries know the second."""
    fixture = Fixture(tmp_path).open()
    times, offsets = [], []
    for _ in range(10):
        offsets += fixture.put(Put(keys="k"))
        times.append(fixture.log.now_ms)
    found = fixture.index.query("TopicTest", "k", times[3], times[6], 64).offsets
    assert set(offsets[3:7]) <= set(found)
    assert set(found) <= set(offsets[2:8])
    assert fixture.index.query("TopicTest", "k", times[9] + 5_000, times[9] + 9_000, 64).offsets == []


def test_a_full_file_rolls(tmp_path: Path) -> None:
    """Keys continue in the next file, even within a message, and queries search all files."""
    fixture = Fixture(tmp_path, max_index_num=10, max_hash_slot_num=5).open()
    offsets = []
    for _ in range(7):
        offsets += fixture.put(Put(keys="k a", uniq_key=uniq_key()))
    assert fixture.find("k") == offsets[::-1]
    assert fixture.find("a") == offsets[::-1]
    fixture.index.close()
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == 3
    assert all(len(name) == 17 and name.isdecimal() for name in names)


def test_without_the_index_there_are_no_files(tmp_path: Path) -> None:
    """With message_index_enable off no file is written, no key found; the watermark moves."""
    fixture = Fixture(tmp_path, message_index_enable=False).open()
    fixture.put(Put(keys="k"))
    assert fixture.find("k") == []
    assert fixture.index.indexed_offset == fixture.log.committed_offset
    fixture.index.close()
    assert not (tmp_path / "index").exists()


def fill(fixture: Fixture, groups: int) -> None:
    for number in range(groups):
        fixture.put(
            *(Put(keys=f"k{number % 3} n{number}", uniq_key=f"{number:031d}{at}", v6=at == 1) for at in range(3))
        )


@pytest.mark.parametrize("groups_max", [0, 1, 5, 4096])
def test_a_full_backlog_gives_the_same_files(tmp_path: Path, groups_max: int) -> None:
    """Groups without room in the backlog are read again from the log, and the files are equal to the byte."""
    plain = Fixture(tmp_path / "a", max_index_num=50).open()
    fill(plain, 30)
    plain.index.close()
    tight = Fixture(tmp_path / "b", max_index_num=50, groups_max=groups_max).open()
    fill(tight, 30)
    tight.index.close()
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


@pytest.mark.parametrize("flushed", [0, 7, 20])
@pytest.mark.parametrize("known", [True, False])
def test_a_crash_and_a_rebuild_give_the_same_files(tmp_path: Path, flushed: int, known: bool) -> None:
    """After a crash the index is cut back to what was durable and indexed again: byte by byte the undisturbed one."""
    undisturbed = Fixture(tmp_path / "a", max_index_num=70).open()
    fill(undisturbed, 25)
    undisturbed.index.close()
    crashed = Fixture(tmp_path / "b", max_index_num=70).open()
    resume = None
    for part in (flushed, 22 - flushed, 3):
        for _ in range(part):
            number = len(crashed.log.groups)
            crashed.put(
                *(Put(keys=f"k{number % 3} n{number}", uniq_key=f"{number:031d}{at}", v6=at == 1) for at in range(3))
            )
        crashed.find("k0")
        if part == flushed:
            resume = crashed.index.flush()
    for file in crashed.index._index_files[-1:]:
        file.write_entries()  # the process died after this, before slots and header
    again = Fixture(tmp_path / "b", crashed.log, max_index_num=70).open(resume if known else None)
    again.index.close()
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_clean_start_reads_nothing(tmp_path: Path) -> None:
    """After a clean stop the files are trusted: no record is read again, and old keys are found."""
    fixture = Fixture(tmp_path).open()
    fill(fixture, 5)
    fixture.index.close()
    before = fixture.log.reads
    again = Fixture(tmp_path, fixture.log).open(fixture.index.indexed_offset, clean=True)
    assert len(again.find("k1")) == 6
    assert again.log.reads == before
    offsets = again.put(Put(keys="k1"))
    assert again.find("k1")[0] == offsets[0]


def test_files_below_the_log_are_removed(tmp_path: Path) -> None:
    """Retention removes files whose keys all point below the log; queries omit removed messages."""
    fixture = Fixture(tmp_path, max_index_num=10).open()
    fill(fixture, 6)
    offsets = fixture.find("k0")
    fixture.log.min_offset = offsets[0]
    assert fixture.find("k0") == [offset for offset in offsets if offset >= offsets[0]]
    count = len(list((tmp_path / "index").iterdir()))
    assert 0 < len(fixture.index.delete_expired(fixture.log.min_offset)) < count
    assert fixture.find("k0") == [offset for offset in offsets if offset >= offsets[0]]


class FullFile:
    """A file on a disk that can be full."""

    def __init__(self, file: StoreFile, disk: "FullDisk") -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        if name == "write_at" and self._disk.is_full:
            raise StoreFull("write failed")
        return getattr(self._file, name)


class FullDisk(OsFileSystem):
    """Refuses writes while ``is_full``."""

    is_full = False

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> Any:
        return FullFile(super().open(path, create=create, writable=writable), self)


def test_a_disk_error_loses_no_key(tmp_path: Path) -> None:
    """A failed write is reported and repeated; each key is in the files once."""
    disk = FullDisk()
    fixture = Fixture(tmp_path, file_system=disk, max_index_num=10).open()
    fill(fixture, 2)
    fixture.wait()
    disk.is_full = True
    fill(fixture, 3)
    assert not fixture.index.query("TopicTest", "k0", *FOREVER, 64).complete
    fixture.wait()
    assert {event["event"] for event in fixture.events.events} == {"index_failed"}
    disk.is_full = False
    fixture.wait()
    assert len(fixture.find("k0")) == 6
    assert len(fixture.find("k1")) == 6
    fixture.index.close()
    undisturbed = Fixture(tmp_path / "b", max_index_num=10).open()
    fill(undisturbed, 2)
    fill(undisturbed, 3)
    undisturbed.index.close()
    assert tree(tmp_path / "index") == tree(tmp_path / "b" / "index")

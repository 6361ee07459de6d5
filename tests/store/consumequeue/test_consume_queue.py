"""One consume queue: puts, reads from memory and files, load, truncation, gaps and damage."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.store.consumequeue.consume_queue import (
    BLANK_SIZE,
    ENTRY,
    ENTRY_BYTES,
    TAIL_ENTRIES_KEPT,
    TAIL_ENTRIES_MIN,
    ConsumeQueue,
    CorruptQueue,
    TailMemory,
    blanks,
)
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.os_file_system import OsFileSystem

FILE_ENTRIES = 10
Row = tuple[int, int, int]


def new_queue(
    root: Path, file_entries: int = FILE_ENTRIES, files_max: int = 2, log: EventLog | None = None
) -> ConsumeQueue:
    files = FileCache(OsFileSystem(), files_max)
    return ConsumeQueue("T", 3, str(root / "T" / "3"), files, file_entries * 20, TailMemory(), log or NullLog())


def packed(rows: list[Row]) -> NDArray[np.uint8]:
    return np.array(rows, ENTRY).view(np.uint8).reshape(-1)


def rows_from(first: int, count: int) -> list[Row]:
    return [(100 * offset, 90, offset * 7 - 3) for offset in range(first, first + count)]


def read_rows(queue: ConsumeQueue, offset: int, count: int) -> list[Row]:
    return [tuple(entry) for entry in queue.read(offset, count).tolist()]


def test_an_entry_is_twenty_big_endian_bytes(tmp_path: Path) -> None:
    """The file holds offset, size and tags code as RocketMQ writes them."""
    queue = new_queue(tmp_path)
    queue.put(0, packed([(1 << 40, 77, -5)]))
    queue.write()
    data = (tmp_path / "T" / "3" / ("0" * 20)).read_bytes()
    assert data[:20] == struct.pack(">qiq", 1 << 40, 77, -5)
    assert data[20:] == bytes(FILE_ENTRIES * 20 - 20)


def test_a_small_tail_stays_for_the_next_entries(tmp_path: Path) -> None:
    """A queue that gets an entry now and then would make its tail anew after each write. A large one shrinks, and any
    goes where memory is short."""
    queue = new_queue(tmp_path)
    for offset, row in enumerate(rows_from(0, 3)):
        assert queue.put_one(offset, *row)
    memory = queue._memory.used_bytes
    queue.write()
    queue.trim(TAIL_ENTRIES_KEPT)
    assert queue._memory.used_bytes == memory == TAIL_ENTRIES_MIN * ENTRY_BYTES
    queue.put(3, packed(rows_from(3, 3 * TAIL_ENTRIES_MIN)))
    queue.write()
    queue.trim(10)
    assert queue._memory.used_bytes == 10 * ENTRY_BYTES
    end = 3 + 3 * TAIL_ENTRIES_MIN
    ((offset, size, code),) = rows_from(end, 1)
    assert queue.put_one(end, offset, size, code)
    assert read_rows(queue, 0, 1000) == rows_from(0, end + 1)
    queue.write()
    queue.trim()
    assert queue._memory.used_bytes == 0


def test_entries_are_read_from_memory_and_from_files(tmp_path: Path) -> None:
    """A read gives the same entries before a write, after it, after the tail's memory is released, and across both."""
    queue = new_queue(tmp_path)
    rows = rows_from(0, 25)
    queue.put(0, packed(rows))
    assert read_rows(queue, 0, 100) == rows
    queue.write()
    queue.trim()
    assert read_rows(queue, 3, 15) == rows[3:18]
    more = rows_from(25, 8)
    queue.put(25, packed(more))
    assert read_rows(queue, 20, 100) == (rows + more)[20:]
    assert read_rows(queue, 33, 5) == []
    assert sorted(path.name for path in (tmp_path / "T" / "3").iterdir()) == [f"{n * 200:020d}" for n in range(3)]


def test_putting_twice_changes_nothing(tmp_path: Path) -> None:
    """Entries below the end are skipped, and only the new part of an overlapping put is added."""
    queue = new_queue(tmp_path)
    rows = rows_from(0, 12)
    assert queue.put(0, packed(rows[:8])) == 8
    assert queue.put(0, packed(rows[:8])) == 0
    assert queue.put(4, packed(rows[4:])) == 4
    assert read_rows(queue, 0, 20) == rows


def test_a_queue_that_begins_late_is_padded_in_front(tmp_path: Path) -> None:
    """The first file of a queue whose first entry is not the file's first begins with RocketMQ's blanks; load skips
    them.
    """
    queue = new_queue(tmp_path)
    queue.put(23, packed(rows_from(23, 2)))
    assert (queue.min_offset, queue.max_offset) == (23, 25)
    queue.write()
    data = (tmp_path / "T" / "3" / f"{400:020d}").read_bytes()
    assert data[:60] == struct.pack(">qiq", 0, BLANK_SIZE, 0) * 3
    assert data[100:] == bytes(100)
    loaded = new_queue(tmp_path)
    loaded.load()
    assert (loaded.min_offset, loaded.max_offset) == (23, 25)
    assert read_rows(loaded, 23, 5) == rows_from(23, 2)


def test_a_gap_is_filled_with_blanks_and_logged(tmp_path: Path) -> None:
    """A put beyond the end of a queue in use leaves blanks, and an event names the missing offsets."""
    log = CapturedLog()
    queue = new_queue(tmp_path, log=log)
    queue.put(0, packed(rows_from(0, 2)))
    queue.put(5, packed(rows_from(5, 1)))
    assert [(event["event"], event["missing"]) for event in log.events] == [("consume_queue_gap", 3)]
    assert read_rows(queue, 0, 9) == rows_from(0, 2) + [(0, BLANK_SIZE, 0)] * 3 + rows_from(5, 1)


def test_a_gap_longer_than_a_file_restarts_the_queue(tmp_path: Path) -> None:
    """A wild queue offset costs no memory: the queue continues there, and an event reports the lost entries."""
    log = CapturedLog()
    queue = new_queue(tmp_path, log=log)
    queue.put(0, packed(rows_from(0, 2)))
    queue.put(1 << 40, packed([(5, 6, 7)]))
    assert [event["event"] for event in log.events] == ["consume_queue_restarted"]
    assert (queue.min_offset, queue.max_offset) == (1 << 40, (1 << 40) + 1)
    queue.write()
    queue.trim()
    assert read_rows(queue, 1 << 40, 5) == [(5, 6, 7)]


@pytest.mark.parametrize("count", [1, 9, 10, 11, 820, 821, 1024, 5000, 9999, 10000, 10001])
def test_load_finds_the_last_entry(tmp_path: Path, count: int) -> None:
    """The number of written entries is found at page and file borders, whatever search it takes."""
    queue = new_queue(tmp_path, 10_000)
    queue.put(0, packed(rows_from(0, count)))
    queue.write()
    loaded = new_queue(tmp_path, 10_000)
    loaded.load()
    assert (loaded.min_offset, loaded.max_offset) == (0, count)
    assert loaded.last_physical_end() == (count - 1) * 100 + 90


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 20, 33, 34, 35])
def test_truncation_leaves_what_a_shorter_run_would_have_written(tmp_path: Path, kept: int) -> None:
    """After a truncation the directory equals that of a queue that ended there, and the queue can continue."""
    queue = new_queue(tmp_path / "a")
    queue.put(0, packed(rows_from(0, 35)))
    queue.write()
    queue.truncate_to_physical(kept * 100)
    short = new_queue(tmp_path / "b")
    short.put(0, packed(rows_from(0, kept)))
    short.write()
    assert queue.max_offset == kept
    files_a = {path.name: path.read_bytes() for path in (tmp_path / "a").rglob("0*")}
    files_b = {path.name: path.read_bytes() for path in (tmp_path / "b").rglob("0*")}
    assert files_a == files_b
    queue.put(kept, packed(rows_from(kept, 3)))
    assert read_rows(queue, 0, 99) == rows_from(0, kept + 3)


def test_lost_pages_do_not_hide_behind_good_ones(tmp_path: Path) -> None:
    """Where the middle of a file was lost and its end was kept, a truncation to the safe point keeps the safe prefix
    only.
    """
    queue = new_queue(tmp_path, 10_000)
    queue.put(0, packed(rows_from(0, 9_000)))
    queue.write()
    path = tmp_path / "T" / "3" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[3_000 * 20 : 3_500 * 20] = bytes(500 * 20)
    path.write_bytes(bytes(data))
    loaded = new_queue(tmp_path, 10_000)
    loaded.load()
    loaded.truncate_to_physical(2_900 * 100)
    assert loaded.max_offset == 2_900
    assert path.read_bytes() == bytes(data[: 2_900 * 20]) + bytes(7_100 * 20)


def test_an_entry_out_of_order_ends_the_queue(tmp_path: Path) -> None:
    """Load keeps the entries before one that points backwards, and reports it."""
    queue = new_queue(tmp_path)
    rows = rows_from(0, 8)
    rows[7] = (50, 90, 0)
    queue.put(0, packed(rows))
    queue.write()
    log = CapturedLog()
    loaded = new_queue(tmp_path, log=log)
    loaded.load()
    assert loaded.max_offset == 7
    assert [event["event"] for event in log.events] == ["consume_queue_damaged"]


@pytest.mark.parametrize(("name", "size"), [("0" * 20, 60), ("x", 200), (f"{33:020d}", 200)])
def test_foreign_files_are_refused(tmp_path: Path, name: str, size: int) -> None:
    """A file of another size or kind of name stops the load with its path."""
    directory = tmp_path / "T" / "3"
    directory.mkdir(parents=True)
    (directory / name).write_bytes(bytes(size))
    with pytest.raises(CorruptQueue, match=name):
        new_queue(tmp_path).load()


def test_a_file_created_but_not_written_counts_as_absent(tmp_path: Path) -> None:
    """Files of size zero or full of zeros, left by a crash, neither end nor extend the queue."""
    queue = new_queue(tmp_path)
    queue.put(0, packed(rows_from(0, 10)))
    queue.write()
    (tmp_path / "T" / "3" / f"{200:020d}").write_bytes(bytes(200))
    (tmp_path / "T" / "3" / f"{400:020d}").write_bytes(b"")
    loaded = new_queue(tmp_path)
    loaded.load()
    assert loaded.max_offset == 10
    loaded.put(10, packed(rows_from(10, 15)))
    loaded.write()
    loaded.trim()
    assert read_rows(loaded, 0, 99) == rows_from(0, 25)


@pytest.mark.parametrize(("log_min", "expected"), [(0, 0), (1, 1), (100, 1), (1_000, 10), (2_350, 24), (99_999, 35)])
def test_the_min_offset_follows_the_log(tmp_path: Path, log_min: int, expected: int) -> None:
    """Entries without records are below the min offset; files wholly below it may be removed, the last one never."""
    queue = new_queue(tmp_path)
    queue.put(0, packed(rows_from(0, 35)))
    queue.write()
    queue.trim()
    queue.correct_min(log_min)
    assert queue.min_offset == expected
    assert len(queue.expired_files()) == min(3, expected // FILE_ENTRIES)


def test_blanks_in_the_middle_do_not_move_the_min_offset_too_far(tmp_path: Path) -> None:
    """A gap of blanks does not show which records the log holds."""
    queue = new_queue(tmp_path)
    queue.put(0, packed(rows_from(0, 2)))
    queue.put(8, packed(rows_from(8, 2)))
    queue.correct_min(100)
    assert queue.min_offset == 1


Step = tuple[str, int]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 23)),
            st.tuples(st.just("again"), st.integers(1, 9)),
            st.tuples(st.sampled_from(["write", "trim", "crash", "reload"]), st.just(0)),
            st.tuples(st.just("truncate"), st.integers(0, 80)),
        ),
        max_size=14,
    )
)
def test_a_queue_behaves_as_a_list(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    """Whatever is put, written, released, lost by a crash or cut off, the queue reads like a list."""
    root = tmp_path_factory.mktemp("queue")
    queue = new_queue(root)
    model: list[Row] = []
    written = 0
    for name, number in steps:
        if name == "put":
            rows = rows_from(len(model), number)
            queue.put(len(model), packed(rows))
            model += rows
        elif name == "again":
            first = max(0, len(model) - number)
            if first < len(model):
                assert queue.put(first, packed(model[first:])) == 0
        elif name == "write":
            queue.write()
            written = len(model)
        elif name == "trim":
            queue.trim()
        elif name == "truncate":
            queue.truncate_to_physical(number * 100)
            model = model[:number]
            written = len(model)
        else:
            if name == "reload":
                queue.write()
                written = len(model)
            del model[written:]
            queue = new_queue(root)
            queue.load()
        assert queue.max_offset == len(model)
        for offset, count in ((0, 200), (len(model) // 2, 3), (len(model), 1)):
            assert read_rows(queue, offset, count) == model[offset : offset + count]


def test_blanks_are_rocketmqs() -> None:
    """A padding entry is offset 0, size 2^31 - 1, tags code 0."""
    assert blanks(1).tobytes() == struct.pack(">qiq", 0, 0x7FFF_FFFF, 0)

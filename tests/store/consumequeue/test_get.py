"""The answers to a consumer, compared with a loop that goes entry by entry; and offsets by time."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import NullLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.consumequeue.consume_queue import ENTRY, ConsumeQueue, TailMemory
from pocketmq.store.consumequeue.get import GAP_BYTES_MAX, GetMessageStatus, get_message, read_records
from pocketmq.store.consumequeue.time_index import offset_by_time, store_time
from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.store.queue_fakes import MemoryLog, Put, tags_code

Row = tuple[int, int, int]


def queue_of(log: MemoryLog, queue_id: int = 0, root: str = "/nowhere") -> ConsumeQueue:
    """Return the queue with all its entries in memory."""
    queue = ConsumeQueue(
        "TopicTest",
        queue_id,
        root,
        FileCache(OsFileSystem()),
        300_000 * 20,
        TailMemory(),
        NullLog(),
    )
    for group in log.walk(0, log.committed_offset):
        columns = LogColumns(group)
        for section in columns.sections:
            if section.queue_id == queue_id:
                rows = slice(section.first, section.first + section.count)
                entries = np.empty(section.count, ENTRY)
                entries["offset"] = columns.physical_offsets[rows]
                entries["size"] = columns.sizes[rows]
                entries["tags_code"] = columns.tags_codes[rows]
                queue.put(int(columns.queue_offsets[section.first]), entries.view(np.uint8))
    return queue


def naive_get(
    queue: ConsumeQueue, log: MemoryLog, offset: int, max_messages: int, max_bytes: int, codes: frozenset[int] | None
) -> tuple[list[bytes], int]:
    """Return (records, next offset) by the rules, one entry after the other."""
    records: list[bytes] = []
    total = 0
    scan = max_messages if codes is None else max(800, max_messages)
    end = min(queue.max_offset, offset + scan)
    for at in range(offset, end):
        physical, size, code = queue.read(at, 1)[0].item()
        if (codes is not None and code not in codes) or physical < log.min_offset:
            continue
        if len(records) == max_messages or (records and total + size > max_bytes):
            return records, at
        records.append(bytes(log.data[physical : physical + size]))
        total += size
    return records, end


puts = st.lists(
    st.lists(
        st.builds(
            Put,
            queue_id=st.integers(0, 2),
            body=st.integers(0, 200).map(bytes),
            tags=st.sampled_from(["", "A", "B", "C"]),
            v6=st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=8,
)


@given(
    groups=puts,
    offset=st.integers(0, 30),
    max_messages=st.integers(1, 40),
    max_bytes=st.integers(1, 2_000),
    tags=st.sampled_from([None, ["A"], ["A", "B"], ["nothing"], [""]]),
    removed=st.integers(0, 3),
)
def test_a_get_is_what_a_loop_gives(
    groups: list[list[Put]], offset: int, max_messages: int, max_bytes: int, tags: list[str] | None, removed: int
) -> None:
    """Any interleaving of queues, any filter and any limits: the same records and the same next offset as one by
    one.
    """
    log = MemoryLog(segment_bytes=1024)
    for group in groups:
        log.append(group)
    queue = queue_of(log)
    log.min_offset = removed * 1024 if removed * 1024 < log.committed_offset else 0
    codes = None if tags is None else frozenset(map(tags_code, tags))
    got = get_message(queue, log, offset, max_messages=max_messages, max_bytes=max_bytes, tags_codes=codes)
    assert got.max_offset == queue.max_offset
    if offset >= queue.max_offset:
        assert got.status in (
            GetMessageStatus.NO_MESSAGE_IN_QUEUE,
            GetMessageStatus.OFFSET_OVERFLOW_ONE,
            GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        )
        return
    records, next_offset = naive_get(queue, log, offset, max_messages, max_bytes, codes)
    assert got.body.tobytes() == b"".join(records)
    assert got.sizes.tolist() == [len(record) for record in records]
    assert got.sizes.dtype == ">u4"
    assert got.next_begin_offset == next_offset
    assert (got.status is GetMessageStatus.FOUND) == bool(records)
    scanned = queue.read(offset, max_messages if codes is None else 800)
    wanted = np.ones(len(scanned), bool) if codes is None else np.isin(scanned["tags_code"], list(codes))
    was_removed = bool((scanned["offset"][wanted] < log.min_offset).any())
    assert got.min_offset == (queue.first_from(log.min_offset) if was_removed else 0)


def some_log(count: int = 10, queue_id: int = 0) -> MemoryLog:
    log = MemoryLog()
    for number in range(count):
        log.now_ms += 100
        log.append([Put(queue_id=queue_id, body=bytes([number]) * 30, tags="AB"[number % 2])])
    return log


@pytest.mark.parametrize(
    ("min_offset", "count", "offset", "status", "next_offset"),
    [
        (0, 0, 0, GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0),
        (0, 0, 7, GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0),
        (4, 10, 3, GetMessageStatus.OFFSET_TOO_SMALL, 4),
        (0, 10, 10, GetMessageStatus.OFFSET_OVERFLOW_ONE, 10),
        (0, 10, 12, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 10),
        (0, 10, 9, GetMessageStatus.FOUND, 10),
    ],
)
def test_statuses(min_offset: int, count: int, offset: int, status: GetMessageStatus, next_offset: int) -> None:
    """Offsets outside the queue get RocketMQ's status and next offset."""
    log = some_log(count)
    queue = queue_of(log)
    queue.min_offset = min_offset
    got = get_message(queue, log, offset, max_messages=32, max_bytes=1 << 20)
    assert (got.status, got.next_begin_offset, got.max_offset) == (status, next_offset, count)


def test_a_queue_that_does_not_exist() -> None:
    """No queue: NO_MATCHED_LOGIC_QUEUE, next offset 0."""
    got = get_message(None, MemoryLog(), 5, max_messages=1, max_bytes=1)
    assert (got.status, got.next_begin_offset) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_nothing_matched_moves_behind_what_was_scanned() -> None:
    """A filter without a match scans 800 entries, and the next offset is behind them."""
    log = MemoryLog(segment_bytes=1 << 20)
    log.append([Put(tags="A")] * 1000)
    queue = queue_of(log)
    got = get_message(queue, log, 50, max_messages=1, max_bytes=9, tags_codes=frozenset([5]))
    assert (got.status, got.next_begin_offset, got.count) == (GetMessageStatus.NO_MATCHED_MESSAGE, 850, 0)


def test_removed_records_are_passed() -> None:
    """If the log has lost all requested records, the status reports it and the next offset leads on."""
    log = some_log(10)
    queue = queue_of(log)
    log.min_offset = int(queue.read(6, 1)["offset"][0])
    got = get_message(queue, log, 1, max_messages=3, max_bytes=1 << 20)
    assert (got.status, got.next_begin_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 4)
    got = get_message(queue, log, 4, max_messages=3, max_bytes=1 << 20)
    assert (got.status, got.next_begin_offset, got.count) == (GetMessageStatus.FOUND, 7, 1)


def test_records_removed_during_the_read_are_passed() -> None:
    """If retention takes the segment between check and read, the answer is the same, not an error."""
    log = some_log(10)
    queue = queue_of(log)
    read_into = log.read_into

    def remove_first(offset: int, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        log.min_offset = max(log.min_offset, int(queue.read(2, 1)["offset"][0]))
        read_into(offset, out)

    log.read_into = remove_first  # type: ignore[method-assign]
    got = get_message(queue, log, 0, max_messages=5, max_bytes=1 << 20)
    assert (got.status, got.count, got.next_begin_offset) == (GetMessageStatus.FOUND, 3, 5)


def test_records_that_are_there_are_never_passed() -> None:
    """This holds however often retention takes a segment between check and read."""
    log = some_log(10)
    queue = queue_of(log)
    read_into = log.read_into

    def remove_one(offset: int, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        log.min_offset = int(queue.read(min(log.reads + 1, 4), 1)["offset"][0])
        read_into(offset, out)

    log.read_into = remove_one  # type: ignore[method-assign]
    got = get_message(queue, log, 0, max_messages=6, max_bytes=1 << 20)
    assert (got.status, got.count, got.next_begin_offset, got.min_offset) == (GetMessageStatus.FOUND, 2, 6, 4)


def test_a_min_offset_that_rises_during_a_get_leads_to_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not skip to the next file, over existing messages."""
    log = some_log(10)
    queue = queue_of(log)
    read = ConsumeQueue.read

    def raise_min(self: ConsumeQueue, offset: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        self.min_offset = 4
        return read(self, offset, count)

    monkeypatch.setattr(ConsumeQueue, "read", raise_min)
    got = get_message(queue, log, 2, max_messages=5, max_bytes=1 << 20)
    assert (got.status, got.next_begin_offset, got.min_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, 4, 4)


def test_a_missing_file_leads_to_the_next(tmp_path: Path) -> None:
    """Unreadable entries: OFFSET_FOUND_NULL and the first offset of the next file."""
    queue = queue_of(some_log(10), root=str(tmp_path))
    queue.write()
    queue.trim()
    (tmp_path / ("0" * 20)).unlink()
    queue._files.close()
    got = get_message(queue, some_log(10), 3, max_messages=5, max_bytes=1 << 20)
    assert (got.status, got.next_begin_offset) == (GetMessageStatus.OFFSET_FOUND_NULL, 300_000)


def test_a_record_of_another_size_is_refused() -> None:
    """An entry that does not fit its record is an error with the offset, not a broken answer."""
    log = some_log(10)
    queue = queue_of(log)
    at = int(queue.read(4, 1)["offset"][0])
    log.data[at + 3] ^= 1
    with pytest.raises(CorruptRecord, match=str(at)):
        get_message(queue, log, 4, max_messages=5, max_bytes=1 << 20)


def test_good_records_before_a_wrong_one_are_given() -> None:
    """A get ends before a bad record and returns the good ones, with and without a filter."""
    log = some_log(10)
    queue = queue_of(log)
    codes = frozenset(queue.read(0, 10)["tags_code"].tolist())
    log.data[int(queue.read(4, 1)["offset"][0]) + 3] ^= 1
    for wanted in (None, codes):
        got = get_message(queue, log, 2, max_messages=5, max_bytes=1 << 20, tags_codes=wanted)
        assert (got.status, got.count, got.next_begin_offset) == (GetMessageStatus.FOUND, 2, 4)
        assert len(got.body) == int(got.sizes.sum())
    assert get_message(queue, log, 5, max_messages=5, max_bytes=1 << 20).count == 5


def test_blanks_of_a_gap_are_passed() -> None:
    """Padding entries in the middle of a queue are no messages."""
    log = some_log(4)
    queue = queue_of(log)
    queue.put(7, queue.read(1, 1).view(np.uint8).copy())
    got = get_message(queue, log, 3, max_messages=9, max_bytes=1 << 20)
    assert (got.status, got.count, got.next_begin_offset) == (GetMessageStatus.FOUND, 2, 8)


@given(
    parts=st.lists(
        st.tuples(st.integers(8, 300), st.sampled_from([0, 0, 1, 50, GAP_BYTES_MAX, GAP_BYTES_MAX + 1])), min_size=1
    ),
    equal=st.booleans(),
)
def test_any_gaps_give_the_same_bytes(parts: list[tuple[int, int]], equal: bool) -> None:
    """Adjacent, near and distant records are returned back to back."""
    log = MemoryLog()
    offsets, sizes = [], []
    for number, (size, gap) in enumerate(parts):
        size = 64 if equal else size
        offsets.append(len(log.data))
        sizes.append(size)
        log.data += size.to_bytes(4, "big") + bytes([number % 251]) * (size - 4) + b"\xff" * gap
    log.committed_offset = len(log.data)
    body = read_records(log, np.array(offsets), np.array(sizes))
    expected = b"".join(bytes(log.data[at : at + size]) for at, size in zip(offsets, sizes, strict=True))
    assert body.tobytes() == expected
    assert log.reads <= 1 + sum(gap > GAP_BYTES_MAX for _, gap in parts)


def test_a_body_belongs_to_its_reader() -> None:
    """The returned bytes are private and whole: records can be parsed, and a write into them has no other effect."""
    log = some_log(10)
    queue = queue_of(log)
    got = get_message(queue, log, 0, max_messages=10, max_bytes=1 << 20)
    assert RecordGroup.from_log(got.body.copy()).queue_offsets is not None
    got.body[:] = 0
    assert get_message(queue, log, 0, max_messages=10, max_bytes=1 << 20).body.any()


@given(steps=st.lists(st.integers(0, 4), min_size=1, max_size=20), ask=st.integers(-10, 90), gone=st.integers(0, 20))
def test_an_offset_by_time_is_the_nearest(steps: list[int], ask: int, gone: int) -> None:
    """The first message of exactly that time, else the nearer neighbour, the earlier one if both are equally near."""
    log = MemoryLog(segment_bytes=1 << 20)
    base = log.now_ms
    for number, step in enumerate(steps):
        log.now_ms += step * 3
        log.append([Put(v6=number % 2 == 1)])
    queue = queue_of(log)
    first_left = min(gone, len(steps) - 1)
    log.min_offset = int(queue.read(first_left, 1)["offset"][0])
    times = [store_time(queue, log, offset) for offset in range(len(steps))]
    assert times[:first_left] == [-1] * first_left
    known = {offset: time for offset, time in enumerate(times) if time >= 0}
    wanted = base + ask
    nearest = min(abs(time - wanted) for time in known.values())
    earlier = [offset for offset, time in known.items() if wanted - time == nearest]
    later = [offset for offset, time in known.items() if time - wanted == nearest]
    expected = min(later) if nearest == 0 else max(earlier) if earlier else min(later)
    assert offset_by_time(queue, log, wanted) == expected


def test_offsets_by_time_of_empty_queues() -> None:
    """No queue gives 0; an empty queue gives its min offset."""
    log = MemoryLog()
    assert offset_by_time(None, log, 5) == 0
    queue = queue_of(log)
    assert offset_by_time(queue, log, 5) == 0
    queue.min_offset = queue.max_offset = 9
    assert offset_by_time(queue, log, 5) == 9


@pytest.mark.parametrize(("spare", "count"), [(-1, 3), (0, 4), (1, 4)])
def test_the_byte_limit_is_exact(spare: int, count: int) -> None:
    """A record that fills the limit to the byte is returned; with one byte less it is not."""
    log = some_log(8)
    queue = queue_of(log)
    size = int(queue.read(0, 1)["size"][0])
    assert get_message(queue, log, 0, max_messages=32, max_bytes=4 * size + spare).count == count


@pytest.mark.parametrize(("ask", "offset"), [(-50, 0), (0, 0), (49, 0), (50, 0), (51, 1), (100, 1), (1_000, 2)])
def test_a_time_between_two_messages_gives_the_nearer_one(ask: int, offset: int) -> None:
    """Halfway between two messages the earlier one is taken; a time behind the last gives the last."""
    log = some_log(3)
    first = log.now_ms - 200
    assert offset_by_time(queue_of(log), log, first + ask) == offset

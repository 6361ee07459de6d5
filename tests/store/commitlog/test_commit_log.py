"""Appends: offsets, times, roll-over, failures; both modes; watermarks."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.record import BLANK_BYTES_MIN, MAGIC_BLANK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.runner import ThreadRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import DiskError, GroupTooLarge, OffsetOutOfRange, StoreFenced, StoreFull
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import (
    HOST,
    SEGMENT_BYTES,
    HookedFileSystem,
    Stepped,
    bodies,
    crashed_copy,
    group_of,
    log_bytes,
    put,
    store_config,
)

OVERHEAD = 91 + len("T")


def test_a_record_gets_offsets_time_and_host(tmp_path: Path) -> None:
    """The stored bytes contain place, time and host."""
    stepped = Stepped(tmp_path)
    group = group_of([put(b"a", "T", 3), put(b"b", "T", 3), put(b"c", "U", 0)])
    result = stepped.store.append(group)
    assert result.status is PutStatus.PUT_OK
    assert result.store_timestamp == stepped.clock.now_ms() == group.store_timestamp
    assert result.end_offset == len(group.buffer) == stepped.store.appended_offset
    assert result.first_queue_offsets == [0, 0]
    assert result.runs == [[(0, 2)], [(2 * (OVERHEAD + 1), 1)]]
    data = stepped.store.log.read(0, result.end_offset).tobytes()
    for number, offset in enumerate((0, 1, 0)):
        record = decode_record(data, number * (OVERHEAD + 1))
        assert (record.queue_offset, record.physical_offset) == (offset, number * (OVERHEAD + 1))
        assert (record.store_timestamp, record.store_host) == (result.store_timestamp, HOST)
    assert group.queue_offsets is not None
    assert group.queue_offsets.tolist() == [0, 1, 0]
    stepped.store.close()


def test_queue_offsets_go_on_over_groups_sections_and_restarts(tmp_path: Path) -> None:
    """Each queue counts separately, even if a group names a queue twice."""
    stepped = Stepped(tmp_path)
    sections = [GroupSection("T", 0, 0, 2), GroupSection("T", 1, 2, 1), GroupSection("T", 0, 3, 1)]
    puts = [put(b"1"), put(b"2"), put(b"3", "T", 1), put(b"4")]
    assert stepped.store.append(group_of(puts, sections)).first_queue_offsets == [0, 0, 2]
    assert stepped.store.append(group_of(puts, sections)).first_queue_offsets == [3, 1, 5]
    assert stepped.store.log.next_queue_offset("T", 0) == 6
    stepped.store.close()
    stepped = Stepped(tmp_path)
    assert stepped.store.append(group_of(puts, sections)).first_queue_offsets == [6, 2, 8]
    stepped.store.close()


def test_half_and_rolled_back_messages_get_offset_zero_and_move_nothing(tmp_path: Path) -> None:
    """Only records that enter the queue count."""
    stepped = Stepped(tmp_path)
    flags = [0, TRANSACTION_PREPARED, 0, TRANSACTION_ROLLBACK, 0]
    group = group_of([put(b"%d" % at, sys_flag=flag) for at, flag in enumerate(flags)])
    stepped.append(b"first")
    result = stepped.store.append(group)
    assert group.queue_offsets is not None
    assert group.queue_offsets.tolist() == [1, 0, 2, 0, 3]
    assert result.first_queue_offsets == [1]
    stepped.dispatch()
    assert stepped.bodies() == [b"first", b"0", b"2", b"4"]
    stepped.store.close()


def test_store_times_never_go_back(tmp_path: Path) -> None:
    """A wall clock that is set back does not disturb the order of the log."""
    stepped = Stepped(tmp_path)
    first = stepped.store.append(bodies(b"1")).store_timestamp
    stepped.clock._now_ns -= 3_600_000_000_000
    assert stepped.store.append(bodies(b"2")).store_timestamp == first
    stepped.dispatch()
    stepped.store.close()
    reopened = Stepped(tmp_path)
    reopened.clock._now_ns -= 3_600_000_000_000
    assert reopened.store.append(bodies(b"3")).store_timestamp == first
    reopened.dispatch()
    reopened.store.close()


@pytest.mark.parametrize("left_over", range(10))
def test_a_segment_ends_with_at_least_eight_blank_bytes(tmp_path: Path, left_over: int) -> None:
    """A record that would leave fewer than eight bytes goes into the next segment (RocketMQ's rule)."""
    stepped = Stepped(tmp_path)
    record_bytes = SEGMENT_BYTES - left_over
    result = stepped.store.append(bodies(bytes(record_bytes - OVERHEAD - 200)))
    result = stepped.store.append(bodies(bytes(200 - OVERHEAD)))
    fits = left_over >= BLANK_BYTES_MIN
    assert result.runs == [[((record_bytes - 200) if fits else SEGMENT_BYTES, 1)]]
    if not fits:
        data = log_bytes(tmp_path)["0" * 20][record_bytes - 200 :]
        assert int.from_bytes(data[:4], "big") == 200 + left_over
        assert int.from_bytes(data[4:8], "big") == MAGIC_BLANK
        assert not any(data[8:])
    stepped.dispatch()
    assert len(stepped.bodies()) == 2
    stepped.store.close()


def test_a_group_is_split_at_a_roll_between_records(tmp_path: Path) -> None:
    """A section that crosses into the next segment has two runs, and its offsets go on."""
    stepped = Stepped(tmp_path)
    stepped.append(bytes(SEGMENT_BYTES - 1000))
    group = group_of([put(bytes(200), "U"), *[put(bytes(200))] * 3, put(bytes(200), "V")])
    start = stepped.store.appended_offset
    size = OVERHEAD + 200
    result = stepped.store.append(group)
    assert result.runs == [
        [(start, 1)],
        [(start + size, 2), (SEGMENT_BYTES, 1)],
        [(SEGMENT_BYTES + size, 1)],
    ]
    assert result.end_offset == SEGMENT_BYTES + 2 * size
    stepped.dispatch()
    assert [len(stepped.bodies(topic)) for topic in "TUV"] == [4, 1, 1]
    assert [len(found) for found in stepped.store.log.walk(0, result.end_offset)] == [4, 2]
    stepped.store.close()


def test_groups_over_the_bound_are_refused_whole(tmp_path: Path) -> None:
    """Above a segment's size, or the setting: MESSAGE_ILLEGAL, no record stored."""
    stepped = Stepped(tmp_path)
    largest = SEGMENT_BYTES - BLANK_BYTES_MIN - OVERHEAD
    refused = stepped.store.append(bodies(bytes(largest + 1)))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    assert stepped.store.appended_offset == 0
    with pytest.raises(GroupTooLarge):
        stepped.store.log.append(bodies(bytes(largest), bytes(largest)))
    assert stepped.store.append(bodies(bytes(largest))).status is PutStatus.PUT_OK
    stepped.dispatch()
    stepped.store.close()


def test_a_record_of_the_other_host_family_is_refused(tmp_path: Path) -> None:
    """The store's address does not fit into it; the log stays unchanged."""
    stepped = Stepped(tmp_path)
    stepped.store.store_host = bytes(20)
    with pytest.raises(MessageIllegal):
        stepped.store.log.append(bodies(b"x"))
    assert stepped.store.append(bodies(b"x")).status is PutStatus.MESSAGE_ILLEGAL
    stepped.store.store_host = HOST
    assert stepped.store.append(bodies(b"y")).runs == [[(0, 1)]]
    stepped.dispatch()
    assert stepped.bodies() == [b"y"]
    stepped.store.close()


@given(st.lists(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 2)), min_size=1, max_size=40), max_size=8))
def test_both_modes_and_any_grouping_give_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[tuple[int, int]]]
) -> None:
    """Mapped or written, in groups or one record at a time: log and consume queues equal byte for byte."""
    images = []
    for mode, single in (("mapped", False), ("written", False), ("mapped", True)):
        root = tmp_path_factory.mktemp("store")
        stepped = Stepped(root, append_mode=mode)
        for sizes in groups:
            puts = [put(bytes([number % 251]) * size, "T", queue) for number, (size, queue) in enumerate(sizes)]
            parts = [[one] for one in puts] if single else [puts]
            for part in parts:
                group = group_of(part)
                if len(group.buffer) > stepped.store.group_bytes_max:
                    group = group_of(part[:5])
                assert stepped.store.append(group).status is PutStatus.PUT_OK
            stepped.dispatch()
        stepped.store.close()
        files = {path.relative_to(root): path.read_bytes() for path in root.glob("c*/**/*") if path.is_file()}
        images.append({path: data for path, data in files.items() if path.parts[0] in ("commitlog", "consumequeue")})
    assert images[0] == images[1]
    if all(sum(size + OVERHEAD for size, _ in sizes) <= SEGMENT_BYTES - BLANK_BYTES_MIN for sizes in groups):
        assert images[0] == images[2]


@pytest.mark.parametrize("kind", [StoreFull, DiskError])
def test_a_failed_write_advances_nothing_and_leaves_nothing(tmp_path: Path, kind: type[StoreFull]) -> None:
    """The append is refused, the next one takes its place, and no part of the failed one returns after a crash."""
    broken = False

    def hook(operation: str, path: str) -> None:
        if broken and "commitlog" in path and operation == "write":
            # Half of the bytes are there: two records that would be good at their places.
            records = bodies(b"ghost-1", b"ghost-2")
            ghost = group_with_offsets(records, stepped.store.appended_offset)
            with open(path, "r+b") as file:
                file.seek(stepped.store.appended_offset)
                file.write(ghost)
            raise kind("write failed")

    stepped = Stepped(tmp_path / "live", HookedFileSystem(hook), append_mode="written")
    stepped.append(b"good")
    broken = True
    refused = stepped.store.append(bodies(b"lost--1", b"lost--2"))
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (refused.first_queue_offsets, refused.runs) == ([], [])
    broken = False
    stepped.append(b"next--1")
    copy = crashed_copy(tmp_path / "live", tmp_path / "copy")
    assert [(record.body, record.queue_offset) for record in stepped.records()] == [(b"good", 0), (b"next--1", 1)]
    recovered = Stepped(copy)
    assert recovered.bodies() == [b"good", b"next--1"]
    assert (recovered.report.cut_bytes, recovered.report.end_offset) == (0, stepped.store.appended_offset)
    recovered.store.close()
    stepped.store.close()


def group_with_offsets(group: RecordGroup, offset: int) -> bytes:
    """Return a group's bytes as stored at ``offset``."""
    at = offset
    for start, size in zip(group.starts.tolist(), group.sizes.tolist(), strict=True):
        group.buffer[start + 28 : start + 36] = np.frombuffer(at.to_bytes(8, "big"), np.uint8)
        at += size
    return group.buffer.tobytes()


def test_zeroing_that_fails_too_is_repeated_before_the_next_append(tmp_path: Path) -> None:
    """Until the leftovers are removed, no record is stored over them."""
    broken: set[str] = set()

    def hook(operation: str, path: str) -> None:
        if "commitlog" in path and operation in broken:
            raise DiskError(f"{operation} failed")

    files = HookedFileSystem(hook)
    stepped = Stepped(tmp_path, files, append_mode="written")
    stepped.append(b"good")
    broken |= {"write", "zero"}
    assert not stepped.store.append(bodies(b"1")).status.is_stored
    broken.discard("write")
    assert not stepped.store.append(bodies(b"2")).status.is_stored
    broken.clear()
    files.operations.clear()
    stepped.append(b"3")
    assert [operation for operation, path in files.operations if "commitlog" in path] == ["zero", "write"]
    assert stepped.bodies() == [b"good", b"3"]
    stepped.store.close()


def test_a_roll_that_fails_leaves_the_log_where_it_was(tmp_path: Path) -> None:
    """Without a next segment the whole group is refused, smaller ones still fit, and it goes on when space returns."""
    full = False

    def hook(operation: str, path: str) -> None:
        if full and operation == "reserve":
            raise StoreFull("no space")

    stepped = Stepped(tmp_path, HookedFileSystem(hook))
    stepped.append(bytes(SEGMENT_BYTES - 600))
    full = True
    end = stepped.store.appended_offset
    refused = stepped.store.append(bodies(bytes(200), bytes(200)))
    assert (refused.status, refused.cause.value) == (PutStatus.SERVICE_NOT_AVAILABLE, "disk_full")
    assert stepped.store.appended_offset == end
    assert stepped.append(b"small") > end
    full = False
    assert stepped.append(bytes(300), bytes(200)) > SEGMENT_BYTES
    assert [len(body) for body in stepped.bodies()[1:]] == [5, 300, 200]
    stepped.store.close()


def test_a_directory_that_is_gone_is_an_answer_not_a_crash(tmp_path: Path) -> None:
    """The files were removed: the roll is refused, the flush fences the log."""
    stepped = Stepped(tmp_path)
    stepped.append(b"x")
    shutil.rmtree(tmp_path / "commitlog")
    refused = stepped.store.append(bodies(bytes(5000), bytes(3000)))
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "No such file" in refused.error
    with pytest.raises(StoreFenced):
        stepped.store.log.flush()
    assert stepped.store.append(bodies(b"y")).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_reads_outside_the_log_are_refused(tmp_path: Path) -> None:
    """Only committed bytes can be read."""
    stepped = Stepped(tmp_path)
    end = stepped.append(b"x")
    log = stepped.store.log
    assert log.read(0, end).size == end
    for offset, length in ((0, end + 1), (end, 1), (-1, 1)):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, length)
    stepped.store.close()


def test_the_next_segment_is_prepared_only_when_it_comes_near(tmp_path: Path) -> None:
    """A store with little data reserves one segment, not two."""
    stepped = Stepped(tmp_path)
    stepped.append(b"x")
    stepped.runner.run_until_idle()
    assert len(log_bytes(tmp_path)) == 1
    stepped.append(bytes(SEGMENT_BYTES // 8))
    stepped.runner.run_until_idle()
    assert len(log_bytes(tmp_path)) == 2
    stepped.store.close()
    assert len(log_bytes(tmp_path)) == 1


def test_many_threads_append_without_a_gap_or_a_doubled_offset(tmp_path: Path) -> None:
    """Eight threads, three queues: every queue has every offset once, in log order, and each thread's order holds."""
    store = MessageStore(store_config(tmp_path), runner=ThreadRunner())
    store.store_host = HOST
    store.open()

    def work(number: int) -> None:
        for at in range(60):
            group = group_of([put(b"%d %d %d" % (number, at, part), "T", (number + part) % 3) for part in range(4)])
            result = store.append(group)
            assert result.status is PutStatus.PUT_OK

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = store.committed_offset
    seen: dict[int, list[int]] = {}
    last: dict[bytes, int] = {}
    for group in store.log.walk(0, end):
        for index in range(len(group)):
            record = decode_record(group.record(index).tobytes())
            seen.setdefault(record.queue_id, []).append(record.queue_offset)
            writer, at, _ = record.body.split()
            assert int(at) >= last.get(writer, 0)
            last[writer] = int(at)
    assert {queue: offsets == list(range(len(offsets))) for queue, offsets in seen.items()} == dict.fromkeys(
        range(3), True
    )
    assert sum(map(len, seen.values())) == 8 * 60 * 4
    store.close()

"""The report of a verification on queues, index and checkpoint that do not fit the log."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.offline.queue_check import RANGES_MAX, Ranges
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.report import QueueProblem, VerifyReport
from pocketmq.store.offline.verify import Level, verify
from tests.store.offline.rocketmq_files import ENTRIES, QUEUE_FILE_BYTES, SLOTS, RocketStore, some_messages


def checked(root: Path, level: Level = "full") -> VerifyReport:
    return verify(StoreReader.open(str(root)), level=level)


def queue_path(root: Path, topic: str = "Orders", queue_id: int = 1) -> Path:
    return root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def put_entry(path: Path, number: int, offset: int, size: int, code: int) -> None:
    data = bytearray(path.read_bytes())
    data[number * 20 : number * 20 + 20] = struct.pack(">qiq", offset, size, code)
    path.write_bytes(data)


def problem_of(report: VerifyReport) -> QueueProblem:
    assert report.queues is not None
    (problem,) = report.queues.problems
    assert (problem.topic, problem.queue_id) == ("Orders", 1)
    return problem


@pytest.mark.parametrize("case", ["missing", "wrong", "beyond", "tags"])
def test_each_kind_of_wrong_entry_is_counted_and_placed(tmp_path: Path, case: str) -> None:
    """One entry is changed in one way: exactly that count is 1, and the report has its queue offset."""
    store = some_messages(tmp_path)
    root = store.write()
    mine = [sent for sent in store.sent if (sent.topic, sent.queue_id) == ("Orders", 1)]
    path = queue_path(root)
    number = 7
    if case == "missing":
        put_entry(path, number, 0, 0, 0)
    elif case == "wrong":
        put_entry(path, number, mine[number].physical_offset + 1, mine[number].size, 0)
    elif case == "tags":
        put_entry(path, number, mine[number].physical_offset, mine[number].size, 12345)
    else:
        number = len(mine)
        path = path.with_name(f"{(number * 20) // QUEUE_FILE_BYTES * QUEUE_FILE_BYTES:020d}")
        put_entry(path, number % 50, store.at + 1000, 100, 0)
    report = checked(root)
    assert not report.ok
    problem = problem_of(report)
    assert {
        "missing": problem.missing,
        "wrong": problem.wrong,
        "beyond": problem.beyond,
        "tags": problem.tags,
    } == {"missing": 0, "wrong": 0, "beyond": 0, "tags": 0} | {case: 1}
    if case != "tags":
        assert problem.first_offset == number


def test_a_missing_queue_is_all_missing(tmp_path: Path) -> None:
    """Without its directory every record of a queue lacks its entry."""
    store = some_messages(tmp_path)
    root = store.write()
    queue_path(root).unlink()
    for path in queue_path(root).parent.iterdir():
        path.unlink()
    queue_path(root).parent.rmdir()
    count = sum((sent.topic, sent.queue_id) == ("Orders", 1) for sent in store.sent)
    assert problem_of(checked(root)).missing == count


def test_entries_not_written_yet_are_pending_in_an_open_store_and_missing_in_a_closed_one(tmp_path: Path) -> None:
    """The newest records of a store with an abort marker may lack their entries: a broker writes them late."""
    store = some_messages(tmp_path)
    root = store.write()
    mine = [sent for sent in store.sent if (sent.topic, sent.queue_id) == ("Orders", 1)]
    for number in (len(mine) - 1, len(mine) - 2):
        put_entry(
            queue_path(root).with_name(f"{number * 20 // QUEUE_FILE_BYTES * QUEUE_FILE_BYTES:020d}"),
            number % 50,
            0,
            0,
            0,
        )
    assert problem_of(checked(root)).missing == 2
    (root / "abort").touch()
    report = checked(root)
    assert report.ok
    assert report.queues is not None
    assert report.queues.pending == 2


def test_records_of_a_topic_made_again_are_superseded(tmp_path: Path) -> None:
    """Two records with one queue offset, the entry points to the later: the older one is no fault."""
    store = RocketStore(tmp_path)
    store.put("T", 0, b"old")
    store.next["T", 0] = 0
    new = store.put("T", 0, b"new")
    root = store.write(index=False)
    path = queue_path(root, "T", 0)
    put_entry(path, 0, new.physical_offset, new.size, 0)
    put_entry(path, 1, 0, 0, 0)
    report = checked(root)
    assert report.ok, report
    assert report.queues is not None
    assert (report.queues.superseded, report.queues.good) == (1, 1)


@pytest.mark.parametrize("case", ["missing", "wrong", "unreachable", "beyond", "size"])
def test_an_index_that_does_not_fit_is_reported(tmp_path: Path, case: str) -> None:
    """A removed, a changed and an unreachable entry, entries behind the log, a file of an unknown size."""
    store = some_messages(tmp_path, 100)
    root = store.write()
    (path,) = (root / "index").iterdir()
    data = bytearray(path.read_bytes())
    entries_at = 40 + 4 * SLOTS
    if case == "missing":
        data[36:40] = (int.from_bytes(data[36:40], "big") - 1).to_bytes(4, "big")
    elif case == "wrong":
        data[entries_at + 20 * 5 : entries_at + 20 * 5 + 4] = bytes([0, 1, 2, 3])
    elif case == "unreachable":
        data[40 : 40 + 4 * SLOTS] = bytes(4 * SLOTS)
    elif case == "beyond":
        count = int.from_bytes(data[36:40], "big")
        at = entries_at + 20 * count
        data[at : at + 20] = struct.pack(">iqii", 1, store.at + 10, 0, 0)
        data[24:32] = (store.at + 10).to_bytes(8, "big")
        data[36:40] = (count + 1).to_bytes(4, "big")
    else:
        data = data[:-4]
    path.write_bytes(data)
    report = checked(root)
    assert not report.ok
    index = report.index
    assert index is not None
    got = {"missing": index.missing, "wrong": index.wrong, "unreachable": index.unreachable, "beyond": index.beyond}
    if case == "size":
        assert len(index.unreadable) == 1
    else:
        assert got[case] > 0
    if case in ("unreachable", "beyond"):
        assert {name for name, count in got.items() if count} == {case}


def test_index_numbers_can_be_given(tmp_path: Path) -> None:
    """A file whose size does not determine slots and entries is read with the user's numbers."""
    root = some_messages(tmp_path, 20).write()
    (path,) = (root / "index").iterdir()
    path.write_bytes(path.read_bytes() + bytes(20))
    assert checked(root).index is not None
    assert not checked(root).ok
    report = verify(StoreReader.open(str(root), index_numbers=(SLOTS, ENTRIES + 1)), level="full")
    assert report.ok


@pytest.mark.parametrize("case", ["later", "short", "beyond"])
def test_a_checkpoint_that_promises_too_much_is_reported(tmp_path: Path, case: str) -> None:
    """Times after the last record, a wrong size, offsets behind the log are faults; a missing checkpoint is a note."""
    store = some_messages(tmp_path, 20)
    root = store.write()
    last = store.sent[-1].stored_ms
    values = (last + 1, last, last, 0, 0) if case == "later" else (last, last, last, 1 << 40, 0)
    data = struct.pack(">5q", *values) if case != "short" else b"123"
    (root / "checkpoint").write_bytes(data if case == "short" else data.ljust(4096, b"\0"))
    report = checked(root)
    assert not report.ok
    assert len(report.checkpoint) == 1
    os.remove(root / "checkpoint")
    assert checked(root).ok


def test_a_tail_is_a_problem_of_a_closed_store_only(tmp_path: Path) -> None:
    """Half a record behind the last one is normal after a crash or while a broker writes, wrong after a clean stop."""
    store = some_messages(tmp_path, 20)
    base = max(store.log)
    at = store.at - base
    store.log[base][at : at + 60] = store.log[base][:60]
    root = store.write()
    report = checked(root)
    assert [each.kind for each in report.findings] == ["tail"]
    assert not report.ok
    (root / "abort").touch()
    assert checked(root).ok


def test_ranges_are_a_set_of_integers() -> None:
    """Ascending, scattered and repeated values answer like a set; too many ranges are dropped."""
    ranges, model = Ranges(), set[int]()
    rng = np.random.default_rng(1)
    for _ in range(50):
        values = np.sort(rng.integers(0, 500, rng.integers(1, 20)))
        ranges.add(values.astype(np.int64))
        model |= set(values.tolist())
    asked = np.arange(-5, 510)
    assert ranges.has(asked).tolist() == [value in model for value in asked.tolist()]
    assert sum(end - first for first, end in ranges.spans()) == len(model)
    many = Ranges()
    many.add(np.arange(0, 4 * RANGES_MAX, 2))
    assert many.overflown

"""A start after a crash, a kill, or faults of the disk."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pocketmq.common.clock import ManualClock
from pocketmq.common.record_codec import Record
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.checkpoint import Checkpoint, Positions
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.disk.os_file_system import OsFile, OsFileSystem
from pocketmq.store.errors import CorruptStore, SegmentSizeMismatch
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery.log_scan import LogScan, ScanResult
from tests.store.log_fakes import (
    SEGMENT_BYTES,
    HookedFileSystem,
    Killed,
    Stepped,
    bodies,
    crashed_copy,
    group_of,
    log_bytes,
    put,
    read_queue,
    store_config,
)

FIRST = "0" * 20


def crashed(tmp_path: Path, *texts: bytes, checksums: bool = True) -> tuple[Path, list[int]]:
    """Return a crashed store with these messages, one group each, and the end of each."""
    stepped = Stepped(tmp_path / "live")
    ends = [stepped.append(text) for text in texts]
    if checksums:
        stepped.write_checksums()
    root = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    stepped.store.close()
    return root, ends


def change(root: Path, offset: int, data: bytes) -> None:
    path = root / "commitlog" / f"{offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT_BYTES)
        file.write(data)


def flip(root: Path, offset: int) -> None:
    path = root / "commitlog" / f"{offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    change(root, offset, bytes([path.read_bytes()[offset % SEGMENT_BYTES] ^ 0x40]))


def image(root: Path) -> dict[str, bytes]:
    """Return all files of a closed store except those that contain times or their own copies."""
    skipped = ("lock", "quarantine", "checksums", "positions")
    files = (path for path in root.rglob("*") if path.is_file() and not any(part in str(path) for part in skipped))
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(files)}


def test_a_clean_start_reads_the_last_group_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the log is, only its last group and the bytes behind the end are read."""
    stepped = Stepped(tmp_path)
    for _ in range(40):
        stepped.append(bytes(3000))
    last = stepped.store.log.last_group_offset
    stepped.store.close()
    reads: list[int] = []
    read_into = OsFile.read_into

    def spying(file: OsFile, at: int, out: NDArray[np.uint8]) -> int:
        if "commitlog" in file.path:
            reads.append(int(Path(file.path).name) + at)
        return read_into(file, at, out)

    monkeypatch.setattr(OsFile, "read_into", spying)
    again = Stepped(tmp_path)
    assert again.report.kind == "clean"
    assert reads
    assert min(reads) >= last
    monkeypatch.undo()
    assert len(again.bodies()) == 40
    again.store.close()


def test_after_a_kill_everything_is_there_again(tmp_path: Path) -> None:
    """Without a single flush, log, queues, offsets and index continue without a gap."""
    texts = [b"%d" % number * 500 for number in range(30)]
    root, ends = crashed(tmp_path, *texts, checksums=False)
    stepped = Stepped(root)
    assert stepped.report.kind == "unclean"
    assert (stepped.report.end_offset, stepped.report.cut_bytes, stepped.report.damaged) == (ends[-1], 0, [])
    assert stepped.report.walked_records == 30
    assert stepped.bodies() == texts
    assert stepped.store.append(bodies(b"next")).first_queue_offsets == [30]
    stepped.dispatch()
    stepped.store.close()


def test_recovery_builds_the_same_files_as_a_clean_stop(tmp_path: Path) -> None:
    """Consume queues and log equal those of the store that was not killed, byte for byte."""
    root, _ = crashed(tmp_path, *[b"%d" % number * 700 for number in range(20)])
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    stepped = Stepped(root)
    assert stepped.report.group_verified_bytes == stepped.report.scanned_bytes > 0
    stepped.store.close()
    assert image(root).keys() == image(tmp_path / "live").keys()
    for name, data in image(tmp_path / "live").items():
        if name.startswith(("commitlog", "consumequeue")):
            assert image(root)[name] == data, name


@pytest.mark.parametrize("checksums", [True, False])
def test_a_torn_last_record_is_cut_at_every_byte(tmp_path: Path, checksums: bool) -> None:
    """Any prefix of the last record: the record is removed, earlier ones stay, its bytes read as zeros afterwards."""
    stepped = Stepped(tmp_path / "live")
    ends = [stepped.append(b"first"), stepped.append(b"second")]
    ends.append(stepped.store.append(group_of([put(b"torn", key="k1 k2")])).end_offset)
    if checksums:
        stepped.write_checksums()
    root = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    stepped.dispatch()
    stepped.store.close()
    whole = (root / "commitlog" / FIRST).read_bytes()
    for cut in range(ends[1], ends[2]):
        (root / "commitlog" / FIRST).write_bytes(whole[:cut] + bytes(SEGMENT_BYTES - cut))
        found = scan(root)
        assert (found.end_offset, found.damaged, found.suspect) == (ends[1], [], []), cut
    (root / "commitlog" / FIRST).write_bytes(whole[: ends[2] - 2] + bytes(SEGMENT_BYTES - ends[2] + 2))
    store = Stepped(root)
    torn = whole[ends[1] : ends[2] - 2]
    assert store.report.cut_bytes == len(torn)
    assert Path(store.report.quarantined[0]).read_bytes() == torn
    assert not any((root / "commitlog" / FIRST).read_bytes()[ends[1] :])
    assert store.bodies() == [b"first", b"second"]
    store.append(b"3rd")
    assert store.bodies() == [b"first", b"second", b"3rd"]
    store.store.close()


def scan(root: Path) -> ScanResult:
    """Verify a log without a change."""
    files = OsFileSystem()
    segments = SegmentQueue(files, str(root / "commitlog"), SEGMENT_BYTES)
    segments.load()
    return LogScan(segments, ChecksumLog(files, str(root / "checksums"), SEGMENT_BYTES)).run(0)


def test_no_old_record_comes_back(tmp_path: Path) -> None:
    """Crash with two records behind a torn one, recover, append one of the torn one's size, crash, recover."""
    root, ends = crashed(tmp_path, b"kept", b"torn", b"ghost1", b"ghost2", checksums=False)
    # The torn record destroys the chain; only the zeroing hides the records behind it.
    change(root, ends[0], bytes(ends[1] - ends[0]))
    ghosts = (root / "commitlog" / FIRST).read_bytes()[ends[1] : ends[3]]
    change(root, ends[1], bytes(len(ghosts)))
    first = Stepped(root)
    assert first.bodies() == [b"kept"]
    first.append(b"anew")
    again = crashed_copy(root, tmp_path / "again")
    first.store.close()
    second = Stepped(again)
    assert second.bodies() == [b"kept", b"anew"]
    assert second.report.end_offset == ends[1]
    second.store.close()


def test_the_torn_tail_is_zeroed_so_that_a_same_sized_record_reveals_nothing(tmp_path: Path) -> None:
    """A torn record whose last bytes form a whole record at its place is gone after one recovery."""
    root, ends = crashed(tmp_path, b"kept", b"t" * 300, checksums=False)
    inner = (root / "commitlog" / FIRST).read_bytes()[: ends[0]]
    at = ends[0] + 150
    # a record that contains this very offset, inside the body of the torn one
    change(root, at, inner[:28] + struct.pack(">q", at) + inner[36:])
    first = Stepped(root)
    assert (first.report.end_offset, first.report.damaged) == (ends[0], [])
    assert first.report.cut_bytes > 300
    assert not any((root / "commitlog" / FIRST).read_bytes()[ends[0] :])
    first.append(bytes(150 - 92))  # ends exactly where the hidden one began
    assert first.store.appended_offset == at
    again = crashed_copy(root, tmp_path / "again")
    first.store.close()
    second = Stepped(again)
    assert second.bodies() == [b"kept", bytes(150 - 92)]
    second.store.close()


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("place", ["body", "magic", "size", "offset"])
def test_damage_in_the_middle_is_kept_reported_and_stepped_over(tmp_path: Path, place: str, checksums: bool) -> None:
    """Messages behind it stay readable with their offsets; the damaged bytes are copied and stay unchanged."""
    root, ends = crashed(tmp_path, b"one", b"two", b"three", b"four", checksums=checksums)
    at = ends[0] + {"body": 88, "magic": 4, "size": 2, "offset": 30}[place]
    flip(root, at)
    before = log_bytes(root)[FIRST]
    stepped = Stepped(root)
    assert [(part.start, part.end) for part in stepped.report.damaged] == [(ends[0], ends[1])]
    assert (stepped.report.end_offset, stepped.report.cut_bytes) == (ends[3], 0)
    assert log_bytes(root)[FIRST] == before
    assert Path(stepped.report.quarantined[0]).read_bytes() == before[ends[0] : ends[1]]
    assert stepped.bodies() == [b"one", b"three", b"four"]
    assert [record.queue_offset for record in stepped.records()] == [0, 2, 3]
    stepped.append(b"five")
    stepped.store.close()
    again = Stepped(root)
    assert again.report.kind == "clean"
    assert [(part.start, part.end) for part in again.report.damaged] == [(ends[0], ends[1])]
    assert again.bodies() == [b"one", b"three", b"four", b"five"]
    again.store.close()


def test_a_changed_property_is_noticed_by_the_group_checksum(tmp_path: Path) -> None:
    """RocketMQ's CRC does not cover it; the record stays and the group is reported."""
    root, ends = crashed(tmp_path, b"one", b"two")
    flip(root, ends[0] + 19)  # the user's flag: no check of the record sees it
    stepped = Stepped(root)
    assert [(part.start, part.end) for part in stepped.report.suspect] == [(ends[0], ends[1])]
    assert stepped.report.damaged == []
    assert stepped.report.end_offset == ends[1]
    stepped.store.close()


@pytest.mark.parametrize("field_at", [15, 27])  # queue id, queue offset
def test_a_record_that_would_take_the_place_of_others_is_kept_out_of_its_queue(tmp_path: Path, field_at: int) -> None:
    """A changed queue offset or queue id costs its own message, not those behind it."""
    root, ends = crashed(tmp_path, b"one", b"two", b"three", b"four")
    flip(root, ends[0] + field_at)
    stepped = Stepped(root)
    assert [(part.start, part.end) for part in stepped.report.damaged] == [(ends[0], ends[1])]
    assert [(record.queue_offset, record.body) for record in stepped.records()] == [
        (0, b"one"),
        (2, b"three"),
        (3, b"four"),
    ]
    assert len(stepped.store.queues()) == 1
    stepped.store.close()


def test_damage_over_a_segment_end_reaches_to_the_next_good_record(tmp_path: Path) -> None:
    """A segment lacks its blank end: the next segment's records are kept."""
    root, ends = crashed(tmp_path, bytes(5000), bytes(5000), b"last")
    assert ends[1] > SEGMENT_BYTES
    change(root, ends[0], bytes(8))
    stepped = Stepped(root)
    assert [(part.start, part.end) for part in stepped.report.damaged] == [(ends[0], SEGMENT_BYTES)]
    assert [len(body) for body in stepped.bodies()] == [5000, 5000, 4]
    stepped.store.close()


def test_segments_behind_the_end_are_removed_with_a_copy(tmp_path: Path) -> None:
    """Bytes that are no record do not stay where the log will grow."""
    root, ends = crashed(tmp_path, b"one")
    (root / "commitlog" / f"{SEGMENT_BYTES:020d}").write_bytes(b"\x01" * 100 + bytes(SEGMENT_BYTES - 100))
    (root / "commitlog" / f"{2 * SEGMENT_BYTES:020d}").write_bytes(bytes(SEGMENT_BYTES))
    stepped = Stepped(root)
    assert (stepped.report.removed_segments, stepped.report.cut_bytes) == (2, 100)
    assert list(log_bytes(root)) == [FIRST]
    assert Path(stepped.report.quarantined[0]).read_bytes() == b"\x01" * 100
    assert stepped.report.end_offset == ends[0]
    stepped.store.close()


def test_recovery_can_be_killed_at_every_step(tmp_path: Path) -> None:
    """Whichever change of the disk is the last before a kill, the next recovery ends with the same store."""
    texts = [b"%d" % number * 900 for number in range(12)]
    root, ends = crashed(tmp_path, *texts)
    flip(root, ends[3] + 90)
    change(root, ends[-1], b"\x07" * 500)
    end_segment = ends[-1] // SEGMENT_BYTES * SEGMENT_BYTES
    for number in (1, 2):
        (root / "commitlog" / f"{end_segment + number * SEGMENT_BYTES:020d}").write_bytes(b"\x09" * SEGMENT_BYTES)
    steps: list[int] = []

    def recovered(path: Path, hook: Callable[[str, str], None] | None) -> dict[str, bytes] | None:
        files = HookedFileSystem(hook)
        try:
            stepped = Stepped(path, files)
        except Killed:
            return None
        steps.append(len(files.operations))
        assert stepped.report.end_offset == ends[-1]
        assert stepped.bodies() == [*texts[:4], *texts[5:]]
        stepped.store.close()
        return image(path)

    wanted = recovered(crashed_copy(root, tmp_path / "whole"), None)
    for last in range(steps[0]):
        path = crashed_copy(root, tmp_path / f"killed{last}")
        left = [last]

        def kill(operation: str, where: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        first = recovered(path, kill)
        survivor = crashed_copy(path, tmp_path / f"again{last}")
        if first is None:
            assert recovered(survivor, None) == wanted, last
    assert steps[0] > 20


def test_a_store_rocketmq_closed_is_taken_as_it_is(tmp_path: Path) -> None:
    """Without our own files: no abort marker means a clean stop, and the queues are trusted."""
    stepped = Stepped(tmp_path)
    for number in range(20):
        stepped.append(b"%d" % number * 900)
    end = stepped.store.appended_offset
    stepped.store.close()
    shutil.rmtree(tmp_path / "pocketmq")
    shutil.rmtree(tmp_path / "checksums")
    again = Stepped(tmp_path)
    assert (again.report.kind, again.report.end_offset, again.report.dispatched_from) == ("clean", end, end)
    assert again.report.start_offset > 0
    assert len(again.bodies()) == 20
    again.append(b"more")
    again.store.close()


def test_a_store_rocketmq_left_open_is_verified_from_its_checkpoint(tmp_path: Path) -> None:
    """It starts with the newest segment whose first record is older than the checkpoint less three seconds."""
    live = Stepped(tmp_path / "live")
    times = []
    for number in range(12):
        live.clock.advance_ms(10_000)
        live.append(b"%d" % (number % 10) * 3000)
        times.append(live.clock.now_ms())
    live.store.consume_queues.flush(force=True)
    root = crashed_copy(tmp_path / "live", tmp_path / "copy")
    live.store.close()
    shutil.rmtree(root / "pocketmq")
    second = next(record for record in live_records(root) if record.physical_offset == 2 * SEGMENT_BYTES)
    checkpoint = Checkpoint(second.store_timestamp + 3000, second.store_timestamp + 9999, 0)
    (root / "checkpoint").write_bytes(checkpoint.encode())
    stepped = Stepped(crashed_copy(root, tmp_path / "one"))
    assert (stepped.report.kind, stepped.report.start_offset) == ("unclean", 2 * SEGMENT_BYTES)
    assert len(stepped.bodies()) == 12
    stepped.store.close()
    (root / "checkpoint").unlink()
    stepped = Stepped(root)
    assert stepped.report.start_offset == 0
    assert len(stepped.bodies()) == 12
    stepped.store.close()


def live_records(root: Path) -> list[Record]:
    copy = crashed_copy(root, root.parent / "look")
    stepped = Stepped(copy)
    records = stepped.records()
    stepped.store.close()
    return records


def test_damaged_positions_are_no_positions(tmp_path: Path) -> None:
    """A recovery without them starts further back and ends at the same place."""
    root, ends = crashed(tmp_path, b"one", b"two")
    (root / "pocketmq").mkdir(exist_ok=True)
    (root / "pocketmq" / "positions.json").write_bytes(b'{"positions":{"recover_offset":999},"crc32":1}')
    stepped = Stepped(root)
    assert (stepped.report.end_offset, stepped.bodies()) == (ends[1], [b"one", b"two"])
    stepped.store.close()


def test_a_recovery_begins_at_the_last_checkpoint(tmp_path: Path) -> None:
    """Bytes that were durable then are not read again."""
    live = Stepped(tmp_path / "live")
    for number in range(10):
        live.append(b"%d" % number * 900)
    live.store.checkpoint()
    at = live.store.appended_offset
    live.append(b"after")
    root = crashed_copy(tmp_path / "live", tmp_path / "copy")
    live.store.close()
    stepped = Stepped(root)
    assert (stepped.report.start_offset, stepped.report.dispatched_from, stepped.report.walked_records) == (at, at, 1)
    assert len(stepped.bodies()) == 11
    stepped.store.close()


def test_a_clean_stop_that_is_not_true_is_noticed(tmp_path: Path) -> None:
    """The log continues behind the stop, or its last group is damaged: it is recovered, not trusted."""
    stepped = Stepped(tmp_path / "live")
    stepped.append(b"one")
    stepped.store.close()
    positions = (tmp_path / "live" / "pocketmq" / "positions.json").read_bytes()
    stepped = Stepped(tmp_path / "live")
    stepped.append(b"two")
    stepped.store.close()
    longer = crashed_copy(tmp_path / "live", tmp_path / "longer")
    (longer / "pocketmq" / "positions.json").write_bytes(positions)
    found = Stepped(longer)
    assert (found.report.kind, "goes on" in found.report.reason) == ("unclean", True)
    assert found.bodies() == [b"one", b"two"]
    found.store.close()
    flip(tmp_path / "live", 93 + 2 + 88 + 2)
    found = Stepped(tmp_path / "live")
    assert (found.report.kind, "last group" in found.report.reason) == ("unclean", True)
    assert found.bodies() == [b"one"]
    found.store.close()


def test_without_its_log_a_store_starts_empty_and_says_so(tmp_path: Path) -> None:
    """Consume queues without records are removed, too (RocketMQ's rule)."""
    stepped = Stepped(tmp_path)
    stepped.append(b"one")
    stepped.store.close()
    shutil.rmtree(tmp_path / "commitlog")
    again = Stepped(tmp_path)
    assert (again.report.kind, "gone" in again.report.reason) == ("unclean", True)
    assert again.bodies() == []
    assert again.store.append(bodies(b"new")).first_queue_offsets == [0]
    again.dispatch()
    again.store.close()


def test_wrong_sizes_and_gaps_change_nothing(tmp_path: Path) -> None:
    """A refused start leaves every file unchanged, and the directory unlocked."""
    root, _ = crashed(tmp_path, bytes(5000), bytes(5000), bytes(5000))
    (root / "commitlog" / f"{SEGMENT_BYTES:020d}").rename(root / "aside")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(CorruptStore):
        Stepped(root)
    with pytest.raises(SegmentSizeMismatch):
        Stepped(root, mapped_file_size_commit_log=4096)
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    (root / "aside").rename(root / "commitlog" / f"{SEGMENT_BYTES:020d}")
    stepped = Stepped(root)
    assert len(stepped.bodies()) == 3
    stepped.store.close()


def test_what_a_kill_left_half_allocated_is_removed(tmp_path: Path) -> None:
    """Only whole segments have a segment's name."""
    root, _ = crashed(tmp_path, b"one")
    (root / "commitlog" / f"{SEGMENT_BYTES:020d}.allocating").write_bytes(b"half")
    stepped = Stepped(root)
    assert list(log_bytes(root)) == [FIRST]
    stepped.store.close()


def test_positions_of_another_segment_size_are_not_believed(tmp_path: Path) -> None:
    """Their offsets would point to wrong places."""
    root, ends = crashed(tmp_path, b"one", b"two")
    (root / "pocketmq").mkdir(exist_ok=True)
    positions = Positions(segment_bytes=4096, recover_offset=50, end_offset=60)
    (root / "pocketmq" / "positions.json").write_bytes(positions.encode())
    stepped = Stepped(root)
    assert (stepped.report.start_offset, stepped.report.end_offset) == (0, ends[1])
    stepped.store.close()


def test_a_recovery_that_is_no_longer_wanted_ends_and_is_made_again(tmp_path: Path) -> None:
    """It ends before the first part, then before the second one, and so on; the last opening has every message."""

    class NoLongerWanted(Exception):
        pass

    first = Stepped(tmp_path / "first")
    sent = [b"%d" % number * 100 for number in range(200)]
    for body in sent:
        first.append(body)
    root = crashed_copy(tmp_path / "first", tmp_path / "killed")
    for given_up in range(100):
        calls = 0

        def still_wanted(given_up: int = given_up) -> None:
            nonlocal calls
            calls += 1
            if calls > given_up:
                raise NoLongerWanted

        store = MessageStore(store_config(root), clock=ManualClock(), runner=SteppedRunner())
        store.still_wanted = still_wanted
        try:
            store.open()
        except NoLongerWanted:
            continue
        break
    assert given_up > 1
    assert [record.body for record in read_queue(store, "T")] == sent
    store.close()

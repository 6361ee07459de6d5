"""Directories that are no store of ours, or not usable now: a clear message, and no file changes."""

import hashlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record import MAGIC_BLANK, encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.errors import (
    CorruptStore,
    SegmentSizeMismatch,
    StoreFull,
    StoreInUse,
    StorePermission,
    StoreReadOnly,
)
from tests.sim.checkers import ROOT, Ledger, SimStore, check, close_quietly, fresh_disk
from tests.store.log_fakes import SEGMENT_BYTES, Stepped, crashed_copy

HOST = bytes([10, 0, 0, 7, 0, 0, 42, 159])


def tree_hash(root: Path) -> str:
    """Return a hash over names and bytes of everything but the lock file, whose text names its holder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.name != "lock":
            digest.update(str(path.relative_to(root)).encode() + (path.read_bytes() if path.is_file() else b"/"))
    return digest.hexdigest()


def a_store(root: Path, *, clean: bool = False) -> Path:
    stepped = Stepped(root / "live")
    for number in range(20):
        stepped.append(b"%d" % number * 600)
    stepped.store.consume_queues.flush(force=True)
    if clean:
        stepped.store.close()
    copy = crashed_copy(root / "live", root / "copy")
    if not clean:
        stepped.store.close()
    (copy / "lock").unlink()
    return copy


def remove_a_middle_segment(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[1].unlink()


def cut_a_segment_short(root: Path) -> None:
    path = sorted((root / "commitlog").iterdir())[-1]
    path.write_bytes(path.read_bytes()[:5000])


def cut_a_queue_short(root: Path) -> None:
    path = next((root / "consumequeue").rglob("0" * 20))
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("harm", "kind", "text"),
    [
        (remove_a_middle_segment, CorruptStore, "copy the missing files back"),
        (cut_a_segment_short, CorruptStore, "was cut short"),
        (cut_a_queue_short, CorruptStore, "remove the directory to rebuild it"),
    ],
)
def test_a_half_copied_store_is_refused(
    tmp_path: Path, clean: bool, harm: Callable[[Path], None], kind: type[PocketMQError], text: str
) -> None:
    """The message names the file and the cure; once repaired, the store opens."""
    root = a_store(tmp_path, clean=clean)
    harm(root)
    before = tree_hash(root)
    with pytest.raises(kind, match=text):
        Stepped(root)
    assert tree_hash(root) == before


def test_a_store_with_other_segments_is_refused(tmp_path: Path) -> None:
    """The message has the segment size of the store."""
    root = a_store(tmp_path)
    before = tree_hash(root)
    with pytest.raises(SegmentSizeMismatch, match=f"set store.mapped_file_size_commit_log={SEGMENT_BYTES}"):
        Stepped(root, mapped_file_size_commit_log=2 * SEGMENT_BYTES)
    assert tree_hash(root) == before


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    """So does one with an empty ``commitlog``, or with foreign files, which stay."""
    (tmp_path / "a" / "commitlog").mkdir(parents=True)
    (tmp_path / "a" / "notes.txt").write_text("not ours")
    for name in ("a", "b"):
        stepped = Stepped(tmp_path / name)
        assert stepped.report.kind == "new"
        stepped.append(b"x")
        stepped.store.close()
    assert (tmp_path / "a" / "notes.txt").read_text() == "not ours"


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    """The first process is not affected."""
    stepped = Stepped(tmp_path / "s")
    stepped.append(b"x")
    before = tree_hash(tmp_path)
    with pytest.raises(StoreInUse, match="a second broker on the same store"):
        Stepped(tmp_path / "s")
    assert tree_hash(tmp_path) == before
    stepped.append(b"y")
    stepped.store.close()


@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        ("denied", StorePermission, "run as the store's owner"),
        ("read_only", StoreReadOnly, "remounted"),
        ("full", StoreFull, "free space"),
    ],
)
def test_a_disk_that_refuses_is_reported_and_left_alone(trouble: str, kind: type[PocketMQError], text: str) -> None:
    """No permission, read-only, full: the start fails with the reason, the files stay unchanged, and it works later."""
    clock, ledger = ManualClock(), Ledger()
    sim = SimStore(fresh_disk(), ledger, clock)
    for _ in range(9):
        sim.append([1500])
    files = sim.files.after_kill()
    before = {path: data for path, data in files.image().items() if not path.endswith("/lock")}
    if trouble == "denied":
        files.denied = (f"{ROOT}/commitlog",)
    elif trouble == "read_only":
        files.read_only = True
    else:
        files.remove(f"{ROOT}/abort")
        files.remove(f"{ROOT}/lock")
        files.capacity_bytes = files.used_bytes()
        before = {path: data for path, data in files.image().items() if not path.endswith("/lock")}
    with pytest.raises(kind, match=text):
        SimStore(files, ledger, clock)
    assert {path: data for path, data in files.image().items() if not path.endswith("/lock")} == before
    files.denied, files.read_only, files.capacity_bytes = (), False, None
    found = SimStore(files, ledger, clock)
    check(found.store, ledger)
    close_quietly(found)


# ---- stores of RocketMQ


def rocketmq_store(root: Path, version: str, *, aborted: bool) -> list[bytes]:
    """Write a store as RocketMQ 4.9 or 5.3 leaves it, by the format alone (docs/rocketmq.md, "Store").

    No ``pocketmq`` and no ``checksums``; two segments, a queue, checkpoint, config files. Returns the bodies.
    """
    bodies = [b"%s-%d" % (version.encode(), number) * 60 for number in range(20)]
    segment, base, log, queue = b"", 0, {}, b""
    for number, body in enumerate(bodies):

        def record(at: int, body: bytes = body, number: int = number) -> bytes:
            return encode_record(
                "rocketmq-topic",
                body,
                queue_id=3,
                queue_offset=number,
                physical_offset=at,
                properties=encode_properties({"UNIQ_KEY": f"{number:032X}", "WAIT": "true"}),
                born_timestamp=1_600_000_000_000 + number,
                store_timestamp=1_600_000_000_500 + number,
                born_host=HOST,
                store_host=HOST,
            )

        data = record(base + len(segment))
        if len(segment) + len(data) + 8 > SEGMENT_BYTES:
            left = SEGMENT_BYTES - len(segment)
            log[base] = (segment + struct.pack(">II", left, MAGIC_BLANK)).ljust(SEGMENT_BYTES, b"\0")
            base, segment = base + SEGMENT_BYTES, b""
            data = record(base)
        queue += struct.pack(">qiq", base + len(segment), len(data), 0)
        segment += data
    log[base] = segment.ljust(SEGMENT_BYTES, b"\0")
    (root / "commitlog").mkdir(parents=True)
    for base, data in log.items():
        (root / "commitlog" / f"{base:020d}").write_bytes(data)
    directory = root / "consumequeue" / "rocketmq-topic" / "3"
    directory.mkdir(parents=True)
    (directory / ("0" * 20)).write_bytes(queue.ljust(20 * 64, b"\0"))
    times = [1_600_000_000_519] * 3 + ([0, 0] if version == "5.3" else [])
    (root / "checkpoint").write_bytes(struct.pack(f">{len(times)}q", *times).ljust(4096, b"\0"))
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"dataVersion":{"counter":1},"topicConfigTable":{}}')
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"rocketmq-topic@group":{3:7}}}')
    (root / "lock").write_bytes(b"lock")
    if aborted:
        (root / "abort").write_bytes(b"4711" if version == "5.3" else b"")
    return bodies


@pytest.mark.parametrize("aborted", [True, False])
@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_a_store_of_rocketmq_is_taken_over(tmp_path: Path, version: str, aborted: bool) -> None:
    """Every message is there with its offset, its config files stay, and the log continues where RocketMQ ended."""
    bodies = rocketmq_store(tmp_path, version, aborted=aborted)
    config = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
    stepped = Stepped(tmp_path)
    assert stepped.report.kind == ("unclean" if aborted else "clean")
    assert (stepped.report.cut_bytes, stepped.report.damaged, stepped.report.suspect) == (0, [], [])
    assert stepped.bodies("rocketmq-topic", 3) == bodies
    stepped.append(b"ours", topic="rocketmq-topic", queue_id=3)
    assert [record.queue_offset for record in stepped.records("rocketmq-topic", 3)] == list(range(21))
    stepped.store.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()} == config
    assert Checkpoint.decode((tmp_path / "checkpoint").read_bytes()).physic_ms > 0


def test_a_store_of_rocketmq_with_other_sizes_is_refused_untouched(tmp_path: Path) -> None:
    """The usual mistake: RocketMQ's 1 GiB against another setting. Not even an empty directory of ours appears."""
    rocketmq_store(tmp_path, "4.9", aborted=True)
    before = tree_hash(tmp_path)
    with pytest.raises(SegmentSizeMismatch):
        Stepped(tmp_path, mapped_file_size_commit_log=4 * SEGMENT_BYTES)
    assert tree_hash(tmp_path) == before
    shutil.rmtree(tmp_path / "consumequeue")
    stepped = Stepped(tmp_path)
    assert len(stepped.bodies("rocketmq-topic", 3)) == 20
    stepped.store.close()

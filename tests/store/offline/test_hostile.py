"""Directories full of bytes that cannot be trusted."""

import os
import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from pocketmq.common.errors import PocketMQError
from pocketmq.store.commitlog.checksums import pack_entries
from pocketmq.store.offline.reader import Finding, StoreReader
from pocketmq.store.offline.repair import plan_repair
from pocketmq.store.offline.verify import Level, verify
from tests.store.offline.rocketmq_files import (
    HOST_V4,
    SEGMENT_BYTES,
    V1,
    RocketStore,
    some_messages,
    tree,
)


def check(root: Path) -> None:
    """Verify at every level, and plan a repair; only a PocketMQError may be raised."""
    before = tree(root)
    levels: tuple[Level, ...] = ("log", "full")
    for level in levels:
        try:
            reader = StoreReader.open(str(root))
        except PocketMQError:
            continue
        report = verify(reader, level=level)
        plan_repair(reader, report)
        for queue in reader.queues():
            queue.bounds()
        reader.close()
    assert tree(root) == before


@pytest.mark.parametrize("seed", range(6))
def test_random_bytes_in_every_file_are_only_findings(tmp_path: Path, seed: int) -> None:
    """Each file in turn, then all at once, filled with noise or with 0xFF: there is a report, and no file changes."""
    rng = random.Random(seed)
    root = some_messages(tmp_path / "s", 60).write(abort=seed % 2 == 1)
    (root / "pocketmq").mkdir()
    (root / "pocketmq" / "positions.json").write_bytes(rng.randbytes(300))
    (root / "pocketmq" / "deleted_topics.json").write_bytes(b"[" * 20_000)
    (root / "checksums").mkdir()
    (root / "checksums" / f"{0:020d}").write_bytes(rng.randbytes(2000))
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    for path in rng.sample(paths, 5):
        kept = path.read_bytes()
        path.write_bytes(rng.randbytes(len(kept)) if seed % 3 else b"\xff" * len(kept))
        check(root)
        path.write_bytes(kept)
    for path in paths:
        path.write_bytes(rng.randbytes(path.stat().st_size))
    check(root)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_anywhere_are_only_findings(tmp_path: Path, seed: int) -> None:
    """Some flipped bits in every file at once never end a verification or a plan."""
    rng = random.Random(seed)
    root = some_messages(tmp_path / "s", 80).write()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size:
            data = bytearray(path.read_bytes())
            for _ in range(8):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
    check(root)


def test_strange_names_are_not_followed(tmp_path: Path) -> None:
    """Directories, links, pipes, huge numbers and odd names where files should be are reported, not opened."""
    root = some_messages(tmp_path / "s", 20).write()
    (root / "commitlog" / "9").mkdir()
    (root / "commitlog" / ("9" * 20)).write_bytes(b"x")
    (root / "commitlog" / f"{5 * SEGMENT_BYTES:020d}").mkdir()
    (root / "consumequeue" / "file").write_text("x")
    (root / "consumequeue" / "T" / "007").mkdir(parents=True)
    (root / "consumequeue" / "T" / "1").mkdir()
    (root / "consumequeue" / "T" / "1" / "x").mkdir()
    (root / "index" / ("1" * 17)).mkdir()
    os.mkfifo(root / "commitlog" / f"{6 * SEGMENT_BYTES:020d}")
    os.mkfifo(root / "index" / ("2" * 17))
    os.symlink("/nonexistent", root / "consumequeue" / "T" / "1" / f"{0:020d}")
    reader = StoreReader.open(str(root))
    assert len(reader.layout.strange) >= 5
    report = verify(reader)
    assert report.records == 20
    assert not report.ok


def test_topics_in_records_are_never_paths(tmp_path: Path) -> None:
    """A record with the topic ``../../x`` is read, and no file outside the store is touched."""
    store = RocketStore(tmp_path / "s")
    store.put("../../x", 0, b"evil")
    store.put("..", 0, b"evil")
    store.put("good", 0, b"fine")
    root = store.root
    (root / "commitlog").mkdir(parents=True)
    for base, data in store.log.items():
        (root / "commitlog" / f"{base:020d}").write_bytes(data)
    report = verify(StoreReader.open(str(root)))
    assert report.queues is not None
    assert {each.topic for each in report.queues.problems} == {"good"}
    assert [text.partition(" (first")[0] for text in report.illegal] == [
        "1 records of queue 0 of topic '../../x'",
        "1 records of queue 0 of topic '..'",
    ]


def test_a_size_that_lies_costs_no_memory(tmp_path: Path) -> None:
    """Headers that claim records and groups of nearly 2 GiB are refused before a read of that size."""
    root = tmp_path / "s"
    (root / "commitlog").mkdir(parents=True)
    (root / "checksums").mkdir()
    path = root / "commitlog" / f"{0:020d}"
    size = 1 << 31
    head = struct.pack(">IIIiiqqiq", size - 100, V1, 0, 0, 0, 0, 0, 0, 1) + HOST_V4 + bytes(8) + HOST_V4
    path.write_bytes(head)
    os.truncate(path, size)
    entry = pack_entries([(0, size - 8, zlib.crc32(b""))])
    (root / "checksums" / f"{0:020d}").write_bytes(entry.tobytes())
    tracemalloc.start()
    try:
        findings = list(StoreReader.open(str(root)).walk())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [each.kind for each in findings if isinstance(each, Finding)] == ["tail"]
    assert peak_bytes < 64 << 20


def test_a_file_of_nothing_but_candidates_ends_in_time(tmp_path: Path) -> None:
    """A file that repeats a record's head at every 64 bytes is searched once, in bounded work."""
    root = tmp_path / "s"
    (root / "commitlog").mkdir(parents=True)
    piece = bytearray()
    for at in range(0, 1 << 20, 64):
        head = struct.pack(">IIIiiqqiq", (1 << 20) - at - 8, V1, 1, 0, 0, 0, at, 0, 1)
        piece += head.ljust(64, b"\1")
    (root / "commitlog" / f"{0:020d}").write_bytes(piece)
    check(root)

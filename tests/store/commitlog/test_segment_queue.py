"""Loading and finding segments."""

from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.commitlog import segment_queue
from pocketmq.store.commitlog.segment import Segment, segment_name
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import CorruptStore, DiskError, SegmentSizeMismatch


def queue_of(root: Path, *bases: int, size: int = 4096) -> SegmentQueue:
    for base in bases:
        (root / segment_name(base)).write_bytes(bytes(size))
    return SegmentQueue(OsFileSystem(), str(root), 4096)


def test_segments_are_found_by_offset(tmp_path: Path) -> None:
    """Every offset belongs to exactly the file that holds it."""
    queue = queue_of(tmp_path, 4096, 8192)
    queue.load()
    assert (queue.first_offset, queue.end_offset, len(queue)) == (4096, 12288, 2)
    assert queue.find(4095) is None
    assert queue.find(4096) is queue.all[0]
    assert queue.find(8191) is queue.all[0]
    assert queue.find(8192) is queue.all[1]
    assert queue.find(12288) is None
    assert queue.between(8191, 8192) == [queue.all[0]]
    assert queue.between(8191, 8193) == list(queue.all)
    assert queue.between(5000, 5000) == []


def test_a_file_of_another_size_is_refused_with_both_sizes_and_the_setting(tmp_path: Path) -> None:
    """The message names the setting; the file stays unchanged."""
    queue = queue_of(tmp_path, 0, size=1000)
    with pytest.raises(SegmentSizeMismatch) as caught:
        queue.load()
    for word in ("1000", "4096", "mapped_file_size_commit_log"):
        assert word in str(caught.value)
    assert (tmp_path / segment_name(0)).stat().st_size == 1000


@pytest.mark.parametrize(("size", "word"), [(1000, "cut short"), (8192, "extended")])
def test_a_file_that_was_cut_is_no_wrong_setting(tmp_path: Path, size: int, word: str) -> None:
    """The names of the others show the right size: to change the setting would lose them all."""
    queue = queue_of(tmp_path, 0, 4096, 8192)
    (tmp_path / segment_name(4096)).write_bytes(bytes(size))
    with pytest.raises(CorruptStore, match=f"{segment_name(4096)} has {size} bytes.*{word}") as caught:
        queue.load()
    assert "set store.mapped" not in str(caught.value)
    assert "pocketmq log verify" in str(caught.value)


def test_a_store_of_another_segment_size_names_the_setting_only(tmp_path: Path) -> None:
    """Several files agree on the other size."""
    with pytest.raises(SegmentSizeMismatch, match=r"set store\.mapped_file_size_commit_log=1000") as caught:
        queue_of(tmp_path, 0, 1000, 2000, size=1000).load()
    assert "verify" not in str(caught.value)


def test_a_missing_file_in_between_is_refused(tmp_path: Path) -> None:
    """The error names the gap between segments."""
    with pytest.raises(CorruptStore, match="between offsets 4096 and 8192"):
        queue_of(tmp_path, 0, 8192).load()


def test_foreign_names_and_an_empty_last_file_are_ignored(tmp_path: Path) -> None:
    """Files that are no segments have no effect."""
    queue = queue_of(tmp_path, 0)
    (tmp_path / (segment_name(4096) + ".allocating")).write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")
    (tmp_path / segment_name(4096)).write_bytes(b"")
    queue.load()
    assert len(queue) == 1


def test_reading_handles_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle opened longest ago is closed, and reopened when it is read."""
    monkeypatch.setattr(segment_queue, "READ_HANDLES_MAX", 2)
    queue = queue_of(tmp_path, 0, 4096, 8192)
    queue.load()
    for segment in queue.all:
        queue.for_read(segment)
        queue.for_read(segment)
    assert [segment._read_file is not None for segment in queue.all] == [False, True, True]
    out = np.ones(10, np.uint8)
    queue.all[0].read_into(0, out)
    assert not out.any()


def test_a_segment_cut_by_another_program_is_an_error_not_zeros(tmp_path: Path) -> None:
    """Missing bytes are reported with the file's name."""
    path = tmp_path / segment_name(0)
    path.write_bytes(bytes(4096))
    segment = Segment(OsFileSystem(), str(path), 0, 4096)
    path.write_bytes(bytes(100))
    with pytest.raises(DiskError, match="shorter than its size"):
        segment.read_into(50, np.empty(100, np.uint8))

"""Reading the log as groups."""

from pathlib import Path

import numpy as np
import pytest

from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record_group import RecordGroup
from pocketmq.store.commitlog import log_reader
from pocketmq.store.commitlog.log_reader import DamagedRange
from tests.store.log_fakes import SEGMENT_BYTES, Stepped, group_of, put


def test_groups_read_again_have_the_columns_of_the_append(tmp_path: Path) -> None:
    """From every boundary and across segment ends the same records with the same columns return."""
    stepped = Stepped(tmp_path)
    appended = []
    for number in range(40):
        group = group_of([put(bytes(number * 13), "TU"[part % 2], part, key=f"k{number}") for part in range(5)])
        stepped.store.append(group)
        stepped.dispatch()
        appended.append(group)
    log = stepped.store.log
    assert log.appended_offset > 3 * SEGMENT_BYTES
    offsets = np.concatenate([group.physical_offsets for group in appended if group.physical_offsets is not None])
    tags = np.concatenate([group.queue_offsets for group in appended if group.queue_offsets is not None])
    for first in (0, 1, 57, 199):
        groups = list(log.walk(int(offsets[first]), log.appended_offset))
        assert np.concatenate([group.physical_offsets for group in groups]).tolist() == offsets[first:].tolist()
        assert np.concatenate([group.queue_offsets for group in groups]).tolist() == tags[first:].tolist()
        assert [key for group in groups for key in group.keys or []][:5] == [
            b"k%d" % (at // 5) for at in range(first, first + 5)
        ][: len(offsets) - first]
    stepped.store.close()


def test_a_record_larger_than_a_slice_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of slices affects speed only."""
    monkeypatch.setattr(log_reader, "SLICE_BYTES", 256)
    stepped = Stepped(tmp_path)
    end = stepped.append(b"1", bytes(1000), b"2", bytes(100))
    sizes = [size for group in stepped.store.log.walk(0, end) for size in group.sizes.tolist()]
    assert sizes == [93, 1092, 93, 192]
    stepped.store.close()


def test_damage_raises_and_known_damage_is_skipped(tmp_path: Path) -> None:
    """Records before the damage are yielded first; a listed range is skipped."""
    stepped = Stepped(tmp_path)
    ends = [stepped.append(b"1"), stepped.append(b"2"), stepped.append(b"3")]
    log = stepped.store.log
    segment = log._segments.all[0]
    segment.store(ends[0] + 4, b"\xff")
    found: list[RecordGroup] = []
    with pytest.raises(CorruptRecord, match=f"offset {ends[0]}"):
        found.extend(log.walk(0, ends[2]))
    assert [len(group) for group in found] == [1]
    log.damaged.append(DamagedRange(ends[0], ends[1], "magic"))
    assert [group.record(0).tobytes()[88:89] for group in log.walk(0, ends[2])] == [b"1", b"3"]
    stepped.store.close()

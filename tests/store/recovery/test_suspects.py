"""Queue offsets of records whose group checksum differs."""

import numpy as np
import pytest

from pocketmq.common.record_group import RecordGroup
from pocketmq.store.commitlog.log_reader import DamagedRange
from pocketmq.store.recovery.suspects import misplaced
from tests.store.log_fakes import group_of, put

Row = tuple[str, int, bool]  # topic, queue offset, suspect


def refused(
    rows: list[Row], ends: dict[tuple[str, int], int] | None = None, has_holes: bool = False, deleted: int = 0
) -> list[int]:
    """Return the numbers of the refused rows; each row is a group of 100 bytes."""
    groups: list[RecordGroup] = []
    suspects = []
    for number, (topic, offset, is_suspect) in enumerate(rows):
        group = group_of([put(topic=topic)])
        group.queue_offsets = np.array([offset])
        group.physical_offsets = np.array([number * 100])
        groups.append(group)
        if is_suspect:
            suspects.append(DamagedRange(number * 100, number * 100 + 100, ""))
    found = misplaced(groups, suspects, ends or {}, lambda topic: deleted if topic == "D" else 0, has_holes)
    return [part.start // 100 for part in found]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("T", 0, False), ("T", 1, True), ("T", 2, False)], []),
        ([("T", 0, False), ("T", 9, True), ("T", 2, False)], [1]),
        ([("T", 1, False), ("T", 0, True), ("T", 3, False)], [1]),
        ([("T", 0, True), ("T", 1, True), ("T", 2, True)], []),
        ([("T", 0, True), ("T", 65, True), ("T", 2, True)], [1]),
        ([("T", 0, False), ("T", 3, True)], [1]),
        ([("T", 0, False), ("U", 1, True), ("T", 2, False)], [1]),
        ([("U", 0, True), ("T", 1, False)], [0]),  # the first of T, with a changed topic
        ([("U", 0, True), ("T", 0, False)], []),
        ([("T", -5, True), ("T", 1, False)], [0]),
    ],
)
def test_a_suspect_is_refused_where_it_does_not_continue_its_queue(rows: list[Row], expected: list[int]) -> None:
    """Whole groups are always trusted; suspects between them must fit."""
    assert refused(rows) == expected


def test_a_queue_goes_on_where_its_entries_end() -> None:
    """The log is not read from its beginning: earlier entries give the first offset."""
    assert refused([("T", 7, True)], {("T", 0): 7}) == []
    assert refused([("T", 8, True)], {("T", 0): 7}) == [0]
    assert refused([("T", 6, True)], {("T", 0): 7}) == [0]


def test_over_holes_offsets_may_jump_forward_only() -> None:
    """Damage elsewhere has destroyed an unknown number of messages."""
    assert refused([("T", 0, False), ("T", 9, True), ("T", 12, False)], has_holes=True) == []
    assert refused([("T", 0, False), ("T", 13, True), ("T", 12, False)], has_holes=True) == [1]


def test_a_recreated_topic_begins_at_zero() -> None:
    """Its older messages, with higher offsets, are no neighbours."""
    assert refused([("D", 40, False), ("D", 41, True), ("D", 0, True), ("D", 1, False)], deleted=200) == []

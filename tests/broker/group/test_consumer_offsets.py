"""Committed offsets: they can be queried, are bounded, and survive as JSON."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.topic.topic_table import TableFull

ENTRIES = st.dictionaries(
    st.tuples(st.sampled_from(["g", "h"]), st.sampled_from(["T", "%RETRY%g"]), st.integers(0, 5)),
    st.integers(0, 1 << 60),
)


@given(ENTRIES)
def test_the_json_brings_every_offset_back(entries: Any) -> None:
    """Encoding and loading is the identity; counts agree."""
    offsets = ConsumerOffsets(100)
    for (group, topic, queue_id), offset in entries.items():
        offsets.commit(group, topic, queue_id, offset)
    again = ConsumerOffsets(100)
    again.load(offsets.encode())
    assert len(again) == len(offsets) == len(entries)
    for (group, topic, queue_id), offset in entries.items():
        assert again.query(group, topic, queue_id) == offset


def test_a_commit_over_the_bound_is_refused_and_old_entries_still_move() -> None:
    """Invented groups cannot grow the table beyond its limit."""
    offsets = ConsumerOffsets(1)
    offsets.commit("g", "T", 0, 1)
    with pytest.raises(TableFull):
        offsets.commit("g", "T", 1, 1)
    offsets.commit("g", "T", 0, 9)
    assert offsets.query("g", "T", 0) == 9
    offsets.remove_group("g")
    offsets.commit("h", "T", 1, 1)
    assert len(offsets) == 1


def test_removing_a_topic_or_a_group_takes_only_theirs() -> None:
    """Keys are topic@group, and a topic may not be confused with a group."""
    offsets = ConsumerOffsets(10)
    offsets.commit("g", "A", 0, 1)
    offsets.commit("A", "B", 0, 2)
    offsets.remove_topic("A")
    assert offsets.query("g", "A", 0) is None
    assert offsets.query("A", "B", 0) == 2
    assert offsets.topics_of("A") == ["B"]
    assert offsets.groups_of("B") == ["A"]


def test_groups_that_have_not_read_up_to_an_offset_are_named() -> None:
    """Only for the given topics; a queue without a commit counts as unread."""
    offsets = ConsumerOffsets(10)
    offsets.commit("done", "A", 0, 5)
    offsets.commit("done", "A", 1, 7)
    offsets.commit("slow", "A", 0, 4)
    offsets.commit("slow", "A", 1, 7)
    offsets.commit("half", "A", 0, 9)
    offsets.commit("other", "B", 0, 0)
    assert offsets.groups_behind({("A", 0): 5, ("A", 1): 7}) == ["half", "slow"]
    assert offsets.groups_behind({("A", 0): 5}) == ["slow"]
    assert offsets.groups_behind({("C", 0): 1}) == offsets.groups_behind({}) == []


def test_the_shape_is_rocketmqs() -> None:
    """One object under offsetTable, queue ids as keys; and it loads."""
    offsets = ConsumerOffsets(10)
    offsets.commit("g", "T", 3, 42)
    assert msgspec.json.decode(offsets.encode()) == {"offsetTable": {"T@g": {"3": 42}}}
    again = ConsumerOffsets(10)
    again.load(b'{"offsetTable":{"T@g":{"3":42}}}')
    assert again.of("g", "T") == {3: 42}


def test_all_groups_are_found_in_one_pass() -> None:
    """A request about every group must not look through the table once for each."""
    table = ConsumerOffsets(100)
    for group, topic in (("one", "A"), ("one", "B"), ("two", "A")):
        table.commit(group, topic, 0, 1)
    assert table.topics_by_group() == {"one": ["A", "B"], "two": ["A"]}
    table.remove_topic("A")
    assert table.topics_by_group() == {"one": ["B"]}


def test_offsets_are_bounded_in_bytes() -> None:
    """Their names count; what is removed makes room, and a known offset can always be committed."""
    table = ConsumerOffsets(1000, size_bytes_max=4000)
    for number in range(4):
        table.commit(f"group{number}", "T" * 100, 0, 1)
    with pytest.raises(TableFull, match="delete groups"):
        table.commit("group4", "T" * 100, 0, 1)
    assert (len(table), table.size_bytes <= 4000) == (4, True)
    table.commit("group0", "T" * 100, 0, 2)
    table.remove_group("group0")
    table.commit("group999", "T" * 100, 0, 1)
    for number in range(1000):
        table.remove_group(f"group{number}")
    assert table.size_bytes == 0


def test_the_first_commit_of_a_group_is_reported() -> None:
    """Once for each group and topic, after the offset is known; a group that was loaded is not new."""
    offsets = ConsumerOffsets(100)
    seen: list[int | None] = []
    offsets.on_first = lambda: seen.append(offsets.query("g", "T", 0))
    offsets.commit("g", "T", 0, 7)
    offsets.commit("g", "T", 0, 8)
    offsets.commit("g", "T", 1, 9)
    assert seen == [7]
    other = ConsumerOffsets(100)
    other.load(offsets.encode())
    other.on_first = lambda: seen.append(None)
    other.commit("g", "T", 0, 10)
    assert seen == [7]

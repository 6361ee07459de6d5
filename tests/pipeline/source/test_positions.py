"""Offsets of queries: their JSON, admission, and the cut into tasks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.pipeline.errors import DataLost, OptionIllegal
from pocketmq.pipeline.source.positions import Positions, QueueKey, QueueRange, admit, cut, ranges_between

KEYS = st.builds(QueueKey, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 5))
OFFSETS = st.dictionaries(KEYS, st.integers(0, 1 << 50), max_size=12)


@given(OFFSETS, st.text("0123456789abcdef", max_size=16))
def test_positions_survive_their_json(offsets: dict[QueueKey, int], identity: str) -> None:
    """Positions survive the round trip through Spark's JSON."""
    identities = {(key.topic, key.broker): identity for key in offsets}
    positions = Positions(offsets, identities)
    back = Positions.from_json(json.loads(json.dumps(positions.to_json())))
    assert (back.offsets, back.identities) == (offsets, identities)


@pytest.mark.parametrize(
    "value", [{}, {"v": 1}, {"v": 1, "topics": {"t": 3}}, {"v": 1, "topics": {"t": {"b": {"queues": {"x": 1}}}}}]
)
def test_a_foreign_checkpoint_is_refused(value: dict[str, object]) -> None:
    """An offset of another source is refused."""
    with pytest.raises(OptionIllegal, match="checkpoint"):
        Positions.from_json(value)


def test_a_checkpoint_of_another_version_is_refused() -> None:
    """An offset in a later format is refused."""
    with pytest.raises(OptionIllegal, match="version 2"):
        Positions.from_json({"v": 2, "topics": {}})


def test_a_topic_created_again_is_an_error() -> None:
    """Offsets of a deleted topic have no meaning in its successor; an unknown identity proves nothing."""
    positions = Positions({QueueKey("t", "b", 0): 5}, {("t", "b"): "one"})
    positions.check_identities({("t", "b"): "one"})
    positions.check_identities({("t", "b"): ""})
    with pytest.raises(DataLost, match="created again"):
        positions.check_identities({("t", "b"): "two"})


@given(OFFSETS, st.data(), st.integers(1, 1 << 40))
def test_admission_is_exact_and_fair(ends: dict[QueueKey, int], data: st.DataObject, rows_max: int) -> None:
    """A micro-batch has as many rows as allowed, or all; no queue moves back or beyond its end."""
    start = {key: data.draw(st.integers(0, end)) for key, end in ends.items()}
    granted = admit(start, ends, rows_max)
    assert granted.keys() == ends.keys()
    assert all(start[key] <= granted[key] <= ends[key] for key in ends)
    waiting = sum(ends[key] - start[key] for key in ends)
    assert sum(granted[key] - start[key] for key in ends) == min(waiting, rows_max)


@given(st.lists(st.tuples(KEYS, st.integers(0, 1000), st.integers(0, 500_000)), max_size=8), st.integers(0, 40))
def test_tasks_hold_every_row_once(parts: list[tuple[QueueKey, int, int]], wanted: int) -> None:
    """Tasks cover the ranges exactly, mix no brokers, and are about as many as asked for."""
    ranges = [QueueRange(*key, start, start + count) for key, start, count in {p[0]: p for p in parts}.values()]
    tasks = cut(ranges, wanted)
    rows = {(r.topic, r.broker, r.queue_id, at) for task in tasks for r in task for at in (r.start, r.end)}
    assert sum(r.count for task in tasks for r in task) == sum(r.count for r in ranges)
    assert all(len({r.broker for r in task}) == 1 for task in tasks)
    for each in ranges:
        pieces = sorted(
            (r.start, r.end)
            for task in tasks
            for r in task
            if (r.topic, r.broker, r.queue_id) == (each.topic, each.broker, each.queue_id)
        )
        at = each.start
        for start, end in pieces:
            assert start == at < end
            at = end
        assert at == each.end
    if wanted and ranges:
        assert len(tasks) <= wanted + len({r.broker for r in ranges})
    assert rows or not any(r.count for r in ranges)


def test_ranges_lie_between_two_positions() -> None:
    """Only queues with new messages are read."""
    a, b = QueueKey("t", "x", 0), QueueKey("t", "x", 1)
    assert ranges_between(Positions({a: 3, b: 4}), Positions({a: 7, b: 4})) == [QueueRange("t", "x", 0, 3, 7)]

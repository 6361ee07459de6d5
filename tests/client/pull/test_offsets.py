"""Offsets in memory, on file, and start positions."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import OffsetIllegal
from pocketmq.client.pull.offsets import BroadcastOffsetFile, OffsetTable, check_offset, start_timestamp_ms

QUEUE = MessageQueue("T", "b", 0)
OTHER = MessageQueue("T", "b", 1)


def test_only_changes_are_persisted_and_a_change_during_that_stays_dirty() -> None:
    """An offset that moved during the write is written again."""
    table = OffsetTable()
    table.loaded(OTHER, 3)
    table.update(QUEUE, 5)
    written = table.dirty()
    assert written == {QUEUE: 5}
    table.update(QUEUE, 6)
    table.persisted(written)
    assert table.dirty() == {QUEUE: 6}
    table.persisted({QUEUE: 6})
    assert table.dirty() == {}
    table.update(QUEUE, 2, increase_only=True)
    assert table.get(QUEUE) == 6
    table.forget(QUEUE)
    assert table.all() == {OTHER: 3}


@pytest.mark.parametrize("bad", [-1, 1.0, "1", None, True, 1 << 63])
def test_what_is_no_offset_is_refused(bad: Any) -> None:
    """Such as negative numbers, other types, and numbers over 63 bits."""
    with pytest.raises(OffsetIllegal):
        check_offset(bad)


def test_start_positions() -> None:
    """Words are used as they are, times become ms, other values are refused."""
    assert start_timestamp_ms("earliest") is start_timestamp_ms("committed") is None
    assert start_timestamp_ms(1_700_000_000_000) == 1_700_000_000_000
    assert start_timestamp_ms(datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)) == 86_400_000
    wrong: list[Any] = [datetime.datetime(2024, 1, 1), "first", -1, 1 << 63, 1.5, None, True]
    for bad in wrong:
        with pytest.raises(OffsetIllegal):
            start_timestamp_ms(bad)


@given(st.dictionaries(st.tuples(st.text("ab", min_size=1), st.integers(0, 9)), st.integers(0, 1 << 62), max_size=5))
def test_a_broadcast_file_gives_back_what_was_saved(tmp_path_factory: Any, offsets: Any) -> None:
    """The next start reads the saved offsets."""
    file = BroadcastOffsetFile(tmp_path_factory.mktemp("offsets") / "group")
    table = {MessageQueue(topic, "b", number): offset for (topic, number), offset in offsets.items()}
    file.save(table.items())
    assert file.load() == table


def test_a_damaged_broadcast_file_falls_back_to_the_one_before(tmp_path: Path) -> None:
    """Damage costs one save, but never the consumer's start."""
    file = BroadcastOffsetFile(tmp_path)
    assert file.load() == {}
    file.save([(QUEUE, 1)])
    file.save([(QUEUE, 2)])
    (tmp_path / "offsets.json").write_text('{"offsetTable": [{"topic": 1')
    assert file.load() == {QUEUE: 1}
    (tmp_path / "offsets.json.bak").write_text(
        '{"offsetTable": [{"topic": "T", "brokerName": "b", "queueId": 0, "offset": -4}]}'
    )
    assert file.load() == {}

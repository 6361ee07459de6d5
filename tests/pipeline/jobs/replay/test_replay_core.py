"""Replay without Spark: due times of rows, their messages, and the state of a run."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pocketmq.client.arrow.row_records import MessageRows
from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.jobs.replay.ordering import Columns
from pocketmq.pipeline.jobs.replay.pacing import Pace
from pocketmq.pipeline.jobs.replay.sending import columns_of, messages_of
from pocketmq.pipeline.jobs.replay.state import Journal


def test_a_rate_goes_on_over_batches_and_makes_nothing_up() -> None:
    """The rate is ten rows a second; after a stall of five seconds it is ten a second again."""
    pace = Pace(rate=10)
    none = np.zeros(5, np.int64)
    assert pace.due_s(none, 100.0).tolist() == pytest.approx([100.0, 100.1, 100.2, 100.3, 100.4])
    due = pace.due_s(none, 100.1)
    assert due.tolist() == pytest.approx([100.5, 100.6, 100.7, 100.8, 100.9])
    assert pace.late(due, 101.0).tolist() == due.tolist()
    assert pace.late(due, 105.5).tolist() == pytest.approx([105.5, 105.6, 105.7, 105.8, 105.9])
    assert pace.due_s(none[:1], 106.0).tolist() == pytest.approx([106.0])


def test_their_own_time_is_kept_and_divided() -> None:
    """The replay runs ten times as fast; late rows catch up."""
    pace = Pace(speed=10)
    due = pace.due_s(np.array([5_000_000, 6_000_000, 15_000_000]), 50.0)
    assert due.tolist() == pytest.approx([50.0, 50.1, 51.0])
    assert pace.late(due, 70.0).tolist() == due.tolist()
    assert pace.due_s(np.array([25_000_000]), 70.0).tolist() == pytest.approx([52.0])
    assert Pace().due_s(np.array([1, 2]), 7.0).tolist() == [7.0, 7.0]


def test_rows_become_the_messages_that_they_were() -> None:
    """Properties of brokers and clients are left out; tags, keys and the sharding key may be in the properties."""
    pairs = pa.map_(pa.string(), pa.string())
    system = [("UNIQ_KEY", "1F"), ("TAGS", "t"), ("KEYS", "k1 k2"), ("CLUSTER", "c"), ("WAIT", "true")]
    batch = pa.record_batch(
        {
            "body": pa.array([b"one", b"two", None], pa.binary()),
            "properties": pa.array([[*system, ("__SHARDINGKEY", "s"), ("own", "v")], [], None], pairs),
        }
    )
    first, second, third = messages_of(batch, "to", 0, 3)
    assert first is not None
    assert (first.topic, first.body, first.tags, first.keys) == ("to", b"one", "t", "k1 k2")
    assert (first.properties, first.sharding_key) == ({"own": "v"}, "s")
    assert second is not None
    assert (second.body, second.tags, second.properties, second.sharding_key) == (b"two", "", None, None)
    assert third is None
    with_columns = batch.append_column("tags", pa.array(["x", "y", "z"]))
    [only] = messages_of(with_columns, "to", 1, 2)
    assert only is not None
    assert only.tags == "y"
    for whole in (batch, with_columns, batch.append_column("tags", pa.array([None, "y", "z"]))):
        for at in range(2):
            [wanted] = messages_of(whole, "to", at, at + 1)
            [found] = MessageRows(columns_of(whole.slice(at, 1)), "to", 1000).messages("to", np.array([0]))
            for name in ("body", "tags", "keys", "sharding_key"):
                assert getattr(found, name) == getattr(wanted, name)
            assert (found.properties or None) == wanted.properties  # type: ignore[union-attr]


def test_a_run_goes_on_where_the_last_one_came_to(tmp_path: Path) -> None:
    """A state file belongs to one replay: the file of another, a finished or a running replay is refused."""
    path = tmp_path / "deep" / "state.json"
    with Journal(path, ["in", "to"]).opened(restart=False) as reached:
        assert (reached.rows, reached.key) == (0, None)
    journal = Journal(path, ["in", "to"])
    with journal.opened(restart=False):
        journal.reach(20, [5, "a", None])
        with pytest.raises(JobFailed, match="runs"), Journal(path, ["in", "to"]).opened(restart=False):
            pass
    with Journal(path, ["in", "to"]).opened(restart=False) as reached:
        assert (reached.rows, reached.key) == (20, [5, "a", None])
    with pytest.raises(ConfigError, match="another replay"), Journal(path, ["in", "other"]).opened(restart=False):
        pass
    with journal.opened(restart=False):
        journal.reach(30, None, done=True)
    with pytest.raises(JobFailed, match="before"), Journal(path, ["in", "to"]).opened(restart=False):
        pass
    with Journal(path, ["in", "to"]).opened(restart=True) as reached:
        assert reached.rows == 0
    path.write_text("{")
    with pytest.raises(JobFailed, match="not read"), Journal(path, ["in", "to"]).opened(restart=False):
        pass


def test_columns_are_those_of_an_archive_unless_others_are_named() -> None:
    """A missing column is an error that names the others."""
    archive = ["topic", "broker", "queue_id", "queue_offset", "body", "store_timestamp"]
    found = Columns.of(archive, "body")
    assert found == Columns("body", "store_timestamp", ("topic", "broker", "queue_id"), ("queue_offset",), True)
    own = Columns.of(["row", "at", "who"], "row", "at", ["who"])
    assert own == Columns("row", "at", ("who",), (), False)
    with pytest.raises(ConfigError, match="columns: row, at, who"):
        Columns.of(["row", "at", "who"], "body")

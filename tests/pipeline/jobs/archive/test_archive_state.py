"""When an archive may continue in a directory; runs without Spark."""

from pathlib import Path

import pytest

from pocketmq.pipeline.jobs.archive.files import LocalFiles
from pocketmq.pipeline.jobs.archive.run import QUERY, STATE, Archive, State, check_state, read_state
from pocketmq.pipeline.jobs.common.command import JobFailed

ORDERS = Archive("127.0.0.1:9876", "orders")


def test_an_archive_goes_on_only_as_what_it_is(tmp_path: Path) -> None:
    """Another topic, another time, or a foreign directory is refused and stays unchanged."""
    files = LocalFiles(tmp_path / "new")
    assert read_state(files) is None
    assert check_state(ORDERS, files) == check_state(ORDERS, files) == State("orders", "store", "earliest")
    with pytest.raises(JobFailed, match="topic orders, not other"):
        check_state(Archive(ORDERS.namesrv, "other"), files)
    with pytest.raises(JobFailed, match="--by store, not born"):
        check_state(Archive(ORDERS.namesrv, "orders", by="born"), files)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(JobFailed, match="not empty and no archive"):
        check_state(ORDERS, LocalFiles(tmp_path / "full"))
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_a_lost_checkpoint_is_no_second_copy(tmp_path: Path) -> None:
    """Without the checkpoint that wrote it, or with another, an archive would get every message again."""
    files = LocalFiles(tmp_path)
    check_state(ORDERS, files)
    files.write("_pocketmq/checkpoint/metadata", b'{"id":"one"}')
    files.write(QUERY, b"one")
    check_state(ORDERS, files)
    files.write("_pocketmq/checkpoint/metadata", b'{"id":"two"}')
    with pytest.raises(JobFailed, match="checkpoint is missing"):
        check_state(ORDERS, files)
    files.remove("_pocketmq/checkpoint")
    with pytest.raises(JobFailed, match="checkpoint is missing"):
        check_state(ORDERS, files)


def test_a_damaged_state_is_reported(tmp_path: Path) -> None:
    """It does not count as a new archive."""
    files = LocalFiles(tmp_path)
    files.write(STATE, b"{")
    with pytest.raises(JobFailed, match="damaged"):
        check_state(ORDERS, files)

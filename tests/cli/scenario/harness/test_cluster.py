"""The processes of a scenario."""

import asyncio
import json
from pathlib import Path

import psutil
import pytest

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.scenario.harness.cluster import BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.disk import APPENDS


def test_rules_are_replaced_in_one_step_and_log_lines_are_read(tmp_path: Path) -> None:
    """The control file is always whole; an incomplete line of the log is left out."""
    broker = BrokerProcess("broker-1a", tmp_path / "broker-1a", "127.0.0.1:1", {})
    broker.faults({**APPENDS, "delay_ms": 5})
    files = sorted(path.name for path in (tmp_path / "broker-1a").iterdir())
    assert files == ["faults.json"]
    rules = json.loads((tmp_path / "broker-1a" / "faults.json").read_text())["rules"]
    assert rules == [{**APPENDS, "delay_ms": 5}]
    broker.faults()
    assert json.loads((tmp_path / "broker-1a" / "faults.json").read_text()) == {"rules": []}
    assert broker.log_lines() == []
    (tmp_path / "broker-1a" / "broker.log").write_text('{"event": "a"}\n{"event": "b"}\n{"eve')
    assert [line["event"] for line in broker.log_lines()] == ["a", "b"]


@pytest.mark.slow
async def test_a_broker_that_does_not_start_says_why_and_leaves_nothing() -> None:
    """The error has the output of the process; the others are killed, the directory is gone."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(CannotStart, match="no_such_key"):
        async with Cluster() as cluster:
            await cluster.start_all([[{}], [{"store.no_such_key": "1"}]])
    assert not cluster.directory.exists()
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    assert left == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "after_s",
    [
        0.01,
        pytest.param(0.5, marks=pytest.mark.soak),
        1.0,
        *(pytest.param(s, marks=pytest.mark.soak) for s in (2.0, 3.0)),
    ],
)
async def test_a_cluster_that_is_cancelled_while_it_starts_leaves_nothing(after_s: float) -> None:
    """Ctrl-C at any moment of the start: no process stays behind."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    cluster = Cluster()

    async def start() -> None:
        async with cluster:
            await cluster.start_all([[{}], [{}]])
            await asyncio.sleep(60)

    task = asyncio.get_running_loop().create_task(start())
    await asyncio.wait([task], timeout=after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not cluster.directory.exists()
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    assert left == set()


@pytest.mark.slow
async def test_a_kept_directory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--keep`` leaves stores and logs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Cluster(keep=True) as cluster:
        ((broker,),) = await cluster.start_all([[{}]])
        assert broker.address.startswith("127.0.0.1:")
        assert any(line["event"] == "faults_enabled" for line in broker.log_lines())
    assert (cluster.directory / "broker-1a" / "store" / "commitlog").is_dir()

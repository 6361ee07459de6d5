"""A broker in a separate process, and the benchmark that uses it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.own_broker import OwnBroker

pytestmark = pytest.mark.slow


def test_it_serves_then_it_and_its_store_are_gone() -> None:
    with OwnBroker() as own:
        process_id, data_dir = own.process_id, own.data_dir
        assert own.namesrv.startswith("127.0.0.1:")
        assert own.address.startswith("127.0.0.1:")
        assert (data_dir / "commitlog").is_dir()
    assert not data_dir.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_a_start_that_fails_says_what_the_process_said(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="unknown key 'no_such_key'"), OwnBroker(arguments=["--set", "no_such_key=1"]):
        pass


def test_a_given_directory_stays_also_over_a_kill(tmp_path: Path) -> None:
    own = OwnBroker(data_dir=tmp_path)
    own.start()
    own.kill()
    assert (tmp_path / "abort").exists()
    own.start()
    assert own.stop() == 0
    assert not (tmp_path / "abort").exists()


def test_the_benchmark_runs_and_says_under_which_settings(run_command: Any) -> None:
    done = run_command("bench", "-n", "1000", "--size", "100", "--batch", "100", "--no-floors", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "index on, ASYNC_FLUSH" in report["conditions"]
    cases = {row["case"]: row for row in report["cases"]}
    assert cases["produce, batches of 100"]["count"] == cases["consume by message"]["count"] == 1000
    assert all(row["rate"] > 0 for row in report["cases"])

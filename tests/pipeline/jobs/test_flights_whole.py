"""All 336,776 flights through the jobs as processes, which are killed with SIGKILL again and again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.testing import PocketBroker
from tests.pipeline.jobs.flights import send_flights

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(3600)]
FLIGHTS = 336_776
ROOT = Path(__file__).parents[3]


class Jobs:
    """Starts jobs on one broker."""

    def __init__(self, namesrv: str, directory: Path) -> None:
        self._namesrv = namesrv
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(directory / "state")}

    def start(self, *args: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            f"pocketmq.pipeline.jobs.{args[0]}",
            *args[1:],
            "--json",
            "--master",
            "local[2]",
        ]
        return subprocess.Popen(
            [*command, "--namesrv", self._namesrv, "--conf", "spark.driver.memory=1g"],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *args: str, codes: tuple[int, ...] = (0,)) -> dict[str, int]:
        """Run a job to its end and return its output."""
        process = self.start(*args)
        out, err = process.communicate(timeout=1800)
        assert process.returncode in codes, err
        found: dict[str, int] = json.loads(out.splitlines()[-1])
        return found

    def kill(self, ready: Callable[[], bool], *args: str) -> bool:
        """Kill a job, its Java included, as soon as ``ready``; return False if it ended before."""
        process = self.start(*args)
        while process.poll() is None:
            if ready():
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return True
            time.sleep(0.02)
        err = process.communicate()[1]
        assert process.returncode == 0, err
        return False


@pytest.fixture
def jobs(broker: PocketBroker, tmp_path: Path, java: Path) -> Jobs:
    async def create() -> None:
        async with Admin(broker.namesrv) as admin:
            for topic in ("flights", "copy"):
                await admin.create_topic(topic, queues=4)

    asyncio.run(create())
    asyncio.run(send_flights(broker.namesrv, "flights", 0, FLIGHTS))
    return Jobs(broker.namesrv, tmp_path)


def test_nothing_is_lost_or_doubled_by_kills(jobs: Jobs, tmp_path: Path) -> None:
    """The archive, killed while it writes, moves and merges, is equal to the topic; so is the replay, killed on its
    way, but for the rows of the groups that were under way."""
    output = tmp_path / "archive"
    archive = ("archive", "-t", "flights", "-o", str(output), "--batch-rows", "40000", "--min-files", "2")

    def batches() -> int:
        return len(list(output.glob("_pocketmq/batches/*.json")))

    def staged() -> int:
        return len(list(output.glob("_pocketmq/staging/batch-*/date=*/hour=*/*.parquet")))

    def merging() -> bool:
        return any(output.glob("_pocketmq/swap.json")) or any(output.glob("_pocketmq/staging/merge-*"))

    kills = 0
    for ready in (lambda: staged() > 0, lambda: batches() >= 2, lambda: batches() >= 4 and staged() > 0, merging):
        kills += jobs.kill(ready, *archive)
    assert kills >= 3
    jobs.run(*archive)
    equal = jobs.run("reconcile", "topic:flights", str(output))
    assert (equal["expected"], equal["actual"], equal["matched"]) == (FLIGHTS, FLIGHTS, FLIGHTS)
    assert len(list(output.glob("date=*/hour=*/*.parquet"))) == len(list(output.glob("date=*/hour=*")))

    replay = ("replay", str(output), "-t", "copy", "--state", str(tmp_path / "replay.json"))

    def sent() -> int:
        try:
            return int(json.loads((tmp_path / "replay.json").read_text())["rows"])
        except (OSError, ValueError):
            return 0

    assert jobs.kill(lambda: sent() >= 50_000, *replay)
    assert jobs.kill(lambda: sent() >= 150_000, *replay)
    jobs.run(*replay)
    found = jobs.run("reconcile", str(output), "topic:copy", codes=(0, 1))
    assert (found["lost"], found["unexpected"], found["altered"], found["matched"]) == (0, 0, 0, FLIGHTS)
    assert found["duplicated"] <= 2 * 5_000
    clean = jobs.run("dedupe", "topic:copy", str(tmp_path / "once"))
    assert (clean["kept"], clean["duplicates"]) == (FLIGHTS, found["duplicated"])
    assert jobs.run("reconcile", str(output), str(tmp_path / "once"))["reordered"] == 0

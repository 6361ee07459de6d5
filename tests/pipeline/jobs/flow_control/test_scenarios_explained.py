"""Incidents reproduced in real processes, and the job's explanation of each from their logs alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.pipeline.jobs.flow_control.files import find_logs
from pocketmq.pipeline.jobs.flow_control.run import analyze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED = {
    "timeout-clean-queue": ("broker-2a", 1, "queue"),
    "pcbusy": ("broker-1a", 2, "append stood still"),
    "pc-synchronized": ("broker-1a", 2, "append stood still"),
    "reject-request": ("broker-2a", 2, "too few buffers"),
    "too-many-requests": ("broker-1a", 3, "full"),
    "slave-readonly": ("pair-1", 4, "slave did not confirm"),
}
"""Scenario → the broker of the phase that shows the fault, its class, and words of its cause."""


@pytest.mark.scenario
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", WANTED)
def test_the_job_names_the_cause_of_each_scenario(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    """The logs of a scenario lead to its class, and to the scenario as the way to reproduce it."""
    words = [sys.executable, "-m", "pocketmq.cli.main", "scenario", name, "--keep", "--json", "--quick"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert ran.stdout, ran.stderr
    directory = json.loads(ran.stdout)["directory"]
    result = analyze(spark, find_logs([directory]), str(tmp_path / "out"))
    broker, number, word = WANTED[name]
    chains = next(chains for incident, chains in result.incidents if incident.broker == broker)
    assert chains[0].number == number
    assert word in chains[0].summary
    assert chains[0].steps[0].shown, "a scenario's logs say what it did to the disk, or to the pool"
    assert result.sends_ended > 0

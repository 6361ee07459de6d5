"""A seed is a run: the same one twice does the same, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim.seeds import base_seed, fresh_seed

ROOT = Path(__file__).parents[2]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run seeds in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.cluster_sim", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=115)


def simulate(record: Path, *options: str) -> list[dict[str, Any]]:
    """Run seeds; return a line for each."""
    done = run("--record", str(record), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in record.read_text().splitlines()]


@pytest.mark.slow
def test_a_seed_repeats_bit_for_bit(tmp_path: Path) -> None:
    options = ("--seed", "1", "--runs", "1", "--acknowledged", "150", "--faults", "2")
    first, second = (simulate(tmp_path / name, *options) for name in ("first", "second"))
    for lines in (first, second):
        lines[0].pop("seconds")
    assert first == second
    assert first[0]["acknowledged"] >= 150


@pytest.mark.slow
def test_seeds_that_were_never_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five seconds of them, with fewer messages and faults than ``make sim``; in CI always the same ones."""
    seed = base_seed() if os.environ.get("CI") else fresh_seed()
    limits = ("--minutes", "0.083", "--acknowledged", "200", "--faults", "3")
    done = run("--seed", str(seed), "--runs", "100", *limits)
    with capsys.disabled():
        print(f" {done.stdout.splitlines()[-2] if done.stdout else done.stderr}", end="")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_another_seed_does_something_else(tmp_path: Path) -> None:
    first, second = simulate(tmp_path / "seeds", "--seed", "1", "--runs", "2", "--acknowledged", "100", "--faults", "0")
    assert first["trace"] != second["trace"]


CURED = {
    200024: "a promoted slave made topics again with too few queues, and none that had only delayed messages",
    100017: "a pull consumer read unconfirmed messages of a replaced master, and skipped others there",
    200041: "the same",
    500066: "the same",
    20261123: "a slave whose disk had lied did not start: what it lost is refused, and the operator replaces the disk",
    20261200: "a promoted slave did not make a topic again that had only open transactions",
}


@pytest.mark.soak
@pytest.mark.parametrize("seed", CURED)
def test_seeds_that_once_failed(seed: int, tmp_path: Path) -> None:
    lines = simulate(tmp_path / "cured", "--seed", str(seed), "--runs", "1")
    assert not lines[0]["failure"], CURED[seed]


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("bug", ["committed-twice", "lock-handed-out-twice"])
def test_a_planted_bug_is_found_and_its_command_printed(bug: str, tmp_path: Path) -> None:
    done = run("--seed", "1", "--runs", "4", "--acknowledged", "300", "--bug", bug)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"--bug {bug} --trace" in done.stdout

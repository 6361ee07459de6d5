"""A seed is a run: the same one twice does the same, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def simulate(record: Path, *options: str) -> list[dict[str, Any]]:
    """Run seeds in a process of its own; return a line for each."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster_sim", "--record", str(record), *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in record.read_text().splitlines()]


@pytest.mark.slow
def test_a_seed_repeats_bit_for_bit(tmp_path: Path) -> None:
    options = ("--seed", "1", "--runs", "1", "--acknowledged", "150", "--faults", "2")
    first, second = (simulate(tmp_path / name, *options) for name in ("first", "second"))
    assert first == second
    assert first[0]["acknowledged"] >= 150


@pytest.mark.slow
def test_another_seed_does_something_else(tmp_path: Path) -> None:
    first, second = simulate(tmp_path / "seeds", "--seed", "1", "--runs", "2", "--acknowledged", "100", "--faults", "0")
    assert first["trace"] != second["trace"]

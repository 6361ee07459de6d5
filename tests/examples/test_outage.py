"""The outage example: brokers and application are killed; no message is lost or reordered."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "flights" / "outage.py"


def judge(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.slow
def test_a_small_outage_loses_nothing() -> None:
    """4,000 flights, brokers down for a second: all arrive in order; copies share one id."""
    said = judge("--count", "4000", "--down-seconds", "1", "--rate", "4000")
    assert "0 of 4,000 flights lost, 0 out of order" in said
    assert "application killed" in said


@pytest.mark.scenario
@pytest.mark.timeout(300)
def test_the_whole_outage_loses_nothing() -> None:
    """50,000 flights, every broker down for ten seconds, the application killed and restarted once."""
    assert "0 of 50,000 flights lost, 0 out of order" in judge()

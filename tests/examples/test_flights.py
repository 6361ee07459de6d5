"""The flights examples, whole: every row through a broker and back, and a reminder for each."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "flights" / "flights.py"


@pytest.mark.slow
def test_every_flight_comes_back_equal() -> None:
    """Counts, delay sums and checksums per carrier equal those of the package; the script says so and exits with 0."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "received 336,776 flights" in done.stdout
    assert done.stdout.rstrip().endswith("equal: yes")
    assert "no:" not in done.stdout


@pytest.mark.slow
def test_each_flight_has_its_reminder_in_time() -> None:
    """A day of flights in three seconds: one reminder each, none before its boarding closes."""
    command = [sys.executable, str(SCRIPT.with_name("reminders.py")), "--days", "1", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "842 reminders of 842 flights, 0 twice, 0 early" in done.stdout

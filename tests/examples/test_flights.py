"""The flights examples, in full under ``make deep``: every row returns, reminders come, order survives a crash."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "flights" / "flights.py"


@pytest.mark.slow
def test_ten_thousand_flights_come_back_equal() -> None:
    """The short run of the test below takes a second."""
    command = [sys.executable, str(SCRIPT), "--flights", "10000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "received 10,000 flights" in done.stdout
    assert done.stdout.rstrip().endswith("equal: yes")


@pytest.mark.soak
@pytest.mark.slow
def test_every_flight_comes_back_equal() -> None:
    """Counts, delay sums and checksums per carrier equal the package's; the script reports it and exits with 0."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "received 336,776 flights" in done.stdout
    assert done.stdout.rstrip().endswith("equal: yes")
    assert "no:" not in done.stdout


@pytest.mark.soak
@pytest.mark.slow
def test_each_flight_has_its_reminder_in_time() -> None:
    """A day of flights in three seconds: one reminder each, none before its boarding closes."""
    command = [sys.executable, str(SCRIPT.with_name("reminders.py")), "--days", "1", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "842 reminders of 842 flights, 0 twice, 0 early" in done.stdout


@pytest.mark.soak
@pytest.mark.slow
def test_each_aircraft_keeps_its_order_through_a_killed_consumer() -> None:
    """One of three processes dies halfway: every flight takes effect once, in the order of the package."""
    command = [sys.executable, str(SCRIPT.with_name("aircraft.py")), "--flights", "4000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"(worker-\d) killed when ([\d,]+) flights were written down, ([\d,]+) by it", done.stdout)
    assert killed is not None
    assert 0 < int(killed[3].replace(",", "")) <= int(killed[2].replace(",", "")) < 4000
    assert re.search(r"^[1-9][\d,]* messages came again to them, and had no effect$", done.stdout, re.MULTILINE)
    assert "4,000 effects of 4,000 flights by worker-1" in done.stdout
    assert " aircraft: 0 with another order, 0 with other sums" in done.stdout
    assert done.stdout.rstrip().endswith("equal: yes")


@pytest.mark.soak
def test_bookings_and_messages_agree_after_every_kill() -> None:
    """Agent, then broker, are killed with -9 at each step of a transaction: one message per booking, no other."""
    command = [sys.executable, str(SCRIPT.with_name("booking.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    for party in ("agent", "broker"):
        assert done.stdout.count(f"{party} killed: ") == 5
    assert "28 bookings, 28 messages: 0 missing, 0 without a booking, 0 twice" in done.stdout

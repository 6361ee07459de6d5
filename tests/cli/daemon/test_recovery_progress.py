"""The output of a daemon while it recovers."""

import io

from pocketmq.cli.daemon.recovery_progress import RecoveryProgress
from pocketmq.common.clock import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_short_recovery_shows_nothing() -> None:
    """In the first second it prints no line."""
    stream, clock = io.StringIO(), ManualClock()
    progress = RecoveryProgress(stream, clock)
    progress(0, 100)
    clock.advance_ms(900)
    progress(90, 100)
    assert stream.getvalue() == ""


def test_a_long_one_says_how_far_it_is_once_a_second() -> None:
    """It does so where stderr is no terminal; the rebuild of the queues is a separate part."""
    stream, clock = io.StringIO(), ManualClock()
    progress = RecoveryProgress(stream, clock)
    progress(1_000_000, 11_000_000)
    for at in range(2, 12):
        clock.advance_ms(500)
        progress(at * 1_000_000, 11_000_000)
    progress(1_000_000, 11_000_000)
    clock.advance_ms(1000)
    progress(6_000_000, 11_000_000)
    progress.close()
    clock.advance_ms(5000)
    progress(7_000_000, 11_000_000)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "recovery: verifying the log: 20 % (2 of 10 MB)"
    assert [line.split(": ")[2].split(" ")[0] for line in lines[:5]] == ["20", "40", "60", "80", "100"]
    assert lines[-1] == "recovery: rebuilding queues: 50 % (5 of 10 MB)"
    assert len(lines) == 6


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    """The bar is transient: no line of it stays above the ready line."""
    stream, clock = Terminal(), ManualClock()
    progress = RecoveryProgress(stream, clock)
    progress(0, 1000)
    clock.advance_ms(2000)
    progress(500, 1000)
    progress(0, 1000)
    progress(900, 1000)
    progress.close()
    assert "recovery" in stream.getvalue()

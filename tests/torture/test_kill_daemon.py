"""A few rounds of ``kill -9``; ``make torture`` has 200."""

import random
from pathlib import Path

import pytest

from tests.modes import Mode
from tests.sim.seeds import base_seed
from tests.torture.kill_daemon import KillRounds


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_two_kills_under_load_lose_nothing_acknowledged(tmp_path: Path, flush_disk_type: str) -> None:
    """A real process is killed at some moment under load, and again after its recovery."""
    mode = Mode("mapped", "none", flush_disk_type, "alone")
    rounds = KillRounds(tmp_path, random.Random(base_seed()), mode)
    for _ in range(2):
        rounds.run()
    assert rounds.acknowledged

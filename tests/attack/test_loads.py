"""What a stranger sends must not keep others waiting: each load against a real broker, with a bystander beside it.

Memory and errors are asserted. Times belong to the machine, which has other tests to serve: they are printed, and only
what no slow machine explains fails. ``python -m tests.attack`` prints the figures of a quiet one, beside the goals.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.attack.loads import LOADS
from tests.attack.target import attack

SECONDS: Final = 10.0
MEMORY_MIB_MAX: Final = 450
HANG_S: Final = 30.0
"""A bystander that is refused, a recovery or a stop that takes longer hangs."""


@pytest.mark.soak
@pytest.mark.parametrize("load", LOADS)
async def test_a_bystander_is_served_under_attack(load: str, tmp_path: Path) -> None:
    """It goes on, the broker's memory stays bounded, no thread dies, and the stop ends."""
    figures = await attack(tmp_path, load, SECONDS)
    print(load, figures.line())
    assert figures.errors == []
    assert figures.memory_mib < MEMORY_MIB_MAX
    assert max(figures.refused_ms, figures.recovery_ms) < HANG_S * 1_000, figures.line()
    assert figures.stop_s < HANG_S, figures.line()


async def test_the_harness_sees_a_broker_under_attack(tmp_path: Path) -> None:
    """A short attack: the bystander goes on, and both processes end."""
    figures = await attack(tmp_path, "long_texts", 0.5, again_s=0.2)
    assert figures.rounds > 0
    assert figures.errors == []
    assert 0 < figures.memory_mib < MEMORY_MIB_MAX

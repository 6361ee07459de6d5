"""What a stranger sends must not keep others waiting: each load against a real broker, with a bystander beside it.

Bounds are those of a machine that has little else to do: the attacker has a core of its own, and a core that also
serves other tests makes everything slow. ``python -m tests.attacks`` prints the figures.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.attacks.loads import LOADS
from tests.attacks.target import attack

SECONDS: Final = 10.0
MEMORY_MIB_MAX: Final = 450
STOP_S_MAX: Final = 2.0
REFUSED_MS_MAX: Final = 1_000
RECOVERY_MS_MAX: Final = 2_000
P99_MS_MAX: Final = 100
BATCH_P99_MS_MAX: Final = 250
"""A batch is stored as a whole, and the largest one, 10,000 messages, takes the send thread 150 ms."""


@pytest.mark.soak
@pytest.mark.parametrize("load", LOADS)
async def test_a_bystander_is_served_under_attack(load: str, tmp_path: Path) -> None:
    """Its p99, its refusals, the broker's memory and its stop stay within bounds, and no thread dies."""
    figures = await attack(tmp_path, load, SECONDS)
    print(load, figures.line())
    assert figures.errors == []
    assert figures.memory_mib < MEMORY_MIB_MAX
    assert figures.refused_ms < REFUSED_MS_MAX
    assert figures.recovery_ms < RECOVERY_MS_MAX
    assert figures.stop_s < STOP_S_MAX
    assert figures.p99_ms < (BATCH_P99_MS_MAX if load == "empty_batches" else P99_MS_MAX), figures.line()


async def test_the_harness_sees_a_broker_under_attack(tmp_path: Path) -> None:
    """A short attack: the bystander goes on, and both processes end."""
    figures = await attack(tmp_path, "long_texts", 0.5, again_s=0.2)
    assert figures.rounds > 0
    assert figures.errors == []
    assert 0 < figures.memory_mib < MEMORY_MIB_MAX

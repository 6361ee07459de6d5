"""Random lives of a replicated group: no acknowledged message is lost, whichever node dies."""

import time

import pytest

from tests.profiles import lives_ns
from tests.sim.replication import ReplicatedLife
from tests.sim.seeds import base_seed

KNOWN: tuple[int, ...] = (1, 2, 3, 4, 13, 292)
"""Seeds that always run; one that fails is added with its fix."""
LOSING = (1, 13)
"""Lives in which a slave that was replaced would be promoted without the check."""


def run(seed: int, steps: int) -> ReplicatedLife:
    try:
        life = ReplicatedLife(seed)
        life.live(steps)
    except BaseException as error:
        error.add_note(f"POCKETMQ_SEED={seed}")
        raise
    return life


@pytest.mark.slow
@pytest.mark.parametrize("seed", KNOWN)
def test_known_lives(seed: int) -> None:
    """These seeds include sends, kills, power cuts, lost disks and promotions."""
    life = run(seed, 60)
    assert life.counts["acknowledged"] > 0


@pytest.mark.slow
@pytest.mark.scaled
def test_random_lives_for_some_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """As many as fit; the seed of a life that fails is printed."""
    seed, number = base_seed(), 0
    totals: dict[str, int] = {}
    deadline_ns = time.monotonic_ns() + lives_ns()
    while time.monotonic_ns() < deadline_ns:
        life = run(seed + number, 40)
        number += 1
        for name, count in life.counts.items():
            totals[name] = totals.get(name, 0) + count
    with capsys.disabled():
        print(f" seed {seed}, {number} lives, {totals}", end="")


@pytest.mark.slow
def test_without_epochs_of_counted_slaves_messages_are_lost() -> None:
    """In the same lives operator and name server ignore replaced nodes: the simulation finds the loss."""
    lost: list[int] = []
    for seed in LOSING:
        life = ReplicatedLife(seed, ignore_members=True)
        try:
            life.live(40)
        except AssertionError as error:
            if "acknowledged messages are lost" in str(error):
                lost.append(seed)
        run(seed, 40)
    assert lost, "none of these lives promotes a slave that was replaced"

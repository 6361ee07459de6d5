"""Every crash in every short life of a store, and some random long lives. ``make torture`` runs more of both."""

import itertools
import random
import time

import pytest

from tests.profiles import lives_ns
from tests.sim.schedules import STEPS, Outcome, random_life, run_schedule
from tests.sim.seeds import KNOWN, base_seed

CORE = ("append", "roll", "append_b", "group_commit", "dispatch", "write_queues", "checksums", "checkpoint", "close")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("append_mode", "flush_disk_type"),
    [
        ("mapped", "ASYNC_FLUSH"),
        pytest.param("mapped", "SYNC_FLUSH", marks=pytest.mark.soak),
        pytest.param("written", "ASYNC_FLUSH", marks=pytest.mark.soak),
        ("written", "SYNC_FLUSH"),
    ],
)
def test_every_crash_in_every_two_steps(append_mode: str, flush_disk_type: str) -> None:
    """Kills at every change of the disk, and power cuts after each of them: the four rules hold."""
    outcome = Outcome()
    for steps in itertools.product(("append", "roll"), CORE):
        outcome.add(
            run_schedule(list(steps), random.Random(1), 4, append_mode=append_mode, flush_disk_type=flush_disk_type)
        )
    assert outcome.crashes > 300
    assert outcome.cut > 0


@pytest.mark.slow
@pytest.mark.parametrize("last", ["commit", "checkpoint", pytest.param("close", marks=pytest.mark.soak)])
def test_every_crash_with_a_write_buffer_pool(last: str) -> None:
    """With the pool only committed messages are promised to survive a kill."""
    for first in ("append", "roll"):
        for middle in ("append_b", "commit"):
            outcome = run_schedule(
                [first, middle, last],
                random.Random(2),
                3,
                transient_store_pool_enable=True,
                transient_store_pool_size=2,
            )
            assert outcome.crashes > 3


@pytest.mark.slow
@pytest.mark.scaled
def test_random_lives_for_some_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """Random steps, kills, power cuts and killed recoveries; a failing life prints its seed."""
    seed = base_seed()
    outcome = Outcome()
    deadline_ns = time.monotonic_ns() + lives_ns()
    number = 0
    while time.monotonic_ns() < deadline_ns:
        try:
            outcome.add(random_life(seed + number))
        except BaseException as error:
            error.add_note(f"POCKETMQ_SEED={seed + number}")
            raise
        number += 1
    with capsys.disabled():
        print(f" seed {seed}, {number} lives, {outcome.crashes} crashes, {outcome.cut} torn tails", end="")
    assert outcome.crashes > number


@pytest.mark.parametrize("seed", KNOWN)
def test_seeds_that_once_failed(seed: int) -> None:
    """They stay fixed."""
    random_life(seed)


def test_the_steps_are_all_there() -> None:
    """A schedule names only existing steps."""
    assert set(CORE) | {"commit", "flush"} <= set(STEPS)

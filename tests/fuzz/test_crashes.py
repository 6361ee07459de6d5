"""Every input that a fuzzer once found crashes nothing any more, and every seed is read."""

from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.target import Target, TooMuch, check
from tests.fuzz.targets import TARGETS, crashes

SEEDS_MAX = 4
"""Seeds of one target that a test runs; a fuzzer runs them all."""


@pytest.mark.parametrize(("name", "path"), [pytest.param(*each, id=f"{each[0]}-{each[1].name}") for each in crashes()])
def test_a_crash_that_was_found_is_cured(name: str, path: Path) -> None:
    check(TARGETS[name], path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_reads_its_seeds(name: str) -> None:
    """Within its bounds; a target without seeds would begin with nothing."""
    seeds = list(islice(TARGETS[name].seeds(), SEEDS_MAX))
    assert seeds
    for seed in seeds:
        check(TARGETS[name], seed)


def test_what_counts_as_a_crash() -> None:
    """Another error, too many calls, too much memory."""

    def fails(data: bytes) -> None:
        if data:
            raise KeyError(data)

    def works(data: bytes) -> None:
        for _ in range(sum(data) * 1000):
            len(data)

    with pytest.raises(KeyError):
        check(Target(fails, list), b"x")
    check(Target(works, list), b"\x01")
    with pytest.raises(TooMuch, match="calls"):
        check(Target(works, list), b"\xff")
    check(Target(lambda data: bytes(1 << 20), list), b"")
    with pytest.raises(TooMuch, match="memory"):
        check(Target(lambda data: bytes(64 << 20), list), b"")

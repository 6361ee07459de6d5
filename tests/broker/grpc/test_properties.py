"""The queue of a message group is the one that RocketMQ's proxy chooses."""

import pytest

from pocketmq.broker.grpc.properties import consistent_hash, queue_of

OF_GUAVA = {
    (10_863_919_174_838_991, 11): 6,
    (2_016_238_256_797_177_309, 11): 3,
    (1_673_758_223_894_951_030, 11): 5,
    (2, 100_001): 80_343,
    (2_201, 100_001): 22_152,
    (2_202, 100_001): 15_018,
}
"""Values that Guava's own tests hold (``HashingTest.testConsistentHash_linearCongruentialGeneratorCompatibility``)."""
HUNDRED = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
"""The buckets of 0 to 19 among 100, from the same tests."""


@pytest.mark.parametrize("given", list(OF_GUAVA))
def test_the_hash_is_guava_s(given: tuple[int, int]) -> None:
    assert consistent_hash(*given) == OF_GUAVA[given]


def test_the_first_numbers_among_a_hundred_buckets_are_guava_s() -> None:
    assert [consistent_hash(number, 100) for number in range(20)] == HUNDRED


def test_a_queue_more_moves_few_groups() -> None:
    groups = [f"group-{number}" for number in range(1_000)]
    before, after = [queue_of(group, 8) for group in groups], [queue_of(group, 9) for group in groups]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {8}
    assert len(moved) < 200
    assert set(before) == set(range(8))

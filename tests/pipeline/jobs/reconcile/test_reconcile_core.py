"""Misplaced rows: as few as possible, however the batches are cut."""

from itertools import combinations, pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.pipeline.jobs.reconcile.misplaced import BLOCK, RANK, keep_misplaced, misplaced


def fewest(positions: list[int]) -> int:
    """Return the size of the smallest set of rows without which the others rise, by trying all sets."""
    for count in range(len(positions) + 1):
        for out in combinations(range(len(positions)), count):
            left = [position for index, position in enumerate(positions) if index not in out]
            if left == sorted(left):
                return count
    raise AssertionError


@given(st.permutations(range(7)))
def test_as_few_as_possible_are_misplaced(positions: list[int]) -> None:
    """The remaining rows are in order, and no smaller set would do."""
    found = misplaced(positions)
    left = [position for index, position in enumerate(positions) if index not in found]
    assert left == sorted(left)
    assert len(found) == fewest(positions)


def test_the_known_disorders() -> None:
    """Two distant rows that swapped places count as two, neighbors as one, a late row as one."""
    assert misplaced([0, 5, 2, 3, 4, 1, 6]) == [1, 5]
    assert len(misplaced([0, 2, 1, 3])) == 1
    assert misplaced([1, 2, 3, 4, 0]) == [4]
    assert misplaced([]) == []


@given(st.lists(st.permutations(range(4)), max_size=6), st.lists(st.integers(0, 24), max_size=6))
def test_sequences_are_judged_one_by_one_however_batches_are_cut(sequences: list[list[int]], cuts: list[int]) -> None:
    """A sequence may begin in one batch and end in the next."""
    rows = [(f"b{number}", rank) for number, sequence in enumerate(sequences) for rank in sequence]
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut <= len(rows))})
    batches = [
        pa.record_batch(
            {BLOCK: pa.array([b for b, _ in rows[low:high]]), RANK: pa.array([r for _, r in rows[low:high]])}
        )
        for low, high in pairwise(bounds)
    ]
    found = [
        (block, rank)
        for batch in keep_misplaced(iter(batches))
        for block, rank in zip(batch[BLOCK].to_pylist(), batch[RANK].to_pylist(), strict=True)
    ]
    expected = [
        (f"b{number}", sequence[index]) for number, sequence in enumerate(sequences) for index in misplaced(sequence)
    ]
    assert found == expected

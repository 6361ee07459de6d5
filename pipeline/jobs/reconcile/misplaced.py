"""Rows out of order: the smallest set of rows without which the others are in order.

Lives here: ``misplaced`` (one sequence), ``keep_misplaced`` (many sequences in Arrow batches).
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pyarrow import RecordBatch

BLOCK: Final = "_block"
RANK: Final = "_rank"


def misplaced(positions: Sequence[int]) -> list[int]:
    """Return the indexes that are not in a longest increasing run of ``positions`` (distinct numbers), ascending.

    Patience sorting: n log n steps. Of two neighbors that changed places, the late one counts.
    """
    tails: list[int] = []
    at: list[int] = []
    previous = [-1] * len(positions)
    for index, position in enumerate(positions):
        place = bisect_left(tails, position)
        if place == len(tails):
            tails.append(position)
            at.append(index)
        else:
            tails[place] = position
            at[place] = index
        previous[index] = at[place - 1] if place else -1
    kept = set()
    index = at[-1] if at else -1
    while index >= 0:
        kept.add(index)
        index = previous[index]
    return [index for index in range(len(positions)) if index not in kept]


def keep_misplaced(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    """Yield the rows that are misplaced within their sequence. Rows of one ``BLOCK`` are adjacent, in the expected
    order; ``RANK`` is the actual one. Holds one sequence at a time.
    """
    waiting: list[RecordBatch] = []
    for batch in batches:
        if not len(batch):
            continue
        blocks = batch.column(BLOCK).to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), len(batch)]
        if waiting and waiting[-1].column(BLOCK)[0].as_py() != batch.column(BLOCK)[0].as_py():
            yield from _judged(waiting)
            waiting = []
        for start, end in itertools.pairwise(starts):
            waiting.append(batch.slice(start, end - start))
            if end < len(batch):
                yield from _judged(waiting)
                waiting = []
    if waiting:
        yield from _judged(waiting)


def _judged(parts: "list[RecordBatch]") -> "Iterator[RecordBatch]":
    import pyarrow as pa

    ranks: list[Any] = [rank for part in parts for rank in part.column(RANK).to_pylist()]
    found = misplaced(ranks)
    if found:
        table = pa.Table.from_batches(parts).take(pa.array(found, pa.int64()))
        yield from table.to_batches()

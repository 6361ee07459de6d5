"""Duplicates in sorted batches.

Lives here: ``mark``, a pass over rows sorted by key and time.

A row is a duplicate if a row of the same key was kept at most ``window_us`` before it. The window begins at the kept
row: in a chain of copies, each a little later than the one before, the next one is kept once the window is over. This
is the least that Spark's ``dropDuplicatesWithinWatermark`` guarantees; here it is exact.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyarrow import RecordBatch

KEY: Final = "_key"
TIME: Final = "_time_us"
DUPLICATE: Final = "_duplicate"


def mark(batches: "Iterator[RecordBatch]", window_us: int | None) -> "Iterator[RecordBatch]":
    """Yield the batches with the column ``DUPLICATE`` filled; rows are sorted by ``KEY`` and ``TIME``. Holds one batch
    and the last kept row of one key. ``window_us`` None: a window without end.
    """
    import pyarrow as pa
    from pyarrow import compute

    last_key: Any = None
    kept_us = 0
    for batch in batches:
        count = len(batch)
        if not count:
            continue
        keys = batch.column(KEY)
        times = batch.column(TIME).to_numpy(zero_copy_only=False)
        same = np.zeros(count, np.bool_)
        same[1:] = compute.equal(keys.slice(1), keys.slice(0, count - 1)).to_numpy(zero_copy_only=False)
        same[0] = last_key is not None and keys[0].as_py() == last_key
        duplicate, kept_us = _judge(same, times, kept_us, window_us)
        last_key = keys[count - 1].as_py()
        names = batch.schema.names
        columns = [pa.array(duplicate) if name == DUPLICATE else batch.column(name) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _judge(
    same: NDArray[np.bool_], times: NDArray[np.int64], kept_us: int, window_us: int | None
) -> tuple[NDArray[np.bool_], int]:
    """Return which rows are duplicates, and the time of the last kept row. ``same``: the key is the preceding row's."""
    if window_us is None:
        fresh = np.flatnonzero(~same)
        return same.copy(), int(times[fresh[-1]]) if len(fresh) else kept_us
    duplicate = same.copy()
    at = -1
    for row in np.flatnonzero(same).tolist():  # only rows that have a row of their key before them
        if row and not same[row - 1]:
            kept_us = int(times[row - 1])
        at = row
        if int(times[row]) - kept_us > window_us:
            duplicate[row] = False
            kept_us = int(times[row])
    if at < len(same) - 1:  # the last row begins a key, and was kept
        kept_us = int(times[-1])
    return duplicate, kept_us

"""Duplicates in sorted rows equal those of a small model, however the batches are cut."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.pipeline.jobs.dedupe.scan import DUPLICATE, KEY, TIME, mark


def model(rows: list[tuple[str, int]], window_us: int | None) -> list[bool]:
    """A row is a duplicate if one of its key was kept at most the window before it."""
    kept: dict[str, int] = {}
    result = []
    for key, time in rows:
        found = key in kept and (window_us is None or time - kept[key] <= window_us)
        if not found:
            kept[key] = time
        result.append(found)
    return result


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), max_size=30),
    st.lists(st.integers(0, 30), max_size=5),
    st.sampled_from([None, 0, 2, 5]),
)
def test_marks_are_those_of_the_model(rows: list[tuple[str, int]], cuts: list[int], window_us: int | None) -> None:
    """Keys that begin in one batch continue in the next."""
    rows.sort()
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut <= len(rows))})
    batches = [
        pa.record_batch(
            {
                KEY: pa.array([key for key, _ in rows[low:high]], pa.string()),
                TIME: pa.array([time for _, time in rows[low:high]], pa.int64()),
                DUPLICATE: pa.array([False] * (high - low)),
            }
        )
        for low, high in zip([0, *bounds], [*bounds, len(rows)], strict=True)
        if low <= high
    ]
    marks = [value for batch in mark(iter(batches), window_us) for value in batch[DUPLICATE].to_pylist()]
    assert marks == model(rows, window_us)


@pytest.mark.parametrize(("window_us", "kept"), [(None, 1), (10, 2), (4, 5)])
def test_a_chain_of_copies_is_kept_again_after_the_window(window_us: int | None, kept: int) -> None:
    """Five copies, each 5 after the previous one: the window counts from the row that was kept."""
    batch = pa.record_batch(
        {KEY: pa.array(["k"] * 5), TIME: pa.array([0, 5, 10, 15, 20]), DUPLICATE: pa.array([False] * 5)}
    )
    [marked] = mark(iter([batch]), window_us)
    assert marked[DUPLICATE].to_pylist().count(False) == kept

"""What the counter counts."""

import sys
import threading

from bench.calls.counter import CallCounter


def _inner(values: list[int]) -> int:
    return len(values)


def _outer(times: int) -> None:
    for _ in range(times):
        _inner([])


def _functions(counter: CallCounter, work: threading.Thread) -> dict[str, dict[str, int]]:
    before = threading.getprofile(), sys.getprofile()
    counter.install()
    sys.setprofile(before[1])  # this thread goes on as it was: only the new one is counted
    try:
        counter.start()
        work.start()
        work.join()
        return counter.stop()
    finally:
        threading.setprofile(before[0])


def test_python_and_c_calls_count_by_thread_and_function() -> None:
    """A C function is named with its caller."""
    counts = _functions(CallCounter(), threading.Thread(target=_outer, args=(7,), name="counted"))
    [found] = counts.values()
    here = {name.rpartition("/")[2]: number for name, number in found.items() if "test_counter" in name}
    assert here == {"test_counter.py:_outer": 1, "test_counter.py:_inner": 7, "test_counter.py:_inner → len": 7}


def test_nothing_counts_outside_of_a_window() -> None:
    """``stop`` ends a window; the next one begins empty."""
    counter = CallCounter()
    _functions(counter, threading.Thread(target=_outer, args=(3,)))
    _outer(2)
    counter.start()
    assert counter.stop() == {}

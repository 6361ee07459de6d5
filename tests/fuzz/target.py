"""What a fuzzer runs, and when an input counts as a crash.

Lives here: ``Target``, ``check``, ``Work``.

An input crashes a target when it raises anything but PocketMQ's own errors, when two ways to read the same bytes
disagree, or when it takes more memory or more work than its length allows. Work is counted in calls of Python and C
functions, so the verdict is the same on every machine.
"""

import sys
import tracemalloc
from collections.abc import Callable, Iterable
from functools import cache
from types import FrameType
from typing import Any, Final, NamedTuple

from pocketmq.common.errors import PocketMQError

CALLS_MAX: Final = 100_000
CALLS_A_BYTE: Final = 200
MEMORY_BYTES_MAX: Final = 32 << 20
MEMORY_A_BYTE: Final = 200
INPUT_BYTES_MAX: Final = 8192


class Target(NamedTuple):
    """``run`` reads one input; ``seeds`` are good ones, from which the fuzzer begins."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    memory_bytes_max: int = MEMORY_BYTES_MAX
    calls_max: int = CALLS_MAX


class TooMuch(AssertionError):
    """An input takes more memory or work than its length allows."""


def outcome(run: Callable[[Any], object], data: Any) -> object:
    """Return what ``run`` returns, or the class of the error of ours that it raises."""
    try:
        return run(data)
    except PocketMQError as error:
        return type(error)


@cache
def _warm(target: Target) -> None:
    """Run one seed: what is made once does not count, as a parser or a module."""
    outcome(target.run, next(iter(target.seeds()), b""))


def check(target: Target, data: bytes) -> None:
    """Run an input and count its work and its memory. Raises what makes it a crash."""
    _warm(target)
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    was_tracing, before = tracemalloc.is_tracing(), sys.getprofile()
    tracemalloc.start()
    tracemalloc.reset_peak()
    base, _ = tracemalloc.get_traced_memory()
    sys.setprofile(count)
    try:
        outcome(target.run, data)
    finally:
        sys.setprofile(before)
        _, peak = tracemalloc.get_traced_memory()
        if not was_tracing:
            tracemalloc.stop()
    if calls > target.calls_max + CALLS_A_BYTE * len(data):
        raise TooMuch(f"{calls} calls for {len(data)} bytes")
    if peak - base > target.memory_bytes_max + MEMORY_A_BYTE * len(data):
        raise TooMuch(f"{peak - base} bytes of memory for {len(data)} bytes")

"""Which calls hold the GIL: how long another thread stalls while bulk bytes move or a disk call runs.

The measurements behind ADR 0002. A second thread notes the time every 0.2 ms; its longest gap while a call runs is the
stall that the broker's event loop would see.
"""

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from bench.base.harness import scaled, workspace

MIB = 1 << 20
COPY_BYTES = scaled(256, 32) * MIB
MADV_POPULATE_WRITE = 23  # linux/mman.h, Linux 5.14


def longest_gap_ms(call: Callable[[], object]) -> tuple[float, float]:
    """Run ``call``; return the longest gap in another thread's ticks while it ran, and its duration, both in ms."""
    gaps: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not stop.is_set():
            time.sleep(0.0002)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticker = threading.Thread(target=tick)
    ticker.start()
    time.sleep(0.02)
    gaps.clear()
    begin = time.perf_counter()
    call()
    duration = time.perf_counter() - begin
    time.sleep(0.002)
    stop.set()
    ticker.join()
    return max(gaps) * 1000, duration * 1000


@contextmanager
def fresh_map(directory: Path) -> Iterator[tuple[int, mmap.mmap]]:
    """Yield a descriptor and a map of a reserved file of ``COPY_BYTES`` without a page in memory."""
    descriptor = os.open(directory / f"map{time.monotonic_ns()}", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, COPY_BYTES)
    yield descriptor, mmap.mmap(descriptor, COPY_BYTES)
    os.close(descriptor)


def run() -> Iterator[dict[str, object]]:
    """Yield one result a call: what it was, its duration and the stall of the other thread."""
    source = np.random.default_rng(1).integers(0, 255, COPY_BYTES, dtype=np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with workspace() as directory:

        def case(label: str, call: Callable[[], object]) -> dict[str, object]:
            gap_ms, duration_ms = longest_gap_ms(call)
            return {"case": label, "duration_ms": round(duration_ms, 1), "other_thread_stalls_ms": round(gap_ms, 2)}

        with fresh_map(directory) as (_, view):
            copy = partial(view.__setitem__, slice(None), source.data)
            yield case("memoryview slice assignment, into cold pages", copy)
            yield case("mmap.flush, dirty", view.flush)
        with fresh_map(directory) as (descriptor, view):
            yield case("numpy copy, into cold pages", partial(np.copyto, np.frombuffer(view, np.uint8), source))
            yield case("os.fdatasync, dirty", partial(os.fdatasync, descriptor))
        with fresh_map(directory) as (_, view):
            address = np.frombuffer(view, np.uint8).ctypes.data
            populate = partial(libc.madvise, address, COPY_BYTES, MADV_POPULATE_WRITE)
            yield case("madvise(MADV_POPULATE_WRITE) through ctypes", populate)

"""What the machine can do at best, measured in the same run: nothing that is measured beside them can be faster.

Lives here: the floors as rows. uvloop echo and socket to file are those of ``pocketmq bench``; bytes copied into a
mapped file, and the disk's syncs (``fdatasync`` after 1 KiB and after 64 KiB, into blocks written before).
"""

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.base.histogram import Latencies
from pocketmq.cli.bench import floors as bench_floors
from pocketmq.cli.run import run_async

MAPPED_BYTES = 256 << 20
COPY_SIZES = (1024, 1 << 20)
SYNC_SIZES = (1024, 65_536)
SYNC_S = 1.5


def rows(directory: Path, *, quick: bool) -> Iterator[dict[str, object]]:
    """Yield one row a floor; files go to ``directory`` and are removed."""
    for floor in run_async(bench_floors.measure(directory, quick=True)) or []:
        row: dict[str, object] = {"floor": floor.name, "messages_per_s": round(floor.rate)}
        if floor.p50_ms is not None:
            row["p50_ms"] = round(floor.p50_ms, 4)
        yield row
    for size_bytes in COPY_SIZES:
        yield copy_row(directory / "mapped", size_bytes)
    for size_bytes in SYNC_SIZES:
        yield sync_row(directory / "synced", size_bytes, SYNC_S / 3 if quick else SYNC_S)


def copy_row(path: Path, size_bytes: int) -> dict[str, object]:
    """Copy blocks of one size into a mapped file, each page for the first time, as a log is written."""
    data = np.ones(size_bytes, np.uint8)
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, MAPPED_BYTES)
        with mmap.mmap(file.fileno(), MAPPED_BYTES) as mapped:
            view = np.frombuffer(mapped, np.uint8)
            count = MAPPED_BYTES // size_bytes
            begin = time.perf_counter()
            for at in range(0, count * size_bytes, size_bytes):
                view[at : at + size_bytes] = data
            seconds = time.perf_counter() - begin
            del view
    path.unlink()
    return {
        "floor": f"copy into a mapped file, {size_bytes:,} B at a time",
        "messages_per_s": round(count / seconds),
        "mb_per_s": round(count * size_bytes / seconds / 1e6),
    }


def sync_row(path: Path, size_bytes: int, seconds: float) -> dict[str, object]:
    """Write and ``fdatasync``, one after the other, within a file whose blocks were written before."""
    taken: list[int] = []
    span = 32 << 20
    with path.open("w+b", buffering=0) as file:
        for _ in range(span >> 20):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        data = os.urandom(size_bytes)
        at, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            os.pwrite(file.fileno(), data, at)
            begin = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter_ns() - begin)
            at = (at + size_bytes) % (span - size_bytes)
    path.unlink()
    latencies = Latencies.of_ns(taken)
    return {
        "floor": f"fdatasync after {size_bytes:,} B",
        "syncs_per_s": round(len(taken) / (sum(taken) / 1e9), 1),
        "p50_ms": round(latencies.percentile_ms(50), 4),
        "p99_ms": round(latencies.percentile_ms(99), 4),
    }

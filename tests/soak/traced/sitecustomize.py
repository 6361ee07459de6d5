"""Comes first into every process of ``make soak ARGS=--trace``: SIGUSR2 writes where Python's memory was allocated.

The first signal takes the base; each later one writes what was allocated since, the largest first, to
``$SOAK_TRACES/PID.txt``.
"""

import os
import signal
import tracemalloc
from pathlib import Path

base: list[tracemalloc.Snapshot] = []


def dump(number: int, frame: object) -> None:
    """Take the base, or write the growth since then."""
    snapshot = tracemalloc.take_snapshot()
    if not base:
        base.append(snapshot)
        return
    lines: list[str] = []
    for each in snapshot.compare_to(base[0], "traceback")[:40]:
        lines += [
            f"{each.size_diff:+} bytes, {each.count_diff:+} blocks",
            *each.traceback.format(most_recent_first=True),
        ]
    Path(os.environ["SOAK_TRACES"], f"{os.getpid()}.txt").write_text("\n".join(lines) + "\n")


if "SOAK_TRACES" in os.environ:
    tracemalloc.start(6)
    signal.signal(signal.SIGUSR2, dump)

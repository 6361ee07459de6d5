"""The write-buffer pool on against off: tails of sends while others use the disk.

Conditions: open loop at ``RATE`` sends a second of 1 KiB, ASYNC_FLUSH, segments of 64 MiB so that some are crossed; the
pool has five buffers. Three surroundings: a quiet disk; a second process that dirties the page cache as fast as it can
(at most ``DIRTY_BYTES``, overwritten in place); and the same with a slow disk: every ``SLOW_EVERY``-th access of the
broker to a file of its log takes ``SLOW_MS`` more, whether it is a store into the mapped file or a write.
Rounds alternate between on and off; medians of ``ROUNDS``.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from bench.base.harness import Row, faulty_disk, in_turns, medians, scaled, workspace
from bench.base.open_loop import Load, offer

RATE = 3000.0
PHASE_S = scaled(8.0, 1.5)
ROUNDS = scaled(3, 1)
DIRTY_BYTES = 2 << 30
SLOW_MS = 30
SLOW_EVERY = 50
SURROUNDINGS = ("quiet", "page cache dirtied", "page cache dirtied, slow disk")
TAILS = ("accepted_p50_ms", "accepted_p99_ms", "accepted_p999_ms", "accepted_max_ms")

_DIRTY = """
import os, sys
block = os.urandom(1 << 20)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(int(sys.argv[2]) >> 20):
            file.write(block)
"""


def measure(directory: Path, surroundings: str, pool: bool) -> dict[str, object]:
    """Run one phase on a fresh broker."""
    rule = {"operations": ["store", "write_at"], "path": "commitlog/*", "delay_ms": SLOW_MS}
    rules = [{**rule, "every": SLOW_EVERY, "bytes_min": 64}] if surroundings.endswith("slow disk") else []
    settings = ["store.mapped_file_size_commit_log=67108864", *faulty_disk(directory / "faults.json", *rules)]
    settings.append(f"store.transient_store_pool_enable={str(pool).lower()}")
    data = directory / "data"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        broker = stack.enter_context(BrokerProcess(data, *settings))
        if surroundings != "quiet":
            dirty = directory / "dirty"
            stack.callback(dirty.unlink, missing_ok=True)
            writer = subprocess.Popen([sys.executable, "-c", _DIRTY, str(dirty), str(DIRTY_BYTES)])
            stack.callback(writer.wait)
            stack.callback(writer.kill)
            time.sleep(1)
        load = Load(broker.address, "pool", RATE, PHASE_S)
        offer(Load(broker.address, "pool", RATE, 1))
        return offer(load).metrics(load)


def run() -> Iterator[Row]:
    """Yield the medians of on and off for each surrounding, and their ratio."""
    with workspace() as directory:
        for surroundings in SURROUNDINGS:
            rows = in_turns(ROUNDS, (False, True), lambda pool, of=surroundings: measure(directory, of, pool))  # type: ignore[misc]
            middle = {
                pool: medians([{key: float(str(row.get(key, "nan"))) for key in TAILS} for row in of_pool])
                for pool, of_pool in rows.items()
            }
            for pool, of_pool in rows.items():
                refused = sum(int(str(row["refused_per_s"])) for row in of_pool)
                lag_ms_max = max(float(str(row["lag_ms_max"])) for row in of_pool)
                counts = {"refused": refused, "lag_ms_max": lag_ms_max, "rounds": ROUNDS}
                yield {"case": surroundings, "pool": pool, **middle[pool], **counts}
            ratios = {key: round(middle[False][key] / middle[True][key], 2) for key in TAILS}
            yield {"ratio": f"{surroundings}: off / on", **ratios}

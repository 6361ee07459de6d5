"""The write-buffer pool, both kinds, against none: tails of sends while others use the disk.

Conditions: open loop at ``RATE`` sends a second of 1 KiB, ASYNC_FLUSH, segments of 64 MiB so that some are crossed; the
pool has five buffers: ``surviving`` ones in shared memory, or ``anonymous`` ones, RocketMQ's kind. Three surroundings:
a quiet disk; a second process that dirties the page cache as fast as it can (at most ``DIRTY_BYTES``, overwritten in
place); and the same with a slow disk: every ``SLOW_EVERY``-th access of the broker to a file of its log takes
``SLOW_MS`` more, whether it is a store into the mapped file or a write.

A round measures all three one after the other, in turning order. A round in which the generator itself was more than
``LATE_MS_MAX`` late says nothing about the broker: it is discarded and counted, and another one is made, up to
``ROUNDS_MAX`` in all. Medians of the rounds that count.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from bench.base.harness import Row, faulty_disk, medians, scaled, workspace
from bench.base.open_loop import Load, offer

RATE = 3000.0
PHASE_S = scaled(8.0, 1.5)
ROUNDS = scaled(5, 1)
ROUNDS_MAX = scaled(12, 2)
LATE_MS_MAX = 10.0
DIRTY_BYTES = 2 << 30
SLOW_MS = 30
SLOW_EVERY = 50
POOLS = ("off", "surviving", "anonymous")
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


def measure(directory: Path, surroundings: str, pool: str) -> dict[str, object]:
    """Run one phase on a fresh broker."""
    rule = {"operations": ["store", "write_at"], "path": "commitlog/*", "delay_ms": SLOW_MS}
    rules = [{**rule, "every": SLOW_EVERY, "bytes_min": 64}] if surroundings.endswith("slow disk") else []
    settings = ["store.mapped_file_size_commit_log=67108864", *faulty_disk(directory / "faults.json", *rules)]
    settings.append(f"store.transient_store_pool_enable={str(pool != 'off').lower()}")
    if pool == "anonymous":
        settings.append("store.transient_store_pool_path=anonymous")
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


def rounds(measured: Callable[[str], Row]) -> tuple[list[dict[str, Row]], int]:
    """Return the rounds that count, and how many were discarded because the generator was late in one of them."""
    good: list[dict[str, Row]] = []
    discarded = 0
    while len(good) < ROUNDS and len(good) + discarded < ROUNDS_MAX:
        turn = (len(good) + discarded) % len(POOLS)
        found = {pool: measured(pool) for pool in (*POOLS[turn:], *POOLS[:turn])}
        if max(float(str(row["lag_ms_max"])) for row in found.values()) > LATE_MS_MAX:
            discarded += 1
        else:
            good.append(found)
    return good, discarded


def run() -> Iterator[Row]:
    """Yield the medians of each kind for each surrounding, and its ratio to none."""
    with workspace() as directory:
        for surroundings in SURROUNDINGS:
            good, discarded = rounds(partial(measure, directory, surroundings))
            counts = {"rounds": len(good), "discarded": discarded}
            if not good:
                yield {
                    "case": surroundings,
                    **counts,
                    "why": f"the generator was over {LATE_MS_MAX:g} ms late each time",
                }
                continue
            middle: dict[str, dict[str, float]] = {}
            for pool in POOLS:
                of_pool = [found[pool] for found in good]
                middle[pool] = medians([{key: float(str(row.get(key, "nan"))) for key in TAILS} for row in of_pool])
                refused = sum(int(str(row["refused_per_s"])) for row in of_pool)
                yield {"case": surroundings, "pool": pool, **middle[pool], "refused": refused, **counts}
            for pool in POOLS[1:]:
                ratios = {key: round(middle["off"][key] / middle[pool][key], 2) for key in TAILS}
                yield {"ratio": f"{surroundings}: off / {pool}", **ratios}

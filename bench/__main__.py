"""Run benchmarks: ``python -m bench CASE…`` or ``make bench ARGS="records store"``; without a case, all quick ones.

Each case is a module of this package with ``run()``, which yields one dict a result: the first key names it, the
others are its figures and conditions. Results are printed as they come and kept as JSON lines under
``bench-results/``.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path

CASES = {
    "gil": "which calls stall the other threads",
    "records": "record codecs, µs a record",
    "remoting": "echo floor and remoting server",
    "store": "append, flush, beside memcpy and pwrite",
    "queues": "dispatch, index, get",
    "client": "producer and decoder without a broker",
    "core": "a whole broker: produce, consume, beside echo and socket-to-file",
    "consume": "push consumption: async, batch and plain handlers, 100 consumers joining, a stop handing over",
    "ordered": "ordered push consumption over 16 queues, a stop handing over",
    "overload": "goodput and refusals at 0.5 to 10 times capacity, open loop",
    "compression": "packing and unpacking by type and size, and through a broker (COUNT, default 20000)",
    "delay": "sends beside a million delayed messages, accuracy, restart (PENDING)",
    "pool": "tails of sends with and without the write-buffer pool on a busy disk",
    "sync_flush": "group commit against the disk's own rate of syncs, plain and with each sync slowed to 5 ms",
    "telemetry": "what counting times costs: two brokers, with and without",
    "transactions": "transactions beside plain sends, with RocketMQ's requests, beside open ones (TRANSACTIONS)",
    "verify": "pocketmq log verify in GB/s, by checksums and by records, beside a plain read",
    "recovery": "verification and start after a kill in GB/s, start after a clean stop (GIGABYTES, default 2)",
    "replication": "sends with and without a slave, async and sync; catch-up of a new slave (GIGABYTES, default 2)",
    "durable_retry": "the retry store's intake and the resends from it, beside plain sends (COUNT, default 200000)",
    "restart": "time to ready after --gigabytes of messages, clean and after kill -9",
}

LONG = (
    "compression",
    "delay",
    "durable_retry",
    "overload",
    "pool",
    "recovery",
    "replication",
    "restart",
    "sync_flush",
    "telemetry",
    "transactions",
)
"""Cases that take minutes: run only when named."""


def conditions() -> dict[str, object]:
    """Return what a reader must know to compare: the machine and the versions."""
    import numpy

    return {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


def main() -> int:
    """Run the named cases and print their results."""
    epilog = "cases:\n" + "\n".join(f"  {name:<10}{text}" for name, text in CASES.items())
    parser = argparse.ArgumentParser("bench", epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        choices=[[], *CASES],
        help=f"what to run (default: all but {', '.join(LONG)})",
    )
    names: list[str] = parser.parse_args().cases or [name for name in CASES if name not in LONG]
    directory = Path("bench-results")
    directory.mkdir(exist_ok=True)
    path = directory / time.strftime("%Y%m%d-%H%M%S.jsonl")
    with path.open("w") as results:
        print(json.dumps({"conditions": conditions()}), file=results, flush=True)
        for name in names:
            print(f"\n{name}: {CASES[name]}", file=sys.stderr)
            rows: Iterable[dict[str, object]] = importlib.import_module(f"bench.{name}").run()
            for row in rows:
                print("  " + "  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                print(json.dumps({"bench": name, **row}), file=results, flush=True)
    print(f"\nkept in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Start and idle: seconds to the ready line, memory and CPU of a server without clients.

Conditions: an empty store, loopback, default settings with metrics off, ``ROUNDS`` rounds in turn; the first round of
each kind, which may compile modules, does not count. Goals: ready in 0.8 s, 60 MB resident, 0.5 % of a core.

``ready_s``: from the start of the process to its ready line; ``start_cpu_s``: user and system time until then, which
other work on the machine disturbs less. ``resident_mb``, ``own_mb`` (Rss and Pss of ``/proc/PID/smaps_rollup``) and
``idle_cpu_percent`` after ``SETTLE_S``, the last over ``IDLE_S``.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.base.harness import Row, in_turns, scaled, workspace
from bench.base.processes import cpu_s, threads

ROUNDS = scaled(6, 2)
SETTLE_S = 3.0
IDLE_S = scaled(20.0, 5.0)
KINDS = {"standalone": ("--broker-port", "0", "--namesrv-port", "0"), "broker": ("--broker-port", "0")}
STOP_S = 30.0


def _rollup_mb(pid: int) -> dict[str, float]:
    """Return Rss and Pss of a process in MB of 1,024 KiB."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    fields = {row.split(":")[0]: row.split()[1] for row in rows if row.endswith("kB")}
    return {"resident_mb": int(fields["Rss"]) / 1024, "own_mb": int(fields["Pss"]) / 1024}


def _measure(kind: str) -> dict[str, float]:
    """Start a server, let it idle, stop it."""
    with workspace() as directory:
        command = [sys.executable, "-m", "pocketmq.cli.main", kind, "--data-dir", str(directory / "data")]
        command += [*KINDS[kind], "--log-level", "warning"]
        environment = {**os.environ, "POCKETMQ_METRICS__LISTEN_PORT": "0"}
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            try:
                assert process.stdout is not None
                if not process.stdout.readline().startswith(b"ready"):
                    raise RuntimeError(f"{kind} did not start")
                ready_s = time.perf_counter() - begin
                start_cpu_s = cpu_s([process.pid])
                time.sleep(SETTLE_S)
                before_s, begin = cpu_s([process.pid]), time.perf_counter()
                time.sleep(IDLE_S)
                idle = (cpu_s([process.pid]) - before_s) / (time.perf_counter() - begin)
                return {
                    "ready_s": ready_s,
                    "start_cpu_s": start_cpu_s,
                    "idle_cpu_percent": idle * 100,
                    **_rollup_mb(process.pid),
                    "threads": threads([process.pid]),
                }
            finally:
                process.terminate()
                try:
                    process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def run() -> Iterator[Row]:
    """Yield a row for each kind of server."""
    for kind, rounds in in_turns(ROUNDS, KINDS, _measure).items():
        counted = rounds[1:]
        medians = {name: round(statistics.median(each[name] for each in counted), 2) for name in counted[0]}
        yield {"server": kind, **medians, "ready_s_min": round(min(each["ready_s"] for each in counted), 2)}

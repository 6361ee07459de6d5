"""All cores of a machine: messages a second of ``pocketmq cluster --masters N`` with as many client processes.

Conditions: each broker and each client is limited to the same ``SHARE`` of a core (environment, default 0.25) by a
control group, so that two cores suffice to show two masters; without control groups pair i of a broker and a client is
bound to core i. Numbers of masters for which the machine lacks cores are left out. One topic with four queues on each
master, messages of 1 KiB, ASYNC_FLUSH. Each client sends to all masters, by single sends or batches, and has N times as
many in flight with N masters, so that each master has the same from each client. Numbers of masters take turns; medians
of ``ROUNDS``.

``of_one``: messages a second / (N x those of one master); the goal is 0.9. ``of_share``: CPU used / all shares; well
below that of one master means that other work had the cores, and that the run does not count.
"""

import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.base.cpu_shares import CpuShares
from bench.base.harness import Row, in_turns, scaled, workspace
from bench.base.processes import cpu_s
from bench.comparison.fleet import WorkerProcess

SHARE = float(os.environ.get("SHARE", "0.25"))
MASTERS = (1, 2, 4)
PHASE_S = scaled(4.0, 1.0)
ROUNDS = scaled(3, 1)
SIZE_BYTES = 1024
LOADS = {"single sends": (64, 1), "batches of 100": (8, 100)}
"""Name → in flight from one client to one master, messages of one call."""
STOP_S = 60.0
CPU = ("brokers_cpu", "clients_cpu")
"""Cores used by all brokers and by all clients."""
BROKER_ROW = re.compile(r"broker-\S+ +[A-Z_]+ +\S+:\d+ +(\d+) .*")


@dataclass
class Running:
    """A cluster: the address of its name server, the ids of its brokers."""

    namesrv: str
    brokers: list[int]


@contextmanager
def masters(number: int, directory: Path) -> Iterator[Running]:
    """Run the command on free ports until the end of the block."""
    command = [sys.executable, "-m", "pocketmq.cli.main", "cluster", "--masters", str(number), "-d", str(directory)]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--set", "log.level=error"]
    with (directory.parent / f"{directory.name}.log").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        if not ready:
            raise RuntimeError(f"the cluster did not start: {Path(errors.name).read_text()[-2000:]}")
        pids = []
        for line in process.stdout:
            if match := BROKER_ROW.fullmatch(line.strip()):
                pids.append(int(match[1]))
            if line.startswith("end "):
                break
        yield Running(ready[1].removeprefix("namesrv="), pids)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _ask_all(workers: Sequence[WorkerProcess], job: dict[str, object]) -> list[dict[str, object]]:
    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(lambda worker: worker.ask(job), workers))


def _measure(number: int, share: float) -> dict[str, dict[str, float]]:
    """Run every load once with so many masters; return messages and CPU seconds a second by load."""
    with workspace() as directory, CpuShares(share) as shares, ExitStack() as stack:
        running = stack.enter_context(masters(number, directory / "cluster"))
        workers = []
        for at in range(number):
            worker = WorkerProcess("pocketmq", directory / f"client-{at}.log")
            stack.callback(worker.stop)
            workers.append(worker)
        target = {"namesrv": running.namesrv, "address": ""}
        workers[0].ask({"op": "create", "topics": ["masters"], "queues": 4, "target": target})
        for pair, (broker, worker) in enumerate(zip(running.brokers, workers, strict=True)):
            shares.limit([broker, worker.pid], pair)
        measured = {}
        for name, (in_flight, batch) in LOADS.items():
            job: dict[str, object] = {"op": "closed", "topics": ["masters"], "size_bytes": SIZE_BYTES, "target": target}
            job |= {"in_flight": in_flight * number, "batch": batch, "bytes_max": 1 << 30}
            _ask_all(workers, {**job, "seconds": PHASE_S / 4})
            before = cpu_s(running.brokers)
            answers = _ask_all(workers, {**job, "seconds": PHASE_S})
            failed = sum(int(str(answer.get("failed", 0))) for answer in answers)
            if failed:
                raise RuntimeError(f"{failed} sends failed: {answers}")
            measured[name] = {
                "messages_per_s": sum(float(str(each["count"])) / float(str(each["elapsed_s"])) for each in answers),
                "brokers_cpu": (cpu_s(running.brokers) - before) / PHASE_S,
                "clients_cpu": sum(float(str(each["client_cpu_s"])) for each in answers) / PHASE_S,
            }
        return measured


def run() -> Iterator[Row]:
    """Yield a row for each load and number of masters, as many as get their whole shares here."""
    with CpuShares(SHARE) as shares:
        means, most = shares.means, shares.pairs_max()
    numbers = [number for number in MASTERS if number <= most]
    yield {"each_process": means, "masters": numbers, "cores": len(os.sched_getaffinity(0))}
    rounds = in_turns(ROUNDS, numbers, lambda number: _measure(number, SHARE))
    for name in LOADS:
        rates = {number: [each[name]["messages_per_s"] for each in rounds[number]] for number in numbers}
        for number in numbers:
            of_one = [rate / (number * one) for rate, one in zip(rates[number], rates[1], strict=True)]
            cpu = {key: statistics.median(each[name][key] for each in rounds[number]) for key in CPU}
            yield {
                "load": name,
                "masters": number,
                "messages_per_s": round(statistics.median(rates[number])),
                "of_one": round(statistics.median(of_one), 2),
                **{key: round(value, 2) for key, value in cpu.items()},
                "of_share": round(sum(cpu.values()) / (2 * number * SHARE), 2),
            }

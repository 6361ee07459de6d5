"""How near reading a topic comes to Spark's own limit: rows per CPU second of all processes, side by side.

The limit is *ready*: a Python source that yields the same Arrow batches from memory, as PySpark runs any Python source.
Beside it, in turns and in one session: our broker, our log, Spark's Kafka source with one KRaft broker (1 GiB heap)
where Maven can fetch it, and uncompressed Parquet. The CPU time is that of the JVM, of Python (driver, daemon, workers)
and of the broker; ``without_broker`` leaves the broker's out. ``ROWS`` (thousands, default 1000) messages of 100 B and
a third of that of 1 KiB, in 8 queues, ``local[2]``; medians of ``ROUNDS`` rounds after ``WARM_UPS``.
``of_ready`` is the share of the limit.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.base.harness import own_broker, scaled, workspace
from bench.own.spark.kafka import connector, create
from bench.own.spark.read import ROWS, SIX, fill, session
from bench.peers.base import Settings, Unavailable
from bench.peers.kafka import KafkaServer
from pocketmq.client.arrow.arrow import schema as arrow_schema
from pocketmq.pipeline.java import JavaMissing, use_java
from pocketmq.pipeline.source.positions import TASK_ROWS, TASKS_MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS: Final = scaled(5, 1)
WARM_UPS: Final = scaled(3, 1)
"""Rounds that are not counted: the JVM compiles what runs often, and counts as the query that runs meanwhile."""
TASKS: Final = 8
COLUMNS: Final = {"value": "body binary", "six": SIX}
SUMS: Final = {
    "value": ["sum(length(body))"],
    "six": [
        "sum(length(body))",
        "sum(length(topic))",
        "sum(queue_id)",
        "sum(queue_offset)",
        "sum(length(tags))",
        "max(store_timestamp)",
    ],
}
"""All columns are used, so that no source may leave one out."""
OF_KAFKA: Final = {
    "value": ["value as body"],
    "six": [
        "topic",
        "partition as queue_id",
        "offset as queue_offset",
        "key as tags",
        "value as body",
        "timestamp as store_timestamp",
    ],
}


class ReadyReader(DataSourceReader):
    """Yields one batch again and again."""

    def __init__(self, options: Any, schema: StructType) -> None:
        self._names = [field.name for field in schema.fields]
        self._rows, self._size = int(options["rows"]), int(options["size"])
        self._tasks = min(TASKS, max(TASKS_MIN, -(-self._rows // TASK_ROWS)))

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: as many as our source makes of a topic with ``TASKS`` queues."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, in batches of the size that our source has."""
        assert partition.value is not None
        left = self._rows * (partition.value + 1) // self._tasks - self._rows * partition.value // self._tasks
        count = 10_000 if self._size < 500 else 3_500
        wanted = arrow_schema(self._names)
        values: dict[str, Any] = {
            "topic": ["bytes"] * count,
            "queue_id": [1] * count,
            "queue_offset": range(count),
            "tags": ["odd", "even"] * (count // 2),
            "body": [b"x" * self._size] * count,
            "store_timestamp": [1_700_000_000_000_000] * count,
        }
        arrays = [pa.array(list(values[name]), wanted.field(name).type) for name in self._names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        while left > 0:
            yield batch.slice(0, min(left, count))
            left -= count


class Ready(DataSource):
    """The limit: batches that are ready."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ready"

    def schema(self) -> str:
        """Return the narrow schema."""
        return COLUMNS["value"]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return ReadyReader(self.options, schema)


def cpu_s(roots: "list[psutil.Process]") -> float:
    """Return the CPU seconds of processes and of their descendants, ended ones included, in seconds."""
    total = 0.0
    for root in roots:
        for each in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(each.cpu_times()[:4])
    return total


class Clock:
    """CPU time of Spark (this process, the JVM, Python workers) and of one broker."""

    def __init__(self, servers: dict[str, psutil.Process]) -> None:
        self._servers = servers

    def now(self, server: str) -> tuple[float, float]:
        """Return (Spark's, the server's) CPU seconds so far."""
        me = psutil.Process()
        ids = {process.pid for process in self._servers.values()}
        spark = [child for child in me.children() if child.pid not in ids]
        own = sum(me.cpu_times()[:2])
        chosen = self._servers.get(server)
        return own + cpu_s(spark), cpu_s([chosen]) if chosen is not None else 0.0


def measured(
    frames: "dict[str, Callable[[], DataFrame]]", kind: str, rows: int, clock: Clock
) -> dict[str, dict[str, float]]:
    """Return, for each source, medians of the CPU microseconds a row, of rows a second by the clock, and the shares."""
    took: dict[str, list[tuple[float, float, float]]] = {name: [] for name in frames}
    for turn in range(-WARM_UPS, ROUNDS):
        for name, frame in frames.items():
            spark_s, server_s = clock.now(name)
            begin = time.perf_counter()
            row = frame().selectExpr(*SUMS[kind], "count(*) as rows").collect()[0]
            wall_s = time.perf_counter() - begin
            assert row["rows"] == rows, (name, row)
            spark_end_s, server_end_s = clock.now(name)
            if turn >= 0:
                took[name].append((spark_end_s - spark_s, server_end_s - server_s, wall_s))
    found = {}
    for name, rounds in took.items():
        all_s = statistics.median(spark + server for spark, server, _ in rounds)
        spark_s = statistics.median(spark for spark, _, _ in rounds)
        found[name] = {
            "k_rows_cpu_s": round(rows / all_s / 1000),
            "without_broker": round(rows / spark_s / 1000),
            "us_row": round(all_s / rows * 1e6, 2),
            "k_rows_s": round(rows / statistics.median(wall for _, _, wall in rounds) / 1000),
        }
    return found


def sources(
    spark: "SparkSession",
    ours: dict[str, str],
    others: tuple[str, str, int],
    size: int,
    rows: int,
    kind: str,
    columns: str,
) -> "dict[str, Callable[[], DataFrame]]":
    """Return what is measured in turns: name → a new frame. ``others``: store, Parquet file, port of Kafka or 0."""
    store, parquet, port = others
    topic = ours["subscribe"]

    def broker(**more: str) -> "DataFrame":
        return spark.read.format("pocketmq").options(**ours, **more).schema(columns).load()

    def kafka() -> "DataFrame":
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
        return reader.option("subscribe", topic).load().selectExpr(*OF_KAFKA[kind])

    def log() -> "DataFrame":
        return spark.read.format("pocketmq-log").option("topics", topic).schema(columns).load(store)

    found: dict[str, Callable[[], DataFrame]] = {
        "ready": lambda: spark.read.format("ready").options(rows=rows, size=size).schema(columns).load(),
        "broker": broker,
        "broker, checkCrcs=false": lambda: broker(checkCrcs="false"),
        "log": log,
        "parquet": lambda: spark.read.parquet(parquet).select("body" if kind == "value" else "*"),
    }
    if port:
        found["kafka"] = kafka
    return found


def of_size(
    spark: "SparkSession", namesrv: str, store: str, directory: Path, port: int, size: int, rows: int, clock: Clock
) -> Iterator[dict[str, object]]:
    """Yield one result a kind of columns and source."""
    topic = f"bytes{size}"
    asyncio.run(fill(namesrv, topic, rows, size))
    time.sleep(1.5)
    parquet = f"{directory}/{topic}.parquet"
    ours = {"namesrv": namesrv, "subscribe": topic}
    whole = spark.read.format("pocketmq").options(**ours).schema(SIX).load()
    whole.write.option("compression", "none").parquet(parquet)
    if port:
        key = whole.selectExpr("tags as key", "body as value")
        create(port, topic)
        target = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "topic": topic}
        key.write.format("kafka").options(**target).save()
    for kind, columns in COLUMNS.items():
        frames = sources(spark, ours, (store, parquet, port), size, rows, kind, columns)
        found = measured(frames, kind, rows, clock)
        ready = found["ready"]
        for name, values in found.items():
            yield {
                "bench": f"{name}, {size} B, {kind}",
                **values,
                "of_ready": round(values["k_rows_cpu_s"] / ready["k_rows_cpu_s"], 2),
                "of_ready_without_broker": round(values["without_broker"] / ready["without_broker"], 2),
            }


def run() -> Iterator[dict[str, object]]:
    """Yield one result a size, kind of columns and source."""
    with own_broker() as broker, workspace() as directory, contextlib.ExitStack() as stack:
        servers = {}
        children = {child.pid: child for child in psutil.Process().children()}
        for name in ("broker", "broker, checkCrcs=false"):
            servers[name] = next(iter(children.values()))
        jars: list[str] = []
        port = 0
        server = KafkaServer(directory, Settings())
        try:
            use_java()
            jars = connector()
            KafkaServer.obtain()
            server.start()
            stack.callback(server.stop)
            port = int(server.target["port"])
            servers["kafka"] = next(child for child in psutil.Process().children() if child.pid not in children)
        except (JavaMissing, Unavailable) as error:
            yield {"bench": "kafka", "skipped": str(error)}
        spark = session(*jars)
        spark.dataSource.register(Ready)
        try:
            for size, rows in ((100, ROWS), (1024, ROWS // 3)):
                yield from of_size(
                    spark,
                    broker.namesrv,
                    f"{broker.data_dir}",
                    broker.data_dir.parent,
                    port,
                    size,
                    rows,
                    Clock(servers),
                )
        finally:
            spark.stop()

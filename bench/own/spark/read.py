"""Spark reading a topic: rows a second through the broker and from the log, beside Parquet and JSON lines.

Method: the sum over the bodies' lengths, which needs every body. ``ROWS`` (thousands, default 1000) messages of 100 B
and a third of that of 1 KiB, ``local[2]``, medians of ``ROUNDS`` after one warm-up. The narrow schema names the columns
that a query needs; Spark prunes none by itself. *Reader alone* is the same reading in one process without Spark, in
CPU seconds. Triggers: micro-batches of 1,000 rows into nothing, so that what is left is what a trigger costs. Spark's
Kafka source, where Maven can fetch it: ``spark_kafka``; the sink: ``spark_sink``.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from bench.base.harness import own_broker, scaled
from pocketmq.client import Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.pipeline import register
from pocketmq.pipeline.source.columns import TYPES, default_schema
from pocketmq.pipeline.source.log_source import PocketMQLogSource
from pocketmq.pipeline.source.source import PocketMQSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = int(os.environ.get("ROWS", scaled("1000", "60"))) * 1000
ROUNDS = scaled(3, 1)
QUEUES = 8
TRIGGERS = scaled(20, 5)
TRIGGER_ROWS = 1000
ALONE = ("topic", "queue_id", "queue_offset", "tags", "body", "store_timestamp")
SIX = "topic string, queue_id int, queue_offset long, tags string, body binary, store_timestamp timestamp"


def columns(numbers: range, body_bytes: int) -> pa.RecordBatch:
    """Return messages with a body, a tag and a key each."""
    return pa.record_batch(
        {
            "body": pa.array([b"%012d" % number + b"x" * (body_bytes - 12) for number in numbers], pa.binary()),
            "tags": pa.array(["odd" if number % 2 else "even" for number in numbers], pa.string()),
            "keys": pa.array([f"k{number}" for number in numbers], pa.string()),
        }
    )


async def fill(namesrv: str, topic: str, rows: int, body_bytes: int) -> None:
    """Send ``rows`` messages with a tag and a key."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=QUEUES)
    async with Producer(group="bench", namesrv=namesrv, send_msg_timeout_ms=60_000) as producer:
        for at in range(0, rows, 20_000):
            count = min(20_000, rows - at)
            await producer.send_arrow(columns(range(at, at + count), body_bytes), topic=topic)


def session(*jars: str) -> "SparkSession":
    """Return a local session that has these jars, too."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def rate(frame: "Callable[[], DataFrame]", rows: int, column: str = "sum(length(body))") -> float:
    """Return thousand rows a second of one aggregate over a fresh DataFrame."""
    took: list[float] = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        frame().selectExpr(f"{column} as total", "count(*) as rows").collect()
        took.append(time.perf_counter() - begin)
    return rows / statistics.median(took[1:]) / 1000


def alone(namesrv: str, store: str, topic: str, rows: int) -> dict[str, object]:
    """Return thousand rows a CPU second that the readers do without Spark, six columns and with the map."""
    found: dict[str, object] = {"bench": f"reader alone {topic}"}
    six = StructType([StructField(name, TYPES[name]) for name in ALONE])
    for label, schema in (("six", six), ("with_map", default_schema(with_properties=True))):
        sources = {
            "broker": PocketMQSource({"namesrv": namesrv, "subscribe": topic}),
            "log": PocketMQLogSource({"path": store, "topics": topic}),
        }
        for name, source in sources.items():
            reader = source.reader(schema)
            tasks = reader.partitions()
            begin = time.process_time()
            count = sum(len(batch) for task in tasks for batch in reader.read(task))
            assert count == rows
            found[f"{name}_{label}_k_rows_cpu_s"] = round(rows / (time.process_time() - begin) / 1000)
    return found


def triggers(spark: "SparkSession", namesrv: str, topic: str, directory: Path) -> dict[str, object]:
    """Return what a micro-batch costs beside its rows, in ms, and how long the first one takes to come."""
    source = spark.readStream.format("pocketmq").schema(SIX).option("namesrv", namesrv).option("subscribe", topic)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(TRIGGER_ROWS)}
    begin = time.perf_counter()
    sink = source.options(**limits).load().writeStream.format("noop")
    sink = sink.option("checkpointLocation", f"{directory}/checkpoint-{topic}")
    query = sink.trigger(processingTime="0 seconds").start()
    first_s = 0.0
    while len(query.recentProgress) < TRIGGERS and query.exception() is None:
        time.sleep(0.01)
        if not first_s and query.lastProgress is not None:
            first_s = time.perf_counter() - begin
    query.stop()
    kept = [progress["durationMs"] for progress in query.recentProgress[2:TRIGGERS]]
    parts = {name: round(statistics.median(each.get(name, 0) for each in kept)) for name in kept[0]}
    return {"bench": "micro-batches of 1,000 rows", "first_batch_s": round(first_s, 2), **parts}


def of_size(spark: "SparkSession", namesrv: str, directory: Path, size: int, rows: int) -> Iterator[dict[str, object]]:
    """Yield the time to the first row, then the rates of every way to read."""
    topic = f"bytes{size}"
    asyncio.run(fill(namesrv, topic, rows, size))
    time.sleep(1.5)
    reader = {"namesrv": namesrv, "subscribe": topic}
    whole = {**reader, "includeProperties": "true"}
    log = {"topics": topic, "path": f"{directory}/data"}
    parquet, lines = f"{directory}/{topic}.parquet", f"{directory}/{topic}.json"

    def six() -> "DataFrame":
        return spark.read.format("pocketmq").options(**reader).schema(SIX).load()

    begin = time.perf_counter()
    six().limit(1).collect()
    yield {"bench": f"first row {size} B", "s": round(time.perf_counter() - begin, 2)}
    six().write.parquet(parquet)
    six().selectExpr("queue_offset", "cast(body as string) as body").write.json(lines)
    with_map = "sum(length(body)) + sum(size(properties))"
    rates = {
        "broker": rate(six, rows),
        "log": rate(lambda: spark.read.format("pocketmq-log").options(**log).schema(SIX).load(), rows),
        "with_map": rate(lambda: spark.read.format("pocketmq").options(**whole).load(), rows, with_map),
        "parquet": rate(lambda: spark.read.parquet(parquet), rows),
        "json": rate(lambda: spark.read.json(lines, "queue_offset long, body string"), rows),
    }
    measured = {f"{name}_k_rows_s": round(value) for name, value in rates.items()}
    yield {"bench": f"sum over bodies {size} B", "rows": rows, **measured}
    yield alone(namesrv, log["path"], topic, rows)


def run() -> Iterator[dict[str, object]]:
    """Yield one result a source and size."""
    with own_broker() as broker:
        begin = time.perf_counter()
        spark = session()
        yield {"bench": "start of the session", "session_s": round(time.perf_counter() - begin, 2)}
        directory = broker.data_dir.parent
        for size, rows in ((100, ROWS), (1024, ROWS // 3)):
            yield from of_size(spark, broker.namesrv, directory, size, rows)
        yield triggers(spark, broker.namesrv, "bytes100", directory)
        spark.stop()

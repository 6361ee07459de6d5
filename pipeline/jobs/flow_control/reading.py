"""Logs as a table of facts in Spark: rows of one form, for any content of the files.

Lives here: ``read_facts``, the schema.
"""

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.files import logs_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading, Zones, read_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = (
    "log string, file string, line bigint, at timestamp, kind string, name string, target string, cause string, "
    "tag string, code bigint, count bigint, again bigint, ended bigint, for_ms bigint, value double, p50 double, "
    "p99 double, text string"
)
BATCH_ROWS: Final = 8192
INTERVAL_MS_MAX: Final = 120_000
_Row = tuple[str, str, int, int, Fact]


def read_facts(spark: "SparkSession", paths: Sequence[str], zones: Zones | None = None) -> "DataFrame":
    """Return the facts of all files. Each evaluation of the frame reads them: persist it."""
    logs = logs_of(paths)
    rows = [(path, logs[path]) for path in sorted(paths, key=lambda path: -_size_bytes(path))]
    tasks = min(len(rows), 4 * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame(rows, "file string, log string").repartition(tasks)
    return files.mapInArrow(functools.partial(_read_batches, zones or Zones()), SCHEMA)


def with_brokers(facts: "DataFrame") -> "DataFrame":
    """Add the ``broker`` of a fact and its ``minute``.

    ``broker`` is the one that the line names, else the owner of the log, else the log's path. Brokers of one name
    (master and slaves) share their facts: one often causes an incident of the other. A fact of an interval belongs to
    the minute of its middle.
    """
    from pyspark.sql import functions as f

    middle = f.timestamp_micros(f.unix_micros("at") - f.least("for_ms", f.lit(INTERVAL_MS_MAX)) * 500)

    names = facts.where("kind = 'broker'").groupBy("log").agg(f.max_by("name", "at").alias("named"))
    target = f.when(f.col("target") != "", f.col("target"))
    named = facts.join(f.broadcast(names), "log", "left").withColumn("broker", f.coalesce(target, "named", "log"))
    return named.drop("named").withColumn("minute", f.date_trunc("minute", middle))


def _size_bytes(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _read_batches(zones: Zones, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        for path, log in zip(batch["file"].to_pylist(), batch["log"].to_pylist(), strict=True):
            yield from _read_file(str(path), str(log), zones)


def _read_file(path: str, log: str, zones: Zones) -> "Iterator[pa.RecordBatch]":
    reading = Reading()
    rows: list[_Row] = []
    first_ms, last_ms = 0, 0
    for line, at_ms, fact in read_log(path, reading, zones):
        first_ms = min(first_ms or at_ms, at_ms)
        last_ms = max(last_ms, at_ms)
        rows.append((log, path, line, at_ms, fact))
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows)
            rows = []
    for name, count in reading.counts():
        text = reading.error if name == "unreadable" else ""
        rows.append((log, path, 0, last_ms, Fact("file", name, count=count, text=text)))
    yield _batch(rows)


def _batch(rows: list[_Row]) -> "pa.RecordBatch":
    import pyarrow as pa

    facts = [row[4] for row in rows]
    columns: dict[str, Any] = {
        "log": pa.array([row[0] for row in rows], pa.string()),
        "file": pa.array([row[1] for row in rows], pa.string()),
        "line": pa.array([row[2] for row in rows], pa.int64()),
        "at": pa.array([row[3] * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
    }
    types: dict[Any, Any] = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    for field in dataclasses.fields(Fact):
        columns[field.name] = pa.array([getattr(fact, field.name) for fact in facts], types[field.type])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

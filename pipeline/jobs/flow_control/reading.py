"""Logs as a table of facts in Spark: one task a file, rows of one form, whatever the files hold.

Lives here: ``read_facts``, the schema.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.files import log_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading, read_log

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


def read_facts(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """Return the facts of all files. The frame reads them each time that it is evaluated: keep it."""
    rows = [(path, log_of(path)) for path in sorted(paths, key=lambda path: -_size_bytes(path))]
    tasks = min(len(rows), 4 * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame(rows, "file string, log string").repartition(tasks)
    return files.mapInArrow(_read_batches, SCHEMA)


def with_brokers(facts: "DataFrame") -> "DataFrame":
    """Add ``broker``, which a fact is about, and its ``minute``.

    ``broker`` is the one a line names, else the one whose log it is, else the log's path. Of several brokers with one
    name (master and slaves) the facts come together: an incident of one is often the other's doing. What covers an
    interval belongs to the minute of its middle.
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


def _read_batches(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        for path, log in zip(batch["file"].to_pylist(), batch["log"].to_pylist(), strict=True):
            yield from _read_file(str(path), str(log))


def _read_file(path: str, log: str) -> "Iterator[pa.RecordBatch]":
    reading = Reading()
    rows: list[_Row] = []
    first_ms, last_ms = 0, 0
    for line, at_ms, fact in read_log(path, reading):
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
    strings = {
        "log": [row[0] for row in rows],
        "file": [row[1] for row in rows],
    }
    columns: dict[str, Any] = {name: pa.array(values, pa.string()) for name, values in strings.items()}
    columns["line"] = pa.array([row[2] for row in rows], pa.int64())
    columns["at"] = pa.array([row[3] * 1000 for row in rows], pa.timestamp("us", tz="UTC"))
    for name in ("kind", "name", "target", "cause", "tag"):
        columns[name] = pa.array([getattr(fact, name) for fact in facts], pa.string())
    for name in ("code", "count", "again", "ended", "for_ms"):
        columns[name] = pa.array([getattr(fact, name) for fact in facts], pa.int64())
    for name in ("value", "p50", "p99"):
        columns[name] = pa.array([getattr(fact, name) for fact in facts], pa.float64())
    columns["text"] = pa.array([fact.text for fact in facts], pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

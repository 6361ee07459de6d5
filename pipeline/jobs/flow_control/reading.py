"""Logs and metrics as a table of facts in Spark: one task a file, rows of one form, whatever the files hold.

Lives here: ``read_facts``, the schema.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.files import log_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading, read_log
from pocketmq.pipeline.jobs.flow_control.metrics_reader import read_metrics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = (
    "log string, file string, line bigint, at timestamp, kind string, name string, target string, cause string, "
    "tag string, code bigint, count bigint, again bigint, ended bigint, for_ms bigint, value double, p50 double, "
    "p99 double, text string, source string"
)
BATCH_ROWS: Final = 8192
INTERVAL_MS_MAX: Final = 120_000
LOGS: Final = "logs"
METRICS: Final = "metrics"
_Row = tuple[str, str, int, int, Fact]


def read_facts(spark: "SparkSession", paths: Sequence[str], metrics: Sequence[str] = ()) -> "DataFrame":
    """Return the facts of all files: logs and metrics. The frame reads them each time that it is evaluated: keep it."""
    of = [*((path, LOGS) for path in paths), *((path, METRICS) for path in metrics)]
    rows = [(path, log_of(path), source) for path, source in sorted(of, key=lambda each: -_size_bytes(each[0]))]
    tasks = min(len(rows), 4 * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame(rows, "file string, log string, source string").repartition(tasks)
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


def with_logs_first(facts: "DataFrame") -> "DataFrame":
    """Leave out what metrics say where logs say the same.

    Refusals and long holds: where a log of the broker tells of any in the minute, the one before or the one after (a
    difference of two snapshots belongs to the minute of its middle, a line to its own). Stages and sums: where an
    interval of the log belongs to the minute. Gauges of both stay: they are looks at different moments.
    """
    from pyspark.sql import functions as f

    kind = (
        f.when(f.col("kind").isin("stage", "sum"), "interval")
        .when(f.col("kind").isin("refusal", "hold"), f.col("kind"))
        .alias("told")
    )
    told = facts.where(f.col("source") == LOGS).select("broker", "minute", kind).where("told is not null").distinct()
    near = f.when(f.col("told") == "interval", f.array(f.lit(0))).otherwise(f.array(f.lit(-1), f.lit(0), f.lit(1)))
    covered = told.select("broker", "told", "minute", f.explode(near).alias("by")).select(
        "broker", "told", f.timestamp_micros(f.unix_micros("minute") + f.col("by") * 60_000_000).alias("minute")
    )
    logs, metrics = facts.where(f.col("source") == LOGS), facts.where(f.col("source") == METRICS)
    left = metrics.withColumn("told", kind).join(covered.distinct(), ["broker", "minute", "told"], "left_anti")
    return logs.unionByName(left.drop("told"))


def _size_bytes(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _read_batches(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        for path, log, source in zip(*(batch[name].to_pylist() for name in ("file", "log", "source")), strict=True):
            yield from _read_file(str(path), str(log), str(source))


def _read_file(path: str, log: str, source: str) -> "Iterator[pa.RecordBatch]":
    reading = Reading()
    rows: list[_Row] = []
    first_ms, last_ms = 0, 0
    read = read_metrics if source == METRICS else read_log
    for line, at_ms, fact in read(path, reading):
        first_ms = min(first_ms or at_ms, at_ms)
        last_ms = max(last_ms, at_ms)
        rows.append((log, path, line, at_ms, fact))
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows, source)
            rows = []
    for name, count in reading.counts():
        text = reading.error if name == "unreadable" else ""
        rows.append((log, path, 0, last_ms, Fact("file", name, count=count, text=text)))
    yield _batch(rows, source)


def _batch(rows: list[_Row], source: str) -> "pa.RecordBatch":
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
    columns["source"] = pa.array([source] * len(rows), pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

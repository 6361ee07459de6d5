"""Message traces as a table of minutes: durations of sends, as producers measured them.

Lives here: ``trace_minutes``.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.trace.trace_format import TraceType, decode_records

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA: Final = "at timestamp, topic string, group string, store_host string, success boolean, cost_ms double"
TOPIC_CHARACTERS_MAX: Final = 127
TIME_MS_MAX: Final = 4_102_444_800_000
"""The year 2100; later times are invalid."""
COST_MS_MAX: Final = 86_400_000


def trace_minutes(bodies: "DataFrame") -> "DataFrame":
    """Return sends, failures and times by minute and topic, from a frame with a column ``body`` of trace messages.

    Percentiles are approximate (Spark percentile_approx, one part in 10,000 of the ranks).
    """
    from pyspark.sql import functions as f

    sends = bodies.select("body").mapInArrow(_records, SCHEMA)
    return (
        sends.withColumn("minute", f.date_trunc("minute", "at"))
        .groupBy("minute", "topic")
        .agg(
            f.count("*").alias("sends"),
            f.sum(f.when(f.col("success"), 0).otherwise(1)).alias("failed"),
            f.percentile_approx("cost_ms", 0.5, 10_000).alias("p50_ms"),
            f.percentile_approx("cost_ms", 0.99, 10_000).alias("p99_ms"),
            f.max("cost_ms").alias("max_ms"),
        )
    )


def _records(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for batch in batches:
        columns: tuple[list[Any], ...] = ([], [], [], [], [], [])
        for body in batch["body"]:
            for record in decode_records(body.as_py() or b""):
                if record.trace_type is not TraceType.PUB or not 0 < record.timestamp_ms < TIME_MS_MAX:
                    continue
                values = (
                    record.timestamp_ms * 1000,
                    record.topic[:TOPIC_CHARACTERS_MAX],
                    record.group[:TOPIC_CHARACTERS_MAX],
                    record.store_host[:TOPIC_CHARACTERS_MAX],
                    record.success,
                    float(min(max(record.cost_ms, 0), COST_MS_MAX)),
                )
                for column, value in zip(columns, values, strict=True):
                    column.append(value)
        at, topic, group, host, success, cost_ms = columns
        arrays: list[Any] = [
            pa.array(at, pa.timestamp("us", tz="UTC")),
            *(pa.array(each, pa.string()) for each in (topic, group, host)),
            pa.array(success, pa.bool_()),
            pa.array(cost_ms, pa.float64()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=["at", "topic", "group", "store_host", "success", "cost_ms"])

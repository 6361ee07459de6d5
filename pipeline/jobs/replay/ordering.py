"""The rows of a table in one total order, as Arrow batches on the driver.

Lives here: ``Columns`` (the roles of columns), ``ordered``, ``summary``, ``batches``.

The order: time, then queue, then order within the queue, then file and row. Time is the greatest so far in the row's
queue, so that a clock set back reorders no queue. Spark sorts; its partitions come to the driver one after the other,
as Arrow batches: the driver holds two partitions at a time and writes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pocketmq.common.errors import ConfigError
from pocketmq.common.message_fields import SINK_COLUMNS
from pocketmq.pipeline.jobs.common.command import JobFailed

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import Column, DataFrame

QUEUE_COLUMNS: Final = ("topic", "broker", "queue_id")
ORDER_COLUMN: Final = "queue_offset"
TIME_COLUMN: Final = "store_timestamp"
PART_BYTES: Final = 16 << 20
"""Approximate size of a partition."""
ROW_BYTES: Final = 200
"""Size of a row without its body."""
SENT: Final = tuple(name for name in SINK_COLUMNS if name != "topic")
"""Columns of the input that messages are made of, the body first."""
WHEN: Final = "_when"
LANE: Final = "_lane"
LANES: Final = 1 << 30

KeyValue = int | str | None


@dataclass(slots=True, frozen=True)
class Columns:
    """The roles of the input's columns; empty if there is none. ``is_archive``: queues are those of a topic."""

    body: str
    time: str
    queue: tuple[str, ...]
    order: tuple[str, ...]
    is_archive: bool

    @classmethod
    def of(
        cls, names: Sequence[str], body: str, time: str = "", queue: Sequence[str] = (), order: Sequence[str] = ()
    ) -> "Columns":
        """Return the given columns, else those of an archive. Raises ``ConfigError`` for a missing column."""
        for each in (body, *([time] if time else ()), *queue, *order):
            if each not in names:
                raise ConfigError("no such column", why=each, hint="columns: " + ", ".join(names))
        own = tuple(name for name in QUEUE_COLUMNS if name in names)
        return cls(
            body,
            time or (TIME_COLUMN if TIME_COLUMN in names else ""),
            tuple(queue) or own,
            tuple(order) or ((ORDER_COLUMN,) if ORDER_COLUMN in names else ()),
            not queue and own == QUEUE_COLUMNS,
        )


@dataclass(slots=True, frozen=True)
class Summary:
    """Counts of the rows to send. Times in µs since 1970, None if the input has none."""

    rows: int
    body_bytes: int
    without_body: int
    first_us: int | None
    last_us: int | None
    brokers: tuple[tuple[str, str], ...]
    queues_each: int


def between(frame: "DataFrame", time: str, since_ms: int | None, until_ms: int | None) -> "DataFrame":
    """Return the rows in [since, until)."""
    from pyspark.sql import functions as F

    if (since_ms is not None or until_ms is not None) and not time:
        raise ConfigError("no times", why="--from and --until need a column of time", hint="--time-column NAME")
    if since_ms is not None:
        frame = frame.where(F.col(time) >= F.timestamp_millis(F.lit(since_ms)))
    if until_ms is not None:
        frame = frame.where(F.col(time) < F.timestamp_millis(F.lit(until_ms)))
    return frame


def summary(frame: "DataFrame", columns: Columns) -> Summary:
    """Count the rows, with one pass over the bodies."""
    from pyspark.sql import functions as F

    length = F.octet_length(columns.body)
    empty = F.coalesce(length, F.lit(0)) == 0
    time = F.unix_micros(F.col(columns.time).try_cast("timestamp")) if columns.time else F.lit(None).cast("long")
    row = frame.agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(length), F.lit(0)).alias("body_bytes"),
        F.count_if(empty).alias("without_body"),
        F.min(time).alias("first"),
        F.max(time).alias("last"),
        (F.max("queue_id") if columns.is_archive else F.lit(0)).alias("queue"),
        (F.collect_set(F.struct("topic", "broker")) if columns.is_archive else F.array()).alias("brokers"),
    ).collect()[0]
    brokers = tuple(sorted((each["topic"], each["broker"]) for each in row["brokers"])) if columns.is_archive else ()
    queues_each = int(row["queue"] or 0) + 1
    return Summary(row["rows"], row["body_bytes"], row["without_body"], row["first"], row["last"], brokers, queues_each)


def ordered(
    frame: "DataFrame", columns: Columns, found: Summary, after: Sequence[KeyValue] | None = None
) -> "tuple[DataFrame, list[str]]":
    """Return the rows to send in their order, and the names of the key columns that define it.

    ``after``: the key of the last row of an earlier run. Columns: the existing ones of ``SENT``, ``WHEN`` (µs),
    ``LANE`` (the same for rows of one queue), and the key.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = frame.columns
    lane = F.lit(0)
    if columns.is_archive:
        bases = {pair: index * found.queues_each for index, pair in enumerate(found.brokers)}
        base = F.lit(0)
        for (topic, broker), value in bases.items():
            base = F.when((F.col("topic") == topic) & (F.col("broker") == broker), value).otherwise(base)
        lane = base + F.col("queue_id")
    elif columns.queue:
        lane = F.pmod(F.hash(*columns.queue), F.lit(LANES))
    if columns.time:
        time = F.unix_micros(F.col(columns.time).try_cast("timestamp"))
        if columns.order:
            in_queue = Window.partitionBy(*columns.queue).orderBy(*columns.order)
            time = F.max(time).over(in_queue.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        when = F.coalesce(time, F.lit(found.first_us or 0).cast("long"))
    else:
        when = F.lit(0).cast("long")
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    places = [_sortable(each, kinds[each]) for each in (*columns.queue, *columns.order)]
    places += [F.col("_metadata.file_path"), F.col("_metadata.row_index")]
    keys = [f"_key{index}" for index in range(len(places) + 1)]
    sent = [F.col(columns.body).cast("binary").alias("body"), *(F.col(each) for each in SENT[1:] if each in names)]
    result = frame.select(
        *sent,
        when.alias(WHEN),
        lane.cast("int").alias(LANE),
        *(place.alias(name) for name, place in zip(keys[1:], places, strict=True)),
    ).withColumn(keys[0], F.col(WHEN))
    if after is not None:
        if len(after) != len(keys):
            raise JobFailed(
                "not resumed", why="the earlier run had other columns", hint="--restart sends from the start"
            )
        types = [result.schema[name].dataType for name in keys]
        last = F.struct(
            *(F.lit(value).cast(kind).alias(name) for name, value, kind in zip(keys, after, types, strict=True))
        )
        result = result.where(F.struct(*keys) > last)
    parts = max(1, (found.body_bytes + found.rows * ROW_BYTES) // PART_BYTES)
    return result.repartitionByRange(int(parts), *keys).sortWithinPartitions(*keys), keys


def _sortable(name: str, kind: str) -> "Column":
    """Return a column as a whole number or a text, for keys in a file."""
    from pyspark.sql import functions as F

    if kind in ("byte", "short", "integer", "long"):
        return F.col(name).cast("long")
    if kind in ("timestamp", "timestamp_ntz"):
        return F.unix_micros(F.col(name).try_cast("timestamp"))
    if kind in ("string", "date"):
        return F.col(name).cast("string")
    raise ConfigError(
        "cannot order by this column", why=f"{name} is {kind}", hint="take a whole number, a text or a time"
    )


def to_blobs(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    """Pack each batch into one value, in a task: the driver then creates no Python object per row."""
    import pyarrow as pa

    for batch in batches:
        if len(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({"blob": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def batches(frame: "DataFrame") -> "Iterator[RecordBatch]":
    """Yield the rows of a sorted frame in their order, partition after partition."""
    import pyarrow as pa

    blobs: Any = frame.mapInArrow(to_blobs, "blob binary").toLocalIterator(prefetchPartitions=True)
    for row in blobs:
        yield from pa.ipc.open_stream(bytes(row["blob"]))

"""The table of minutes: refusals, times of stages and holds of the append lock, by broker.

Lives here: ``refusals`` (each refusal once), ``minute_table``: aggregations of Spark, nothing is collected.

Percentiles: a broker's log has p50 and p99 of an interval (exact to 6 %); a minute without trouble is one interval. Of
several intervals in a minute, p50 is the mean weighted by counts, and p99 the highest: an upper bound.
"""

from typing import TYPE_CHECKING, Final

from pocketmq.common.errors import Cause
from pocketmq.common.refusals import CLIENTS_OWN
from pocketmq.pipeline.jobs.flow_control.facts import STAGES, TROUBLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NO_INCIDENT: Final = (*sorted(CLIENTS_OWN), Cause.NONE.value)
"""Causes that are a client's mistake: in the table, but no incident."""


def refusals(facts: "DataFrame") -> "DataFrame":
    """Return the facts of refusals, each refusal once.

    A broker's log has them twice: line by line as they happen (sampled, with the number of omitted ones), and as sums
    of an interval. For each log and cause the lines are taken, whose times are exact, unless the sums are greater:
    lines can be lost when the log's queue is full, and the last refusals of a killed broker are in no sum. Omitted
    refusals count for the text of the line that has their number.
    """
    from pyspark.sql import functions as f

    refused = facts.where("kind = 'refusal'")
    by_source = {
        name: f.coalesce(f.sum(f.when(f.col("name") == name, f.col("count"))), f.lit(0)).alias(name)
        for name in ("line", "interval")
    }
    sums = refused.groupBy("log", "cause").agg(*by_source.values())
    name = f.when(f.col("interval") > f.col("line"), "interval").otherwise("line")
    chosen = sums.select("log", "cause", name.alias("name"))
    return refused.join(f.broadcast(chosen), ["log", "cause", "name"], "left_semi")


_OWN: Final = ("stage", "gauge", "sum")
"""Kinds with a column for each name; other kinds have one column."""
_FIELDS: Final = ("count", "again", "ended", "highest", "lowest", "p50", "p99")


def minute_table(facts: "DataFrame", refused: "DataFrame") -> "DataFrame":
    """Return one row for each broker and minute with facts from its logs or its clients'.

    Two narrow aggregations and a projection: one wide aggregation takes Spark seconds to compile.
    """
    from pyspark.sql import functions as f

    key = (
        f.when(f.col("kind").isin(*_OWN), f.concat("kind", f.lit(" "), "name"))
        .when((f.col("kind") == "event") & f.col("name").isin(*LOCK_WAITS), f.lit("lock wait"))
        .when((f.col("kind") == "event") & f.col("name").isin(*TROUBLES), f.lit("trouble"))
        .otherwise(f.col("kind"))
    )
    by_key = (
        facts.where("kind not in ('refusal', 'file', 'broker', 'part')")
        .groupBy("broker", "minute", key.alias("key"))
        .agg(
            *(f.sum(name).alias(name) for name in ("count", "again", "ended")),
            f.max("value").alias("highest"),
            f.min("value").alias("lowest"),
            (f.sum(f.col("p50") * f.col("count")) / f.greatest(f.sum("count"), f.lit(1))).alias("p50"),
            f.max("p99").alias("p99"),
        )
    )
    maps = by_key.groupBy("broker", "minute").agg(
        f.map_from_entries(f.collect_list(f.struct("key", f.struct(*_FIELDS)))).alias("of")
    )

    def one(key: str, field: str) -> "Column":
        return f.try_element_at("of", f.lit(key))[field]

    def number(key: str, field: str = "count") -> "Column":
        return f.coalesce(one(key, field), f.lit(0))

    columns: list[Column] = [one("sum put_count", "count").alias("puts")]
    for stage in STAGES:
        columns += [
            one(f"stage {stage}", "count").alias(f"{stage}_count"),
            one(f"stage {stage}", "p50").alias(f"{stage}_p50_ms"),
            one(f"stage {stage}", "p99").alias(f"{stage}_p99_ms"),
            one(f"stage {stage}", "highest").alias(f"{stage}_max_ms"),
        ]
    columns += [
        number("sum put_failed_count").alias("puts_failed"),
        one("hold", "highest").alias("lock_held_max_ms"),
        number("hold").alias("long_lock_holds"),
        number("sum page_cache_busy_episodes").alias("page_cache_busy_episodes"),
        number("slow").alias("slow_requests"),
        one("slow", "highest").alias("slow_request_max_ms"),
        one("gauge send_queue_size", "highest").alias("send_queue_size_max"),
        one("gauge send_head_wait_ms", "highest").alias("send_head_wait_max_ms"),
        one("gauge write_buffers_available", "lowest").alias("write_buffers_available_min"),
        one("gauge not_flushed_bytes", "highest").alias("not_flushed_bytes_max"),
        one("gauge copies_in_sync", "lowest").alias("copies_in_sync_min"),
        one("gauge copies_needed", "highest").alias("copies_needed"),
        one("gauge slave_behind_bytes_max", "highest").alias("slave_behind_bytes_max"),
        one("gauge slave_behind_ms_max", "highest").alias("slave_behind_max_ms"),
        number("sum slave_timeouts").alias("slave_timeouts"),
        number("sum slave_not_available").alias("slave_not_available"),
        number("attempt").alias("client_attempts_failed"),
        number("attempt", "again").alias("client_attempts_again"),
        number("attempt", "ended").alias("client_sends_ended"),
        number("lock wait").alias("queue_lock_waits"),
        number("trouble").alias("trouble_events"),
        number("other").alias("other_warnings"),
    ]
    spoken = maps.select("broker", "minute", *columns)
    by_text = (
        refused.withColumn("text", label("cause", "tag"))
        .groupBy("broker", "minute", "text")
        .agg(f.sum("count").alias("count"), f.first("cause").alias("cause"))
        .groupBy("broker", "minute")
        .agg(
            f.sum("count").alias("refused"),
            f.sum(f.when(~f.col("cause").isin(*NO_INCIDENT), f.col("count")).otherwise(0)).alias("refused_in_trouble"),
            f.map_from_entries(f.sort_array(f.collect_list(f.struct("text", "count")))).alias("refused_by"),
        )
    )
    joined = spoken.join(by_text, ["broker", "minute"], "full_outer")
    counts = [
        name for name, kind in joined.dtypes if kind == "bigint" and not name.endswith("_count") and name != "puts"
    ]
    first = ["broker", "minute", "puts", "refused", "refused_in_trouble", "refused_by"]
    return joined.na.fill(0, counts).select(*first, *(name for name in spoken.columns if name not in first))


LOCK_WAITS: Final = ("queue_lock_refused", "queue_waits_for_lock")


def label(cause: str, tag: str) -> "Column":
    """Return the words for a kind of refusal: its tag in brackets with the cause, or the cause."""
    from pyspark.sql import functions as f

    named = f.concat(f.lit("["), f.col(tag), f.lit("] "), f.col(cause))
    return f.when(f.col(tag) == "", f.col(cause)).otherwise(named)

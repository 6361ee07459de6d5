"""Incidents (runs of minutes with trouble) and the evidence for each.

Lives here: ``incident_table``, ``evidence_table`` (Spark), ``Incident``, ``Evidence`` (their rows, collected: a bounded
number).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INCIDENTS_MAX: Final = 300
"""The worst are explained; the others are counted."""
TROUBLE: Final = (
    "refused_in_trouble > 0 or slave_timeouts > 0 or slave_not_available > 0 or client_sends_ended > 0 or "
    "client_attempts_again > 0 or queue_lock_waits > 0 or trouble_events > 0 or page_cache_busy_episodes > 0 or "
    "lock_held_max_ms >= 1000"
)
MARGIN_MINUTES: Final = 1
"""Evidence includes the minutes before and after an incident: causes precede it, summaries follow it."""
KEYS: Final = ("kind", "name", "cause", "tag", "code")


@dataclass(slots=True, frozen=True)
class Incident:
    """A run of minutes. Times are ms since 1970; ``end_ms``: end of the last minute."""

    id: str
    broker: str
    begin_ms: int
    end_ms: int
    minutes: int
    refused: int
    sends_ended: int


@dataclass(slots=True, frozen=True)
class Evidence:
    """Facts of one kind within an incident, aggregated. ``file`` and ``line``: of the first."""

    incident: str
    kind: str
    name: str
    cause: str = ""
    tag: str = ""
    code: int = 0
    lines: int = 1
    count: int = 0
    again: int = 0
    ended: int = 0
    highest: float = 0.0
    lowest: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    first_ms: int = 0
    last_ms: int = 0
    file: str = ""
    line: int = 0
    text: str = ""


def incident_table(minutes: "DataFrame", quiet_minutes: int) -> "DataFrame":
    """Return the incidents; up to ``quiet_minutes`` without trouble do not end one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    in_order = Window.partitionBy("broker").orderBy("minute")
    since_s = f.unix_timestamp("minute") - f.unix_timestamp(f.lag("minute").over(in_order))
    begins = f.when(since_s <= 60 * (quiet_minutes + 1), 0).otherwise(1)
    return (
        minutes.where(TROUBLE)
        .withColumn("begins", begins)
        .withColumn("number", f.sum("begins").over(in_order))
        .groupBy("broker", "number")
        .agg(
            f.min("minute").alias("begin"),
            (f.max("minute") + f.expr("interval 1 minute")).alias("end"),
            f.count("*").alias("minutes"),
            f.sum("refused_in_trouble").alias("refused"),
            f.sum("client_sends_ended").alias("sends_ended"),
        )
        .withColumn("id", f.concat("broker", f.lit("@"), f.date_format("begin", "yyyy-MM-dd'T'HH:mm'Z'")))
        .drop("number")
    )


def evidence_table(facts: "DataFrame", refused: "DataFrame", incidents: "DataFrame") -> "DataFrame":
    """Return one row for each incident and kind of fact within it."""
    from pyspark.sql import functions as f

    margin = f.expr(f"interval {MARGIN_MINUTES} minute")
    facts = facts.where("kind not in ('refusal', 'file', 'broker', 'sum') or name like 'slave_%'")
    both = facts.unionByName(refused.select(*facts.columns))
    spans = incidents.select(f.col("id").alias("incident"), f.col("broker").alias("of"), "begin", "end")
    within = (
        (f.col("broker") == f.col("of"))
        & (f.col("minute") >= f.col("begin") - margin)
        & (f.col("minute") < f.col("end") + margin)
    )
    place = f.struct("at", "file", "line", "text")
    return (
        both.join(f.broadcast(spans), within)
        .groupBy("incident", *KEYS)
        .agg(
            f.count("*").alias("lines"),
            *(f.sum(name).alias(name) for name in ("count", "again", "ended")),
            f.max("value").alias("highest"),
            f.min("value").alias("lowest"),
            (f.sum(f.col("p50") * f.col("count")) / f.greatest(f.sum("count"), f.lit(1))).alias("p50"),
            f.max("p99").alias("p99"),
            f.max("at").alias("last"),
            f.min(place).alias("first"),
        )
        .select(
            "incident",
            *KEYS,
            *("lines", "count", "again", "ended", "highest", "lowest", "p50", "p99"),
            f.col("first.at").alias("first"),
            "last",
            f.col("first.file").alias("file"),
            f.col("first.line").alias("line"),
            f.col("first.text").alias("text"),
        )
    )


def worst(incidents: "DataFrame") -> list[Incident]:
    """Return the incidents with most refusals and lost sends, at most ``INCIDENTS_MAX``, worst first."""
    from pyspark.sql import functions as f

    order = [f.desc(f.col("refused") + f.col("sends_ended")), f.asc("begin"), f.asc("broker")]
    chosen = incidents.withColumn("begin_ms", f.unix_millis("begin")).withColumn("end_ms", f.unix_millis("end"))
    names = ("id", "broker", "begin_ms", "end_ms", "minutes", "refused", "sends_ended")
    return [Incident(**row.asDict()) for row in chosen.orderBy(*order).limit(INCIDENTS_MAX).select(*names).collect()]


def collected(evidence: "DataFrame") -> dict[str, list[Evidence]]:
    """Return the evidence by incident."""
    from pyspark.sql import functions as f

    times = evidence.withColumn("first", f.unix_millis("first")).withColumn("last", f.unix_millis("last"))
    found: dict[str, list[Evidence]] = {}
    for row in times.collect():
        values: dict[str, Any] = row.asDict()
        first_ms, last_ms = values.pop("first"), values.pop("last")
        each = Evidence(**values, first_ms=first_ms, last_ms=last_ms)
        found.setdefault(each.incident, []).append(each)
    return found

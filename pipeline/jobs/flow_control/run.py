"""All steps: logs → facts → minutes, incidents, evidence → Parquet and a page.

Lives here: ``analyze``, ``Result``.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pocketmq.common.errors import ConfigError
from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.flow_control import page, plots
from pocketmq.pipeline.jobs.flow_control.chain import Case, Chain, explain, minute_text
from pocketmq.pipeline.jobs.flow_control.evidence import (
    INCIDENTS_MAX,
    TROUBLE,
    Incident,
    collected,
    evidence_table,
    incident_table,
    worst,
)
from pocketmq.pipeline.jobs.flow_control.log_reader import Zones
from pocketmq.pipeline.jobs.flow_control.minutes import label, minute_table, refusals
from pocketmq.pipeline.jobs.flow_control.reading import read_facts, with_brokers
from pocketmq.pipeline.jobs.flow_control.traces import trace_minutes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES: Final = ("minute", "incidents", "evidence", "traces")
REPORT: Final = "report.html"
STAGING: Final = "_pocketmq"
"""Staging directory in the output; readers of Parquet ignore names that begin with _."""
PARTITIONS: Final = "spark.sql.shuffle.partitions"
PARTITION_BYTES: Final = 32 << 20
"""Bytes of logs per partition: each partition has a cost."""
INCIDENT_SCHEMA: Final = (
    "id string, broker string, begin timestamp, end timestamp, minutes bigint, refused bigint, sends_ended bigint, "
    "class int, class_text string, summary string, complete boolean, missing array<string>, cures array<string>, "
    "scenario string, chain array<struct<class: int, step: string, shown: boolean, evidence: array<string>>>"
)


@dataclass(slots=True)
class Result:
    """The result of a run. ``counts``: lines and files, by kind."""

    counts: dict[str, int]
    incidents: list[tuple[Incident, list[Chain]]]
    incidents_all: int
    refused: int
    sends_ended: int
    refused_by: dict[str, int]
    span_ms: tuple[int, int]
    """Begin of the first minute and end of the last, ms since 1970."""
    brokers: int
    output: str
    report: str = ""


def analyze(
    spark: "SparkSession",
    paths: Sequence[str],
    output: str,
    *,
    traces: "DataFrame | None" = None,
    quiet_minutes: int = 1,
    with_report: bool = True,
    overwrite: bool = False,
    zones: Zones | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Read ``paths`` of logs and write tables and report into the directory ``output``. Raises ``ConfigError``."""
    from pyspark import StorageLevel

    _check_output(output, overwrite)
    say(f"reading {plural(len(paths), 'file')}")
    kept: list[DataFrame] = []

    def keep(frame: "DataFrame") -> "DataFrame":
        """Evaluate a frame once, to disk: memory stays bounded for logs of any size."""
        kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return frame

    partitions = spark.conf.get(PARTITIONS)
    try:
        needed = 2 + _size_bytes(paths) // PARTITION_BYTES
        spark.conf.set(PARTITIONS, str(min(int(partitions or 200), needed)))
        facts = keep(read_facts(spark, paths, zones))
        counts, unreadable = _reading_of(facts)
        counts["files"] = len(paths)
        named = keep(with_brokers(facts))
        refused = keep(refusals(named))
        minutes = keep(minute_table(named, refused))
        incidents = keep(incident_table(minutes, quiet_minutes))
        say("looking for incidents")
        chosen = worst(incidents)
        explained: list[tuple[Incident, list[Chain]]] = []
        evidence = keep(evidence_table(named, refused, _frame_of(spark, chosen)))
        found = collected(evidence) if chosen else {}
        explained = [(each, explain(Case(each, found.get(each.id, [])))) for each in chosen]
        say("writing tables")
        tables = {"minute": minutes, "evidence": evidence, "incidents": _explained_frame(spark, explained, incidents)}
        if traces is not None:
            tables["traces"] = keep(trace_minutes(traces))
        staging = os.path.join(output, STAGING)
        shutil.rmtree(staging, ignore_errors=True)
        for name, frame in tables.items():
            frame.coalesce(1).write.mode("error").parquet(os.path.join(staging, name))
        result = _result(minutes, refused, incidents, counts, explained, output)
        if with_report:
            say("drawing the report")
            _write_report(os.path.join(staging, REPORT), minutes, result, unreadable, tables.get("traces"))
        _publish(staging, output)
        result.report = os.path.join(output, REPORT) if with_report else ""
        return result
    finally:
        spark.conf.set(PARTITIONS, str(partitions))
        for frame in reversed(kept):
            frame.unpersist()


def _size_bytes(paths: Sequence[str]) -> int:
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))


def _check_output(output: str, overwrite: bool) -> None:
    """Raise unless the output is new, empty, or an earlier report to replace."""
    if not os.path.exists(output):
        return
    names = set(os.listdir(output)) - {STAGING}
    if not names:
        return
    if not overwrite:
        raise ConfigError("the output exists", why=output, hint="name another directory, or --overwrite")
    strangers = names - {*TABLES, REPORT}
    if strangers:
        raise ConfigError(
            "the output is not a report", why=f"{output} has {min(strangers)}", hint="name another directory"
        )


def _publish(staging: str, output: str) -> None:
    """Move the new tables and page to their places, after removing the old ones."""
    for name in (*TABLES, REPORT):
        old, new = os.path.join(output, name), os.path.join(staging, name)
        if os.path.isdir(old):
            shutil.rmtree(old)
        elif os.path.exists(old):
            os.remove(old)
        if os.path.exists(new):
            os.rename(new, old)
    shutil.rmtree(staging)


def _reading_of(facts: "DataFrame") -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the counts of all files together, and (path, error) of some that could not be read."""
    from pyspark.sql import functions as f

    bad = f.when(f.col("name") == "unreadable", f.struct("file", "text"))
    by_name = facts.where("kind = 'file'").groupBy("name")
    rows = by_name.agg(
        f.sum("count").alias("n"), f.slice(f.array_sort(f.collect_set(bad)), 1, 20).alias("bad")
    ).collect()
    return {row["name"]: int(row["n"]) for row in rows}, [tuple(each) for row in rows for each in row["bad"]]


def _frame_of(spark: "SparkSession", chosen: Sequence[Incident]) -> "DataFrame":
    from pyspark.sql import functions as f

    rows = [(each.id, each.broker, each.begin_ms, each.end_ms) for each in chosen]
    frame = spark.createDataFrame(rows, "id string, broker string, begin_ms bigint, end_ms bigint")
    return frame.withColumn("begin", f.timestamp_millis("begin_ms")).withColumn("end", f.timestamp_millis("end_ms"))


def _explained_frame(
    spark: "SparkSession", explained: Sequence[tuple[Incident, Sequence[Chain]]], incidents: "DataFrame"
) -> "DataFrame":
    """Return the table of incidents; only the worst have a chain."""
    from pyspark.sql import functions as f

    schema = INCIDENT_SCHEMA.replace("begin timestamp, end timestamp", "begin_ms bigint, end_ms bigint")
    rows = [_row(incident, chains) for incident, chains in explained]
    frame = spark.createDataFrame(rows, schema)
    names = [part.split()[0] for part in ("id", "broker", "begin", "end", "minutes", "refused", "sends_ended")]
    frame = frame.withColumn("begin", f.timestamp_millis("begin_ms")).withColumn("end", f.timestamp_millis("end_ms"))
    others = [name for name in frame.columns if name not in (*names, "begin_ms", "end_ms")]
    rest = incidents.join(frame.select("id"), "id", "left_anti").select(*names)
    return frame.select(*names, *others).unionByName(rest, allowMissingColumns=True)


def _row(incident: Incident, chains: Sequence[Chain]) -> tuple[Any, ...]:
    main = chains[0]
    steps = [(chain.number, step.text, step.shown, step.evidence) for chain in chains for step in chain.steps]
    values = (main.number, main.title, main.summary, main.complete, main.missing, main.cures, main.scenario, steps)
    return (*dataclasses.astuple(incident), *values)


def _result(
    minutes: "DataFrame",
    refused: "DataFrame",
    incidents: "DataFrame",
    counts: dict[str, int],
    explained: list[tuple[Incident, list[Chain]]],
    output: str,
) -> Result:
    from pyspark.sql import functions as f

    by = refused.groupBy(label("cause", "tag").alias("text")).agg(f.sum("count").alias("n")).collect()
    refused_by = {row["text"]: int(row["n"]) for row in sorted(by, key=lambda row: (-row["n"], row["text"]))}
    at = f.unix_millis("minute")
    row = minutes.agg(f.sum("client_sends_ended"), f.min(at), f.max(at), f.count_distinct("broker")).collect()[0]
    span_ms = (row[1], row[2] + 60_000) if row[1] is not None else (0, 0)
    count = len(explained) if len(explained) < INCIDENTS_MAX else incidents.count()
    return Result(counts, explained, count, sum(refused_by.values()), row[0] or 0, refused_by, span_ms, row[3], output)


def _write_report(
    path: str,
    minutes: "DataFrame",
    result: Result,
    unreadable: Sequence[tuple[str, str]],
    traces: "DataFrame | None",
) -> None:
    from pyspark.sql import functions as f

    at = f.unix_millis("minute")
    begin_ms, end_ms = result.span_ms
    shown = list(dict.fromkeys(incident.broker for incident, _ in result.incidents))[: plots.BROKERS_MAX]
    pictures: dict[str, str] = {}
    if shown:
        width, bins = plots.bins_of(minutes, shown, begin_ms, end_ms)
        pictures = {each: plots.draw(bins[each], width, each) for each in shown if each in bins}
    in_trouble = minutes.where(TROUBLE).orderBy("minute", "broker").limit(page.MINUTES_SHOWN_MAX + 1)
    rows = [row.asDict() for row in in_trouble.withColumn("at_ms", at).collect()]
    page.write_page(
        path,
        page.Report(
            begin_ms=begin_ms,
            end_ms=end_ms,
            counts=result.counts,
            unreadable=unreadable,
            incidents=result.incidents,
            incidents_all=result.incidents_all,
            refused=result.refused,
            sends_ended=result.sends_ended,
            refused_by=result.refused_by,
            brokers=result.brokers,
            minutes=[{**row, "at": minute_text(row["at_ms"])} for row in rows],
            pictures=pictures,
            traces=_trace_rows(traces),
        ),
    )


def _trace_rows(traces: "DataFrame | None") -> list[dict[str, Any]]:
    from pyspark.sql import functions as f

    if traces is None:
        return []
    worst_first = traces.orderBy(f.desc("failed"), f.desc("p99_ms"), "minute", "topic").limit(60)
    rows = [row.asDict() for row in worst_first.withColumn("at_ms", f.unix_millis("minute")).collect()]
    return [{**row, "at": minute_text(row["at_ms"])} for row in sorted(rows, key=lambda row: row["at_ms"])]

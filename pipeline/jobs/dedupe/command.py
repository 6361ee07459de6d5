"""``dedupe``: a topic or a table without duplicates, to a topic or to Parquet.

Lives here: its options.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.common import command
from pocketmq.pipeline.jobs.common.command import DIFFERENT, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pocketmq.pipeline.jobs.common.inputs import Input

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
STORED: Final = "store_timestamp"


def dedupe(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="topic:NAME or a path.")],
    target: Annotated[str, typer.Argument(metavar="OUTPUT", help="topic:NAME or a new directory of Parquet files.")],
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", help="Column with equal values in duplicates: keys, msg_id, body, properties.NAME; repeatable."
        ),
    ] = None,
    within: Annotated[
        str,
        typer.Option("--within", metavar="TIME", help="Only duplicates at most 30s, 10m or 1d apart.  [default: all]"),
    ] = "",
    time: Annotated[
        str, typer.Option("--time-column", help="Column of the time.  [default: store_timestamp if there]")
    ] = "",
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", metavar="DIR", help="Only messages since the last run."),
    ] = "",
    source_format: Annotated[str, typer.Option("--format", help="Format of a path: parquet, csv, json or orc.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output directory.")] = False,
    as_json: command.Json = False,
    namesrv: command.Namesrv = command.DEFAULT_NAMESRV,
    broker_wait_ms: command.BrokerWaitMs = command.DEFAULT_BROKER_WAIT_MS,
    master: command.Master = "",
    conf: command.Conf = None,
    py_files: command.PyFiles = None,
) -> None:
    """Copy a topic or a table without its duplicates, and count them. The first message of each key stays.

    All messages without a key stay. With --checkpoint a run reads the messages since the last one, and remembers keys
    for the time of --within. Spark drops messages that arrive later: they are counted, and the exit code is 1.
    """
    from pocketmq.pipeline.jobs.common.inputs import Input

    origin, goal = Input.of(source, source_format), Input.of(target)
    window_ms = _ms(within) if within else None
    if checkpoint and (not origin.topic or window_ms is None):
        raise ConfigError("--checkpoint needs more", why="it takes a topic, and --within", hint="--within 10m")
    if checkpoint and overwrite:
        raise ConfigError("options exclude each other", why="--checkpoint and --overwrite", hint="leave one out")
    if origin.text == goal.text:
        raise ConfigError("input and output are the same", why=source, hint="name another output")

    from pocketmq.pipeline.jobs.common.session import import_spark, job_session

    import_spark()
    goal.check(namesrv, broker_wait_ms)
    waiting = origin.check(namesrv, broker_wait_ms)
    with job_session("dedupe", master, conf, py_files, stages=not checkpoint) as spark:
        from pocketmq.pipeline.jobs.common.command import JobFailed
        from pocketmq.pipeline.jobs.common.console import print_result

        columns = tuple(by or ("keys",))
        if checkpoint:
            result = _growing(
                spark, origin, goal, columns, time or STORED, window_ms or 0, checkpoint, namesrv, broker_wait_ms
            )
        else:
            frame = origin.read(spark, namesrv, broker_wait_ms, with_properties=True)
            if not waiting and (waiting == 0 or frame.isEmpty()):
                raise JobFailed("nothing to read", why=f"{source} has no rows", hint="check its name")
            result = _exact(frame, goal, columns, time, window_ms, overwrite, namesrv)
        print_result(result, as_json, f"{source} to {target}")
    if result.get("late"):
        raise typer.Exit(DIFFERENT)


def _ms(text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})(ms|s|m|h|d)", text)
    if match is None:
        raise ConfigError("bad --within", why=text, hint="write 500ms, 30s, 10m, 2h or 1d")
    return int(match[1]) * UNITS_MS[match[2]]


def _exact(
    frame: "DataFrame",
    goal: "Input",
    by: tuple[str, ...],
    time: str,
    window_ms: int | None,
    overwrite: bool,
    namesrv: str,
) -> dict[str, int]:
    from pyspark.sql import Observation

    from pocketmq.pipeline.access import job_access
    from pocketmq.pipeline.jobs.common.console import note
    from pocketmq.pipeline.jobs.dedupe.exact import without_duplicates
    from pocketmq.pipeline.jobs.dedupe.outgoing import for_sink

    chosen = time or (STORED if STORED in frame.columns else "")
    if window_ms is not None and not chosen:
        raise ConfigError("no times", why="--within needs a column of time", hint="--time-column NAME")
    counts = Observation("dedupe")
    kept = without_duplicates(frame, by, chosen, window_ms, counts)
    note(f"looking for duplicates by {', '.join(by)}")
    if goal.topic:
        writer = for_sink(kept, sort=True).write.format("pocketmq").mode("append")
        writer.options(namesrv=namesrv, topic=goal.topic, **job_access().options()).save()
    else:
        kept.write.mode("overwrite" if overwrite else "error").parquet(goal.path)
    found: dict[str, Any] = counts.get
    rows, duplicates = int(found["rows"]), int(found["duplicates"])
    return {
        "rows": rows,
        "kept": rows - duplicates,
        "duplicates": duplicates,
        "without_key": int(found["without_key"]),
    }


def _growing(
    spark: "SparkSession",
    origin: "Input",
    goal: "Input",
    by: tuple[str, ...],
    time: str,
    window_ms: int,
    checkpoint: str,
    namesrv: str,
    broker_wait_ms: int,
) -> dict[str, int]:
    from pocketmq.pipeline.access import job_access
    from pocketmq.pipeline.jobs.common.console import Progress
    from pocketmq.pipeline.jobs.dedupe.growing import pass_on
    from pocketmq.pipeline.jobs.dedupe.outgoing import for_sink

    frame = (
        spark.readStream.format("pocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", origin.topic)
        .option("startingOffsets", "earliest")
        .option("includeProperties", "true")
        .option("brokerWaitMs", broker_wait_ms)
        .options(**job_access().options())
        .load()
    )

    def write(kept: "DataFrame") -> "DataStreamWriter":
        if not goal.topic:
            return kept.writeStream.format("parquet").option("path", goal.path)
        rows = for_sink(kept, sort=False)
        access = job_access().options()
        return rows.writeStream.format("pocketmq").options(namesrv=namesrv, topic=goal.topic, **access)

    with Progress("dedupe", None) as progress:
        found = pass_on(frame, by, time, window_ms, write, checkpoint, progress.reach)
    kept = found["rows"] - found["duplicates"] - found["late"]
    return {"rows": found["rows"], "kept": kept, "duplicates": found["duplicates"], "late": found["late"]}


JOB: Final = Job(
    "dedupe",
    dedupe,
    (
        "topic:orders /data/orders-once --by keys",
        "topic:orders topic:orders-once --by properties.order_id --within 10m --checkpoint /data/dedupe-state",
        "/data/orders /data/orders-once --by body",
    ),
)

if __name__ == "__main__":
    JOB.script()

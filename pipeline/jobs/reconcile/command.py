"""``reconcile``: two topics, or a topic and a table: lost, duplicated, reordered, delayed messages.

Lives here: its options, and the report.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.common import command
from pocketmq.pipeline.jobs.common.command import DIFFERENT, Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pocketmq.pipeline.jobs.reconcile.comparison import Comparison

MEDIAN: Final = "median"


def reconcile(
    expected: Annotated[str, typer.Argument(metavar="EXPECTED", help="The expected messages: topic:NAME or a path.")],
    actual: Annotated[str, typer.Argument(metavar="ACTUAL", help="The actual messages: topic:NAME or a path.")],
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Column that identifies a message: keys, msg_id, body, properties.NAME; repeatable."),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", help="Column whose content must agree; repeatable.  [default: body if both have it]"),
    ] = None,
    order: Annotated[
        str, typer.Option("--order", help="queue, or a column within whose values order matters, or none.")
    ] = "queue",
    delay_ms: Annotated[
        int | None, typer.Option("--delay-ms", min=0, help="Report messages that arrived later than this.")
    ] = None,
    shift: Annotated[
        str,
        typer.Option(
            "--shift-ms",
            metavar="MS|median",
            help="Subtracted from each delay: after a replay, the median of all.",
        ),
    ] = "0",
    expected_time: Annotated[
        str, typer.Option("--expected-time", help="Column of time.  [default: store_timestamp if there]")
    ] = "",
    actual_time: Annotated[str, typer.Option("--actual-time", help="The same for ACTUAL.")] = "",
    expected_order: Annotated[
        list[str] | None,
        typer.Option("--expected-order", help="Column of order; repeatable.  [default: queue_offset, else time]"),
    ] = None,
    actual_order: Annotated[
        list[str] | None, typer.Option("--actual-order", help="The same for ACTUAL; repeatable.")
    ] = None,
    expected_format: Annotated[str, typer.Option("--expected-format", help="parquet, csv, json or orc.")] = "",
    actual_format: Annotated[str, typer.Option("--actual-format", help="The same for ACTUAL.")] = "",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Directory for all differences and a summary.")
    ] = "",
    output_format: Annotated[str, typer.Option("--output-format", help="parquet or json.")] = "parquet",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files in --output.")] = False,
    examples: Annotated[int, typer.Option("--examples", min=0, max=1000, help="Examples of each kind to show.")] = 5,
    as_json: command.Json = False,
    namesrv: command.Namesrv = command.DEFAULT_NAMESRV,
    actual_namesrv: Annotated[str, typer.Option("--actual-namesrv", help="Name servers of ACTUAL, if different.")] = "",
    broker_wait_ms: command.BrokerWaitMs = command.DEFAULT_BROKER_WAIT_MS,
    master: command.Master = "",
    conf: command.Conf = None,
    py_files: command.PyFiles = None,
) -> None:
    """Compare two topics, or a topic and a table: lost, unexpected, duplicated, altered, reordered, delayed messages.

    Exit code 0: no difference; 1: some. Messages are paired by the columns of --by; messages without them are counted
    as such, and are a difference.
    """
    from pocketmq.pipeline.jobs.common.inputs import Input

    sides = (Input.of(expected, expected_format), Input.of(actual, actual_format))
    servers = (namesrv, actual_namesrv or namesrv)
    shift_ms = None if shift == MEDIAN else _whole(shift)
    if output_format not in ("parquet", "json"):
        raise ConfigError("bad --output-format", why=output_format, hint="parquet or json")

    from pocketmq.pipeline.jobs.common.session import import_spark, job_session

    import_spark()
    for side, servers_of in zip(sides, servers, strict=True):
        side.check(servers_of, broker_wait_ms)
    with job_session("reconcile", master, conf, py_files, stages=True) as spark:
        from pocketmq.pipeline.jobs.common.command import JobFailed
        from pocketmq.pipeline.jobs.common.console import note
        from pocketmq.pipeline.jobs.reconcile.comparison import compare as compare_sides
        from pocketmq.pipeline.jobs.reconcile.sides import Wish, side_of

        _check_output(spark, output, overwrite)
        identity = tuple(by or ("keys",))
        names = [*identity, *(compare or ()), order]
        with_properties = any(name.startswith("properties") for name in names)
        frames = [
            side.read(spark, servers_of, broker_wait_ms, with_properties=with_properties)
            for side, servers_of in zip(sides, servers, strict=True)
        ]
        contents = tuple(compare or ())
        if not contents and "body" not in identity and all("body" in frame.columns for frame in frames):
            contents = ("body",)
        wishes = (
            Wish(expected, identity, expected_time, tuple(expected_order or ()), contents),
            Wish(actual, identity, actual_time, tuple(actual_order or ()), contents),
        )
        group_by = "queue" if order in ("queue", "none") else order
        left = side_of(frames[0], wishes[0], group_by)
        right = side_of(frames[1], wishes[1], "queue")  # the order of its queues
        if order == "none":
            left.has_order = False
        note("reading and pairing both sides")
        found = compare_sides(left, right, delay_ms=delay_ms, shift_ms=shift_ms, content=bool(contents))
        try:
            if not found.expected and not found.actual:
                raise JobFailed("nothing to compare", why="both sides are empty", hint="check their names")
            is_equal = _report(spark, found, output, output_format, overwrite, examples, as_json, delay_ms)
        finally:
            found.close()
    if not is_equal:
        raise typer.Exit(DIFFERENT)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError("bad --shift-ms", why=text, hint="a number of ms, or median") from None


def _check_output(spark: "SparkSession", output: str, overwrite: bool) -> None:
    from pocketmq.pipeline.jobs.archive.files import files_of
    from pocketmq.pipeline.jobs.common.command import JobFailed

    if output and not overwrite and files_of(spark, output).names(""):
        raise JobFailed("the output exists", why=output, hint="name another directory, or --overwrite")


def _report(
    spark: "SparkSession",
    found: "Comparison",
    output: str,
    output_format: str,
    overwrite: bool,
    examples: int,
    as_json: bool,
    delay_ms: int | None,
) -> bool:
    """Print and write the result; return whether the sides are equal."""
    import msgspec

    from pocketmq.pipeline.jobs.archive.files import files_of
    from pocketmq.pipeline.jobs.common.console import note, print_json, print_table
    from pocketmq.pipeline.jobs.reconcile.comparison import KINDS

    counts = {row["kind"]: row["count"] for row in found.differences.groupBy("kind").count().collect()}
    summary: dict[str, Any] = {
        "expected": found.expected,
        "actual": found.actual,
        "matched": found.matched,
        **{kind: counts.get(kind, 0) if kind in found.checks else None for kind in KINDS},
        "without_id_expected": found.without_id_expected,
        "without_id_actual": found.without_id_actual,
        "delay_ms": delay_ms,
        "shift_ms": found.shift_ms,
    }
    is_equal = not counts and not found.without_id_expected and not found.without_id_actual
    summary["equal"] = is_equal
    if output:
        files = files_of(spark, output)
        found.differences.write.mode("overwrite" if overwrite else "error").format(output_format).save(
            f"{files.root}/differences"
        )
        files.write("summary.json", msgspec.json.encode(summary))
    shown: dict[str, list[dict[str, Any]]] = {}
    for kind in KINDS:
        if counts.get(kind) and examples:
            rows = found.differences.where(f"kind = '{kind}'").orderBy("expected_at", "actual_at").limit(examples)
            shown[kind] = [row.asDict() for row in rows.collect()]
    if as_json:
        print_json(summary | {"examples": shown})
        return is_equal
    print_table(
        ("", "messages"),
        [
            (name, "not checked" if value is None else value)
            for name, value in summary.items()
            if name in ("expected", "actual", "matched", *KINDS) or (name.startswith("without") and value)
        ],
        title="equal" if is_equal else "different",
    )
    for kind, each in shown.items():
        columns = ("id", "expected_at", "expected_time", "actual_at", "actual_time", "delay_ms")
        print_table(columns, [[row[name] for name in columns] for row in each], title=f"{kind}: {counts[kind]:,}")
    if output:
        note(f"all differences: {output}/differences")
    return is_equal


JOB: Final = Job(
    "reconcile",
    reconcile,
    (
        "topic:orders topic:orders-copy --by keys",
        "/data/orders topic:orders-copy --by keys --delay-ms 5000 --shift-ms median -o /data/check",
        "shipped.csv topic:shipments --by keys --compare keys --order none",
    ),
)

if __name__ == "__main__":
    JOB.script()

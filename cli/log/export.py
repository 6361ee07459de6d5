"""``pocketmq log export``: messages of a store as JSON lines, as Parquet, or as a clean store.

Lives here: options, the summary.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.log.opening import BytesBar, Directory, open_store
from pocketmq.cli.output import quiet_broken_pipe
from pocketmq.cli.start_position import parse_bound
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.store.offline.log_walk import Finding

FORMATS: Final = ("jsonl", "parquet", "log")


def export(
    directory: Directory,
    out: Annotated[str, typer.Argument(metavar="OUT", help="File, - for standard output, or (log) a new directory.")],
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; repeatable.")] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue id.")] = None,
    from_time: options.From = "",
    to_time: options.Until = "",
    form: Annotated[
        str, typer.Option("--format", help="jsonl, parquet (needs pocketmq[arrow]), or log: a store without damage.")
    ] = "jsonl",
) -> None:
    """Copy messages out of a store. Skips damaged ranges, reports them on standard error, and then exits with 1.

    In JSON a body that is not UTF-8 is in body_base64. In a store made by --format log each record has a new physical
    offset and is otherwise unchanged.
    """
    from pocketmq.cli.log import export_output
    from pocketmq.cli.log.selecting import Wanted

    if form not in FORMATS:
        raise ConfigError("bad --format", why=repr(form), hint="one of " + ", ".join(FORMATS))
    wanted = Wanted(
        frozenset(topic or ()), queue, parse_bound("--from", from_time), parse_bound("--until", to_time), None
    )
    reader = open_store(directory)
    skipped: list[Finding] = []
    count: int | None = None
    bar = BytesBar("export", reader.layout.log_bytes)
    try:
        if form == "jsonl":
            with quiet_broken_pipe():
                count = export_output.write_jsonl(reader, out, wanted, skipped, bar)
        elif form == "parquet":
            count = export_output.write_parquet(reader, out, wanted, skipped, bar)
        else:
            count = export_output.write_log(reader, out, wanted, skipped, bar)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        bar.close()
        reader.close()
    if count is None:  # the reader of the output has gone
        return
    damaged = [each for each in skipped if each.kind == "damage"]
    for each in skipped:
        print(f"{each.kind}: {each.start} to {each.end}: {each.why}", file=sys.stderr)
    lost = sum(each.end - each.start for each in damaged)
    print(f"{count} messages, {len(damaged)} damaged ranges skipped ({lost} bytes)", file=sys.stderr)
    if damaged:
        raise typer.Exit(ExitCode.FAILED)

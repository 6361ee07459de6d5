"""``pocketmq log dump``: the content of a store in readable form.

Lives here: options.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.log.opening import Directory, IndexNumbers, open_store
from pocketmq.cli.output import quiet_broken_pipe
from pocketmq.cli.start_position import parse_bound
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.cli.log.selecting import Wanted

KINDS: Final = ("records", "segments", "queues", "index", "checkpoint", "config")
FORMATS: Final = ("text", "json", "hex")
LIMIT: Final = 20


def dump(
    directory: Directory,
    what: Annotated[str, typer.Option("--what", help="One of: " + ", ".join(KINDS) + ".")] = "records",
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="First offset: physical; with --topic and --queue a queue offset."),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; repeatable.")] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue id.")] = None,
    from_time: options.From = "",
    to_time: options.Until = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Maximum number of records; 0: all.")] = LIMIT,
    form: Annotated[str, typer.Option("--format", help="text, json (one line a record) or hex.")] = "text",
    as_json: options.Json = False,
    index_numbers: IndexNumbers = "",
) -> None:
    """Show records, or other files of a store. Changes nothing. Reports damage on standard error, with exit code 1."""
    _check("--what", what, KINDS)
    _check("--format", form, FORMATS)
    if as_json and form == "text":
        form = "json"
    from pocketmq.cli.log.dump_output import TABLES, dump_records

    reader = open_store(directory, index_numbers)
    try:
        with quiet_broken_pipe():
            if what == "records":
                wanted, from_offset = _wanted(topic, queue, offset, from_time, to_time)
                dump_records(reader, wanted, from_offset, limit, form)
            else:
                TABLES[what](reader, form == "json")
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        reader.close()


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"bad {name}", why=repr(value), hint="one of " + ", ".join(known))


def _wanted(
    topics: list[str] | None, queue: int | None, offset: int | None, from_time: str, to_time: str
) -> "tuple[Wanted, int]":
    from pocketmq.cli.log.selecting import Wanted

    is_queue_offset = bool(topics) and queue is not None
    wanted = Wanted(
        frozenset(topics or ()),
        queue,
        parse_bound("--from", from_time),
        parse_bound("--until", to_time),
        offset if is_queue_offset else None,
    )
    return wanted, 0 if is_queue_offset or offset is None else offset

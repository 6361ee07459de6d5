"""``replay``: rows of a Parquet dataset to a topic, at a rate or in their own time.

Lives here: its options.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.common import command
from pocketmq.pipeline.jobs.common.command import Job

if TYPE_CHECKING:
    from pocketmq.pipeline.jobs.replay.ordering import Summary


def replay(
    path: Annotated[str, typer.Argument(metavar="INPUT", help="Parquet: an archive, or any table with a body.")],
    to_topic: Annotated[str, typer.Option("--to-topic", "-t", help="Topic to send to; it must exist.")],
    rate: Annotated[float, typer.Option("--rate", min=0, help="Maximum rows per second.  [default: no limit]")] = 0,
    speed: Annotated[
        float, typer.Option("--speed", min=0, help="Follow the rows' times: 1 at their pace, 10 ten times as fast.")
    ] = 0,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="Only rows from 2026-11-21T07:00:00Z on.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only rows before that time.")] = "",
    former_since: Annotated[str, typer.Option("--since", hidden=True)] = "",
    body: Annotated[str, typer.Option("--body-column", help="Column of the body; text or binary.")] = "body",
    time: Annotated[
        str, typer.Option("--time-column", help="Column of the time.  [default: store_timestamp if there]")
    ] = "",
    queue_by: Annotated[
        list[str] | None,
        typer.Option(
            "--queue-by", help="Rows with equal values here keep their order; repeatable.  [default: the queue]"
        ),
    ] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option(
            "--order-by", help="Order of such rows; repeatable.  [default: queue_offset, else as in the files]"
        ),
    ] = None,
    state: Annotated[
        str,
        typer.Option("--state", metavar="FILE", help="File for the position.  [default: ~/.local/state/…]"),
    ] = "",
    restart: Annotated[bool, typer.Option("--restart", help="Send from the start, whatever the state says.")] = False,
    skip_empty: Annotated[bool, typer.Option("--skip-empty", help="Skip rows without a body.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be sent, and how long it takes.")
    ] = False,
    as_json: command.Json = False,
    namesrv: command.Namesrv = command.DEFAULT_NAMESRV,
    broker_wait_ms: command.BrokerWaitMs = command.DEFAULT_BROKER_WAIT_MS,
    master: command.Master = "",
    conf: command.Conf = None,
    py_files: command.PyFiles = None,
) -> None:
    """Send the rows of a Parquet dataset to a topic, ordered by time; the order of each queue is kept.

    At least once: an interrupted replay continues after the last acknowledged group of rows; rows of the next group
    may arrive twice. Messages get new ids and times; body, tags, keys, sharding key and the users' properties stay.
    """
    if rate and speed:
        raise ConfigError("options exclude each other", why="--rate and --speed", hint="give one of them")
    since = since or former_since
    bounds = [_time_ms(text) if text else None for text in (since, until)]

    from pocketmq.pipeline.jobs.common.session import import_spark, job_session

    import_spark()
    if not dry_run:
        from pocketmq.pipeline.jobs.common.topics import check_topic

        check_topic(namesrv, to_topic, broker_wait_ms)
    with job_session("replay", master, conf, py_files) as spark:
        import asyncio

        from pocketmq.pipeline.jobs.common.command import JobFailed
        from pocketmq.pipeline.jobs.common.console import Progress, note, print_result
        from pocketmq.pipeline.jobs.replay.ordering import Columns, KeyValue, batches, between, ordered, summary
        from pocketmq.pipeline.jobs.replay.pacing import Pace
        from pocketmq.pipeline.jobs.replay.sending import send_all
        from pocketmq.pipeline.jobs.replay.state import Journal, default_path

        frame = spark.read.parquet(path)
        columns = Columns.of(frame.columns, body, time, queue_by or (), order_by or ())
        if speed and not columns.time:
            raise ConfigError("no times", why="--speed needs a column of time", hint="--time-column NAME")
        frame = between(frame, columns.time, *bounds)
        found = summary(frame, columns)
        if not found.rows:
            raise JobFailed("nothing to send", why=f"{path} has no such rows", hint="check the path, --from, --until")
        if dry_run:
            _say_plan(found, rate, speed, as_json)
            return
        what = [path, to_topic, *columns.queue, *columns.order, columns.time, since, until]
        journal = Journal(Path(state) if state else default_path(what), what)
        with journal.opened(restart=restart) as reached:
            before = reached.rows
            if before:
                note(f"continuing after row {before:,} of {found.rows:,} (state: {journal.path})")
            rows, keys = ordered(frame, columns, found, reached.key)
            with Progress("replay", found.rows) as progress:

                def acknowledged(count: int, key: list[KeyValue]) -> None:
                    journal.reach(before + count, key)
                    progress.reach(before + count)

                sending = send_all(
                    batches(rows),
                    namesrv,
                    to_topic,
                    Pace(rate, speed),
                    keys,
                    acknowledged,
                    wait_ms=broker_wait_ms,
                    skip_empty=skip_empty,
                )
                sent = asyncio.run(sending)
            journal.reach(before + sent.rows, journal.reached.key, done=True)
        result = {"rows": sent.rows, "before": before, "repeated": sent.repeated, "skipped": sent.skipped}
        print_result(result, as_json, f"{path} to {to_topic}")


def _time_ms(text: str) -> int:
    """Return the ms since 1970 of a time in ISO form (UTC if it names no zone) or of a number."""
    import datetime

    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("bad time", why=repr(text), hint="write 2026-11-21T07:00:00Z or ms since 1970") from None
    return int((when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def _say_plan(found: "Summary", rate: float, speed: float, as_json: bool) -> None:
    from pocketmq.pipeline.jobs.common.console import print_result

    span_s = (
        (found.last_us - found.first_us) / 1e6 if found.first_us is not None and found.last_us is not None else None
    )
    takes_s = found.rows / rate if rate else span_s / speed if speed and span_s is not None else None
    result: dict[str, Any] = {
        "rows": found.rows,
        "body_bytes": found.body_bytes,
        "without_body": found.without_body,
        "span_s": None if span_s is None else round(span_s, 3),
        "takes_s": None if takes_s is None else round(takes_s, 1),
    }
    print_result(result, as_json, "would be sent")


JOB: Final = Job(
    "replay",
    replay,
    (
        "/data/orders -t orders-copy --rate 5000",
        "/data/orders -t orders-copy --speed 10 --from 2026-11-21T07:00Z --until 2026-11-21T09:00Z",
        "flights.parquet -t flights --body-column row --queue-by carrier --order-by time_hour --dry-run",
    ),
)

if __name__ == "__main__":
    JOB.script()

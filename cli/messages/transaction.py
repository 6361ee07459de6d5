"""``pocketmq transaction list | end | resume``.

Lives here: options and output.
"""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.output import print_note, print_rows, time_text
from pocketmq.cli.run import build_group, confirm, run_admin
from pocketmq.cli.start_position import parse_duration

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    return build_group("Half messages that wait for a decision.", list=list_open, end=end, resume=resume)


def list_open(
    broker: options.Broker = "",
    max_count: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of rows.")] = 1000,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the half messages without a decision: producer group, age, checks so far."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.transaction_admin import open_transactions

        found = await open_transactions(admin, broker, max_count)
        now_ms = time.time_ns() // 1_000_000
        columns = ("broker", "half_offset", "topic", "group", "msg_id", "stored", "age_s", "checks")
        rows = [
            (
                name,
                each.queue_offset,
                each.topic,
                each.producer_group,
                each.uniq_key,
                time_text(each.store_timestamp),
                max(0, now_ms - each.store_timestamp) // 1000,
                each.checks,
            )
            for name, each in found
        ]
        print_rows(columns, rows, as_json)

    run_admin(namesrv, body)


def end(
    group: Annotated[str, typer.Option("--group", "-g", help="Producer group whose half messages are ended.")],
    commit: Annotated[bool, typer.Option("--commit/--rollback", help="Deliver them, or drop them.")],
    broker: options.Broker = "",
    half_offset: Annotated[
        list[int] | None, typer.Option("--half-offset", help="Only this one, as list shows it; repeatable.")
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Only those that are at least 30s, 15m or 2h old.")
    ] = "0s",
    max_count: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="Look at no more than this.")
    ] = 100_000,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Decide half messages whose producers are gone: commit them or roll them back, for good."""
    age_ms = parse_duration("--older-than", f"{older_than}s" if older_than.isdecimal() else older_than)

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.transaction_admin import end_transactions, open_transactions

        oldest_ms = time.time_ns() // 1_000_000 - age_ms
        chosen = [
            (name, each)
            for name, each in await open_transactions(admin, broker, max_count)
            if each.producer_group == group
            and each.store_timestamp <= oldest_ms
            and (not half_offset or each.queue_offset in half_offset)
        ]
        verb, word = ("Commit", "committed") if commit else ("Roll back", "rolled back")
        confirm(f"{verb} {len(chosen):,} half messages of {group}?", yes or not chosen, else_what="nothing was decided")
        rows = [
            (name, each.queue_offset, each.topic, each.uniq_key, why or word)
            for name, each, why in await end_transactions(admin, chosen, commit=commit)
        ]
        print_rows(("broker", "half_offset", "topic", "msg_id", "result"), rows, as_json)
        if any(row[-1] != word for row in rows):
            raise typer.Exit(1)

    run_admin(namesrv, body)


def resume(
    msg_id: Annotated[
        str, typer.Argument(metavar="ID", help="Offset message id of a message in TRANS_CHECK_MAX_TIME_TOPIC.")
    ],
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Let the broker check a half message again that it gave up after too many checks."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.transaction_admin import resume_transaction

        address = await resume_transaction(admin, msg_id)
        print_note(f"the broker at {address} checks with its producers again")

    run_admin(namesrv, body)

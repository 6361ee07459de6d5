"""``pocketmq transaction list | resume``.

Lives here: options and what is printed.
"""

import time
from typing import Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.output import print_json, print_note, print_table, time_text
from pocketmq.cli.run import run_async


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(help="Half messages that wait for a decision.", no_args_is_help=True)
    app.command("list")(list_open)
    app.command()(resume)
    return app


def list_open(
    broker: Annotated[str, typer.Option("--broker", help="Only of this broker.")] = "",
    max_count: Annotated[int, typer.Option("--max", min=1, max=100_000, help="Show at most so many.")] = 1000,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the half messages without a decision: producer group, age, checks so far."""

    async def body() -> None:
        from pocketmq.client.admin.admin import Admin
        from pocketmq.client.admin.transaction_admin import open_transactions

        async with Admin(namesrv) as admin:
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
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)

    run_async(body())


def resume(
    msg_id: Annotated[
        str, typer.Argument(metavar="ID", help="Offset message id of a message in TRANS_CHECK_MAX_TIME_TOPIC.")
    ],
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Let the broker ask again about a half message that it gave up after too many checks."""

    async def body() -> None:
        from pocketmq.client.admin.admin import Admin
        from pocketmq.client.admin.transaction_admin import resume_transaction

        async with Admin(namesrv) as admin:
            address = await resume_transaction(admin, msg_id)
        print_note(f"the broker at {address} asks its producers again")

    run_async(body())

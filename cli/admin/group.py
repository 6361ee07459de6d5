"""``pocketmq group list | describe | seek``.

Lives here: options and what is printed.
"""

from typing import Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.group_running import ask_members, print_running, running_json
from pocketmq.cli.output import print_json, print_note, print_table, time_text
from pocketmq.cli.run import run_async
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(help="List, describe and move consumer groups.", no_args_is_help=True)
    app.command("list")(list_groups)
    app.command()(describe)
    app.command()(seek)
    return app


def list_groups(
    everything: Annotated[bool, typer.Option("--all", help="Also RocketMQ's own groups.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the consumer groups that some broker knows, with members and what they have not consumed yet."""

    async def body() -> None:
        from pocketmq.client.admin.admin import Admin, NotFound

        rows = []
        async with Admin(namesrv) as admin:
            for group in await admin.groups():
                if not everything and _is_system_group(group):
                    continue
                try:
                    found = await admin.describe_group(group)
                except NotFound:  # gone meanwhile
                    continue
                topics = sorted({each.queue.topic for each in found.queues} | set(found.subscriptions))
                rows.append((group, len(found.members), found.lag, ", ".join(topics)))
        columns = ("group", "members", "lag", "topics")
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)

    run_async(body())


def describe(
    group: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only this topic.")] = "",
    running: Annotated[bool, typer.Option("--running", help="Also ask each member what it does now.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show how far a group has consumed each queue; its members go to standard error."""

    async def body() -> None:
        from pocketmq.client.admin.admin import Admin

        async with Admin(namesrv) as admin:
            found = await admin.describe_group(group, topic=topic)
            client_ids = [each.client_id for each in found.members] if running else []
            answers = await ask_members(admin, group, client_ids)
        rows = [
            (
                each.queue.topic,
                each.queue.broker_name,
                each.queue.queue_id,
                each.broker_offset,
                each.consumer_offset,
                each.lag,
                time_text(each.last_consumed_ms) if each.last_consumed_ms else None,
            )
            for each in found.queues
        ]
        columns = ("topic", "broker", "queue_id", "broker_offset", "consumer_offset", "lag", "last_consumed")
        members = [{"client_id": each.client_id, "address": each.client_addr} for each in found.members]
        if as_json:
            queues = [dict(zip(columns, row, strict=True)) for row in rows]
            print_json(
                {
                    "group": group,
                    "lag": found.lag,
                    "consume_type": found.consume_type,
                    "message_model": found.message_model,
                    "subscriptions": found.subscriptions,
                    "members": members,
                    "queues": queues,
                    **({"running": running_json(answers)} if running else {}),
                }
            )
            return
        print_table(columns, rows, title=f"{group}: {found.lag:,} behind, {len(members)} members")
        for member in members:
            print_note(f"member {member['client_id']} at {member['address']}")
        if running:
            print_running(answers)

    run_async(body())


def seek(
    group: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets are set.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="WHERE", help="earliest, latest, a time (2026-11-21T07:00:00Z or ms), or 15m (ago)."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Even while its consumers are connected.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Set where a group goes on in a topic. Refused while its consumers are connected: they would overwrite it."""
    from pocketmq.cli.start_position import parse_start

    position = parse_start(to, SystemClock().now_ms())
    if position == "committed":
        raise ConfigError("--to committed changes nothing", hint="use earliest, latest or a time")

    async def body() -> None:
        from pocketmq.client.admin.admin import Admin

        async with Admin(namesrv) as admin:
            offsets = await admin.seek_group(group, topic, position, force=force)
        rows = [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]
        columns = ("topic", "broker", "queue_id", "offset")
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows, title=f"{group} goes on at")

    run_async(body())


def _is_system_group(group: str) -> bool:
    return group.startswith("CID_") or group in ("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP")

"""``pocketmq group list | describe | seek``.

Lives here: options and output.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.group_running import ask_members, print_running, running_json
from pocketmq.cli.output import print_json, print_note, print_rows, print_table, time_text
from pocketmq.cli.run import build_group, run_admin
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "List, describe and move consumer groups."
    return build_group(help_text, list=list_groups, describe=describe, seek=seek)


def list_groups(
    everything: Annotated[bool, typer.Option("--all", help="Include RocketMQ's own groups.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the consumer groups of all brokers with their members, lag and topics."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.admin import NotFound

        rows = []
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
        print_rows(columns, rows, as_json)

    run_admin(namesrv, body)


def describe(
    group: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only this topic.")] = "",
    running: Annotated[bool, typer.Option("--running", help="Also ask each member for its present work.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show how far a group has consumed each queue; its members are printed on standard error."""

    async def body(admin: "Admin") -> None:
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

    run_admin(namesrv, body)


def seek(
    group: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets are set.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="WHERE", help="earliest, latest, a time (2026-11-21T07:00:00Z or ms), or 15m (ago)."
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Also while its consumers are connected.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Set the offsets of a group in a topic. Refused while its consumers are connected: they would overwrite them."""
    from pocketmq.cli.start_position import parse_start

    position = parse_start(to, SystemClock().now_ms())
    if position == "committed":
        raise ConfigError("--to committed changes nothing", hint="use earliest, latest or a time")

    async def body(admin: "Admin") -> None:
        offsets = await admin.seek_group(group, topic, position, force=force)
        rows = [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(offsets.items())]
        columns = ("topic", "broker", "queue_id", "offset")
        print_rows(columns, rows, as_json, title=f"{group} continues at")

    run_admin(namesrv, body)


def _is_system_group(group: str) -> bool:
    return group.startswith("CID_") or group in ("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP")

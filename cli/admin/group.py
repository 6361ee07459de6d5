"""``pocketmq group list | describe | seek | delete``.

Lives here: options and output; ``seek`` is in ``group_seek``.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.group_running import ask_members, print_running, running_json
from pocketmq.cli.admin.group_seek import seek
from pocketmq.cli.admin.lock_columns import LOCK, lock_columns
from pocketmq.cli.output import print_done, print_json, print_note, print_rows, print_table, time_text
from pocketmq.cli.own_groups import is_own_group
from pocketmq.cli.run import build_group, confirm, run_admin

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "List, describe, move and delete consumer groups."
    return build_group(help_text, list=list_groups, describe=describe, seek=seek, delete=delete)


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
            if not everything and is_own_group(group):
                continue
            try:
                found = await admin.describe_group(group)
            except NotFound:  # gone meanwhile
                continue
            topics = sorted({each.queue.topic for each in found.queues} | set(found.subscriptions))
            committed = any(each.is_committed for each in found.queues)
            lag = found.lag if committed else None  # without a committed offset nothing is known
            rows.append((group, len(found.members), lag, ", ".join(topics)))
        columns = ("group", "members", "lag", "topics")
        print_rows(columns, rows if as_json else [_without_none(row) for row in rows], as_json)

    run_admin(namesrv, body)


def describe(
    group: options.GroupArgument,
    topic: options.OnlyTopic = "",
    running: Annotated[bool, typer.Option("--running", help="Also ask each member for its present work.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show how far a group has consumed each queue, and which client holds its lock; members on standard error.

    A topic without a committed offset counts from 0, so that a group shows that is stuck on its first message.
    """

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.lock_admin import known_locks

        found = await admin.describe_group(group, topic=topic)
        locks = await known_locks(admin, group=group, topic=topic)
        client_ids = [each.client_id for each in found.members] if running else []
        answers = await ask_members(admin, group, client_ids)
        rows = [
            (
                each.queue.topic,
                each.queue.broker_name,
                each.queue.queue_id,
                each.broker_offset,
                each.consumer_offset if each.is_committed else None,
                each.lag,
                time_text(each.last_consumed_ms) if each.last_consumed_ms else None,
                *lock_columns(locks.get(each.queue)),
            )
            for each in found.queues
        ]
        columns = ("topic", "broker", "queue_id", "broker_offset", "consumer_offset", "lag", "last_consumed", *LOCK)
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


def delete(
    group: options.GroupArgument,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Keep its committed offsets.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while its consumers are connected.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Delete a group, its offsets and its retry topic. Refused while its consumers are connected: they would create it
    again."""

    async def body(admin: "Admin") -> None:
        found = await admin.describe_group(group)  # an unknown group is an error
        confirm(
            f"Delete group {group}, which is {found.lag:,} messages behind in {len(found.queues)} queues?",
            yes,
            else_what=f"group {group} not deleted",
        )
        await admin.delete_group(group, keep_offsets=keep_offsets, force=force)
        text = f"deleted {group}{' but for its offsets' if keep_offsets else ''}"
        print_done(text, as_json, group=group, did="deleted", lag=found.lag, offsets_kept=keep_offsets)

    run_admin(namesrv, body)


def _without_none(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple("-" if cell is None else cell for cell in row)

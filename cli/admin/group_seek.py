"""``pocketmq group seek``: the offsets of a group, before and after.

Lives here: its options, output.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.output import print_rows
from pocketmq.cli.queue_choice import choose_queues
from pocketmq.cli.run import confirm, run_admin
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.group_admin import GroupMove


def seek(
    group: options.GroupArgument,
    topic: Annotated[
        str, typer.Option("--topic", "-t", help="Topic whose offsets are set.", autocompletion=complete.topics)
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, a time (2026-11-21T07:00:00Z or ms), or 15m (ago).",
            autocompletion=complete.words("earliest", "latest"),
        ),
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="This offset, instead of --to.")] = None,
    queue_ids: options.Queues = None,
    broker: options.Broker = "",
    create: Annotated[bool, typer.Option("--create", help="Give offsets to a group that does not exist yet.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show where the group would continue.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while its consumers are connected.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Set the offsets of a group in a topic; shows them before and after.

    Refused while its consumers are connected: they would overwrite them.
    """
    from pocketmq.cli.start_position import parse_start

    if (to is None) == (offset is None):
        which = "neither --to nor --offset is" if to is None else "--to and --offset are"
        raise ConfigError("no position", why=f"{which} given", hint="give one of them")
    position = None if to is None else parse_start(to, SystemClock().now_ms())
    if position == "committed":
        raise ConfigError("--to committed changes nothing", hint="use earliest, latest or a time")

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.admin import NotFound
        from pocketmq.client.admin.group_admin import move_group, plan_moves

        if not create and group not in await admin.groups():
            raise NotFound(f"no group {group}", why="no broker knows it", hint="--create makes it with these offsets")
        route = await admin.instance.route(topic, timeout_ms=admin.instance.options.api_timeout_ms)
        queues = choose_queues(route.read_queues, topic, queue_ids or [], broker)
        moves = await plan_moves(admin, group, topic, position, offset=offset, queues=queues)
        if dry_run:
            _print(moves, f"{group} would continue at", as_json)
            return
        if not yes and sys.stdin.isatty():
            _print(moves, f"{group} will continue at", as_json)
        confirm(f"Move {group} in {len(moves)} queues of {topic}?", yes, else_what=f"group {group} not moved")
        await move_group(admin, group, moves, position, force=force)
        _print(moves, f"{group} continues at", as_json)

    run_admin(namesrv, body)


def _print(moves: "Sequence[GroupMove]", title: str, as_json: bool) -> None:
    nothing = None if as_json else "-"
    rows = [
        (queue.topic, queue.broker_name, queue.queue_id, nothing if before < 0 else before, after)
        for queue, before, after in ((each.queue, each.before, each.after) for each in moves)
    ]
    print_rows(("topic", "broker", "queue_id", "before", "offset"), rows, as_json, title=title)

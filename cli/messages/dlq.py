"""``pocketmq dlq list | show | resend | export | purge``.

Lives here: options, output, confirmation.
"""

import base64
import sys
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.drawn_table import TimeText
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import ProgressBar, print_done, print_json, print_note, print_table, printable, time_or_none
from pocketmq.cli.run import build_group, confirm, run_admin
from pocketmq.common.errors import ConfigError, PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.dead_letters import DeadLetters, Resends
    from pocketmq.common.message import ReceivedMessage

Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="Message id or offset message id; repeatable.")
]
SHOWN: Final = 20
BODY_SHOWN: Final = 200
"""Characters of a body in a table."""
TOGETHER: Final = 16
PART: Final = 500
"""Dead letters that are read before the search for their resends."""
CHOSEN_BYTES_MAX: Final = 256 << 20


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "Dead letters: messages that consumer groups gave up."
    return build_group(help_text, list=list_groups, show=show, resend=resend, export=export, purge=purge)


def list_groups(as_json: options.Json = False, namesrv: options.Namesrv = options.DEFAULT_NAMESRV) -> None:
    """List the groups that have dead letters, with their number, the oldest and the newest."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.dead_letters import DeadLetters

        groups = await DeadLetters(admin).groups()
        if as_json:
            print_json(
                [
                    {
                        "group": each.group,
                        "count": each.count,
                        "oldest": time_or_none(each.oldest_ms),
                        "newest": time_or_none(each.newest_ms),
                    }
                    for each in groups
                ]
            )
            return
        rows = [(each.group, each.count, time_or_none(each.oldest_ms), time_or_none(each.newest_ms)) for each in groups]
        print_table(("group", "messages", "oldest", "newest"), rows)
        if not rows:
            print_note("no group has dead letters")

    run_admin(namesrv, body)


def show(
    group: options.GroupArgument,
    ids: Ids = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")] = SHOWN,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show dead letters of a group, oldest first: their origin, how often and why they failed, their bodies.

    A table has the beginning of a body; --json has all of it, in body_base64 if it is no text.
    """

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.dead_letters import DeadLetters

        letters = DeadLetters(admin)
        await _require_any(admin, group)
        messages = await _select(letters, group, ids or [], limit)
        resends = await _resends(letters, group, messages)
        _missing(ids or [], messages, group)
        facts = [_facts(message, sent) for message, sent in zip(messages, resends, strict=True)]
        if as_json:
            for each in facts:
                print_json(each)
            return
        names = ("stored", "msg_id", "offset_msg_id", "origin_topic", "attempts", "last_error", "resent", "body")
        print_table(names, [[_cell(name, each) for name in names] for each in facts])

    run_admin(namesrv, body)


def resend(
    group: options.GroupArgument,
    ids: Ids = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="This many of the oldest not yet sent again."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the group.")] = False,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="retry: only this group gets them again; origin: all groups of their first topic get them."
        ),
    ] = "retry",
    again: Annotated[bool, typer.Option("--again", help="Include those that were sent again before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be sent.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Send copies of dead letters again. The dead letters stay in their topic, and the copies are counted."""
    if to not in ("retry", "origin"):
        raise ConfigError("bad --to", why=repr(to), hint="retry or origin")
    if sum((bool(ids), limit is not None, everything)) != 1:
        raise ConfigError("no choice of messages", why="it takes --id, --limit or --all", hint="give one of them")

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.dead_letters import DeadLetters

        letters = DeadLetters(admin)
        await _require_any(admin, group)
        chosen = await _choose(letters, group, ids or [], limit, again)
        result = {"selected": chosen.seen, "sent_before": chosen.sent_before, "unknown": chosen.unknown}
        if chosen.unknown and not again:
            why = f"{chosen.error}; --again sends them anyway"
            print(
                f"{chosen.unknown} not sent: it is not known whether they were sent before: {why}",
                file=sys.stderr,
            )
        if chosen.is_cut:
            print(f"more than {CHOSEN_BYTES_MAX >> 20} MiB: run the command again for the rest", file=sys.stderr)
        if not dry_run:
            _confirm(len(chosen.messages), group, to, yes)
            result |= await _send(letters, group, to, chosen.messages)
        else:
            result |= {"would_send": len(chosen.messages)}
        if as_json:
            print_json(result)
        else:
            print_table(tuple(result), [tuple(result.values())])
        if result.get("failed"):
            raise CommandFailed(
                f"{result['failed']} of {len(chosen.messages)} not sent", why="see above", hint="try again"
            )

    run_admin(namesrv, body)


def export(
    group: options.GroupArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A new file; - is standard output (JSON lines only).")
    ],
    file_format: Annotated[
        str, typer.Option("--format", help="jsonl or parquet.  [default: by the file's suffix]")
    ] = "",
    ids: Ids = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="This many of the oldest.")] = None,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Write dead letters to a file: JSON lines or Parquet (pip install 'pocketmq[arrow]')."""
    from pocketmq.cli.messages.dlq_export import open_writer

    chosen = file_format or ("parquet" if output.endswith(".parquet") else "jsonl")
    if chosen not in ("jsonl", "parquet") or (chosen == "parquet" and output == "-"):
        raise ConfigError("bad --format", why=f"{chosen} to {output}", hint="jsonl, or parquet to a file")

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.dead_letters import DeadLetters

        count = 0
        await _require_any(admin, group)
        with open_writer(chosen, output) as write, ProgressBar("export", limit, wanted=output != "-") as bar:
            async for message in DeadLetters(admin).read(group, ids or ()):
                write(message)
                count += 1
                bar.advance()
                if count == limit:
                    break
        print_note(f"{count:,} dead letters of {group} written to {output}")

    run_admin(namesrv, body)


def purge(
    group: options.GroupArgument,
    force: Annotated[bool, typer.Option("--force", help="Also while a consumer of dead letters is connected.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Remove all dead letters of a group, for good; export writes them to a file before."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.topic_purge import purge_topic
        from pocketmq.common.topics import dlq_topic

        topic = dlq_topic(group)
        await _require_any(admin, group)
        found = await admin.describe_topic(topic)
        confirm(f"Remove all {found.count:,} dead letters of {group}?", yes, else_what=f"dead letters of {group} kept")
        await purge_topic(admin, topic, force=force)
        text = f"removed {found.count:,} dead letters of {group}"
        print_done(text, as_json, group=group, did="emptied", messages=found.count)

    run_admin(namesrv, body)


async def _require_any(admin: "Admin", group: str) -> None:
    """Raise ``CommandFailed`` where the group has never given up a message: its topic does not exist."""
    from pocketmq.client.errors import NoRoute
    from pocketmq.common.topics import check_group_name, dlq_topic

    check_group_name(group)
    try:
        await admin.instance.route(dlq_topic(group), timeout_ms=admin.instance.options.api_timeout_ms)
    except NoRoute as error:
        what = f"no dead letters of {group}"
        raise CommandFailed(
            what, why="it has never given up a message", hint="pocketmq dlq list", cause=error.cause
        ) from error


async def _select(letters: "DeadLetters", group: str, ids: list[str], limit: int) -> "list[ReceivedMessage]":
    messages: list[ReceivedMessage] = []
    async for message in letters.read(group, ids):
        messages.append(message)
        if len(messages) == limit:
            break
    return messages


async def _resends(letters: "DeadLetters", group: str, messages: "list[ReceivedMessage]") -> "list[Resends]":
    import asyncio

    places = asyncio.Semaphore(TOGETHER)
    with ProgressBar("find resends", len(messages)) as bar:

        async def one(message: "ReceivedMessage") -> "Resends":
            async with places:
                found = await letters.resends(message, group)
                bar.advance()
                return found

        return list(await asyncio.gather(*map(one, messages)))


@dataclass(slots=True)
class Chosen:
    """The messages of a resend, and counts of the others. ``is_cut``: not all fit into memory."""

    messages: "list[ReceivedMessage]" = field(default_factory=list)
    size_bytes: int = 0
    seen: int = 0
    sent_before: int = 0
    unknown: int = 0
    error: str = ""
    is_cut: bool = False


async def _choose(letters: "DeadLetters", group: str, ids: list[str], limit: int | None, again: bool) -> Chosen:
    """Read dead letters until ``limit`` of them may be sent: without ``again`` only those that never were."""
    chosen = Chosen()
    found: list[ReceivedMessage] = []
    part: list[ReceivedMessage] = []

    async def check() -> bool:
        for message, sent in zip(part, await _resends(letters, group, part), strict=True):
            if len(chosen.messages) == limit or chosen.size_bytes > CHOSEN_BYTES_MAX:
                chosen.is_cut = len(chosen.messages) != limit
                return False
            chosen.seen += 1
            chosen.sent_before += bool(sent.count)
            if sent.error and not sent.count:
                chosen.unknown += 1
                chosen.error = chosen.error or sent.error
            if again or (not sent.count and not sent.error):
                chosen.messages.append(message)
                chosen.size_bytes += message.size_bytes
        part.clear()
        return True

    async with aclosing(letters.read(group, ids)) as messages:
        async for message in messages:
            part.append(message)
            if ids:
                found.append(message)
            if len(part) == PART and not await check():
                break
        else:
            await check()
    _missing(ids, found, group)
    return chosen


async def _send(letters: "DeadLetters", group: str, to: str, messages: "list[ReceivedMessage]") -> dict[str, int]:
    """Send them one after the other, oldest first."""
    failed = 0
    with ProgressBar("resend", len(messages)) as bar:
        for message in messages:
            try:
                await letters.resend(message, group, to)
            except PocketMQError as error:
                failed += 1
                print(f"not sent: {message.offset_msg_id}: {error}", file=sys.stderr)
            bar.advance()
    return {"sent": len(messages) - failed, "failed": failed}


def _confirm(count: int, group: str, to: str, yes: bool) -> None:
    groups = f"only {group}" if to == "retry" else "every group that consumes their first topics"
    question = f"Send {count:,} dead letters of {group} again, for {groups}?"
    confirm(question, yes or not count, else_what=f"{count:,} messages for {groups} not sent")


def _missing(ids: list[str], messages: "list[ReceivedMessage]", group: str) -> None:
    known = {message.msg_id for message in messages} | {message.offset_msg_id for message in messages}
    missing = [each for each in ids if each not in known]
    if missing:
        raise CommandFailed(
            f"no dead letter {missing[0]}",
            why=f"{len(missing)} of {len(ids)} ids are not dead letters of {group}",
            hint=f"pocketmq dlq show {group}",
        )


def _facts(message: "ReceivedMessage", sent: "Resends") -> dict[str, Any]:
    from pocketmq.client.admin.dead_letters import last_error, origin_topic

    return {
        "stored": time_or_none(message.store_timestamp),
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "origin_topic": origin_topic(message),
        "origin_message_id": message.origin_message_id,
        "attempts": message.reconsume_times,
        "last_error": last_error(message),
        "resent": None if sent.error and not sent.count else sent.count,
        "last_resent": time_or_none(sent.last_ms),
        "keys": message.keys,
        "tags": message.tags,
        "size": len(message.raw_body),
        **_body(message),
    }


def _body(message: "ReceivedMessage") -> dict[str, str]:
    """Return the body as text, or in base64; that of one that cannot be unpacked is the problem."""
    from pocketmq.common.message import BodyUnreadable

    try:
        body = bytes(message.body)
    except BodyUnreadable as error:
        return {"body_problem": error.why or error.what}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def _cell(name: str, facts: dict[str, Any]) -> Any:
    """Return the value of a column of the table."""
    value = facts.get(name)
    if name == "body":
        text = value if value is not None else facts.get("body_base64") or f"({facts['body_problem']})"
        return printable(text if len(text) <= BODY_SHOWN else text[:BODY_SHOWN] + "…")
    if name == "resent" and value is None:
        return "?"
    return printable(value) if isinstance(value, str) and not isinstance(value, TimeText) else value

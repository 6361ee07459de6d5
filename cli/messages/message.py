"""``pocketmq message get | query``.

Lives here: options, the forms of an id, the output of messages and of "not found".
"""

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import printable, time_text
from pocketmq.cli.run import build_group, run_admin
from pocketmq.cli.start_position import parse_bound
from pocketmq.common.errors import Cause, ConfigError, PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.query import Found
    from pocketmq.common.message import ReceivedMessage

_PLACE: Final = re.compile(r"([^/]+)/(?:([^/:]+):)?(\d{1,9})/(\d{1,18})")
_HEX_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_BODY_SHOWN: Final = 2000
_TOPICS_MAX: Final = 1000
clean = partial(printable, keep="\n\t")
"""Returns text without control characters but line ends and tabs."""


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    return build_group("Find single messages.", get=get, query=query)


def get(
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Offset message id, unique id, or TOPIC/QUEUE/OFFSET (TOPIC/BROKER:QUEUE/OFFSET)."
        ),
    ],
    topic: Annotated[
        str,
        typer.Option(
            "--topic", "-t", help="Topic of a unique id.  [default: search all topics]", autocompletion=complete.topics
        ),
    ] = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show one message."""
    place = _PLACE.fullmatch(message)
    if place is None and _HEX_ID.fullmatch(message) is None and not topic:
        raise ConfigError(
            "bad message id",
            why=repr(message[:100]),
            hint="write 32 or 56 hex digits, TOPIC/QUEUE/OFFSET, or a unique id with --topic",
        )

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.query import Found, MessageFinder

        finder = MessageFinder(admin)
        if place is not None:
            found = await finder.by_queue_offset(place[1], int(place[3]), int(place[4]), broker=place[2] or "")
        else:
            found = Found()
            if not topic and _HEX_ID.fullmatch(message):
                found = await finder.by_offset_id(message)
            if not found.messages:
                topics = [topic] if topic else await _user_topics(admin)
                found.add(await finder.by_unique_id(message, topics))
        hint = "it may be older than the retention time, or of another topic"
        if place is not None:
            hint = f"pocketmq topic describe {place[1]} shows the offsets that are there"
        _print(found, as_json, f"no message {message}", hint)

    run_admin(namesrv, body)


async def _user_topics(admin: object) -> list[str]:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.common.topics import is_system_topic

    assert isinstance(admin, Admin)
    clusters = (await admin.cluster_info()).cluster_addr_table
    try:
        own = {*await admin.masters(), *clusters}
    except PocketMQError:
        own = set(clusters)
    topics = [topic for topic in await admin.topics() if topic not in own and not is_system_topic(topic)]
    return topics[:_TOPICS_MAX]


def query(
    topic: options.TopicArgument,
    key: Annotated[str, typer.Option("--key", help="One of the message's keys.")] = "",
    unique_id: Annotated[str, typer.Option("--unique-id", help="The id that the producer assigned.")] = "",
    begin: options.From = "",
    until: options.Until = "",
    former_end: Annotated[str, typer.Option("--end", hidden=True)] = "",
    max_messages: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=64, help="Maximum number of messages, the newest.")
    ] = 32,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Find messages by key or unique id, on all brokers of the topic."""
    if bool(key) == bool(unique_id):
        raise ConfigError("bad options", why="--key or --unique-id is needed, not both", hint="give one of them")
    begin_ms = parse_bound("--from", begin) or 0
    until_ms = parse_bound("--until", until)
    if until_ms is None and former_end:
        until_ms = (parse_bound("--end", former_end) or 0) + 1

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.query import MessageFinder

        found = await MessageFinder(admin).by_key(
            topic,
            key or unique_id,
            unique=bool(unique_id),
            begin_ms=begin_ms,
            end_ms=(1 << 63) - 1 if until_ms is None else until_ms - 1,
            max_messages=max_messages,
        )
        limits = f", stored from {time_text(begin_ms)}" if begin else ""
        limits += "" if until_ms is None else f"{'' if limits else ', stored'} until {time_text(until_ms)}"
        hint = "it may be older than the retention time, of another topic, or stored by a broker whose index was off "
        hint += "(message_index_enable)"
        if limits:
            hint = "it may be outside of --from and --until; otherwise " + hint
        _print(found, as_json, f"no message with {'key ' + key if key else 'unique id ' + unique_id}{limits}", hint)

    run_admin(namesrv, body)


def _print(found: "Found", as_json: bool, nothing: str, hint: str) -> None:
    from pocketmq.cli.message_format import json_line

    for message in found.messages:
        if as_json:
            sys.stdout.write(json_line(message).decode())
        else:
            _print_message(message)
    failed = [each for each in found.asked if each.failed and each.address]
    if found.messages:
        for each in failed:
            print(f"not asked: {each.broker_name} {each.address}: {each.remark}", file=sys.stderr)
        return
    looked = [
        f"{each.broker_name or 'cluster'}{' ' + each.address if each.address else ''}: {each.what}: "
        f"{each.remark or 'nothing there'}"
        for each in found.asked[:20]
    ]
    if len(found.asked) > 20:
        looked.append(f"... {len(found.asked) - 20} more")
    raise CommandFailed(
        nothing,
        why="; ".join(looked) or "no topic to search",
        hint=hint,
        cause=Cause.CONNECTION if failed and len(failed) == len(found.asked) else Cause.BAD_REQUEST,
    )


def _print_message(message: "ReceivedMessage") -> None:
    print(f"{message.topic}  {message.broker_name}  queue {message.queue_id}  offset {message.queue_offset}")
    print(f"  msg_id         {clean(message.msg_id)}")
    print(f"  offset_msg_id  {message.offset_msg_id}")
    print(f"  stored         {time_text(message.store_timestamp)} at {message.store_host}")
    print(f"  born           {time_text(message.born_timestamp)} at {message.born_host}")
    if message.reconsume_times:
        print(f"  reconsumed     {message.reconsume_times} times")
    for name, value in message.properties.items():
        print(f"  property       {clean(name)}={clean(value)}")
    try:
        body = bytes(message.body)
    except PocketMQError as error:
        print(f"  body           {len(message.raw_body):,} bytes, {error.why}")
        return
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = body[:64].hex(" ")
    more = f" ... {len(body):,} bytes" if len(text) > _BODY_SHOWN or (len(body) > 64 and not text.isprintable()) else ""
    print(f"  body           {clean(text[:_BODY_SHOWN])}{more}")

"""``pocketmq topic tail TOPIC``: what is sent to a topic, as it comes.

Lives here: options, the order of messages of several queues, one line a message.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.connection import given
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import printable, quiet_broken_pipe, time_text
from pocketmq.cli.queue_choice import wait_for_topic
from pocketmq.cli.run import run_async
from pocketmq.cli.start_position import parse_duration
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client import PullConsumer
    from pocketmq.common.message import ReceivedMessage

READER: Final = "pocketmq-cli"
"""The group named in pulls; it has no members and commits nothing."""
MERGE_S: Final = 0.1
"""How long a message waits for others that were stored before it in another queue."""
MERGE_MAX: Final = 2000
"""Messages that are put in order at once; the reading waits for the output beyond them."""
_BODY_SHOWN: Final = 200
_NO_CHARACTER: Final = "\N{REPLACEMENT CHARACTER}"


def tail(
    topic: options.TopicArgument,
    tags: Annotated[str, typer.Option("--tags", help='Only messages with these tags: "A || B".')] = "*",
    sql: Annotated[
        str, typer.Option("--sql", metavar="FILTER", help='Only messages with these properties: "price > 10".')
    ] = "",
    count: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many messages.")] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Stop after 500ms, 30s or 15m; see above.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")] = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show messages as they are sent, from now on, until Ctrl-C.

    It joins no group and commits nothing, and waits for a topic that does not exist yet. Messages of several queues
    come in the order in which they were stored. A line has the time, queue/offset, tags, keys and the first 200
    characters of the body; control characters are replaced. pocketmq consume --follow writes bodies unchanged.

    With --timeout and --limit the exit code is 1 if fewer messages came.
    """
    if sql and tags != "*":
        raise ConfigError("options exclude each other", why="--sql and --tags", hint="SQL can compare TAGS, too")

    timeout_s = parse_duration("--timeout", timeout) / 1000 if timeout else None
    shown = 0

    async def show(consumer: "PullConsumer") -> None:
        nonlocal shown
        from pocketmq.client.pull.offsets import CLOCKS_DIFFER_MS

        began_ms = SystemClock().now_ms()
        waited = await wait_for_topic(consumer, topic)
        stream = consumer.stream(topic, start=began_ms - CLOCKS_DIFFER_MS if waited else "latest", tags=tags, sql=sql)
        async with contextlib.aclosing(stream) as messages, contextlib.aclosing(in_order(messages)) as lists:
            async for ready in lists:
                wanted = ready if count is None else ready[: count - shown]
                sys.stdout.write("".join(map(json_text if as_json else line_of, wanted)))
                sys.stdout.flush()
                shown += len(wanted)
                if shown == count:
                    return

    async def body() -> None:
        from pocketmq.client import PullConsumer

        async with PullConsumer(group=READER, namesrv=namesrv, **given()) as consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await show(consumer)
        if count is not None and shown < count:
            what = f"{shown:,} of {count:,} messages came"
            raise CommandFailed(what, why=f"waited {timeout}", hint="raise --timeout")

    with quiet_broken_pipe():
        run_async(body())


async def in_order(messages: "AsyncIterator[ReceivedMessage]") -> "AsyncGenerator[list[ReceivedMessage], None]":
    """Yield messages in lists, each ordered by store time, after its first one has waited ``MERGE_S`` for others."""
    waiting: asyncio.Queue[ReceivedMessage | None] = asyncio.Queue(MERGE_MAX)

    async def read() -> None:
        try:
            async for message in messages:
                await waiting.put(message)
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                waiting.put_nowait(None)

    reader = asyncio.create_task(read(), name="topic-tail")
    try:
        is_over = False
        while not is_over:
            found = [await waiting.get()]
            await asyncio.sleep(0 if found[0] is None else MERGE_S)
            while not waiting.empty() and len(found) < MERGE_MAX:
                found.append(waiting.get_nowait())
            is_over = None in found or (reader.done() and waiting.empty())
            ready = [each for each in found if each is not None]
            if ready:
                yield sorted(ready, key=lambda each: each.store_timestamp)
        await reader  # raises what ended it
    finally:
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await reader


def line_of(message: "ReceivedMessage") -> str:
    """Return a message as one line that is safe for a terminal."""
    where = f"{message.queue_id}/{message.queue_offset}"
    tags, keys = printable(message.tags or "-"), printable(" ".join(message.keys) or "-")
    return f"{time_text(message.store_timestamp)}  {where:<10}  {tags}  {keys}  {body_of(message)}\n"


def body_of(message: "ReceivedMessage") -> str:
    """Return the beginning of a body: as text, or, where it is none, its first bytes."""
    from pocketmq.common.body_codec import BodyUnreadable

    try:
        body = bytes(message.body)
    except BodyUnreadable as error:
        return f"({len(message.raw_body):,} bytes, compressed: {error.why})"
    text = body[: 4 * _BODY_SHOWN].decode("utf-8", "replace").rstrip(_NO_CHARACTER)  # the cut may split one
    if _NO_CHARACTER in text or (body and not text):
        return f"({len(body):,} bytes) {body[:32].hex(' ')}"
    more = f" ... {len(body):,} bytes" if len(text) > _BODY_SHOWN or len(body) > 4 * _BODY_SHOWN else ""
    return printable(text[:_BODY_SHOWN].replace("\r\n", " ").replace("\n", " ").replace("\t", " ")) + more


def json_text(message: "ReceivedMessage") -> str:
    """Return a message as JSON in one line; characters that steer terminals (C1, DEL) are escaped as well."""
    from pocketmq.cli.message_format import json_line
    from pocketmq.common.body_codec import BodyUnreadable

    try:
        text = json_line(message).decode()
    except BodyUnreadable as error:
        print(f"not written: {message!r}: {error.why}", file=sys.stderr)
        return ""
    return "".join(f"\\u{ord(char):04x}" if "\x7f" <= char <= "\x9f" else char for char in text)

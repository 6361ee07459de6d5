"""``pocketmq reply TOPIC``: answers the requests of a topic by hand, the other side of ``pocketmq request``.

Lives here: options, output, where the body of a reply comes from.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.connection import given
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_note, print_progress
from pocketmq.cli.queue_choice import wait_for_topic
from pocketmq.cli.run import run_async
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError, PocketMQError

if TYPE_CHECKING:
    from pocketmq.client import Producer
    from pocketmq.common.message import ReceivedMessage

GROUP = "pocketmq-reply"
"""The group that remembers which requests were answered."""


def reply(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic of the requests.", autocompletion=complete.topics)
    ],
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="BODY", help="Body of every reply.  [default: a line of stdin each]"),
    ] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Reply with the body of the request.")] = False,
    count: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many requests.")] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Stop after 500ms, 30s or 15m.  [default: Ctrl-C ends]")
    ] = "",
    group: Annotated[
        str, typer.Option("--group", "-g", help="Answer as this group.", autocompletion=complete.groups)
    ] = GROUP,
    as_json: Annotated[bool, typer.Option("--json", help="Print each request as a line of JSON.")] = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Wait for the requests of a topic, print each, and answer it; a requester that has given up is passed over.

    Exit code 1 if a reply did not reach its requester, or if --timeout ended it before --limit.
    """
    from pocketmq.cli.start_position import parse_duration

    if message is not None and echo:
        raise ConfigError("options exclude each other", why="--message and --echo", hint="use one of them")
    timeout_s = parse_duration("--timeout", timeout) / 1000 if timeout else None
    body = None if message is None else os.fsencode(message)

    async def answer() -> None:
        from pocketmq.client import ConsumeFromWhere, Producer, PullConsumer

        where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP  # half an hour back: no requester waits longer
        consumer = PullConsumer(group, namesrv, consume_from_where=where, **given())
        async with consumer, Producer("pocketmq-cli", instance=consumer.instance) as producer:
            replies = Replies(producer, body, echo=echo, as_json=as_json)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await wait_for_topic(consumer, topic)
                    async with contextlib.aclosing(consumer.stream(topic)) as messages:
                        async for each in messages:
                            if await replies.answer(each):
                                await consumer.commit()
                            if replies.ended or replies.sent + replies.failed == count:
                                break
                    await consumer.commit()
            print_note(f"{replies.sent:,} replies, {replies.expired:,} requests too old to answer")
            if replies.failed:
                raise CommandFailed(f"{replies.failed:,} replies did not reach their requesters", why="see above")
            if count is not None and replies.sent < count and not replies.ended:
                raise CommandFailed(
                    f"{replies.sent:,} of {count:,} requests came", why=f"waited {timeout}", hint="raise --timeout"
                )

    run_async(answer())


class Replies:
    """Answers one request after the other: with ``body``, with the request's own, or with a line of standard input."""

    def __init__(self, producer: "Producer", body: bytes | None, *, echo: bool, as_json: bool) -> None:
        self._producer = producer
        self._body = body
        self._echo = echo
        self._as_json = as_json
        self._lines = _lines() if body is None and not echo else None
        self.sent = self.failed = self.expired = 0
        self.ended = False
        """Whether standard input has no further reply."""

    async def answer(self, request: "ReceivedMessage") -> bool:
        """Answer a request in time; return whether this message asked for a reply."""
        from pocketmq.client import is_request, reply_to
        from pocketmq.common.record import TTL

        if not is_request(request):
            return False
        ttl_ms = request.properties.get(TTL, "")
        if ttl_ms.isdecimal() and request.born_timestamp + int(ttl_ms) < SystemClock().now_ms():
            self.expired += 1
            return True
        self._show(request)
        body = bytes(request.body) if self._echo else self._body
        if self._lines is not None:
            body = await anext(self._lines, None)
            if body is None:
                self.ended = True
                return False
        assert body is not None
        try:
            await self._producer.send(reply_to(request, body))
            self.sent += 1
        except PocketMQError as error:
            self.failed += 1
            print_progress(f"not answered: {request.msg_id}: {error}")
        return True

    def _show(self, request: "ReceivedMessage") -> None:
        from pocketmq.cli.message_format import json_line

        sys.stdout.buffer.write(json_line(request) if self._as_json else bytes(request.body) + b"\n")
        sys.stdout.buffer.flush()


async def _lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input that are not empty."""
    from pocketmq.cli.input import InputFile, LineSplitter

    splitter = LineSplitter()
    async for data in InputFile("-").chunks():
        for line in splitter.feed(data):
            if line:
                yield line
    for line in splitter.finish():
        yield line

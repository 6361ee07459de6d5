"""``pocketmq consume TOPIC``: writes messages as lines.

Lives here: options, writing, the moments of flush and commit.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import ProgressBar, print_note
from pocketmq.cli.run import run_async
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client import PullConsumer
    from pocketmq.common.message import ReceivedMessage

NO_GROUP = "pocketmq-cli"
"""The group for reading without --group; it never commits."""


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, committed, a time (2026-11-21T07:00:00Z or ms), or 15m (ago).  "
            "[default: earliest; with --group committed]",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages at the end of the topic.")
    ] = False,
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after this many messages.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as this group and commit the written messages.")
    ] = None,
    tags: Annotated[str, typer.Option("--tags", help='Only messages with these tags: "A || B".')] = "*",
    text_format: Annotated[
        str,
        typer.Option(
            "--format", metavar="TEXT", help=r"Fields as {body}, {keys}, {queue_id}; escapes as \t. See below."
        ),
    ] = "{body}",
    separator: Annotated[str, typer.Option("--separator", metavar="TEXT", help="Text after each message.")] = r"\n",
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")] = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Write the messages of a topic to standard output.

    Fields of --format: topic broker queue_id queue_offset physical_offset msg_id offset_msg_id keys tags body body_hex
    body_base64 size flag sys_flag reconsume_times born_timestamp born_time born_host store_timestamp store_time
    store_host sharding_key properties property:NAME. Times are ms since 1970 (…_timestamp) or text in UTC (…_time).
    """
    from pocketmq.cli.message_format import MessageFormat, json_line, unescape
    from pocketmq.cli.start_position import parse_start

    position = parse_start(start or ("committed" if group else "earliest"), SystemClock().now_ms())
    if position == "committed" and not group:
        raise ConfigError("--from committed needs a group", why="only groups commit offsets", hint="add --group NAME")
    end = unescape(separator)
    compiled = MessageFormat(text_format)
    render: Callable[[ReceivedMessage], bytes] = (
        json_line if as_json else lambda message: compiled.render(message) + end
    )

    async def body() -> None:
        from pocketmq.client import PullConsumer

        async with PullConsumer(group=group or NO_GROUP, namesrv=namesrv) as consumer:
            writing = Writing(consumer, render, commit=group is not None)
            begin = time.monotonic()
            await writing.run(topic, position, follow=follow, count_max=count, tags=tags)
            if not sys.stdout.isatty():
                print_note(f"{writing.count:,} messages in {time.monotonic() - begin:.2f} s")
            if writing.unreadable:
                raise CommandFailed(
                    f"{writing.unreadable:,} messages not written",
                    why="their compressed bodies cannot be unpacked",
                    hint="pocketmq message get shows their other fields",
                )

    run_async(body())


class Writing:
    """Writes messages as they arrive: flushed before the loop waits, committed (with a group) at the end."""

    def __init__(self, consumer: "PullConsumer", render: "Callable[[ReceivedMessage], bytes]", *, commit: bool) -> None:
        self._consumer = consumer
        self._render = render
        self._commit = commit
        self._flushing = False
        self._reader_gone = False
        self._task: asyncio.Task[object] | None = None
        self.count = 0
        self.unreadable = 0
        """Messages with a compressed body that could not be unpacked; they count as read."""

    async def run(self, topic: str, position: str | int, *, follow: bool, count_max: int | None, tags: str) -> None:
        """Read and write until the end, or ``count_max``, or forever; ``BrokenPipeError``: the reader has gone."""
        from pocketmq.common.body_codec import BodyUnreadable  # NumPy: not for --help

        out, render = sys.stdout.buffer, self._render
        since_ms = position if isinstance(position, int) else 0  # a broker chooses the nearest message: RocketMQ's rule
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        stream = self._consumer.stream(topic, start=position, stop_at_end=not follow, tags=tags)
        try:
            with ProgressBar("consume", count_max, wanted=not sys.stdout.isatty()) as bar:
                async with contextlib.aclosing(stream) as messages:
                    async for message in messages:
                        if message.store_timestamp < since_ms:
                            continue
                        try:
                            out.write(render(message))
                        except BodyUnreadable as error:  # one damaged body must not hide later messages
                            self.unreadable += 1
                            print_note(f"not written: {message!r}: {error.why}")
                            continue
                        self.count += 1
                        if not self._flushing:
                            self._flushing = True
                            loop.call_soon(self._flush)
                        if self.count == count_max:
                            break
                        bar.advance()
        except asyncio.CancelledError:
            if self._reader_gone:
                raise BrokenPipeError from None
            await self._finish()
            raise
        await self._finish()

    async def _finish(self) -> None:
        """Flush the output, then commit: a message that was not written is not committed."""
        sys.stdout.buffer.flush()
        if self._commit:
            await self._consumer.commit()

    def _flush(self) -> None:
        """Flush, once the stream has no more messages at hand."""
        self._flushing = False
        try:
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self._reader_gone = True
            assert self._task is not None
            self._task.cancel()

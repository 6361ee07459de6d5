"""``pocketmq consume TOPIC``: writes messages as lines.

Lives here: options, writing, the moments of flush and commit.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.connection import given
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import ProgressBar, print_note
from pocketmq.cli.queue_choice import choose_queues, wait_for_topic
from pocketmq.cli.run import run_async
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client import PullConsumer
    from pocketmq.client.pull.offsets import StartPosition
    from pocketmq.common.message import ReceivedMessage

NO_GROUP = "pocketmq-cli"
"""The group for reading without --group; it never commits."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.", autocompletion=complete.topics)],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, committed, a time (2026-11-21T07:00:00Z or ms), or 15m (ago).  "
            "[default: earliest; with --group committed]",
            autocompletion=complete.words("earliest", "latest", "committed"),
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Start at this offset of the queue that --queue names.")
    ] = None,
    queue_ids: options.Queues = None,
    broker: options.Broker = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages, and for the topic if it does not exist yet.")
    ] = False,
    count: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after this many messages.")] = None,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", metavar="TIME", help="Wait as --follow does, but stop after 500ms, 30s or 15m; see above."
        ),
    ] = "",
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Read as this group and commit the written messages.", autocompletion=complete.groups
        ),
    ] = None,
    tags: Annotated[str, typer.Option("--tags", help='Only messages with these tags: "A || B".')] = "*",
    sql: Annotated[
        str, typer.Option("--sql", metavar="FILTER", help='Only messages with these properties: "price > 10".')
    ] = "",
    text_format: Annotated[
        str,
        typer.Option(
            "--format", metavar="TEXT", help=r"Fields as {body}, {keys}, {queue_id}; escapes as \t. See above."
        ),
    ] = "{body}",
    separator: Annotated[str, typer.Option("--separator", metavar="TEXT", help="Text after each message.")] = r"\n",
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object a line; produce --json-lines takes them.")
    ] = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Write the messages of a topic to standard output.

    With --timeout and --limit the exit code is 1 if fewer messages came.

    Fields of --format: topic broker queue_id queue_offset physical_offset msg_id offset_msg_id keys tags body body_hex
    body_base64 size flag sys_flag reconsume_times born_timestamp born_time born_host store_timestamp store_time
    store_host sharding_key properties property:NAME. Times are ms since 1970 (…_timestamp) or text in UTC (…_time).
    """
    from pocketmq.cli.message_format import MessageFormat, json_line, unescape
    from pocketmq.cli.start_position import parse_duration, parse_start

    position = parse_start(start or ("committed" if group else "earliest"), SystemClock().now_ms())
    if position == "committed" and not group:
        raise ConfigError("--from committed needs a group", why="only groups commit offsets", hint="add --group NAME")
    if offset is not None and (start is not None or len(queue_ids or []) != 1):
        raise ConfigError(
            "--offset needs one queue", why="an offset counts in one queue", hint="--queue, without --from"
        )
    if sql and tags != "*":
        raise ConfigError("options exclude each other", why="--sql and --tags", hint="SQL can compare TAGS, too")
    timeout_ms = parse_duration("--timeout", timeout) if timeout else None
    end = unescape(separator)
    compiled = MessageFormat(text_format)
    render: Callable[[ReceivedMessage], bytes] = (
        json_line if as_json else lambda message: compiled.render(message) + end
    )

    async def body() -> None:
        from pocketmq.client import PullConsumer

        async with PullConsumer(group=group or NO_GROUP, namesrv=namesrv, **given()) as consumer:
            reading = Reading(topic, position, offset, queue_ids or [], broker, tags, sql)
            writing = Writing(consumer, render, commit=group is not None)
            begin = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await writing.run(reading, follow=follow or timeout_ms is not None, count_max=count)
            if not sys.stdout.isatty():
                print_note(f"{writing.count:,} messages in {time.monotonic() - begin:.2f} s")
            if writing.unreadable:
                raise CommandFailed(
                    f"{writing.unreadable:,} messages not written",
                    why="their compressed bodies cannot be unpacked",
                    hint="pocketmq message get shows their other fields",
                )
            if timeout_ms is not None and count is not None and writing.count < count:
                raise CommandFailed(
                    f"{writing.count:,} of {count:,} messages came", why=f"waited {timeout}", hint="raise --timeout"
                )

    run_async(body())


@dataclass(slots=True, frozen=True)
class Reading:
    """What to read. ``position``: of all queues, unless ``offset`` is given, of the one queue."""

    topic: str
    position: "StartPosition"
    offset: int | None
    queue_ids: list[int]
    broker: str
    tags: str
    sql: str

    async def messages(self, consumer: "PullConsumer", follow: bool) -> "AsyncGenerator[ReceivedMessage, None]":
        """Return the messages; with ``follow`` wait for the topic, whose latest is then what came since."""
        from pocketmq.client.pull.offsets import CLOCKS_DIFFER_MS

        began_ms = SystemClock().now_ms()
        waited = follow and await wait_for_topic(consumer, self.topic)
        target = self.topic if not (self.queue_ids or self.broker) else None
        queues = choose_queues(await consumer.queues(self.topic), self.topic, self.queue_ids, self.broker)
        start = began_ms - CLOCKS_DIFFER_MS if waited and self.position == "latest" else self.position
        return consumer.stream(
            target or queues,
            start=start if self.offset is None else dict.fromkeys(queues, self.offset),
            stop_at_end=not follow,
            tags=self.tags,
            sql=self.sql,
        )


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

    async def run(self, reading: Reading, *, follow: bool, count_max: int | None) -> None:
        """Read and write until the end, or ``count_max``, or forever; ``BrokenPipeError``: the reader has gone."""
        from pocketmq.common.body_codec import BodyUnreadable  # NumPy: not for --help

        out, render = sys.stdout.buffer, self._render
        position = reading.position
        since_ms = (
            position if isinstance(position, int) and reading.offset is None else 0
        )  # a broker chooses the nearest message: RocketMQ's rule
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        stream = await reading.messages(self._consumer, follow)
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

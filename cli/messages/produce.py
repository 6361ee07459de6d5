"""``pocketmq produce TOPIC [FILE…]``: lines of files or standard input become messages.

Lives here: options, pacing, how many batches are on their way, the summary.
"""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.connection import given
from pocketmq.cli.output import ProgressBar, print_json, print_note
from pocketmq.cli.run import run_async
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client import Message, Producer, Receipt

BATCH_MAX = 1_000
BATCH_BYTES_MAX = 256 << 10
BATCHES_IN_FLIGHT = 4


class Parser(Protocol):
    """Makes a message of a line."""

    def parse(self, line: bytes) -> "Message":
        """Return the message; raise ``InputFailed`` for a line that is none."""
        ...


def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="Topic; created by the first message where the broker allows it.",
            autocompletion=complete.topics,
        ),
    ],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]…", help="Files to read; - or none: stdin.")
    ] = None,
    key: Annotated[str, typer.Option("--key", help="Key of every message: indexed; it selects no queue.")] = "",
    key_separator: Annotated[
        str, typer.Option("--key-sep", metavar="SEP", help=r"Each line is KEY SEP BODY; escapes as \t.")
    ] = "",
    key_field: Annotated[
        str, typer.Option("--key-field", metavar="NAME", help="Each line is a JSON object; its key is this field.")
    ] = "",
    sharding: Annotated[
        bool, typer.Option("--sharding-key-from-key", help="Messages with equal keys go to one queue, in order.")
    ] = False,
    tags: Annotated[str, typer.Option("--tags", help="Tag of every message.")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="User property; repeatable.")
    ] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, max=18, help="Deliver after this delay level of the broker.")
    ] = 0,
    delay: Annotated[
        str, typer.Option("--delay", metavar="TIME", help="Deliver after 500ms, 30s, 15m, 2h or 3d.")
    ] = "",
    deliver_at: Annotated[
        str, typer.Option("--deliver-at", metavar="TIME", help="Deliver at 2026-11-21T07:00:00Z or ms since 1970.")
    ] = "",
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Each line is a message as consume --json writes it: copies a topic.")
    ] = False,
    no_delay: Annotated[
        bool, typer.Option("--no-delay", help="With --json-lines: send at once what was delayed.")
    ] = False,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="BODY", help="Send this instead of reading lines.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="Stop after this many messages; with -m send this many."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Maximum number of messages a second.")
    ] = None,
    timeout: options.Timeout = "3s",
    former_timeout_ms: options.FormerTimeoutMs = None,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
    as_json: options.Json = False,
) -> None:
    """Send each line of the files, or of standard input, as a message; empty lines are skipped.

    Exit code 0 only if every message was stored. Progress goes to standard error, the summary with --json to standard
    output.
    """
    from pocketmq.cli.input import LINE_BYTES_MAX, LineParser
    from pocketmq.cli.message_format import unescape
    from pocketmq.cli.start_position import parse_duration, parse_time

    timeout_ms = options.timeout_ms_of(timeout, former_timeout_ms)

    if sum(map(bool, (key, key_separator, key_field))) > 1:
        raise ConfigError("options exclude each other", why="--key, --key-sep and --key-field", hint="use one of them")
    if message is not None and files:
        raise ConfigError("options exclude each other", why="--message and files", hint="use one of them")
    if sum(map(bool, (delay_level, delay, deliver_at))) > 1:
        raise ConfigError("options exclude each other", why="--delay-level, --delay and --deliver-at", hint="use one")
    fields = (key, key_separator, key_field, sharding, tags, properties, delay_level, delay, deliver_at, message)
    if json_lines and any(fields):
        why = "--json-lines and an option that says what every message has"
        raise ConfigError("options exclude each other", why=why, hint="the lines of JSON say it")
    if no_delay and not json_lines:
        raise ConfigError("bad options", why="--no-delay without --json-lines", hint="add it, or omit --no-delay")
    line_bytes_max = LINE_BYTES_MAX
    parser: Parser = LineParser(
        topic,
        tags=tags,
        key=key,
        key_separator=unescape(key_separator),
        key_field=key_field,
        sharding=sharding,
        properties=_properties(properties or []),
        delay_time_level=delay_level,
        delay_time_ms=parse_duration("--delay", delay) if delay else None,
        deliver_time_ms=parse_time(deliver_at) if deliver_at else None,
    )
    if json_lines:
        from pocketmq.cli import json_lines as lines

        parser, line_bytes_max = lines.JsonLineParser(topic, with_delay=not no_delay), lines.LINE_BYTES_MAX

    async def body() -> None:
        from pocketmq.client import Producer

        async with Producer(
            group="pocketmq-cli", namesrv=namesrv, send_msg_timeout_ms=timeout_ms, **given()
        ) as producer:
            sending = Sending(producer, rate=rate, count_max=count, in_order=sharding or json_lines)
            begin = time.monotonic()
            try:
                if message is not None:
                    await sending.repeat(parser.parse(os.fsencode(message)), count or 1)
                else:
                    await sending.read(parser, files or ["-"], line_bytes_max)
            except BaseException as error:  # Ctrl-C, or a send that failed: what is certain, and what is not
                if sending.sent or isinstance(error, asyncio.CancelledError):
                    doubtful = sending.taken - sending.sent
                    print(f"stopped: {sending.sent:,} messages stored, {doubtful:,} more may be", file=sys.stderr)
                raise
        _summary(sending, time.monotonic() - begin, as_json)

    run_async(body())


class Sending:
    """Gathers messages into batches and keeps a few of them on their way.

    ``in_order``: one batch at a time, so that a retried one cannot overtake. Delayed messages are requests of their
    own. The first failure ends it.
    """

    def __init__(
        self,
        producer: "Producer",
        *,
        rate: float | None,
        count_max: int | None,
        in_order: bool,
    ) -> None:
        self._producer = producer
        self._rate = rate
        self._count_max = count_max
        self._batches_in_flight = 1 if in_order else BATCHES_IN_FLIGHT
        self._batch_max = BATCH_MAX if rate is None else max(1, min(BATCH_MAX, int(min(rate / 20, BATCH_MAX))))
        self._waiting: deque[asyncio.Task[Sequence[Receipt]]] = deque()
        self._begin = time.monotonic()
        self.taken = 0
        self.sent = 0
        self.skipped_empty = 0
        self.statuses: dict[str, int] = {}
        self._bar: ProgressBar

    async def repeat(self, message: "Message", count: int) -> None:
        """Send one message ``count`` times."""
        self._count_max = count
        with ProgressBar("produce", count) as self._bar:
            while not self._full:
                await self._send([message] * min(self._batch_max, count - self.taken))
            await self._settle(0)

    async def read(self, parser: Parser, paths: Iterable[str], line_bytes_max: int) -> None:
        """Send the lines of all files, one after the other."""
        from pocketmq.cli.input import InputFile, LineSplitter

        with ProgressBar("produce", self._count_max) as self._bar:
            for path in paths:
                if path == "-" and sys.stdin.isatty():
                    print_note("one message a line; Ctrl-D ends")
                splitter = LineSplitter(line_bytes_max)
                async for data in InputFile(path).chunks():
                    await self._lines(parser, splitter.feed(data))
                    if self._full:
                        break
                await self._lines(parser, splitter.finish())
            await self._settle(0)

    @property
    def _full(self) -> bool:
        return self._count_max is not None and self.taken >= self._count_max

    async def _lines(self, parser: Parser, lines: list[bytes]) -> None:
        batch: list[Message] = []
        size_bytes = 0
        for line in lines:
            if self._full:
                break
            if not line:
                self.skipped_empty += 1
                continue
            batch.append(parser.parse(line))
            size_bytes += len(line)
            if (
                len(batch) >= self._batch_max
                or size_bytes >= BATCH_BYTES_MAX
                or self._count_max == self.taken + len(batch)
            ):
                await self._send(batch)
                batch, size_bytes = [], 0
        if batch:
            await self._send(batch)

    async def _send(self, batch: "list[Message]") -> None:
        if self._rate is not None:
            early_s = self._begin + self.taken / self._rate - time.monotonic()
            if early_s > 0:
                await asyncio.sleep(early_s)
        self.taken += len(batch)
        self._waiting.append(asyncio.create_task(self._receipts(batch)))
        await self._settle(self._batches_in_flight - 1)

    async def _receipts(self, batch: "list[Message]") -> "Sequence[Receipt]":
        receipts: list[Receipt] = []
        for delayed, group in groupby(batch, lambda message: message.is_timed or message.delay_time_level > 0):
            if delayed:
                receipts += await asyncio.gather(*[self._producer.send_nowait(message) for message in group])
            else:
                receipts += await self._producer.send_batch(group)
        return receipts

    async def _settle(self, left: int) -> None:
        """Wait until at most ``left`` batches are on their way, and take their receipts."""
        while len(self._waiting) > left:
            try:
                receipts = await self._waiting.popleft()
            except BaseException:
                for task in self._waiting:
                    task.cancel()
                await asyncio.gather(*self._waiting, return_exceptions=True)
                raise
            self.sent += len(receipts)
            for receipt in receipts:
                name = receipt.status.name
                self.statuses[name] = self.statuses.get(name, 0) + 1
            self._bar.advance(len(receipts))


def _properties(pairs: list[str]) -> dict[str, str] | None:
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError("bad property", why=f"--property {pair}", hint="write NAME=VALUE")
        properties[name] = value
    return properties or None


def _summary(sending: Sending, elapsed_s: float, as_json: bool) -> None:
    if as_json:
        print_json({"sent": sending.sent, "elapsed_s": round(elapsed_s, 3), "statuses": sending.statuses})
        return
    notes = [f"{count:,} {name}" for name, count in sending.statuses.items() if name != "SEND_OK"]
    if sending.skipped_empty:
        notes.append(f"{sending.skipped_empty:,} empty lines skipped")
    rate = sending.sent / elapsed_s if elapsed_s else 0
    print_note(
        f"{sending.sent:,} messages in {elapsed_s:.2f} s ({rate:,.0f}/s)" + "".join(f", {note}" for note in notes)
    )

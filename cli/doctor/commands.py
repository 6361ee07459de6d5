"""``pocketmq doctor`` and ``pocketmq doctor disk``: options and output.

Lives here: the options, one check or many, JSON.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.output import print_json, time_text
from pocketmq.cli.run import run_async
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.cli.doctor.reader import Target
    from pocketmq.cli.doctor.session import Round

MIB = 1 << 20


def build_app() -> typer.Typer:
    """Return the command with its subcommand."""
    app = typer.Typer(help="Explain what a broker refuses, which stage is slow, and which setting helps.")
    app.callback(invoke_without_command=True)(doctor)
    app.command()(disk)
    return app


def doctor(
    context: typer.Context,
    brokers: Annotated[
        list[str] | None,
        typer.Option("--broker", metavar="HOST:PORT", help="Check this broker, without a name server; repeatable."),
    ] = None,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
    watch_s: Annotated[
        float | None, typer.Option("--watch", metavar="SECONDS", min=0.1, help="Repeat every SECONDS.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="With --watch: end after this many checks.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document for each check.")] = False,
    timeout: options.Timeout = "1200ms",
    former_timeout_ms: options.FormerTimeoutMs = None,
) -> None:
    """Check brokers of PocketMQ or RocketMQ: what is wrong, why, and what a cure costs.

    Also works while a broker refuses sends. Exit code 0: nothing worse than a warning; 1: an error was found; 4: no
    broker could be read.
    """
    if context.invoked_subcommand is not None:
        return
    if rounds is not None and watch_s is None:
        raise ConfigError("bad option", why="--rounds without --watch", hint="add --watch SECONDS")
    timeout_ms = options.timeout_ms_of(timeout, former_timeout_ms)
    body = _check(brokers or [], namesrv, watch_s, 1 if watch_s is None else rounds, as_json, timeout_ms)
    code = run_async(body)
    if code:
        raise typer.Exit(code)


async def _check(
    brokers: Sequence[str], namesrv: str, watch_s: float | None, rounds: int | None, as_json: bool, timeout_ms: int
) -> ExitCode:
    from pocketmq.cli.doctor.reader import BrokerReader
    from pocketmq.cli.doctor.report import exit_code_of_rounds
    from pocketmq.cli.doctor.session import Session

    async with BrokerReader(timeout_ms=timeout_ms) as reader:
        given = _given(brokers)
        targets = given or await reader.targets(namesrv)
        if not targets:
            raise ConfigError(
                "no broker to check",
                why=f"the name server at {namesrv} knows none",
                hint="start a broker, or give one: --broker HOST:PORT",
            )
        session = Session(reader, targets, asks_others=bool(given))
        code = ExitCode.OK
        count = 0
        while True:
            found = await session.check()
            count += 1
            _print(found, as_json=as_json, again=watch_s is not None and count > 1)
            code = exit_code_of_rounds(found)
            if rounds is not None and count >= rounds:
                return code
            await asyncio.sleep(watch_s or 0)


def _given(brokers: Sequence[str]) -> "list[Target]":
    from pocketmq.cli.doctor.reader import Target
    from pocketmq.client.connection.name_servers import parse_addresses

    return [Target("", address) for address in parse_addresses(list(brokers))] if brokers else []


def _print(rounds: "Sequence[Round]", *, as_json: bool, again: bool) -> None:
    from pocketmq.cli.doctor.report import plain_lines, render, worst_first

    if as_json:
        worst = [each.diagnosis.worst for each in rounds if each.diagnosis.worst is not None]
        overall = min(worst, key=lambda each: each.rank).value if worst else None
        brokers = msgspec.to_builtins(rounds)
        for each in brokers:
            each["diagnosis"]["at"] = time_text(each["diagnosis"].pop("at_ms"))
        found = [
            {
                "severity": finding.severity.value,
                "key": finding.key,
                "broker": diagnosis.broker,
                "address": diagnosis.address,
                "title": finding.title,
            }
            for diagnosis, finding in worst_first(rounds)
        ]
        print_json({"worst": overall, "findings": found, "brokers": brokers})
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        if again:
            console.clear()
        console.print(render(rounds))
    else:
        for line in (*([""] if again else []), *plain_lines(rounds)):
            print(line)
    sys.stdout.flush()


def disk(
    directory: Annotated[str, typer.Argument(metavar="[DIR]", help="A directory on the disk.")] = ".",
    seconds: Annotated[float, typer.Option("--seconds", "-s", min=0.5, max=600, help="Approximate duration.")] = 10.0,
    megabytes: Annotated[
        int, typer.Option("--size", metavar="MIB", min=8, max=65_536, help="Most space to use.")
    ] = 512,
    as_json: options.Json = False,
) -> None:
    """Measure the disk under a directory, and explain what the results mean for the store's settings.

    Needs and touches no broker. Removes its files at the end, also after Ctrl-C.
    """
    from pocketmq.cli.doctor.disk.command import measure_disk

    measure_disk(directory, seconds=seconds, size_bytes=megabytes * MIB, as_json=as_json)

"""``pocketmq scenario``: one command for each incident.

Lives here: options, the order of the steps, progress, the exit code.
"""

import asyncio
import contextlib
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.exit_codes import CommandFailed, ExitCode
from pocketmq.cli.output import print_json, print_table
from pocketmq.cli.run import run_async
from pocketmq.cli.scenario.catalog import CATALOG, Scenario, find

if TYPE_CHECKING:
    from pocketmq.cli.scenario.report.report import Report

TOGETHER_S_MAX: Final = 240.0
"""A run that takes longer hangs, and is ended."""


def complete_name(incomplete: str) -> list[str]:
    """Return the names that begin with what is typed."""
    return complete.beginning_with(["list", *(each.name for each in CATALOG)], incomplete)


def scenario(
    name: Annotated[
        str,
        typer.Argument(metavar="list|NAME", help="The scenario; 'list' shows all names.", autocompletion=complete_name),
    ],
    as_json: options.Json = False,
    picture: Annotated[
        str | None, typer.Option("--picture", metavar="FILE", help="Draw the sends into a .png or .svg file.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sends, shorter times: about 15 s.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Use RocketMQ's times where the scenario divides them.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep stores and logs, and print where they are.")] = False,
) -> None:
    """Provoke an incident in real processes, and show what clients see, what brokers measure, and what cures it.

    Starts its own name server and brokers on free ports of 127.0.0.1 in temporary directories, and makes their disk or
    network fail. Exit code 0: the fault was seen and the cure worked; 1: at least one check failed.
    """
    if name == "list":
        _list(as_json)
        return
    chosen = find(name)
    if chosen is None:
        known = ", ".join(each.name for each in CATALOG)
        raise typer.BadParameter(f"{name!r} is not a scenario; there are: {known}", param_hint="NAME")
    if full and (quick or not chosen.has_full):
        why = "cannot be combined with --quick" if quick else f"{name} does not divide times"
        raise typer.BadParameter(why, param_hint="--full")
    if picture is not None:
        from pocketmq.cli.scenario.report import picture_file

        picture_file.check(picture)  # before the minute, not after it
    try:
        report = run_async(run_scenario(chosen, quick=quick, keep=keep, full=full))
    except asyncio.CancelledError:  # SIGTERM
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if report is None:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if picture is not None:
        picture_file.draw(report, picture)
        _progress(f"picture: {picture}")
    if as_json:
        print_json(report)
    else:
        from pocketmq.cli.scenario.report import tables, terminal_picture

        tables.print_report(report)
        terminal_picture.print_picture(report)
    if not report.ok:
        raise typer.Exit(ExitCode.FAILED)


def _list(as_json: bool) -> None:
    if as_json:
        print_json([{"name": each.name, "incident": each.incident, "question": each.question} for each in CATALOG])
    else:
        print_table(("name", "incident", "question"), [(each.name, each.incident, each.question) for each in CATALOG])


def _progress(text: str) -> None:
    """Print the current step on standard error: a run takes up to a minute."""
    print(f"  {text} …" if not text.startswith("picture") else f"  {text}", file=sys.stderr, flush=True)


async def run_scenario(chosen: Scenario, *, quick: bool, keep: bool, full: bool = False) -> "Report":
    """Run one scenario and return its report. Its processes and files are removed, also after an error or a signal."""
    from pocketmq.cli.scenario.harness.cluster import Cluster
    from pocketmq.cli.scenario.report.report import Report

    run, cure, price = chosen.load(full=full)
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError, RuntimeError):
        for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal must leave nothing behind either
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    started_ms, begin_s = time.time_ns() // 1_000_000, time.monotonic()
    try:
        async with asyncio.timeout(TOGETHER_S_MAX), Cluster(keep=keep) as cluster:
            phases = await run(cluster, quick, _progress)
    except TimeoutError as error:
        raise CommandFailed(
            "the scenario was stopped", why=f"it took longer than {TOGETHER_S_MAX:.0f} s", hint="is the machine busy?"
        ) from error
    return Report(
        scenario=chosen.name,
        incident=chosen.incident,
        question=chosen.question,
        quick=quick,
        machine=machine(),
        started_ms=started_ms,
        duration_s=round(time.monotonic() - begin_s, 1),
        phases=phases,
        cure=cure,
        price=price,
        ok=all(phase.ok for phase in phases),
        directory=str(Path(cluster.directory)) if keep else "",
    )


def machine() -> str:
    """Describe the machine that the numbers were measured on."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, CPython {platform.python_version()}"

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
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import complete, options
from pocketmq.cli.exit_codes import CommandFailed, ExitCode
from pocketmq.cli.output import print_json, print_table
from pocketmq.cli.run import run_async
from pocketmq.cli.scenario.catalog import CATALOG, Scenario, find
from pocketmq.cli.scenario.knobs import KNOBS, OWN, Knobs, option_of
from pocketmq.cli.start_position import parse_duration
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.cli.scenario.harness.cluster import Cluster
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
    hold: Annotated[
        bool,
        typer.Option("--hold", help="Leave the incident running for your own client; Ctrl-C repairs it, again: ends."),
    ] = False,
    run: Annotated[
        int | None, typer.Option("--run", min=1, help="With --hold: the run to hold, by its number.  [default: 1]")
    ] = None,
    append_ms: Annotated[int | None, typer.Option("--append-ms", min=1, help=KNOBS["append_ms"])] = None,
    stall_ms: Annotated[int | None, typer.Option("--stall-ms", min=1, help=KNOBS["stall_ms"])] = None,
    whole_disk: Annotated[bool, typer.Option("--whole-disk", help=KNOBS["whole_disk"])] = False,
    burst: Annotated[int | None, typer.Option("--burst", min=1, max=100_000, help=KNOBS["burst"])] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.1, max=20_000, help=KNOBS["rate"])] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.5, max=120, help=KNOBS["seconds"])] = None,
    body_bytes: Annotated[
        int | None, typer.Option("--body-bytes", min=10, max=1 << 20, help=KNOBS["body_bytes"])
    ] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="TIME", help=KNOBS["timeout_ms"])] = None,
    probes: Annotated[int | None, typer.Option("--probes", min=1, max=10_000, help=KNOBS["probes"])] = None,
    slave_timeout_ms: Annotated[
        int | None, typer.Option("--slave-timeout-ms", min=1, help=KNOBS["slave_timeout_ms"])
    ] = None,
    lock_ms: Annotated[int | None, typer.Option("--lock-ms", min=1000, help=KNOBS["lock_ms"])] = None,
    settings: options.Set = None,
    namesrv_port: Annotated[
        int, typer.Option("--namesrv-port", min=0, max=65535, help="Port of the name server; 0: any.")
    ] = 0,
    broker_port: Annotated[
        int,
        typer.Option("--broker-port", min=0, max=65000, help="Port of the first broker; the next ones are 10 apart."),
    ] = 0,
) -> None:
    """Provoke an incident in real processes, and show what clients see, what brokers measure, and what cures it.

    Starts its own name server and brokers on free ports of 127.0.0.1 in temporary directories, and makes their disk or
    network fail. Exit code 0: the fault was seen and the cure worked; 1: at least one check failed.
    """
    given = {
        "append_ms": append_ms,
        "stall_ms": stall_ms,
        "whole_disk": whole_disk or None,
        "burst": burst,
        "rate": rate,
        "seconds": seconds,
        "body_bytes": body_bytes,
        "timeout_ms": None if timeout is None else parse_duration("--timeout", timeout),
        "probes": probes,
        "slave_timeout_ms": slave_timeout_ms,
        "lock_ms": lock_ms,
    }
    knobs = Knobs({knob: value for knob, value in given.items() if value is not None})
    if name == "list":
        _list(as_json)
        return
    chosen = find(name)
    if chosen is None:
        known = ", ".join(each.name for each in CATALOG)
        raise typer.BadParameter(f"{name!r} is not a scenario; there are: {known}", param_hint="NAME")
    _check(chosen, knobs)
    if full and (quick or not chosen.has_full):
        why = "cannot be combined with --quick" if quick else f"{name} does not divide times"
        raise typer.BadParameter(why, param_hint="--full")
    if hold and not chosen.can_hold:
        held = ", ".join(each.name for each in CATALOG if each.can_hold)
        raise typer.BadParameter(f"{name} is over when it has happened; these last: {held}", param_hint="--hold")
    if run is not None and not hold:
        raise typer.BadParameter("only with --hold", param_hint="--run")
    if picture is not None:
        from pocketmq.cli.scenario.report import picture_file

        picture_file.check(picture)  # before the minute, not after it
    from pocketmq.cli.scenario.harness.cluster import Cluster

    cluster = partial(
        Cluster, keep=keep, settings=_settings(settings or []), namesrv_port=namesrv_port, broker_port=broker_port
    )
    try:
        if hold:
            run_async(_hold(chosen, cluster, (run or 1), quick=quick, knobs=knobs))
            return
        report = run_async(run_scenario(chosen, cluster, quick=quick, full=full, knobs=knobs))
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


def _check(chosen: Scenario, knobs: Knobs) -> None:
    """Refuse options that this scenario does not have, with those that it has."""
    for knob in knobs.given:
        if knob not in chosen.knobs:
            has = ", ".join(map(option_of, chosen.knobs))
            raise typer.BadParameter(f"{chosen.name} has no such option; it has: {has}", param_hint=option_of(knob))


def _settings(flags: list[str]) -> dict[str, str]:
    """Return the settings of ``--set``, checked as a broker checks them."""
    from pocketmq.cli.daemon.daemon import SECTIONS
    from pocketmq.cli.scenario.harness.cluster import OWN_SETTINGS
    from pocketmq.common.settings import SettingsReader

    reader = SettingsReader(SECTIONS)
    layer = reader.from_flags(flags)
    reader.merge(layer)
    values = {f"{section}.{key}": str(given.value) for (section, key), given in layer.items()}
    for key in sorted(OWN_SETTINGS & values.keys()):
        raise ConfigError("bad --set", why=f"{key} belongs to the scenario", hint="--namesrv-port and --broker-port")
    return values


def _list(as_json: bool) -> None:
    if as_json:
        print_json([{"name": each.name, "incident": each.incident, "question": each.question} for each in CATALOG])
    else:
        print_table(("name", "incident", "question"), [(each.name, each.incident, each.question) for each in CATALOG])


def _progress(text: str) -> None:
    """Print the current step on standard error: a run takes up to a minute."""
    print(f"  {text} …" if not text.startswith("picture") else f"  {text}", file=sys.stderr, flush=True)


def _end_at_sigterm() -> None:
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError, RuntimeError):
        for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal must leave nothing behind either
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _hold(chosen: Scenario, cluster: Callable[[], "Cluster"], number: int, *, quick: bool, knobs: Knobs) -> None:
    """Keep one run's incident until Ctrl-C."""
    from pocketmq.cli.scenario.harness.hold import hold

    _end_at_sigterm()
    plans = chosen.plans(quick, knobs)
    if number > len(plans):
        names = "; ".join(f"{at}: {plan.name}" for at, plan in enumerate(plans, 1))
        raise CommandFailed(f"{chosen.name} has no run {number}", hint=names)
    async with cluster() as running:
        await hold(running, plans[number - 1], partial(print, flush=True), _progress)


async def run_scenario(
    chosen: Scenario, new_cluster: Callable[[], "Cluster"], *, quick: bool, full: bool = False, knobs: Knobs = OWN
) -> "Report":
    """Run one scenario and return its report. Its processes and files are removed, also after an error or a signal."""
    from pocketmq.cli.scenario.report.report import Report

    run, cure, price = chosen.load(full=full)
    _end_at_sigterm()
    started_ms, begin_s = time.time_ns() // 1_000_000, time.monotonic()
    try:
        async with asyncio.timeout(TOGETHER_S_MAX), new_cluster() as cluster:
            phases = await run(cluster, quick, _progress, knobs)
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
        directory=str(cluster.directory) if cluster.keep else "",
        knobs=knobs.words() | {f"--set {key}": value for key, value in cluster.settings.items()},
    )


def machine() -> str:
    """Describe the machine that the numbers were measured on."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, CPython {platform.python_version()}"

"""``pocketmq cluster``: a name server, a synchronous pair and a second master, each in its own process.

Lives here: the processes, their start, the overview of them, their stop. With ``--masters`` it is ``masters``' work.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from pocketmq.cli.daemon.masters import run_masters
from pocketmq.cli.daemon.masters_plan import Addresses, plan_masters
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.run import run_async
from pocketmq.common.addresses import address_text
from pocketmq.common.errors import ConfigError

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0
PORT_STEP: Final = 10
"""Between the ports of two brokers: the next port after a broker's is its HA port."""


@dataclass(slots=True)
class Member:
    """One process: its role and its command. ``addresses``: from its ready line."""

    name: str
    what: str
    arguments: list[str]
    log: Path
    process: asyncio.subprocess.Process | None = None
    addresses: dict[str, str] = field(default_factory=dict)

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises ``CannotStart``."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pocketmq.cli.main",
                *self.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the command, which stops them in order
            )
        assert self.process.stdout is not None
        line = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S_MAX):
                line = (await self.process.stdout.readline()).decode()
        if not line.startswith("ready"):
            said = self.log.read_text("utf-8", "replace")[-2000:].strip()
            raise CannotStart(f"{self.name} did not start", why=said or "it wrote no error", hint=f"see {self.log}")
        self.addresses = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)

    async def stop(self) -> None:
        """End the process cleanly; kill it if that takes more than 30 s."""
        process = self.process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def members(directory: Path, host: str, namesrv_port: int, broker_port: int, settings: Sequence[str]) -> list[Member]:
    """Return the processes in the order in which they start."""
    namesrv = address_text(host, namesrv_port)
    sets = [word for each in settings for word in ("--set", each)]

    def member(name: str, what: str, number: int, role: str, broker_name: str, broker_id: int) -> Member:
        arguments = ["broker", "--namesrv", namesrv, "--data-dir", str(directory / name), "--host", host]
        arguments += ["--broker-port", str(broker_port + number * PORT_STEP)]
        values = {
            "broker.broker_name": broker_name,
            "broker.broker_id": str(broker_id),
            "store.broker_role": role,
            "metrics.listen_port": "0",
        }
        arguments += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return Member(name, what, arguments + sets, directory / f"{name}.log")

    name_server = Member(
        "namesrv",
        "name server",
        [
            *["namesrv", "--namesrv-port", str(namesrv_port), "--host", host],
            *["--set", f"namesrv.epoch_store_dir={directory / 'namesrv'}"],
        ],
        directory / "namesrv.log",
    )
    return [
        name_server,
        member("broker-a-0", "synchronous master of broker-a", 0, "SYNC_MASTER", "broker-a", 0),
        member("broker-a-1", "slave of broker-a", 1, "SLAVE", "broker-a", 1),
        member("broker-b-0", "second master, broker-b, alone", 2, "ASYNC_MASTER", "broker-b", 0),
    ]


def screen(started: Sequence[Member], directory: Path) -> str:
    """Return the processes with their addresses, and commands to try."""
    namesrv = started[0].addresses.get("namesrv", "")
    lines = [f"{'process':<12} {'address':<22} {'pid':<8} what"]
    for member in started:
        address = member.addresses.get("broker") or member.addresses.get("namesrv", "")
        pid = "" if member.process is None else str(member.process.pid)
        lines.append(f"{member.name:<12} {address:<22} {pid:<8} {member.what}")
    option = f"--namesrv {namesrv}"
    lines += [
        "",
        f"data and logs   {directory}",
        f"see it          pocketmq ha status {option}",
        f"send            echo hello | pocketmq produce TopicTest {option}",
        f"planned switch  pocketmq ha promote broker-a {option}",
        "crash           kill -9 the pid of broker-a-0, then promote; start it again and:",
        f"                pocketmq ha demote broker-a {option}",
        "end             Ctrl-C",
    ]
    return "\n".join(lines)


def cluster(
    data_dir: Annotated[str, typer.Option("--data-dir", "-d", metavar="DIR", help="Stores and logs.")] = (
        "./pocketmq-cluster"
    ),
    namesrv_port: Annotated[
        int, typer.Option("--namesrv-port", min=0, max=65535, help="0, with --masters: any free port.")
    ] = 9876,
    broker_port: Annotated[
        int,
        typer.Option(
            "--broker-port",
            min=0,
            max=65500,
            help="Of the first broker; the others follow in steps of 10. 0, with --masters: any free ports.",
        ),
    ] = 10911,
    host: Annotated[str, typer.Option("--host", help="Address of all processes.")] = "127.0.0.1",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting of every broker; repeatable.")
    ] = None,
    masters: Annotated[
        int | None,
        typer.Option("--masters", metavar="N", help="Run N masters, 1 to 64, and restart a process that dies."),
    ] = None,
    slaves_per_master: Annotated[
        int | None, typer.Option("--slaves-per-master", metavar="M", help="With --masters: 0 to 15.  [default: 0]")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65500,
            help="With --masters: of the first broker; the others follow in steps of 10.  [default: no metrics]",
        ),
    ] = None,
) -> None:
    """Run a name server, a synchronous master with its slave, and a second master, until Ctrl-C.

    With --masters: a name server and N masters, so that brokers use several cores. A process that dies is restarted.
    """
    directory = Path(data_dir).absolute()
    if masters is not None:
        addresses = Addresses(host, namesrv_port, broker_port, metrics_port or 0)
        plan = plan_masters(masters, slaves_per_master or 0, directory, addresses, settings or [])
        as_json = any(each.replace(" ", "") == "log.format=json" for each in settings or [])
        run_async(run_masters(plan, as_json=as_json))
        return
    for option, given in (("--slaves-per-master", slaves_per_master), ("--metrics-port", metrics_port)):
        if given is not None:
            raise ConfigError("bad options", why=f"{option} without --masters", hint="add --masters N")
    if not namesrv_port or not broker_port:
        raise ConfigError("bad options", why="port 0 without --masters", hint="give a port, or add --masters N")
    run_async(_run(members(directory, host, namesrv_port, broker_port, settings or []), directory))


async def _run(started: list[Member], directory: Path) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    try:
        for member in started:
            await member.start()
            if ended.is_set():
                return
        print(screen(started, directory), flush=True)
        watchers = [asyncio.create_task(_watch(member)) for member in started]
        await ended.wait()
        print("stopping", file=sys.stderr, flush=True)
        for watcher in watchers:
            watcher.cancel()
    finally:
        for member in reversed(started):
            await member.stop()


async def _watch(member: Member) -> None:
    """Report the end of a process; the others continue, as they would on their own machines."""
    assert member.process is not None
    code = await member.process.wait()
    why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    restart = " ".join(["pocketmq", *member.arguments])
    print(f"{member.name} has ended ({why}); restart it with{os.linesep}  {restart}", flush=True)

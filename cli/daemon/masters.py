"""``pocketmq cluster --masters N``: a master for each core, each in its own process, kept running.

Lives here: the command's course (start, ready output, signals, end) and the ready output.
"""

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pocketmq.cli.connection import given
from pocketmq.cli.daemon.children import ChildProcess
from pocketmq.cli.daemon.labelled_log import LabelledLog
from pocketmq.cli.daemon.masters_plan import NAMESRV, MastersPlan
from pocketmq.cli.daemon.supervisor import Member, Supervisor
from pocketmq.cli.exit_codes import CannotStart, ExitCode
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError

REGISTER_S_MAX: Final = 10.0
REGISTER_EVERY_S: Final = 0.05


def ready_text(plan: MastersPlan, members: Sequence[Member], namesrv: str) -> str:
    """Return the ready line, the table of processes, and commands to try."""
    option = f"--namesrv {namesrv}"
    brokers = len(members) - 1
    lines = [
        f"ready namesrv={namesrv} masters={plan.masters} slaves={brokers - plan.masters}",
        "",
        f"{'process':<14} {'role':<14} {'address':<22} {'pid':<8} data",
    ]
    for member in members:
        planned, pid = member.planned, "" if member.running is None else str(member.running.pid)
        lines.append(f"{planned.name:<14} {planned.role:<14} {member.address:<22} {pid:<8} {planned.directory}")
    lines += [
        "",
        f"create a topic on every master   pocketmq topic create TopicTest {option}",
        f"send                             echo hello | pocketmq produce TopicTest {option}",
    ]
    if brokers > plan.masters:
        lines.append(f"who follows whom                 pocketmq ha status {option}")
    lines.append("end                              Ctrl-C")
    return "\n".join(lines)


async def run_masters(plan: MastersPlan, *, as_json: bool) -> None:
    """Start all, print the ready output, restart what dies, until SIGTERM, SIGINT or SIGHUP.

    A second signal kills all processes. Raises ``CannotStart`` or ``ConfigError`` when a process cannot start, after
    all others have stopped.
    """
    _make_directory(plan.directory)
    with io.FileIO(os.dup(2), "w") as stream:
        log = LabelledLog(stream, width=max(len(each.name) for each in plan.processes), as_json=as_json)
        try:
            await _run(plan, log)
        finally:
            await asyncio.to_thread(log.close)


async def _run(plan: MastersPlan, log: LabelledLog) -> None:
    launch = partial(ChildProcess.launch, log=log)
    supervisor = Supervisor(
        plan.processes, launch, log.tell, SystemClock(), starts_max=max(1, len(os.sched_getaffinity(0)))
    )
    stop = asyncio.Event()
    _on_signals(stop, supervisor, log)
    left_out = plan.left_out(os.listdir(plan.directory))
    if left_out:
        text = ", ".join(left_out)
        log.tell(f"warning: {plan.directory} has stores that are not started, so nobody can read them: {text}")
    work = asyncio.create_task(_serve(plan, supervisor, log))
    ended = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and isinstance(error := work.exception(), PocketMQError):
            log.tell(f"{error.what}: {error.why}; stopping all processes")
    finally:
        ended.cancel()
        work.cancel()
        (failed,) = await asyncio.gather(work, return_exceptions=True)
        await supervisor.stop()
    if isinstance(failed, Exception) and not stop.is_set():
        raise failed


async def _serve(plan: MastersPlan, supervisor: Supervisor, log: LabelledLog) -> None:
    await supervisor.start()
    if not await _registered(supervisor.namesrv, plan.masters):
        log.tell(f"warning: not all masters have registered after {REGISTER_S_MAX:.0f} s; see pocketmq ha status")
    sys.stdout.write(ready_text(plan, supervisor.members, supervisor.namesrv) + "\n")
    sys.stdout.flush()
    await supervisor.keep()


async def _registered(namesrv: str, masters: int) -> bool:
    """Wait until the name server has all masters: a topic that is created then is created on all of them."""
    from pocketmq.client.admin.admin import Admin

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REGISTER_S_MAX), Admin(namesrv, **given()) as admin:
            while True:
                with contextlib.suppress(PocketMQError):
                    if len(await admin.masters()) >= masters:
                        return True
                await asyncio.sleep(REGISTER_EVERY_S)
    return False


def _on_signals(stop: asyncio.Event, supervisor: Supervisor, log: LabelledLog) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            supervisor.kill_all()
            os._exit(ExitCode.INTERRUPTED)
        log.tell(f"{number.name}: stopping; once more kills all processes")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        loop.add_signal_handler(number, on_signal, number)


def _make_directory(directory: Path) -> None:
    try:
        (directory / NAMESRV).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart("the cluster cannot start", why=f"{directory}: {error.strerror}") from error

"""Keeps the processes of a cluster running: start in stages, restart after a death, stop in order.

Lives here: ``Supervisor``, and the Protocols of what it starts. It starts processes and sleeps only through its
arguments, so that a test holds both.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pocketmq.cli.daemon.masters_plan import NAMESRV, PlannedProcess
from pocketmq.cli.daemon.restart_policy import FAILED_STARTS_MAX, RestartPolicy
from pocketmq.cli.exit_codes import CannotStart, ExitCode
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError

STOP_S_MAX: Final = 30.0


class RunningProcess(Protocol):
    """A process that was started."""

    pid: int

    async def ready(self) -> Mapping[str, str]:
        """Wait for the ready line and return its addresses; empty: the process ended without one."""
        ...

    async def ended(self) -> int:
        """Wait for the end and for the last line of its log; return the exit code, or the signal as a negative."""
        ...

    def last_words(self) -> str:
        """Return its error, or the end of its log."""
        ...

    def terminate(self) -> None:
        """Ask it to stop."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


Launch = Callable[[str, Sequence[str]], Awaitable[RunningProcess]]
"""Starts a process by its name and arguments."""


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A start that did not reach the ready line: ``code`` as of ``RunningProcess.ended``."""

    code: int
    why: str


@dataclass(slots=True)
class Member:
    """One planned process and what became of it."""

    planned: PlannedProcess
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    running: RunningProcess | None = None
    address: str = ""
    """host:port of the first ready line; a restart uses the same."""

    @property
    def port(self) -> int | None:
        """The port of ``address``."""
        return int(self.address.rpartition(":")[2]) if self.address else None


class Supervisor:
    """Start with ``start``, then ``keep`` until it raises or ``stop`` is called. One event loop.

    ``starts_max``: processes that start at the same time. ``tell``: takes the supervisor's own log lines.
    """

    def __init__(
        self,
        planned: Sequence[PlannedProcess],
        launch: Launch,
        tell: Callable[[str], None],
        clock: Clock,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        starts_max: int = 4,
    ) -> None:
        self.members = [Member(each) for each in planned]
        self._launch = launch
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._starts = asyncio.Semaphore(starts_max)
        self._stopping = False
        self._launches: set[asyncio.Task[None]] = set()

    @property
    def namesrv(self) -> str:
        """The address of the name server; empty before it serves."""
        return next((member.address for member in self.members if member.planned.name == NAMESRV), "")

    async def start(self) -> None:
        """Start all, stage by stage. Raises ``CannotStart`` or ``ConfigError`` with the reason of the first failure."""
        for stage in sorted({member.planned.stage for member in self.members}):
            tasks = [
                asyncio.create_task(self._first_start(member))
                for member in self.members
                if member.planned.stage == stage
            ]
            await _all_or_first_error(tasks)

    async def keep(self) -> None:
        """Restart what ends. Raises ``CannotStart`` when a process cannot start any more."""
        await _all_or_first_error([asyncio.create_task(self._keep(member)) for member in self.members])

    async def stop(self) -> None:
        """Stop masters, then slaves, then the name server; kill what takes more than 30 s.

        Masters first: sends that wait for slaves are answered.
        """
        self._stopping = True
        await asyncio.gather(*self._launches, return_exceptions=True)
        last = 1 + max(member.planned.stage for member in self.members)
        for stage in sorted({member.planned.stage or last for member in self.members}):
            group = [member for member in self.members if (member.planned.stage or last) == stage]
            await asyncio.gather(*(self._stop(member) for member in group))

    def kill_all(self) -> None:
        """End all processes at once; the next start recovers their stores."""
        self._stopping = True
        for member in self.members:
            if member.running is not None:
                member.running.kill()

    async def _first_start(self, member: Member) -> None:
        failed = await self._start(member)
        if failed is None:
            return
        what = f"{member.planned.name} did not start"
        if failed.code == ExitCode.USAGE:
            raise ConfigError(what, why=failed.why)
        raise CannotStart(what, why=failed.why, hint="all processes were stopped; correct the reason and start again")

    async def _start(self, member: Member) -> FailedStart | None:
        """Start the process; return None when it serves."""
        async with self._starts:
            command = member.planned.command(self.namesrv, member.port)
            launch = asyncio.create_task(self._launch_one(member, command))
            self._launches.add(launch)  # a cancelled start must not lose a process: ``stop`` waits for these
            launch.add_done_callback(self._launches.discard)
            try:
                await asyncio.shield(launch)
            except OSError as error:
                return FailedStart(ExitCode.FAILED, f"no process: {error.strerror or error}")
            running = member.running
            assert running is not None
            addresses = await running.ready()
            if not addresses:
                code = await running.ended()
                return FailedStart(code, running.last_words() or ended_text(code))
        member.address = addresses.get("namesrv") or addresses.get("broker") or member.address
        member.policy.ready(self._now_ms())
        return None

    async def _launch_one(self, member: Member, command: Sequence[str]) -> None:
        member.running = await self._launch(member.planned.name, command)
        if self._stopping:
            member.running.kill()

    async def _keep(self, member: Member) -> None:
        name = member.planned.name
        while not self._stopping:
            running = member.running
            assert running is not None
            text = f"has ended ({ended_text(await running.ended())})"
            failed: FailedStart | None = None
            while not self._stopping:
                pause_ms = member.policy.ended(self._now_ms())
                if pause_ms is None:
                    raise CannotStart(
                        f"{name} cannot start any more: {FAILED_STARTS_MAX} starts failed",
                        why=failed.why if failed else text,
                        hint="all processes were stopped; correct the reason and start again",
                    )
                self._tell(f"{name} {text}; restart {member.policy.restarts} in {pause_ms / 1000} s")
                await self._sleep(pause_ms / 1000)
                failed = await self._start(member)
                if failed is None:
                    assert member.running is not None
                    self._tell(f"{name} serves again at {member.address}, pid {member.running.pid}")
                    break
                text = f"did not start ({ended_text(failed.code)})"

    async def _stop(self, member: Member) -> None:
        running = member.running
        if running is None:
            return
        running.terminate()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await running.ended()
        except TimeoutError:
            self._tell(f"{member.planned.name} did not stop in {STOP_S_MAX:.0f} s: killed; its next start recovers")
            running.kill()
            await running.ended()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000


def ended_text(code: int) -> str:
    """Return an exit code or the name of a signal in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


async def _all_or_first_error(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Wait for all; at the first error, or when cancelled, cancel the rest and raise."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

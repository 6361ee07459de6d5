"""Starts, restarts and stops of a cluster's processes, with processes and pauses of the test."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pocketmq.cli.daemon import supervisor as supervisor_module
from pocketmq.cli.daemon.masters_plan import Addresses, plan_masters
from pocketmq.cli.daemon.restart_policy import FAILED_STARTS_MAX
from pocketmq.cli.daemon.supervisor import Supervisor, ended_text
from pocketmq.cli.exit_codes import CannotStart, ExitCode
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError


class Fake:
    """A process that serves at once, or fails with ``code``, and ends when the test or the supervisor says so."""

    def __init__(self, world: "World", name: str, command: Sequence[str], pid: int, code: int | None) -> None:
        self.pid = pid
        self.name = name
        self.command = command
        self._world = world
        self._code = asyncio.get_running_loop().create_future()
        if code is not None:
            self._code.set_result(code)

    async def ready(self) -> Mapping[str, str]:
        if self._code.done():
            return {}
        if self.name == "namesrv":
            return {"namesrv": "h:1"}
        return {"broker": f"h:{1000 + self.pid}"}

    async def ended(self) -> int:
        code: int = await asyncio.shield(self._code)
        return code

    def last_words(self) -> str:
        return f"{self.name} says why"

    def terminate(self) -> None:
        self._world.stopped.append(self.name)
        self.end(0)

    def kill(self) -> None:
        self.end(-9)

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)


class World:
    """What the supervisor reaches: processes and pauses. ``codes``: of the next starts of a name; else they serve."""

    def __init__(self) -> None:
        self.launched: list[Fake] = []
        self.stopped: list[str] = []
        self.told: list[str] = []
        self.pauses: list[float] = []
        self.codes: dict[str, list[int | OSError]] = {}
        self.clock = ManualClock()

    async def launch(self, name: str, command: Sequence[str]) -> Fake:
        codes = self.codes.get(name, [])
        code = codes.pop(0) if codes else None
        if isinstance(code, OSError):
            raise code
        fake = Fake(self, name, command, len(self.launched) + 1, code)
        self.launched.append(fake)
        return fake

    async def sleep(self, delay_s: float) -> None:
        self.pauses.append(delay_s)
        self.clock.advance_ms(delay_s * 1000)

    def of(self, name: str) -> list[Fake]:
        return [each for each in self.launched if each.name == name]

    def supervisor(self, masters: int = 2, slaves: int = 0) -> Supervisor:
        plan = plan_masters(masters, slaves, Path("/data"), Addresses("h", 0, 0), [])
        return Supervisor(plan.processes, self.launch, self.told.append, self.clock, sleep=self.sleep)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - turns of the loop, no time
            await asyncio.sleep(0)


async def test_stages_start_in_order_and_brokers_know_the_name_server() -> None:
    world = World()
    await world.supervisor(2, 1).start()
    assert [each.name for each in world.launched] == [
        "namesrv",
        *["broker-a-0", "broker-b-0"],
        *["broker-a-1", "broker-b-1"],
    ]
    for each in world.launched[1:]:
        assert each.command[-4:] == ["--namesrv", "h:1", "--broker-port", "0"]


async def test_a_process_that_dies_comes_back_at_its_address() -> None:
    world = World()
    supervisor = world.supervisor()
    await supervisor.start()
    keeping = asyncio.create_task(supervisor.keep())
    (first,) = world.of("broker-b-0")
    first.end(-9)
    await until(lambda: len(world.told) == 2)
    _, second = world.of("broker-b-0")
    assert second.command[-2:] == ["--broker-port", str(1000 + first.pid)]
    assert world.told == [
        "broker-b-0 has ended (signal SIGKILL); restart 1 in 0.5 s",
        f"broker-b-0 serves again at h:{1000 + second.pid}, pid {second.pid}",
    ]
    assert len(world.of("broker-a-0")) == 1
    second.end(1)
    await until(lambda: len(world.told) == 4)
    assert "(exit code 1); restart 2 in 1.0 s" in world.told[2]
    assert world.pauses == [0.5, 1.0]
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize(("code", "kind"), [(ExitCode.CANNOT_START, CannotStart), (ExitCode.USAGE, ConfigError)])
async def test_a_first_start_that_fails_ends_the_start(code: int, kind: type[Exception]) -> None:
    world = World()
    world.codes["broker-b-0"] = [code]
    with pytest.raises(kind, match="broker-b-0 did not start: broker-b-0 says why"):
        await world.supervisor().start()


async def test_no_process_can_be_made() -> None:
    world = World()
    world.codes["namesrv"] = [OSError(11, "Resource temporarily unavailable")]
    with pytest.raises(CannotStart, match="namesrv did not start: no process: Resource temporarily unavailable"):
        await world.supervisor().start()


async def test_a_process_that_cannot_start_again_ends_the_cluster() -> None:
    world = World()
    supervisor = world.supervisor()
    await supervisor.start()
    world.codes["broker-a-0"] = [3, OSError(12, "Cannot allocate memory"), *[3] * FAILED_STARTS_MAX]
    world.of("broker-a-0")[0].end(-9)
    with pytest.raises(CannotStart, match="broker-a-0 cannot start any more: 5 starts failed: broker-a-0 says why"):
        await supervisor.keep()
    assert world.pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert world.told[1] == "broker-a-0 did not start (exit code 3); restart 2 in 1.0 s"


async def test_masters_stop_before_slaves_and_the_name_server_last() -> None:
    world = World()
    supervisor = world.supervisor(2, 1)
    await supervisor.start()
    await supervisor.stop()
    assert world.stopped == ["broker-a-0", "broker-b-0", "broker-a-1", "broker-b-1", "namesrv"]


async def test_a_process_that_was_being_started_is_stopped_too() -> None:
    """The stop comes while the operating system makes the process."""
    world = World()
    supervisor = world.supervisor(1)
    begun, may_end = asyncio.Event(), asyncio.Event()
    launch = world.launch

    async def slow(name: str, command: Sequence[str]) -> Fake:
        if name != "namesrv":
            begun.set()
            await may_end.wait()
        return await launch(name, command)

    supervisor._launch = slow
    starting = asyncio.create_task(supervisor.start())
    await begun.wait()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    stopping = asyncio.create_task(supervisor.stop())
    may_end.set()
    await stopping
    assert await world.of("broker-a-0")[0].ended() == -9


async def test_a_process_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_S_MAX", 0.0)
    monkeypatch.setattr(Fake, "terminate", lambda self: None)
    world = World()
    supervisor = world.supervisor(1)
    await supervisor.start()
    await supervisor.stop()
    assert [await each.ended() for each in world.launched] == [-9, -9]
    assert [text.partition(" did not stop")[0] for text in world.told] == ["broker-a-0", "namesrv"]


async def test_all_processes_are_killed_at_once() -> None:
    world = World()
    supervisor = world.supervisor(2, 1)
    await supervisor.start()
    supervisor.kill_all()
    assert {await each.ended() for each in world.launched} == {-9}


def test_ends_in_words() -> None:
    assert [ended_text(code) for code in (0, 3, -9, -40)] == [
        "exit code 0",
        "exit code 3",
        "signal SIGKILL",
        "signal 40",
    ]

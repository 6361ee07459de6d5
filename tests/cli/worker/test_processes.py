"""Starts, restarts, reloads and the stop of worker processes, with processes, pauses and changes of the test."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.cli.daemon.restart_policy import FAILED_STARTS_MAX
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.worker.processes import SERVED_MS, WorkerProcesses
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError


class Fake:
    """A process that ends when the test says so, or when it is asked to stop and is not ``stubborn``."""

    def __init__(self, pid: int, stubborn: bool) -> None:
        self.pid = pid
        self.killed = False
        self.terminated = False
        self._stubborn = stubborn
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    def terminate(self) -> None:
        self.terminated = True
        if not self._stubborn:
            self.end(0)

    def kill(self) -> None:
        self.killed = True
        self.end(-9)


class World:
    """What ``WorkerProcesses`` starts and says."""

    def __init__(self, count: int, *, reload: bool = False, stubborn: bool = False, stop_timeout_s: float = 60) -> None:
        self.clock = ManualClock()
        self.started: list[Fake] = []
        self.told: list[str] = []
        self.pauses: list[float] = []
        self.changed: asyncio.Queue[str] = asyncio.Queue()
        self._news = asyncio.Event()
        self._stubborn = stubborn
        self.processes = WorkerProcesses(
            count,
            self.launch,
            self.tell,
            self.clock,
            stop_timeout_s=stop_timeout_s,
            changes=self.changes() if reload else None,
            sleep=self.sleep,
        )

    async def launch(self) -> Fake:
        self.started.append(Fake(len(self.started) + 1, self._stubborn))
        self._news.set()
        return self.started[-1]

    async def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)

    async def changes(self) -> AsyncIterator[str]:
        while True:
            yield await self.changed.get()

    def tell(self, text: str) -> None:
        self.told.append(text)
        self._news.set()

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.told) < count:
                self._news.clear()
                await self._news.wait()

    async def until_started(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.started) < count:
                self._news.clear()
                await self._news.wait()


async def running(world: World) -> "asyncio.Task[None]":
    return asyncio.create_task(world.processes.run())


async def test_all_are_stopped_together() -> None:
    """A stop asks each process, and ends when all have."""
    world = World(3)
    run = await running(world)
    await world.until_started(3)
    world.processes.stop()
    await run
    assert [process.terminated for process in world.started] == [True] * 3
    assert world.told == []


async def test_one_that_ends_is_started_again() -> None:
    """The others go on."""
    world = World(2)
    run = await running(world)
    await world.until_started(2)
    world.started[0].end(-9)
    await world.until_started(3)
    assert not world.started[1].terminated
    assert world.told == ["worker 1 has ended (signal SIGKILL); restart in 0.5 s"]
    world.processes.stop()
    await run


async def test_one_that_cannot_start_ends_all() -> None:
    """After a few tries; one that served for a while may end as often as it likes."""
    world = World(1)
    run = await running(world)
    for number in range(FAILED_STARTS_MAX + 2):
        await world.until_started(number + 1)
        if number < 2:
            world.clock.advance_ms(SERVED_MS)
        world.started[number].end(1)
    with pytest.raises(CannotStart, match="exit code 1"):
        await run


async def test_a_wrong_use_ends_all_at_once() -> None:
    """Exit code 2: the next start would say the same."""
    world = World(2)
    run = await running(world)
    await world.until_started(2)
    world.started[0].end(2)
    with pytest.raises(ConfigError, match="see its error above"):
        await run
    assert world.started[1].terminated
    assert len(world.started) == 2


async def test_consumers_that_stop_themselves_end_the_worker() -> None:
    """Exit code 0 of all: there is nothing left to do."""
    world = World(2)
    run = await running(world)
    await world.until_started(2)
    for process in world.started:
        process.end(0)
    await run


async def test_a_stubborn_one_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stop timeout is over, and some seconds more."""
    monkeypatch.setattr("pocketmq.cli.worker.processes.KILL_AFTER_S", 0)
    world = World(1, stubborn=True, stop_timeout_s=0)
    run = await running(world)
    await world.until_started(1)
    world.processes.stop()
    await run
    assert world.started[0].killed
    assert "killed" in world.told[-1]


async def test_a_change_starts_all_again() -> None:
    """The old ones are stopped first; a broken file waits for the next change."""
    world = World(2, reload=True)
    run = await running(world)
    await world.until_started(2)
    world.changed.put_nowait("a.py changed")
    await world.until_started(4)
    assert [process.terminated for process in world.started] == [True, True, False, False]
    world.started[2].end(2)
    await world.until_told(2)
    world.changed.put_nowait("a.py changed")
    await world.until_started(6)
    assert world.told == ["a.py changed: starting again", world.told[1], "a.py changed: starting again"]
    assert world.told[1].endswith("waits for a change of files")
    world.processes.stop()
    await run


async def test_a_stop_while_a_broken_file_waits() -> None:
    """Nothing runs, and the worker still ends."""
    world = World(1, reload=True)
    run = await running(world)
    await world.until_started(1)
    world.started[0].end(2)
    await world.until_told(1)
    world.processes.stop()
    await run
    assert len(world.started) == 1


def test_reload_needs_watchfiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without watchfiles, ``--reload`` says what to install."""
    import sys

    from pocketmq.cli.worker.command import _changes

    missing: Any = None
    monkeypatch.setitem(sys.modules, "watchfiles", missing)
    with pytest.raises(ConfigError, match=r"pip install 'pocketmq\[reload\]'"):
        _changes(["."])

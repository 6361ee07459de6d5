"""Fixtures: both event loops, a log that remembers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.remoting.loop import new_event_loop

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run an async function in a new loop of each kind; errors in callbacks fail the test."""

    def run_in_new_loop(scenario: Callable[[], Awaitable[None]]) -> None:
        loop = new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
        problems: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))
        loop.run_until_complete(asyncio.wait_for(_await(scenario), 100))
        loop.close()  # not after a failure: uvloop can wait for ever for open transports
        assert not problems

    return run_in_new_loop


async def _await(scenario: Callable[[], Awaitable[None]]) -> None:
    await scenario()


class MemoryLog:
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def _add(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    info = warning = error = _add

    def count(self, event: str) -> int:
        return sum(name == event for name, _ in self.events)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()

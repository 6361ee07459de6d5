"""Two members of an ordered group, each in its own process, one queue, and what happens to it when one ends.

Lives here: ``Member`` (a process and its lines), ``LockWatch`` (the broker's lock table, many times a second),
``consume_until_moved`` (one phase), ``Moved`` (its results).
"""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pocketmq.cli.scenario.harness.cluster import START_S_MAX, BrokerProcess, not_started, spawn
from pocketmq.cli.scenario.harness.load import create_topic
from pocketmq.cli.scenario.report.report import Span
from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.lock_admin import queue_locks
from pocketmq.common.errors import DECODE_ERRORS, PocketMQError

PERIOD_S: Final = 0.05
"""How often a message is sent, and the lock table is read."""
BEFORE_S: Final = 2.0
AFTER_S: Final = 1.0
QUIET_NS: Final = 400_000_000
"""A longer pause between two messages ends a span of work."""


class Member:
    """One consumer process. ``handled``: (number, monotonic ns) in order; ``events``: its other lines."""

    def __init__(self, name: str, errors: Path) -> None:
        self.name = name
        self.client_id = ""
        self.handled: list[tuple[int, int]] = []
        self.events: list[dict[str, Any]] = []
        self.ended = asyncio.Event()
        self._errors = errors
        self._ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self, namesrv: str, group: str, topic: str, lock_interval_ms: int, lock_max_live_ms: int) -> None:
        """Start it; return when it consumes, or raise ``CannotStart``."""
        command = ["-m", "pocketmq.cli.scenario.harness.ordered_member"]
        command += ["--namesrv", namesrv, "--group", group, "--topic", topic]
        command += ["--lock-interval-ms", str(lock_interval_ms), "--lock-max-live-ms", str(lock_max_live_ms)]
        self._process = await spawn(command, self._errors)
        self._reader = asyncio.get_running_loop().create_task(self._read())
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._ready.wait()
        except TimeoutError as error:
            raise not_started("a consumer", self._errors) from error

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for text in self._process.stdout:
            with contextlib.suppress(*DECODE_ERRORS, json.JSONDecodeError):
                line = json.loads(text)
                if line["event"] == "handled":
                    self.handled.append((line["number"], line["at_ns"]))
                elif line["event"] == "ready":
                    self.client_id = line["client_id"]
                    self._ready.set()
                else:
                    self.events.append(line)
        self.ended.set()

    def send_signal(self, number: int) -> None:
        """Send a signal if the process is alive."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def end(self) -> None:
        """Kill the process and wait for its end."""
        self.send_signal(signal.SIGKILL)
        if self._process is not None:
            await self._process.wait()
        if self._reader is not None:
            await self._reader


@dataclass(slots=True)
class Moved:
    """The results of a run. Times are monotonic ns; ``sent[n]``: when message n was sent."""

    began_ns: int
    ended_ns: int
    """When the first member got its signal."""
    first: Member
    second: Member
    sent: list[int] = field(default_factory=list)
    locks: list[tuple[int, str]] = field(default_factory=list)
    """(time, client id of the holder or nothing) of each read of the table."""

    @property
    def standstill_s(self) -> float:
        """Time from the end of the first member to the first message of the second."""
        after = [at_ns for _, at_ns in self.second.handled if at_ns >= self.ended_ns]
        return (min(after) - self.ended_ns) / 1e9 if after else float("inf")

    @property
    def firsts(self) -> list[int]:
        """The message numbers in the order in which they were handled first."""
        both = sorted([*self.first.handled, *self.second.handled], key=lambda each: each[1])
        return list(dict.fromkeys(number for number, _ in both))

    @property
    def repeated(self) -> int:
        """Messages that were handled twice: handled, but not committed, when the first member ended."""
        return len(self.first.handled) + len(self.second.handled) - len(self.firsts)

    def waits(self) -> list[dict[str, Any]]:
        """Return the events of the second member about its wait."""
        return [event for event in self.second.events if event["event"] == "queue_waits_for_lock"]

    def spans(self) -> list[Span]:
        """Return the timeline: which member had the lock, and which one worked."""
        names = {self.first.client_id: "first", self.second.client_id: "second"}
        found: list[Span] = []
        for at_ns, holder in self.locks:
            what = names.get(holder, "nobody")
            if what == "first" and at_ns > self.ended_ns:
                what = "first, which is gone"
            _extend(found, "lock", what, self._s(at_ns), PERIOD_S * 4)
        for member, what in ((self.first, "first"), (self.second, "second")):
            for _, at_ns in member.handled:
                _extend(found, "work", what, self._s(at_ns), QUIET_NS / 1e9)
        return found

    def _s(self, at_ns: int) -> float:
        return round((at_ns - self.began_ns) / 1e9, 3)


def _extend(spans: list[Span], lane: str, what: str, at_s: float, gap_s: float) -> None:
    """Extend the last span of a lane to ``at_s``, or begin one."""
    last = next((number for number in reversed(range(len(spans))) if spans[number].lane == lane), None)
    if last is not None and spans[last].what == what and at_s - spans[last].to_s <= gap_s:
        spans[last] = Span(lane, what, spans[last].from_s, at_s)
    else:
        spans.append(Span(lane, what, at_s, at_s))


async def consume_until_moved(
    namesrv: str,
    broker: BrokerProcess,
    directory: Path,
    *,
    graceful: bool,
    lock_interval_ms: int,
    lock_max_live_ms: int,
    longest_s: float,
) -> Moved:
    """Let two members consume one queue, end the one that has it, and wait until the other one has caught up."""
    topic = f"Orders-{broker.name}"
    group = f"billing-{broker.name}"  # one a run: members of one group must have the same subscriptions
    await create_topic(namesrv, topic, [broker.name], queues=1)
    members = [Member(name, directory / f"{broker.name}-{name}.txt") for name in ("one", "two")]
    sending: asyncio.Task[None] | None = None
    polling: asyncio.Task[None] | None = None
    try:
        await asyncio.gather(
            *(each.start(namesrv, group, topic, lock_interval_ms, lock_max_live_ms) for each in members)
        )
        async with Producer("orders", namesrv) as producer, Admin(namesrv) as admin:
            moved = Moved(time.monotonic_ns(), 0, members[0], members[1])
            sending = asyncio.get_running_loop().create_task(_send(producer, topic, moved.sent))
            polling = asyncio.get_running_loop().create_task(_poll_locks(admin, group, moved.locks))
            async with asyncio.timeout(START_S_MAX):
                moved.first = await _holder(members)
            moved.second = next(each for each in members if each is not moved.first)
            await asyncio.sleep(BEFORE_S)
            moved.ended_ns = time.monotonic_ns()
            moved.first.send_signal(signal.SIGTERM if graceful else signal.SIGKILL)
            await _until(lambda: moved.standstill_s < float("inf"), longest_s)
            await asyncio.sleep(AFTER_S)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await _until(lambda: len(moved.firsts) >= len(moved.sent), longest_s)
        return moved
    finally:
        for task in (sending, polling):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(each.end() for each in members))


async def _until(condition: Callable[[], bool], longest_s: float) -> None:
    """Return when the condition holds, or after ``longest_s``: the checks report what is missing."""
    for _ in range(round(longest_s / PERIOD_S)):
        if condition():
            return
        await asyncio.sleep(PERIOD_S)


async def _send(producer: Producer, topic: str, sent: list[int]) -> None:
    while True:
        sent.append(time.monotonic_ns())
        await producer.send(Message(topic, b"%d" % (len(sent) - 1), sharding_key="aircraft-7"), timeout_ms=10_000)
        await asyncio.sleep(PERIOD_S)


async def _poll_locks(admin: Admin, group: str, seen: list[tuple[int, str]]) -> None:
    while True:
        with contextlib.suppress(PocketMQError):
            locks, _ = await queue_locks(admin, group=group, topic=group.replace("billing", "Orders"))
            seen.append((time.monotonic_ns(), locks[0].info.client_id if locks else ""))
        await asyncio.sleep(PERIOD_S)


async def _holder(members: list[Member]) -> Member:
    """Return the member that has the queue, once it alone has worked for a second."""
    while True:
        before = [len(each.handled) for each in members]
        await asyncio.sleep(1)
        worked = [each for each, count in zip(members, before, strict=True) if len(each.handled) - count > 5]
        if len(worked) == 1:
            return worked[0]

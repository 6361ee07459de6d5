"""A real broker under attack, and a bystander who only wants to send and read.

Lives here: ``Target`` (the process, its memory, its end), ``Bystander`` (its latencies and refusals), ``attack``.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import ANNOUNCEMENT_FIELD
from pocketmq.remoting.introduction import Introduction
from pocketmq.remoting.protocol.pull import NativePullRequestHeader
from pocketmq.remoting.security.credentials import Credentials
from tests.attack.loads import SETTINGS
from tests.broker.raw_client import RawClient

START_S: Final = 60.0
STOP_S: Final = 30.0
PERIOD_S: Final = 0.01
CONNECTION_ROUNDS: Final = 50
"""Rounds on one connection: then it is a new client, who must get in."""
TOPIC: Final = "Bystander"


@dataclass(slots=True)
class Figures:
    """What an attack did. Times in ms but where named otherwise."""

    p50_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0
    refused_ms: float = 0.0
    """Longest time from a good send to the next one, with refusals between them."""
    recovery_ms: float = 0.0
    """From the end of the attack to the first send and read that take less than 100 ms."""
    memory_mib: float = 0.0
    """Highest resident memory of the broker."""
    stop_s: float = 0.0
    """While the attack goes on."""
    cpu_s: float = 0.0
    """CPU time of the broker, its start included."""
    said: str = ""
    """Last line of the attacker."""
    rounds: int = 0
    refusals: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Lines of the broker's log about crashed threads and failed handlers."""

    def line(self) -> str:
        """Return the figures as one line."""
        return (
            f"p50 {self.p50_ms:.1f} p99 {self.p99_ms:.1f} worst {self.worst_ms:.0f} ms, "
            f"refused {self.refused_ms:.0f} ms, recovery {self.recovery_ms:.0f} ms, "
            f"memory {self.memory_mib:.0f} MiB, cpu {self.cpu_s:.1f} s, stop {self.stop_s:.2f} s, "
            f"{self.rounds} rounds, {self.refusals[:1]} {self.said} {self.errors[:2]}"
        )


@dataclass(slots=True)
class Target:
    """One ``pocketmq standalone``."""

    directory: Path
    process: asyncio.subprocess.Process
    port: int

    def memory_mib(self) -> float:
        """Return the highest resident memory it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def cpu_s(self) -> float:
        """Return the time it has used of a core."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def errors(self) -> list[str]:
        """Return what its log says about crashes."""
        words = ("crash", "Traceback", "request_handler_failed", "processor_failed", "worker_hangs", "task_failed")
        text = (self.directory / "stderr").read_text("utf-8", "replace")
        log = self.directory / "log"
        text += log.read_text("utf-8", "replace") if log.exists() else ""
        return [line[:300] for line in text.splitlines() if any(word in line for word in words)]

    async def stop(self) -> float:
        """Stop it as a user does; return the seconds it took."""
        began_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_S):
            await self.process.wait()
        return time.monotonic() - began_s


def cores() -> tuple[set[int], set[int]]:
    """Return the cores of the broker and those of the attacker: others, where the machine has more than one."""
    known = sorted(os.sched_getaffinity(0))
    return (set(known[:-1]), {known[-1]}) if len(known) > 1 else (set(known), set(known))


def _environment() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")}
    return found | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextlib.asynccontextmanager
async def target(directory: Path, **settings: object) -> AsyncIterator[Target]:
    """Run a broker with a name server until the block ends; ``settings`` with ``__`` for the dot. Passwords come by the
    environment."""
    secrets = {f"POCKETMQ_{key.upper()}": str(settings.pop(key)) for key in list(settings) if "password" in key}
    values = {"log.file": directory / "log", "store.mapped_file_size_commit_log": 64 << 20, **settings}
    words = [sys.executable, "-m", "pocketmq.cli.main", "standalone", "--data-dir", str(directory / "store")]
    words += ["--broker-port", "0", "--namesrv-port", "0"]
    words += [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
    with (directory / "stderr").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=errors, env=_environment() | secrets, limit=1 << 20
        )
    os.sched_setaffinity(process.pid, cores()[0])
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("ready "), line + (directory / "stderr").read_text("utf-8", "replace")[-2000:]
        found = [word for word in line.replace("=", " ").split() if word.count(":") == 1]
        yield Target(directory, process, int(dict(_pairs(line)).get("broker", found[-1]).rpartition(":")[2]))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _pairs(line: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (word.partition("=") for word in line.split()) if value]


@dataclass(slots=True)
class Bystander:
    """Sends a message, reads it, and notes how long both took; on one connection after the other."""

    port: int
    keys: Credentials | None = None
    """With which it proves itself on each connection."""
    latencies_ms: list[float] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    refused_ms: float = 0.0
    ended: bool = False
    last_ms: float = 0.0
    _good_s: float = 0.0

    async def run(self) -> None:
        """Go on until ``ended``."""
        offset = 0
        self._good_s = time.monotonic()
        while not self.ended:
            try:
                async with RawClient(self.port) as client:
                    await self._prove(client)
                    for _ in range(CONNECTION_ROUNDS):
                        if not self.ended:
                            offset = await self._round(client, offset)
            except (ConnectionError, TimeoutError, OSError) as error:
                self._note(repr(error))
                await asyncio.sleep(PERIOD_S)

    async def _prove(self, client: RawClient) -> None:
        """Prove who it is, where the broker wants to know."""
        if self.keys is None:
            return
        async with asyncio.timeout(10):
            hello = await _answer(client, client.post(RequestCode.HELLO))
            announced = json.loads(hello.extra[ANNOUNCEMENT_FIELD])
            introduction = Introduction("the broker", self.keys, announced["nonce"])
            answer = await _answer(client, client.post(RequestCode.AUTHENTICATE, introduction.request))
        refused = introduction.judge(answer)
        assert refused is None, refused

    async def _round(self, client: RawClient, offset: int) -> int:
        began_s = time.monotonic()
        async with asyncio.timeout(10):
            sent = await _answer(client, client.post_send(b"hello", topic=TOPIC))
            if sent.code != 0:
                self._note(f"{sent.code} {sent.remark}")
                await asyncio.sleep(PERIOD_S)
                return offset
            queues = [(TOPIC, 0, offset)]
            header = NativePullRequestHeader("bystanders", queues, 1 << 20, 100, 5_000)
            read = await _answer(client, client.post(RequestCode.NATIVE_PULL, header))
        now_s = time.monotonic()
        self.last_ms = (now_s - began_s) * 1000
        if read.code != 0:
            self._note(f"{read.code} {read.remark}")
            return offset
        self.latencies_ms.append(self.last_ms)
        if self.refusals:
            self.refused_ms = max(self.refused_ms, (now_s - self._good_s) * 1000)
        self._good_s = now_s
        found = read.header.results[0]  # type: ignore[union-attr]
        await asyncio.sleep(PERIOD_S)
        return int(found[1])

    def _note(self, why: str) -> None:
        self.refusals.append(why)
        self.refused_ms = max(self.refused_ms, (time.monotonic() - self._good_s) * 1000)


async def _answer(client: RawClient, opaque: int) -> Response:
    """Return an answer; raise ``ConnectionResetError`` when the broker closes the connection instead."""
    answered = asyncio.create_task(client.answer(opaque))
    await asyncio.wait({answered, client._task}, return_when=asyncio.FIRST_COMPLETED)
    if not answered.done():
        answered.cancel()
        raise ConnectionResetError("closed by the broker")
    return answered.result()


async def attack(directory: Path, load: str, seconds: float, *, again_s: float = 2.0, **settings: object) -> Figures:
    """Run one load of ``loads`` against a new broker, in a process and on a core of its own; return its figures.

    The broker stops while the attack has gone on again for ``again_s``.
    """
    figures = Figures()
    settings = {**SETTINGS.get(load, {}), **settings}
    name, secret = settings.get("auth__init_username"), settings.get("auth__init_password")
    async with target(directory, **settings) as broker:
        bystander = Bystander(broker.port, Credentials(str(name), str(secret)) if name else None)
        running = asyncio.create_task(bystander.run())
        await _until(lambda: len(bystander.latencies_ms) >= 20)  # it has a topic, and the broker is warm
        bystander.latencies_ms.clear()
        bystander.refusals.clear()
        attacker = await _attacker(directory, load, broker.port, seconds)
        try:
            async with asyncio.timeout(seconds + 60):
                await attacker.wait()
        finally:
            await _kill(attacker)
        ended_s = time.monotonic()
        said = (directory / "attacker").read_text("utf-8", "replace")
        during = sorted(bystander.latencies_ms)
        count = len(bystander.latencies_ms)
        await _until(lambda: len(bystander.latencies_ms) > count and bystander.last_ms < 100)
        figures.recovery_ms = (time.monotonic() - ended_s) * 1000
        bystander.ended = True
        await running
        figures.rounds = len(during)
        if during:
            figures.p50_ms, figures.worst_ms = during[len(during) // 2], during[-1]
            figures.p99_ms = during[len(during) * 99 // 100]
        figures.refused_ms, figures.refusals = bystander.refused_ms, bystander.refusals
        figures.memory_mib, figures.cpu_s = broker.memory_mib(), broker.cpu_s()
        again = await _attacker(directory, load, broker.port, 60)
        try:
            await asyncio.sleep(again_s)
            figures.stop_s = await broker.stop()
        finally:
            await _kill(again)
        figures.errors = broker.errors()
        assert attacker.returncode == 0, said[-3000:]
        figures.said = "".join(said.splitlines()[-1:])
    return figures


async def _attacker(directory: Path, load: str, port: int, seconds: float) -> asyncio.subprocess.Process:
    words = [sys.executable, "-m", "tests.attack.loads", load, str(port), str(seconds)]
    with (directory / "attacker").open("wb") as output:
        process = await asyncio.create_subprocess_exec(*words, stdout=output, stderr=output, env=_environment())
    os.sched_setaffinity(process.pid, cores()[1])
    return process


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(START_S):
        while not condition():  # noqa: ASYNC110 - what another process does has no event
            await asyncio.sleep(PERIOD_S)

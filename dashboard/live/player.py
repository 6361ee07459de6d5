"""Plays one incident at a time: ``pocketmq scenario NAME`` as a process of its own, on its own brokers.

The process starts a name server and brokers on free ports in temporary directories and removes them in the end. It gets
the port of its name server from here, so that the throw-away cluster can be watched like any other.

Lives here: ``Player``, ``Run``; the parts of the report that a page shows.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, Cause, MessageIllegal, PocketMQError
from pocketmq.dashboard.options import DashboardOptions, ScenarioInfo
from pocketmq.dashboard.watch.cluster_watch import ClusterWatch

LINES_MAX: Final = 200
LINE_BYTES_MAX: Final = 2_000
REPORT_BYTES_MAX: Final = 16 << 20
RUN_S_MAX: Final = 300.0
STOP_S: Final = 15.0
INTERVAL_S: Final = 0.5
_LINE: Final = re.compile(r"[^\x20-\x7e\u00a0-\U0010ffff]")


class PlayerBusy(PocketMQError):
    """An incident is being played: its brokers need the machine."""

    retriable = True
    default_cause = Cause.CONNECTION_LIMIT


class Latency(msgspec.Struct, frozen=True):
    """Times of sends, ms."""

    count: int = 0
    max_ms: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """How so many sends ended."""

    text: str = ""
    count: int = 0
    delivered: bool = False
    cause: str = ""
    latency: Latency = Latency()


class Check(msgspec.Struct, frozen=True):
    """One thing that the incident must show."""

    what: str = ""
    found: str = ""
    ok: bool = False


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One send: when it began, s; how long it took, ms; its place among the outcomes."""

    at_s: float = 0.0
    took_ms: float = 0.0
    outcome: int = 0


class Phase(msgspec.Struct, frozen=True):
    """One run of an incident."""

    name: str = ""
    role: str = ""
    load: str = ""
    sends: int = 0
    delivered: int = 0
    outcomes: list[Outcome] = []
    checks: list[Check] = []
    says: str = ""
    points: list[Point] = []


class Report(msgspec.Struct, frozen=True):
    """What ``pocketmq scenario --json`` prints, as far as a page shows it."""

    duration_s: float = 0.0
    phases: list[Phase] = []
    cure: str = ""
    price: str = ""
    ok: bool = False


_REPORT: Final = msgspec.json.Decoder(Report)


@dataclass(slots=True, eq=False)
class Run:
    """One incident that is played, or was. ``report`` None: there is none yet, ``failure`` says if there will be."""

    scenario: ScenarioInfo
    process: asyncio.subprocess.Process
    watch: ClusterWatch
    began_ns: int = field(default_factory=time.monotonic_ns)
    ended_ns: int = 0
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    report: Report | None = None
    failure: str = ""
    stopped: bool = False

    @property
    def is_over(self) -> bool:
        """Whether its process has ended."""
        return self.ended_ns > 0

    @property
    def lasts_s(self) -> float:
        """How long it has lasted, seconds."""
        return ((self.ended_ns or time.monotonic_ns()) - self.began_ns) / 1e9


class Player:
    """Owns the process of the run, and its watch. One run at a time; the last one stays to be looked at."""

    def __init__(self, options: DashboardOptions) -> None:
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self.run: Run | None = None

    @property
    def can_play(self) -> bool:
        """Whether incidents can be played here."""
        return bool(self._options.scenario_command)

    async def play(self, name: str) -> Run:
        """Start an incident. Raises ``PlayerBusy``, and ``MessageIllegal`` for a name that is none."""
        scenario = next((each for each in self._options.scenarios if each.name == name), None)
        if scenario is None or not self.can_play:
            raise MessageIllegal("nothing is played", why=f"{name[:64]!r} is no scenario of this dashboard")
        async with self._lock:
            if self.run is not None and not self.run.is_over:
                raise PlayerBusy("nothing is played", why=f"{self.run.scenario.name} is being played", hint="stop it")
            await self._clear()
            port = _free_port()
            command = (*self._options.scenario_command, name, "--quick", "--json", "--namesrv-port", str(port))
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 16,
                start_new_session=True,  # a Ctrl-C at the dashboard's terminal is passed on by ``stop``, once
                env={each: value for each, value in os.environ.items() if not each.startswith("POCKETMQ_")},
            )
            options = replace(
                self._options,
                namesrv=f"127.0.0.1:{port}",
                credentials=None,
                tls=None,
                interval_s=INTERVAL_S,
            )
            self.run = Run(scenario, process, ClusterWatch(options, None))
            self._task = asyncio.create_task(self._follow(self.run), name="dashboard-player")
            return self.run

    async def stop(self) -> None:
        """End the run, if there is one, and wait for it: its brokers and files go with it."""
        run, task = self.run, self._task
        if run is None or task is None or task.done():
            return
        run.stopped = True
        with contextlib.suppress(ProcessLookupError):
            run.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), STOP_S)

    async def close(self) -> None:
        """End the run and its watch."""
        await self.stop()
        await self._clear()

    async def _clear(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.run is not None:
            await self.run.watch.stop()

    async def _follow(self, run: Run) -> None:
        process = run.process
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(RUN_S_MAX):
                out, _ = await asyncio.gather(_all_of(process.stdout), self._take_lines(run, process.stderr))
                await process.wait()
            run.report, run.failure = self._read(run, out)
        except TimeoutError:
            run.failure = f"it was ended: it took longer than {RUN_S_MAX:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
            run.ended_ns = time.monotonic_ns()
            run.watch.state.revision += 1  # pages show the end, whatever the watch has seen of it

    @staticmethod
    async def _take_lines(run: Run, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # longer than the reader's limit: it is dropped
                continue
            if not line:
                return
            run.lines.append(_LINE.sub("", line[:LINE_BYTES_MAX].decode("utf-8", "replace")).strip())

    @staticmethod
    def _read(run: Run, out: bytes) -> tuple[Report | None, str]:
        if run.stopped:
            return None, "it was stopped"
        try:
            return _REPORT.decode(out), ""
        except DECODE_ERRORS:
            return None, f"it ended with code {run.process.returncode} and without a report"


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    """Return what a process prints, at most ``REPORT_BYTES_MAX``; what is beyond is read and dropped."""
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size <= REPORT_BYTES_MAX:
            parts.append(part)
    return b"".join(parts)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

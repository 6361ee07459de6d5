"""Real processes for a scenario: one name server, brokers with a disk that fails on request.

Lives here: ``Cluster``, ``BrokerProcess``: start, faults on and off, ``kill -9``, log lines, removal of it all.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.logs import LogConfig, Logs

COMMAND: Final = "pocketmq.cli.main"
READY: Final = re.compile(r"(namesrv|broker)=(\S+)")
START_S_MAX: Final = 30.0
SWEEPS_AFTER_S: Final = 1.2
"""Fast failure starts 1 s after the broker (RocketMQ BrokerFastFailure): no load before."""
SEGMENT_BYTES: Final = 16 << 20
SMALL_STORE: Final[Mapping[str, str]] = {
    "store.mapped_file_size_commit_log": str(SEGMENT_BYTES),
    "store.max_hash_slot_num": "50000",
    "store.max_index_num": "200000",
}
"""Files of a size that a temporary directory and five locked buffers can have; no scenario depends on it."""

Rule = Mapping[str, object]
APPENDS: Final[Rule] = {"operations": ["store", "write_at"], "path": "commitlog/*", "bytes_min": 64}
"""Each append, once: a small group is written, a large one goes into the map, and its head, below 64 bytes, is written.
With the write-buffer pool: each write of the commit thread."""
COMMITS: Final[Rule] = {"operations": ["write_at"], "path": "commitlog/*"}
"""Each write of the commit thread, which there is with the write-buffer pool."""


class Process:
    """One daemon. ``kill`` ends it as ``kill -9`` does."""

    def __init__(self, arguments: Sequence[str], errors: Path, module: str = COMMAND) -> None:
        self._arguments = [sys.executable, "-m", module, *arguments]
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> dict[str, str]:
        """Start it and return the addresses of its ready line."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")}
        with self._errors.open("ab") as errors:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C is ours: we end it
            )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S_MAX):
                line = (await process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        if not line.startswith("ready"):
            await self.kill()
            said = self._errors.read_text("utf-8", "replace")[-4000:].strip()
            raise CannotStart("a process of the scenario did not start", why=said or "it said nothing")
        return dict(READY.findall(line))

    def kill_now(self) -> None:
        """Send the signal that ends it, and do not wait; ``kill`` does."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Let it stand still, with open connections."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """End it now; nothing happens if it has ended."""
        self.kill_now()
        process, self._process = self._process, None
        if process is not None:
            await process.wait()


class BrokerProcess:
    """One broker. It keeps directory and log over ``kill`` and ``start``."""

    def __init__(
        self, name: str, directory: Path, namesrv: str, settings: Mapping[str, str], module: str = COMMAND
    ) -> None:
        """``module``: what runs as ``pocketmq``."""
        self.name = name
        self.address = ""
        self.started_s = 0.0
        directory.mkdir(parents=True)
        self._directory = directory
        self._control = directory / "faults.json"
        self._log = directory / "broker.log"
        values = {
            "broker.broker_name": name,
            "log.format": "json",
            "log.file": str(self._log),
            "fault.enable": "true",
            "fault.control_file": str(self._control),
            **_without_metrics(),
            **SMALL_STORE,
            **settings,
        }
        arguments = ["broker", "--namesrv", namesrv, "--data-dir", str(directory / "store"), "--broker-port", "0"]
        arguments += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        self._process = Process(arguments, directory / "stderr.txt", module)

    async def start(self) -> None:
        """Start it, or start it again on the same store."""
        self.address = (await self._process.start())["broker"]
        self.started_s = time.monotonic()

    def freeze(self) -> None:
        """Stop it where it is (SIGSTOP); its connections stay open."""
        self._process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._process.thaw()

    def wipe(self) -> None:
        """Throw its store away; it must have been killed."""
        shutil.rmtree(self._directory / "store")

    def kill_now(self) -> None:
        """``kill -9``, without waiting for the end."""
        self._process.kill_now()

    async def kill(self) -> None:
        """``kill -9``."""
        await self._process.kill()

    async def settled(self) -> None:
        """Return when its fast failure runs."""
        await asyncio.sleep(max(0.0, self.started_s + SWEEPS_AFTER_S - time.monotonic()))

    def faults(self, *rules: Rule) -> None:
        """Replace the rules of its disk; none heals it. In force 20 ms later, at the next call."""
        temporary = self._control.with_suffix(".tmp")
        temporary.write_text(json.dumps({"rules": rules}))
        temporary.replace(self._control)

    def log_lines(self) -> list[dict[str, Any]]:
        """Return what it wrote to its log, oldest first."""
        lines: list[dict[str, Any]] = []
        if self._log.exists():
            for line in self._log.read_text("utf-8", "replace").splitlines():
                with contextlib.suppress(*DECODE_ERRORS, json.JSONDecodeError):
                    lines.append(json.loads(line))
        return lines


class Cluster:
    """A name server and the brokers of one phase after the other; all are gone, with their files, when it ends.

    ``keep``: leave the directory.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pocketmq-scenario-"))
        self.namesrv = ""
        self._keep = keep
        self._logs = Logs(LogConfig(format="json", file=str(self.directory / "client.log")))
        self.client_log = self._logs.logger("client")
        arguments = ["namesrv", "--namesrv-port", "0", "--log-level", "warning"]
        self._name_server = Process(arguments, self.directory / "namesrv.txt")
        self._brokers: list[BrokerProcess] = []

    async def start_all(self, phases: Sequence[Sequence[Mapping[str, str]]]) -> list[list[BrokerProcess]]:
        """Start one broker for each set of settings of each phase, each with a new store.

        Names tell the phase and the broker in it: ``broker-1a``, ``broker-1b``, ``broker-2a``, …
        """
        started: list[list[BrokerProcess]] = []
        for phase, brokers in enumerate(phases, 1):
            names = [f"broker-{phase}{chr(ord('a') + number)}" for number in range(len(brokers))]
            started.append(
                [
                    BrokerProcess(name, self.directory / name, self.namesrv, settings)
                    for name, settings in zip(names, brokers, strict=True)
                ]
            )
            self._brokers += started[-1]
        results = await asyncio.gather(*(broker.start() for broker in self._brokers), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return started

    def add(self, name: str, settings: Mapping[str, str], module: str = COMMAND) -> BrokerProcess:
        """Add a broker that does not run yet; it ends with the cluster."""
        broker = BrokerProcess(name, self.directory / name, self.namesrv, settings, module)
        self._brokers.append(broker)
        return broker

    async def kill(self, brokers: Sequence[BrokerProcess]) -> None:
        """Kill the brokers of a phase: what they have to say was asked before."""
        await asyncio.gather(*(broker.kill() for broker in brokers))

    async def __aenter__(self) -> Self:
        try:
            self.namesrv = (await self._name_server.start())["namesrv"]
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        for broker in self._brokers:  # all at once: a second signal may end the waits below
            broker.kill_now()
        self._name_server.kill_now()
        try:
            await self.kill(self._brokers)
            await self._name_server.kill()
        finally:
            self._logs.close()
            if not self._keep:
                shutil.rmtree(self.directory, ignore_errors=True)


def _without_metrics() -> dict[str, str]:
    """Several brokers on one machine: none of them opens a port for metrics."""
    from pocketmq.cli.daemon.daemon import SECTIONS

    return {"metrics.listen_port": "0"} if "metrics" in SECTIONS else {}

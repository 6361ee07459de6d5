"""Real processes for a scenario: one name server, brokers with a disk that fails on request.

Lives here: ``Cluster``, ``BrokerProcess``: start, faults on and off, ``kill -9``, log lines, removal; ``spawn``.
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
from pocketmq.cli.scenario.harness.disk import Rule
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.logs import LogConfig, Logs
from pocketmq.store.config import SHARED_MEMORY

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
"""Small files, for a temporary directory and five locked buffers; no scenario depends on their size."""

OWN_SETTINGS: Final = frozenset(
    (
        *("broker.broker_name", "broker.broker_id", "broker.listen_port", "broker.namesrv_addr"),
        *("log.format", "log.file", "fault.enable", "fault.control_file", "store.store_path_root_dir"),
        *("store.broker_role", "store.ha_master_address", "store.ha_listen_port"),
    )
)
"""Settings by which a scenario runs its brokers; no reader may change them."""
PORT_STEP: Final = 10
"""From one broker's port to the next one's: between them are the ports of replication and of the VIP channel."""


async def spawn(arguments: Sequence[str], errors_file: Path) -> asyncio.subprocess.Process:
    """Start Python with these arguments, without the caller's ``POCKETMQ_`` variables, standard error into a file."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")}
    with errors_file.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,  # Ctrl-C must not reach it: this process ends it
        )


def not_started(what: str, errors_file: Path) -> CannotStart:
    """Return the error for a process that did not start, with the end of its standard error."""
    said = errors_file.read_text("utf-8", "replace")[-4000:].strip()
    return CannotStart(f"{what} of the scenario did not start", why=said or "it wrote no error")


class Process:
    """One daemon."""

    def __init__(self, arguments: Sequence[str], errors: Path, module: str = COMMAND) -> None:
        self._arguments = ["-m", module, *arguments]
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> dict[str, str]:
        """Start it and return the addresses of its ready line."""
        process = self._process = await spawn(self._arguments, self._errors)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S_MAX):
                line = (await process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        if not line.startswith("ready"):
            await self.kill()
            raise not_started("a process", self._errors)
        return dict(READY.findall(line))

    def kill_now(self) -> None:
        """Send SIGKILL, and do not wait."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is (SIGSTOP); its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """End it as ``kill -9`` does, if it runs."""
        self.kill_now()
        process, self._process = self._process, None
        if process is not None:
            await process.wait()


class BrokerProcess(Process):
    """One broker. Its directory and log survive ``kill`` and ``start``."""

    def __init__(
        self,
        name: str,
        directory: Path,
        namesrv: str,
        settings: Mapping[str, str],
        module: str = COMMAND,
        port: int = 0,
    ) -> None:
        """``module``: the program that runs as ``pocketmq``. ``port`` 0: any."""
        self.name = name
        self.address = ""
        self.started_s = 0.0
        directory.mkdir(parents=True)
        self._directory = directory
        self._control = directory / "faults.json"
        self.log = directory / "broker.log"
        values = {
            "broker.broker_name": name,
            "log.format": "json",
            "log.file": str(self.log),
            "fault.enable": "true",
            "fault.control_file": str(self._control),
            **_without_metrics(),
            **SMALL_STORE,
            **settings,
        }
        arguments = ["broker", "--namesrv", namesrv, "--data-dir", str(directory / "store"), "--broker-port", str(port)]
        arguments += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        super().__init__(arguments, directory / "stderr.txt", module)

    async def start(self) -> dict[str, str]:
        """Start it, or start it again on the same store."""
        addresses = await super().start()
        self.address = addresses["broker"]
        self.started_s = time.monotonic()
        return addresses

    def wipe(self) -> None:
        """Delete its store; it must have been killed."""
        shutil.rmtree(self._directory / "store")

    async def settled(self) -> None:
        """Return when its fast failure runs."""
        await asyncio.sleep(max(0.0, self.started_s + SWEEPS_AFTER_S - time.monotonic()))

    def faults(self, *rules: Rule) -> None:
        """Replace the rules of its disk; no rule heals it. They take effect 20 ms later, at the next call."""
        temporary = self._control.with_suffix(".tmp")
        temporary.write_text(json.dumps({"rules": rules}))
        temporary.replace(self._control)

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the lines of its log, oldest first."""
        lines: list[dict[str, Any]] = []
        if self.log.exists():
            for line in self.log.read_text("utf-8", "replace").splitlines():
                with contextlib.suppress(*DECODE_ERRORS, json.JSONDecodeError):
                    lines.append(json.loads(line))
        return lines


class Cluster:
    """A name server and the brokers of all phases; at the end they are killed and their files removed.

    ``keep``: leave the directory. ``settings``: of every broker, above those of the scenario. ``namesrv_port``, and
    ``broker_port`` of the first broker, from which the others are ``PORT_STEP`` apart; 0: any.
    """

    def __init__(
        self,
        *,
        keep: bool = False,
        settings: Mapping[str, str] | None = None,
        namesrv_port: int = 0,
        broker_port: int = 0,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pocketmq-scenario-"))
        shared = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None
        self._memory = Path(tempfile.mkdtemp(prefix="pocketmq-scenario-", dir=shared))  # of killed brokers' buffers
        self.namesrv = ""
        self.keep = keep
        self.settings = dict(settings or {})
        self._broker_port = broker_port
        self._logs = Logs(LogConfig(format="json", file=str(self.directory / "client.log")))
        self.client_log = self._logs.logger("client")
        arguments = ["namesrv", "--namesrv-port", str(namesrv_port), "--log-level", "warning"]
        self._name_server = Process(arguments, self.directory / "namesrv.txt")
        self._brokers: list[BrokerProcess] = []

    async def start_all(
        self, phases: Sequence[Sequence[Mapping[str, str]]], names: Sequence[str] = ()
    ) -> list[list[BrokerProcess]]:
        """Start one broker for each set of settings of each phase, each with a new store.

        Their names hold the name of the phase, by default its number, and the broker in it: ``broker-1a``,
        ``broker-1b``, ``broker-2a``, …
        """
        started = [
            [self.add(f"broker-{phase}{chr(ord('a') + number)}", settings) for number, settings in enumerate(brokers)]
            for phase, brokers in zip(names or range(1, len(phases) + 1), phases, strict=True)
        ]
        these = [broker for brokers in started for broker in brokers]
        results = await asyncio.gather(*(broker.start() for broker in these), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return started

    def add(self, name: str, settings: Mapping[str, str], module: str = COMMAND) -> BrokerProcess:
        """Add a broker that does not run yet; it ends with the cluster."""
        values = {"store.transient_store_pool_path": str(self._memory), **settings, **self.settings}
        port = self._broker_port + PORT_STEP * len(self._brokers) if self._broker_port else 0
        broker = BrokerProcess(name, self.directory / name, self.namesrv, values, module, port)
        self._brokers.append(broker)
        return broker

    async def kill(self, brokers: Sequence[BrokerProcess]) -> None:
        """Kill the brokers of a phase, after their metrics were read."""
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
            shutil.rmtree(self._memory, ignore_errors=True)
            if not self.keep:
                shutil.rmtree(self.directory, ignore_errors=True)


def _without_metrics() -> dict[str, str]:
    """Return the setting that keeps a broker from opening a port for metrics: several run on one machine."""
    from pocketmq.cli.daemon.daemon import SECTIONS

    return {"metrics.listen_port": "0"} if "metrics" in SECTIONS else {}

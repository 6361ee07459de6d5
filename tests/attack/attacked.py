"""The attacked: a name server and a broker in processes of their own, a bystander, and what is measured of them.

Lives here: ``Site`` (both processes, their strangers), ``Bystander`` (an honest producer), ``Verdict``.
"""

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pocketmq.client import Message, Producer
from pocketmq.common.errors import PocketMQError
from tests.attack.strangers import Ports

START_S: Final = 60.0
SAMPLE_S: Final = 0.1
BAD_EVENTS: Final = (
    "task_failed",
    "processor_failed",
    "answer_failed",
    "settle_failed",
    "request_handler_failed",
    "worker_hangs",
)
PROGRAM: Final = "import sys; from tests.attack.strangers import main; main(sys.argv[1:])"


@dataclass
class Verdict:
    """What a wave of strangers did. Sizes in MiB, times in ms and s."""

    rss_mib: dict[str, int] = field(default_factory=dict)
    p99_ms: float = 0.0
    longest_refusal_s: float = 0.0
    recovery_s: float = 0.0
    stop_s: dict[str, float] = field(default_factory=dict)
    threads_lost: list[str] = field(default_factory=list)
    bad_events: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return json.dumps(self.__dict__)


def free_port() -> int:
    """Return an unused port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Daemon:
    """One process with its log, its memory over time and its threads."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self._log = (directory / f"{name}.log").open("wb")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pocketmq.cli.main", *command],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd=directory,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(b"ready "), (directory / f"{name}.log").read_text()[-2000:]
        self.log_path = directory / f"{name}.log"
        self.rss_mib = 0
        self.threads_at_start: list[str] = []

    def sample(self) -> None:
        """Note the largest resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                self.rss_mib = int(line.split()[1]) >> 10

    def threads(self) -> list[str]:
        """Return the names of the living threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sorted((task / "comm").read_text().strip() for task in tasks)

    def stop(self) -> float:
        """End the process in order; return the seconds it took."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return time.monotonic() - began

    def bad_events(self) -> list[str]:
        """Return the events that no stranger may cause, and tracebacks."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        marks = ["Traceback", *(f'"{event}' for event in BAD_EVENTS)]
        found = [line[:600] for line in lines if any(mark in line for mark in marks)]
        return found[:5]


class Bystander:
    """An honest producer: one send at a time, with the times of the successes and the gaps between them."""

    def __init__(self, namesrv: str) -> None:
        self._producer = Producer("bystanders", namesrv=namesrv)
        self.times_ms: list[float] = []
        self.last_success = 0.0
        self.longest_refusal_s = 0.0
        self.errors: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._wanted = 0
        self._reached = asyncio.Event()

    async def start(self) -> None:
        """Begin to send; return after the first success."""
        await self._producer.start()
        self.last_success = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run())
        await self.more(1)
        self.longest_refusal_s = 0.0

    async def more(self, count: int) -> None:
        """Wait for ``count`` further successes."""
        self._wanted = len(self.times_ms) + count
        self._reached.clear()
        await self._reached.wait()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._producer.send(Message("bystander", b"x" * 200))
            except PocketMQError as error:
                text = f"{type(error).__name__}: {error}"[:200]
                self.errors[text] = self.errors.get(text, 0) + 1
                self.longest_refusal_s = max(self.longest_refusal_s, time.monotonic() - self.last_success)
            else:
                self.last_success = time.monotonic()
                self.times_ms.append(1000 * (self.last_success - began))
                if len(self.times_ms) >= self._wanted:
                    self._reached.set()
            await asyncio.sleep(0.005)

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of the successful sends."""
        times = sorted(self.times_ms)
        return times[min(len(times) - 1, int(share * len(times)))]

    async def stop(self) -> None:
        """End the load."""
        assert self._task is not None
        self._task.cancel()
        await self._producer.stop()


class Site:
    """A name server and a broker in ``directory``, whose store is ``directory/store``."""

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        self._directory = directory
        self.ports = Ports(free_port(), free_port(), free_port(), free_port())
        self.namesrv = f"127.0.0.1:{self.ports.namesrv}"
        self.neighbour = directory / "neighbour"
        self.neighbour.mkdir()
        (self.neighbour / "file").write_bytes(b"not the store's")
        name_server = [
            "namesrv",
            "--namesrv-port",
            str(self.ports.namesrv),
            "--host",
            "127.0.0.1",
            "--log-format",
            "json",
        ]
        broker = ["broker", "--namesrv", self.namesrv, "--data-dir", str(directory / "store"), "--host", "127.0.0.1"]
        broker += ["--broker-port", str(self.ports.broker), "--log-format", "json"]
        chosen = [
            f"store.ha_listen_port={self.ports.ha}",
            f"metrics.listen_port={self.ports.http}",
            "store.broker_role=ASYNC_MASTER",
            "store.mapped_file_size_commit_log=16777216",
            *settings,
        ]
        for setting in chosen:
            broker += ["--set", setting]
        self.daemons = [
            Daemon("namesrv", [*name_server, "--set", f"namesrv.epoch_store_dir={directory}/namesrv"], directory)
        ]
        self.daemons.append(Daemon("broker", broker, directory))
        self.before = self._outside()

    def _outside(self) -> dict[str, str]:
        """Return what lies beside the store and the logs, with a hash of each file."""
        own = {"store", "namesrv", "namesrv.log", "broker.log"}
        paths = [each for top in self._directory.iterdir() if top.name not in own for each in (top, *top.rglob("*"))]
        return {str(path): hashlib.md5(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths}

    async def attacked(self, names: Sequence[str], seconds: float, seed: int) -> Verdict:
        """Let strangers at it; return what came of it. Stops both daemons."""
        verdict, bystander = Verdict(), Bystander(self.namesrv)
        strangers: list[subprocess.Popen[bytes]] = []
        try:
            await bystander.start()
            threads = {daemon.name: daemon.threads() for daemon in self.daemons}
            strangers = [self._stranger(name, seconds, seed + number) for number, name in enumerate(names)]
            while any(stranger.poll() is None for stranger in strangers):
                for daemon in self.daemons:
                    daemon.sample()
                await asyncio.sleep(SAMPLE_S)
            ended = time.monotonic()
            failed = [stranger.args for stranger in strangers if stranger.returncode]
            assert not failed, f"a stranger failed itself: {failed}"
            await bystander.more(3)
            verdict.recovery_s = round(time.monotonic() - ended, 2)
            verdict.p99_ms = round(bystander.percentile_ms(0.99), 1)
            verdict.longest_refusal_s = round(bystander.longest_refusal_s, 2)
            verdict.bad_events += [f"bystander: {text} x{count}" for text, count in bystander.errors.items()]
            for daemon in self.daemons:
                if daemon.process.poll() is not None:
                    verdict.threads_lost.append(f"{daemon.name} has ended")
                    continue
                left = daemon.threads()
                verdict.threads_lost += [f"{daemon.name}: {name}" for name in set(threads[daemon.name]) - set(left)]
        finally:
            for stranger in strangers:
                if stranger.poll() is None:
                    stranger.kill()
                stranger.wait()
            await bystander.stop()
            for daemon in reversed(self.daemons):
                verdict.stop_s[daemon.name] = round(await asyncio.to_thread(daemon.stop), 2)
                verdict.rss_mib[daemon.name] = daemon.rss_mib
                verdict.bad_events += [f"{daemon.name}: {line}" for line in daemon.bad_events()]
        after = self._outside()
        verdict.outside = sorted(str(item) for item in set(self.before.items()) ^ set(after.items()))
        return verdict

    def _stranger(self, name: str, seconds: float, seed: int) -> "subprocess.Popen[bytes]":
        ports = [str(port) for port in (self.ports.broker, self.ports.namesrv, self.ports.ha, self.ports.http)]
        command = [sys.executable, "-c", PROGRAM, name, str(seconds), str(seed), *ports]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2])

    def log(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a daemon."""
        lines = (self._directory / f"{name}.log").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

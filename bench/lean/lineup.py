"""The servers and client processes of one mode, each on its cores.

Lives here: ``CONTENDERS``, ``Lineup``. A server runs only while a case needs it: an idle JVM on the core of another
server would be measured, too.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.comparison.fleet import Answer, WorkerProcess
from bench.lean.echo import EchoServer
from bench.lean.pinning import Cores, inherited
from bench.peers.base import Server, Settings, Unavailable
from bench.peers.kafka import KafkaServer
from bench.peers.nats import NatsServer
from bench.peers.pocketmq import PocketmqServer
from bench.peers.redis import RedisServer
from bench.peers.rocketmq import RocketmqServer

POOL: Final = ("store.transient_store_pool_enable=true",)
MODES: Final = {"default": (), "pool": POOL}
"""Name of a broker's mode → its settings."""
WARM_TOPIC: Final = "LeanWarm"


class OurServer(PocketmqServer):
    """PocketMQ in the mode of the run; its target suits RocketMQ's Java client, too."""

    mode: ClassVar[str] = "default"

    def more_settings(self) -> tuple[str, ...]:
        """Return the settings of the mode; synchronous flush excludes the pool."""
        return MODES[self.mode] if self.settings.durability == "async" else ()

    @property
    def target(self) -> dict[str, Any]:
        return {**super().target, "broker": self.broker.address, "cluster": "DefaultCluster"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A server with one client. ``warm_s``: what a server needs before it is fast."""

    label: str
    server: type[Server]
    client: str
    durability: str = "async"
    warm_s: float = 1.0


OURS: Final = "pocketmq"
CONTENDERS: Final = {
    OURS: Contender("PocketMQ", OurServer, "pocketmq"),
    "nats": Contender("NATS JetStream, nats-py", NatsServer, "nats"),
    "redis": Contender("Redis Streams, redis-py", RedisServer, "redis"),
    "aiokafka": Contender("Kafka, aiokafka", KafkaServer, "aiokafka", warm_s=6.0),
    "echo": Contender("uvloop echo", EchoServer, "echo"),
    "synced": Contender("PocketMQ, SYNC_FLUSH", OurServer, "pocketmq", durability="sync"),
    "java": Contender("PocketMQ, Java client", OurServer, "rocketmq", warm_s=4.0),
    "rocketmq": Contender("RocketMQ, Java client", RocketmqServer, "rocketmq", warm_s=8.0),
}


class Lineup:
    """Starts contenders when a case names them; a context manager that leaves no process behind.

    ``missing``: contender → why it takes no part.
    """

    def __init__(self, directory: Path, cores: Cores, *, warm: float = 1.0, nice: int = 0) -> None:
        self.cores = cores
        self._nice = nice
        self.missing: dict[str, str] = {}
        self._directory = directory
        self._warm = warm
        self._servers: dict[str, Server] = {}
        self._workers: dict[tuple[str, int], WorkerProcess] = {}
        self._started = 0

    def ready(self, names: Iterable[str]) -> list[str]:
        """End all servers but these; start and warm those of these that can be had; return their names."""
        wanted = list(names)
        for name in [name for name in self._servers if name not in wanted]:
            self.end(name)
        found = []
        for name in wanted:
            if name not in self._servers and name not in self.missing:
                self._try(name)
            if name in self._servers:
                found.append(name)
        return found

    def _try(self, name: str) -> None:
        """Start a contender; note why it takes no part if that fails. A second try has other ports."""
        for last in (False, True):
            try:
                self._start(name)
                return
            except Exception as error:  # the others go on without it
                self.end(name)
                if last or isinstance(error, Unavailable):
                    self.missing[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                    return

    def _start(self, name: str) -> None:
        contender = CONTENDERS[name]
        try:
            contender.server.obtain()
        except (OSError, AssertionError) as error:
            raise Unavailable(str(error)) from None
        self._started += 1
        directory = self._directory / f"{name}-{self._started}"
        directory.mkdir(parents=True)
        server = self._servers[name] = contender.server(directory, Settings(contender.durability))
        with inherited(self.cores.servers, self._nice):
            server.start()
        if name == "echo":
            return
        self.ask(name, {"op": "create", "topics": [WARM_TOPIC], "queues": 4})
        seconds = contender.warm_s * self._warm / 2
        load = {"op": "closed", "topics": [WARM_TOPIC], "size_bytes": 1024, "seconds": seconds}
        for in_flight in (64, 1):
            self.ask(name, {**load, "in_flight": in_flight})

    def worker(self, name: str, number: int = 0) -> WorkerProcess:
        """Return a client process of a contender, started if needed."""
        worker = self._workers.get((name, number))
        if worker is None or not worker.alive:
            log = self._directory / f"client-{name}-{number}.log"
            with inherited(self.cores.clients, self._nice):
                worker = self._workers[name, number] = WorkerProcess(CONTENDERS[name].client, log)
        return worker

    def ask(self, name: str, job: Answer, limit_s: float = 120.0) -> Answer:
        """Run a job in the contender's client process."""
        return self.worker(name).ask({**job, "target": self._servers[name].target}, limit_s)

    def ask_all(self, name: str, numbers: Iterable[int], job: Answer, limit_s: float = 120.0) -> list[Answer]:
        """Run the same job in several client processes at the same time."""
        workers = [self.worker(name, number) for number in numbers]
        with ThreadPoolExecutor(len(workers)) as threads:
            target = self._servers[name].target
            return list(threads.map(lambda worker: worker.ask({**job, "target": target}, limit_s), workers))

    def run_as_server(self, module: str, *arguments: str) -> str:
        """Run a module to its end, on the servers' cores; return what it prints. Raises ``CalledProcessError``."""
        with inherited(self.cores.servers, self._nice):
            done = subprocess.run([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    def end(self, name: str) -> None:
        """End a server and its clients, and remove its data."""
        for key in [key for key in self._workers if key[0] == name]:
            self._workers.pop(key).stop()
        server = self._servers.pop(name, None)
        if server is not None:
            with suppress(Exception):  # its data is removed all the same
                server.stop(signal.SIGTERM)
            shutil.rmtree(server.directory, ignore_errors=True)

    def __enter__(self) -> "Lineup":
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self._servers):
            self.end(name)
        for worker in self._workers.values():
            worker.stop()

"""The servers and client processes of a run: started when a case needs them, warm, watched, ended.

Lives here: ``Fleet`` (which servers run, with which data), ``WorkerProcess`` (a client process and its jobs).
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.base.processes import cpu_s as tree_cpu_s
from bench.base.processes import machine_busy_s
from bench.peers import Peer
from bench.peers.base import Server, Settings, Unavailable
from bench.peers.rocketmq import worker_command

DATA_BYTES_MAX = 3 << 30
"""A server with more data is replaced before the next case, since all peers share the disk."""
START_S = 60.0
WARM_TOPIC = "BenchWarm"

Answer = dict[str, Any]


class ClientJobFailed(Exception):
    """A job ended with an error of the client's; the text is one line."""


class WorkerProcess:
    """A client process of a peer; jobs and answers are JSON lines."""

    def __init__(self, client: str, log_path: Path) -> None:
        command = (
            worker_command() if client == "rocketmq" else [sys.executable, "-m", "bench.comparison.worker", client]
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *(path for path in sys.path if path)])}
        self.client = client
        self._log = log_path.open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )
        self._rest = b""
        try:
            self._read(START_S)
        except ClientJobFailed as error:
            tail = " ".join(log_path.read_text(errors="replace")[-300:].split())
            self.stop()
            raise Unavailable(f"the client {client} did not start: {tail or error}") from None

    def ask(self, job: Answer, limit_s: float = 200.0) -> Answer:
        """Run a job and return its answer. Raises ``ClientJobFailed``; after a time-out the process is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({**job, "limit_s": limit_s - 10}).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._read(limit_s)
        except BrokenPipeError:
            raise ClientJobFailed(f"the client {self.client} is gone") from None
        if "error" in answer:
            raise ClientJobFailed(str(answer["error"]))
        return answer

    def _read(self, limit_s: float) -> Answer:
        assert self._process.stdout is not None
        give_up = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            left = give_up - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self._process.kill()
                raise ClientJobFailed(f"the client {self.client} did not answer within {limit_s:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise ClientJobFailed(f"the client {self.client} ended with code {self._process.wait()}")
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        answer = json.loads(text)
        assert isinstance(answer, dict)
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End it."""
        if self.alive:
            assert self._process.stdin is not None
            try:
                self._process.stdin.close()
                self._process.wait(5)
            except (subprocess.TimeoutExpired, BrokenPipeError):
                self._process.kill()
                self._process.wait()
        self._log.close()


@dataclass(slots=True)
class Running:
    """A server that runs, and which clients have warmed it."""

    server: Server
    ready_s: float
    warmed: set[str]


class Fleet:
    """Every server and client process of a run; a context manager that leaves none behind."""

    def __init__(self, directory: Path, warm_s: float) -> None:
        self.directory = directory
        self.warm_s = warm_s
        self._running: dict[tuple[str, Settings], Running] = {}
        self._workers: dict[str, WorkerProcess] = {}
        self._number = 0

    def new_server(self, peer: Peer, settings: Settings) -> Server:
        """Return a server of its own, not started, in a new directory; the caller ends it with ``discard``."""
        self._number += 1
        directory = self.directory / f"{peer.server.name}-{settings.durability}-{self._number}"
        directory.mkdir(parents=True)
        return peer.server(directory, settings)

    def discard(self, server: Server, kind: signal.Signals = signal.SIGTERM) -> None:
        """End a server and remove its data."""
        try:
            server.stop(kind)
        finally:
            shutil.rmtree(server.directory, ignore_errors=True)

    def server(self, peer: Peer, settings: Settings) -> Server:
        """Return the peer's running server with these settings, warm for this peer's client."""
        key = (peer.server.name, settings)
        running = self._running.get(key)
        if running is not None and running.server.data_bytes() > DATA_BYTES_MAX:
            self._drop(key)
            running = None
        if running is None:
            server = self.new_server(peer, settings)
            begin = time.perf_counter()
            try:
                server.start()
            except BaseException:
                self.discard(server, signal.SIGKILL)
                raise
            running = self._running[key] = Running(server, time.perf_counter() - begin, set())
        if peer.name not in running.warmed:
            self._warm(peer, running.server)
            running.warmed.add(peer.name)
        return running.server

    def keep_only(self, settings: Settings) -> None:
        """End the servers with other settings."""
        for key in [key for key in self._running if key[1] != settings]:
            self._drop(key)

    def forget(self, peer: Peer, settings: Settings) -> None:
        """End a server that failed, so that the next case begins with a new one."""
        self._drop((peer.server.name, settings))

    def _drop(self, key: tuple[str, Settings]) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            self.discard(running.server)

    def _warm(self, peer: Peer, server: Server) -> None:
        """Load server and client alike, half of the time one by one and half in batches, before anything counts."""
        topic = f"{WARM_TOPIC}-{peer.name}"
        self.ask(peer, server, {"op": "create", "topics": [topic], "queues": 4})
        load = {"op": "closed", "topics": [topic], "size_bytes": 1024, "seconds": self.warm_s / 2}
        self.ask(peer, server, {**load, "in_flight": 64})
        self.ask(peer, server, {**load, "in_flight": 2, "batch": 100})
        self.ask(peer, server, {"op": "delete", "topics": [topic]})

    def worker(self, peer: Peer) -> WorkerProcess:
        """Return the peer's client process, started if needed."""
        worker = self._workers.get(peer.name)
        if worker is None or not worker.alive:
            worker = self._workers[peer.name] = WorkerProcess(peer.name, self.directory / f"client-{peer.name}.log")
        return worker

    def ask(self, peer: Peer, server: Server, job: Answer, limit_s: float = 200.0) -> Answer:
        """Run a job of the peer's client; the answer also holds the CPU time of the server and how many cores
        other processes of the machine used meanwhile."""
        worker = self.worker(peer)
        roots = [*server.pids, worker.pid]
        cpu_s, ours_s, all_s, begin = server.cpu_s(), tree_cpu_s(roots), machine_busy_s(), time.perf_counter()
        answer = worker.ask({**job, "target": server.target}, limit_s)
        seconds = time.perf_counter() - begin
        answer["server_cpu_s"] = round(server.cpu_s() - cpu_s, 4)
        others_s = machine_busy_s() - all_s - (tree_cpu_s(roots) - ours_s)
        answer["other_cores"] = round(max(0.0, others_s) / seconds, 2)
        return answer

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            worker.stop()
        for key in list(self._running):
            try:
                self._drop(key)
            except Exception as problem:  # go on with the others
                print(f"{key[0]} did not end cleanly: {problem}", file=sys.stderr)

"""Redis from Debian: append-only file on, snapshots and rewrites of the file off."""

import subprocess
from typing import Any

from bench.peers.base import Server, installed_by_apt

FSYNC = {"async": "everysec", "sync": "always", "replicated": "everysec"}


class RedisServer(Server):
    """One redis-server; a second one as replica for replication."""

    name = "redis"

    @classmethod
    def obtain(cls) -> str:
        program = installed_by_apt("redis-server", "redis-server")
        text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        return text.split("v=")[1].split()[0]

    def start(self) -> None:
        port, replica_port = self.ports(2)
        self._start_one(port)
        if self.settings.durability == "replicated":
            self._start_one(replica_port, "--replicaof", "127.0.0.1", str(port))

    def _start_one(self, port: int, *more: str) -> None:
        data = self.directory / str(port)
        data.mkdir(parents=True, exist_ok=True)
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(data.resolve()),
            "appendonly": "yes",
            "appendfsync": FSYNC[self.settings.durability],
            "save": "",
            "auto-aof-rewrite-percentage": "0",
            "daemonize": "no",
        }
        arguments = [word for key, value in options.items() for word in (f"--{key}", value)]
        program = installed_by_apt("redis-server", "redis-server")
        self.launch([program, *arguments, *more], f"redis-server-{port}", port)

    @property
    def target(self) -> dict[str, Any]:
        replicas = 1 if self.settings.durability == "replicated" else 0
        return {"host": "127.0.0.1", "port": self.ports(2)[0], "wait_replicas": replicas}

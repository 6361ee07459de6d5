"""Kafka in KRaft mode from its jars on Maven Central: controller and broker in one JVM."""

import base64
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

from bench.peers.base import Server, Settings
from bench.peers.maven import SOURCES, class_path, java

FLUSH = {
    "async": {"log.flush.interval.ms": "500", "log.flush.scheduler.interval.ms": "500"},
    "sync": {"log.flush.interval.messages": "1"},
    "replicated": {
        "log.flush.interval.ms": "500",
        "log.flush.scheduler.interval.ms": "500",
        "min.insync.replicas": "2",
    },
}


class KafkaServer(Server):
    """One JVM; a second broker for replication."""

    name = "kafka"

    def __init__(self, directory: Path, settings: Settings) -> None:
        super().__init__(directory, settings)
        self.cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")

    @classmethod
    def obtain(cls) -> str:
        class_path("kafka")
        found = re.search(r"<version>([\d.]+)</version>\s*</dependency>", (SOURCES / "kafka.xml").read_text())
        assert found is not None
        return found[1]

    def start(self) -> None:
        port, controller, second = self.ports(3)
        self._start_one(1, port, controller, "broker,controller")
        if self.settings.durability == "replicated":
            self._start_one(2, second, controller, "broker")

    def _start_one(self, node: int, port: int, controller: int, roles: str) -> None:
        home = self.directory / str(node)
        home.mkdir(parents=True, exist_ok=True)
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        if "controller" in roles:
            listeners += f",CONTROLLER://127.0.0.1:{controller}"
        settings = {
            "process.roles": roles,
            "node.id": str(node),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str((home / "data").resolve()),
            "num.partitions": "4",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "message.max.bytes": str(4 << 20),
            "replica.fetch.max.bytes": str(4 << 20),
            "group.initial.rebalance.delay.ms": "0",
            **FLUSH[self.settings.durability],
        }
        config = home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        path = class_path("kafka")
        if not (home / "data" / "meta.properties").exists():
            self._format(path, config)
        self.launch(java(path, "kafka.Kafka", str(config)), f"kafka-{node}", port, within_s=90)

    def _format(self, path: str, config: Path) -> None:
        command = java(path, "kafka.tools.StorageTool", "format", "-t", self.cluster, "-c", str(config), heap="256m")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka's storage cannot be formatted: {(done.stdout + done.stderr)[-400:]}")

    @property
    def target(self) -> dict[str, Any]:
        replicas = 2 if self.settings.durability == "replicated" else 1
        return {"host": "127.0.0.1", "port": self.ports(3)[0], "replicas": replicas}

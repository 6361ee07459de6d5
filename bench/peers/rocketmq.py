"""RocketMQ 5.3 from its jars on Maven Central: name server and broker, a JVM each; our worker on its Java client."""

import re
import time
from pathlib import Path
from typing import Any

from bench.peers.base import Server
from bench.peers.maven import HEAP, SOURCES, class_path, compiled, java

NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER = "org.apache.rocketmq.broker.BrokerStartup"
CLUSTER = "DefaultCluster"


def worker_command() -> list[str]:
    """Return the command of the client process."""
    path = compiled("rocketmq", "RocketWorker.java")
    quiet = {"rocketmq.client.logLevel": "ERROR", "com.rocketmq.sendMessageWithVIPChannel": "false"}
    return java(path, "RocketWorker", heap=HEAP, properties=quiet)


class RocketmqServer(Server):
    """Two JVMs: the name server, which does nothing while messages flow, and the broker; a slave for replication."""

    name = "rocketmq"

    @classmethod
    def obtain(cls) -> str:
        compiled("rocketmq", "RocketWorker.java")
        found = re.search(r"<rocketmq.version>([\d.]+)<", (SOURCES / "rocketmq.xml").read_text())
        assert found is not None
        return found[1]

    def start(self) -> None:
        name_port, port, slave_port = self.ports(3, gap=12)
        config = self.directory / "namesrv.conf"
        config.write_text(f"listenPort={name_port}\nbindAddress=127.0.0.1\n")
        self._start_java(NAME_SERVER, config, name_port, "256m")
        replicated = self.settings.durability == "replicated"
        self._start_broker("master", port, 0, "SYNC_MASTER" if replicated else "ASYNC_MASTER")
        if replicated:
            self._start_broker("slave", slave_port, 1, "SLAVE")
            time.sleep(3)  # until the slave asks the master; sends before that answer SLAVE_NOT_AVAILABLE

    def _start_broker(self, kind: str, port: int, broker_id: int, role: str) -> None:
        config = self.directory / f"{kind}.conf"
        store = (self.directory / kind).resolve()
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": "bench",
            "brokerId": str(broker_id),
            "brokerRole": role,
            "flushDiskType": "SYNC_FLUSH" if self.settings.durability == "sync" else "ASYNC_FLUSH",
            "namesrvAddr": f"127.0.0.1:{self.ports(3)[0]}",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "autoCreateTopicEnable": "true",
            "maxTransferCountOnMessageInMemory": "4096",  # 32 by default: PocketMQ's pulls have no such limit
            "maxTransferBytesOnMessageInMemory": str(4 << 20),
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._start_java(BROKER, config, port, HEAP)

    def _start_java(self, main: str, config: Path, port: int, heap: str) -> None:
        home = str(self.directory.resolve())
        properties = {"rocketmq.home.dir": home, "user.home": home}
        command = java(class_path("rocketmq"), main, "-c", str(config), heap=heap, properties=properties)
        self.launch(command, config.stem, port, within_s=90)

    @property
    def target(self) -> dict[str, Any]:
        name_port, port, _ = self.ports(3)
        return {"namesrv": f"127.0.0.1:{name_port}", "broker": f"127.0.0.1:{port}", "cluster": CLUSTER}

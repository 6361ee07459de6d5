"""PocketMQ's own server: ``pocketmq standalone`` with its default settings but for the durability asked for."""

import shutil
import signal
from typing import Any

from bench.base.broker_process import BrokerProcess, SlaveProcess
from bench.peers.base import Server
from pocketmq import __version__

SETTINGS = {
    "async": (),
    "sync": ("store.flush_disk_type=SYNC_FLUSH",),
    "replicated": ("store.broker_role=SYNC_MASTER", "broker.broker_name=pair", "store.ha_listen_port=-1"),
}


class PocketmqServer(Server):
    """Name server and broker in one process; a slave in a second one for replication."""

    name = "pocketmq"

    @classmethod
    def obtain(cls) -> str:
        return __version__

    def more_settings(self) -> tuple[str, ...]:
        """Return settings beside those of the durability."""
        return ()

    def start(self) -> None:
        self.broker = BrokerProcess(self.directory / "data", *SETTINGS[self.settings.durability], *self.more_settings())
        self.broker.start()
        self.slave: SlaveProcess | None = None
        if self.settings.durability == "replicated":
            self.slave = SlaveProcess(self.directory / "slave", self.broker.namesrv)
            self.slave.start()

    @property
    def target(self) -> dict[str, Any]:
        return {"namesrv": self.broker.namesrv, "address": self.broker.address}

    @property
    def pids(self) -> list[int]:
        return [self.broker.process_id, *([self.slave.process_id] if self.slave else [])]

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        if self.slave is not None:
            self.slave.stop()
            self.slave = None
        if kind == signal.SIGKILL:
            self.broker.kill()
        else:
            self.broker.stop()
        if kind == signal.SIGTERM:
            shutil.rmtree(self.directory / "slave", ignore_errors=True)

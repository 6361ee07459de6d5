"""A name server, a master and its slaves in the loop of a test, each with a store of its own."""

import contextlib
from pathlib import Path
from typing import Any

from pocketmq.auth.config import AuthConfig
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.logs import CapturedLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.security.tls_config import TlsConfig
from tests.broker.conftest import eventually, store_config

FAST: dict[str, Any] = {
    "register_name_server_period": 200,
    "slave_sync_interval": 20,
    "flush_consumer_offset_interval": 100,
}


class HaCluster:
    """``brokers`` by directory name. A broker that was stopped is started again with ``start``."""

    def __init__(self, stack: contextlib.AsyncExitStack, tmp_path: Path) -> None:
        self._stack = stack
        self._tmp_path = tmp_path
        self._settings: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.brokers: dict[str, BrokerApp] = {}
        self.logs: dict[str, CapturedLog] = {}
        self.namesrv: NamesrvApp
        self.tls = TlsConfig()
        """Of every server that is started from now on."""
        self.auth_config: AuthConfig | None = None
        """Access control of all nodes that start from now on."""

    async def start_name_server(self) -> None:
        directory = str(self._tmp_path / "namesrv")
        self.namesrv = NamesrvApp(
            NamesrvConfig(listen_port=0, epoch_store_dir=directory), tls_config=self.tls, auth_config=self.auth_config
        )
        await self.namesrv.start()
        self._stack.push_async_callback(self.namesrv.stop)

    async def start(self, name: str, broker_id: int | None = None, **settings: Any) -> BrokerApp:
        """Start a broker of the one broker name; ``settings`` are the store's, kept for the next start."""
        if broker_id is not None:
            role = {"broker_role": "SLAVE"} if broker_id else {"broker_role": "SYNC_MASTER"}
            broker = {k: settings.pop(k) for k in list(settings) if k in BrokerConfig.__struct_fields__}
            self._settings[name] = {"broker_id": broker_id, **FAST, **broker}, {**role, **settings}
        broker_settings, store_settings = self._settings[name]
        log = self.logs[name] = CapturedLog()
        common: dict[str, Any] = {"listen_port": 0, "broker_name": "broker-a", "namesrv_addr": self.namesrv.address}
        app = BrokerApp(
            BrokerConfig(**{**common, **broker_settings}),
            store_config(self._tmp_path / name, **store_settings),
            log=log,
            tls_config=self.tls,
            auth_config=self.auth_config,
        )
        await app.start()
        self.brokers[name] = app
        self._stack.push_async_callback(app.stop)
        return app

    async def stop(self, name: str) -> None:
        await self.brokers.pop(name).stop()

    async def pair(self, **settings: Any) -> tuple[BrokerApp, BrokerApp]:
        """Start a synchronous master and a slave that follows it."""
        master = await self.start("m", 0, **settings)
        slave = await self.start("s", 1, **{k: v for k, v in settings.items() if k != "broker_role"})
        await eventually(lambda: slave.replication.has_master and master.replication.node.status().slaves)
        return master, slave

    def directory(self, name: str) -> Path:
        return self._tmp_path / name

    def route(self) -> dict[str, str]:
        """Return {broker id: address} as the name server knows them."""
        known = self.namesrv.routes.cluster_info().broker_addr_table.get("broker-a")
        return {} if known is None else dict(known.broker_addrs)

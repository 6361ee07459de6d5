"""A real name server and several real brokers in the loop of the test, each with its own store."""

import shutil
from pathlib import Path
from typing import Any

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import Cause
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.server import ServerConfig
from pocketmq.store.config import StoreConfig
from pocketmq.testing.broker import STORE_SETTINGS

BUSY = Refusal(
    int(ResponseCode.SYSTEM_BUSY),
    "[REJECTREQUEST]system busy, start flow control for a while",
    Cause.PAGE_CACHE_BUSY,
    retry_after_ms=10,
)


class RealCluster:
    """``namesrv`` is the address for clients, ``brokers`` maps names to running brokers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.brokers: dict[str, BrokerApp] = {}
        self._offered: dict[str, list[int]] = {}

    @property
    def namesrv(self) -> str:
        return self._namesrv.address

    def data_dir(self, name: str) -> Path:
        return self.directory / name

    async def start(self, *names: str) -> None:
        self._namesrv = NamesrvApp(NamesrvConfig(listen_port=0), server_config=ServerConfig())
        await self._namesrv.start()
        for name in names:
            await self.add(name)

    async def add(self, name: str) -> BrokerApp:
        """Start one more broker; it registers at the name server."""
        broker = BrokerApp(
            BrokerConfig(broker_name=name, listen_port=0, namesrv_addr=self.namesrv, auto_create_topic_enable=False),
            StoreConfig(**{**STORE_SETTINGS, "store_path_root_dir": str(self.data_dir(name))}),
            server_config=ServerConfig(),
        )
        await broker.start()
        self.brokers[name] = broker
        return broker

    async def create_topic(self, topic: str, queues: int = 2) -> None:
        async with Admin(namesrv=self.namesrv) as admin:
            await admin.create_topic(topic, queues=queues)

    def copy_topics(self, source: str, target: str) -> None:
        """Copy the topic table of a broker into the store of one that has not started yet."""
        config = self.data_dir(target) / "config"
        config.mkdir(parents=True)
        shutil.copy(self.data_dir(source) / "config" / "topics.json", config / "topics.json")

    def refuse(self, name: str, refusal: Refusal | None = BUSY) -> list[int]:
        """Let a broker's send processor refuse every request (None: accept); return the list of requests it got."""
        broker = self.brokers[name]
        assert broker._server is not None
        broker._server.short_path = None  # it would ask the processor nothing
        pair = broker.request_table.pair_for(RequestCode.NATIVE_APPEND)
        offered = self._offered.setdefault(name, [])

        def reject() -> Refusal | None:
            offered.append(1)
            return refusal

        processor: Any = pair.processor
        processor.reject_request = reject
        return offered

    async def stop(self, name: str) -> None:
        await self.brokers.pop(name).stop()

    async def stop_all(self) -> None:
        for name in list(self.brokers):
            await self.stop(name)
        await self._namesrv.stop()

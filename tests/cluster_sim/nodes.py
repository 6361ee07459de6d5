"""The programs of a cluster: name servers and brokers, as their commands start them.

Lives here: ``NameServerNode``, ``BrokerNode``.
"""

import traceback
from typing import Any, Final

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.errors import PocketMQError
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.store.config import StoreConfig
from tests.cluster_sim.machines import Machine, Process

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
STORE: Final[dict[str, Any]] = {
    "store_path_root_dir": "/data/store",
    "mapped_file_size_commit_log": 1 << 18,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "max_message_size": 1 << 16,
    "message_delay_level": "1s 2s 3s 5s",
    "ha_send_heartbeat_interval": 1000,
    "ha_housekeeping_interval": 5000,
    "ha_recover_wait_ms": 3000,
    "sync_on_close": True,
}
BROKER: Final[dict[str, Any]] = {
    "broker_cluster_name": "sim",
    "listen_port": BROKER_PORT,
    "vip_channel": "OFF",
    "default_topic_queue_nums": 4,
    "register_name_server_period": 10_000,
    "transaction_time_out": 3000,
    "transaction_check_interval": 3000,
    "lock_max_live_time": 20_000,
    "client_scan_interval": 5000,
}


class Node:
    """One program on a machine of its own."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.app: Any = None
        self.failed = ""
        self.last_failure = ""
        self.stopping = False

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def process(self) -> Process | None:
        return self.machine.process

    @property
    def runs(self) -> bool:
        """Whether it serves."""
        process = self.process
        return process is not None and process.app is self.app and self.app is not None and self.is_up()

    def is_up(self) -> bool:
        """Whether it is not just between two roles."""
        return True

    def start(self) -> None:
        """Start the program; ``runs`` once it serves."""
        process = self.machine.start()
        self.failed = ""
        self.app = app = self.make(process)

        async def begin() -> None:
            try:
                await app.start()
            except Exception as error:
                if not isinstance(error, (PocketMQError, OSError)):
                    process.crashes.append(("start", error))
                    traceback.print_exception(error)
                self.failed = f"{type(error).__name__}: {error}"
                self.last_failure = self.failed
                process.kernel.note(self.name, "failed", self.failed)
                process.kernel.after(0, None, lambda: self._gone(process))
                return
            process.app = app
            process.kernel.note(self.name, "serves")

        process.run(begin, "main")

    def _gone(self, process: Process) -> None:
        if self.machine.process is process:
            self.machine.kill()

    def stop(self) -> None:
        """Stop it cleanly."""
        process = self.process
        assert process is not None
        app = self.app

        async def end() -> None:
            try:
                await app.stop()
            except PocketMQError as error:
                process.kernel.note(self.name, "stop failed", error)
            process.ended = True
            process.kernel.after(0, None, lambda: self._gone(process))

        process.run(end, "stop")

    def make(self, process: Process) -> Any:
        raise NotImplementedError


class NameServerNode(Node):
    """A name server that keeps its epochs."""

    def make(self, process: Process) -> NamesrvApp:
        config = NamesrvConfig(
            bind_address=self.machine.host,
            listen_port=NAMESRV_PORT,
            epoch_store_dir="/data",
            broker_expired_timeout=30_000,
            scan_not_active_broker_interval=5_000,
        )
        return NamesrvApp(config, clock=process.clock, log=process.log, runner=process.runner)


class BrokerNode(Node):
    """A master or slave; a promotion changes its role, which it remembers."""

    def __init__(self, machine: Machine, name: str, broker_id: int, role: str, namesrv: str, **store: Any) -> None:
        super().__init__(machine)
        self.broker_name = name
        self.broker_id = broker_id
        self.role = role
        self.namesrv = namesrv
        self.store = store

    def is_up(self) -> bool:
        return self.app._running is not None

    @property
    def address(self) -> str:
        return f"{self.machine.host}:{BROKER_PORT}"

    def make(self, process: Process) -> BrokerApp:
        config = BrokerConfig(
            broker_name=self.broker_name,
            broker_id=self.broker_id,
            bind_address=self.machine.host,
            namesrv_addr=self.namesrv,
            **BROKER,
        )
        settings = {**STORE, **self.store}
        if self.role == "SLAVE":  # it has no write buffers
            settings = {name: value for name, value in settings.items() if not name.startswith("transient_store")}
        store = StoreConfig(**{**settings, "broker_role": self.role})
        return BrokerApp(
            config,
            store,
            file_system=process.files,
            clock=process.clock,
            runner=process.runner,
            log=process.log,
            memory_bytes=1 << 30,
            stage_times=False,
        )

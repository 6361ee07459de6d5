"""A store and a service of the broker that works on it, both stepped by hand under a manual clock."""

from typing import Any

from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record_codec import Record
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import HOST, read_queue


class SteppedService:
    """Opens the store; who inherits it makes ``service`` and hands it to ``start``."""

    def __init__(self, config: StoreConfig, file_system: FileSystem, clock: ManualClock, host: bytes = HOST) -> None:
        self.clock = clock
        self.log = CapturedLog()
        self.runner = SteppedRunner()
        self.store = MessageStore(config, file_system=file_system, clock=clock, runner=self.runner)
        self.store.store_host = host
        self.store.open()
        self.service: Any = None

    def start(self) -> None:
        """Let the service read what it left, and give it its workers."""
        self.service.open()
        self.service.start(self.runner)

    def delivered(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """Read a whole queue."""
        return read_queue(self.store, topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Return the bodies that arrived in a queue."""
        return [record.body for record in self.delivered(topic, queue_id)]

    def stop(self) -> None:
        """Stop cleanly."""
        self.service.stop()
        self.store.close()

"""A store and its staged transactions, stepped by hand under a manual clock."""

from collections.abc import Sequence
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_records import Committed, Dropped, Manifest, Prepared, Staged, chunk_payload
from pocketmq.broker.staged.staged_service import StagedService
from pocketmq.broker.staged.staged_state import StagedState
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.clock import ManualClock
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import RecordGroup, record_meta
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from tests.broker.stepped import SteppedService
from tests.store.log_fakes import HOST

KEEP_HOURS = 24


def chunk(bodies: Sequence[bytes], topic: str = "T") -> bytes:
    """Return the payload of a Staged event."""
    records = [plain(body, topic) for body in bodies]
    group = RecordGroup.from_records(records, [record_meta(topic, 0, 0, {})] * len(records))
    return chunk_payload([(topic, 0, len(records))], group.sizes.astype(">u4").tobytes(), group)


def plain(body: bytes, topic: str = "T", queue_id: int = 0) -> bytes:
    """Return a record as a producer stages it."""
    return encode_record(
        topic,
        body,
        queue_id=queue_id,
        properties=encode_properties({"UNIQ_KEY": body.hex().rjust(32, "0")[-32:], "CLUSTER": "c"}),
        born_timestamp=1,
        born_host=HOST,
        store_host=bytes(8),
    )


class StagedFixture(SteppedService):
    """Opens at once. ``stage``, ``prepare``, ``commit``, ``drop`` append; ``deliver`` steps the service."""

    def __init__(self, config: StoreConfig, file_system: FileSystem, clock: ManualClock, **settings: Any) -> None:
        super().__init__(config, file_system, clock)
        self.deleted: set[str] = set()
        self.staged_log = StagedLog(
            self.store, BrokerCounters(), clock, self.log, lambda topic: topic not in self.deleted
        )
        self.service = StagedService(BrokerConfig(**settings), self.store, self.staged_log, clock, self.log)
        self.start()

    def state(self, transactional_id: str, version: int) -> StagedState:
        return self.staged_log.table.get(transactional_id, version)[0]

    def _ok(self, result: Any) -> bool:
        self.store.dispatcher.catch_up()
        if self.store.config.flush_disk_type == "SYNC_FLUSH":  # a send is not acknowledged before
            self.store.log.flush()
        return bool(result.status.is_stored)

    def stage(
        self, transactional_id: str, version: int, attempt: str, index: int, bodies: Sequence[bytes], topic: str = "T"
    ) -> bool:
        payload = chunk(bodies, topic)
        return self._ok(
            self.staged_log.write(Staged(transactional_id, version, attempt, index, len(bodies), [topic]), payload)
        )

    def prepare(self, transactional_id: str, version: int, token: str, manifest: Manifest) -> bool:
        return self._ok(self.staged_log.write(Prepared(transactional_id, version, token, "a", ["a", "b"], manifest)))

    def commit(self, transactional_id: str, version: int, manifest: Manifest) -> bool:
        return self._ok(self.staged_log.write(Committed(transactional_id, version, manifest, ["a"], KEEP_HOURS)))

    def drop(self, transactional_id: str, version: int, *attempts: str) -> bool:
        return self._ok(self.staged_log.write(Dropped(transactional_id, version, list(attempts))))

    def deliver(self) -> None:
        """Deliver all that is due."""
        while self.staged_log.table.deliveries or self.staged_log.repairs:
            if self.service.step() != 0.0:
                break
        self.store.dispatcher.catch_up()

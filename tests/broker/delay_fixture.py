"""A store and its delivery of delayed messages, stepped by hand under a manual clock."""

from typing import Any

from pocketmq.broker.delay.delay_plan import DelayPlan
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.clock import ManualClock
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import RecordGroup, RecordMeta, record_meta
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from tests.broker.stepped import SteppedService
from tests.store.log_fakes import HOST


class DelayFixture(SteppedService):
    """Opens at once. ``send`` stores one delayed message, ``run`` does all that is due."""

    def __init__(self, config: StoreConfig, file_system: FileSystem, clock: ManualClock, host: bytes = HOST) -> None:
        super().__init__(config, file_system, clock, host)
        self.config = config
        self.files = file_system
        file_system.make_dirs(f"{self.store.config.store_path_root_dir}/config")
        self.service = DelayService(config, self.store, file_system, BrokerCounters(), clock, self.log)
        self.start()
        self.plan = DelayPlan(config, self.store.delay_levels, self.service.is_congested, clock)

    def record(
        self, body: bytes = b"x", topic: str = "T", queue_id: int = 0, **properties: str
    ) -> tuple[bytes, RecordMeta]:
        """Return a record as the broker stores it."""
        waits = self.plan.plan(topic, queue_id, properties)
        assert not isinstance(waits, Refusal), waits
        if waits is not None:
            topic, queue_id = waits
        record = encode_record(
            topic,
            body,
            queue_id=queue_id,
            properties=encode_properties(properties),
            born_timestamp=1,
            born_host=HOST,
            store_host=bytes(len(self.store.store_host)),
        )
        return record, record_meta(topic, queue_id, 0, properties)

    def send(self, *bodies: bytes, topic: str = "T", queue_id: int = 0, **properties: str) -> Any:
        """Store messages as one group."""
        pairs = [self.record(body, topic, queue_id, **{"UNIQ_KEY": f"U{body!r}", **properties}) for body in bodies]
        records, metas = zip(*pairs, strict=True)
        result = self.store.append(RecordGroup.from_records(list(records), list(metas)))
        self.store.dispatcher.catch_up()
        return result

    def run(self, advance_ms: float = 0) -> float:
        """Move the clock, step until no more is due now; return the ms until the next step."""
        if advance_ms:
            self.clock.advance_ms(advance_ms)
        self.store.dispatcher.catch_up()
        wait_ms = 0.0
        for _ in range(10_000):
            wait_ms = self.service.step()
            if wait_ms > 0:
                break
        self.service.write_step()
        self.store.dispatcher.catch_up()
        return wait_ms

    def events(self, name: str) -> list[Any]:
        """Return the log's events of one name."""
        return [event for event in self.log.events if event["event"] == name]

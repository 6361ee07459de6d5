"""A store and its transactions, stepped by hand under a manual clock."""

from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.transaction.transaction_plan import HalfPlan
from pocketmq.broker.transaction.transaction_records import HalfRecords
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.broker.transaction.transaction_table import Half, Outcome, TransactionTable
from pocketmq.broker.transaction.transaction_writer import TransactionWriter
from pocketmq.common.clock import ManualClock
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import decode_record, encode_record
from pocketmq.common.record_group import RecordGroup, record_meta
from pocketmq.remoting.protocol.transaction import CheckTransactionStateRequestHeader
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from tests.broker.stepped import SteppedService
from tests.store.log_fakes import HOST

GROUP = "g"


class OneProducer:
    """A ``CheckPort`` with one producer, or none."""

    def __init__(self) -> None:
        self.online = True
        self.hidden: set[str] = set()
        """Topics that the producer's user may not send to."""
        self.asked: list[tuple[CheckTransactionStateRequestHeader, bytes]] = []

    def producers(self, group: str) -> list[Any]:
        return ["connection"] if self.online and group == GROUP else []

    def may_see(self, connection: Any, topic: str) -> bool:
        return topic not in self.hidden

    def send(self, connection: Any, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        self.asked.append((header, body))


class TransactionFixture(SteppedService):
    """Opens at once. ``half`` stores half messages, ``end`` decides, ``round`` runs the checks."""

    def __init__(self, config: StoreConfig, file_system: FileSystem, clock: ManualClock, **settings: Any) -> None:
        super().__init__(config, file_system, clock)
        self.port = OneProducer()
        self.offsets = ConsumerOffsets(1000)
        file_system.make_dirs(f"{self.store.config.store_path_root_dir}/pocketmq")
        self.config = BrokerConfig(**{"transaction_check_interval": 1000, "transaction_time_out": 1000, **settings})
        self.table = TransactionTable(self.config.transaction_pending_max)
        self.writer = TransactionWriter(self.store, self.table, BrokerCounters(), clock)
        self.service = TransactionService(
            self.config,
            self.store,
            self.table,
            self.writer,
            self.port,
            self.offsets,
            file_system,
            clock,
            self.log,
        )
        self.start()
        self.plan = HalfPlan(self.config, self.table)
        self.records = HalfRecords(HOST)

    def half(self, *bodies: bytes, topic: str = "T", size_bytes: int = 0) -> Any:
        """Store half messages as one group, as the broker does; return the append's result."""
        records, metas, halves = [], [], []
        for body in bodies:
            properties = {"UNIQ_KEY": f"U{body!r}", "TRAN_MSG": "true", "PGROUP": GROUP}
            planned = self.plan.plan(topic, 0, properties)
            assert isinstance(planned, tuple), planned
            records.append(
                encode_record(
                    planned[0],
                    body.ljust(size_bytes),
                    queue_id=planned[1],
                    properties=encode_properties(properties),
                    born_timestamp=1,
                    born_host=HOST,
                    store_host=bytes(8),
                )
            )
            metas.append(record_meta(planned[0], planned[1], 0, properties))
            halves.append(planned[2])
        result = self.store.append(RecordGroup.from_records(records, metas))
        if result.status.is_stored:
            at = 0
            for physical_offset, count in result.runs[0]:
                for _ in range(count):
                    half = halves[at]
                    half.queue_offset = result.first_queue_offsets[0] + at
                    half.physical_offset, half.size_bytes = physical_offset, len(records[at])
                    half.store_ms = result.store_timestamp
                    physical_offset += len(records[at])
                    self.plan.add([half])
                    at += 1
        self.store.dispatcher.catch_up()
        return result

    def end(self, commits: list[Half], rollbacks: list[Half]) -> Any:
        """Decide, as one group."""
        claimed = [half for half in (*commits, *rollbacks) if self.table.claim(half.queue_offset) is not None]
        ended = [(half, Outcome.COMMITTED if half in commits else Outcome.ROLLED_BACK) for half in claimed]
        messages = []
        for half, outcome in ended:
            if outcome is Outcome.COMMITTED:
                (record,) = self.writer.contents([half])
                assert record is not None
                if not self.writer.delivered(half, record):
                    messages.append(self.records.committed(record, half.physical_offset))
        result = self.writer.end(messages, ended)
        self.store.dispatcher.catch_up()
        return result

    def round(self, advance_ms: float = 1000) -> list[bytes]:
        """Move the clock, run one round of checks; return the bodies of the checked messages."""
        self.clock.advance_ms(advance_ms)
        self.port.asked.clear()
        self.service.step()
        self.store.dispatcher.catch_up()
        return [decode_record(body).body for _, body in self.port.asked]

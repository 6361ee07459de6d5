"""Half messages that wait for too long: their producers are asked, and at the end they are given up.

Lives here: ``TransactionService``: the check thread, its rounds and limits; the progress on disk; statistics.

Progress that is written never runs ahead of the disk: what ended the half messages that it leaves behind is durable. So
after any crash a half message is asked about once more, and none is forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.topic.topic_table import TableFull
from pocketmq.broker.transaction.transaction_records import HalfIllegal, HalfRecords
from pocketmq.broker.transaction.transaction_recovery import TransactionProgress, recover
from pocketmq.broker.transaction.transaction_table import Half, Outcome, TransactionTable, in_order
from pocketmq.broker.transaction.transaction_writer import TransactionWriter
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.properties import UNIQ_KEY
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import RecordMeta
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.common.topics import HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.transaction import CheckTransactionStateRequestHeader
from pocketmq.remoting.server import Connection
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.message_store import MessageStore

PROGRESS_FILE: Final = "pocketmq/transactionProgress.json"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which RocketMQ keeps its progress (TransactionalMessageUtil.buildConsumerGroup)."""
STEP_MS: Final = 1000.0
CHECKS_MAX: Final = 2000
"""Checks sent to one connection in one round: what the queue of RocketMQ's client takes (TransactionMQProducer)."""
CHECK_BYTES_MAX: Final = 8 << 20
"""Bytes of them."""
READ_HALVES: Final = 64
ROUND_NS_MAX: Final = 60_000_000_000
"""Longest round; the rest waits for the next (RocketMQ: 60 s a queue)."""
HOUR_MS: Final = 3_600_000


class CheckPort(Protocol):
    """The way to producers."""

    def producers(self, group: str) -> list[Connection]:
        """Return the connections of a producer group."""
        ...

    def send(self, connection: Connection, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        """Send CHECK_TRANSACTION_STATE, soon."""
        ...


class ProducerPort:
    """The producers that are connected to this broker."""

    def __init__(self, clients: ClientTable[Connection], mailbox: LoopMailbox) -> None:
        self._clients = clients
        self._mailbox = mailbox

    def producers(self, group: str) -> list[Connection]:
        """Return the open connections of a producer group."""
        return [client.connection for client in self._clients.producers(group) if not client.connection.closed]

    def send(self, connection: Connection, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        """Send a oneway request in the loop's thread."""
        self._mailbox.post(connection.send_oneway, RequestCode.CHECK_TRANSACTION_STATE, header, body)


@dataclass(slots=True)
class _Snapshot:
    """Progress of one moment, safe to write once the log is durable up to ``end_offset``."""

    half_offset: int
    op_offset: int
    checks: dict[int, int]
    end_offset: int


@dataclass(slots=True)
class _Sent:
    """What one connection was asked in this round."""

    count: int = 0
    size_bytes: int = 0


class TransactionService:
    """Runs on masters only. ``open``, ``start``, ``stop`` in this order; statistics may be read from any thread."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        table: TransactionTable,
        writer: TransactionWriter,
        port: CheckPort,
        offsets: ConsumerOffsets,
        file_system: FileSystem,
        clock: Clock,
        log: EventLog,
        *,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_held = is_held
        """Whether nothing must be written now, because another master leads or is about to."""
        self._config = config
        self._store = store
        self.table = table
        self.writer = writer
        self._port = port
        self._offsets = offsets
        self._clock = clock
        self._log = log
        self.progress = TransactionProgress()
        path = f"{store.config.store_path_root_dir}/{PROGRESS_FILE}"
        durable = store.config.sync_on_close
        self._file = PersistedTable(self.progress, path, file_system, log, durable=durable)
        self._snapshot: _Snapshot | None = None
        self._persist_due_ns = 0
        self._round_due_ns = 0
        self._turns: dict[str, int] = {}
        self._records: HalfRecords | None = None
        self._worker: Worker | None = None
        self.checks = 0
        """Checks sent to producers."""
        self.checks_without_producer = 0
        """Times that a half message was due for a check and nobody of its group was there."""
        self.rounds = 0

    # ---- life

    def open(self) -> None:
        """Find what is open. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        self._file.load()
        progress = self.progress
        half_offset, op_offset = progress.half_offset, progress.op_offset
        known = self._offsets.query(TRANS_GROUP, HALF_TOPIC, 0), self._offsets.query(TRANS_GROUP, OP_HALF_TOPIC, 0)
        group_half, group_op = (-1 if each is None else each for each in known)
        # Ahead of ours: a RocketMQ broker had the store since, and left half messages behind that it stored anew.
        if half_offset < 0 or op_offset < 0 or (group_op >= 0 and group_half > half_offset):
            half_offset, op_offset = group_half, group_op
        recover(self._store, self.table, half_offset, op_offset, progress.checks, self._log)

    def start(self, runner: Runner) -> None:
        """Begin to check, one interval from now; keep retention from what is open."""
        retention = self._store.retention
        retention.wanted_from = _lower(retention.wanted_from, self.wanted_from)
        now_ns = self._clock.monotonic_ns()
        self._round_due_ns = now_ns + self._config.transaction_check_interval * 1_000_000
        self._persist_due_ns = now_ns + self._config.flush_consumer_offset_interval * 1_000_000
        first_ms = min(STEP_MS, float(self._config.transaction_check_interval))
        self._worker = runner.start("TransactionCheck", self.step, first_after_ms=first_ms)

    def stop(self) -> None:
        """End the thread, write the progress. Blocks; the store is still open."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if not worker.stop():
            self._log.error("transaction_check_hangs", what_to_do="look at the disk; the next start reads more")
            return
        self.persist()

    # ---- the thread

    def step(self) -> float:
        """Do what is due; return the ms until the next look."""
        if self.is_held():
            return STEP_MS
        now_ns = self._clock.monotonic_ns()
        try:
            if now_ns >= self._round_due_ns:
                self._round_due_ns = now_ns + self._config.transaction_check_interval * 1_000_000
                self.run_round()
            self._settle()
            if now_ns >= self._persist_due_ns:
                self._persist_due_ns = now_ns + self._config.flush_consumer_offset_interval * 1_000_000
                if self._snapshot is None:
                    self._snapshot = self._take()
        except Exception as error:  # the next round tries again, whatever it was
            self._log.error("transaction_check_failed", error=str(error) or repr(error))
        left_ms = (self._round_due_ns - self._clock.monotonic_ns()) / 1e6
        return min(STEP_MS, max(1.0, left_ms))

    def run_round(self) -> None:
        """Ask about each half message that is old enough, once; give up those beyond the limits."""
        self.rounds += 1
        now_ms, until_ns = self._clock.now_ms(), self._clock.monotonic_ns() + ROUND_NS_MAX
        age_max_ms = self._store.config.file_reserved_time * HOUR_MS
        due: list[Half] = []
        beyond: list[Half] = []
        for half in self.table.pending():
            if half.store_ms > now_ms:  # the clock went back: without this it would wait, and hold retention, for ever
                half.store_ms = now_ms
            age_ms = now_ms - half.store_ms
            if half.checks >= self._config.transaction_check_max or age_ms > age_max_ms:
                beyond.append(half)
            elif age_ms >= (half.immunity_ms or self._config.transaction_time_out):
                due.append(half)
        for part in self._parts(beyond):
            self._give_up(part)
        sent: dict[Connection, _Sent] = {}
        alone: dict[str, int] = {}
        for part in self._parts(due):
            if self._clock.monotonic_ns() > until_ns:
                self._log.warning("transaction_check_round_cut", open=len(self.table))
                break
            self._check(part, sent, alone)
        for group, count in alone.items():
            self._log.warning(
                "transaction_check_without_producer",
                group=group,
                half_messages=count,
                what_to_do="start a producer of this group; nothing is given up meanwhile",
            )

    def _parts(self, halves: list[Half]) -> list[list[Half]]:
        """Return parts of bounded count and size."""
        parts: list[list[Half]] = []
        size_bytes = self.writer.group_bytes_max
        for half in in_order(halves):
            if size_bytes >= self.writer.group_bytes_max or len(parts[-1]) == READ_HALVES:
                parts.append([])
                size_bytes = 0
            parts[-1].append(half)
            size_bytes += half.size_bytes
        return parts

    def _half_records(self) -> HalfRecords:
        if self._records is None:
            self._records = HalfRecords(self._store.store_host)
        return self._records

    def _check(self, halves: list[Half], sent: dict[Connection, _Sent], alone: dict[str, int]) -> None:
        asked: list[tuple[Half, Connection]] = []
        for half in halves:
            connection = self._next_producer(half.producer_group)
            if connection is None:
                self.checks_without_producer += 1
                alone[half.producer_group] = alone.get(half.producer_group, 0) + 1
                continue
            so_far = sent.setdefault(connection, _Sent())
            if so_far.count < CHECKS_MAX and so_far.size_bytes < CHECK_BYTES_MAX:
                so_far.count += 1
                so_far.size_bytes += half.size_bytes
                asked.append((half, connection))
        records = self.writer.read([half for half, _ in asked])
        for (half, connection), record in zip(asked, records, strict=True):
            if record is None:
                self._lost(half)
                continue
            if self._ended_by_crash(half, record):
                continue
            try:
                body = self._half_records().checked(record)
            except (HalfIllegal, PocketMQError) as error:
                self._log.error("half_message_illegal", queue_offset=half.queue_offset, error=str(error))
                half.checks = self._config.transaction_check_max  # given up in the next round
                continue
            uniq_key = decode_record(record, check_crc=False).property_map().get(UNIQ_KEY, "")
            header = CheckTransactionStateRequestHeader(
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.physical_offset,
                msg_id=uniq_key,
                transaction_id=uniq_key,
                offset_msg_id=offset_msg_id(self._store.store_host, half.physical_offset),
            )
            half.checks += 1
            self.checks += 1
            self._port.send(connection, header, body)

    def _next_producer(self, group: str) -> Connection | None:
        """Return the group's producers one after the other (RocketMQ ProducerManager.getAvailableChannel)."""
        producers = self._port.producers(group)
        if not producers:
            return None
        if len(self._turns) > 10_000:
            self._turns.clear()
        turn = self._turns[group] = self._turns.get(group, -1) + 1
        return producers[turn % len(producers)]

    def _ended_by_crash(self, half: Half, record: bytes) -> bool:
        """Write the op message that a crash had cut off, if that is what happened."""
        if not half.recovered or not self.writer.delivered(half, record):
            return False
        claimed = self.table.claim(half.queue_offset)
        if claimed is not None and self.writer.end([], [(claimed, Outcome.COMMITTED)]).status.is_stored:
            self._log.info("transaction_was_committed", queue_offset=half.queue_offset, group=half.producer_group)
        self._store.dispatch()
        return True

    def _give_up(self, halves: list[Half]) -> None:
        """Move half messages to ``TRANS_CHECK_MAX_TIME_TOPIC`` and end them."""
        claimed = [each for half in halves if (each := self.table.claim(half.queue_offset)) is not None]
        ended: list[tuple[Half, Outcome]] = []
        messages: list[tuple[bytes, RecordMeta]] = []
        try:
            for half, record in zip(claimed, self.writer.read(claimed), strict=True):
                if record is None:
                    self._lost(half)
                elif self.writer.delivered(half, record):
                    ended.append((half, Outcome.COMMITTED))
                else:
                    messages.append(self._half_records().given_up(record, half.physical_offset))
                    ended.append((half, Outcome.GIVEN_UP))
        except BaseException:
            for half in claimed:
                self.table.release(half)
            raise
        if not ended:
            return
        result = self.writer.end(messages, ended)
        if not result.status.is_stored:
            self._log.warning("half_messages_not_given_up", status=result.status.name, error=result.error)
            return
        self._store.dispatch()
        for half, outcome in ended:
            if outcome is Outcome.GIVEN_UP:
                self._log.warning(
                    "half_message_given_up",
                    queue_offset=half.queue_offset,
                    group=half.producer_group,
                    checks=half.checks,
                    offset_msg_id=offset_msg_id(self._store.store_host, half.physical_offset),
                    what_to_do="it lies in TRANS_CHECK_MAX_TIME_TOPIC; pocketmq transaction resume asks once more",
                )

    def _lost(self, half: Half) -> None:
        self.writer.forget(half)
        self._log.error("half_message_lost", queue_offset=half.queue_offset, group=half.producer_group)

    # ---- progress on disk

    def _take(self) -> _Snapshot:
        half_offset, op_offset = self.table.low()
        return _Snapshot(half_offset, op_offset, self.table.checks(), self._store.appended_offset)

    def _settle(self) -> None:
        """Write down the progress taken before, once everything that it leaves behind is durable."""
        snapshot = self._snapshot
        if snapshot is None or self._store.flushed_offset < snapshot.end_offset:
            return
        self._snapshot = None
        if self._is_untouched(snapshot):
            return
        if self.progress.settle(snapshot.half_offset, snapshot.op_offset, snapshot.checks):
            self._file.persist()
            try:
                self._offsets.commit(TRANS_GROUP, HALF_TOPIC, 0, snapshot.half_offset)
                self._offsets.commit(TRANS_GROUP, OP_HALF_TOPIC, 0, snapshot.op_offset)
            except TableFull:
                pass  # ours is the file; these are for RocketMQ's tools

    def _is_untouched(self, snapshot: _Snapshot) -> bool:
        """Tell whether this store has had no transaction at all: then nothing is written about them."""
        none = (snapshot.half_offset, snapshot.op_offset, snapshot.checks) == (0, 0, {})
        return none and self.progress.half_offset < 0

    def persist(self) -> None:
        """Write down the progress of this moment, if it has changed or its file is gone."""
        snapshot = self._take()
        known = (self.progress.half_offset, self.progress.op_offset, self.progress.checks)
        if self._is_untouched(snapshot):
            return
        try:
            if (snapshot.half_offset, snapshot.op_offset, snapshot.checks) == known:
                self._file.persist()
                return
            if self._store.flushed_offset < snapshot.end_offset:
                self._store.make_durable()
            self._snapshot = snapshot
            self._settle()
        except PocketMQError as error:
            self._log.error("transaction_progress_not_written", error=str(error))

    def wanted_from(self) -> int:
        """Return the physical offset of the oldest open half message: retention keeps it."""
        oldest = self.table.oldest()
        return self._store.committed_offset if oldest is None else oldest.physical_offset

    # ---- statistics

    def oldest_ms(self) -> int:
        """Return the age of the oldest open half message, 0 if there is none."""
        oldest = self.table.oldest()
        return 0 if oldest is None else max(0, self._clock.now_ms() - oldest.store_ms)


def _lower(one: Callable[[], int] | None, other: Callable[[], int]) -> Callable[[], int]:
    if one is None:
        return other
    first = one
    return lambda: min(first(), other())
